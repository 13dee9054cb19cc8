package admission

import (
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// Ledger is one room of an edge at one moment, for metrics and for the
// simulator's judge.
type Ledger struct {
	Granted, Spent, Returned  uint64
	RateGranted, RateReturned uint64
	RateIdle                  uint64
	Renewed, RenewCeil        uint64
	Keep, RateKeep            uint64
	Sessions                  int64 // stamped here minus renewed away here
	Held                      int   // requests held open
	Waiting                   int64 // people counted as waiting here; negative when they wander
	Admitted                  uint64
	LetIn                     uint64 // without a right, while isolated
	Guests                    int    // sessions of other edges that were renewed without a lease, since there was one: nobody may count them
	Copied                    uint64 // sessions whose ticket was found to be copied
	Partial                   bool   // people who wait have yet to be counted anew: the fleet was started again
	Paused                    bool   // nobody is admitted, see Engine.Pause
	Life                      uint32
	View                      *wire.View
}

// Credit returns the unspent permits of T.
func (l Ledger) Credit() uint64 {
	sessions := wire.Allocation{Granted: l.Granted, Returned: l.Returned}
	return sessions.Unused(l.Spent)
}

// Ledger returns the state of a room; the zero value for an unknown one.
func (e *Engine) Ledger(now fleettime.Mono, id room.ID) Ledger {
	r := e.rooms[id]
	if r == nil {
		return Ledger{}
	}
	k := &r.rights
	return Ledger{
		Granted: k.sessions.Granted, Spent: k.spent, Returned: k.sessions.Returned, Keep: k.sessions.Keep,
		RateGranted: k.rate.Granted, RateReturned: k.rate.Returned, RateIdle: k.rate.idle(now), RateKeep: k.rate.Keep,
		Renewed: k.renewed, RenewCeil: k.renewCeil,
		Sessions: r.sessions.live, Held: len(r.held.visits), Waiting: r.queue.wait.sum, Admitted: r.admitted,
		LetIn: r.alone.letIn, Guests: r.alone.guests, Copied: r.tickets.copied, Paused: r.paused,
		Life: r.life.full, View: r.view,
		Partial: r.view != nil && r.view.Partial(r.edge.Time(now), r.edge.cfg.Params.Refresh, r.elder == r.view.Since),
	}
}

// Status is the state of an engine's bond with its regional.
type Status struct {
	Inc, Tenure uint64
	Follows     wire.Term
	Joined      bool
	Standing    wire.Standing // of the data centre in the fleet, as the regional told last
	Site        uint64        // of the data centre, as the regional told; 0 for unknown
	Copied      bool          // the data centre may be a copy of another one: nothing of its home is renewed here
	Twin        bool          // another process bears the same name, and the regional hears both
	Leased      bool
	LeaseEnd    fleettime.Mono
	Isolated    bool           // without a lease for so long that on_isolation applies
	Synced      bool           // fleet time is known
	Sure        bool           // well enough to admit by
	Time        fleettime.Time // fleet time, or the machine's guess at it
}

// Status returns the state of the bond at now. It changes nothing.
func (e *Engine) Status(now fleettime.Mono) Status {
	m, l := e.at(now), &e.up
	return Status{
		Inc: l.inc, Tenure: l.tenure, Follows: l.seen, Joined: l.joined, Standing: l.standing, Site: l.site, Copied: l.copied,
		Leased: l.leased(now), LeaseEnd: l.leaseEnd, Isolated: e.Isolated(now),
		Twin: l.twin, Synced: m.synced(), Sure: m.bound <= fleettime.Rough, Time: m.time,
	}
}

// Spendable returns the rights of T and of R that the edge could use at now:
// none without a lease, or where it may stamp no ticket.
func (e *Engine) Spendable(now fleettime.Mono, id room.ID) (credit, rate uint64) {
	r := e.rooms[id]
	if r == nil || r.life.full == 0 || !e.up.leased(now) {
		return 0, 0
	}
	return r.rights.credit(), r.rights.rate.idle(now)
}

// Passes returns what the edge has of the passes of the newest release that it knows.
func (e *Engine) Passes(id room.ID) wire.Passes {
	if r := e.rooms[id]; r != nil {
		return r.passes.Passes
	}
	return wire.Passes{}
}

// Waits reports whether t is a place in the line of the room as it is: the
// visitor need not be given another and holds no session. Nothing is counted by
// it.
func (e *Engine) Waits(now fleettime.Mono, id room.ID, t ticket.Ticket) bool {
	r := e.rooms[id]
	return r != nil && r.waits(now, &t)
}

// Ended returns how the session of ticket t ended before its time, as far as this
// edge knows: wire.Left where it is refused, wire.Moved where it is served and
// not renewed, 0 otherwise.
func (e *Engine) Ended(id room.ID, t ticket.Ticket) wire.EndKind {
	r := e.rooms[id]
	if r == nil {
		return 0
	}
	return r.ended.of(&t)
}
