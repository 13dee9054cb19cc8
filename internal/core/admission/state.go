package admission

import (
	"time"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/history"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// roomState is an edge's admission to one room. Each part keeps its own counts. roomState decides, and charges a
// decision to all of them in one step.
//
// Invariant: every admission is in permits.spent, permits.rate, sessions and moves, or in none of them.
type roomState struct {
	line
	gone   bool // removed from the room set: no admissions, permits are returned; from SetRooms
	paused bool // origin down: no admissions, permits are returned; from Engine.Pause
	life   life // full is from applyGrant, the rest from set

	// The counts of this instance for the regional. charge, moveIn and renew add to them in one step; restart clears
	// them.
	permits  permits
	passes   wire.Hand // of a paused room; charge spends them
	sessions sessions  // stamped and superseded tickets, until the watermark passes them
	moves    moveLog   // stamped tickets, until the regional acknowledges them

	ceiling ceiling               // of tickets that may be stamped; stamped counts them, snapshots raise it
	tickets tickets               // of sessions; bounded memory
	ended   ended                 // sessions revoked before their tickets expire: from grants, quit and moveIn
	ends    wire.Outbox[wire.End] // those revoked here, until the regional acknowledges them
	movers  movers                // written by moveIn and prepare
	alone   isolation             // of an edge without a lease

	// Cumulative over the life of the process; charge counts the first three.
	outcomes estimate.OutcomeCounter
	admitted uint64
	entered  uint64 // of those, visitors that waited
	counts   [history.NumCounts]uint64

	// prepare clears dirty with each report. The room is reported again until the report changedAt is acknowledged.
	dirty     bool   // changed since the newest report
	removed   bool   // as in the newest report: see mayDrop
	changedAt uint64 // first report with the newest change

	// The sums that global has of this room, for a new regional. report sets telling, settle moves it to told.
	told    wire.Sums
	telling wire.Sums // of the report tellsAt: not known yet to be at global
	tellsAt uint64    // 0 for none
}

func newRoomState(e *edge) *roomState {
	l := &e.cfg.Limits
	return &roomState{
		line: line{edge: e, queue: newQueue(l.Waiting)}, moves: moveLog{first: 1}, tickets: newTickets(l.Recent),
	}
}

// set applies the room's settings. After a change of epoch held visitors get new places: with their old tickets
// they would be admitted and rejected by the next request.
func (r *roomState) set(now fleettime.Mono, settings Room) {
	if r.Epoch != settings.Epoch {
		m := r.edge.at(now)
		r.held.renew(func(in ticket.Network) ticket.Ticket { return r.edge.newTicket(m.time, settings.Epoch, in) })
	}
	if settings.Grace == 0 {
		settings.Grace = room.DefaultGrace
	}
	reorder := r.Epoch != settings.Epoch || r.queuedAll() != settings.queuedAll()
	drawn := settings.Drawn != nil && (r.Drawn == nil || !settings.Drawn.Same(r.Drawn))
	r.Room, r.gone, r.dirty = settings, false, true
	switch {
	case drawn:
		r.draw = settings.Drawn.Draw()
		r.redraw(r.edge.at(now))
	case settings.Drawn == nil:
		r.draw = nil
	}
	if reorder || drawn {
		r.held.order(&r.Room, r.view)
	}
	r.life.probation = uint32((settings.Probation + time.Second - 1) / time.Second)
	r.life.fixed = 0
	if settings.NoRenewal {
		r.life.fixed = uint32((settings.Session + time.Second - 1) / time.Second)
	}
}

// isolation is the state of a room at an edge without a lease: sessions that no ledger counts.
type isolation struct {
	letIn    uint64 // admitted without a permit, in total
	letInNow int    // of those, in this isolation
	guests   int    // foreign sessions renewed without a lease, since the last one
}
