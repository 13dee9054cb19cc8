package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/ticket"
)

// What a scenario does to a fleet at a moment of its choice, where [Faults]
// draws it from the seed. Edges are numbered through all data centres, from 0.

// endEdge ends the process of an edge; whom it held loses the connection and
// asks again.
func (w *World) endEdge(i int32) {
	n := w.edges[i]
	if n.down {
		return
	}
	w.tell("%s of %s crashes", n.name, w.regions[n.region].name)
	n.down = true
	w.hangUp(i)
}

// leaveEdge lets an edge end as it does when it is told to: it says goodbye.
func (w *World) leaveEdge(i int32) {
	n := w.edges[i]
	w.tell("%s of %s ends", n.name, w.regions[n.region].name)
	now := n.clock.read(w.now)
	for _, h := range n.core.Drain(now) {
		k := h.Data.(int32)
		w.visitors[k].hold = nil
		w.answer(k, &h.Decision)
	}
	for _, m := range n.core.Leave(now) {
		w.send(event{kind: evReport, node: n.region, msg: &m}, w.cfg.Network.LAN, n.cutUp)
	}
	n.down = true
	n.ended = n.core.AllEnded()
}

// endRegion ends the aggregator that leads a data centre; another begins after d.
func (w *World) endRegion(i int32, d time.Duration) {
	w.tell("the aggregator of %s crashes", w.regions[i].name)
	w.regions[i].newest().gone = true
	w.in(d, func() { w.startRegion(i, false) })
}

// endGlobal ends the coordinator; another begins after d.
func (w *World) endGlobal(d time.Duration) {
	w.tell("the coordinator crashes")
	w.newest().gone = true
	w.in(d, func() { w.startGlobal(false) })
}

// takeOver ends the coordinator; another begins two seconds later that goes by a version of the
// list of data centres, as it stands in the store for 0.
func (w *World) takeOver(version int) {
	w.tell("the coordinator crashes")
	w.newest().gone = true
	w.in(2*time.Second, func() {
		w.older, w.olderFor = version, time.Hour
		w.startGlobal(false)
	})
}

// cutCentre cuts a data centre off from global for d.
func (w *World) cutCentre(i int32, d time.Duration) {
	w.tell("%s is cut off for %v", w.regions[i].name, d)
	w.regions[i].cutUp, w.regions[i].cutDown = w.now+int64(d), w.now+int64(d)
}

// isolate cuts every edge off from its regional for d, and every regional from
// global: what is left when NATS is gone.
func (w *World) isolate(d time.Duration) {
	w.tell("nobody hears anybody for %v", d)
	until := w.now + int64(d)
	for _, n := range w.edges {
		n.cutUp, n.cutDown = until, until
	}
	for _, r := range w.regions {
		r.cutUp, r.cutDown = until, until
	}
}

// goHome lets everybody who is inside go home; their tickets stay valid until
// they expire.
func (w *World) goHome() {
	for i := range w.visitors {
		if v := &w.visitors[i]; v.inside {
			v.inside, v.pages = false, 0
			w.end(int32(i))
		}
	}
}

// goAway lets everybody who waits in a data centre go away without a word. The line
// tells of them until they are missed.
func (w *World) goAway(centre int32) {
	for i := range w.visitors {
		v := &w.visitors[i]
		if v.inside || v.centre != centre || v.pass.ticket.ID == 0 {
			continue
		}
		if n := w.edges[v.edge]; v.hold != nil {
			n.core.Abandon(n.clock.read(w.now), v.hold)
			w.wakeEdge(v.edge)
		}
		w.judge.waits(v, false)
		w.end(int32(i))
	}
}

// crowd is who comes on top of the demand.
type crowd struct {
	from, until time.Duration
	perSecond   float64
	centre      int32 // -1 for all
	rng         *rand.Rand
	came        int
	behave      func(v *visitor)
}

// bring lets a crowd come.
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

// replays show tickets again and again, each at any edge, by clients that keep no
// answer.
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
		k := int32(rng.IntN(len(w.edges)))
		n, t := w.edges[k], p.tickets[rng.IntN(len(p.tickets))]
		p.shown++
		switch d := n.core.Arrive(n.clock.read(w.now), w.room, t); {
		case d.Enters():
			w.judge.issued(w, &visitor{edge: k}, d)
		case d.Verdict == admission.Hold:
			w.holdFor(k, &admission.Visit{Room: w.room, Ticket: d.Ticket, Brought: t, Data: int32(-1)}, time.Duration(rng.Int64N(int64(5*time.Second))))
		}
		w.wakeEdge(k)
		w.in(time.Duration(rng.ExpFloat64()/p.perSecond*1e9), next)
	}
	w.in(p.from, next)
}

// holdFor lets an edge hold a request whose client hangs up after d.
func (w *World) holdFor(edge int32, v *admission.Visit, d time.Duration) {
	n := w.edges[edge]
	n.core.Hold(n.clock.read(w.now), v)
	w.in(d, func() { n.core.Abandon(n.clock.read(w.now), v) })
}

// oldTickets returns n tickets of each kind that somebody may have kept: of places
// and of sessions that are good, of sessions that are over, and of an earlier epoch.
// Their visitors are gone.
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
			w.judge.waits(v, false)
			w.end(int32(i))
		}
	}
	for range n {
		t := w.foreign()
		t.Epoch = w.epoch + 1
		out = append(out, t)
		t = w.foreign()
		t.Epoch, t.Admitted, t.Until, t.Home = w.epoch, t.Seen-200, t.Seen-100, ticket.DCOf(w.regions[0].name)
		out = append(out, t)
	}
	return append(append(out, waiting...), inside...)
}

// noCookies is the behaviour of robots: they keep nothing and never come back.
func noCookies(v *visitor) { v.robot, v.pages, v.leaves = true, 1, math.MaxInt64 }

// oneLook is the behaviour of people who wait for their turn, enter, and leave.
func oneLook(v *visitor) { v.robot, v.waits, v.pages, v.leaves = true, true, 1, math.MaxInt64 }

// runFor lets d pass, or less where a promise is broken.
func (w *World) runFor(d time.Duration) {
	over := false
	w.in(d, func() { over = true })
	for !over && !w.judge.broken() {
		e, ok := w.agenda.next()
		if !ok {
			return
		}
		w.now = e.at
		w.events++
		w.happen(&e)
	}
}

// measureFrom begins all figures anew, d after now: what was before is how the
// fleet came into the state that is measured.
func (w *World) measureFrom(d time.Duration) {
	w.in(d, func() { w.meters.begin(w) })
}

// sessions returns how many sessions are valid.
func (w *World) sessions() int {
	w.judge.tick(w)
	return w.judge.active
}

// counted returns how many sessions the regionals count, and how many of them
// they only presume.
func (w *World) counted() (n, presumed int64) {
	for _, r := range w.regions {
		l := r.newest().core.Ledger(w.room)
		n += l.Active
		presumed += l.Presumed
	}
	return n, presumed
}

// parallelRequests sends n requests with the same ticket at once, by turns to
// the edges of a data centre, and returns the tickets that came back.
func (w *World) parallelRequests(centre int32, n int, t ticket.Ticket) []ticket.Ticket {
	v := &visitor{centre: centre}
	var out []ticket.Ticket
	for k := range n {
		i := w.regions[centre].edges[k%len(w.regions[centre].edges)]
		e := w.edges[i]
		v.edge = i
		d := e.core.Arrive(e.clock.read(w.now), w.room, t)
		w.wakeEdge(i)
		if d.Enters() {
			w.judge.issued(w, v, d)
			out = append(out, d.Ticket)
		}
	}
	return out
}

// clock of a scenario, as people write it.
func clockTime(ns int64) string {
	d := time.Duration(ns)
	return fmt.Sprintf("%3d:%02.0f", int(d.Minutes()), math.Mod(d.Seconds(), 60))
}

// foreign returns the ticket of somebody who joined just now at some edge.
func (w *World) foreign() ticket.Ticket {
	ft := w.fleetTime()
	return ticket.Ticket{ID: w.rng.Uint64() | 1, Joined: ft, Seen: uint32(ft.Second())}
}
