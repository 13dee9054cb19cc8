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

// goHome ends the visits of all active visitors; their tickets stay valid until they expire.
func (vs *visitors) goHome() {
	for i := range vs.all {
		if v := &vs.all[i]; v.inside {
			v.inside, v.pages = false, 0
			vs.end(int32(i))
		}
	}
}

// crowd is arrivals in addition to the demand.
type crowd struct {
	from, until time.Duration
	perSecond   float64
	came        int
	behave      func(v *visitor)
}

// bring adds a crowd.
func (vs *visitors) bring(c *crowd) {
	rng := rand.New(rand.NewPCG(vs.cfg.Seed, 0x63726f7764))
	vs.again(rng, c.from, c.until, c.perSecond, func() {
		i := vs.newcomer(int32(rng.IntN(vs.cfg.Centres)))
		c.came++
		c.behave(&vs.all[i])
		vs.request(i)
	})
}

// replays present tickets again and again, each at any edge, by clients that ignore the answers.
type replays struct {
	from, until time.Duration
	perSecond   float64
	tickets     []ticket.Ticket // may still be filled in before from
	shown       int
}

func (vs *visitors) replay(p *replays) {
	rng := rand.New(rand.NewPCG(vs.cfg.Seed, 0x7265706c6179))
	vs.again(rng, p.from, p.until, p.perSecond, func() {
		n, t := vs.edges.all[rng.IntN(len(vs.edges.all))], p.tickets[rng.IntN(len(p.tickets))]
		p.shown++
		switch d := n.core.Arrive(n.clock.read(vs.now), vs.room, t); {
		case d.Enters():
			vs.oracle.issued(&visitor{edge: n}, d)
		case d.Verdict == admission.Hold:
			vs.edges.hold(n, d.Ticket, t, time.Duration(rng.Int64N(int64(5*time.Second))))
		}
		vs.edges.wake(n)
	})
}

// oldTickets returns n tickets of each kind: valid places and sessions, expired sessions, and tickets of an earlier
// epoch. Their visitors are gone.
func (vs *visitors) oldTickets(n int) (out []ticket.Ticket) {
	var waiting, inside []ticket.Ticket
	for i := range vs.all {
		v := &vs.all[i]
		t := v.pass.ticket
		switch {
		case v.robot || t.ID == 0 || v.hold != nil:
		case v.inside && t.Valid(vs.fleetTime()) && len(inside) < n:
			inside = append(inside, t)
			vs.end(int32(i))
		case !v.inside && v.queued && t.Flags&ticket.Returned != 0 && len(waiting) < n:
			waiting = append(waiting, t)
			vs.oracle.setWaiting(v, false)
			vs.end(int32(i))
		}
	}
	for range n {
		t := vs.foreign()
		t.Epoch = vs.doc.epoch + 1
		out = append(out, t)
		t = vs.foreign()
		t.Epoch, t.Admitted, t.Until, t.Home = vs.doc.epoch, t.Seen-200, t.Seen-100, ticket.DCOf(vs.centres.all[0].name)
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
	w.visitors.demand(Demand{})
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
func (vs *visitors) ask(n *edgeNode, t ticket.Ticket) admission.Decision {
	d := n.core.Arrive(n.clock.read(vs.now), vs.room, t)
	vs.edges.wake(n)
	if d.Enters() {
		vs.oracle.issued(&visitor{edge: n}, d)
	}
	return d
}

// inside returns the active visitors.
func (vs *visitors) inside() (out []*visitor) {
	for i := range vs.all {
		if v := &vs.all[i]; v.inside {
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
func (vs *visitors) foreign() ticket.Ticket {
	ft := vs.fleetTime()
	return ticket.Ticket{ID: vs.rng.Uint64() | 1, Joined: ft, Seen: uint32(ft.Second())}
}
