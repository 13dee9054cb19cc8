package admission

import (
	"time"

	"vestibule/internal/core/draw"
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
	Room   // from set
	edge   *edge
	gone   bool       // removed from the room set: no admissions, permits are returned; from SetRooms
	paused bool       // origin down: no admissions, permits are returned; from Engine.Pause
	life   life       // full is from applyGrant, the rest from set
	draw   *draw.Draw // of Drawn, or nil; from set

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

	// Waiting visitors.
	queue  queue          // advisory: an error here costs order, not a limit
	held   held           // every visit whose Hold has not ended
	view   *wire.View     // of the newest grant with one; nil before
	called calledLog      // from noteCalled
	claims claims         // of places that are kept; from noteCalled
	asleep asleep         // visitors without a page that keep their place
	elder  fleettime.Time // the newest since() with visitors that joined before it and wait here

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
	return &roomState{edge: e, moves: moveLog{first: 1}, tickets: newTickets(l.Recent), queue: newQueue(l.Waiting)}
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

// since returns since when waiting visitors are counted: as the view says, otherwise since this edge began. Without the
// second, an edge that is heard first after a restart of all would show the visitors that it counted as the whole line.
func (r *roomState) since() fleettime.Time {
	if r.view != nil && r.view.Since != 0 {
		return r.view.Since
	}
	return r.edge.since
}

// updateSince records since when waiting visitors are counted, and whether some have waited since before.
func (r *roomState) updateSince(t *ticket.Ticket) {
	since := r.since()
	r.queue.since = uint32(max(0, since.NextSecond().Second()))
	if t.Joined < since {
		r.elder = since
	}
}

// placeIn returns the place of a waiting visitor from now on: the drawn one if there was a draw.
func placeIn(d *draw.Draw, t *ticket.Ticket) fleettime.Time {
	if d == nil {
		return t.Place()
	}
	return d.Place(t.ID, t.Joined, 0)
}

// redraw gives held visitors their drawn places. The caller sorts them.
func (r *roomState) redraw(m moment) {
	if !m.synced() {
		return
	}
	for _, v := range r.held.visits {
		r.queue.checkIn(r.edge.countAt(m.time), &v.Ticket, placeIn(r.draw, &v.Ticket))
	}
}

// newTicket returns a new place. A visitor that arrives after a draw is late for it, even if this clock is slow.
func (r *roomState) newTicket(m moment, in ticket.Network) ticket.Ticket {
	t := r.edge.newTicket(m.time, r.Epoch, in)
	if r.Drawn != nil {
		t.Joined = max(t.Joined, fleettime.TimeOf(r.Drawn.Closes))
	}
	return t
}

// isolation is the state of a room at an edge without a lease: sessions that no ledger counts.
type isolation struct {
	letIn    uint64 // admitted without a permit, in total
	letInNow int    // of those, in this isolation
	guests   int    // foreign sessions renewed without a lease, since the last one
}
