package sim

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"vestibule/internal/core/fleettime"
)

// Target is small worlds of some minutes that stress one part of the protocol: `make mutants` runs mutants in them. A
// broken promise in one of them without a mutant is a defect of the nodes.
type Target struct {
	Name string
	Draw func(seed uint64) Config
}

// tight is the base of a target: few permits, sessions of so many seconds, more demand than the limits allow.
func tight(seed uint64, centres, edges, session int) (Config, *rand.Rand) {
	rng := rand.New(rand.NewPCG(seed, 0x68756e74))
	c := Defaults()
	c.Seed, c.Strict, c.Length, c.Cap = seed, true, 8*time.Minute, true
	c.Centres, c.Edges, c.Session = centres, edges, seconds(session)
	c.Total = 4 + rng.IntN(24)
	c.Rate = c.Total * 4
	c.Demand.PerMinute = float64(c.Total) * 3
	c.People = People{Pages: 6, Think: c.Session / 4, Patience: time.Minute, Stay: 0.5}
	c.Network = Network{LAN: time.Millisecond, WAN: 20 * time.Millisecond}
	return c, rng
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// with enables faults that last for so many seconds, one in so many on average: "stop" always, "stop/3" in one world of
// three, "stop!3" in the others.
func (c *Config) with(rng *rand.Rand, every, last int, parts string) {
	c.Faults.Every, c.Faults.Last = seconds(every), seconds(last)
	for part := range strings.FieldsSeq(parts) {
		on := true
		if at := strings.IndexAny(part, "/!"); at > 0 {
			n, err := strconv.Atoi(part[at+1:])
			if err != nil {
				panic(err) // a target is misspelled
			}
			on = (rng.IntN(n) == 0) == (part[at] == '/')
			part = part[:at]
		}
		e := enemies[slices.IndexFunc(enemies, func(e enemy) bool { return e.name == part })]
		reflect.ValueOf(c).Elem().FieldByIndex(e.fields[0]).SetBool(on)
	}
}

// late makes messages late by up to so many seconds, and some arrive twice.
func (c *Config) late(doubled, tardy float64, by int) {
	c.Faults.Doubled, c.Faults.Tardy, c.Faults.Late = doubled, tardy, seconds(by)
}

// ephemeral makes edges end for good, and few of them fit into the roster of a regional.
func (c *Config) ephemeral(rng *rand.Rand) { c.Faults.Ephemeral, c.GoneAbove = true, 1+rng.IntN(20) }

// vague makes data centres unsure of the time.
func (c *Config) vague(rng *rand.Rand) {
	c.Faults.Vague = fleettime.MaxError + time.Duration(rng.IntN(1000))*time.Millisecond
}

// stays makes visitors look at so many pages, one in so many seconds, at the same edge as before with a probability.
func (c *Config) stays(pages float64, think int, stay float64) {
	c.People.Pages, c.People.Think, c.People.Stay = pages, seconds(think), stay
}

// Targets are all of them.
var Targets = []Target{
	{"storm", func(seed uint64) Config { // a small world with all kinds of faults, for longer
		c := Small(seed)
		c.Length, c.People.Bound, c.People.Roam = 8*time.Minute, false, 0
		return c
	}},
	// Aggregators and coordinators are replaced all the time, often two at once, while replaced ones live on, writes are
	// slow, and old messages arrive late or twice.
	{"takeovers", func(seed uint64) Config {
		c, rng := tight(seed, 2, 2, 15)
		c.with(rng, 1+rng.IntN(4), 3, "crash-regional crash-global zombies disk crash-edge/2 cut-pair/3 rollback/3")
		c.late(0.1, 0.1, 6)
		if rng.IntN(3) == 0 {
			c.ephemeral(rng)
		}
		return c
	}},
	// Reports are slow, within the lease, while sessions are renewed at the last moment by clocks that disagree.
	{"expiry", func(seed uint64) Config {
		c, rng := tight(seed, 1, 3, 10)
		c.stays(6, 5+rng.IntN(4), 0.3)
		c.Network.LAN = time.Duration(1+rng.IntN(80)) * time.Millisecond
		c.with(rng, 1, 0, "cut-edge stop/2 clocks")
		c.Faults.Last = 1200 * time.Millisecond
		c.Faults.Tardy, c.Faults.Late = 0.3, 2500*time.Millisecond
		return c
	}},
	// Data centres are disconnected for longer than their lease.
	{"cutoff", func(seed uint64) Config {
		c, rng := tight(seed, 2, 2, 10+rng20(seed))
		c.Params.RegionalLease = 8 * time.Second
		c.with(rng, 15, 60, "cut-region cut-edge/2 crash-regional/3")
		return c
	}},
	// The same under partition_policy serve, with edges that end or fall silent, and late messages.
	{"serve", func(seed uint64) Config {
		c, rng := tight(seed, 1+rng20(seed)%2, 3, 10)
		c.Cap = false
		c.stays(15, 2, 0.95)
		c.with(rng, 5, 5+rng.IntN(30), "cut-edge crash-edge/2 crash-regional/2")
		c.late(0, 0.1, 10)
		return c
	}},
	// Visitors have parallel requests at several edges, lost replies, copied cookies and moves, and the network loses the
	// lists of their moves.
	{"guests", func(seed uint64) Config {
		c, rng := tight(seed, 2, 3, 10)
		c.stays(6, 3, 0.2)
		p := &c.People
		p.Parallel, p.Lost, p.Move, p.Copy = rng.Float64(), 0.05, 0.1, 0.05
		c.Network.Loss = 0.05
		c.with(rng, 5, 3, "cut-edge crash-regional")
		return c
	}},
	// Stores lose their data while aggregators are replaced: the next leader is an earlier one, not always the last.
	{"memory", func(seed uint64) Config {
		c, rng := tight(seed, 1, 2, 15)
		c.with(rng, 2+rng.IntN(3), 4, "crash-regional crash-edge wipe zombies/2 cut-edge/2")
		return c
	}},
	// Data centres are added and drained all the time, while coordinators are replaced by some with older lists, or none.
	{"fleet", func(seed uint64) Config {
		c, rng := tight(seed, 2+int(seed%2), 2, 10)
		c.Listed = c.Centres - 1
		c.with(rng, 2+rng.IntN(4), 5+rng.IntN(15), "members crash-global cut-region/2 crash-regional/3 forsake/3")
		return c
	}},
	// Reachable data centres are removed by force, while coordinators and aggregators are replaced: no permit is granted
	// twice.
	{"forced", func(seed uint64) Config {
		c, rng := tight(seed, 2+int(seed%2), 2, 10)
		c.with(rng, 2+rng.IntN(3), 3, "members forsake crash-global crash-regional/2")
		return c
	}},
	// A data centre is removed by force while it is cut off, or reachable, and added again, while coordinators and
	// aggregators are replaced in between, in any order: it uses none of the permits that others got.
	{"readmitted", func(seed uint64) Config {
		c, rng := tight(seed, 2+int(seed%2), 2, 10+rng20(seed))
		c.Cap = rng.IntN(2) == 0
		c.Length = 5 * time.Minute
		c.Params.RegionalLease = 8 * time.Second
		c.People.Pages, c.People.Think = 3, 4*time.Second
		c.with(rng, 20+rng.IntN(40), 3, "readmit crash-edge/4 disk/4 zombies/4")
		return c
	}},
	// Processes start with other edges' names, in empty folders and in copies, while those edges are disconnected or have
	// ended, under partition_policy serve.
	{"twins", func(seed uint64) Config {
		c, rng := tight(seed, 1+rng20(seed)%2, 2, 10)
		c.Cap = false
		c.stays(15, 2, 0.95)
		c.with(rng, 5, 15+rng.IntN(30), "twins folders/2 cut-edge/2 crash-regional/3 forget/2 crash-edge/2")
		return c
	}},
	// Data centres are copied onto another NATS, while coordinators and aggregators are replaced and stores lose their data.
	{"copies", func(seed uint64) Config {
		c, rng := tight(seed, 1+int(seed%3), 2, 10)
		if c.People.Pages, c.People.Stay = 12, 0.8; c.Centres > 1 {
			c.Listed = c.Centres - rng.IntN(2)
		}
		c.with(rng, 2+rng.IntN(4), 5+rng.IntN(30), "copies crash-regional/2 crash-global wipe/3 blank/3 crash-edge/3 "+
			"cut-region/3 cut-edge/3 clocks/2")
		c.Faults.Members = c.Centres > 1 && rng.IntN(2) == 0
		return c
	}},
	// Stores fail for long and lose parts of their data, while edges end and aggregators are replaced.
	{"stores", func(seed uint64) Config {
		c, rng := tight(seed, 1+rng20(seed)%2, 3, 15)
		c.stays(12, 3, 0.3)
		c.with(rng, 2+rng.IntN(3), 3+rng.IntN(10), "crash-regional crash-edge fail!3 torn!3 zombies/2 cut-edge/2 ephemeral/2")
		if c.Faults.Ephemeral {
			c.ephemeral(rng)
		}
		return c
	}},
	// Keys are rotated while edges and data centres are disconnected, for longer than a rotation.
	{"keys", func(seed uint64) Config {
		c, rng := tight(seed, 1+rng20(seed)%2, 3, 15)
		c.Cap, c.Network.Sealed = rng.IntN(2) == 0, true
		c.stays(12, 3, 0.3)
		c.with(rng, 3+rng.IntN(5), 10+rng.IntN(50), "keys cut-edge cut-region/2 crash-edge/3 crash-regional/3")
		return c
	}},
	// The room and its controls are edited all the time, while coordinators and aggregators are replaced and data centres
	// are disconnected.
	{"operators", func(seed uint64) Config {
		c, rng := tight(seed, 1+rng20(seed)%3, 2, 10)
		c.with(rng, 1+rng.IntN(4), 2+rng.IntN(20), "methods pause for-now suspend/2 renewal/2 rename/2 crash-global/2 "+
			"crash-regional/2 crash-edge/3 cut-region/2 cut-edge/3 limits/2 session/3")
		if rng.IntN(2) == 0 {
			c.Probation = 5 * time.Second
		}
		return c
	}},
	// One event follows the other, while coordinators, aggregators and edges are replaced, data centres are disconnected or
	// unsure of the time, and limits are edited and overridden.
	{"events", func(seed uint64) Config {
		c, rng := tight(seed, 1+rng20(seed)%3, 2, 10)
		c.with(rng, 1+rng.IntN(4), 2+rng.IntN(20), "events for-now/3 limits/3 crash-global/2 crash-regional/3 crash-edge/3 "+
			"cut-region/3 cut-edge/3 clocks/2")
		if rng.IntN(2) == 0 {
			c.vague(rng)
		}
		return c
	}},
	// Some visitors are released again and again while the room is paused, and coordinators, aggregators and edges are
	// replaced, links are cut and messages are late or duplicated.
	{"releases", func(seed uint64) Config {
		c, rng := tight(seed, 1+rng20(seed)%3, 2, 10)
		c.People.Stay = 0.5 + rng.Float64()/2
		c.with(rng, 1+rng.IntN(4), 2+rng.IntN(20), "release pause/2 disk/2 crash-global!4 crash-regional/2 crash-edge/2 "+
			"cut-region/2 cut-edge/2 zombies/2 rollback/4")
		if rng.IntN(2) == 0 {
			c.late(0.1, 0.1, 6)
		}
		return c
	}},
	// Events begin with a draw, while coordinators are replaced near the close of entries, edges end and clocks are off.
	{"draws", func(seed uint64) Config {
		c, rng := tight(seed, 1+rng20(seed)%3, 2, 10)
		c.Length = 2 * time.Minute
		c.with(rng, 4+rng.IntN(8), 10+rng.IntN(30), "draws crash-global!3 crash-edge/3 crash-regional/3 clocks/3 "+
			"cut-region/4 cut-edge/4")
		if rand.New(rand.NewPCG(seed, 7)).IntN(3) == 0 {
			c.vague(rng)
		}
		return c
	}},
	// The bypass rules of the room are edited all the time, while coordinators, aggregators and edges are replaced and data
	// centres are cut off.
	{"rules", func(seed uint64) Config {
		c, rng := tight(seed, 1+rng20(seed)%3, 2, 10)
		c.Demand.PerMinute *= 2
		c.with(rng, 1+rng.IntN(4), 2+rng.IntN(20), "rules pause/3 limits/3 suspend/3 crash-global/3 crash-regional/3 "+
			"crash-edge/3 cut-region/3 cut-edge/3")
		return c
	}},
	// A room is random, or is for a while, with an almost permanent queue and all kinds of faults.
	{"random", func(seed uint64) Config {
		c, rng := tight(seed, 1+rng20(seed)%3, 2, 10)
		c.Length = 3 * time.Minute
		c.Random = rng.IntN(2) == 0
		c.with(rng, 8+rng.IntN(16), 10+rng.IntN(30), "methods crash-global/3 crash-edge/3 crash-regional/3 clocks/3 "+
			"cut-region/4 cut-edge/4")
		return c
	}},
	// The whole fleet is restarted again and again, by shutdown or power cut, with some machines rebooted, while
	// aggregators and edges end on their own.
	{"restarts", func(seed uint64) Config {
		c, rng := tight(seed, 1+rng20(seed)%2, 2, 10+rng20(seed))
		c.Cap = rng.IntN(2) == 0
		c.stays(12, 3, 0.5)
		p := &c.People
		p.Quit, p.Copy, p.Old, p.Move = 0.5, 0.1*rng.Float64(), 0.3*rng.Float64(), 0.3*rng.Float64()
		c.with(rng, 4+rng.IntN(8), 1+rng.IntN(10), "restart clocks/2 crash-regional/3 crash-edge/3 crash-global/3 "+
			"cut-region/3 disk/3")
		return c
	}},
	// Edges are killed again and again, and they return in their data folders; writes of their snapshots fail or take long.
	// Often their aggregator ends too, so that only the snapshots tell their sessions.
	{"pasts", func(seed uint64) Config {
		c, rng := tight(seed, 1+rng20(seed)%2, 2, 10+rng20(seed))
		c.Cap = rng.IntN(2) == 0
		c.Demand.PerMinute *= 2
		c.stays(8, 2, 0.5)
		c.with(rng, 3+rng.IntN(6), 1+rng.IntN(4), "crash-edge pasts bad-folders/2 crash-regional/2 restart/2 cut-edge/3")
		c.Faults.OldImages = !c.Faults.CutEdge && rng.IntN(3) == 0
		return c
	}},
	// The limits are lowered and raised, while data centres are cut off and coordinators and aggregators are replaced, often
	// both at once: a limit that was lowered binds under the next coordinator too.
	{"lowered", func(seed uint64) Config {
		c, rng := tight(seed, 2+int(seed%2), 1+rng20(seed)%2, 10+rng20(seed))
		c.Cap = rng.IntN(3) == 0
		c.People.Pages, c.People.Think = 3, 4*time.Second
		c.with(rng, 3+rng.IntN(6), 10+rng.IntN(40), "limits cut-region crash-global crash-regional/2 for-now/3 disk/4 "+
			"methods/4")
		return c
	}},
}

// rng20 draws a number below 20 from the seed.
func rng20(seed uint64) int { return rand.New(rand.NewPCG(seed, 20)).IntN(20) }
