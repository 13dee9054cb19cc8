package admission

import (
	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/stop"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// Ledger is a snapshot of one room of an edge, for metrics and for the simulator's oracle.
type Ledger struct {
	Granted      uint64 `json:"permits_granted"`
	Spent        uint64 `json:"permits_spent"`
	Returned     uint64 `json:"permits_returned"`
	RateGranted  uint64 `json:"rate_permits_granted"`
	RateReturned uint64 `json:"rate_permits_returned"`
	RateIdle     uint64 `json:"rate_permits_idle"`
	Renewed      uint64 `json:"renewals"`
	RenewCeil    uint64 `json:"renewals_allowed"`
	Keep         uint64 `json:"permits_to_keep"`
	RateKeep     uint64 `json:"rate_permits_to_keep"`
	// that may be stamped before the data folder has another snapshot; -1 without a bound
	Stampable int64  `json:"tickets_until_next_snapshot"`
	Sessions  int64  `json:"sessions"`       // stamped minus superseded here
	Held      int    `json:"requests_held"`  // requests held open
	Waiting   int64  `json:"people_waiting"` // visitors counted as waiting here; negative if they move between edges
	Admitted  uint64 `json:"visitors_admitted"`
	LetIn     uint64 `json:"visitors_let_in_without_permit"` // admitted without a permit, while isolated
	// foreign sessions renewed without a lease, since the last one: in no ledger
	Guests  int        `json:"sessions_of_other_edges"`
	Copied  uint64     `json:"sessions_copied"` // sessions with a detected ticket copy
	Partial bool       `json:"partial"`         // waiting visitors are being recounted: the fleet was restarted
	Paused  bool       `json:"paused"`          // admissions are stopped, see Rooms.Pause
	Life    uint32     `json:"ticket_life_seconds"`
	View    *wire.View `json:"view"`

	Usable bool        `json:"-"` // the permits can be used: there is a lease, and the edge may stamp tickets
	Passes wire.Passes `json:"-"` // of the newest known release
}

// Credit returns the unspent permits of T.
func (l Ledger) Credit() uint64 {
	sessions := wire.Allocation{Granted: l.Granted, Returned: l.Returned}
	return sessions.Unused(l.Spent)
}

// Spendable returns the usable permits of T and of R.
func (l Ledger) Spendable() (credit, rate uint64) {
	if !l.Usable {
		return 0, 0
	}
	return l.Credit(), l.RateIdle
}

// Ledger returns the snapshot of a room, or the zero value for an unknown one.
func (e *Engine) Ledger(now fleettime.Mono, id room.ID) Ledger {
	r := e.Rooms.byID[id]
	if r == nil {
		return Ledger{}
	}
	a, k := &r.account, &r.account.permits
	return Ledger{
		Granted: k.sessions.Granted, Spent: k.spent, Returned: k.sessions.Returned, Keep: k.sessions.Keep,
		RateGranted: k.rate.Granted, RateReturned: k.rate.Returned, RateIdle: k.rate.idle(now), RateKeep: k.rate.Keep,
		Renewed: k.renewed, RenewCeil: k.renewCeil, Stampable: a.ceiling.left(e.Snapshots, a.life.full),
		Sessions: a.sessions.live, Held: len(r.line.held.visits), Waiting: r.line.queue.wait.sum,
		Admitted: a.tally.admitted, LetIn: a.alone.letIn, Guests: a.alone.guests, Copied: a.tickets.copied,
		Paused: r.paused, Life: a.life.full, View: r.line.view,
		Usable:  a.life.full != 0 && e.up.leased(now),
		Passes:  a.passes.Passes,
		Partial: r.line.view != nil && r.line.partial(e.Clock.Time(now), r.line.elder == r.line.since()),
	}
}

// Status is the state of an engine's session with its regional.
type Status struct {
	Instance   uint64         `json:"instance"`
	LeaseEpoch uint64         `json:"lease_epoch"`
	Follows    wire.Term      `json:"follows"`
	Joined     bool           `json:"joined"`
	Standing   wire.Standing  `json:"standing"`   // membership state of the data centre, last reported by the regional
	ClusterID  uint64         `json:"cluster_id"` // cluster ID of the data centre; 0 for unknown
	Twin       bool           `json:"twin"`       // another process reports under the same name
	Leased     bool           `json:"leased"`
	LeaseEnd   fleettime.Mono `json:"-"`
	Isolated   bool           `json:"isolated"` // without a lease long enough for on_isolation
	Synced     bool           `json:"synced"`   // fleet time is known
	Sure       bool           `json:"sure"`     // its uncertainty allows admissions
	Time       fleettime.Time `json:"time"`     // fleet time, or the machine's clock
}

// Status returns the state at now. It has no side effects.
func (e *Engine) Status(now fleettime.Mono) Status {
	m, l := e.Clock.at(now), e.up
	return Status{
		Instance: l.instance, LeaseEpoch: l.leaseEpoch, Follows: l.seen, Joined: l.joined, Standing: l.standing,
		ClusterID: l.clusterID, Leased: l.leased(now), LeaseEnd: l.leaseEnd, Isolated: e.edge.isolated(now), Twin: l.twin,
		Synced: m.synced(), Sure: m.bound <= fleettime.Rough, Time: m.time,
	}
}

// Outage returns why this edge admits nobody to a room even if its operators would, or None. It has no side effects.
func (s *Rooms) Outage(now fleettime.Mono, id room.ID) Reason {
	r := s.byID[id]
	if r == nil {
		return None
	}
	return r.outage(s.edge.clock.at(now), s.edge.up.leased(now))
}

// Stop returns why nobody enters a room at this edge, as far as the edge itself knows: its site, its clock, its lease
// and the limits of the room. It has no side effects.
func (s *Rooms) Stop(now fleettime.Mono, id room.ID) stop.Stop {
	r := s.byID[id]
	if r == nil {
		return stop.Stop{}
	}
	switch leased := s.edge.up.leased(now); r.outage(s.edge.clock.at(now), leased) {
	case OriginDown:
		return stop.Stop{Reason: stop.SiteDown, Edges: 1, Centre: s.edge.cfg.DC}
	case Unsure:
		if !leased {
			return s.edge.unleased(now)
		}
		return stop.Stop{Reason: stop.ClockUncertain, Centre: s.edge.cfg.DC}
	case Isolated:
		return s.edge.unleased(now)
	case Drains:
		why := stop.Unlisted
		if s.edge.up.standing == wire.Draining {
			why = stop.Draining
		}
		return stop.Stop{Reason: why, Centre: s.edge.cfg.DC}
	default:
	}
	if v := r.line.view; v != nil && v.Free <= 0 && r.account.permits.credit() == 0 {
		return stop.Stop{Reason: stop.Full}
	}
	return stop.Stop{}
}

// Space reports whether a newcomer could enter a room now, as far as this edge knows: nobody stops it, nobody waits, and
// there are permits. It has no side effects.
func (s *Rooms) Space(now fleettime.Mono, id room.ID) bool {
	r := s.byID[id]
	if r == nil || r.settings.gone {
		return false
	}
	m, v := s.edge.clock.at(now), r.line.view
	return r.settings.shut(m) == None && r.outage(m, s.edge.up.leased(now)) == None && cutoff(v) == estimate.Open &&
		len(r.line.held.visits) == 0 && (r.account.permits.credit() > 0 || v != nil && v.Free > 0)
}

func (e *edge) unleased(now fleettime.Mono) stop.Stop {
	s := stop.Stop{Reason: stop.NoLease, Centre: e.cfg.DC}
	if alone := e.up.alone; alone != 0 && e.clock.Bound(now) != fleettime.Unsynced {
		s.Since = e.clock.fleet.Now(now).Add(alone.Sub(now))
	}
	return s
}

// Ended returns how the session of ticket t was revoked, as known here: wire.Left if it is rejected, wire.Moved if
// it is served but not renewed, or 0.
func (s *Rooms) Ended(id room.ID, t ticket.Ticket) wire.EndKind {
	r := s.byID[id]
	if r == nil {
		return 0
	}
	return r.account.ended.of(&t)
}

// Arrived reports whether a session with [Decision.Moving] has come to this data centre.
func (s *Rooms) Arrived(now fleettime.Mono, id room.ID, t ticket.Ticket) bool {
	r := s.byID[id]
	return r != nil && r.account.arrived(s.edge.clock.at(now), &t)
}

// AllEnded returns all known revocations.
func (s *Rooms) AllEnded() Ended {
	out := Ended{}
	for _, r := range s.order {
		ends := r.account.ended.list(nil, wire.MaxEnds)
		if ends = r.account.stays.asEnds(ends, s.edge.home); len(ends) > 0 {
			out[r.settings.ID] = ends
		}
	}
	return out
}
