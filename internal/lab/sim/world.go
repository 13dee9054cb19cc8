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
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/ledger/region"
	"vestibule/internal/core/ledger/root"
	"vestibule/internal/core/room"
	"vestibule/internal/core/rules"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
	"vestibule/internal/lab/mutant"
)

// warmUp is the time of the first arrival, once the nodes know each other.
const warmUp = 2 * time.Second

// epoch is the fleet time at which every simulation begins: the day of the worked example.
var epoch = fleettime.TimeOf(time.Date(2021, 5, 27, 16, 0, 0, 0, time.UTC))

// World is one running experiment.
type World struct {
	cfg    Config
	room   room.ID
	rng    *rand.Rand // visitors and network
	chaos  *rand.Rand // faults, so that the same seed draws the same visitors with and without faults
	now    int64      // true time, nanoseconds since the start
	agenda agenda
	guess  bool // a coordinator has used a wrong clock
	events uint64
	trace  func(format string, args ...any) // traces faults; may be nil

	globals []*globalProc // all coordinators ever; the last is the newest
	regions []*dataCentre
	aggs    []*regionProc // all aggregators ever, by number
	edges   []*edgeNode   // of all regions, region by region
	lease   uint64        // highest term of a coordinator in the lease
	pending int           // coordinators about to begin
	rolled  uint64        // next term after a rollback of the lease; 0 for one above all

	// The room set as last published.
	edition uint64
	epoch   uint32
	removed bool
	drops   struct{ edges, all int } // when it was put back: edges without it, and times at which no node had it
	keys    keys

	operator operator
	crashAt  uint64 // release at which the claiming coordinator ends

	members  membership
	slowDocs bool        // a change of the list reaches most nodes late
	again    *globalProc // machine of the next coordinator; nil for a new one
	older    int         // version of the next coordinator's membership list; 0 for the stored one
	olderFor time.Duration

	renewed  int // edges that replaced others
	faults   []fault
	telling  int    // number of the current fault
	folders  uint64 // data folders ever
	boots    int    // boots of machines
	twins    int    // additional edges of twins
	copies   int    // additional data centres of copies
	pairs    []pairCut
	calm     bool
	recovery recovery

	touched   []int32 // data centres whose ledgers the event may have changed
	isTouched []bool
	rootMoved bool

	visitors []visitor
	free     []int32 // free slots of visitors
	arrivals arrivals

	oracle oracle
	meters meters
	asking rules.Scratch
	pushes subscribers
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

// proc is the common part of processes: a machine's clock, a timer, and a life.
type proc struct {
	clock  nodeClock
	timer  timer
	gone   bool  // ended, for good
	doomed bool  // its successor is about to begin
	asleep int64 // stopped until then
	memory memory
}

// globalProc is one process that leads, or believes that it leads.
type globalProc struct {
	proc
	term    uint64
	nonce   uint64
	began   int64
	edition uint64 // of its room set
	told    []ledger.RoomConfig
	writing uint64 // release that it is about to claim
	members int    // version of its membership list
	core    *root.Allocator
	offset  time.Duration // of its machine's wall clock
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

// forget clears the store. The lease keeps its owner.
func (r *dataCentre) forget() {
	r.stored = wire.Durable{}
}

// newest returns the aggregator with the highest term.
func (r *dataCentre) newest() *regionProc { return r.procs[len(r.procs)-1] }

type regionProc struct {
	proc
	id      int32
	region  int32
	term    uint64
	edition uint64
	members int // version of its membership list
	core    *region.Aggregator
	told    []ledger.RoomConfig
	writing uint64       // version being written
	kept    wire.Durable // in its data folder: at least the stored one
}

type edgeNode struct {
	proc
	name      string
	region    int32
	folder    fleettime.Lives // its data folder, which lies at place
	place     fleettime.Place
	ended     admission.Ended // in the folder too
	pasts     pasts           // in the folder too
	edition   uint64
	core      *admission.Engine
	keys      *ticket.Codec // nil if tickets are not sealed
	down      bool          // between two lives
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

// newest returns the coordinator with the highest term.
func (w *World) newest() *globalProc { return w.globals[len(w.globals)-1] }

// timer is the pending wake-up of a node.
type timer struct {
	at  int64
	gen uint64
}

// New returns the world of cfg at its beginning.
func New(cfg Config) *World {
	w := &World{
		cfg:   cfg,
		room:  room.IDOf("sale"),
		rng:   rand.New(rand.NewPCG(cfg.Seed, 0x7665737469)),
		chaos: rand.New(rand.NewPCG(cfg.Seed, 0x6368616f73)),
	}
	w.isTouched, w.operator.method = make([]bool, cfg.Centres), cfg.method()
	w.oracle.begin(w)
	w.meters.begin(w)
	w.keys.begin(w)
	w.members.begin(w, cmp.Or(cfg.Listed, cfg.Centres))
	w.arrivals.begin(w)

	w.startGlobal(true)
	for i := range cfg.Centres {
		w.regions = append(w.regions, &dataCentre{name: centreName(i), stored: wire.Durable{ClusterID: w.clusterIDOf(int32(i), 0)}})
		w.startRegion(int32(i), true)
	}
	for i := range cfg.Centres {
		for k := range cfg.Edges {
			w.newEdge(int32(i), fmt.Sprintf("edge%d", k+1), fleettime.Lives{}, false)
		}
	}
	w.plan(event{at: int64(time.Second), kind: evSecond})
	w.now = int64(warmUp)
	w.plan(event{at: w.arrivals.next(w), kind: evArrival, gen: w.arrivals.gen})
	w.now = 0
	w.beginFaults()
	w.in(sampleGap, func() { w.meters.sample(w) })
	return w
}

// clock draws the monotonic clock of a machine.
func (w *World) clock() nodeClock {
	return nodeClock{offset: w.rng.Int64N(int64(time.Hour)), drift: (w.rng.Float64()*2 - 1) * w.cfg.Faults.drift()}
}

func centreName(i int) string { return fmt.Sprintf("dc%d", i+1) }

// startGlobal starts a leading coordinator, with a term above all in its lease.
func (w *World) startGlobal(bootstrap bool) {
	list, names := w.members.at(w.members.store), []string{}
	if w.older > 0 {
		list = w.members.at(w.older)
	}
	for _, m := range list.List {
		if !m.Removed {
			names = append(names, m.Name)
		}
	}
	// Terms count up from the newest in the lease. A lease restored from a backup may lack some.
	term := w.lease + 1
	if w.rolled > 0 {
		term, w.rolled = w.rolled, 0
	}
	w.lease = term
	n := &globalProc{term: term, began: w.now, edition: w.edition}
	n.clock = w.clock()
	if !bootstrap {
		n.offset = w.cfg.Faults.wall(w.chaos)
	}
	n.nonce = w.rng.Uint64()
	if w.newMachine(&n.proc, n.clock); w.again != nil {
		n.clock, n.memory, n.offset, w.again = w.again.clock, w.again.memory, w.again.offset, nil
	}
	n.core = root.New(n.clock.read(w.now), root.Config{
		Time: w.remembers(&n.proc, n.offset),
		Term: wire.Term{N: term, Nonce: n.nonce}, Centres: names, Params: w.cfg.Params, Bootstrap: bootstrap,
	})
	n.core.SetLease(fleettime.Never)
	n.told = w.roomsBy(n)
	n.core.SetRooms(n.clock.read(w.now), n.told)
	w.globals = append(w.globals, n)
	w.chooseMembers(int32(len(w.globals) - 1))
	w.wakeGlobal(int32(len(w.globals) - 1))
}

// startRegion starts a leading aggregator: it claims the store, which fences its predecessors, and reads their data.
func (w *World) startRegion(i int32, bootstrap bool) {
	r := w.regions[i]
	n := &regionProc{id: int32(len(w.aggs)), region: i, term: r.before + uint64(len(r.procs)) + 1, edition: w.edition}
	if w.newMachine(&n.proc, w.clock()); r.again != nil {
		n.clock, n.memory, r.again = r.again.clock, r.again.memory, nil
	}
	r.owner = n.term
	if w.cfg.Faults.Wipe && !bootstrap && !w.calm && w.chaos.IntN(3) == 0 {
		w.tracef("the store of %s is lost", r.name)
		r.forget()
	}
	if w.cfg.Faults.Torn && !bootstrap && !w.calm && w.chaos.IntN(3) == 0 {
		w.tear(r)
	}
	own, ownTerm := w.ownMemory(r)
	n.core = region.New(n.clock.read(w.now), region.Config{
		Time: w.remembers(&n.proc, 0),
		DC:   r.name, Term: wire.Term{N: n.term, Nonce: w.rng.Uint64()}, Params: w.cfg.Params, Bootstrap: bootstrap, CompactAbove: w.cfg.GoneAbove, Own: own, OwnTerm: ownTerm,
		ClusterID: w.clusterIDOf(i, len(r.procs)),
	}, r.stored.Clone())
	n.core.SetLease(fleettime.Never)
	n.told = w.regionRooms(n)
	n.core.SetRooms(n.clock.read(w.now), n.told)
	if n.members = max(r.members, 1); bootstrap {
		r.members = 1
	}
	n.core.SetMembers(n.clock.read(w.now), w.members.at(n.members))
	r.procs = append(r.procs, n)
	w.aggs = append(w.aggs, n)
	w.in(rejoinAfter, func() { w.rejoin(i) })
	if n.members < w.members.store {
		w.in(time.Duration(w.chaos.ExpFloat64()*float64(300*time.Millisecond)), func() { w.tellRegion(n.id, w.members.store) })
	}
	w.store(n.id)
	w.wakeRegion(n.id)
}

// newEdge adds and starts an edge, in its own data folder, which may be a copy, or on a clone of the machine, which is
// indistinguishable.
func (w *World) newEdge(region int32, name string, folder fleettime.Lives, clone bool) int32 {
	n := &edgeNode{name: name, region: region, folder: folder, place: w.newPlace()}
	if clone {
		n.place = folder.Place
	}
	w.newMachine(&n.proc, w.clock())
	i := int32(len(w.edges))
	w.edges = append(w.edges, n)
	w.regions[region].edges = append(w.regions[region].edges, i)
	w.startEdge(i)
	return i
}

// newPlace returns the place of a new data folder.
func (w *World) newPlace() fleettime.Place {
	w.folders++
	return fleettime.Place{Inode: w.folders, Boot: "boot"}
}

// ownMemory returns the memory of the next leader of a data centre with an empty store: often it has led there before,
// in this process or in one that was killed, whose data folder has the promises that it was storing.
func (w *World) ownMemory(r *dataCentre) (wire.Durable, uint64) {
	if r.stored.Version != 0 || len(r.procs) == 0 || w.chaos.IntN(4) == 0 {
		return wire.Durable{}, 0
	}
	n := r.procs[len(r.procs)-1-w.chaos.IntN(min(3, len(r.procs)))]
	if n.kept.Version > 0 && w.chaos.IntN(2) == 0 {
		return n.kept.Clone(), n.term
	}
	return n.core.Durable(), n.term
}

// startEdge begins a life of an edge.
func (w *World) startEdge(i int32) {
	n := w.edges[i]
	past, _ := n.folder.Succeed(n.place)
	n.down, n.synced, n.forgotten, n.edition = false, false, false, w.edition
	n.keys = w.keys.newest
	n.core = admission.New(admission.Config{
		Edge: n.name, DC: w.regions[n.region].name, Params: w.cfg.Params, Limits: admission.DefaultLimits(), Past: past, Ended: n.ended, Rand: w.fork(),
		Stores: w.cfg.Faults.Pasts,
	})
	n.keep()
	w.settleBefore(n)
	now := n.clock.read(w.now)
	n.core.Restore(now, w.remembers(&n.proc, 0))
	n.core.Guess(now, w.fleetTime().Add(w.cfg.Faults.wall(w.chaos)))
	w.tellEdge(n, now)
	w.wakeEdge(i)
}

// keep stores the edge's instances in its data folder.
func (n *edgeNode) keep() { n.folder = fleettime.Lives{Place: n.place, Instances: n.core.Instances()} }

// edgeRooms returns the room set as read by an edge; rooms is the version of the other roles.
func (w *World) edgeRooms(n *edgeNode) []admission.Room {
	if w.removed {
		return nil
	}
	r := admission.RoomOf(w.operator.inForce(w, n.core.Time(n.clock.read(w.now)), 0))
	r.Epoch, r.Cap, r.Probation, r.Session = w.epoch, w.cfg.Cap, w.cfg.Probation, w.cfg.Session
	return []admission.Room{r}
}

// fork returns a separate source of randomness, so that nodes draw independently.
func (w *World) fork() *rand.Rand { return rand.New(rand.NewPCG(w.rng.Uint64(), w.rng.Uint64())) }

// roomsBy returns the room set as read by a coordinator.
func (w *World) roomsBy(n *globalProc) []ledger.RoomConfig {
	return w.rooms(n.core.Clock(n.clock.read(w.now), w.fleetTime().Add(n.offset)))
}

// regionRooms returns the room set as read by an aggregator: by fleet time if known, else by its machine's clock, which
// is right.
func (w *World) regionRooms(n *regionProc) []ledger.RoomConfig {
	at, known := n.core.Clock(n.clock.read(w.now))
	if !known {
		at = w.fleetTime()
	}
	return w.rooms(at, 0)
}

func (w *World) rooms(at fleettime.Time, bound time.Duration) []ledger.RoomConfig {
	if w.removed {
		return nil
	}
	r := ledger.ConfigOf(w.operator.inForce(w, at, bound))
	r.Session, r.Cap, r.LostWait = w.cfg.Session, w.cfg.Cap, 15*time.Minute
	return []ledger.RoomConfig{r}
}

// fleetTime returns true fleet time.
func (w *World) fleetTime() fleettime.Time { return epoch + fleettime.Time(w.now/1e6) }

func (w *World) plan(e event) { w.agenda.plan(e) }

// Trace makes the world print every fault with printf, with its time in seconds.
func (w *World) Trace(printf func(format string, args ...any)) { w.trace = printf }

// Run runs the experiment and returns the result. It stops early at a broken promise.
func (w *World) Run() *Result {
	end := int64(w.cfg.Length)
	for {
		e, ok := w.agenda.next()
		if !ok || e.at > end || w.oracle.broken() {
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
func (w *World) touch(region int32) {
	if w.cfg.Strict && !w.isTouched[region] {
		w.isTouched[region] = true
		w.touched = append(w.touched, region)
	}
}

// look makes the oracle check the changes of the event.
func (w *World) look() {
	if len(w.touched) == 0 && !w.rootMoved {
		return
	}
	for _, i := range w.touched {
		w.isTouched[i] = false
		w.oracle.checkCentre(w, int(i))
	}
	w.touched, w.rootMoved = w.touched[:0], false
	w.oracle.checkTotals(w)
}

func (w *World) handle(e *event) {
	switch e.kind {
	case evArrival:
		if e.gen == w.arrivals.gen {
			w.arrive()
		}
	case evVisit:
		w.visit(e.node, e.gen)
	case evGiveUp:
		w.giveUp(e.node, e.gen)
	case evEdge:
		if n := w.edges[e.node]; n.timer.gen == e.gen && !w.asleep(&n.proc, e) {
			n.timer.at = 0
			if !n.down {
				w.runEdge(e.node)
			}
		}
	case evRegion:
		if n := w.aggs[e.node]; n.timer.gen == e.gen && !n.gone && !w.asleep(&n.proc, e) {
			n.timer.at = 0
			w.runRegion(e.node)
		}
	case evGlobal:
		if n := w.globals[e.node]; n.timer.gen == e.gen && !n.gone && !w.asleep(&n.proc, e) {
			n.timer.at = 0
			w.runGlobal(e.node)
		}
	case evReport:
		w.takeReport(e)
	case evGrant:
		w.takeGrant(e)
	case evStored:
		w.takeStored(e)
	case evDo:
		e.msg.(func())()
	case evFault:
		w.runFault(&w.faults[e.node])
	case evSecond:
		w.oracle.tick(w)
		w.oracle.checkLedgers(w)
		w.keepTime()
		w.plan(event{at: w.now + int64(time.Second), kind: evSecond})
	}
}

// asleep reports whether a process is stopped; the event is repeated when it continues.
func (w *World) asleep(p *proc, e *event) bool {
	if p.asleep <= w.now {
		return false
	}
	e.at = p.asleep
	w.plan(*e)
	return true
}

// due plans the wake-up of a node at reading m of its clock.
func (w *World) due(t *timer, c nodeClock, m fleettime.Mono, e event) {
	at := w.now
	if m > c.read(w.now) {
		if m == fleettime.Never {
			return
		}
		at = max(c.when(m), w.now+1000) // rounding must not make it now
	}
	if t.at != 0 && t.at <= at {
		return
	}
	t.gen++
	t.at = max(at, 1)
	e.at, e.gen = at, t.gen
	w.plan(e)
}

func (w *World) wakeEdge(i int32) {
	n := w.edges[i]
	w.due(&n.timer, n.clock, min(n.core.Due(), n.pastDue()), event{kind: evEdge, node: i})
}

func (w *World) wakeRegion(i int32) {
	n := w.aggs[i]
	w.due(&n.timer, n.clock, min(n.core.GrantsDue(), n.core.ReportDue()), event{kind: evRegion, node: i})
}

func (w *World) wakeGlobal(i int32) {
	n := w.globals[i]
	w.due(&n.timer, n.clock, n.core.GrantsDue(), event{kind: evGlobal, node: i})
}

// runEdge is the pump of an edge: it reports when due.
func (w *World) runEdge(i int32) {
	n := w.edges[i]
	w.runPasts(i)
	now := n.clock.read(w.now)
	if n.core.Due() <= now {
		reports := n.core.Report(now)
		for k := range reports {
			w.send(event{kind: evReport, node: n.region, gen: uint64(i), msg: &reports[k]}, w.cfg.Network.LAN, n.cutUp)
		}
		w.touch(n.region)
	}
	w.wakeEdge(i)
}

// runRegion is the pump of a regional.
func (w *World) runRegion(i int32) {
	n := w.aggs[i]
	r := w.regions[n.region]
	if by, fenced := n.core.Fenced(); fenced {
		w.tracef("%s: the aggregator of term %d has seen term %d and stops", r.name, n.term, by)
		n.gone = true
		return
	}
	if n.core.Rejoins() && !r.lost {
		w.tracef("%s goes on under another site", r.name)
		r.stored, n.gone = n.core.Durable(), true
		w.startRegion(n.region, false)
		return
	}
	now := n.clock.read(w.now)
	w.touch(n.region)
	if n.core.GrantsDue() <= now {
		grants := n.core.Grants(now)
		for k := range grants {
			g := &grants[k]
			for _, to := range r.edges { // all edges of the name
				if w.edges[to].name == g.To && !w.edges[to].lost {
					w.send(event{kind: evGrant, node: to, gen: uint64(i), msg: g}, w.cfg.Network.LAN, w.edges[to].cutDown)
				}
			}
		}
	}
	if n.core.ReportDue() <= now {
		reports := n.core.Report(now)
		for k := range reports {
			w.send(event{kind: evReport, node: -1, gen: uint64(i), msg: &reports[k]}, w.cfg.Network.WAN, r.cutUp)
		}
	}
	w.store(i)
	w.wakeRegion(i)
}

// store starts to write a regional's promises.
func (w *World) store(i int32) {
	n := w.aggs[i]
	if n.writing != 0 || n.gone {
		return
	}
	if d, ok := n.core.Unsaved(); ok {
		n.writing, n.kept = d.Version, d
		w.write(i, d, int64(time.Millisecond))
	}
}

// write plans the completion of a write of d.
func (w *World) write(i int32, d wire.Durable, delay int64) {
	delay += w.rng.Int64N(int64(4*time.Millisecond)) + w.slowDisk()
	w.plan(event{at: w.now + delay, kind: evStored, node: i, msg: d})
}

// tear makes the store lose sections of dead edges, read back by the same code as in nodes.
func (w *World) tear(r *dataCentre) {
	p, torn := wire.Promises{Durable: r.stored.Clone()}, ""
	for i := range p.Durable.Roster {
		if e := &p.Durable.Roster[i]; len(e.Rooms) > 0 && w.chaos.IntN(2) == 0 {
			e.Rooms, torn = nil, e.Edge
		}
	}
	if torn != "" {
		w.tracef("the store of %s loses what it held of %s, and maybe others", r.name, torn)
		p.Lose()
		r.stored = p.Durable
	}
}

// takeStored completes or refuses a write.
func (w *World) takeStored(e *event) {
	n := w.aggs[e.node]
	r := w.regions[n.region]
	d := e.msg.(wire.Durable)
	if n.gone && w.chaos.IntN(2) == 0 {
		return // it died during the write
	}
	if r.owner != n.term && !mutant.On(mutant.StoreNotFencing) {
		if !n.gone {
			w.tracef("%s: a write of term %d is refused, it stops", r.name, n.term)
		}
		n.gone = true
		return
	}
	failing := w.cfg.Faults.Disk && !w.calm && w.chaos.IntN(10) == 0
	if r.failing > w.now {
		failing = true
	} else if !failing || w.chaos.IntN(2) == 0 { // else it failed, or its success was not reported
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
		w.write(e.node, d, int64(50*time.Millisecond))
		return
	}
	n.writing = 0
	n.core.Saved(n.clock.read(w.now), d.Version)
	w.store(e.node)
	w.wakeRegion(e.node)
}

func (w *World) runGlobal(i int32) {
	n := w.globals[i]
	if n.gone {
		return
	}
	if by, fenced := n.core.Fenced(); fenced {
		w.tracef("the coordinator of term %d has seen term %d and stops", n.term, by)
		n.gone = true
		// Its lease was older than the fleet: the next candidate knows better.
		w.lease = max(w.lease, by)
		if n == w.newest() && w.pending == 0 {
			w.pending++
			w.succeed(w.takeover(), "the coordinator", w.nextGlobal)
		}
		return
	}
	w.rootMoved = true
	now := n.clock.read(w.now)
	if n.offset != 0 && n.core.Time(now) == 0 && !w.timeKnown() {
		n.offset = 0 // the whole fleet starts anew: then the machine's clock has to be right
	}
	unknown := n.core.Time(now) == 0
	n.core.SetTime(now, w.fleetTime().Add(n.offset))
	if t := n.core.Time(now); unknown && (t > w.fleetTime().Add(time.Second) || t < w.fleetTime().Add(-time.Second)) && t != 0 {
		w.tracef("coordinator %d hears nobody who knows the time, and goes by its own clock, %v off", i+1, t.Sub(w.fleetTime()))
		w.guess = true
	}
	if n.core.GrantsDue() <= now {
		grants := n.core.Grants(now)
		for m := range grants {
			g := &grants[m]
			for k, r := range w.regions {
				if r.name == g.To {
					w.cfg.Faults.vague(g, k)
					w.send(event{kind: evGrant, node: -1 - int32(k), gen: uint64(i), msg: g}, w.cfg.Network.WAN, r.cutDown)
				}
			}
		}
	}
	w.tendMembers(n)
	w.tendRelease(i)
	w.wakeGlobal(i)
}

// timeKnown reports whether any node that could tell a new coordinator knows fleet time: an aggregator, or an edge
// connected to its aggregator. Disconnected data centres count: they report later, and may receive a guess until then.
func (w *World) timeKnown() bool {
	for _, r := range w.regions {
		if n := r.newest(); !n.gone && n.asleep <= w.now && n.core.Synced(n.clock.read(w.now)) {
			return true
		}
	}
	for i, n := range w.edges {
		up := w.regions[n.region].newest()
		me, parent := nodeID{0, int32(i)}, nodeID{1, up.id}
		heard := !up.gone && n.cutUp <= w.now && n.cutDown <= w.now && up.asleep <= w.now && !w.deaf(me, parent) && !w.deaf(parent, me)
		if heard && !n.down && n.asleep <= w.now && n.synced {
			return true
		}
	}
	return false
}
