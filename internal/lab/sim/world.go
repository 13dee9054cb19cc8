// Package sim runs whole fleets on virtual time: edges, regionals, global and their visitors, in one goroutine, from
// one seed. The nodes are the production cores; the clock, the network, the stores and the visitors are simulated.
//
// The world knows every session and every permit. After each event that could break a promise it checks the promise
// (see oracle). Equal seeds give equal runs, to the byte.
//
// The one knob is [Config].
package sim

import (
	"cmp"
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

// warmUp is the time of the first arrival, once the nodes know each other.
const warmUp = 2 * time.Second

// epoch is the fleet time at which every simulation begins: the day of the worked example.
var epoch = fleettime.TimeOf(time.Date(2021, 5, 27, 16, 0, 0, 0, time.UTC))

// kernel is common to all parts of a world: the experiment, true time, the agenda, the random sources and the trace.
type kernel struct {
	cfg    Config // operators change it, and so does the recovery
	room   room.ID
	rng    *rand.Rand // visitors and network
	chaos  *rand.Rand // faults, so that the same seed draws the same visitors with and without faults
	now    int64      // nanoseconds since the start
	agenda agenda
	events uint64
	trace  func(format string, args ...any) // traces faults; may be nil

	calm    bool // no fault happens any more
	telling int  // number of the current fault
	boots   int  // boots of machines

	touched   []int32 // data centres whose ledgers the event may have changed
	rootMoved bool    // so may the coordinator's

	// The first broken promise: fault or, in a world where a coordinator used a wrong clock, excused. All nodes that knew
	// the time may have ended, and then the promises do not hold.
	fault, excused string
	guess          bool   // a coordinator has used a wrong clock
	atFault        func() // traces the ledgers of all nodes
}

// World is one running experiment. It joins the parts, which own their state. A part has the parts above it in this
// list; a fleet calls the visitors and the work of shells by functions.
type World struct {
	*fleet
	oracle   *oracle     // checks the fleet
	meters   *meters     // measure the visitors
	visitors *visitors   // ask edges
	operator *operator   // edits the room
	members  *membership // edits the list of data centres
	recovery *recovery   // ends all faults
	faults   []fault     // ascending
}

// nodeClock is the monotonic clock of one machine, with an offset and a drift.
type nodeClock struct {
	offset int64
	drift  float64
}

func (c nodeClock) read(now int64) fleettime.Mono {
	return fleettime.Mono(now + c.offset + int64(float64(now)*c.drift))
}

// when returns the true time at which the clock reads m, rounded up.
func (c nodeClock) when(m fleettime.Mono) int64 {
	return int64(float64(int64(m)-c.offset)/(1+c.drift)) + 1
}

// proc is the common part of processes: a machine, a timer, and a life.
type proc struct {
	clock  nodeClock
	offset time.Duration // of the machine's wall clock
	timer  timer
	gone   bool  // ended, for good
	doomed bool  // its successor is about to begin
	down   bool  // an edge between two lives
	asleep int64 // stopped until then
	memory memory

	read  func(look bool)        // reads the room document, see coordinators.read
	known func() fleettime.Known // fleet time
}

// roomSet is the room set that a process of global or a regional knows.
type roomSet struct {
	edition uint64
	told    []ledger.RoomConfig
}

// take reports whether a process takes rooms of an edition: newer ones or, if it looks at the clock, those of a new phase.
func (s *roomSet) take(edition uint64, rooms []ledger.RoomConfig, look bool) bool {
	if look != (s.edition == edition) || look && slices.Equal(rooms, s.told) {
		return false
	}
	s.edition, s.told = edition, rooms
	return true
}

// globalProc is one process that leads, or believes that it leads.
type globalProc struct {
	proc
	term  uint64
	nonce uint64
	began int64
	roomSet
	writing uint64 // release that it is about to claim
	members int    // version of its membership list
	core    *root.Allocator
}

// base is common to all processes: the network, and the documents that they read.
type base struct {
	*kernel
	net  *network
	keys *keys
	doc  *roomDoc
	list *memberList
}

// fleet is all processes.
type fleet struct {
	*base
	edges   *edges
	centres *centres
	globals *coordinators
}

// newFleet returns a fleet without processes.
func newFleet(k *kernel) *fleet {
	doc := &roomDoc{k: k, method: k.cfg.method()}
	b := &base{k, &network{kernel: k}, newKeys(k), doc, newMemberList(k, cmp.Or(k.cfg.Listed, k.cfg.Centres))}
	edges := &edges{base: b}
	centres := &centres{base: b, edges: edges}
	return &fleet{b, edges, centres, &coordinators{base: b, edges: edges, centres: centres}}
}

// coordinators are all coordinators ever.
type coordinators struct {
	*base
	edges   *edges
	centres *centres

	all     []*globalProc // the last is the newest
	lease   uint64        // highest term in the lease
	pending int           // coordinators about to begin
	rolled  uint64        // next term after a rollback of the lease; 0 for one above all

	// The next coordinator.
	again    *proc         // its machine; nil for a new one
	older    int           // version of its membership list; 0 for the stored one
	olderFor time.Duration // until then

	tend func(i int32) // does the work of a coordinator's shell on the documents
}

// dataCentre is a data centre: its aggregators, newest last, and its store.
type dataCentre struct {
	name    string
	procs   []*regionProc
	edges   []int32 // all ever
	stored  wire.Durable
	owner   uint64 // term that owns the store
	cutUp   int64  // messages to global are lost until then
	cutDown int64  // messages from global are lost until then
	lost    bool   // it never returns
	members int    // version of the membership list on its disk
	failing int64  // until then no write succeeds, and no leader begins
	copied  bool   // a copy with the name of another one
	before  uint64 // its lease terms begin above this
	again   *proc  // machine of the next aggregator; nil for a new one
}

// newest returns the aggregator with the highest term.
func (r *dataCentre) newest() *regionProc { return r.procs[len(r.procs)-1] }

// centres are the data centres, with their stores and aggregators.
type centres struct {
	*base
	edges *edges

	all      []*dataCentre
	aggs     []*regionProc // all aggregators ever, by number
	copies   int           // copied data centres
	rejoined int64         // when an operator last confirmed a data centre as the listed one
}

type regionProc struct {
	proc
	id     int32
	region int32
	term   uint64
	roomSet
	members int // version of its membership list
	core    *region.Aggregator
	writing uint64       // version being written
	kept    wire.Durable // in its data folder: at least the stored one
}

// edges are the processes of all edges.
type edges struct {
	*base

	all     []*edgeNode // data centre by data centre
	folders uint64      // data folders ever
	renewed int         // edges that replaced others
	twins   int         // additional edges of twins

	answer func(edge int32, decided []*admission.Visit) // answers long-polled visitors
	hangUp func(edge int32)                             // drops the connections of long-polled visitors
}

type edgeNode struct {
	proc
	name      string
	region    int32
	centre    *dataCentre
	folder    fleettime.Lives // its data folder, which lies at place
	place     fleettime.Place
	ended     admission.Ended // in the folder too
	pasts     pasts           // in the folder too
	edition   uint64
	core      *admission.Engine
	keys      *ticket.Codec // nil if tickets are not sealed
	lost      bool          // for good
	forgotten bool          // declared dead, and silent since
	misjudged bool          // was declared dead while alive
	synced    bool          // knows fleet time in this life: visitors are sent here
	cutUp     int64         // messages to the regional are lost until then
	cutDown   int64         // messages from it are lost until then

	told admission.Room // the edge's state of the room
	off  bool           // the room is suspended, as known to the edge

	rules []bypass // the edge's rules of the room
}

func (n *edgeNode) String() string { return n.name + " of " + n.centre.name }

// newest returns the coordinator with the highest term.
func (gs *coordinators) newest() *globalProc { return gs.all[len(gs.all)-1] }

// timer is the pending wake-up of a node.
type timer struct {
	at  int64
	gen uint64
}

// New returns the world of cfg at its beginning.
func New(cfg Config) *World {
	w := &World{fleet: newFleet(&kernel{
		cfg:   cfg,
		room:  room.IDOf("sale"),
		rng:   rand.New(rand.NewPCG(cfg.Seed, 0x7665737469)),
		chaos: rand.New(rand.NewPCG(cfg.Seed, 0x6368616f73)),
	})}
	w.oracle = newOracle(w.fleet)
	w.operator = &operator{fleet: w.fleet, roomDoc: w.doc, oracle: w.oracle}
	w.members = &membership{fleet: w.fleet, memberList: w.list, oracle: w.oracle}
	w.meters = &meters{kernel: w.kernel, doc: w.doc, oracle: w.oracle}
	w.visitors = &visitors{fleet: w.fleet, oracle: w.oracle, meters: w.meters}
	w.atFault, w.edges.answer, w.edges.hangUp = w.oracle.books, w.visitors.answerHeld, w.visitors.dropHeld
	w.recovery = &recovery{fleet: w.fleet, oracle: w.oracle, visitors: w.visitors, operator: w.operator, members: w.members}
	w.globals.tend = func(i int32) {
		w.members.tend(w.globals.all[i])
		w.operator.tendRelease(i)
	}
	w.meters.begin()
	w.visitors.demand(cfg.Demand)

	w.globals.start(true)
	for i := range cfg.Centres {
		w.centres.all = append(w.centres.all, &dataCentre{name: centreName(i), stored: wire.Durable{ClusterID: w.clusterIDOf(int32(i), 0)}})
		w.centres.start(int32(i), true)
	}
	for i := range cfg.Centres {
		for k := range cfg.Edges {
			w.edges.add(int32(i), w.centres.all[i], fmt.Sprintf("edge%d", k+1), fleettime.Lives{}, false)
		}
	}
	w.plan(event{at: int64(time.Second), kind: evSecond})
	w.now = int64(warmUp)
	w.visitors.planArrival()
	w.now = 0
	w.faults = cfg.drawFaults()
	for i, f := range w.faults {
		if only := cfg.Faults.Only; only == nil || slices.Contains(only, f.number) {
			w.plan(event{at: f.at, kind: evFault, node: int32(i)})
		}
	}
	if cfg.Calm > 0 {
		w.plan(event{at: int64(cfg.Calm), kind: evDo, msg: w.recovery.begin})
	}
	w.in(sampleGap, w.meters.sample)
	return w
}

// clock draws the monotonic clock of a machine.
func (k *kernel) clock() nodeClock {
	return nodeClock{offset: k.rng.Int64N(int64(time.Hour)), drift: (k.rng.Float64()*2 - 1) * k.cfg.Faults.drift()}
}

func centreName(i int) string { return fmt.Sprintf("dc%d", i+1) }

// start starts a leading coordinator, with a term above all in its lease.
func (gs *coordinators) start(bootstrap bool) {
	names, version, i := []string{}, gs.list.store, int32(len(gs.all))
	if gs.older > 0 {
		version, gs.older = gs.older, 0
		newest := gs.list.store
		gs.in(gs.olderFor, func() { gs.tell(i, newest) })
	}
	for _, m := range gs.list.at(version).List {
		if !m.Removed {
			names = append(names, m.Name)
		}
	}
	// Terms count up from the newest in the lease. A lease restored from a backup may lack some.
	term := gs.lease + 1
	if gs.rolled > 0 {
		term, gs.rolled = gs.rolled, 0
	}
	gs.lease = term
	n := &globalProc{term: term, began: gs.now, roomSet: roomSet{edition: gs.doc.edition}, members: version}
	if !bootstrap {
		n.offset = gs.cfg.Faults.wall(gs.chaos)
	}
	gs.newMachine(&n.proc, &gs.again)
	n.nonce = gs.rng.Uint64()
	n.read = func(look bool) { gs.read(i, look) }
	n.known = func() fleettime.Known { return n.core.Known(n.clock.read(gs.now)) }
	n.core = root.New(n.clock.read(gs.now), root.Config{
		Time: gs.remembers(&n.proc),
		Term: wire.Term{N: term, Nonce: n.nonce}, Centres: names, Params: gs.cfg.Params, Bootstrap: bootstrap,
	})
	n.core.SetLease(fleettime.Never)
	n.told = gs.rooms(n)
	n.core.SetRooms(n.clock.read(gs.now), n.told)
	gs.all = append(gs.all, n)
	n.core.SetMembers(n.clock.read(gs.now), gs.list.at(version))
	gs.wake(i)
}

// start starts a leading aggregator: it claims the store, which fences its predecessors, and reads their data.
func (cs *centres) start(i int32, bootstrap bool) {
	r := cs.all[i]
	n := &regionProc{id: int32(len(cs.aggs)), region: i, term: r.before + uint64(len(r.procs)) + 1, roomSet: roomSet{edition: cs.doc.edition}}
	cs.newMachine(&n.proc, &r.again)
	n.read = func(look bool) { cs.read(n.id, look) }
	n.known = func() fleettime.Known { return n.core.Known(n.clock.read(cs.now)) }
	r.owner = n.term
	if cs.cfg.Faults.Wipe && !bootstrap && !cs.calm && cs.chaos.IntN(3) == 0 {
		cs.tracef("the store of %s is lost", r.name)
		r.stored = wire.Durable{}
	}
	if cs.cfg.Faults.Torn && !bootstrap && !cs.calm && cs.chaos.IntN(3) == 0 {
		cs.tear(r)
	}
	own, ownTerm := cs.ownMemory(r)
	n.core = region.New(n.clock.read(cs.now), region.Config{
		Time: cs.remembers(&n.proc),
		DC:   r.name, Term: wire.Term{N: n.term, Nonce: cs.rng.Uint64()}, Params: cs.cfg.Params, Bootstrap: bootstrap, CompactAbove: cs.cfg.GoneAbove, Own: own, OwnTerm: ownTerm,
		ClusterID: cs.clusterIDOf(i, len(r.procs)),
	}, r.stored.Clone())
	n.core.SetLease(fleettime.Never)
	n.told = cs.rooms(n)
	n.core.SetRooms(n.clock.read(cs.now), n.told)
	if n.members = max(r.members, 1); bootstrap {
		r.members = 1
	}
	n.core.SetMembers(n.clock.read(cs.now), cs.list.at(n.members))
	r.procs = append(r.procs, n)
	cs.aggs = append(cs.aggs, n)
	cs.in(rejoinAfter, func() { cs.rejoin(i) })
	if n.members < cs.list.store {
		cs.in(time.Duration(cs.chaos.ExpFloat64()*float64(300*time.Millisecond)), func() { cs.tell(n.id, cs.list.store) })
	}
	cs.store(n.id)
	cs.wake(n.id)
}

// add adds and starts an edge, in its own data folder, which may be a copy, or on a clone of the machine, which is
// indistinguishable.
func (es *edges) add(region int32, centre *dataCentre, name string, folder fleettime.Lives, clone bool) int32 {
	n := &edgeNode{name: name, region: region, centre: centre, folder: folder, place: es.newPlace()}
	if clone {
		n.place = folder.Place
	}
	es.newMachine(&n.proc, new(*proc))
	i := int32(len(es.all))
	n.read = func(look bool) { es.read(i, look) }
	n.known = func() fleettime.Known { return n.core.Known(n.clock.read(es.now)) }
	es.all = append(es.all, n)
	centre.edges = append(centre.edges, i)
	es.start(i)
	return i
}

// newPlace returns the place of a new data folder.
func (es *edges) newPlace() fleettime.Place {
	es.folders++
	return fleettime.Place{Inode: es.folders, Boot: "boot"}
}

// ownMemory returns the memory of the next leader of a data centre with an empty store: often it has led there before,
// in this process or in one that was killed, whose data folder has the promises that it was storing.
func (cs *centres) ownMemory(r *dataCentre) (wire.Durable, uint64) {
	if r.stored.Version != 0 || len(r.procs) == 0 || cs.chaos.IntN(4) == 0 {
		return wire.Durable{}, 0
	}
	n := r.procs[len(r.procs)-1-cs.chaos.IntN(min(3, len(r.procs)))]
	if n.kept.Version > 0 && cs.chaos.IntN(2) == 0 {
		return n.kept.Clone(), n.term
	}
	return n.core.Durable(), n.term
}

// start begins a life of an edge.
func (es *edges) start(i int32) {
	n := es.all[i]
	past, _ := n.folder.Succeed(n.place)
	n.down, n.synced, n.forgotten, n.edition = false, false, false, es.doc.edition
	n.keys = es.keys.newest
	n.core = admission.New(admission.Config{
		Edge: n.name, DC: n.centre.name, Params: es.cfg.Params, Limits: admission.DefaultLimits(), Past: past, Ended: n.ended, Rand: es.fork(),
		Stores: es.cfg.Faults.Pasts,
	})
	n.keep()
	es.settleBefore(n)
	now := n.clock.read(es.now)
	n.core.Restore(now, es.remembers(&n.proc))
	n.core.Guess(now, es.fleetTime().Add(es.cfg.Faults.wall(es.chaos)))
	es.tell(n, now)
	es.wake(i)
}

// keep stores the edge's instances in its data folder.
func (n *edgeNode) keep() { n.folder = fleettime.Lives{Place: n.place, Instances: n.core.Instances()} }

// rooms returns the room set as read by an edge.
func (es *edges) rooms(n *edgeNode) []admission.Room {
	if es.doc.removed {
		return nil
	}
	r := admission.RoomOf(es.doc.inForce(n.core.Time(n.clock.read(es.now)), 0))
	r.Epoch, r.Cap, r.Probation, r.Session = es.doc.epoch, es.cfg.Cap, es.cfg.Probation, es.cfg.Session
	return []admission.Room{r}
}

// fork returns a separate source of randomness, so that nodes draw independently.
func (k *kernel) fork() *rand.Rand { return rand.New(rand.NewPCG(k.rng.Uint64(), k.rng.Uint64())) }

// rooms returns the room set as read by a coordinator.
func (gs *coordinators) rooms(n *globalProc) []ledger.RoomConfig {
	return gs.doc.ledgerRooms(n.core.Clock(n.clock.read(gs.now), gs.fleetTime().Add(n.offset)))
}

// rooms returns the room set as read by an aggregator: by fleet time if known, else by its machine's clock, which
// is right.
func (cs *centres) rooms(n *regionProc) []ledger.RoomConfig {
	at, known := n.core.Clock(n.clock.read(cs.now))
	if !known {
		at = cs.fleetTime()
	}
	return cs.doc.ledgerRooms(at, 0)
}

func (o *roomDoc) ledgerRooms(at fleettime.Time, bound time.Duration) []ledger.RoomConfig {
	if o.removed {
		return nil
	}
	r := ledger.ConfigOf(o.inForce(at, bound))
	r.Session, r.Cap, r.LostWait = o.k.cfg.Session, o.k.cfg.Cap, 15*time.Minute
	return []ledger.RoomConfig{r}
}

// fleetTime returns true fleet time.
func (k *kernel) fleetTime() fleettime.Time { return epoch + fleettime.Time(k.now/1e6) }

func (k *kernel) plan(e event) { k.agenda.plan(e) }

// Trace makes the world print every fault with printf, with its time in seconds.
func (w *World) Trace(printf func(format string, args ...any)) { w.trace = printf }

// Run runs the experiment and returns the result. It stops early at a broken promise.
func (w *World) Run() *Result {
	end := int64(w.cfg.Length)
	for {
		e, ok := w.agenda.next()
		if !ok || e.at > end || w.broken() {
			break
		}
		w.now = e.at
		w.events++
		w.handle(&e)
		if w.cfg.Strict {
			w.look()
		}
	}
	return w.result()
}

// touch records that the ledger of a data centre may have changed.
func (k *kernel) touch(region int32) {
	if k.cfg.Strict && !slices.Contains(k.touched, region) {
		k.touched = append(k.touched, region)
	}
}

// look makes the oracle check the changes of the event.
func (w *World) look() {
	if len(w.touched) == 0 && !w.rootMoved {
		return
	}
	for _, i := range w.touched {
		w.oracle.checkCentre(int(i))
	}
	w.touched, w.rootMoved = w.touched[:0], false
	w.oracle.checkTotals()
}

func (w *World) handle(e *event) {
	switch e.kind {
	case evArrival:
		if e.gen == w.visitors.arrival {
			w.visitors.arrive()
		}
	case evVisit:
		w.visitors.visit(e.node, e.gen)
	case evGiveUp:
		w.visitors.giveUp(e.node, e.gen)
	case evEdge:
		if n := w.edges.all[e.node]; w.fires(&n.proc, e) && !n.down {
			w.edges.run(e.node)
		}
	case evRegion:
		if w.fires(&w.centres.aggs[e.node].proc, e) {
			w.centres.run(e.node)
		}
	case evGlobal:
		if w.fires(&w.globals.all[e.node].proc, e) {
			w.globals.run(e.node)
		}
	case evReport, evLoan:
		w.centres.take(e)
	case evSummary:
		w.recovery.hearLastWord(w.centres.aggs[e.gen], e.msg.(*wire.Report))
		w.globals.takeReport(e)
	case evGrant:
		w.edges.takeGrant(e)
	case evStored:
		w.centres.takeStored(e)
	case evDo:
		e.msg.(func())()
	case evFault:
		if f := &w.faults[e.node]; !w.calm {
			w.telling = f.number
			f.kind.happen(w, f)
		}
	case evSecond:
		w.oracle.tick()
		w.oracle.checkLedgers()
		w.keepTime()
		w.plan(event{at: w.now + int64(time.Second), kind: evSecond})
	}
}

// fires reports whether the timer of a process fires. A stopped process is waited for.
func (k *kernel) fires(p *proc, e *event) bool {
	if p.timer.gen != e.gen || p.gone {
		return false
	}
	if p.asleep > k.now {
		e.at = p.asleep
		k.plan(*e)
		return false
	}
	p.timer.at = 0
	return true
}

// due plans the wake-up of a node at reading m of its clock.
func (k *kernel) due(t *timer, c nodeClock, m fleettime.Mono, e event) {
	at := k.now
	if m > c.read(k.now) {
		if m == fleettime.Never {
			return
		}
		at = max(c.when(m), k.now+1000) // rounding must not make it now
	}
	if t.at != 0 && t.at <= at {
		return
	}
	t.gen++
	t.at = max(at, 1)
	e.at, e.gen = at, t.gen
	k.plan(e)
}

func (es *edges) wake(i int32) {
	n := es.all[i]
	es.due(&n.timer, n.clock, min(n.core.Due(), n.pastDue()), event{kind: evEdge, node: i})
}

func (cs *centres) wake(i int32) {
	n := cs.aggs[i]
	cs.due(&n.timer, n.clock, min(n.core.GrantsDue(), n.core.ReportDue()), event{kind: evRegion, node: i})
}

func (gs *coordinators) wake(i int32) {
	n := gs.all[i]
	gs.due(&n.timer, n.clock, n.core.GrantsDue(), event{kind: evGlobal, node: i})
}

// run is the pump of an edge: it reports when due.
func (es *edges) run(i int32) {
	n := es.all[i]
	es.runPasts(i)
	now := n.clock.read(es.now)
	if n.core.Due() <= now {
		es.send(i, n.core.Report(now))
		es.touch(n.region)
	}
	es.wake(i)
}

// run is the pump of a regional.
func (cs *centres) run(i int32) {
	n := cs.aggs[i]
	r := cs.all[n.region]
	if by, fenced := n.core.Fenced(); fenced {
		cs.tracef("%s: the aggregator of term %d has seen term %d and stops", r.name, n.term, by)
		n.gone = true
		return
	}
	if n.core.Rejoins() && !r.lost {
		cs.tracef("%s goes on under another site", r.name)
		r.stored, n.gone = n.core.Durable(), true
		cs.start(n.region, false)
		return
	}
	now := n.clock.read(cs.now)
	cs.touch(n.region)
	if n.core.GrantsDue() <= now {
		grants := n.core.Grants(now)
		for k := range grants {
			g := &grants[k]
			for _, to := range r.edges { // all edges of the name
				if cs.edges.all[to].name == g.To && !cs.edges.all[to].lost {
					cs.net.send(event{kind: evGrant, node: to, gen: uint64(i), msg: g}, cs.cfg.Network.LAN, cs.edges.all[to].cutDown)
				}
			}
		}
	}
	if n.core.ReportDue() <= now {
		reports := n.core.Report(now)
		for k := range reports {
			cs.net.send(event{kind: evSummary, gen: uint64(i), msg: &reports[k]}, cs.cfg.Network.WAN, r.cutUp)
		}
	}
	cs.store(i)
	cs.wake(i)
}

// store starts to write a regional's promises.
func (cs *centres) store(i int32) {
	n := cs.aggs[i]
	if n.writing != 0 || n.gone {
		return
	}
	if d, ok := n.core.Unsaved(); ok {
		n.writing, n.kept = d.Version, d
		cs.write(i, d, int64(time.Millisecond))
	}
}

// write plans the completion of a write of d.
func (cs *centres) write(i int32, d wire.Durable, delay int64) {
	delay += cs.rng.Int64N(int64(4*time.Millisecond)) + cs.slowDisk()
	cs.plan(event{at: cs.now + delay, kind: evStored, node: i, msg: d})
}

// tear makes the store lose sections of dead edges, read back by the same code as in nodes.
func (cs *centres) tear(r *dataCentre) {
	p, torn := wire.Promises{Durable: r.stored.Clone()}, ""
	for i := range p.Durable.Roster {
		if e := &p.Durable.Roster[i]; len(e.Rooms) > 0 && cs.chaos.IntN(2) == 0 {
			e.Rooms, torn = nil, e.Edge
		}
	}
	if torn != "" {
		cs.tracef("the store of %s loses what it held of %s, and maybe others", r.name, torn)
		p.Lose()
		r.stored = p.Durable
	}
}

// takeStored completes or refuses a write.
func (cs *centres) takeStored(e *event) {
	n := cs.aggs[e.node]
	r := cs.all[n.region]
	d := e.msg.(wire.Durable)
	if n.gone && cs.chaos.IntN(2) == 0 {
		return // it died during the write
	}
	if r.owner != n.term && !mutant.On(mutant.StoreNotFencing) {
		if !n.gone {
			cs.tracef("%s: a write of term %d is refused, it stops", r.name, n.term)
		}
		n.gone = true
		return
	}
	failing := cs.cfg.Faults.Disk && !cs.calm && cs.chaos.IntN(10) == 0
	if r.failing > cs.now {
		failing = true
	} else if !failing || cs.chaos.IntN(2) == 0 { // else it failed, or its success was not reported
		r.stored = d
	}
	if n.gone {
		return
	}
	if failing { // retried with the newest state
		if newer, ok := n.core.Unsaved(); ok {
			d = newer
		}
		n.writing, n.kept = d.Version, d
		cs.write(e.node, d, int64(50*time.Millisecond))
		return
	}
	n.writing = 0
	n.core.Saved(n.clock.read(cs.now), d.Version)
	cs.store(e.node)
	cs.wake(e.node)
}

func (gs *coordinators) run(i int32) {
	n := gs.all[i]
	if n.gone {
		return
	}
	if by, fenced := n.core.Fenced(); fenced {
		gs.tracef("the coordinator of term %d has seen term %d and stops", n.term, by)
		n.gone = true
		// Its lease was older than the fleet: the next candidate knows better.
		gs.lease = max(gs.lease, by)
		if n == gs.newest() && gs.pending == 0 {
			gs.pending++
			gs.succeed(gs.takeover(), "the coordinator", gs.next)
		}
		return
	}
	gs.rootMoved = true
	now := n.clock.read(gs.now)
	if n.offset != 0 && n.core.Time(now) == 0 && !gs.timeKnown() {
		n.offset = 0 // the whole fleet starts anew: then the machine's clock has to be right
	}
	unknown := n.core.Time(now) == 0
	n.core.SetTime(now, gs.fleetTime().Add(n.offset))
	if t := n.core.Time(now); unknown && (t > gs.fleetTime().Add(time.Second) || t < gs.fleetTime().Add(-time.Second)) && t != 0 {
		gs.tracef("coordinator %d hears nobody who knows the time, and goes by its own clock, %v off", i+1, t.Sub(gs.fleetTime()))
		gs.guess = true
	}
	if n.core.GrantsDue() <= now {
		grants := n.core.Grants(now)
		for m := range grants {
			g := &grants[m]
			for k, r := range gs.centres.all {
				if r.name == g.To {
					gs.cfg.Faults.vague(g, k)
					gs.net.send(event{kind: evLoan, node: int32(k), gen: uint64(i), msg: g}, gs.cfg.Network.WAN, r.cutDown)
				}
			}
		}
	}
	gs.tend(i)
	gs.wake(i)
}

// timeKnown reports whether any node that could tell a new coordinator knows fleet time: an aggregator, or an edge
// connected to its aggregator. Disconnected data centres count: they report later, and may receive a guess until then.
func (gs *coordinators) timeKnown() bool {
	for _, r := range gs.centres.all {
		if n := r.newest(); !n.gone && n.asleep <= gs.now && n.core.Synced(n.clock.read(gs.now)) {
			return true
		}
	}
	for i, n := range gs.edges.all {
		if up := n.centre.newest(); !up.gone && up.asleep <= gs.now && n.synced && gs.edges.connected(int32(i)) {
			return true
		}
	}
	return false
}

// connected reports whether an edge runs, and its messages reach the newest aggregator, and back.
func (es *edges) connected(i int32) bool {
	n := es.all[i]
	me, parent := nodeID{0, i}, nodeID{1, n.centre.newest().id}
	return !n.down && n.asleep <= es.now && max(n.cutUp, n.cutDown) <= es.now && !es.net.deaf(me, parent) && !es.net.deaf(parent, me)
}
