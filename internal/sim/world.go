// Package sim runs whole fleets on virtual time: edges, regionals, global and
// their visitors, in one goroutine, from one seed. The nodes are the
// production cores, the same code that runs behind HTTP and NATS; only the
// clock, the network, the stores and the people are simulated.
//
// Because the world knows every session and every right, it can judge: after
// each event that could break a promise it checks the promise (see judge).
// Equal seeds give equal runs, to the byte.
//
// The one knob is [Config].
package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"vestibule/internal/admission"
	"vestibule/internal/fleet"
	"vestibule/internal/room"
	"vestibule/internal/slots"
	"vestibule/internal/wire"
)

// Config is one experiment.
type Config struct {
	Seed    uint64
	Centres int           // data centres
	Edges   int           // edges in each
	Length  time.Duration // of the run
	Params  wire.Params

	Total   int           // T
	Rate    int           // R
	Session time.Duration // session_duration
	Cap     bool          // partition_policy cap

	Demand  Demand
	People  People
	Network Network
}

// Network is how messages travel without faults.
type Network struct {
	LAN, WAN time.Duration // mean one-way delay; single messages take half to twice as long
	Loss     float64       // share of messages lost
	Encode   bool          // messages travel as bytes, through the wire codec; slower
}

// Defaults returns an experiment that saturates a room of 2,000 in three data
// centres.
func Defaults() Config {
	return Config{
		Seed: 1, Centres: 3, Edges: 4, Length: 30 * time.Minute, Params: wire.DefaultParams(),
		Total: 2000, Rate: 1200, Session: 5 * time.Minute,
		Demand:  Demand{PerMinute: 2000},
		People:  DefaultPeople(),
		Network: Network{LAN: 500 * time.Microsecond, WAN: 40 * time.Millisecond},
	}
}

// Validate returns everything that is wrong with the experiment.
func (c *Config) Validate() []error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Centres >= 1 && c.Centres <= 100, "data-centers: must be 1 to 100, got %d", c.Centres)
	check(c.Edges >= 1 && c.Edges <= 500, "edges: must be 1 to 500, got %d", c.Edges)
	check(c.Length > 0 && c.Length <= 48*time.Hour, "minutes: must be above 0 and at most 2880, got %v", c.Length.Minutes())
	check(c.Total >= 1 && c.Total <= 10_000_000, "total-active-users: must be 1 to 10000000, got %d", c.Total)
	check(c.Rate >= 1 && c.Rate <= 10_000_000, "new-users-per-minute: must be 1 to 10000000, got %d", c.Rate)
	check(c.Session >= 5*time.Second && c.Session <= time.Hour, "session-duration: must be 5s to 1h, got %v", c.Session)
	check(c.People.Pages >= 1, "pages: must be at least 1, got %v", c.People.Pages)
	check(c.People.Think > 0, "think: must be above 0, got %v", c.People.Think)
	check(c.People.Patience >= 0, "patience: must not be negative, got %v", c.People.Patience)
	check(c.Network.LAN >= 0 && c.Network.LAN <= 10*time.Second, "lan: must be 0 to 10s, got %v", c.Network.LAN)
	check(c.Network.WAN >= 0 && c.Network.WAN <= 10*time.Second, "wan: must be 0 to 10s, got %v", c.Network.WAN)
	check(c.Network.Loss >= 0 && c.Network.Loss <= 1, "loss: must be 0 to 1, got %v", c.Network.Loss)
	return errs
}

// warmUp is when the first visitor may come: a fleet opens its doors once its
// nodes know each other.
const warmUp = 2 * time.Second

// epoch is the fleet time at which every simulation begins: the day of the
// worked example.
var epoch = fleet.TimeOf(time.Date(2021, 5, 27, 16, 0, 0, 0, time.UTC))

// World is one running experiment.
type World struct {
	cfg    Config
	room   room.ID
	rng    *rand.Rand // people and network
	now    int64      // true time, nanoseconds since the start
	agenda agenda
	events uint64

	global  *globalNode
	regions []*regionNode
	edges   []*edgeNode // of all regions, region by region

	visitors []visitor
	free     []int32 // visitors that ended
	arrivals arrivals

	judge  judge
	meters meters
}

// nodeClock is the monotonic clock of one machine: it starts anywhere and runs
// a little fast or slow.
type nodeClock struct {
	offset int64
	drift  float64
}

func (c nodeClock) read(now int64) fleet.Mono {
	return fleet.Mono(now + c.offset + int64(float64(now)*c.drift))
}

// when returns the true time at which the clock reads m, rounded up.
func (c nodeClock) when(m fleet.Mono) int64 {
	return int64(float64(int64(m)-c.offset)/(1+c.drift)) + 1
}

type globalNode struct {
	clock nodeClock
	core  *slots.Allocator
	timer timer
}

type regionNode struct {
	name   string
	clock  nodeClock
	core   *slots.Aggregator
	timer  timer
	stored uint64 // version being written
}

type edgeNode struct {
	name   string
	region int32
	clock  nodeClock
	core   *admission.Engine
	timer  timer
}

// timer is the one pending wake-up of a node.
type timer struct {
	at  int64
	gen uint64
}

// New returns the world of cfg at its beginning.
func New(cfg Config) *World {
	w := &World{
		cfg:  cfg,
		room: room.IDOf("sale"),
		rng:  rand.New(rand.NewPCG(cfg.Seed, 0x7665737469)),
	}
	w.judge.begin(w)
	w.meters.begin(w)
	w.arrivals.begin(w)

	clock := func() nodeClock {
		return nodeClock{offset: w.rng.Int64N(int64(time.Hour)), drift: (w.rng.Float64()*2 - 1) * 50e-6}
	}
	names := make([]string, cfg.Centres)
	for i := range names {
		names[i] = fmt.Sprintf("dc%d", i+1)
	}
	w.global = &globalNode{clock: clock()}
	w.global.core = slots.NewAllocator(w.global.clock.read(0), slots.AllocatorConfig{
		Term: wire.Term{N: 1, Nonce: w.rng.Uint64()}, Centres: names, Params: cfg.Params, Bootstrap: true,
	})
	w.global.core.SetLease(fleet.Never)
	w.global.core.SetRooms(w.global.clock.read(0), w.rooms())
	for i, name := range names {
		r := &regionNode{name: name, clock: clock()}
		r.core = slots.NewAggregator(r.clock.read(0), slots.AggregatorConfig{
			DC: name, Term: wire.Term{N: 1, Nonce: w.rng.Uint64()}, Params: cfg.Params, Bootstrap: true,
		}, wire.Durable{})
		r.core.SetLease(fleet.Never)
		r.core.SetRooms(r.clock.read(0), w.rooms())
		w.regions = append(w.regions, r)
		for k := range cfg.Edges {
			e := &edgeNode{name: fmt.Sprintf("edge%d", k+1), region: int32(i), clock: clock()}
			e.core = admission.New(admission.Config{
				Edge: e.name, DC: name, Params: cfg.Params, Limits: admission.DefaultLimits(), Rand: w.fork(),
			})
			e.core.SetRooms(e.clock.read(0), []admission.Room{{ID: w.room, Cap: cfg.Cap}})
			w.edges = append(w.edges, e)
		}
	}
	w.wakeGlobal()
	for i := range w.regions {
		w.store(int32(i))
		w.wakeRegion(int32(i))
	}
	for i := range w.edges {
		w.wakeEdge(int32(i))
	}
	w.plan(event{at: int64(time.Second), kind: evSecond})
	w.now = int64(warmUp)
	w.plan(event{at: w.arrivals.next(w), kind: evArrival})
	w.now = 0
	return w
}

// fork returns a source of chance of its own, so that one node's draws do not
// depend on another's.
func (w *World) fork() *rand.Rand { return rand.New(rand.NewPCG(w.rng.Uint64(), w.rng.Uint64())) }

func (w *World) rooms() []slots.RoomConfig {
	return []slots.RoomConfig{{
		ID: w.room, Total: uint64(w.cfg.Total), Rate: uint64(w.cfg.Rate), Session: w.cfg.Session, Cap: w.cfg.Cap,
		LostWait: 15 * time.Minute,
	}}
}

// fleetTime returns true fleet time.
func (w *World) fleetTime() fleet.Time { return epoch + fleet.Time(w.now/1e6) }

func (w *World) plan(e event) { w.agenda.plan(e) }

// Run lets the experiment happen and returns what came of it. It stops early
// when a promise is broken.
func (w *World) Run() *Result {
	end := int64(w.cfg.Length)
	for {
		e, ok := w.agenda.next()
		if !ok || e.at > end || w.judge.broken() {
			break
		}
		w.now = e.at
		w.events++
		w.happen(e)
	}
	return w.result()
}

func (w *World) happen(e event) {
	switch e.kind {
	case evArrival:
		w.arrive()
	case evVisit:
		w.visit(e.node, e.gen)
	case evGiveUp:
		w.giveUp(e.node, e.gen)
	case evEdge:
		if n := w.edges[e.node]; n.timer.gen == e.gen {
			n.timer.at = 0
			w.runEdge(e.node)
		}
	case evRegion:
		if n := w.regions[e.node]; n.timer.gen == e.gen {
			n.timer.at = 0
			w.runRegion(e.node)
		}
	case evGlobal:
		if w.global.timer.gen == e.gen {
			w.global.timer.at = 0
			w.runGlobal()
		}
	case evReport:
		w.takeReport(e)
	case evGrant:
		w.takeGrant(e)
	case evStored:
		r := w.regions[e.node]
		r.stored = 0
		r.core.Saved(r.clock.read(w.now), e.gen)
		w.store(e.node)
		w.wakeRegion(e.node)
	case evSecond:
		w.judge.second(w)
		w.meters.second(w)
		w.plan(event{at: w.now + int64(time.Second), kind: evSecond})
	}
}

// due plans the wake-up of a node for reading m of its clock.
func (w *World) due(t *timer, c nodeClock, m fleet.Mono, e event) {
	at := w.now
	if m > c.read(w.now) {
		if m == fleet.Never {
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
	w.due(&n.timer, n.clock, n.core.Due(), event{kind: evEdge, node: i})
}

func (w *World) wakeRegion(i int32) {
	n := w.regions[i]
	w.due(&n.timer, n.clock, min(n.core.GrantsDue(), n.core.ReportDue()), event{kind: evRegion, node: i})
}

func (w *World) wakeGlobal() {
	n := w.global
	w.due(&n.timer, n.clock, n.core.GrantsDue(), event{kind: evGlobal})
}

// runEdge does what an edge's pump does: report when it is due.
func (w *World) runEdge(i int32) {
	n := w.edges[i]
	now := n.clock.read(w.now)
	if n.core.Due() <= now {
		for _, m := range n.core.Report(now) {
			w.send(event{kind: evReport, node: n.region, msg: &m}, w.cfg.Network.LAN)
		}
	}
	w.wakeEdge(i)
}

// runRegion does what a regional's pump does.
func (w *World) runRegion(i int32) {
	n := w.regions[i]
	now := n.clock.read(w.now)
	if n.core.GrantsDue() <= now {
		for _, g := range n.core.Grants(now) {
			if to := w.edgeNamed(i, g.To); to >= 0 {
				w.send(event{kind: evGrant, node: to, msg: &g}, w.cfg.Network.LAN)
			}
		}
	}
	if n.core.ReportDue() <= now {
		for _, m := range n.core.Report(now) {
			w.send(event{kind: evReport, node: -1, msg: &m}, w.cfg.Network.WAN)
		}
	}
	w.store(i)
	w.wakeRegion(i)
}

func (w *World) edgeNamed(region int32, name string) int32 {
	first := region * int32(w.cfg.Edges)
	for i := first; i < first+int32(w.cfg.Edges); i++ {
		if w.edges[i].name == name {
			return i
		}
	}
	return -1
}

// store begins to write what a regional wants stored.
func (w *World) store(i int32) {
	n := w.regions[i]
	if n.stored != 0 {
		return
	}
	if d, ok := n.core.Unsaved(); ok {
		n.stored = d.Version
		delay := int64(time.Millisecond) + w.rng.Int64N(int64(4*time.Millisecond))
		w.plan(event{at: w.now + delay, kind: evStored, node: i, gen: d.Version})
	}
}

func (w *World) runGlobal() {
	n := w.global
	now := n.clock.read(w.now)
	n.core.SetTime(now, w.fleetTime())
	if n.core.GrantsDue() <= now {
		for _, g := range n.core.Grants(now) {
			for i, r := range w.regions {
				if r.name == g.To {
					w.send(event{kind: evGrant, node: -1 - int32(i), msg: &g}, w.cfg.Network.WAN)
				}
			}
		}
	}
	w.wakeGlobal()
}

// send lets a message travel: half to twice the mean delay, or not at all.
func (w *World) send(e event, mean time.Duration) {
	if w.cfg.Network.Loss > 0 && w.rng.Float64() < w.cfg.Network.Loss {
		return
	}
	if w.cfg.Network.Encode {
		e.msg = w.travel(e.msg)
	}
	e.at = w.now + int64(float64(mean)*(0.5+1.5*w.rng.Float64()*w.rng.Float64()))
	w.plan(e)
}

// travel returns what arrives of a message that was encoded and decoded.
func (w *World) travel(msg any) any {
	var data []byte
	var err error
	switch m := msg.(type) {
	case *wire.Report:
		if data, err = wire.EncodeReport(m); err == nil {
			msg, err = wire.DecodeReport(data)
		}
	case *wire.Grant:
		if data, err = wire.EncodeGrant(m); err == nil {
			msg, err = wire.DecodeGrant(data)
		}
	}
	if err != nil {
		w.judge.fail(w, "a message does not survive the wire: %v", err)
	}
	return msg
}

func (w *World) takeReport(e event) {
	m := e.msg.(*wire.Report)
	if e.node < 0 {
		w.global.core.Observe(w.global.clock.read(w.now), *m)
		w.runGlobal()
		return
	}
	n := w.regions[e.node]
	n.core.Observe(n.clock.read(w.now), *m)
	w.runRegion(e.node)
}

func (w *World) takeGrant(e event) {
	g := e.msg.(*wire.Grant)
	if e.node < 0 {
		i := -1 - e.node
		n := w.regions[i]
		n.core.Apply(n.clock.read(w.now), *g)
		w.runRegion(i)
		return
	}
	n := w.edges[e.node]
	n.core.Apply(n.clock.read(w.now), *g)
	w.release(e.node)
	w.runEdge(e.node)
}
