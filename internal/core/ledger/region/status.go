package region

import (
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// Ledger is one room of a data centre at one moment, for metrics and for
// the simulator's judge.
type Ledger struct {
	Granted, Returned         uint64 // T
	RateGranted, RateReturned uint64 // R
	Free, RateFree            int64
	Active                    int64 // sessions counted and presumed
	Presumed                  int64 // of those, presumed
	RatePresumed              int64 // rights of R that edges which are gone are taken to have used within the window
	Credit                    int64 // lent to edges and not known to be spent
	Keep, RateKeep            uint64
	Want                      uint64
	HeldPeople                uint64
	Waiting                   float64
	Copied                    uint64 // tickets seen living in two places
	Excess                    int64  // sessions that may be valid beyond those counted
	Movers                    uint64 // visitors inside that wait to move their session here
	Freed                     int64  // first expiry second still counted
	Gen                       uint64
	Settled                   bool // the books are known: nothing of a predecessor is awaited
	Reconstructed             bool // the books were reconstructed, and are not confirmed yet
	View                      *wire.View
}

// Ledger returns the state of a room; the zero value for an unknown one.
func (a *Aggregator) Ledger(id room.ID) Ledger {
	b := a.rooms.byID[id]
	if b == nil {
		return Ledger{}
	}
	at := a.bearings(a.lives.advanced)
	t, rate := b.loan.permits.Sessions, b.loan.permits.Rate
	l := Ledger{
		Granted: t.Granted, Returned: t.Returned, Keep: t.Keep,
		RateGranted: rate.Granted, RateReturned: rate.Returned, RateKeep: rate.Keep,
		Active:  b.active(),
		Settled: !at.unknown(), Reconstructed: b.loan.reconstructed, Waiting: b.waiting.Total(), Copied: b.copied, Excess: b.excess.sum(), Freed: b.counts.freed, Gen: b.loan.gen, View: b.view,
	}
	l.Free, l.RateFree = at.free(b)
	l.Presumed = l.Active - b.counts.head()
	l.RatePresumed = b.rates.sum()
	for _, e := range a.roster.edges {
		acc := b.accounts.of(e)
		if acc == nil || (e.state != alive && e.state != joining) {
			continue
		}
		l.Credit += max(0, acc.credit())
		l.Want += acc.demand.Want
		l.HeldPeople += acc.demand.HeldPeople
		l.Movers += acc.demand.Movers
	}
	return l
}

// Status is a data centre's aggregator at one moment.
type Status struct {
	Term      wire.Term
	Follows   wire.Term // global's
	Standing  wire.Standing
	Site      uint64 // that is stored; 0 for none yet
	Copy      uint64 // site of the data centre that the list holds under this name, where it is another one; else 0
	Members   uint64 // version of the list that is stored for this data centre
	Joined    bool
	Leased    bool // under the lease of global
	Isolated  bool
	Time      fleettime.Time
	TimeBound time.Duration // by how much Time may be wrong at most
	Watermark fleettime.Time
	Edges     []EdgeStatus
}

// EdgeStatus is one incarnation of an edge in the books.
type EdgeStatus struct {
	Name  string
	Inc   uint64
	State string
	AsOf  fleettime.Time
	Heard fleettime.Mono
	Twin  bool // another process of its name lives too
}

// Status returns the state of the aggregator at now.
func (a *Aggregator) Status(now fleettime.Mono) Status {
	s := Status{
		Term: a.cfg.Term, Follows: a.up.seen, Standing: a.member.standing(&a.up), Members: a.stored.members, Joined: a.up.joined, Leased: a.up.leased(now),
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

// Leased reports whether the data centre is under the lease of global at now.
func (a *Aggregator) Leased(now fleettime.Mono) bool { return a.up.leased(now) }

// Synced reports whether the aggregator knows fleet time at now.
func (a *Aggregator) Synced(now fleettime.Mono) bool { return a.clock.synced(now) }

// Clock returns fleet time where the aggregator knows it to [fleettime.Rough].
func (a *Aggregator) Clock(now fleettime.Mono) (t fleettime.Time, known bool) {
	t, bound := a.clock.Read(now)
	return t, bound <= fleettime.Rough
}

// EdgeTotals are the edges of a data centre, counted.
type EdgeTotals struct {
	Reporting   int
	Leaving     int      // of those: they were told to end, and have yet to say goodbye
	Unknown     uint64   // that came with sessions or rights that nothing stored tells of, ever: the shell is to raise an alarm
	LastUnknown string   // the last of them
	Met         uint64   // how often one was found to live beside another one of its name: the shell is to raise an alarm
	Twins       []string // names of those that do now
}

// Edges returns the totals of the edges.
func (a *Aggregator) Edges() EdgeTotals {
	r := &a.roster
	t := EdgeTotals{Unknown: r.unknownEdges, LastUnknown: r.lastUnknown, Met: r.twins}
	for _, e := range r.edges {
		if e.heard() {
			t.Reporting++
			if e.leaving {
				t.Leaving++
			}
		}
		if e.twin && !slices.Contains(t.Twins, e.name) {
			t.Twins = append(t.Twins, e.name)
		}
	}
	return t
}
