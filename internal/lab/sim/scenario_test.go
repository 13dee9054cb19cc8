package sim

import (
	"math"
	"math/rand/v2"
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
)

// This file has the robots and the crowds of scenarios, and what happens in them at chosen times. Edges are numbered
// through all data centres, from 0.

// isolate disconnects every edge from its regional for d, and every regional from global, like a loss of NATS.
func (fl *fleet) isolate(d time.Duration) {
	fl.tracef("nobody hears anybody for %v", d)
	until := fl.now + int64(d)
	for _, n := range fl.edges.all {
		n.cutUp, n.cutDown = until, until
	}
	for _, r := range fl.centres.all {
		r.cutUp, r.cutDown = until, until
	}
}

// cutFor disconnects a data centre from global for d.
func (fl *fleet) cutFor(r *dataCentre, d time.Duration) {
	fl.tracef("%s is cut off for %v", r.name, d)
	r.cutUp, r.cutDown = fl.now+int64(d), fl.now+int64(d)
}

// counted returns the number of sessions counted by the regionals, and the reserved part.
func (fl *fleet) counted() (n, reserved int64) {
	for _, r := range fl.centres.all {
		l := r.newest().core.Ledger(fl.room)
		n += l.Active
		reserved += l.Reserved
	}
	return n, reserved
}

// goHome ends the visits of all active visitors; their tickets stay valid until they expire.
func (w *World) goHome() {
	for i := range w.visitors.all {
		if v := &w.visitors.all[i]; v.inside {
			v.inside, v.pages = false, 0
			w.visitors.end(int32(i))
		}
	}
}

// crowd is arrivals in addition to the demand.
type crowd struct {
	from, until time.Duration
	perSecond   float64
	behave      func(v *visitor)
}

// bring adds a crowd.
func (w *World) bring(c *crowd) {
	rng := rand.New(rand.NewPCG(w.cfg.Seed, 0x63726f7764))
	w.again(rng, c.from, c.until, c.perSecond, func() {
		i := w.visitors.newcomer(int32(rng.IntN(w.cfg.Centres)))
		c.behave(&w.visitors.all[i])
		w.visitors.request(i)
	})
}

// replay presents tickets again and again, each at any edge, by clients that ignore the answers.
func (w *World) replay(tickets []ticket.Ticket, from, until time.Duration, perSecond float64, shown *int) {
	rng := rand.New(rand.NewPCG(w.cfg.Seed, 0x7265706c6179))
	w.again(rng, from-time.Duration(w.now), until, perSecond, func() {
		n, t := w.edges.all[rng.IntN(len(w.edges.all))], tickets[rng.IntN(len(tickets))]
		*shown++
		switch d := n.core.Arrive(n.clock.read(w.now), w.room, t); {
		case d.Enters():
			w.oracle.issued(&visitor{edge: n}, d)
		case d.Verdict == admission.Hold:
			w.hold(n, d.Ticket, t, time.Duration(rng.Int64N(int64(5*time.Second))))
		}
		w.edges.wake(n)
	})
}

// oldTickets returns n tickets of each kind: valid places and sessions, expired sessions, and tickets of an earlier
// epoch. Their visitors are gone.
func (w *World) oldTickets(n int) (out []ticket.Ticket) {
	var waiting, inside []ticket.Ticket
	for i := range w.visitors.all {
		v := &w.visitors.all[i]
		t := v.pass.ticket
		switch {
		case v.robot || t.ID == 0 || v.hold != nil:
		case v.inside && t.Valid(w.fleetTime()) && len(inside) < n:
			inside = append(inside, t)
			w.visitors.end(int32(i))
		case !v.inside && v.queued && t.Flags&ticket.Returned != 0 && len(waiting) < n:
			waiting = append(waiting, t)
			w.oracle.setWaiting(v, false)
			w.visitors.end(int32(i))
		}
	}
	for range n {
		t := w.foreign()
		t.Epoch = w.doc.epoch + 1
		out = append(out, t)
		t = w.foreign()
		t.Epoch, t.Admitted, t.Until, t.Home = w.doc.epoch, t.Seen-200, t.Seen-100, ticket.DCOf(w.centres.all[0].name)
		out = append(out, t)
	}
	return append(append(out, waiting...), inside...)
}

// noCookies makes a robot: it keeps no cookie and never returns.
func noCookies(v *visitor) { v.robot, v.pages, v.leaves = true, 1, math.MaxInt64 }

// oneLook makes a visitor that waits for its turn, enters, and leaves.
func oneLook(v *visitor) { v.robot, v.waits, v.pages, v.leaves = true, true, 1, math.MaxInt64 }

// runFor runs for d, or until a promise is broken.
func (w *World) runFor(d time.Duration) {
	over := false
	w.in(d, func() { over = true })
	for !over && !w.broken() && w.next(math.MaxInt64) {
	}
}

// letIn runs until nobody waits any more, or until a time. Nobody comes meanwhile.
func (w *World) letIn(until time.Duration) {
	w.arrivals.demand(Demand{})
	for w.oracle.waiting > 0 && w.now < int64(until) && !w.broken() {
		w.runFor(10 * time.Second)
	}
}

// sessions returns the number of valid sessions.
func (w *World) sessions() int {
	w.oracle.tick()
	return len(w.oracle.tickets)
}

// ask sends a request with a ticket to an edge. The client is not among the visitors; the oracle sees its admission.
func (w *World) ask(n *edgeNode, t ticket.Ticket) admission.Decision {
	d := n.core.Arrive(n.clock.read(w.now), w.room, t)
	w.edges.wake(n)
	if d.Enters() {
		w.oracle.issued(&visitor{edge: n}, d)
	}
	return d
}

// hold makes an edge hold a request. The client hangs up after d.
func (w *World) hold(n *edgeNode, t, brought ticket.Ticket, d time.Duration) {
	v := &admission.Visit{Room: w.room, Ticket: t, Brought: brought, Data: int32(-1)} // of no visitor
	n.core.Rooms.Hold(n.clock.read(w.now), v)
	w.in(d, func() { n.core.Rooms.Abandon(n.clock.read(w.now), v) })
}

// inside returns the active visitors.
func (w *World) inside() (out []*visitor) {
	for i := range w.visitors.all {
		if v := &w.visitors.all[i]; v.inside {
			out = append(out, v)
		}
	}
	return out
}

// expect gives the room an event that begins at start. Visitors gather from the fifth second on.
func (w *World) expect(start time.Duration, e *room.Event) {
	w.in(time.Second, func() {
		e.Name, e.Prequeue, e.Start = "launch", int64(epoch.Add(5*time.Second)), int64(epoch.Add(start))
		w.operator.giveEvent(e)
		w.operator.edited()
	})
}

// foreign returns the ticket of a visitor that joined just now at some edge.
func (w *World) foreign() ticket.Ticket {
	ft := w.fleetTime()
	return ticket.Ticket{ID: w.rng.Uint64() | 1, Joined: ft, Seen: uint32(ft.Second())}
}

// again calls do again and again, as often as perSecond on average.
func (tl *timeline) again(rng *rand.Rand, from, until time.Duration, perSecond float64, do func()) {
	var next func()
	next = func() {
		if tl.now <= int64(until) {
			do()
			tl.in(time.Duration(rng.ExpFloat64()/perSecond*1e9), next)
		}
	}
	tl.in(from, next)
}

// end ends the process of an edge; its long-polled visitors lose the connection and ask again.
func (es *edges) end(n *edgeNode) {
	if n.down {
		return
	}
	es.tracef("%s crashes", n)
	n.down = true
	es.hangUp(n)
}

// end ends the coordinator; another begins after d.
func (gs *coordinators) end(d time.Duration) {
	gs.tracef("the coordinator crashes")
	gs.newest().gone = true
	gs.in(d, func() { gs.start(false) })
}

// end ends the leading aggregator of a data centre; another begins after d.
func (cs *centres) end(r *dataCentre, d time.Duration) {
	cs.tracef("the aggregator of %s crashes", r.name)
	r.newest().gone = true
	cs.in(d, func() { cs.start(r, false) })
}
