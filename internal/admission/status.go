package admission

import (
	"time"

	"vestibule/internal/fleet"
	"vestibule/internal/room"
	"vestibule/internal/wire"
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
	Paused                    bool   // nobody is admitted, see Engine.Pause
	Life                      uint32
	View                      *wire.View
}

// Credit returns the rights in hand.
func (l Ledger) Credit() uint64 { return sub(l.Granted, l.Spent+l.Returned) }

// Ledger returns the state of a room; the zero value for an unknown one.
func (e *Engine) Ledger(now fleet.Mono, id room.ID) Ledger {
	r := e.rooms[id]
	if r == nil {
		return Ledger{}
	}
	return Ledger{
		Granted: r.granted, Spent: r.spent, Returned: r.returned,
		RateGranted: r.rate.granted, RateReturned: r.rate.returned, RateIdle: r.rate.idle(now),
		Renewed: r.renewed, RenewCeil: r.renewCeil, Keep: r.keep, RateKeep: r.rateKeep,
		Sessions: r.sessions.live, Held: len(r.parked), Waiting: r.wait.sum, Admitted: r.admitted,
		LetIn: r.letIn, Guests: r.guests, Copied: r.copied, Paused: r.paused,
		Life: r.life, View: r.view,
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
	LeaseEnd    fleet.Mono
	Isolated    bool       // without a lease for so long that on_isolation applies
	Synced      bool       // fleet time is known
	Sure        bool       // well enough to admit by
	Time        fleet.Time // fleet time, or the machine's guess at it
}

// Status returns the state of the bond at now. It changes nothing.
func (e *Engine) Status(now fleet.Mono) Status {
	t, err := e.time(now)
	return Status{
		Inc: e.link.inc, Tenure: e.link.tenure, Follows: e.link.seen, Joined: e.link.joined, Standing: e.link.standing, Site: e.link.site, Copied: e.link.copied,
		Leased: e.Leased(now), LeaseEnd: e.link.leaseEnd, Isolated: e.Isolated(now),
		Twin: e.link.twin, Synced: err != fleet.Unsynced, Sure: err <= fleet.Rough, Time: t,
	}
}

// Leased reports whether the edge may act on its rights at now. It is for those
// who look on: unlike the engine's own look, it changes nothing.
func (e *Engine) Leased(now fleet.Mono) bool {
	l := &e.link
	return l.leaseEnd != 0 && !l.retired && now < l.leaseEnd
}

// Spendable returns the rights of T and of R that the edge could use at now:
// none without a lease, or where it may stamp no ticket.
func (e *Engine) Spendable(now fleet.Mono, id room.ID) (credit, rate uint64) {
	r := e.rooms[id]
	if r == nil || r.life == 0 || !e.Leased(now) {
		return 0, 0
	}
	return r.credit(), r.rate.idle(now)
}

// TimeError returns the bound on the error of fleet time, fleet.Unsynced
// before it was ever told.
func (e *Engine) TimeError(now fleet.Mono) time.Duration { return e.clock.Err(now) }
