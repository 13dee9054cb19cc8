package slots

import (
	"math"
	"slices"
	"time"

	"vestibule/internal/fleet"
	"vestibule/internal/line"
	"vestibule/internal/mutant"
	"vestibule/internal/wire"
)

// uplink is the data centre's side of its bond with global.
//
// Invariants: seen never goes back to a lower term, and is stored before
// anything is said or done under it; while blank nothing is free.
type uplink struct {
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

func (u *uplink) hurry(now fleet.Mono, gap time.Duration) {
	u.due = min(u.due, max(now, u.reported.Add(gap)))
}

// leased reports whether global reckons with this data centre going on.
func (u *uplink) leased(now fleet.Mono) bool { return now < u.leaseEnd }

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
	if !u.joined || a.clock.Err(now) == fleet.Unsynced {
		u.due = now.Add(a.cfg.Params.SyncFast)
	}
	if a.durable.Site == 0 && now.Sub(a.started) > a.patience() {
		a.makeSite(true) // no edge is there that knew it
	}
	if a.cfg.Site != 0 && a.siteSaved == 0 && !mutant.On(mutant.SiteUnsaved) {
		return nil
	}
	if !a.leads(now) || (a.saved < u.promised && !mutant.On(mutant.PromiseUnsaved)) {
		return nil // what was promised is not stored yet
	}
	a.advance(now)
	if u.acked == u.seq {
		u.asked = now
	}
	u.seq++
	head := wire.Report{
		From: a.cfg.DC, Inc: a.cfg.Term.N, Seq: u.seq, Sent: now, AsOf: a.clock.Now(now), AsOfErr: a.clock.Err(now),
		Seen: u.seen, Acked: u.grants.Done(), Join: !u.joined, Blank: u.blank, Recovering: a.recovering() || a.gathering,
		Members: a.knownMembers(), Site: a.siteSaved,
	}
	pack := wire.NewReportPacker(head)
	busy, turned := false, a.turned(now)
	for _, b := range a.order {
		if turned || b.dirty || b.stale || b.divided || b.unsure {
			a.giveBack(now, b)
			b.divided, b.unsure = false, a.presumes(b)
		}
		if b.marks.up.Len() > 0 && b.changedAt <= u.acked {
			b.dirty = true
		}
		if b.dirty {
			b.dirty, b.changedAt = false, u.seq
		}
		busy = busy || b.changedAt == u.seq
		if u.joined && b.changedAt <= u.acked {
			continue
		}
		r := a.roomReport(now, b)
		r.Ends = b.marks.up.Take(u.seq, u.acked)
		pack.Add(r)
	}
	u.busy = busy
	return pack.Reports()
}

// bearings are what decides about giving back beside the books of a room.
type bearings struct {
	blank, recovering, gathering, isolated, deaf bool

	edges []edgeBearing
}

type edgeBearing struct {
	edge  *edge
	state edgeState
}

// turned reports whether the bearings changed since the last call: then every room
// is looked at, else those whose books changed.
func (a *Aggregator) turned(now fleet.Mono) bool {
	is := bearings{blank: a.up.blank, recovering: a.recovering(), gathering: a.gathering, isolated: a.isolated(now), deaf: a.up.unanswered(now, deaf)}
	was := &a.last
	if is.blank == was.blank && is.recovering == was.recovering && is.gathering == was.gathering && is.isolated == was.isolated && is.deaf == was.deaf &&
		slices.EqualFunc(was.edges, a.edges, func(b edgeBearing, e *edge) bool { return b.edge == e && b.state == e.state }) {
		return false
	}
	is.edges = was.edges[:0]
	for _, e := range a.edges {
		is.edges = append(is.edges, edgeBearing{e, e.state})
	}
	*was = is
	return true
}

// presumes reports whether anything in the books of a room is presumed.
func (a *Aggregator) presumes(b *books) bool {
	return slices.ContainsFunc(a.edges, func(e *edge) bool {
		acc := e.accounts[b.ID]
		return acc != nil && (acc.phantom != 0 || acc.frozen != 0 || acc.frozenBlind != 0 || acc.kept != 0)
	})
}

// giveBack returns free rights beyond what global wants kept here. The rights
// that lie idle at the edges come back first through their own targets.
func (a *Aggregator) giveBack(now fleet.Mono, b *books) {
	n, rate := a.surplus(now, b)
	if n > 0 {
		b.returned += uint64(n)
		b.dirty = true
	}
	if rate > 0 {
		b.rateReturned += uint64(rate)
		b.dirty = true
	}
}

// surplus returns how many free rights of T and of R are to go back; none where
// that is not positive.
func (a *Aggregator) surplus(now fleet.Mono, b *books) (n, rate int64) {
	if a.up.blank || a.recovering() {
		return 0, 0
	}
	keep, rateKeep := a.keep(b, now)
	if b.declared && !mutant.On(mutant.DeclaredUsed) {
		keep, rateKeep = 0, 0
	}
	free, rfree := a.free(b), a.rateFree(b)
	return min(free, free+a.edgeIdle(b)-keep), min(rfree, rfree+a.edgeRateIdle(b)-rateKeep)
}

// keep returns how many idle rights the data centre is to have: all of a room
// that went are to go back, and none while global cannot hear of it.
func (a *Aggregator) keep(b *books, now fleet.Mono) (keep, rate int64) {
	switch {
	case b.gone:
		return 0, 0
	case a.isolated(now), a.up.unanswered(now, deaf):
		return math.MaxInt64, math.MaxInt64
	}
	return int64(b.keep), int64(b.rateKeep)
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

func (a *Aggregator) isolated(now fleet.Mono) bool {
	return now.Sub(a.up.heard) > isolation || a.up.unanswered(now, isolationUnsaid)
}

// unanswered reports whether global has owed an answer for longer than d.
func (u *uplink) unanswered(now fleet.Mono, d time.Duration) bool {
	return u.acked < u.seq && now.Sub(u.asked) > d
}

// held returns the rights of T in the data centre, rateHeld those of R.
func (b *books) held() int64     { return int64(b.granted) - int64(b.returned) }
func (b *books) rateHeld() int64 { return int64(b.rateGranted) - int64(b.rateReturned) }

// active returns how many sessions are reckoned with: counted and presumed.
func (a *Aggregator) active(b *books) int64 {
	n := b.counts.head(a.passed)
	for _, e := range a.edges {
		if acc := e.accounts[b.ID]; acc != nil {
			n += acc.presumed(&b.counts)
		}
	}
	return n
}

// free returns the rights of T that neither a session nor an edge holds. It is
// negative where more is reckoned with than is held: a debt, which drains.
func (a *Aggregator) free(b *books) int64 {
	if a.up.blank || a.recovering() || a.gathering {
		return 0 // sessions may exist that nobody has told us of yet
	}
	return a.reckoned(b)
}

// reckoned is free by what is known so far.
func (a *Aggregator) reckoned(b *books) int64 {
	n := b.held() - a.active(b)
	for _, e := range a.edges {
		if acc := e.accounts[b.ID]; acc != nil && (e.state == alive || e.state == joining) {
			n -= max(0, acc.credit())
		}
	}
	return n
}

// rateFree is free for the rights of R.
func (a *Aggregator) rateFree(b *books) int64 {
	if a.up.blank || a.recovering() {
		return 0
	}
	return a.rateReckoned(b)
}

func (a *Aggregator) rateReckoned(b *books) int64 {
	n := b.rateHeld()
	for _, e := range a.edges {
		if acc := e.accounts[b.ID]; acc != nil && (e.state == alive || e.state == joining) {
			n -= max(0, acc.rateHeld())
		}
	}
	for _, p := range b.ratePhantoms {
		n -= p.n
	}
	return n
}

// edgeIdle returns the rights of T that lie unused at the edges, edgeRateIdle
// those of R, as far as reported.
func (a *Aggregator) edgeIdle(b *books) int64 {
	n := int64(0)
	for _, e := range a.edges {
		if acc := e.accounts[b.ID]; acc != nil && e.state == alive {
			n += acc.idle()
		}
	}
	return n
}

func (a *Aggregator) edgeRateIdle(b *books) int64 {
	n := int64(0)
	for _, e := range a.edges {
		if acc := e.accounts[b.ID]; acc != nil && e.state == alive {
			n += acc.rateIdleNow()
		}
	}
	return n
}

func (a *Aggregator) roomReport(now fleet.Mono, b *books) wire.RoomReport {
	t := a.tally(b)
	r := wire.RoomReport{
		Room: b.ID, Gen: b.gen, Declared: b.declared,
		Granted: b.granted, Returned: b.returned,
		RateGranted: b.rateGranted, RateReturned: b.rateReturned,
		Idle:     uint64(max(0, a.free(b)) + a.edgeIdle(b)),
		RateIdle: uint64(max(0, a.rateFree(b)) + a.edgeRateIdle(b)),
		Active:   t.active,
		Admitted: t.admitted, Joined: t.joined, Entered: t.entered,
		Excess: uint64(b.excess()), Outcomes: t.outcomes,
	}
	lines := make([]line.Histogram, 0, len(a.edges))
	young := make([]line.Histogram, 0, len(a.edges))
	parked := make([][]fleet.Time, 0, len(a.edges))
	for _, e := range a.edges {
		acc := e.accounts[b.ID]
		if acc == nil || e.state != alive {
			continue
		}
		r.Want += acc.want
		r.ParkedN += acc.parkedN
		r.Movers += acc.movers
		young = append(young, acc.young(e.asOf))
		parked = append(parked, acc.parked)
		if acc.report != nil {
			lines = append(lines, acc.report.Waiting)
			for _, m := range acc.report.Arrivals {
				r.Arrivals = addMinute(r.Arrivals, m)
			}
		}
	}
	r.Parked = mergeTimes(parked, wire.MaxParked)
	r.Young = line.Sum(young...).Compact(wire.MaxSlices)
	r.Unseen = max(0, r.Young.Total())
	b.waiting = line.Sum(lines...).Clamp().Compact(wire.MaxSlices)
	r.Waiting = b.waiting
	b.flow.sample(now, &t, b.waiting.Total())
	slices.SortFunc(r.Arrivals, func(x, y wire.Minute) int { return int(x.Start - y.Start) })
	if n := len(r.Arrivals); n > wire.MaxMinutes {
		r.Arrivals = r.Arrivals[n-wire.MaxMinutes:]
	}
	return r
}

// tally returns how the room stands in this data centre.
func (a *Aggregator) tally(b *books) tally {
	return tally{
		life: time.Duration(b.life) * time.Second, active: uint64(max(0, a.active(b))),
		admitted: b.admitted, joined: b.joined, entered: b.entered, outcomes: b.outcomes.Outcomes(),
	}
}

// addMinute adds the visitors of m to the few minutes that there are.
func addMinute(minutes []wire.Minute, m wire.Minute) []wire.Minute {
	for i := range minutes {
		if minutes[i].Start == m.Start {
			minutes[i].N += m.N
			return minutes
		}
	}
	return append(minutes, m)
}

// mergeTimes returns the first join times of several lists, each ascending, at
// most so many. What it returns is not to be changed.
func mergeTimes(lists [][]fleet.Time, most int) []fleet.Time {
	switch len(lists) {
	case 0:
		return nil
	case 1:
		return lists[0][:min(len(lists[0]), most)]
	}
	a, b := mergeTimes(lists[:len(lists)/2], most), mergeTimes(lists[len(lists)/2:], most)
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0:
		return a
	}
	out := make([]fleet.Time, 0, min(len(a)+len(b), most))
	for len(out) < cap(out) {
		if len(b) == 0 || (len(a) > 0 && a[0] <= b[0]) {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return out
}

// Apply takes what global said. A grant of a lower term, or older than one
// applied, changes nothing.
func (a *Aggregator) Apply(now fleet.Mono, g wire.Grant) {
	u := &a.up
	if g.To != a.cfg.DC || g.Inc != a.cfg.Term.N || a.fencedBy != 0 || a.notMeant(g.Site) {
		return
	}
	lower := g.From.N < u.seen.N || (g.From.N == u.seen.N && g.From != u.seen)
	if lower && !mutant.On(mutant.CentreFollowsAnybody) && !mutant.On(mutant.NoFencing) {
		return
	}
	if g.From != u.seen && g.Members == 0 && a.durable.Changed && !mutant.On(mutant.UnversionedFollowed) {
		// It may know fewer data centres than there are. Whom we follow already did
		// not lend to those without our word.
		u.refused = g.From
		return
	}
	if g.From != u.seen {
		// The promise: nothing older can raise our books from here. It is
		// stored before the first word under it.
		u.seen, u.joined, u.acked, u.asked, u.grants = g.From, false, 0, now, wire.Parts{}
		u.refused = wire.Term{}
		a.durable = a.durable.Clone()
		a.durable.Promise = g.From
		a.durable.Version++
		u.promised = a.durable.Version
		u.hurry(now, 0)
		return
	}
	if a.saved < u.promised && !mutant.On(mutant.PromiseUnsaved) {
		return
	}
	fresh, complete := u.grants.Take(g.Seq, g.Part, g.Parts)
	if !fresh {
		return
	}
	if g.Echo != 0 && !a.askEdges(now) && !a.doubts(now, &g) {
		if unknown := a.clock.Err(now) == fleet.Unsynced; a.clock.Sync(now, g.Echo, g.Dwell, g.At, g.AtErr) {
			was := a.guessed
			if a.guessed = g.Guess && (unknown || a.guessed); was && !a.guessed {
				a.corrected()
			}
		}
	}
	if g.AtErr == fleet.Unsynced && a.clock.Err(now) <= fleet.Rough {
		u.hurry(now, a.cfg.Params.SyncGap) // a new leader believes our time only if it is told at once
	}
	if g.Acked > u.acked {
		u.acked, u.asked = g.Acked, now
	}
	u.heard = now
	a.due = now
	if u.members != g.Members || u.standing != g.Standing {
		was := a.standing()
		u.members, u.standing = g.Members, g.Standing
		if a.standing() != was {
			a.restale()
		}
	}

	switch g.Verdict {
	case wire.Promise:
		// Global has no books of ours. If we have none either, what our edges
		// have told us is all there is to hold.
		if u.blank && !a.recovering() {
			a.declare()
		}
		u.hurry(now, a.cfg.Params.SyncGap)
		return
	case wire.Adopted:
	case wire.Fenced, wire.Dead:
		return // said to edges only
	default:
		return
	}
	if u.blank {
		if !g.Basis {
			u.hurry(now, a.cfg.Params.SyncGap)
			return
		}
		for i := range g.Rooms {
			b := a.books(g.Rooms[i].Room)
			b.gen, b.declared = g.Rooms[i].Gen, !g.Rooms[i].Confirmed
			b.granted, b.returned = g.Rooms[i].Granted, g.Rooms[i].Returned
			b.rateGranted, b.rateReturned = g.Rooms[i].RateGranted, g.Rooms[i].RateReturned
			b.dirty, b.stale = true, true
		}
		if !complete {
			return
		}
		u.blank = false
	}
	u.joined = true
	for i := range g.Rooms {
		a.applyRoom(now, &g.Rooms[i])
	}
	if complete && g.Lease > 0 && g.Echo != 0 {
		was := u.leased(now)
		u.leaseEnd = max(u.leaseEnd, g.Echo.Add(fleet.Shrink(g.Lease)))
		if !was {
			a.restale()
		}
	}
}

func (a *Aggregator) applyRoom(now fleet.Mono, g *wire.RoomGrant) {
	b := a.books(g.Room)
	if g.Gen < b.gen {
		return // of books that were voided since
	}
	if g.Gen > b.gen {
		// Global has given our rights to others, long after it had last heard
		// of us. Sessions that still exist are more than we hold now; nothing
		// is granted until they have gone.
		if b.declared = false; !mutant.On(mutant.VoidAgain) {
			b.gen = g.Gen
		}
		b.granted, b.returned, b.rateGranted, b.rateReturned = 0, 0, 0, 0
		b.dirty = true
	}
	if b.declared && g.Confirmed {
		b.declared, b.dirty = false, true
	}
	if g.Granted > b.granted || g.RateGranted > b.rateGranted {
		b.dirty = true
	}
	b.granted = max(b.granted, g.Granted)
	b.rateGranted = max(b.rateGranted, g.RateGranted)
	if g.Keep < b.keep || g.RateKeep < b.rateKeep {
		a.up.hurry(now, a.cfg.Params.SyncGap) // somebody else wants what lies idle here
	}
	b.keep, b.rateKeep = g.Keep, g.RateKeep
	b.stale = true
	for _, end := range g.Ends {
		a.end(b, end, false)
	}
	if g.View != nil {
		a.show(b, g.View)
	}
}

// declare makes books out of what the edges hold and count: nobody knows how
// much was lent. They cover every session and every right at an edge, so global
// lends no more than T and R beside them. But they cover what is only presumed
// as well, and doubles, and so may be more than was ever lent: until global has
// seen that all books together keep the limits, nothing in them is used twice.
func (a *Aggregator) declare() {
	a.up.blank = false
	for _, b := range a.order {
		held, rate := a.active(b), int64(0)
		for _, e := range a.edges {
			if acc := e.accounts[b.ID]; acc != nil && (e.state == alive || e.state == joining) {
				held += max(0, acc.credit())
				rate += max(0, acc.rateHeld())
			}
		}
		for _, p := range b.ratePhantoms {
			rate += p.n
		}
		b.granted, b.returned = uint64(max(0, held)), 0
		b.rateGranted, b.rateReturned = uint64(rate), 0
		b.declared = true
		b.dirty, b.stale = true, true
	}
}

// restale makes the next Grants look at every room again.
func (a *Aggregator) restale() {
	for _, b := range a.order {
		b.stale = true
	}
}
