package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/ticket"
)

// This file is the actions of scenarios, at chosen times instead of drawn by [Faults]. Edges are numbered through all
// data centres, from 0.

// end ends the process of an edge; its long-polled visitors lose the connection and ask again.
func (es *edges) end(i int32) {
	n := es.all[i]
	if n.down {
		return
	}
	es.tracef("%s crashes", n)
	n.down = true
	es.hangUp(i)
}

// leave shuts an edge down with a goodbye.
func (es *edges) leave(i int32) {
	n := es.all[i]
	es.tracef("%s ends", n)
	now := n.clock.read(es.now)
	es.answer(i, n.core.Drain(now))
	reports := n.core.Leave(now)
	if es.cfg.Faults.Pasts {
		if data := es.snapshotOf(n); n.pasts.failing <= es.now {
			es.keepPast(n, data)
		}
	}
	for _, m := range reports {
		es.net.send(event{kind: evReport, node: n.region, msg: &m}, es.cfg.Network.LAN, n.cutUp)
	}
	n.down = true
	n.ended = n.core.AllEnded()
}

// end ends the leading aggregator of a data centre; another begins after d.
func (cs *centres) end(i int32, d time.Duration) {
	cs.tracef("the aggregator of %s crashes", cs.all[i].name)
	cs.all[i].newest().gone = true
	cs.in(d, func() { cs.start(i, false) })
}

// end ends the coordinator; another begins after d.
func (gs *coordinators) end(d time.Duration) {
	gs.tracef("the coordinator crashes")
	gs.newest().gone = true
	gs.in(d, func() { gs.start(false) })
}

// takeOver ends the coordinator; another begins two seconds later with a version of the membership list, 0 for the
// stored one.
func (gs *coordinators) takeOver(version int) {
	gs.tracef("the coordinator crashes")
	gs.newest().gone = true
	gs.in(2*time.Second, func() {
		gs.older, gs.olderFor = version, time.Hour
		gs.start(false)
	})
}

// cutOff disconnects a data centre from global for d.
func (cs *centres) cutOff(i int32, d time.Duration) {
	cs.tracef("%s is cut off for %v", cs.all[i].name, d)
	cs.all[i].cutUp, cs.all[i].cutDown = cs.now+int64(d), cs.now+int64(d)
}

// isolate disconnects every edge from its regional for d, and every regional from global, like a loss of NATS.
func (w *World) isolate(d time.Duration) {
	w.tracef("nobody hears anybody for %v", d)
	until := w.now + int64(d)
	for _, n := range w.edges.all {
		n.cutUp, n.cutDown = until, until
	}
	for _, r := range w.centres.all {
		r.cutUp, r.cutDown = until, until
	}
}

// goHome ends the visits of all active visitors; their tickets stay valid until they expire.
func (w *World) goHome() {
	for i := range w.visitors {
		if v := &w.visitors[i]; v.inside {
			v.inside, v.pages = false, 0
			w.end(int32(i))
		}
	}
}

// goAway makes all waiting visitors of a data centre leave silently. They are counted until they are missed.
func (w *World) goAway(centre int32) {
	for i := range w.visitors {
		v := &w.visitors[i]
		if v.inside || v.centre != centre || v.pass.ticket.ID == 0 {
			continue
		}
		if n := w.edges.all[v.edge]; v.hold != nil {
			n.core.Abandon(n.clock.read(w.now), v.hold)
			w.edges.wake(v.edge)
		}
		w.oracle.setWaiting(v, false)
		w.end(int32(i))
	}
}

// crowd is arrivals in addition to the demand.
type crowd struct {
	from, until time.Duration
	perSecond   float64
	centre      int32 // -1 for all
	rng         *rand.Rand
	came        int
	behave      func(v *visitor)
}

// bring adds a crowd.
func (w *World) bring(c *crowd) {
	c.rng = rand.New(rand.NewPCG(w.cfg.Seed, 0x63726f7764))
	var next func()
	next = func() {
		if w.now > int64(c.until) {
			return
		}
		centre := c.centre
		if centre < 0 {
			centre = int32(c.rng.IntN(w.cfg.Centres))
		}
		i := w.newcomer(centre)
		c.came++
		c.behave(&w.visitors[i])
		w.request(i)
		w.in(time.Duration(c.rng.ExpFloat64()/c.perSecond*1e9), next)
	}
	w.in(c.from, next)
}

// replays present tickets again and again, each at any edge, by clients that ignore the answers.
type replays struct {
	from, until time.Duration
	perSecond   float64
	tickets     []ticket.Ticket // may still be filled in before from
	shown       int
}

func (w *World) replay(p *replays) {
	rng := rand.New(rand.NewPCG(w.cfg.Seed, 0x7265706c6179))
	var next func()
	next = func() {
		if w.now > int64(p.until) {
			return
		}
		k := int32(rng.IntN(len(w.edges.all)))
		n, t := w.edges.all[k], p.tickets[rng.IntN(len(p.tickets))]
		p.shown++
		switch d := n.core.Arrive(n.clock.read(w.now), w.room, t); {
		case d.Enters():
			w.oracle.issued(&visitor{edge: k}, d)
		case d.Verdict == admission.Hold:
			w.holdFor(k, &admission.Visit{Room: w.room, Ticket: d.Ticket, Brought: t, Data: int32(-1)}, time.Duration(rng.Int64N(int64(5*time.Second))))
		}
		w.edges.wake(k)
		w.in(time.Duration(rng.ExpFloat64()/p.perSecond*1e9), next)
	}
	w.in(p.from, next)
}

// holdFor makes an edge hold a request whose client hangs up after d.
func (w *World) holdFor(edge int32, v *admission.Visit, d time.Duration) {
	n := w.edges.all[edge]
	n.core.Hold(n.clock.read(w.now), v)
	w.in(d, func() { n.core.Abandon(n.clock.read(w.now), v) })
}

// oldTickets returns n tickets of each kind: valid places and sessions, expired sessions, and tickets of an earlier
// epoch. Their visitors are gone.
func (w *World) oldTickets(n int) (out []ticket.Ticket) {
	var waiting, inside []ticket.Ticket
	for i := range w.visitors {
		v := &w.visitors[i]
		t := v.pass.ticket
		switch {
		case v.robot || t.ID == 0 || v.hold != nil:
		case v.inside && t.Valid(w.fleetTime()) && len(inside) < n:
			inside = append(inside, t)
			w.end(int32(i))
		case !v.inside && v.queued && t.Flags&ticket.Returned != 0 && len(waiting) < n:
			waiting = append(waiting, t)
			w.oracle.setWaiting(v, false)
			w.end(int32(i))
		}
	}
	for range n {
		t := w.foreign()
		t.Epoch = w.operator.epoch + 1
		out = append(out, t)
		t = w.foreign()
		t.Epoch, t.Admitted, t.Until, t.Home = w.operator.epoch, t.Seen-200, t.Seen-100, ticket.DCOf(w.centres.all[0].name)
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
	for !over && !w.broken() {
		e, ok := w.agenda.next()
		if !ok {
			return
		}
		w.now = e.at
		w.events++
		w.handle(&e)
	}
}

// measureFrom resets all figures after d, once the fleet is in the state to measure.
func (w *World) measureFrom(d time.Duration) {
	w.in(d, func() { w.meters.begin() })
}

// sessions returns the number of valid sessions.
func (w *World) sessions() int {
	w.oracle.tick()
	return w.oracle.active
}

// counted returns the number of sessions counted by the regionals, and the reserved part.
func (cs *centres) counted() (n, reserved int64) {
	for _, r := range cs.all {
		l := r.newest().core.Ledger(cs.room)
		n += l.Active
		reserved += l.Reserved
	}
	return n, reserved
}

// parallelRequests sends n parallel requests with the same ticket to the edges of a data centre in turn, and returns
// the resulting tickets.
func (w *World) parallelRequests(centre int32, n int, t ticket.Ticket) []ticket.Ticket {
	v := &visitor{centre: centre}
	var out []ticket.Ticket
	for k := range n {
		i := w.centres.all[centre].edges[k%len(w.centres.all[centre].edges)]
		e := w.edges.all[i]
		v.edge = i
		d := e.core.Arrive(e.clock.read(w.now), w.room, t)
		w.edges.wake(i)
		if d.Enters() {
			w.oracle.issued(v, d)
			out = append(out, d.Ticket)
		}
	}
	return out
}

// clockTime formats a time of a scenario.
func clockTime(ns int64) string {
	d := time.Duration(ns)
	return fmt.Sprintf("%3d:%02.0f", int(d.Minutes()), math.Mod(d.Seconds(), 60))
}

// foreign returns the ticket of a visitor that joined just now at some edge.
func (w *World) foreign() ticket.Ticket {
	ft := w.fleetTime()
	return ticket.Ticket{ID: w.rng.Uint64() | 1, Joined: ft, Seen: uint32(ft.Second())}
}
