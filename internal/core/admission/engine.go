package admission

import (
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
)

// Engine is the core of one edge. See the package comment. It dispatches to its rooms and to the state that they share.
type Engine struct {
	Clock     *Clock     // the edge's
	Rooms     *Rooms     // with the held requests
	Snapshots *Snapshots // for the data folder
	edge      *edge
	up        *uplink // of edge
}

// New returns an engine without rooms and without a lease. Its first report is due at once.
func New(cfg Config) *Engine {
	e := &edge{cfg: cfg, home: ticket.DCOf(cfg.DC)}
	rooms := &Rooms{edge: e, byID: map[room.ID]*roomState{}}
	e.snapshots = Snapshots{edge: e, rooms: rooms, on: cfg.Stores}
	e.up.past = fleettime.Newest(cfg.Past)
	e.up.newInstance(cfg.Rand)
	return &Engine{Clock: &e.clock, Rooms: rooms, Snapshots: &e.snapshots, edge: e, up: &e.up}
}

// SetRooms replaces the room set. Remaining rooms keep their state. Removed rooms return their permits as they
// become free, and are dropped once nothing of them is left.
func (e *Engine) SetRooms(now fleettime.Mono, rooms []Room) {
	for _, r := range e.Rooms.order {
		r.settings.gone = true
	}
	for _, settings := range rooms {
		e.Rooms.open(settings.ID).set(now, settings)
	}
	if len(rooms) > 0 && !e.up.check(now) {
		e.up.loseLease(now) // isolation applies from the first room on
	}
	e.edge.reportSoon(now)
}

// Lapse ends the lease: the machine was suspended, so its clock is unreliable. The next exchange begins a new lease
// epoch.
func (e *Engine) Lapse(now fleettime.Mono) {
	if l := e.up; l.leaseEnd != 0 {
		l.retire(now)
		l.reportSoon(now, 0)
	}
}

// Arrive decides about one request with ticket t (the zero Ticket for none). An admission is charged before Arrive
// returns.
func (e *Engine) Arrive(now fleettime.Mono, id room.ID, t ticket.Ticket) Decision {
	r := e.Rooms.byID[id]
	if r == nil || r.settings.gone {
		return Decision{Reason: Unknown, Retry: e.edge.cfg.Params.Refresh, Ticket: t}
	}
	return r.arrive(e.Clock.at(now), t, ticket.Ticket{}, true)
}

// Return is Arrive for a visitor with a ticket of each kind, either of which may be zero. The place decides if the
// session does not admit: it expired, was revoked, or belongs to another client or network.
func (e *Engine) Return(now fleettime.Mono, id room.ID, session, place ticket.Ticket) Decision {
	r := e.Rooms.byID[id]
	if r == nil || r.settings.gone {
		return e.Arrive(now, id, session)
	}
	return r.arrive(e.Clock.at(now), session, place, true)
}

// Serve serves a request of a valid session, and renews the session like Arrive. Any other request gets a decision that
// does not enter, and changes and counts nothing.
func (e *Engine) Serve(now fleettime.Mono, id room.ID, session ticket.Ticket) Decision {
	r := e.Rooms.byID[id]
	if r == nil || r.settings.gone {
		return e.Arrive(now, id, session)
	}
	return r.inside(e.Clock.at(now), &session)
}

// Join is Arrive for a new visitor, in the network in, whose request is no page visit: an image embedded in another
// site, a robots.txt. It gives a place but does not admit. Arrive decides about the next request with that place.
func (e *Engine) Join(now fleettime.Mono, id room.ID, in ticket.Network) Decision {
	r, t := e.Rooms.byID[id], ticket.Ticket{Network: in}
	if r == nil || r.settings.gone {
		return Decision{Reason: Unknown, Retry: e.edge.cfg.Params.Refresh, Ticket: t}
	}
	return r.arrive(e.Clock.at(now), t, ticket.Ticket{}, false)
}

// Away removes a waiting visitor from the count after its page went away. The place is kept like that of an absent
// visitor: every edge can see that from the ticket, and another page of the same visitor may be slow to ask. The
// next request counts the visitor again. One that will be notified of its turn counts as likely to come: see asleep.
//
// answer is the ticket.Ticket.Answer known to the page. If the ticket has another one, a newer page was served:
// browsers report the end of a page after loading the next one, so a reload is no departure. Away reports whether
// the visitor departed. It is idempotent.
func (e *Engine) Away(now fleettime.Mono, id room.ID, t ticket.Ticket, answer uint8) bool {
	if t.Answer != answer || !e.Waits(now, id, t) {
		return false
	}
	r := e.Rooms.byID[id]
	if t.Kept && r.settings.Claim != 0 {
		r.dirty = r.line.asleep.put(e.Clock.Time(now), t.ID, t.Place()) || r.dirty
	}
	return r.line.queue.depart(e.Clock.Time(now), &t)
}

// Live renews the session of ticket t, as a request would: its visitor is active on a long connection. It returns
// the ticket for the next call: the session is valid until its Until. The visitor does not get it.
func (e *Engine) Live(now fleettime.Mono, id room.ID, t ticket.Ticket) ticket.Ticket {
	r := e.Rooms.byID[id]
	if r == nil || r.settings.gone {
		return t
	}
	return r.account.live(e.Clock.at(now), t)
}

// Quit revokes the session or the place of ticket t. The ticket is not accepted any more, and a session's permit is
// free as soon as no edge accepts it. Quit is idempotent and reports whether there was anything to revoke.
func (e *Engine) Quit(now fleettime.Mono, id room.ID, t ticket.Ticket) bool {
	r := e.Rooms.byID[id]
	if r == nil || t.ID == 0 || t.Epoch != r.settings.Epoch {
		return false
	}
	return r.quit(e.Clock.at(now), t)
}

// Waits reports whether t is a valid place in the room's queue and not a session. It counts nothing.
func (e *Engine) Waits(now fleettime.Mono, id room.ID, t ticket.Ticket) bool {
	r := e.Rooms.byID[id]
	return r != nil && r.waits(now, &t)
}

// Instances returns the instance IDs for the data folder, the current one last. The shell stores them before the
// first report and whenever they change. If it cannot, that costs capacity but not safety.
func (e *Engine) Instances() []uint64 { return e.up.instances() }

// ExpiryTime returns the fleet time for the expiry of a session with the given home.
func (e *Engine) ExpiryTime(now fleettime.Mono, home ticket.DC) fleettime.Time {
	return e.edge.expiryTime(e.Clock.at(now), home)
}
