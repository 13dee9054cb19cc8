package admission

import (
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// roomState is an edge's admission to one room: it decides about visitors.
type roomState struct {
	edge     *edge
	settings Room // from set
	line     line
	account  account
	paused   bool // origin down: no admissions, permits are returned; from Rooms.Pause

	// prepare clears dirty with each report. The room is reported again until the report changedAt is acknowledged.
	dirty     bool   // changed since the newest report
	removed   bool   // as in the newest report: see mayDrop
	changedAt uint64 // first report with the newest change

	forwarded forwardedSums
}

// forwardedSums are the sums that global has of a room, for a new regional. report sets pending, settle moves it to
// known.
type forwardedSums struct {
	known   wire.Sums
	pending wire.Sums // of the report at: not known yet to be at global
	at      uint64    // 0 for none
}

// settle records that global gets the sums of the reports up to seq.
func (s *forwardedSums) settle(seq uint64) {
	if s.at != 0 && s.at <= seq {
		s.known, s.at = s.pending, 0
	}
}

func newRoomState(e *edge, id room.ID) *roomState {
	r, limits := &roomState{edge: e, settings: Room{ID: id, gone: true}, dirty: true}, &e.cfg.Limits
	r.line = line{edge: e, settings: &r.settings, queue: newQueue(limits.Waiting)}
	r.account = account{
		edge: e, settings: &r.settings, arrivals: &r.line.queue.arrivals, moves: moveLog{first: 1},
		tickets: newTickets(limits.Recent),
	}
	return r
}

// set applies the room's settings. After a change of epoch held visitors get new places: with their old tickets
// they would be admitted and rejected by the next request.
func (r *roomState) set(now fleettime.Mono, settings Room) {
	if r.settings.Epoch != settings.Epoch {
		m := r.edge.clock.at(now)
		r.line.held.renew(func(in ticket.Network) ticket.Ticket { return r.edge.newTicket(m.time, settings.Epoch, in) })
	}
	if settings.Grace == 0 {
		settings.Grace = room.DefaultGrace
	}
	reorder := r.settings.Epoch != settings.Epoch || r.settings.queuedAll() != settings.queuedAll()
	drawn := settings.Drawn != nil && (r.settings.Drawn == nil || !settings.Drawn.Same(r.settings.Drawn))
	r.settings, r.dirty = settings, true
	switch {
	case drawn:
		r.line.draw = settings.Drawn.Draw()
		r.line.redraw(r.edge.clock.at(now))
	case settings.Drawn == nil:
		r.line.draw = nil
	}
	if reorder || drawn {
		r.line.held.order(&r.settings, r.line.view)
	}
	life := &r.account.life
	life.probation, life.fixed = uint32((settings.Probation+time.Second-1)/time.Second), 0
	if settings.NoRenewal {
		life.fixed = uint32((settings.Session + time.Second - 1) / time.Second)
	}
}

// mayDrop reports whether the room is not in the room set and nothing of it is left: its counters may start anew.
// Marks of revoked sessions and counts of waiting visitors stay for as long as a ticket may need them.
func (r *roomState) mayDrop(now fleettime.Mono) bool {
	return r.settings.gone && len(r.line.held.visits) == 0 && r.account.empty(now) && r.line.queue.empty()
}
