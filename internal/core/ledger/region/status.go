package region

import (
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/stop"
	"vestibule/internal/core/wire"
)

// Ledger is the state of one room of a data centre at one moment, for metrics and the simulator.
type Ledger struct {
	Granted       uint64            `json:"permits_granted"`       // T
	Returned      uint64            `json:"permits_returned"`      // T
	RateGranted   uint64            `json:"rate_permits_granted"`  // R
	RateReturned  uint64            `json:"rate_permits_returned"` // R
	Free          int64             `json:"permits_free"`
	RateFree      int64             `json:"rate_permits_free"`
	Active        int64             `json:"sessions"`                               // counted and reserved
	Reserved      int64             `json:"sessions_reserved"`                      // of those, reserved
	RateReserved  int64             `json:"rate_permits_reserved"`                  // permits of R that ended edges may have used within the window
	Credit        int64             `json:"permits_at_edges_not_known_to_be_spent"` // lent to edges and not known to be spent
	Keep          uint64            `json:"permits_to_keep"`
	RateKeep      uint64            `json:"rate_permits_to_keep"`
	Want          uint64            `json:"permits_wanted"`
	HeldPeople    uint64            `json:"people_held"`
	Waiting       float64           `json:"people_waiting"`
	Copied        uint64            `json:"tickets_copied"`                     // tickets seen in two places
	Overcommit    int64             `json:"overcommit_sessions"`                // sessions that may be valid beyond those counted
	Movers        uint64            `json:"people_moving_in"`                   // visitors with a session elsewhere that wait to move it here
	Freed         int64             `json:"oldest_expiry_counted_unix_seconds"` // first expiry second still counted
	Gen           uint64            `json:"generation"`
	Uncovered     wire.PermitCounts `json:"-"`             // as reported: voided with an earlier membership, and in use
	Settled       bool              `json:"settled"`       // permits and sessions are known
	Reconstructed bool              `json:"reconstructed"` // the loan was reconstructed and is not confirmed yet
	View          *wire.View        `json:"view"`
}

// Rooms returns the number of rooms with a ledger, also of removed ones.
func (c *centre) Rooms() int { return len(c.rooms.list) }

// Ledger returns the state of a room. Of an unknown one it says only whether the data centre knows that it has nothing.
func (c *centre) Ledger(id room.ID) Ledger {
	b, at := c.rooms.byID[id], c.snapshot(c.lifecycle.advanced)
	if b == nil {
		return Ledger{Settled: !at.unknown()}
	}
	t, rate := b.loan.permits.Sessions, b.loan.permits.Rate
	l := Ledger{
		Granted: t.Granted, Returned: t.Returned, Keep: t.Keep,
		RateGranted: rate.Granted, RateReturned: rate.Returned, RateKeep: rate.Keep,
		Active:  b.active(),
		Settled: !at.unknown(), Reconstructed: b.loan.reconstructed, Waiting: b.waiting.Total(), Copied: b.copied,
		Overcommit: b.overcommit.sum(), Freed: b.counts.freed, Gen: b.loan.gen, View: b.view,
		Uncovered: b.uncovered(),
	}
	l.Free, l.RateFree = at.free(b)
	l.Reserved = l.Active - b.counts.total()
	l.RateReserved = b.rates.sum()
	for _, acc := range b.accounts {
		if !acc.edge.reporting() {
			continue
		}
		l.Credit += max(0, acc.credit())
		l.Want += acc.demand.Want
		l.HeldPeople += acc.demand.HeldPeople
		l.Movers += acc.demand.Movers
	}
	return l
}

// Status is the state of an aggregator at one moment.
type Status struct {
	Term      wire.Term      `json:"term"`
	Follows   wire.Term      `json:"follows"` // global's
	Standing  wire.Standing  `json:"standing"`
	ClusterID uint64         `json:"cluster_id"`               // that is stored; 0 for none yet
	Copy      uint64         `json:"original_cluster_id"`      // cluster ID of the data centre that the list holds under this name, where it is another one; else 0
	Members   uint64         `json:"data_center_list_version"` // stored version of the list of data centres
	Joined    bool           `json:"joined"`
	Leased    bool           `json:"leased"` // under the lease of global
	Isolated  bool           `json:"isolated"`
	Time      fleettime.Time `json:"time"`
	TimeBound time.Duration  `json:"time_bound_seconds"` // uncertainty of Time
	Watermark fleettime.Time `json:"watermark"`
	Edges     []EdgeStatus   `json:"edges"`
}

// EdgeStatus is the state of one instance of an edge.
type EdgeStatus struct {
	Name     string         `json:"name"`
	Instance uint64         `json:"instance"`
	State    string         `json:"state"`
	AsOf     fleettime.Time `json:"as_of"`
	Heard    fleettime.Mono `json:"-"`
	Twin     bool           `json:"twin"` // another process of its name is alive
}

// Status returns the state of the aggregator at now.
func (c *centre) Status(now fleettime.Mono) Status {
	s := Status{
		Term: c.cfg.Term, Follows: c.up.seen, Standing: c.member.standing(&c.up), Members: c.stored.members,
		Joined: c.up.joined, Leased: c.up.leased(now), Isolated: c.up.isolated(now), Time: c.clock.Now(now),
		TimeBound: c.clock.Bound(now), Watermark: c.rooms.watermark,
	}
	if s.ClusterID = c.stored.clusterID; c.member.isCopy() {
		s.Copy = c.member.list.ClusterID(c.cfg.DC)
	}
	for _, e := range c.roster.edges {
		s.Edges = append(s.Edges, EdgeStatus{
			Name: e.name, Instance: e.instance, State: edgeStates[e.state], AsOf: e.asOf, Heard: e.receivedAt,
			Twin: c.roster.hasTwin(e),
		})
	}
	return s
}

// Stop returns why nobody enters any room of the data centre at now, as far as the aggregator itself knows.
func (c *centre) Stop(now fleettime.Mono) (s stop.Stop) {
	defer func() { s.Centre = c.cfg.DC }()
	switch c.member.standing(&c.up) {
	case wire.Listed:
	case wire.Draining:
		return stop.Stop{Reason: stop.Draining}
	default:
		if c.member.isCopy() {
			return stop.Stop{Reason: stop.Copy}
		}
		return stop.Stop{Reason: stop.Unlisted}
	}
	since := fleettime.Time(0)
	if c.clock.synced(now) {
		since = c.clock.Now(now).Add(c.clock.started.Sub(now))
	}
	fleet := false
	for _, w := range c.Waits(now) {
		if fleet = fleet || w.Why == WaitFleet; !w.Closed {
			continue
		}
		out := w.Stop(c.cfg.DC)
		out.Since = since
		if s.OK() || out.Reason == stop.AwaitsEdge && out.Until > s.Until { // the last wait to end
			s = out
		}
	}
	leased := c.up.leased(now)
	switch {
	case !s.OK() || (leased && !fleet) || c.anyFree():
	case leased:
		s.Reason, s.Since, s.Ended = stop.AwaitsCentre, since, true // global knows which one
	default:
		s.Reason = stop.NoGlobal
		if since != 0 && c.up.leaseEnd != 0 {
			s.Since = c.clock.Now(now).Add(c.up.leaseEnd.Sub(now))
		}
	}
	return s
}

// anyFree reports whether any room has a permit that can be used without global.
func (c *centre) anyFree() bool {
	at := c.snapshot(c.lifecycle.advanced)
	for _, b := range c.rooms.list {
		unsure, _ := b.loan.unsure()
		if free, _ := at.free(b); free > unsure {
			return true
		}
		for _, acc := range b.accounts {
			if acc.edge.state == alive && acc.credit() > 0 {
				return true
			}
		}
	}
	return false
}

// Leased reports whether the data centre is under the lease of global at now.
func (c *centre) Leased(now fleettime.Mono) bool { return c.up.leased(now) }

// Synced reports whether the aggregator knows fleet time at now.
func (c *centre) Synced(now fleettime.Mono) bool { return c.clock.synced(now) }

// Known returns fleet time for the data folder of the process; the zero value if it is unknown, or a guess that a
// restarted process must not rely on.
func (c *centre) Known(now fleettime.Mono) fleettime.Known {
	if c.clock.guessed && (c.clock.guess == 0 || c.stored.saved < c.stored.holdNeeds) {
		return fleettime.Known{}
	}
	return c.clock.Known(now)
}

// Clock returns fleet time; known is false if its uncertainty exceeds [fleettime.Rough].
func (c *centre) Clock(now fleettime.Mono) (t fleettime.Time, known bool) {
	t, bound := c.clock.Read(now)
	return t, bound <= fleettime.Rough
}

// EdgeTotals are numbers of edges of a data centre.
type EdgeTotals struct {
	Reporting   int
	Leaving     int      // of those, edges that are shutting down
	Unknown     uint64   // edges with sessions or permits that are not in the store, cumulative: an alarm
	LastUnknown string   // name of the last of them
	Twins       []string // names that several live edges have: an alarm
}

// Edges returns the numbers of edges.
func (c *centre) Edges() EdgeTotals {
	r := &c.roster
	t := EdgeTotals{Unknown: r.unknownEdges, LastUnknown: r.lastUnknown}
	for _, e := range r.edges {
		if e.reporting() {
			t.Reporting++
			if e.leaving {
				t.Leaving++
			}
		}
		if !slices.Contains(t.Twins, e.name) && r.hasTwin(e) {
			t.Twins = append(t.Twins, e.name)
		}
	}
	return t
}
