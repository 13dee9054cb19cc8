package sim

import (
	"math"
	"math/rand/v2"
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/rules"
	"vestibule/internal/core/ticket"
)

// Demand configures the arrivals.
type Demand struct {
	PerMinute float64 // mean arrivals per minute, in total
	Spikes    []Spike `without:"spikes"` // added to it
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
	Robots   float64       `without:"robots"`   // share of arrivals that never return and keep no cookie
	Parallel float64       `without:"parallel"` // share of pages with two to eight parallel requests, at any edges
	Lost     float64       `without:"lost"`     // share of replies that are lost; the visitor asks again
	Move     float64       `without:"move"`     // share of requests before which the visitor moves to another data centre
	// share of replies with a copied cookie, which another browser uses anywhere
	Copy  float64 `without:"copy"`
	Old   float64 `without:"old"`   // share of requests with an old cookie
	Drop  float64 `without:"drop"`  // share of requests before which the visitor drops all cookies
	Burst float64 `without:"burst"` // share of pages with fifty parallel requests
	Quit  float64 `without:"quit"`  // share of leaving visitors that log out
	Bound bool    `without:"bound"` // tickets are bound to networks
	Roam  float64 `without:"bound"` // share of requests before which the visitor moves to another network, with Bound
}

// DefaultPeople returns visitors of six pages, one every 20 s.
func DefaultPeople() People {
	return People{Pages: 6, Think: 20 * time.Second, Patience: 30 * time.Minute, Stay: 0.7}
}

// visitors are the people with their browsers.
type visitors struct {
	*fleet
	oracle *oracle
	meters *meters

	all    []visitor
	free   []int32 // free slots of all
	asking rules.Scratch
	quiet  bool               // no visitors and no requests any more
	closes func(i int32) bool // at a waiting page: a visitor subscribes, and closes it; nil for none
}

// visitor is one person with a browser.
type visitor struct {
	gen    uint64 // of its pending event; older events are void
	pass   pass
	old    pass // an old cookie
	centre int32
	edge   *edgeNode
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
	heard   *Hearing // nil if not measured
}

// arrivals are the way of visitors to the site.
type arrivals struct {
	*visitors
	peak    float64 // arrivals per nanosecond, of the demand with all spikes
	arrival uint64  // number of the planned arrival
}

// demand changes the demand, from the next arrival on.
func (as *arrivals) demand(d Demand) {
	as.cfg.Demand = d
	as.arrival++
	as.peak = d.PerMinute
	for _, s := range d.Spikes {
		as.peak += s.PerMinute
	}
	as.peak /= float64(time.Minute)
}

// await plans the next arrival.
func (as *arrivals) await() {
	at := int64(math.MaxInt64)
	if as.peak > 0 {
		at = as.now + int64(as.rng.ExpFloat64()/as.peak)
	}
	arrival := as.arrival
	as.plan(at, func() {
		if arrival == as.arrival {
			as.arrive()
		}
	})
}

// arrive adds a visitor, or none, and plans the next arrival: a Poisson process with the rate of the demand, by
// thinning.
func (as *arrivals) arrive() {
	defer as.await()
	base, spikes := as.cfg.Demand.at(as.now)
	draw := as.rng.Float64() * as.peak * float64(time.Minute)
	centre := int32(-1)
	switch {
	case draw < base:
		centre = as.pick()
	default:
		draw -= base
		for i, s := range spikes {
			if draw < s {
				if c := as.cfg.Demand.Spikes[i].Centre; c > 0 {
					centre = int32(c - 1)
				} else {
					centre = as.pick()
				}
				break
			}
			draw -= s
		}
	}
	if centre < 0 {
		return // thinned out
	}
	i := as.newcomer(centre)
	as.meters.Arrived++
	as.request(i)
}

func (as *arrivals) pick() int32 {
	if as.rng.Float64() < as.cfg.Demand.Skew {
		return 0
	}
	return int32(as.rng.IntN(as.cfg.Centres))
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

// newcomer returns a new visitor of a data centre.
func (vs *visitors) newcomer(centre int32) int32 {
	i := vs.newVisitor()
	p := &vs.cfg.People
	v := &vs.all[i]
	*v = visitor{gen: v.gen + 1, centre: centre, came: vs.now, leaves: math.MaxInt64, pages: vs.cfg.People.pages(vs.rng)}
	v.edge, v.network = vs.anyEdge(centre), vs.anyNetwork()
	if vs.cfg.Faults.Rules && vs.rng.IntN(2) > 0 {
		v.asks = uint8(vs.rng.IntN(len(asks)))
	}
	v.robot = p.Robots > 0 && vs.rng.Float64() < p.Robots
	if vs.meters.hears {
		v.heard = &Hearing{}
	}
	if p.Patience > 0 {
		v.leaves = vs.now + int64(vs.rng.ExpFloat64()*float64(p.Patience))
	}
	return i
}

// newVisitor returns the number of a blank visitor.
func (vs *visitors) newVisitor() int32 {
	if n := len(vs.free); n > 0 {
		i := vs.free[n-1]
		vs.free = vs.free[:n-1]
		return i
	}
	vs.all = append(vs.all, visitor{})
	return int32(len(vs.all) - 1)
}

// copyPass adds a visitor with a copy of the cookie of visitor i.
func (vs *visitors) copyPass(i int32) {
	k := vs.newVisitor()
	from := &vs.all[i]
	from.shared = true
	v := &vs.all[k]
	*v = visitor{
		gen: v.gen + 1, centre: int32(vs.rng.IntN(vs.cfg.Centres)), came: vs.now, leaves: from.leaves, pages: vs.cfg.People.pages(vs.rng),
		pass: from.pass, old: from.old, inside: from.inside, copied: true,
	}
	v.edge, v.network = vs.anyEdge(v.centre), vs.anyNetwork()
	vs.next(k, vs.now+vs.rng.Int64N(2*int64(vs.cfg.People.Think)+1))
}

// misbehave applies the drawn misbehaviour of visitor v before a request.
func (vs *visitors) misbehave(v *visitor) {
	p := &vs.cfg.People
	if p.Move > 0 && vs.rng.Float64() < p.Move {
		v.centre = int32(vs.rng.IntN(vs.cfg.Centres))
		v.edge = vs.anyEdge(v.centre)
	}
	if p.Roam > 0 && vs.rng.Float64() < p.Roam {
		v.network, v.roamed = vs.anyNetwork(), true
	}
	if p.Drop > 0 && vs.rng.Float64() < p.Drop {
		v.pass, v.old = pass{}, pass{}
		if v.inside {
			v.inside, v.came = false, vs.now
		}
	}
	if p.Old > 0 {
		if vs.rng.Float64() < p.Old {
			v.pass, v.old = v.old, v.pass
		} else if vs.rng.IntN(4) == 0 {
			v.old = v.pass
		}
	}
}

// anyNetwork draws one of a few networks, if tickets are bound.
func (vs *visitors) anyNetwork() ticket.Network {
	if !vs.cfg.People.Bound {
		return 0
	}
	return ticket.Network(2 + 2*vs.rng.IntN(8))
}

// ticketOf returns the ticket presented by visitor v, like open.
func (vs *visitors) ticketOf(n *edgeNode, v *visitor) (t ticket.Ticket, known bool) {
	t, known = vs.keys.open(n, &v.pass)
	t.Network, t.Kept = v.network, v.kept
	return t, known
}

// pages draws a number of pages: geometric, at least one.
func (p *People) pages(rng *rand.Rand) int32 {
	n := int32(1)
	for p.Pages > 1 && rng.Float64() > 1/p.Pages && n < 1000 {
		n++
	}
	return n
}

func (vs *visitors) anyEdge(centre int32) *edgeNode {
	edges := vs.centres.all[centre].edges
	if vs.centres.copies > 0 && vs.rng.IntN(3) == 0 {
		for _, r := range vs.centres.all[vs.cfg.Centres:] { // the load balancer includes the copy
			if !r.lost && r.name == vs.centres.all[centre].name {
				edges = r.edges
			}
		}
	}
	return edges[vs.rng.IntN(len(edges))]
}

// next plans the next step of a visitor, in place of the one that was planned.
func (vs *visitors) next(i int32, at int64) {
	v := &vs.all[i]
	v.gen++
	gen := v.gen
	vs.plan(at, func() { vs.visit(i, gen) })
}

// visit is a visitor's next step: a poll, or the next page.
func (vs *visitors) visit(i int32, gen uint64) {
	v := &vs.all[i]
	if v.gen != gen {
		return
	}
	if !v.inside && vs.now >= v.leaves {
		vs.meters.GaveUp++
		vs.oracle.setWaiting(v, false)
		vs.end(i)
		return
	}
	if vs.quiet || (v.inside && v.pages == 0) {
		vs.oracle.setWaiting(v, false)
		if v.inside && !vs.quiet {
			vs.quit(v)
		}
		vs.end(i)
		return
	}
	if vs.rng.Float64() >= vs.cfg.People.Stay {
		v.edge = vs.anyEdge(v.centre)
	}
	if !vs.calm {
		vs.misbehave(v)
		if p := &vs.cfg.People; v.inside && p.Parallel > 0 && vs.rng.Float64() < p.Parallel {
			vs.parallel(v, 1+vs.rng.IntN(7))
		} else if p.Burst > 0 && vs.rng.Float64() < p.Burst {
			vs.parallel(v, 50)
		}
	}
	vs.request(i)
}

// quit logs a visitor out, or just ends its visits. The session is over, since no one else has the cookie.
func (vs *visitors) quit(v *visitor) {
	p, n := vs.cfg.People.Quit, v.edge
	if p == 0 || v.copied || v.shared || vs.rng.Float64() >= p || !n.reachable(vs.now) {
		return
	}
	t, known := vs.ticketOf(n, v)
	if known && n.core.Quit(n.clock.read(vs.now), vs.room, t) { // also an unknown session: the reply was lost
		vs.oracle.dropTicket(t.ID)
	}
	vs.edges.wake(v.edge)
}

// parallel sends a page's n subrequests with the same cookie, at any edges. Replies arrive in any order; the browser
// keeps the last cookie, which is one of theirs or the page's.
func (vs *visitors) parallel(v *visitor, n int) {
	last := v.pass
	for range n {
		e := vs.anyEdge(v.centre)
		if !e.reachable(vs.now) || e.off {
			continue
		}
		t, known := vs.ticketOf(e, v)
		if !known {
			continue
		}
		d := e.core.Arrive(e.clock.read(vs.now), vs.room, t)
		vs.edges.wake(e)
		vs.touch(e.centre.id)
		if !d.Enters() {
			continue // the session has just ended, or there was none; the page shows it
		}
		page := v.edge
		v.edge = e
		queued := v.queued
		vs.oracle.issued(v, d)
		vs.oracle.setWaiting(v, queued)
		v.edge = page
		if d.Reseal {
			last = vs.keys.seal(e, d.Ticket)
		}
	}
	if vs.rng.IntN(2) == 0 {
		v.pass = last
	}
}

// request sends the visitor's request to its edge and handles the answer.
func (vs *visitors) request(i int32) {
	v := &vs.all[i]
	n := v.edge
	if !n.reachable(vs.now) {
		// A balancer picks another edge, or there is no answer.
		if v.edge = vs.anyEdge(v.centre); !v.edge.reachable(vs.now) {
			if vs.centres.all[v.centre].lost || (vs.cfg.People.Move > 0 && vs.rng.IntN(5) == 0) {
				v.centre = int32(vs.rng.IntN(vs.cfg.Centres)) // or another data centre answers
				v.edge = vs.anyEdge(v.centre)
			}
			vs.next(i, vs.now+int64(time.Second))
			return
		}
		n = v.edge
	}
	if n.off || vs.letPast(n, v) {
		vs.passBy(i)
		return
	}
	now := n.clock.read(vs.now)
	t, known := vs.ticketOf(n, v)
	if !known {
		vs.next(i, vs.now+int64(time.Second)+vs.rng.Int64N(int64(time.Second)))
		return
	}
	d := n.core.Arrive(now, vs.room, t)
	if d.Fresh == admission.Elsewhere && !v.roamed && !v.shared && !v.copied {
		vs.fail("%s takes a visitor for a copy that was always in one network", n)
	}
	vs.touch(n.centre.id)
	if d.Verdict == admission.Hold {
		h := &admission.Visit{Room: vs.room, Ticket: d.Ticket, Data: i}
		n.core.Rooms.Hold(now, h)
		v.hold = h
		v.gen++
		gen := v.gen
		vs.in(d.Retry, func() { vs.giveUp(i, gen) })
		vs.edges.wake(n)
		return
	}
	if d.Moving && int64(d.Ticket.Until)-vs.fleetTime().Second() <= 3 {
		v.gen++
		vs.awaitMove(i, v.gen, d, 20)
	} else {
		vs.answer(i, &d)
	}
	vs.edges.wake(n)
}

// awaitMove holds a request as package gate does, whose ticket ends before its session may have come to the data centre.
func (vs *visitors) awaitMove(i int32, gen uint64, d admission.Decision, tries int) {
	v := &vs.all[i]
	if v.gen != gen {
		return
	}
	if n := v.edge; tries > 0 && n.reachable(vs.now) && !n.core.Rooms.Arrived(n.clock.read(vs.now), vs.room, d.Ticket) {
		vs.in(100*time.Millisecond, func() { vs.awaitMove(i, gen, d, tries-1) })
		return
	}
	vs.answer(i, &d)
}

// dropHeld drops the connections of an edge's long-polled visitors, which ask again.
func (vs *visitors) dropHeld(n *edgeNode) {
	for k := range vs.all {
		if v := &vs.all[k]; v.hold != nil && v.edge == n {
			v.hold = nil
			vs.next(int32(k), vs.now+int64(time.Second))
		}
	}
}

// reachable reports whether visitors reach the edge: it runs, and has been ready in this life.
func (n *edgeNode) reachable(now int64) bool { return !n.down && n.synced && n.asleep <= now }

// answer handles the edge's answer to a visitor's request.
func (vs *visitors) answer(i int32, d *admission.Decision) {
	v := &vs.all[i]
	v.gen++
	if p := vs.cfg.People.Lost; p > 0 && !vs.calm && vs.rng.Float64() < p {
		if d.Enters() { // the permits are spent, even if the reply is lost
			queued := v.queued
			vs.oracle.issued(v, *d)
			vs.oracle.setWaiting(v, queued)
		}
		vs.next(i, vs.now+int64(time.Second)+vs.rng.Int64N(int64(4*time.Second)))
		return
	}
	if d.Reseal {
		v.pass = vs.keys.seal(v.edge, d.Ticket)
	}
	if p := &vs.cfg.People; p.Copy > 0 && !v.copied && !vs.calm && vs.rng.Float64() < p.Copy {
		vs.copyPass(i)
		v = &vs.all[i]
	}
	if d.Enters() {
		if !v.inside && !v.copied {
			vs.meters.entered(v, *d)
		}
		vs.oracle.issued(v, *d)
		if v.waits {
			vs.end(i) // has had its one page
			return
		}
		v.inside, v.served = true, vs.now
		think := int64(vs.rng.ExpFloat64() * float64(vs.cfg.People.Think))
		if d.Verdict == admission.Admit && vs.cfg.Probation > 0 {
			think = min(think, vs.rng.Int64N(int64(2*time.Second))) // subresources of the page
		} else {
			v.pages--
		}
		vs.next(i, vs.now+think)
		return
	}
	if v.inside { // the session had ended before the next page
		vs.meters.putOut(v)
		v.inside = false
		v.came = vs.now
	}
	if d.Reason == admission.Rejected && d.Fresh != admission.Kept {
		vs.rejected(i, d)
		return
	}
	vs.meters.waitingPage(v, *d)
	if v.robot && !v.waits {
		vs.end(i)
		return
	}
	if vs.closes != nil && vs.closes(i) {
		return
	}
	vs.oracle.setWaiting(v, true)
	vs.next(i, min(vs.now+int64(d.Retry), max(v.leaves, vs.now+1)))
}

// giveUp ends the long poll of a visitor.
func (vs *visitors) giveUp(i int32, gen uint64) {
	v := &vs.all[i]
	if v.gen != gen || v.hold == nil {
		return
	}
	n, h := v.edge, v.hold
	if n.asleep > vs.now {
		vs.plan(n.asleep, func() { vs.giveUp(i, gen) })
		return
	}
	if !n.core.Rooms.GiveUp(n.clock.read(vs.now), h) {
		return
	}
	v.hold = nil
	vs.answer(i, &h.Decision)
	vs.edges.wake(n)
}

// answerHeld answers long-polled visitors, about whom an edge has decided.
func (vs *visitors) answerHeld(n *edgeNode, decided []*admission.Visit) {
	for _, h := range decided {
		i := h.Data.(int32)
		if i < 0 { // not a visitor: see replay
			if h.Decision.Enters() {
				vs.oracle.issued(&visitor{edge: n}, h.Decision)
			}
			continue
		}
		vs.all[i].hold = nil
		vs.answer(i, &h.Decision)
	}
}

// end forgets a visitor; the oracle keeps the ticket.
func (vs *visitors) end(i int32) {
	vs.all[i] = visitor{gen: vs.all[i].gen + 1}
	vs.free = append(vs.free, i)
}
