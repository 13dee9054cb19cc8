package admission

import (
	"cmp"
	"slices"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// Engine is the core of one edge. See the package comment. It dispatches to its rooms and to their shared state.
type Engine struct{ known }

// known is the state of an engine. Its methods answer questions and change nothing.
type known struct {
	*edge // shared by all rooms

	// The same rooms: SetRooms adds them, drop deletes them.
	rooms map[room.ID]*roomState
	order []*roomState // by ID: iteration must not depend on a map
}

// New returns an engine without rooms and without a lease. Its first report is due at once.
func New(cfg Config) *Engine {
	e := &edge{cfg: cfg, home: ticket.DCOf(cfg.DC), past: fleettime.Newest(cfg.Past)}
	e.snapshots.on = cfg.Stores
	e.up.newInstance(cfg.Rand)
	return &Engine{known{edge: e, rooms: map[room.ID]*roomState{}}}
}

// SetRooms replaces the room set. Remaining rooms keep their state. Removed rooms return their permits as they
// become free, and are dropped once nothing of them is left.
func (e *Engine) SetRooms(now fleettime.Mono, rooms []Room) {
	for _, r := range e.order {
		r.settings.gone = true
	}
	for _, settings := range rooms {
		e.open(settings.ID).set(now, settings)
	}
	if len(rooms) > 0 && !e.up.check(now) {
		e.up.loseLease(now) // isolation applies from the first room on
	}
	e.reportSoon(now)
}

// open returns the state of a room and makes it if needed. A held visitor may be of a room that was dropped meanwhile.
func (e *Engine) open(id room.ID) *roomState {
	r := e.rooms[id]
	if r == nil {
		r = newRoomState(e.edge, id)
		for _, end := range e.cfg.Ended[id] {
			r.account.ended.note(end)
		}
		e.rooms[id] = r
		i, _ := slices.BinarySearchFunc(e.order, id, compareRoom)
		e.order = slices.Insert(e.order, i, r)
		s := &e.snapshots
		s.wanted = true
		s.dropped = slices.DeleteFunc(s.dropped, func(o room.ID) bool { return o == id }) // the next one has it
	}
	return r
}

func compareRoom(r *roomState, id room.ID) int { return cmp.Compare(r.settings.ID, id) }

// Pause stops or resumes admissions to a room because its origin does not respond. Sessions are served, places are
// kept, and the permits go to other edges.
func (e *Engine) Pause(now fleettime.Mono, id room.ID, paused bool) {
	r := e.rooms[id]
	if r == nil || r.paused == paused {
		return
	}
	r.paused, r.dirty = paused, true
	e.reportSoon(now)
}

// Lapse ends the lease: the machine was suspended, so its clock is unreliable. The next exchange begins a new lease
// epoch.
func (e *Engine) Lapse(now fleettime.Mono) {
	if l := &e.up; l.leaseEnd != 0 {
		l.retire(now)
		l.reportSoon(now, 0)
	}
}

// Arrive decides about one request with ticket t (the zero Ticket for none). An admission is charged before Arrive
// returns.
func (e *Engine) Arrive(now fleettime.Mono, id room.ID, t ticket.Ticket) Decision {
	r := e.rooms[id]
	if r == nil || r.settings.gone {
		return Decision{Reason: Unknown, Retry: e.cfg.Params.Refresh, Ticket: t}
	}
	return r.arrive(e.at(now), t, ticket.Ticket{}, true)
}

// Return is Arrive for a visitor with a ticket of each kind, either of which may be zero. The place decides if the
// session does not admit: it expired, was revoked, or belongs to another client or network.
func (e *Engine) Return(now fleettime.Mono, id room.ID, session, place ticket.Ticket) Decision {
	r := e.rooms[id]
	if r == nil || r.settings.gone {
		return e.Arrive(now, id, session)
	}
	return r.arrive(e.at(now), session, place, true)
}

// Serve serves a request of a valid session, and renews the session like Arrive. Any other request gets a decision that
// does not enter, and changes and counts nothing.
func (e *Engine) Serve(now fleettime.Mono, id room.ID, session ticket.Ticket) Decision {
	r := e.rooms[id]
	if r == nil || r.settings.gone {
		return e.Arrive(now, id, session)
	}
	return r.inside(e.at(now), &session)
}

// Join is Arrive for a new visitor, in the network in, whose request is no page visit: an image embedded in another
// site, a robots.txt. It gives a place but does not admit. Arrive decides about the next request with that place.
func (e *Engine) Join(now fleettime.Mono, id room.ID, in ticket.Network) Decision {
	r, t := e.rooms[id], ticket.Ticket{Network: in}
	if r == nil || r.settings.gone {
		return Decision{Reason: Unknown, Retry: e.cfg.Params.Refresh, Ticket: t}
	}
	return r.arrive(e.at(now), t, ticket.Ticket{}, false)
}

// Hold keeps a request that Arrive decided to Hold. The caller sets v.Room and v.Ticket. The engine owns v until
// Release returns it or GiveUp takes it back.
func (e *Engine) Hold(now fleettime.Mono, v *Visit) { e.open(v.Room).hold(now, v) }

// Release admits held visitors in the order of joining, while permits last and the admission cutoff allows, and
// returns the decided ones. The slice is valid until the next call.
func (e *Engine) Release(now fleettime.Mono, out []*Visit) []*Visit {
	m := e.at(now)
	if !e.up.check(now) || e.up.standing != wire.Listed {
		return out
	}
	for _, r := range e.order {
		out = r.release(m, out)
	}
	return out
}

// ReleaseRoom is Release for one room: a visitor was held there just now.
func (e *Engine) ReleaseRoom(now fleettime.Mono, id room.ID) []*Visit {
	if !e.up.check(now) || e.up.standing != wire.Listed {
		return nil
	}
	return e.rooms[id].release(e.at(now), nil)
}

// GiveUp ends the hold of v, and its visitor continues to wait. It returns false if Release has already decided.
func (e *Engine) GiveUp(now fleettime.Mono, v *Visit) bool {
	r := e.rooms[v.Room]
	if !r.unhold(v) {
		return false
	}
	r.giveUp(e.at(now), v)
	return true
}

// Decline answers a request that Arrive decided to Hold and that the caller cannot hold: its visitor continues to wait.
func (e *Engine) Decline(now fleettime.Mono, v *Visit) {
	e.open(v.Room).giveUp(e.at(now), v)
	v.Decision.Reason = Crowded
}

// Abandon ends the hold of v after its client disconnected. The visitor still has the ticket that it brought and is
// counted as that ticket says. It returns false if Release has already decided.
func (e *Engine) Abandon(now fleettime.Mono, v *Visit) bool {
	r := e.rooms[v.Room]
	if !r.unhold(v) {
		return false
	}
	r.abandon(now, v)
	return true
}

// Drain ends all holds without a decision before the process exits.
func (e *Engine) Drain(now fleettime.Mono) []*Visit {
	var out []*Visit
	for _, r := range e.order {
		for len(r.line.held.visits) > 0 {
			v := r.line.held.visits[0]
			e.GiveUp(now, v)
			out = append(out, v)
		}
	}
	return out
}

// Away removes a waiting visitor from the count after its page went away. The place is kept like that of an absent
// visitor: every edge can see that from the ticket, and another page of the same visitor may be slow to ask. The
// next request counts the visitor again. One that will be told of its turn counts as likely to come: see asleep.
//
// answer is the ticket.Ticket.Answer known to the page. If the ticket has another one, a newer page was served:
// browsers report the end of a page after loading the next one, so a reload is no departure. Away reports whether
// the visitor departed. It is idempotent.
func (e *Engine) Away(now fleettime.Mono, id room.ID, t ticket.Ticket, answer uint8) bool {
	if t.Answer != answer || !e.Waits(now, id, t) {
		return false
	}
	r := e.rooms[id]
	if t.Kept && r.settings.Claim != 0 {
		r.dirty = r.line.asleep.put(e.Time(now), t.ID, t.Place()) || r.dirty
	}
	return r.line.queue.depart(e.Time(now), &t)
}

// Live renews the session of ticket t, as a request would: its visitor is active on a long connection. It returns
// the ticket for the next call: the session is valid until its Until. The visitor does not get it.
func (e *Engine) Live(now fleettime.Mono, id room.ID, t ticket.Ticket) ticket.Ticket {
	r := e.rooms[id]
	if r == nil || r.settings.gone {
		return t
	}
	return r.account.live(e.at(now), t)
}

// Quit revokes the session or the place of ticket t. The ticket is not accepted any more, and a session's permit is
// free as soon as no edge accepts it. Quit is idempotent and reports whether there was anything to revoke.
func (e *Engine) Quit(now fleettime.Mono, id room.ID, t ticket.Ticket) bool {
	r := e.rooms[id]
	if r == nil || t.ID == 0 || t.Epoch != r.settings.Epoch {
		return false
	}
	return r.quit(e.at(now), t)
}

// Waits reports whether t is a valid place in the room's queue and not a session. It counts nothing.
func (e *Engine) Waits(now fleettime.Mono, id room.ID, t ticket.Ticket) bool {
	r := e.rooms[id]
	return r != nil && r.waits(now, &t)
}
