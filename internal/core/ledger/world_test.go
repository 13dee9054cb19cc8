package ledger_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/ledger/region"
	"vestibule/internal/core/ledger/root"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
	"vestibule/internal/lab/mutant"
)

// world is a small fleet on virtual time: coordinators, aggregators and edges
// as they are in production, with links and stores that a test breaks one by
// one. Scripts drive it; an oracle (see judge) watches every step. Random faults are those of
// internal/lab/sim, the big brother with demand and meters.
type world struct {
	params wire.Params
	now    int64 // true nanoseconds since the start

	folders uint64 // number of data folders so far

	rooms   roomSet
	net     network
	roots   []*rootProc
	centres []*dataCentre
	edges   []*edgeProc
	people  people
	oracle  oracle
	rng     *rand.Rand

	tell    func(format string, args ...any)
	history func(n *rootProc, m wire.Report) // nil for none
}

// roomSet are the rooms of a world.
type roomSet struct {
	all       []*roomTruth // the set that is in force, and those that went
	cap       bool
	lost      time.Duration
	probation time.Duration
}

// network carries messages.
type network struct {
	w     *world
	count int      // letters sent, for order among equals
	mail  []letter // under way
	chaos chaos
}

// people are the visitors of a world.
type people struct {
	w        *world
	all      []*person
	clicking time.Duration // everybody inside asks for a page so often; 0 for never
	observe  func(p *person, what string)
}

// oracle watches every step: see judge.
type oracle struct {
	w      *world
	broken string // the first promise that was broken
	excuse bool   // sessions beyond T are allowed here: the script says why
}

// chaos holds the network's faults per message.
type chaos struct {
	loss, double, late float64
	most               time.Duration // longest delay of a late or doubled message
}

type letter struct {
	at   int64
	n    int
	take func()
}

// link is one direction between a child and its parent.
type link struct {
	cut    bool
	caught bool     // messages are kept until the script delivers them
	pile   []func() // caught messages
}

type proc struct {
	offset int64
	drift  float64
	gone   bool
}

func (p *proc) read(now int64) fleettime.Mono {
	return fleettime.Mono(now + p.offset + int64(float64(now)*p.drift))
}

func (p *proc) when(m fleettime.Mono) int64 {
	if m == fleettime.Never {
		return 1 << 62
	}
	return int64(float64(int64(m)-p.offset)/(1+p.drift)) + 1
}

type rootProc struct {
	proc
	term uint64
	core *root.Allocator
	wall time.Duration // by how much its machine's clock is ahead
}

// dataCentre is a data centre.
type dataCentre struct {
	name     string
	id       uint64     // cluster ID that it makes
	drift    float64    // of its clocks
	procs    []*aggProc // newest last
	stored   wire.Durable
	owner    uint64
	diskless bool // writes wait
	up, down link
	follows  uint64 // highest term that an aggregator of it has followed
	// when an aggregator began that knows of no session that had ended; 0 once it has heard an edge that does
	forgot int64
}

type aggProc struct {
	proc
	dc      *dataCentre
	term    uint64
	core    *region.Aggregator
	writing bool
	wm      fleettime.Time
	ledgers map[room.ID]region.Ledger // as of the last check
}

func (s *dataCentre) newest() *aggProc { return s.procs[len(s.procs)-1] }

type edgeProc struct {
	proc
	name     string
	bears    string // the name that it reports under
	folder   fleettime.Lives
	place    fleettime.Place
	dc       *dataCentre
	core     *admission.Engine
	up, down link
	follows  uint64
	time     fleettime.Time
	hears    hearing
	known    bool // an aggregator has counted it
	knows    bool // which sessions had ended when the newest aggregator began
	givenUp  bool // none has counted it since its last lease
}

type person struct {
	name   string
	room   *roomTruth
	edge   *edgeProc
	ticket ticket.Ticket
	in     bool
	visit  *admission.Visit
	next   int64 // next request, or the end of the patience of a held one; 0 for none
}

// roomTruth is the true state of one room, whatever the nodes believe.
type roomTruth struct {
	id          room.ID
	name        string
	gone        bool
	total, rate uint64
	session     time.Duration

	until    map[uint64]uint32 // newest expiry second of every ticket
	home     map[uint64]*dataCentre
	stamped  map[uint64]map[ticket.DC]uint32 // newest expiry second by home
	going    map[uint64]wire.Transfer        // sessions on their way to another data centre
	quit     map[uint64]int64                // when sessions ended by a goodbye
	admitted []int64                         // times of admissions
	where    []*dataCentre

	bindT, bindR       uint64 // highest limits that may be in use anywhere, see judgeLimits
	loweredT, loweredR int64  // when the operator lowered them last

	// The same for the sums of the ledgers alone, once the newest coordinator awaits no permit beyond them.
	lentT, lentR uint64
	drained      int64 // since when it has awaited no permit of R; 0 for not
	peak         int
}

// dawn is fleet time at the start: the day of the worked example.
const dawn = fleettime.Time(1622133200_000) // 27 May 2021, 16:33:20 UTC

func newWorld(params wire.Params, centres []string, edges int) *world {
	w := &world{
		params: params, rng: rand.New(rand.NewPCG(1, 2)), tell: func(string, ...any) {},
		rooms: roomSet{lost: 15 * time.Minute}, people: people{observe: func(*person, string) {}},
	}
	w.net.w, w.people.w, w.oracle.w = w, w, w
	for _, name := range centres {
		s := &dataCentre{name: name, id: uint64(len(w.centres)) + 1}
		w.centres = append(w.centres, s)
		for k := range edges {
			edge := fmt.Sprintf("%s%d", name[:1], k+1)
			w.edges = append(w.edges, &edgeProc{name: edge, bears: edge, place: w.folder(), dc: s})
		}
	}
	return w
}

// folder returns the place of a new data folder.
func (w *world) folder() fleettime.Place {
	w.folders++
	return fleettime.Place{Inode: w.folders, Boot: "boot"}
}

// twin returns another edge with a copy of e's configuration.
func (w *world) twin(e *edgeProc, name string) *edgeProc {
	t := &edgeProc{name: name, bears: e.bears, place: w.folder(), dc: e.dc}
	w.edges = append(w.edges, t)
	return t
}

func (rs *roomSet) add(name string, total, rate uint64, session time.Duration) *roomTruth {
	r := &roomTruth{
		id: room.IDOf(name), name: name, total: total, rate: rate, session: session,
		until: map[uint64]uint32{}, home: map[uint64]*dataCentre{}, stamped: map[uint64]map[ticket.DC]uint32{},
		quit: map[uint64]int64{}, bindT: total, bindR: rate, lentT: total, lentR: rate,
	}
	rs.all = append(rs.all, r)
	return r
}

// begin starts every process. bootstrap says that the fleet is new.
func (w *world) begin(bootstrap bool) {
	w.startRoot(bootstrap)
	for _, s := range w.centres {
		w.startAgg(s, bootstrap)
	}
	for _, e := range w.edges {
		e.start(w)
	}
}

func (w *world) clock() proc { return proc{offset: w.rng.Int64N(int64(time.Hour))} }

func (w *world) startRoot(bootstrap bool) {
	var names []string
	for _, s := range w.centres {
		names = append(names, s.name)
	}
	n := &rootProc{proc: w.clock(), term: uint64(len(w.roots)) + 1}
	n.core = root.New(n.read(w.now), root.Config{
		Term: wire.Term{N: n.term, Nonce: w.rng.Uint64()}, Centres: names, Params: w.params, Bootstrap: bootstrap,
	})
	n.core.SetLease(fleettime.Never)
	n.core.SetRooms(n.read(w.now), w.rooms.configs())
	w.roots = append(w.roots, n)
}

func (w *world) root() *rootProc { return w.roots[len(w.roots)-1] }

func (w *world) startAgg(s *dataCentre, bootstrap bool) {
	n := &aggProc{proc: w.clock(), dc: s, term: uint64(len(s.procs)) + 1, ledgers: map[room.ID]region.Ledger{}}
	n.drift = s.drift
	s.forgot = w.now
	for _, e := range w.edges {
		e.knows = e.dc == s && !e.gone && e.known && !e.givenUp || e.dc != s && e.knows
	}
	s.owner = n.term // from now on the store takes no word of a predecessor
	n.core = region.New(n.read(w.now), region.Config{
		DC: s.name, Strict: true, Term: wire.Term{N: n.term, Nonce: w.rng.Uint64()}, Params: w.params, Bootstrap: bootstrap,
		ClusterID: s.id,
	}, s.stored)
	n.core.SetLease(fleettime.Never)
	n.core.SetRooms(n.read(w.now), w.rooms.configs())
	s.procs = append(s.procs, n)
	n.store(w)
}

func (e *edgeProc) start(w *world) {
	drift := e.drift
	e.proc = w.clock()
	e.drift = drift
	past, _ := e.folder.Succeed(e.place)
	e.core = admission.New(admission.Config{
		Edge: e.bears, DC: e.dc.name, Params: w.params, Limits: admission.DefaultLimits(), Past: past,
		Rand: rand.New(rand.NewPCG(w.rng.Uint64(), w.rng.Uint64())),
	})
	e.keep()
	e.follows, e.time, e.known, e.givenUp, e.knows = 0, 0, false, false, false
	e.core.Clock.Guess(e.read(w.now), w.fleetTime())
	e.core.SetRooms(e.read(w.now), w.rooms.forEdges())
}

// keep stores the edge's instance IDs in its folder.
func (e *edgeProc) keep() {
	e.folder = fleettime.Lives{Place: e.place, Instances: e.core.Instances()}
}

func (e *edgeProc) stop(w *world) {
	e.gone = true
	for _, p := range w.people.all {
		if p.edge == e && p.visit != nil {
			p.visit, p.next = nil, w.now+int64(time.Second)
		}
	}
}

func (rs *roomSet) configs() []ledger.RoomConfig {
	var out []ledger.RoomConfig
	for _, r := range rs.all {
		if !r.gone {
			out = append(out, ledger.RoomConfig{
				ID: r.id, Total: r.total, Rate: r.rate, Session: r.session, Cap: rs.cap,
				LostWait: rs.lost,
			})
		}
	}
	return out
}

func (rs *roomSet) forEdges() []admission.Room {
	var out []admission.Room
	for _, r := range rs.all {
		if !r.gone {
			out = append(out, admission.Room{ID: r.id, Cap: rs.cap, Probation: rs.probation})
		}
	}
	return out
}

// setRooms sends every process the room set.
func (w *world) setRooms() {
	for _, n := range w.roots {
		if !n.gone {
			n.core.SetRooms(n.read(w.now), w.rooms.configs())
		}
	}
	for _, s := range w.centres {
		for _, n := range s.procs {
			if !n.gone {
				n.core.SetRooms(n.read(w.now), w.rooms.configs())
			}
		}
	}
	for _, e := range w.edges {
		if !e.gone {
			e.core.SetRooms(e.read(w.now), w.rooms.forEdges())
		}
	}
}

func (w *world) setLimits(r *roomTruth, total, rate uint64) {
	if total < r.total {
		r.loweredT = w.now
	}
	if rate < r.rate {
		r.loweredR = w.now
	}
	r.total, r.rate = total, rate
	r.bindT, r.bindR = max(r.bindT, total), max(r.bindR, rate)
	r.lentT, r.lentR, r.drained = max(r.lentT, total), max(r.lentR, rate), 0
	w.setRooms()
}

// send puts a message on its way.
func (x *network) send(l *link, take func()) {
	if l.cut {
		return
	}
	if l.caught {
		l.pile = append(l.pile, take)
		return
	}
	c := &x.chaos
	if c.loss > 0 && x.w.rng.Float64() < c.loss {
		return
	}
	const trip = int64(2 * time.Millisecond)
	x.post(trip, take)
	if c.double > 0 && x.w.rng.Float64() < c.double {
		x.post(trip+x.w.rng.Int64N(int64(c.most)), take)
	}
	if c.late > 0 && x.w.rng.Float64() < c.late { // the first copy too
		x.mail[len(x.mail)-1].at += x.w.rng.Int64N(int64(c.most))
	}
}

func (x *network) post(after int64, take func()) {
	x.count++
	x.mail = append(x.mail, letter{at: x.w.now + after, n: x.count, take: take})
}

// run advances time by d.
func (w *world) run(d time.Duration) {
	end := w.now + int64(d)
	for w.oracle.broken == "" {
		next := w.due()
		if next > end {
			break
		}
		w.now = max(w.now, next)
		w.step()
		w.oracle.judge()
		w.now += int64(100 * time.Microsecond)
	}
	w.now = max(w.now, end)
	w.oracle.judge()
}

// due returns when something happens next.
func (w *world) due() int64 {
	next := int64(1 << 62)
	for i := range w.net.mail {
		next = min(next, w.net.mail[i].at)
	}
	for _, n := range w.roots {
		if !n.gone {
			next = min(next, n.when(n.core.GrantsDue()))
		}
	}
	for _, s := range w.centres {
		for _, n := range s.procs {
			if !n.gone {
				next = min(next, n.when(min(n.core.GrantsDue(), n.core.ReportDue())))
			}
		}
	}
	for _, e := range w.edges {
		if !e.gone {
			next = min(next, e.when(e.core.Due()))
		}
	}
	for _, p := range w.people.all {
		if p.next != 0 {
			next = min(next, p.next)
		}
	}
	return next
}

// step does everything that is due.
func (w *world) step() {
	for {
		first := -1
		for i := range w.net.mail {
			if l := &w.net.mail[i]; l.at <= w.now &&
				(first < 0 || l.at < w.net.mail[first].at || (l.at == w.net.mail[first].at && l.n < w.net.mail[first].n)) {
				first = i
			}
		}
		if first < 0 {
			break
		}
		l := w.net.mail[first]
		w.net.mail = slices.Delete(w.net.mail, first, first+1)
		l.take()
	}
	for _, p := range w.people.all {
		if p.next != 0 && p.next <= w.now {
			w.people.ask(p)
		}
	}
	for _, e := range w.edges {
		e.run(w)
	}
	for _, s := range w.centres {
		for _, n := range s.procs {
			n.run(w)
		}
	}
	for _, n := range w.roots {
		n.run(w)
	}
}

func (e *edgeProc) run(w *world) {
	if e.gone {
		return
	}
	now := e.read(w.now)
	if e.core.Due() > now {
		return
	}
	for _, m := range e.core.Report(now) {
		w.net.send(&e.up, func() { w.toAggs(e.dc, m) })
	}
}

func (w *world) toAggs(s *dataCentre, m wire.Report) {
	for _, n := range s.procs {
		if !n.gone {
			n.core.Observe(n.read(w.now), m)
		}
	}
}

func (n *aggProc) run(w *world) {
	if n.gone {
		return
	}
	s := n.dc
	if by, fenced := n.core.Fenced(); fenced {
		w.tell("%s/%d has seen term %d and stops", s.name, n.term, by)
		n.gone = true
		return
	}
	now := n.read(w.now)
	reported := false
	defer func() {
		if text := n.core.Overlooked(now, reported); text != "" {
			w.oracle.fail("%s/%d overlooks: %s", s.name, n.term, text)
		}
	}()
	if n.core.GrantsDue() <= now {
		for _, g := range n.core.Grants(now) {
			w.oracle.watchGrant(n, g)
			for _, e := range w.edges {
				if e.dc == s && e.bears == g.To {
					w.net.send(&e.down, func() { e.apply(w, g) })
				}
			}
		}
	}
	if n.core.ReportDue() <= now {
		for _, m := range n.core.Report(now) {
			reported = true
			w.oracle.watchReport(n, m)
			w.net.send(&s.up, func() {
				for _, r := range w.roots {
					if !r.gone && r.core.Observe(r.read(w.now), m) && w.history != nil {
						w.history(r, m)
					}
				}
			})
		}
	}
	n.store(w)
}

func (e *edgeProc) apply(w *world, g wire.Grant) {
	if e.gone {
		return
	}
	now := e.read(w.now)
	e.core.Apply(now, g)
	e.keep()
	for _, v := range e.core.Rooms.Release(now, nil) {
		p := v.Data.(*person)
		w.people.decided(p, v.Decision)
	}
}

// store begins to write the state that an aggregator must persist.
func (n *aggProc) store(w *world) {
	if n.writing || n.gone || n.dc.diskless {
		return
	}
	d, ok := n.core.Unsaved()
	if !ok {
		return
	}
	n.writing = true
	w.net.post(int64(time.Millisecond), func() { n.written(w, d) })
}

func (n *aggProc) written(w *world, d wire.Durable) {
	if n.gone {
		return
	}
	if n.dc.owner != n.term && !mutant.On("store-not-fencing") {
		w.tell("%s/%d may not write any more and stops", n.dc.name, n.term)
		n.gone = true
		return
	}
	n.dc.stored, n.writing = d, false
	n.core.Saved(n.read(w.now), d.Version)
	n.store(w)
}

func (n *rootProc) run(w *world) {
	if n.gone {
		return
	}
	if by, fenced := n.core.Fenced(); fenced {
		w.tell("root/%d has seen term %d and stops", n.term, by)
		n.gone = true
		return
	}
	now := n.read(w.now)
	if n.core.GrantsDue() > now {
		return
	}
	n.core.SetTime(now, w.fleetTime().Add(n.wall))
	for _, g := range n.core.Grants(now) {
		for _, s := range w.centres {
			if s.name == g.To {
				w.net.send(&s.down, func() {
					for _, a := range s.procs {
						if !a.gone {
							a.core.Apply(a.read(w.now), g)
						}
					}
				})
			}
		}
	}
}

func (w *world) fleetTime() fleettime.Time { return dawn + fleettime.Time(w.now/1e6) }

// arrive adds a new visitor.
func (ps *people) arrive(name string, r *roomTruth, e *edgeProc) *person {
	p := &person{name: name, room: r, edge: e}
	ps.all = append(ps.all, p)
	ps.ask(p)
	return p
}

// leave ends the visits of all, or of all admitted visitors; long-polled ones close the connection.
func (ps *people) leave(inside bool) {
	for _, p := range ps.all {
		if !inside && p.visit != nil && !p.edge.gone {
			p.edge.core.Rooms.GiveUp(p.edge.read(ps.w.now), p.visit)
		}
	}
	ps.all = slices.DeleteFunc(ps.all, func(p *person) bool { return p.in || !inside })
}

// quit has an admitted visitor leave explicitly.
func (ps *people) quit(p *person) bool {
	if p.edge.gone || !p.in || !p.edge.core.Quit(p.edge.read(ps.w.now), p.room.id, p.ticket) {
		return false
	}
	p.room.quit[p.ticket.ID] = ps.w.now
	ps.w.tell("%s leaves %s", p.name, p.edge.name)
	ps.all = slices.DeleteFunc(ps.all, func(o *person) bool { return o == p })
	return true
}

// copyOf adds a visitor with a copy of p's ticket.
func (ps *people) copyOf(p *person, e *edgeProc) {
	ps.w.tell("%s' comes to %s with a copy of %s's ticket", p.name, e.name, p.name)
	ps.all = append(ps.all, &person{name: p.name + "'", room: p.room, edge: e, ticket: p.ticket, in: p.in, next: ps.w.now +
		1})
}

// ask has a visitor ask for a page, or give up while held.
func (ps *people) ask(p *person) {
	p.next = 0
	e := p.edge
	if e.gone {
		p.next = ps.w.now + int64(time.Second)
		return
	}
	now := e.read(ps.w.now)
	if v := p.visit; v != nil {
		p.visit = nil
		if e.core.Rooms.GiveUp(now, v) {
			ps.decided(p, v.Decision)
			return
		}
	}
	ps.decided(p, e.core.Arrive(now, p.room.id, p.ticket))
}

// click plans the next page of an admitted visitor, with jitter.
func (ps *people) click(p *person) {
	if p.next = 0; ps.clicking > 0 {
		p.next = ps.w.now + int64(ps.clicking)/2 + ps.w.rng.Int64N(int64(ps.clicking))
	}
}

func (ps *people) decided(p *person, d admission.Decision) {
	p.ticket = d.Ticket
	p.visit, p.next = nil, 0
	switch d.Verdict {
	case admission.Admit, admission.Serve:
		ps.w.oracle.issued(p, d)
		if !p.in {
			ps.observe(p, "is let in")
		}
		p.in = true
		ps.click(p)
		return
	case admission.Hold:
		p.visit = &admission.Visit{Room: p.room.id, Ticket: d.Ticket, Data: p}
		p.edge.core.Rooms.Hold(p.edge.read(ps.w.now), p.visit)
	case admission.Queue:
	}
	if p.in {
		ps.observe(p, "is out")
	}
	p.in = false
	p.next = ps.w.now + int64(d.Retry)
}
