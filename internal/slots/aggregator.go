package slots

import (
	"cmp"
	"math"
	"slices"
	"time"

	"vestibule/internal/fleet"
	"vestibule/internal/lineage"
	"vestibule/internal/mutant"
	"vestibule/internal/room"
	"vestibule/internal/wire"
)

// RoomConfig is what the ledger needs to know of a room.
type RoomConfig struct {
	ID       room.ID
	Total    uint64        // T
	Rate     uint64        // R
	Session  time.Duration // session_duration
	Cap      bool          // partition_policy cap
	LostWait time.Duration // lost_after
}

// AggregatorConfig is what an aggregator is made of.
type AggregatorConfig struct {
	DC     string
	Term   wire.Term // fencing number; every predecessor had a lower one
	Params wire.Params

	// Bootstrap asserts that this data centre is new: that no edge of it ever
	// admitted anybody, and nothing was ever stored. Without it, or once an edge tells
	// otherwise, an aggregator that finds nothing stored waits until whatever there
	// may have been has expired.
	Bootstrap bool

	// Own is what the process that leads now would have stored when it led last, under
	// the term OwnTerm; the zero Durable for nothing. It matters only where nothing is
	// stored: see witness.
	Own     wire.Durable
	OwnTerm uint64

	// Site tells this data centre from others of its name where nothing stored and no
	// edge does: chance. 0 for none: then it is told apart from nobody.
	Site uint64

	// GoneAbove is how many seconds of sessions of edges that left may stand on the
	// roster one by one before they are summed; 0 for what is fit.
	GoneAbove int
}

func (c *AggregatorConfig) goneAbove() int {
	if c.GoneAbove > 0 {
		return c.GoneAbove
	}
	return goneAbove
}

// Aggregator is the core of one data centre's regional: the child of global
// and the parent of its edges. It keeps the head-count of the data centre and
// divides its rights among the edges.
//
// Invariant, per room: sessions that may be valid anywhere and were admitted
// here, and credit that edges may still spend, and what is free, sum to no
// more than what the data centre holds. In every doubt it counts too many.
type Aggregator struct {
	cfg     AggregatorConfig
	home    uint32 // the data centre's number in tickets
	clock   fleet.Clock
	guessed bool // fleet time is a guess of global's: it may be far from what it was
	started fleet.Mono
	guess   int64      // Unix second of fleet time at which it was guessed
	until   fleet.Mono // own leadership: nothing is sent from here on

	up       uplink
	fencedBy uint64 // term of a successor that exists: nothing is sent any more

	edges  []*edge // by name and incarnation
	strays []stray
	nums   edgeNum
	said   uint64 // Seq of the newest grant to any edge: who is forgotten and returns hears no older one

	probes    []probe    // grants sent before the aggregator knew the time
	trips     trips      // of their answers
	advanced  fleet.Mono // when the books were last moved to the present
	watermark fleet.Time
	passed    int64      // of all counts
	alone     bool       // no edge is heard
	together  fleet.Mono // when those are supposed to be back who fell silent together
	gathering bool       // until then some of them are waited for
	hold      bool       // an edge may have counted what nobody has told us
	holdUntil int64      // Unix second after which nothing of lost edges can be valid

	pastLife  uint32     // longest life of a ticket that a predecessor allowed, which may be out there
	pastTill  fleet.Mono // until then
	lifeNeeds uint64     // version of the durable that tells the longest life
	lifeSaved uint32     // the longest life that is stored

	rooms map[room.ID]*books
	order []*books // by ID

	durable wire.Durable
	saved   uint64 // newest version known to be stored

	members      Members         // as this node knows them
	membersNeeds uint64          // version of the durable that tells their version
	membersSaved uint64          // the version that is stored
	siteNeeds    uint64          // version of the durable that tells the site
	siteSaved    uint64          // the site that is stored, and told
	siteMade     bool            // of a data centre of which nothing was stored and nobody knew anything
	rejoins      bool            // it is to lead anew, as the data centre of the list
	witnesses    []wire.GoneEdge // edges that are yet to tell whom they followed
	heirs        int             // how many there were
	rival        bool            // an edge followed somebody else since we led last
	begins       bool            // the data centre is new, as the operator says

	folded fleet.Mono // when it was last looked for edges that are gone

	surprises uint64 // edges that came with what nothing stored tells of
	surprise  string // the last of them
	twins     uint64 // how often an edge was found to live beside another one of its name

	due  fleet.Mono // of the next Grants
	last bearings   // as it was last looked at what to give back
}

// stray is somebody who is owed an answer without being in the books.
type stray struct {
	name    string
	inc     uint64
	tenure  uint64
	echo    fleet.Mono
	recv    fleet.Mono
	verdict wire.Verdict
}

const maxStrays = 256

// NewAggregator returns the aggregator of a data centre under a new term.
// stored is what the predecessor made durable, read after this term was won;
// the zero Durable if there was none. Until SetLease the aggregator sends
// nothing.
func NewAggregator(now fleet.Mono, cfg AggregatorConfig, stored wire.Durable) *Aggregator {
	told, site := stored.Members, stored.Site // what is not stored may not be told
	own := stored.Version == 0 && cfg.Own.Version > 0 && !cfg.Bootstrap
	if own {
		stored = cfg.Own.Clone()
		// Who did not know everything then cannot know it now.
		own = !slices.ContainsFunc(stored.Roster, func(r wire.RosterEntry) bool { return r.Edge == wire.UnknownPast })
		if stored.LoseTrack(); mutant.On(mutant.OwnMemoryTrusted) {
			stored.Roster = stored.Roster[:len(stored.Roster)-1]
		}
	}
	a := &Aggregator{cfg: cfg, home: wire.HomeOf(cfg.DC), rooms: map[room.ID]*books{}, durable: stored.Clone(), passed: math.MaxInt64, started: now, due: now}
	a.durable.Version++
	a.up.seen = stored.Promise
	a.membersSaved = told
	switch {
	case site != 0:
		a.durable.Site, a.siteSaved = site, site
	case stored.Site != 0: // as this process remembers it
		a.siteNeeds = a.durable.Version
	case stored.Version > 0 || cfg.Bootstrap:
		a.makeSite(stored.Version == 0)
	}
	if a.pastLife = stored.Life; mutant.On(mutant.LifeForgotten) {
		a.pastLife = 0
	}
	// The predecessor and its edges may have gone on for a while.
	a.pastTill = now.Add(fleet.Stretch(time.Duration(a.pastLife)*time.Second + time.Minute))
	a.up.blank = true
	a.begins = stored.Version == 0 && cfg.Bootstrap && !mutant.On(mutant.BootstrapInsists)
	if stored.Version == 0 && !cfg.Bootstrap && !mutant.On(mutant.EmptyStoreIsNew) {
		// Nothing stored: a new data centre, or a store that lost its memory. It
		// goes on the roster: a successor that finds some edges there must not take
		// them for all there were.
		a.newEdge(wire.UnknownPast, 0).recv = now
		a.durable.LoseTrack()
	}
	for i := range stored.Roster {
		r := &stored.Roster[i]
		if own && !r.Dead && r.Edge != wire.UnknownPast {
			a.witnesses, a.heirs = append(a.witnesses, wire.GoneEdge{Edge: r.Edge, Inc: r.Inc}), a.heirs+1
		}
		if !r.Dead && mutant.On(mutant.RosterForgotten) {
			continue
		}
		e := a.newEdge(r.Edge, r.Inc)
		e.tenure, e.recv, e.state, e.heir = r.Tenure, now, awaiting, true
		e.waited, e.silent = r.Waited, time.Duration(r.Waited)*time.Second
		if !mutant.On(mutant.WaitForgotten) {
			e.leased, e.until, e.ended = r.Leased, r.Until, r.Ended
		}
		if r.Dead {
			if e.state, e.gone = dead, r.Gone; r.Left || r.Edge == wire.Gone {
				e.state = left
			}
			for _, rr := range r.Rooms {
				b := a.books(rr.Room)
				acc := b.account(e)
				// Counted from so early that no ticket which may be stamped from now on
				// expires before it: what is stored was stamped before now.
				if first, ok := oldest(&stored, rr.Room); ok {
					b.counts.begin(fleet.Time((int64(first) - int64(wire.Life(room.MaxSession))) * 1000))
				}
				acc.takeSessions(&b.counts, rr.Sessions)
				acc.phantom, acc.phantomUntil, acc.silent, acc.stampLife = rr.Phantom, rr.PhantomUntil, rr.Silent, int64(a.pastLife)
				// When they were used is not known here: the window begins anew.
				b.phantomRate(e, rr.RatePhantom, now)
				if n := len(b.ratePhantoms); rr.RatePhantom > 0 && n > 0 {
					b.ratePhantoms[n-1].end = rr.RateUntil
				}
			}
		}
	}
	return a
}

// oldest returns the first expiry second that a roster tells of a room.
func oldest(d *wire.Durable, id room.ID) (first uint32, ok bool) {
	for i := range d.Roster {
		for _, rr := range d.Roster[i].Rooms {
			if rr.Room == id && len(rr.Sessions) > 0 && (!ok || rr.Sessions[0].Until < first) {
				first, ok = rr.Sessions[0].Until, true
			}
		}
	}
	return first, ok
}

func (a *Aggregator) newEdge(name string, inc uint64) *edge {
	a.nums++
	e := &edge{name: name, inc: inc, num: a.nums}
	i, _ := slices.BinarySearchFunc(a.edges, e, compareEdges)
	a.edges = slices.Insert(a.edges, i, e)
	return e
}

// close closes the accounts of an edge.
func (a *Aggregator) close(e *edge) {
	for _, b := range a.order {
		if i, ok := slices.BinarySearchFunc(b.accounts, e, compareAccount); ok {
			b.accounts = slices.Delete(b.accounts, i, i+1)
		}
	}
	e.rooms, e.open = 0, nil
}

// books returns the ledger of a room, which it makes if need be: reports may
// name a room before our own room set does, or after.
func (a *Aggregator) books(id room.ID) *books {
	b := a.rooms[id]
	if b == nil {
		b = &books{RoomConfig: RoomConfig{ID: id}, home: a.home, gone: true, dirty: true, lifeMax: a.pastLife, lifeTill: a.pastTill, lines: lineage.NewBook(maxLines, 0)}
		b.counts.passed = a.passed
		a.rooms[id] = b
		a.order = append(a.order, b)
		slices.SortFunc(a.order, func(x, y *books) int { return cmp.Compare(x.ID, y.ID) })
	}
	return b
}

// SetRooms replaces the room set. Books of a room that went stay open until
// everything in them has gone back to global.
func (a *Aggregator) SetRooms(now fleet.Mono, rooms []RoomConfig) {
	for _, b := range a.order {
		b.gone = true
	}
	for _, r := range rooms {
		b := a.books(r.ID)
		b.RoomConfig, b.gone, b.dirty = r, false, true
		b.setLife(now, wire.Life(r.Session))
	}
	a.promiseLife(now)
	for _, e := range a.edges {
		for _, b := range a.order {
			if acc := b.of(e); acc != nil || e.state == alive {
				b.account(e).news()
			}
		}
	}
	a.up.hurry(now, a.cfg.Params.SyncGap)
	a.due = now
}

// SetMembers tells the aggregator of a list of data centres. An older version than
// the newest known changes nothing.
func (a *Aggregator) SetMembers(now fleet.Mono, m Members) {
	if m.Version < a.members.Version {
		return
	}
	a.members = m
	if m.Version > a.durable.Members || (m.Version == a.durable.Members && m.Changed != a.durable.Changed) {
		a.durable = a.durable.Clone()
		a.durable.Members, a.durable.Changed = m.Version, m.Changed
		a.durable.Version++
		a.membersNeeds = a.durable.Version
	}
	a.up.hurry(now, a.cfg.Params.SyncGap)
	a.due = now
	a.restale()
}

// knownMembers returns the version of the list that global is told of. A list that
// every configuration holds is that of a coordinator who goes by its own.
func (a *Aggregator) knownMembers() uint64 {
	if a.up.joined && a.up.members == 0 && !a.durable.Changed {
		return 0
	}
	return a.membersSaved
}

// standing returns how the data centre stands in the newest list that it, or the
// coordinator that it follows, knows.
func (a *Aggregator) standing() wire.Standing {
	if a.members.Version > a.up.members || a.isCopy() {
		return a.members.Standing(a.cfg.DC, a.durable.Site)
	}
	return a.up.standing
}

// promiseLife sees to it that the successor will know for how long tickets may be
// valid: nothing is stamped for longer than what is stored.
func (a *Aggregator) promiseLife(now fleet.Mono) {
	if life := uint32(a.longestLife(now) / time.Second); life > a.durable.Life {
		a.durable = a.durable.Clone()
		a.durable.Life = life
		a.durable.Version++
		a.lifeNeeds = a.durable.Version
	}
}

// stamps returns for how long the edges may stamp tickets of a room now.
func (a *Aggregator) stamps(b *books) uint32 { return min(b.life, a.lifeSaved) }

// Durable returns what is to be stored, whether it is or not.
func (a *Aggregator) Durable() wire.Durable { return a.durable.Clone() }

// SetLease tells until when this aggregator leads its data centre, by its own
// clock. From then on it sends nothing.
func (a *Aggregator) SetLease(until fleet.Mono) { a.until = until }

// Fenced reports whether a successor has been seen, and a term that it cannot
// be below: the shell is to stop.
func (a *Aggregator) Fenced() (by uint64, fenced bool) { return a.fencedBy, a.fencedBy != 0 }

func (a *Aggregator) leads(now fleet.Mono) bool { return a.fencedBy == 0 && now < a.until }

// Unsaved returns what has to be stored before the aggregator goes on with
// what it wants to do. The shell stores it and calls Saved.
func (a *Aggregator) Unsaved() (wire.Durable, bool) {
	if a.durable.Version <= a.saved {
		return wire.Durable{}, false
	}
	return a.durable.Clone(), true
}

// Saved tells that version is stored.
func (a *Aggregator) Saved(now fleet.Mono, version uint64) {
	if version <= a.saved {
		return
	}
	a.saved = version
	if a.saved >= a.lifeNeeds && a.lifeSaved < a.durable.Life {
		a.lifeSaved = a.durable.Life
		a.restale()
	}
	if a.saved >= a.membersNeeds {
		a.membersSaved = a.durable.Members
	}
	if a.saved >= a.siteNeeds {
		a.siteSaved = a.durable.Site
	}
	for _, e := range a.edges {
		if e.state == joining && a.saved >= e.needs {
			e.state = alive
			e.due = true
		}
	}
	a.due = now
	a.up.hurry(now, a.cfg.Params.SyncGap)
}

// enrol writes an incarnation's place on the roster; the edge waits for it.
func (a *Aggregator) enrol(e *edge) {
	entry := wire.RosterEntry{Edge: e.name, Inc: e.inc, Tenure: e.tenure, Dead: e.state == dead || e.state == left, Left: e.state == left, Gone: slices.Clone(e.gone), Waited: e.waited}
	if mutant.On(mutant.WaitKept) {
		entry.Leased, entry.Until = e.leased, e.until
	}
	if entry.Dead {
		for _, b := range a.order {
			acc := b.of(e)
			if acc == nil || !b.countsOn(e, acc) || mutant.On(mutant.RosterForgetsPhantoms) {
				continue
			}
			rateUntil := int64(0)
			if a.clock.Err(a.advanced) != fleet.Unsynced {
				rateUntil = b.rateUntil(e, a.advanced, a.latest(a.advanced))
			}
			entry.Rooms = append(entry.Rooms, wire.RosterRoom{
				Room: b.ID, Sessions: slices.Clone(acc.sessions),
				Phantom: acc.phantom + acc.frozen + acc.frozenBlind + acc.kept, PhantomUntil: acc.phantomUntil, Silent: acc.silent,
				RatePhantom: b.rateOf(e), RateUntil: rateUntil,
			})
		}
	}
	if e.name == wire.Gone {
		entry.Rooms = goneRooms(entry.Rooms)
	}
	a.durable = a.durable.Clone()
	if life := uint32(a.longestLife(a.advanced) / time.Second); a.saved >= a.lifeNeeds && life < a.durable.Life {
		a.durable.Life, a.lifeSaved = life, life // what was longer is over
	}
	i := a.rosterIndex(e)
	if i < 0 {
		a.durable.Roster = append(a.durable.Roster, entry)
	} else {
		entry.Keep(&a.durable.Roster[i])
		a.durable.Roster[i] = entry
	}
	a.durable.Version++
	e.needs = a.durable.Version
}

// patch changes what the roster tells of an incarnation, which it goes on to be what
// it is.
func (a *Aggregator) patch(e *edge, change func(r *wire.RosterEntry)) {
	if i := a.rosterIndex(e); i >= 0 {
		a.durable = a.durable.Clone()
		change(&a.durable.Roster[i])
		a.durable.Version++
	}
}

// strike takes an incarnation off the roster: nothing of it is counted any more.
func (a *Aggregator) strike(e *edge) {
	if i := a.rosterIndex(e); i >= 0 {
		a.durable = a.durable.Clone()
		a.durable.Roster = slices.Delete(a.durable.Roster, i, i+1)
		a.durable.Version++
	}
}

func (a *Aggregator) rosterIndex(e *edge) int {
	return slices.IndexFunc(a.durable.Roster, func(r wire.RosterEntry) bool { return r.Edge == e.name && r.Inc == e.inc })
}
