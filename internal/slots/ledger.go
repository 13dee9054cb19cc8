package slots

import (
	"time"

	"vestibule/internal/fleet"
	"vestibule/internal/room"
	"vestibule/internal/wire"
)

// RegionLedger is one room of a data centre at one moment, for metrics and for
// the simulator's judge.
type RegionLedger struct {
	Granted, Returned         uint64 // T
	RateGranted, RateReturned uint64 // R
	Free, RateFree            int64
	Active                    int64 // sessions counted and presumed
	Presumed                  int64 // of which presumed
	RatePresumed              int64 // rights of R that edges which are gone are taken to have used within the window
	Credit                    int64 // lent to edges and not known to be spent
	Keep, RateKeep            uint64
	Want                      uint64
	HeldPeople                uint64
	Waiting                   float64
	Copied                    uint64 // tickets seen living in two places
	Excess                    int64  // sessions that may be valid beyond those counted
	Movers                    uint64 // visitors inside who wait for a right here
	Freed                     int64  // first expiry second still counted
	Gen                       uint64
	Settled                   bool // the books are known: nothing of a predecessor is awaited
	Reconstructed             bool // they were reckoned, and are not confirmed yet
	View                      *wire.View
}

// Ledger returns the state of a room; the zero value for an unknown one.
func (a *Aggregator) Ledger(id room.ID) RegionLedger {
	b := a.rooms.byID[id]
	if b == nil {
		return RegionLedger{}
	}
	at := a.bearings(a.lives.advanced)
	l := RegionLedger{
		Granted: b.loan.granted, Returned: b.loan.returned,
		RateGranted: b.loan.rateGranted, RateReturned: b.loan.rateReturned,
		Active: b.active(),
		Keep:   b.loan.keep, RateKeep: b.loan.rateKeep,
		Settled: !at.unknown(), Reconstructed: b.loan.reconstructed, Waiting: b.waiting.Total(), Copied: b.copied, Excess: b.excess.sum(), Freed: b.counts.freed, Gen: b.loan.gen, View: b.view,
	}
	l.Free, l.RateFree = at.free(b)
	l.Presumed = l.Active - b.counts.head()
	l.RatePresumed = b.rates.sum()
	for _, e := range a.roster.edges {
		acc := b.of(e)
		if acc == nil || (e.state != alive && e.state != joining) {
			continue
		}
		l.Credit += max(0, acc.credit())
		l.Want += acc.want
		l.HeldPeople += acc.heldPeople
		l.Movers += acc.movers
	}
	return l
}

// RegionStatus is a data centre's aggregator at one moment.
type RegionStatus struct {
	Term      wire.Term
	Follows   wire.Term // global's
	Refused   wire.Term // a coordinator that is not followed, because it knows no list of data centres
	Standing  wire.Standing
	Site      uint64 // that is stored; 0 for none yet
	Copy      uint64 // site of the data centre that the list holds under this name, where it is another one; else 0
	Members   uint64 // version of the list that is stored for this data centre
	Joined    bool
	Leased    bool // under the lease of global
	Isolated  bool
	Time      fleet.Time
	TimeBound time.Duration // by how much Time may be wrong at most
	Watermark fleet.Time
	Edges     []EdgeStatus
}

// EdgeStatus is one incarnation of an edge in the books.
type EdgeStatus struct {
	Name  string
	Inc   uint64
	State string
	AsOf  fleet.Time
	Heard fleet.Mono
	Twin  bool // another process of its name lives too
}

// The State of edges that have a lease, or had one a moment ago; of those that were given up; and of
// those that said goodbye.
const (
	Alive = "alive"
	Dead  = "dead"
	Left  = "left"
)

var edgeStates = map[edgeState]string{
	awaiting: "awaiting", joining: "joining", alive: Alive, dead: Dead, lost: "lost", left: Left,
}

// Status returns the state of the aggregator at now.
func (a *Aggregator) Status(now fleet.Mono) RegionStatus {
	s := RegionStatus{
		Term: a.cfg.Term, Follows: a.up.seen, Refused: a.up.refused, Standing: a.member.standing(&a.up), Members: a.stored.members, Joined: a.up.joined, Leased: a.up.leased(now),
		Isolated: a.up.isolated(now), Time: a.clock.Now(now), TimeBound: a.clock.Bound(now), Watermark: a.rooms.watermark,
	}
	if s.Site = a.stored.site; a.member.isCopy() {
		s.Copy = a.member.list.Site(a.cfg.DC)
	}
	for _, e := range a.roster.edges {
		s.Edges = append(s.Edges, EdgeStatus{Name: e.name, Inc: e.inc, State: edgeStates[e.state], AsOf: e.asOf, Heard: e.recv, Twin: e.twin})
	}
	return s
}

// Leased reports whether global reckons with the data centre going on at now.
func (a *Aggregator) Leased(now fleet.Mono) bool { return a.up.leased(now) }

// Synced reports whether the aggregator knows fleet time at now.
func (a *Aggregator) Synced(now fleet.Mono) bool { return a.clock.synced(now) }

// RootLedger is one room at the root at one moment.
type RootLedger struct {
	Total, Rate    uint64
	Free, RateFree int64
	Complete       bool // the books of every data centre are known
	Unbound        bool // no limit binds now: see RoomConfig
	Centres        []CentreLedger
	Excess         int64 // sessions that may be valid beyond the books: see Allocator
	Beyond         int64 // sessions beyond Total: under passthrough, or of before a limit was lowered
	View           *wire.View
	Passes         PassLedger
}

// PassLedger is the newest release that a coordinator lends, as far as it was told.
type PassLedger struct {
	Release uint64
	N       uint64 // people to be let in
	Free    uint64 // passes that are lent to nobody
	Spent   uint64 // people let in
}

// CentreLedger is what the root has lent to one data centre.
type CentreLedger struct {
	Name           string
	Adopted        bool
	Standing       wire.Standing
	Excess         int64 // sessions that may be valid there beyond what it holds
	Held, RateHeld int64
	Idle, RateIdle int64
	Keep, RateKeep uint64
	Active, Want   uint64
	HeldPeople     uint64
	Gen            uint64
}

// wallBound is by how much the clock of a machine may be wrong for all that is known.
const wallBound = 10 * time.Minute

// Clock returns by which time phases of events are judged, and by how much that may be wrong: fleet time where the
// allocator knows it to [fleet.Rough], else what the machine takes for it. a may be nil: nobody leads.
func (a *Allocator) Clock(now fleet.Mono, machine fleet.Time) (t fleet.Time, bound time.Duration) {
	if a != nil {
		if t, bound := a.clock.Read(now); bound <= fleet.Rough {
			return t, bound + fleet.Guard
		}
	}
	return machine, wallBound
}

// Clock returns fleet time where the aggregator knows it to [fleet.Rough].
func (a *Aggregator) Clock(now fleet.Mono) (t fleet.Time, known bool) {
	t, bound := a.clock.Read(now)
	return t, bound <= fleet.Rough
}

// Totals returns the state of a room without what each data centre holds.
func (a *Allocator) Totals(id room.ID) RootLedger {
	p := a.pools.byID[id]
	if p == nil {
		return RootLedger{}
	}
	l := RootLedger{Total: p.Total, Rate: p.Rate, Unbound: p.Unbound, View: p.view}
	l.Free, l.RateFree, l.Complete = p.free()
	l.Passes = PassLedger{Release: p.passes.release, N: p.passes.n, Free: p.passes.free(), Spent: p.passes.spent}
	return l
}

// Ledger returns the state of a room; the zero value for an unknown one.
func (a *Allocator) Ledger(id room.ID) RootLedger {
	p := a.pools.byID[id]
	if p == nil {
		return RootLedger{}
	}
	l := a.Totals(id)
	l.Centres = make([]CentreLedger, 0, len(a.centres.all))
	for _, d := range a.centres.all {
		c := CentreLedger{Name: d.name, Adopted: d.adopted, Standing: d.standing()}
		if n := p.loans[d]; n != nil {
			c.Excess = n.unreturned + int64(n.excess)
			l.Excess += c.Excess
			c.Held, c.RateHeld = n.held(), n.rateHeld()
			c.Idle, c.RateIdle = n.idleNow(), n.rateIdleNow()
			c.Keep, c.RateKeep = n.keep, n.rateKeep
			c.Active, c.Want, c.HeldPeople, c.Gen = n.active, n.want, n.heldPeople, n.gen
		}
		l.Centres = append(l.Centres, c)
		l.Beyond += int64(c.Active)
	}
	l.Beyond = max(0, l.Beyond-int64(l.Total))
	return l
}

// Unknown is a data centre whose books a coordinator waits for. Until it knows them it lends
// only what has come back.
type Unknown struct {
	Name  string
	Heard time.Duration // ago; since the term began where it was not heard
	Alive bool          // it is heard: its regional waits for something
	Until fleet.Time    // when it is given up at the latest; 0 where nobody can tell
}

// Unknown returns whose books the coordinator waits for at now. It changes nothing.
func (a *Allocator) Unknown(now fleet.Mono) []Unknown {
	if now.Sub(a.centres.started) < unsaid {
		return nil
	}
	var out []Unknown
	for _, d := range a.centres.all {
		blocks, wait := false, time.Duration(0)
		for _, p := range a.pools.list {
			if !p.awaits(d) {
				continue
			}
			blocks = true
			if p.Cap {
				wait = max(wait, p.reclaimAfter())
			} else {
				wait = max(wait, p.LostWait)
			}
		}
		if !blocks {
			continue
		}
		u := Unknown{Name: d.name, Heard: now.Sub(d.recv), Alive: d.heard && now.Sub(d.recv) <= quiet}
		if !d.heard && u.Heard <= quiet {
			continue // it has yet to find us
		}
		if !u.Alive && wait > 0 && a.clock.Bound(now) != fleet.Unsynced {
			u.Until = a.clock.Now(now).Add(max(0, wait-u.Heard))
		}
		out = append(out, u)
	}
	return out
}

// Time returns fleet time.
func (a *Allocator) Time(now fleet.Mono) fleet.Time { return a.clock.Now(now) }

// CentreTotals is what one data centre has out, summed over all rooms.
type CentreTotals struct {
	Name           string
	Site           uint64 // 0 for unknown
	Standing       wire.Standing
	Told           bool          // it says what it holds, and was heard lately
	Heard          time.Duration // how long ago; since the term began or it was added, where it was not
	Held, RateHeld int64
	Idle, RateIdle int64
	Sessions       uint64
	Excess         int64         // sessions that may be valid beyond what it holds
	Term           uint64        // of its aggregator, 0 before it was heard
	Adopted        bool          // its books are known in this term
	Stored         uint64        // newest version of the list of data centres that is stored for it
	Bound          time.Duration // what its fleet time may be wrong by, [fleet.Unsynced] where it knows none
}

// Centres returns what every data centre has out, by name.
func (a *Allocator) Centres(now fleet.Mono) []CentreTotals {
	out := make([]CentreTotals, 0, len(a.centres.all))
	for _, d := range a.centres.all {
		t := CentreTotals{Name: d.name, Site: d.site, Standing: d.standing(), Told: d.told() && now.Sub(d.recv) < quiet, Heard: now.Sub(d.recv), Term: d.inc, Adopted: d.adopted, Stored: d.stored, Bound: fleet.Unsynced}
		if d.time.known {
			t.Bound = d.time.bound
		}
		for _, l := range a.pools.loans(d) {
			t.Held += l.held()
			t.RateHeld += l.rateHeld()
			t.Idle += l.idleNow()
			t.RateIdle += l.rateIdleNow()
			t.Sessions += l.active
			t.Excess += l.unreturned + int64(l.excess)
		}
		out = append(out, t)
	}
	return out
}
