package slots

import (
	"time"

	"vestibule/internal/fleet"
	"vestibule/internal/mutant"
	"vestibule/internal/wire"
)

// uplink is the data centre's side of its bond with global.
//
// Invariants: seen never goes back to a lower term, and is stored before
// anything is said or done under it; while blank nothing is free.
type uplink struct {
	leaving bool // the process was told to end

	params wire.Params

	seen     wire.Term
	promised uint64 // version of the Durable that holds seen
	joined   bool   // seen has our books, or we have its
	blank    bool   // the predecessor's books are lost, and not replaced yet

	seq    uint64
	acked  uint64
	grants wire.Parts

	members  uint64        // version of the list of data centres that seen goes by
	standing wire.Standing // of this data centre, as it told
	refused  wire.Term     // a coordinator that is not followed, because it knows no list

	doubting bool // seen tells another time than ours
	doubt    fleet.Mono

	leaseEnd fleet.Mono
	heard    fleet.Mono // newest word of seen
	asked    fleet.Mono // since when an answer is owed, where acked is behind seq
	reported fleet.Mono
	due      fleet.Mono
	busy     bool
}

// hurry makes the next report due as soon as the least gap allows, or so many of them.
func (u *uplink) hurry(now fleet.Mono, gaps int) {
	u.due = min(u.due, max(now, u.reported.Add(time.Duration(gaps)*u.params.SyncGap)))
}

// leased reports whether global reckons with this data centre going on.
func (u *uplink) leased(now fleet.Mono) bool { return now < u.leaseEnd }

func (u *uplink) isolated(now fleet.Mono) bool {
	return now.Sub(u.heard) > isolation || u.unanswered(now, isolationUnsaid)
}

// endGap is how many SyncGaps lie between reports that ends alone hurry: a slot is
// waited for, and ends of a tenth of a second go together.
const endGap = 5

// tellEnds has the report to global be made soon, where there are ends to tell.
func (u *uplink) tellEnds(now fleet.Mono, b *books) {
	if b.terminations.news {
		b.terminations.news = false
		u.hurry(now, endGap)
	}
}

// follow reports whether a grant is from the coordinator that the data centre follows, and
// may be used. Another one is promised to be followed first, unless it is older, or may know
// fewer data centres than there are.
func (u *uplink) follow(now fleet.Mono, g *wire.Grant, s *stored) bool {
	if u.seen.Fences(g.From) && !mutant.On(mutant.CentreFollowsAnybody) && !mutant.On(mutant.NoFencing) {
		return false
	}
	if g.From == u.seen {
		return s.saved >= u.promised || mutant.On(mutant.PromiseUnsaved)
	}
	if g.Members == 0 && s.durable.Changed && !mutant.On(mutant.UnversionedFollowed) {
		u.refused = g.From // whom we follow already did not lend to those without our word
		return false
	}
	// The promise: nothing older can raise our books from here. It is stored before the
	// first word under it.
	u.seen, u.joined, u.acked, u.asked, u.grants = g.From, false, 0, now, wire.Parts{}
	u.refused = wire.Term{}
	u.promised = s.change(func(d *wire.Durable) { d.Promise = g.From })
	u.hurry(now, 0)
	return false
}

// lease prolongs the lease of global. It reports whether there was none.
func (u *uplink) lease(now fleet.Mono, g *wire.Grant) (begins bool) {
	begins = !u.leased(now)
	u.leaseEnd = max(u.leaseEnd, g.Echo.Add(fleet.Shrink(g.Lease)))
	return begins
}

// ReportDue returns when the next report to global is to be made.
func (a *Aggregator) ReportDue() fleet.Mono {
	if a.up.busy {
		return min(a.up.due, a.up.reported.Add(a.cfg.Params.SyncFast))
	}
	return a.up.due
}

// Report returns what global is to be told. Rights that are not to be kept go
// back in the same step.
func (a *Aggregator) Report(now fleet.Mono) []wire.Report {
	u := &a.up
	u.reported = now
	u.due = now.Add(a.cfg.Params.SyncIdle)
	if !u.joined || !a.clock.synced(now) {
		u.due = now.Add(a.cfg.Params.SyncFast)
	}
	if a.stored.durable.Site == 0 && now.Sub(a.clock.started) > a.lives.patience() {
		a.member.makeSite(true) // no edge is there that knew it
	}
	if a.cfg.Site != 0 && a.stored.site == 0 && !mutant.On(mutant.SiteUnsaved) {
		return nil
	}
	if !a.leads(now) || (a.stored.saved < u.promised && !mutant.On(mutant.PromiseUnsaved)) {
		return nil // what was promised is not stored yet
	}
	a.advance(now)
	if u.acked == u.seq {
		u.asked = now
	}
	u.seq++
	at := a.bearings(now)
	head := wire.Report{
		From: a.cfg.DC, Inc: a.cfg.Term.N, Seq: u.seq, Sent: now, AsOf: a.clock.Now(now), AsOfBound: a.clock.Bound(now),
		Seen: u.seen, Acked: u.grants.Done(), Join: !u.joined, Blank: u.blank, Recovering: at.recovering || at.gathering,
		Members: a.member.known(&a.up), Site: a.stored.site, Leaving: u.leaving,
	}
	pack := wire.NewReportPacker(head)
	busy, turned := false, a.last.turned(at, a.roster.edges)
	for _, b := range a.rooms.list {
		if turned || b.dirty || b.stale || b.divided || b.unsure {
			b.dirty = b.loan.giveBack(at.surplus(b)) || b.dirty
			b.divided, b.unsure = false, b.presumes()
		}
		if b.terminations.up.Len() > 0 && b.changedAt <= u.acked {
			b.dirty = true
		}
		if b.dirty {
			b.dirty, b.changedAt = false, u.seq
		}
		busy = busy || b.changedAt == u.seq
		if u.joined && b.changedAt <= u.acked {
			continue
		}
		free, rateFree := at.free(b)
		r := b.report(now, free, rateFree)
		r.Ends = b.terminations.up.Take(u.seq, u.acked)
		b.tellPasses(u.seen, &r)
		pack.Add(r)
	}
	u.busy = busy
	return pack.Reports()
}

const (
	// deaf is after how long without an answer nothing is given back: what goes
	// to a coordinator that is not there is of no use to anybody until the next.
	deaf = time.Second

	// isolation is after how long without a word from global the data centre
	// goes by its own view, or after a shorter time without an answer.
	isolation       = 5 * time.Second
	isolationUnsaid = 2500 * time.Millisecond
)

// unanswered reports whether global has owed an answer for longer than d.
func (u *uplink) unanswered(now fleet.Mono, d time.Duration) bool {
	return u.acked < u.seq && now.Sub(u.asked) > d
}

// hearTime takes the time that global tells, unless it is in doubt. It reports whether that
// corrected a guess.
func (u *uplink) hearTime(now fleet.Mono, g *wire.Grant, c *clock, edges []*edge) (corrected bool) {
	if g.Echo != 0 && !c.askEdges(now, u.params.EdgeLease, edges) {
		wait := u.doubts(now, c, g)
		if u.doubting {
			u.hurry(now, 1)
		}
		corrected = !wait && c.hear(now, g)
	}
	if g.AtBound == fleet.Unsynced && c.Bound(now) <= fleet.Rough {
		u.hurry(now, 1) // a new leader believes our time only if it is told at once
	}
	return corrected
}

// Apply takes what global said. A grant of a lower term, or older than one
// applied, changes nothing.
func (a *Aggregator) Apply(now fleet.Mono, g wire.Grant) {
	u := &a.up
	if g.To != a.cfg.DC || g.Inc != a.cfg.Term.N || a.fencedBy != 0 || a.member.notMeant(g.Site) || !u.follow(now, &g, &a.stored) {
		return
	}
	fresh, complete := u.grants.Take(g.Seq, g.Part, g.Parts)
	if !fresh {
		return
	}
	if u.hearTime(now, &g, &a.clock, a.roster.edges) {
		a.lives.corrected()
	}
	if g.Acked > u.acked {
		u.acked, u.asked = g.Acked, now
	}
	u.heard = now
	a.due = now
	was := a.member.standing(u)
	u.members, u.standing = g.Members, g.Standing
	if a.member.standing(u) != was {
		a.rooms.restale()
	}
	switch g.Adoption {
	case wire.Promise:
		// Global has no books of ours. If we have none either, what our edges
		// have told us is all there is to hold.
		if u.blank && !a.roster.recovering() {
			u.blank = false
			a.rooms.reconstruct()
		}
		u.hurry(now, 1)
	case wire.Adopted:
		u.adopted(now, &g, complete, &a.rooms)
	case wire.Fenced, wire.Dead: // said to edges only
	}
}

// adopted takes the books that global has, where ours are lost, and what it lends.
func (u *uplink) adopted(now fleet.Mono, g *wire.Grant, complete bool, all *rooms) {
	if u.blank {
		if !g.Baseline {
			u.hurry(now, 1)
			return
		}
		for i := range g.Rooms {
			all.open(g.Rooms[i].Room).adopt(&g.Rooms[i])
		}
		if !complete {
			return
		}
		u.blank = false
	}
	u.joined = true
	for i := range g.Rooms {
		if all.open(g.Rooms[i].Room).apply(u.seen, &g.Rooms[i]) {
			u.hurry(now, 1)
		}
	}
	if complete && g.Lease > 0 && g.Echo != 0 && u.lease(now, g) {
		all.restale()
	}
}
