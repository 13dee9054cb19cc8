package admission

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// Limits bound the memory of an engine. The zero value holds nothing and
// remembers nothing.
type Limits struct {
	Held    int // requests held open per room
	Recent  int // tickets per room whose newest stamp is remembered
	Waiting int // visitors per room whose page went away, remembered for a minute
}

// DefaultLimits returns limits for an edge with some hundred MB to spend.
func DefaultLimits() Limits { return Limits{Held: 4096, Recent: 1 << 16, Waiting: 1 << 16} }

// Config is what an engine is made of.
type Config struct {
	Edge   string // name, unique in the data centre
	DC     string // data centre
	Params wire.Params
	Limits Limits
	Past   []uint64   // incarnations that have ended, see fleet.Lives
	Ended  Ended      // sessions that ended under a process before this one
	Rand   *rand.Rand // incarnations, ticket ids and jitter: seeded unpredictably in production
}

// Room is what an engine needs to know of a room; everything else about it
// is the shell's business.
type Room struct {
	ID    room.ID
	Epoch uint32
	Cap   bool // partition_policy cap: renew nothing without a lease

	Session        time.Duration // session_duration, for sessions without a right and those that are not renewed
	NoRenewal      bool          // a session ends Session after its admission
	Shut           Reason        // QueuedAll or Rejected: nobody is admitted; None: as the ledger allows
	Gather         []Span        // times before events in which nobody is admitted, judged by the engine's clock
	Drawn          *draw.Record  // of the newest draw, by which those who joined before it closed have other places; nil for none
	OnIsolation    string        // one of room.Isolation…; "" holds
	IsolationLimit int           // newcomers let in per isolation, where OnIsolation is open

	// Probation is for how long an admission is stamped at first, in whole
	// seconds; the second request lengthens it to the full session. 0 stamps in
	// full at once.
	Probation time.Duration

	// Grace is for how long a visitor who waits and is not there keeps the place;
	// 0 means room.DefaultGrace. Who asked within the last minute is there.
	Grace time.Duration
}

// Span is a time: it ends before Until.
type Span struct{ From, Until fleettime.Time }

// RoomOf returns what an engine needs to know of r.
func RoomOf(r *room.Room) Room {
	out := Room{
		ID: r.ID, Epoch: r.Epoch, Cap: r.PartitionPolicy == room.PolicyCap,
		Probation: r.Probation, Grace: r.Grace, Session: r.SessionDuration, OnIsolation: r.OnIsolation, IsolationLimit: r.IsolationLimit,
		NoRenewal: r.NoRenewal, Drawn: r.Drawn.Drawn(),
	}
	switch {
	case r.QueueAll:
		out.Shut = QueuedAll
	case r.QueueingMethod == room.MethodReject:
		out.Shut = Rejected
	}
	for _, span := range r.Plan.Gathers() {
		out.Gather = append(out.Gather, Span{fleettime.Time(span[0]), fleettime.Time(span[1])})
	}
	return out
}

// shut returns why nobody is let in by what an operator says, None where somebody may be. Before an event that is judged
// by the time that it may be at the latest and at the earliest, so that no edge is early.
func (r *Room) shut(m moment) Reason {
	if r.queuedAll() {
		return QueuedAll
	}
	bound := min(m.bound, fleettime.Rough) // nobody has a right who is less sure
	for _, s := range r.Gather {
		if m.time.Add(bound) >= s.From && m.time.Add(-bound) < s.Until {
			return Gathering
		}
	}
	return r.Shut
}

// queuedAll reports whether an operator lets nobody in but by a pass.
func (r *Room) queuedAll() bool { return r.Shut == QueuedAll }

// upTo returns the place up to which people may enter.
func (r *Room) upTo(view *wire.View) fleettime.Time {
	if r.queuedAll() {
		if view == nil {
			return 0
		}
		return view.Called
	}
	return horizon(view)
}

// turn returns by which place somebody who waits is called: the own one or, where chance decides, that of a round. Passes of a room
// that is paused go by the own one.
func (r *Room) turn(view *wire.View, t *ticket.Ticket) fleettime.Time {
	if view == nil || len(view.Rounds) == 0 || r.queuedAll() {
		return t.Place()
	}
	return view.Rounds.Place(t.ID, t.Place())
}

// Engine is the core of one edge. See the package comment. It passes on what it is
// asked and told to the rooms, and to what they have in common.
type Engine struct {
	*edge
	rooms map[room.ID]*roomState
	order []*roomState // by ID: iteration must not depend on a map
}

// New returns an engine that knows no room and has no lease. It reports at
// once.
func New(cfg Config) *Engine {
	e := &edge{cfg: cfg, home: ticket.DCOf(cfg.DC), past: fleettime.Newest(cfg.Past)}
	e.up.born(cfg.Rand)
	return &Engine{edge: e, rooms: map[room.ID]*roomState{}}
}

// SetRooms replaces the room set. Rooms that stay keep their state; those that
// went return their rights as they become free.
func (e *Engine) SetRooms(now fleettime.Mono, rooms []Room) {
	for _, r := range e.order {
		r.gone = true
	}
	for _, settings := range rooms {
		r := e.rooms[settings.ID]
		if r == nil {
			r = newRoomState(e.edge)
			for _, end := range e.cfg.Ended[settings.ID] {
				r.ended.note(end)
			}
			e.rooms[settings.ID] = r
			e.order = append(e.order, r)
		}
		r.set(now, settings)
	}
	slices.SortFunc(e.order, func(a, b *roomState) int { return cmp.Compare(a.ID, b.ID) })
	if len(rooms) > 0 && !e.up.check(now) {
		e.up.left(now) // from here on there is something to be isolated with
	}
	e.hurry(now)
}

// Pause tells whether nobody is to be admitted to a room for now, because what is
// behind it does not answer. Sessions are served as ever, places are kept, and the
// rights go to other edges.
func (e *Engine) Pause(now fleettime.Mono, id room.ID, paused bool) {
	r := e.rooms[id]
	if r == nil || r.paused == paused {
		return
	}
	r.paused, r.dirty = paused, true
	e.hurry(now)
}

// Lapse gives the lease up: the machine was asleep, so that the clock cannot
// be believed. A new tenure begins with the next exchange.
func (e *Engine) Lapse(now fleettime.Mono) {
	if l := &e.up; l.leaseEnd != 0 {
		l.retire(now)
		l.hurry(now, 0)
	}
}

// Arrive decides about one request that carries t (the zero Ticket for none).
// The decision to admit is charged when Arrive returns.
func (e *Engine) Arrive(now fleettime.Mono, id room.ID, t ticket.Ticket) Decision {
	r := e.rooms[id]
	if r == nil || r.gone {
		return Decision{Reason: Unknown, Retry: e.cfg.Params.Refresh, Ticket: t}
	}
	return r.arrive(e.at(now), t, true)
}

// Join is Arrive for somebody new, in the network in, whose request is plainly no visit:
// a picture of another site's page, a robot's file. It gives a place as any and lets
// nobody in; whoever comes back with the place is decided about by Arrive.
func (e *Engine) Join(now fleettime.Mono, id room.ID, in ticket.Network) Decision {
	r, t := e.rooms[id], ticket.Ticket{Network: in}
	if r == nil || r.gone {
		return Decision{Reason: Unknown, Retry: e.cfg.Params.Refresh, Ticket: t}
	}
	return r.arrive(e.at(now), t, false)
}

// Hold keeps a request that Arrive decided to Hold. The caller sets v.Room and
// v.Ticket; the engine owns v until Release returns it or GiveUp takes it
// back.
func (e *Engine) Hold(now fleettime.Mono, v *Visit) { e.rooms[v.Room].hold(now, v) }

// Release admits held visits, those who joined first before others, as long as
// rights are in hand and the horizon allows, and returns those it decided. The
// slice is valid until the next call.
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

// GiveUp ends the holding of v, if the engine still holds it, and decides that
// its visitor goes on waiting. It reports false where Release has decided
// already.
func (e *Engine) GiveUp(now fleettime.Mono, v *Visit) bool {
	r := e.rooms[v.Room]
	if !r.letGo(v) {
		return false
	}
	r.giveUp(e.at(now), v)
	return true
}

// Abandon ends the holding of v, if the engine still holds it, where its visitor
// did not wait for the answer. The visitor has the ticket that was brought, still,
// and is counted as it says. It reports false where Release has decided already.
func (e *Engine) Abandon(now fleettime.Mono, v *Visit) bool {
	r := e.rooms[v.Room]
	if !r.letGo(v) {
		return false
	}
	r.abandon(now, v)
	return true
}

// Drain takes everybody back who is held, undecided, to go on waiting: the
// process is about to end.
func (e *Engine) Drain(now fleettime.Mono) []*Visit {
	var out []*Visit
	for _, r := range e.order {
		for len(r.held.visits) > 0 {
			v := r.held.visits[0]
			e.GiveUp(now, v)
			out = append(out, v)
		}
	}
	return out
}

// Away takes a visitor whose page went away out of the count of those who wait.
// The place is kept as if the visitor had fallen silent: every edge can tell that
// from the ticket, and another page of the same visitor may be slow to ask. The
// next question counts the visitor again.
//
// answer is what the page was told of ticket.Ticket.Answer. Where the ticket says
// otherwise, another page was answered since: a browser says that a page goes away
// once the next one is there, so nobody has gone who reloads. Away reports whether
// the visitor has; saying it again changes nothing.
func (e *Engine) Away(now fleettime.Mono, id room.ID, t ticket.Ticket, answer uint8) bool {
	if t.Answer != answer || !e.Waits(now, id, t) {
		return false
	}
	return e.rooms[id].queue.depart(e.Time(now), &t)
}

// Quit ends what the visitor with ticket t has in the room: the session, or the
// place in the line. The ticket is accepted no more; a session's slot is free as
// soon as no edge accepts it any more. It may be called again and again with one
// ticket, and reports whether there was anything to end.
func (e *Engine) Quit(now fleettime.Mono, id room.ID, t ticket.Ticket) bool {
	r := e.rooms[id]
	if r == nil || t.ID == 0 || t.Epoch != r.Epoch {
		return false
	}
	return r.quit(e.at(now), t)
}
