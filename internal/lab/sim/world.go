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
	"reflect"
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// warmUp is the time of the first arrival, once the nodes know each other.
const warmUp = 2 * time.Second

// epoch is the fleet time at which every simulation begins: the day of the worked example.
var epoch = fleettime.TimeOf(time.Date(2021, 5, 27, 16, 0, 0, 0, time.UTC))

// kernel is common to all parts of a world: the experiment, true time, the agenda, the random sources and the trace.
type kernel struct {
	timeline
	cfg   Config // operators change it, and so does the recovery
	room  room.ID
	rng   *rand.Rand                       // visitors and network
	chaos *rand.Rand                       // faults, so that the same seed draws the same visitors with and without faults
	trace func(format string, args ...any) // traces faults; may be nil

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
	arrivals *arrivals   // of visitors
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

	run   func()                 // its pump
	read  func(look bool)        // reads the room document, see coordinators.read
	known func() fleettime.Known // fleet time
}

// roomSet is the room set that a process of global or a regional knows.
type roomSet struct {
	edition uint64
	told    []ledger.RoomConfig
}

// take reports whether a process takes rooms of an edition: newer ones or, if it looks at the clock, those of a new
// phase.
func (s *roomSet) take(edition uint64, rooms []ledger.RoomConfig, look bool) bool {
	if look != (s.edition == edition) || look && reflect.DeepEqual(rooms, s.told) {
		return false
	}
	s.edition, s.told = edition, rooms
	return true
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
	w.centres.sees = w.oracle.transfer
	w.operator = &operator{fleet: w.fleet, roomDoc: w.doc, oracle: w.oracle}
	w.members = &membership{fleet: w.fleet, memberList: w.list, oracle: w.oracle}
	w.meters = &meters{kernel: w.kernel, doc: w.doc, oracle: w.oracle}
	w.visitors = &visitors{fleet: w.fleet, oracle: w.oracle, meters: w.meters}
	w.arrivals = &arrivals{visitors: w.visitors}
	w.atFault, w.edges.answer, w.edges.hangUp = w.books, w.visitors.answerHeld, w.visitors.dropHeld
	w.edges.report = w.centres.takeReport
	w.recovery = &recovery{
		fleet: w.fleet, oracle: w.oracle, visitors: w.visitors, arrivals: w.arrivals, operator: w.operator,
		members: w.members,
	}
	w.centres.report = func(n *regionProc, m *wire.Report) {
		w.recovery.hearLastWord(n, m)
		w.globals.takeReport(n, m)
	}
	w.globals.tend = func(n *globalProc) {
		w.members.tend(n)
		w.operator.tendRelease(n)
	}
	w.meters.begin()
	w.arrivals.demand(cfg.Demand)

	w.globals.start(true)
	for i := range cfg.Centres {
		w.centres.all = append(w.centres.all,
			&dataCentre{id: int32(i), name: centreName(i), stored: wire.Durable{ClusterID: w.clusterIDOf(int32(i), 0)}})
		w.centres.start(w.centres.all[i], true)
	}
	for i := range cfg.Centres {
		for k := range cfg.Edges {
			w.edges.add(w.centres.all[i], fmt.Sprintf("edge%d", k+1), fleettime.Lives{}, false)
		}
	}
	w.in(time.Second, w.second)
	w.now = int64(warmUp)
	w.arrivals.await()
	w.now = 0
	w.faults = cfg.drawFaults()
	for i := range w.faults {
		f := &w.faults[i]
		if only := cfg.Faults.Only; only == nil || slices.Contains(only, f.number) {
			w.plan(f.at, func() {
				if !w.calm {
					w.telling = f.number
					f.kind.happen(w, f)
				}
			})
		}
	}
	if cfg.Calm > 0 {
		w.in(cfg.Calm, w.recovery.begin)
	}
	w.in(sampleGap, w.meters.sample)
	return w
}

// clock draws the monotonic clock of a machine.
func (k *kernel) clock() nodeClock {
	return nodeClock{offset: k.rng.Int64N(int64(time.Hour)), drift: (k.rng.Float64()*2 - 1) * k.cfg.Faults.drift()}
}

func centreName(i int) string { return fmt.Sprintf("dc%d", i+1) }

// fork returns a separate source of randomness, so that nodes draw independently.
func (k *kernel) fork() *rand.Rand { return rand.New(rand.NewPCG(k.rng.Uint64(), k.rng.Uint64())) }

// Trace makes the world print every fault with printf, with its time in seconds.
func (w *World) Trace(printf func(format string, args ...any)) { w.trace = printf }

// Run runs the experiment and returns the result. It stops early at a broken promise.
func (w *World) Run() *Result {
	for !w.broken() && w.next(int64(w.cfg.Length)) {
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

// second does what happens every second of true time.
func (w *World) second() {
	w.oracle.tick()
	w.oracle.checkLedgers()
	w.keepTime()
	w.in(time.Second, w.second)
}

// until returns the end of a fault that begins now.
func (k *kernel) until(f *fault) int64 { return k.now + int64(f.last) }

// processes returns the processes that have not ended for good: coordinators, aggregators and edges.
func (fl *fleet) processes() (out []*proc) {
	for _, n := range fl.globals.all {
		out = append(out, &n.proc)
	}
	for _, n := range fl.centres.aggs {
		out = append(out, &n.proc)
	}
	for _, n := range fl.edges.all {
		out = append(out, &n.proc)
	}
	return slices.DeleteFunc(out, func(p *proc) bool { return p.gone })
}
