package sim

import (
	"math"
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/ticket"
)

// Demand configures the arrivals.
type Demand struct {
	PerMinute float64 // mean arrivals per minute, in total
	Spikes    []Spike // added to it
	Skew      float64 // 0: equal in all data centres; 1: all in the first
}

// Spike is additional demand for a while.
type Spike struct {
	At, Ramp, Length time.Duration
	PerMinute        float64
	Centre           int // 0 for all, else only the data centre with this number, from 1
}

// People configures the behaviour of visitors. Shares are fractions of all cases.
type People struct {
	Pages    float64       // mean number of pages per session
	Think    time.Duration // mean time between two pages
	Patience time.Duration // mean time until a waiting visitor abandons; 0 for never
	Stay     float64       // share of requests to the same edge as the previous one
	Robots   float64       // share of arrivals that never return and keep no cookie
	Parallel float64       // share of pages with two to eight parallel requests, at any edges
	Lost     float64       // share of replies that are lost; the visitor asks again
	Move     float64       // share of requests before which the visitor moves to another data centre
	Copy     float64       // share of replies with a copied cookie, which another browser uses anywhere
	Old      float64       // share of requests with an old cookie
	Drop     float64       // share of requests before which the visitor drops all cookies
	Burst    float64       // share of pages with fifty parallel requests
	Quit     float64       // share of leaving visitors that log out
	Bound    bool          // tickets are bound to networks
	Roam     float64       // share of requests before which the visitor moves to another network, with Bound

	// Share of waiting visitors that subscribe and close the page, and of those that do not come when they are called.
	Subscribe, Never float64
}

// DefaultPeople returns visitors of six pages, one every 20 s.
func DefaultPeople() People {
	return People{Pages: 6, Think: 20 * time.Second, Patience: 30 * time.Minute, Stay: 0.7}
}

// visitor is one person with a browser.
type visitor struct {
	gen    uint64 // of its pending event; older events are void
	pass   pass
	old    pass // an old cookie
	centre int32
	edge   int32
	came   int64
	leaves int64 // time of abandonment
	pages  int32 // remaining pages
	inside bool
	robot  bool  // excluded from the figures
	waits  bool  // a robot that keeps its cookie, waits for its turn, and makes no request after that
	served int64 // time of admission or of the last page
	shared bool  // another visitor has a copy of its cookie
	copied bool  // uses a copy of another visitor's cookie
	roamed bool  // was in more than one network
	kept   bool  // subscribed: its place is kept
	asks   uint8 // index into asks

	network ticket.Network // 0 if tickets are not bound
	queued  bool           // saw the waiting page at least once
	hold    *admission.Visit
	told    outcome  // at joining; high is 0 for none
	heard   *Hearing // nil if not measured
}

// arrivals draws arrival times: a Poisson process with the rate of the demand, by thinning.
type arrivals struct {
	peak float64 // per nanosecond
	gen  uint64  // of the planned arrival
}

func (a *arrivals) begin(w *World) {
	a.gen++
	a.peak = w.cfg.Demand.PerMinute
	for _, s := range w.cfg.Demand.Spikes {
		a.peak += s.PerMinute
	}
	a.peak /= float64(time.Minute)
}

// at returns the demand per minute at true time t, in total and of each spike.
func (d *Demand) at(t int64) (base float64, spikes []float64) {
	spikes = make([]float64, len(d.Spikes))
	for i, s := range d.Spikes {
		since := t - int64(s.At)
		if since < 0 || since > int64(s.Length) {
			continue
		}
		spikes[i] = s.PerMinute
		if since < int64(s.Ramp) {
			spikes[i] *= float64(since) / float64(s.Ramp)
		}
	}
	return d.PerMinute, spikes
}

func (a *arrivals) next(w *World) int64 {
	if a.peak <= 0 {
		return math.MaxInt64
	}
	return w.now + int64(w.rng.ExpFloat64()/a.peak)
}

// arrive adds a visitor, or none, and plans the next arrival.
func (w *World) arrive() {
	defer func() { w.plan(event{at: w.arrivals.next(w), kind: evArrival, gen: w.arrivals.gen}) }()
	base, spikes := w.cfg.Demand.at(w.now)
	draw := w.rng.Float64() * w.arrivals.peak * float64(time.Minute)
	centre := int32(-1)
	switch {
	case draw < base:
		centre = w.pick()
	default:
		draw -= base
		for i, s := range spikes {
			if draw < s {
				if c := w.cfg.Demand.Spikes[i].Centre; c > 0 {
					centre = int32(c - 1)
				} else {
					centre = w.pick()
				}
				break
			}
			draw -= s
		}
	}
	if centre < 0 {
		return // thinned out
	}
	i := w.newcomer(centre)
	w.meters.arrived++
	w.request(i)
}

// newcomer returns a new visitor of a data centre.
func (w *World) newcomer(centre int32) int32 {
	i := w.newVisitor()
	p := &w.cfg.People
	v := &w.visitors[i]
	*v = visitor{gen: v.gen + 1, centre: centre, came: w.now, leaves: math.MaxInt64, pages: w.pages()}
	v.edge, v.network = w.anyEdge(centre), w.anyNetwork()
	v.asks = w.asksFor()
	v.robot = p.Robots > 0 && w.rng.Float64() < p.Robots
	if w.meters.words != nil {
		v.heard = &Hearing{}
	}
	if p.Patience > 0 {
		v.leaves = w.now + int64(w.rng.ExpFloat64()*float64(p.Patience))
	}
	return i
}

// newVisitor returns the number of a blank visitor.
func (w *World) newVisitor() int32 {
	if n := len(w.free); n > 0 {
		i := w.free[n-1]
		w.free = w.free[:n-1]
		return i
	}
	w.visitors = append(w.visitors, visitor{})
	return int32(len(w.visitors) - 1)
}

// copyPass adds a visitor with a copy of the cookie of visitor i.
func (w *World) copyPass(i int32) {
	k := w.newVisitor()
	from := &w.visitors[i]
	from.shared = true
	v := &w.visitors[k]
	*v = visitor{
		gen: v.gen + 1, centre: int32(w.rng.IntN(w.cfg.Centres)), came: w.now, leaves: from.leaves, pages: w.pages(),
		pass: from.pass, old: from.old, inside: from.inside, copied: true,
	}
	v.edge, v.network = w.anyEdge(v.centre), w.anyNetwork()
	w.plan(event{at: w.now + w.rng.Int64N(2*int64(w.cfg.People.Think)+1), kind: evVisit, node: k, gen: v.gen})
}

// misbehave applies the drawn misbehaviour of visitor v before a request.
func (w *World) misbehave(v *visitor) {
	p := &w.cfg.People
	if p.Move > 0 && w.rng.Float64() < p.Move {
		v.centre = int32(w.rng.IntN(w.cfg.Centres))
		v.edge = w.anyEdge(v.centre)
	}
	if p.Roam > 0 && w.rng.Float64() < p.Roam {
		v.network, v.roamed = w.anyNetwork(), true
	}
	if p.Drop > 0 && w.rng.Float64() < p.Drop {
		v.pass, v.old = pass{}, pass{}
		if v.inside {
			v.inside, v.came = false, w.now
		}
	}
	if p.Old > 0 {
		if w.rng.Float64() < p.Old {
			v.pass, v.old = v.old, v.pass
		} else if w.rng.IntN(4) == 0 {
			v.old = v.pass
		}
	}
}

// anyNetwork draws one of a few networks, if tickets are bound.
func (w *World) anyNetwork() ticket.Network {
	if !w.cfg.People.Bound {
		return 0
	}
	return ticket.Network(2 + 2*w.rng.IntN(8))
}

// ticketOf returns the ticket presented by visitor v, like open.
func (w *World) ticketOf(n *edgeNode, v *visitor) (t ticket.Ticket, known bool) {
	t, known = w.keys.open(n, &v.pass)
	t.Network, t.Kept = v.network, v.kept
	return t, known
}

// pages draws a number of pages: geometric, at least one.
func (w *World) pages() int32 {
	n := int32(1)
	for w.cfg.People.Pages > 1 && w.rng.Float64() > 1/w.cfg.People.Pages && n < 1000 {
		n++
	}
	return n
}

func (w *World) pick() int32 {
	if w.rng.Float64() < w.cfg.Demand.Skew {
		return 0
	}
	return int32(w.rng.IntN(w.cfg.Centres))
}

func (w *World) anyEdge(centre int32) int32 {
	edges := w.centres.all[centre].edges
	if w.centres.copies > 0 && w.rng.IntN(3) == 0 {
		for _, r := range w.centres.all[w.cfg.Centres:] { // the load balancer includes the copy
			if !r.lost && r.name == w.centres.all[centre].name {
				edges = r.edges
			}
		}
	}
	return edges[w.rng.IntN(len(edges))]
}

// visit is a visitor's next step: a poll, or the next page.
func (w *World) visit(i int32, gen uint64) {
	v := &w.visitors[i]
	if v.gen != gen {
		return
	}
	if !v.inside && w.now >= v.leaves {
		w.meters.gaveUp++
		w.oracle.setWaiting(v, false)
		w.end(i)
		return
	}
	if w.recovery.quiet || (v.inside && v.pages == 0) {
		w.oracle.setWaiting(v, false)
		if v.inside && !w.recovery.quiet {
			w.quit(v)
		}
		w.end(i)
		return
	}
	if w.rng.Float64() >= w.cfg.People.Stay {
		v.edge = w.anyEdge(v.centre)
	}
	if !w.calm {
		w.misbehave(v)
		if p := &w.cfg.People; v.inside && p.Parallel > 0 && w.rng.Float64() < p.Parallel {
			w.parallel(v, 1+w.rng.IntN(7))
		} else if p.Burst > 0 && w.rng.Float64() < p.Burst {
			w.parallel(v, 50)
		}
	}
	w.request(i)
}

// quit logs a visitor out, or just ends its visits. The session is over, since no one else has the cookie.
func (w *World) quit(v *visitor) {
	p, n := w.cfg.People.Quit, w.edges.all[v.edge]
	if p == 0 || v.copied || v.shared || w.rng.Float64() >= p || !w.reachable(n) {
		return
	}
	t, known := w.ticketOf(n, v)
	if known && n.core.Quit(n.clock.read(w.now), w.room, t) { // also an unknown session: the reply was lost
		w.oracle.dropTicket(t.ID)
	}
	w.edges.wake(v.edge)
}

// parallel sends a page's n subrequests with the same cookie, at any edges. Replies arrive in any order; the browser
// keeps the last cookie, which is one of theirs or the page's.
func (w *World) parallel(v *visitor, n int) {
	last := v.pass
	for range n {
		k := w.anyEdge(v.centre)
		e := w.edges.all[k]
		if !w.reachable(e) || e.off {
			continue
		}
		t, known := w.ticketOf(e, v)
		if !known {
			continue
		}
		d := e.core.Arrive(e.clock.read(w.now), w.room, t)
		w.edges.wake(k)
		w.touch(e.region)
		if !d.Enters() {
			continue // the session has just ended, or there was none; the page shows it
		}
		page := v.edge
		v.edge = k
		queued := v.queued
		w.oracle.issued(v, d)
		w.oracle.setWaiting(v, queued)
		v.edge = page
		if d.Reseal {
			last = w.keys.seal(e, d.Ticket)
		}
	}
	if w.rng.IntN(2) == 0 {
		v.pass = last
	}
}

// request sends the visitor's request to its edge and handles the answer.
func (w *World) request(i int32) {
	v := &w.visitors[i]
	n := w.edges.all[v.edge]
	if !w.reachable(n) {
		// A balancer picks another edge, or there is no answer.
		if v.edge = w.anyEdge(v.centre); !w.reachable(w.edges.all[v.edge]) {
			if w.centres.all[v.centre].lost || (w.cfg.People.Move > 0 && w.rng.IntN(5) == 0) {
				v.centre = int32(w.rng.IntN(w.cfg.Centres)) // or another data centre answers
				v.edge = w.anyEdge(v.centre)
			}
			v.gen++
			w.plan(event{at: w.now + int64(time.Second), kind: evVisit, node: i, gen: v.gen})
			return
		}
		n = w.edges.all[v.edge]
	}
	if n.off || w.letPast(n, v) {
		w.passBy(i)
		return
	}
	now := n.clock.read(w.now)
	t, known := w.ticketOf(n, v)
	if !known {
		v.gen++
		w.plan(event{at: w.now + int64(time.Second) + w.rng.Int64N(int64(time.Second)), kind: evVisit, node: i, gen: v.gen})
		return
	}
	d := n.core.Arrive(now, w.room, t)
	if d.Fresh == admission.Elsewhere && !v.roamed && !v.shared && !v.copied {
		w.fail("%s takes a visitor for a copy that was always in one network", n)
	}
	w.touch(n.region)
	if d.Verdict == admission.Hold {
		h := &admission.Visit{Room: w.room, Ticket: d.Ticket, Data: i}
		n.core.Hold(now, h)
		v.hold = h
		v.gen++
		w.plan(event{at: w.now + int64(d.Retry), kind: evGiveUp, node: i, gen: v.gen})
		w.edges.wake(v.edge)
		return
	}
	w.answer(i, &d)
	w.edges.wake(v.edge)
}

// dropHeld drops the connections of an edge's long-polled visitors, which ask again.
func (w *World) dropHeld(edge int32) {
	for k := range w.visitors {
		if v := &w.visitors[k]; v.hold != nil && v.edge == edge {
			v.hold = nil
			v.gen++
			w.plan(event{at: w.now + int64(time.Second), kind: evVisit, node: int32(k), gen: v.gen})
		}
	}
}

// reachable reports whether visitors reach the edge: it runs, and has been ready in this life.
func (w *World) reachable(n *edgeNode) bool { return !n.down && n.synced && n.asleep <= w.now }

// answer handles the edge's answer to a visitor's request.
func (w *World) answer(i int32, d *admission.Decision) {
	v := &w.visitors[i]
	v.gen++
	if p := w.cfg.People.Lost; p > 0 && !w.calm && w.rng.Float64() < p {
		if d.Enters() { // the permits are spent, even if the reply is lost
			queued := v.queued
			w.oracle.issued(v, *d)
			w.oracle.setWaiting(v, queued)
		}
		w.plan(event{at: w.now + int64(time.Second) + w.rng.Int64N(int64(4*time.Second)), kind: evVisit, node: i, gen: v.gen})
		return
	}
	if d.Reseal {
		v.pass = w.keys.seal(w.edges.all[v.edge], d.Ticket)
	}
	if p := &w.cfg.People; p.Copy > 0 && !v.copied && !w.calm && w.rng.Float64() < p.Copy {
		w.copyPass(i)
		v = &w.visitors[i]
	}
	if d.Enters() {
		if !v.inside && !v.copied {
			w.meters.entered(v, *d)
		}
		w.oracle.issued(v, *d)
		if v.waits {
			w.end(i) // has had its one page
			return
		}
		v.inside, v.served = true, w.now
		think := int64(w.rng.ExpFloat64() * float64(w.cfg.People.Think))
		if d.Verdict == admission.Admit && w.cfg.Probation > 0 {
			think = min(think, w.rng.Int64N(int64(2*time.Second))) // subresources of the page
		} else {
			v.pages--
		}
		w.plan(event{at: w.now + think, kind: evVisit, node: i, gen: v.gen})
		return
	}
	if v.inside { // the session had ended before the next page
		w.meters.putOut(v)
		v.inside = false
		v.came = w.now
	}
	if d.Reason == admission.Rejected && d.Fresh != admission.Kept {
		w.rejected(i, d)
		return
	}
	w.meters.waitingPage(v, *d)
	if v.robot && !v.waits {
		w.end(i)
		return
	}
	if w.subscribes(i) {
		return
	}
	w.oracle.setWaiting(v, true)
	w.plan(event{at: min(w.now+int64(d.Retry), max(v.leaves, w.now+1)), kind: evVisit, node: i, gen: v.gen})
}

// giveUp ends the long poll of a visitor.
func (w *World) giveUp(i int32, gen uint64) {
	v := &w.visitors[i]
	if v.gen != gen || v.hold == nil {
		return
	}
	n := w.edges.all[v.edge]
	h := v.hold
	if n.asleep > w.now {
		w.plan(event{at: n.asleep, kind: evGiveUp, node: i, gen: gen})
		return
	}
	if !n.core.GiveUp(n.clock.read(w.now), h) {
		return
	}
	v.hold = nil
	w.answer(i, &h.Decision)
	w.edges.wake(v.edge)
}

// answerHeld answers long-polled visitors, about whom an edge has decided.
func (w *World) answerHeld(edge int32, decided []*admission.Visit) {
	for _, h := range decided {
		i := h.Data.(int32)
		if i < 0 { // not a visitor: see replay
			if h.Decision.Enters() {
				w.oracle.issued(&visitor{edge: edge}, h.Decision)
			}
			continue
		}
		w.visitors[i].hold = nil
		w.answer(i, &h.Decision)
	}
}

// end forgets a visitor; the oracle keeps the ticket.
func (w *World) end(i int32) {
	w.visitors[i] = visitor{gen: w.visitors[i].gen + 1}
	w.free = append(w.free, i)
}
