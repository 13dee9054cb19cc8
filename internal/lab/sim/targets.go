package sim

import (
	"math/rand/v2"
	"time"

	"vestibule/internal/core/fleettime"
)

// Targets are small worlds of eight minutes, each stressing one part of the protocol: `make mutants` runs mutants in
// them. A broken promise in one of them without a mutant is a defect of the nodes.
var Targets = []Target{
	{"storm", Storm},
	{"takeovers", Takeovers},
	{"expiry", ExpiryEdge},
	{"cutoff", Cutoff},
	{"serve", CutoffServe},
	{"guests", Guests},
	{"memory", Memory},
	{"fleet", Fleet},
	{"forced", Forced},
	{"twins", Twins},
	{"copies", Copies},
	{"stores", Stores},
	{"keys", Keys},
	{"operators", Operators},
	{"events", Events},
	{"releases", Releases},
	{"draws", Draws},
	{"rules", Bypasses},
	{"random", Random},
	{"restarts", Restarts},
	{"pasts", Pasts},
	{"lowered", Lowered},
}

// Target is one of [Targets].
type Target struct {
	Name string
	Draw func(seed uint64) Config
}

const targetLength = 8 * time.Minute

// Storm is a small world with all kinds of faults, for longer.
func Storm(seed uint64) Config {
	c := Small(seed)
	c.Length, c.People.Bound, c.People.Roam = targetLength, false, 0
	return c
}

// tight is the base of a target: few permits, short sessions, overcommit demand.
func tight(seed uint64, centres, edges int, session time.Duration) (Config, *rand.Rand) {
	rng := rand.New(rand.NewPCG(seed, 0x68756e74))
	c := Defaults()
	c.Seed, c.Strict, c.Length, c.Cap = seed, true, targetLength, true
	c.Centres, c.Edges, c.Session = centres, edges, session
	c.Total = 4 + rng.IntN(24)
	c.Rate = c.Total * 4
	c.Demand.PerMinute = float64(c.Total) * 3
	c.People = People{Pages: 6, Think: session / 4, Patience: time.Minute, Stay: 0.5}
	c.Network = Network{LAN: time.Millisecond, WAN: 20 * time.Millisecond}
	return c, rng
}

// Takeovers replaces aggregators and coordinators all the time, often two at once, while replaced ones live on, writes
// are slow, and old messages arrive late or twice.
func Takeovers(seed uint64) Config {
	c, rng := tight(seed, 2, 2, 15*time.Second)
	f := &c.Faults
	f.Every, f.Last = time.Duration(1+rng.IntN(4))*time.Second, 3*time.Second
	f.CrashRegion, f.CrashGlobal, f.Zombies, f.Disk = true, true, true, true
	f.CrashEdge, f.CutPair, f.Rollback = rng.IntN(2) == 0, rng.IntN(3) == 0, rng.IntN(3) == 0
	f.Doubled, f.Tardy, f.Late = 0.1, 0.1, 6*time.Second
	if rng.IntN(3) == 0 {
		f.Ephemeral, c.GoneAbove = true, 1+rng.IntN(20)
	}
	return c
}

// ExpiryEdge has slow reports, within the lease, while sessions are renewed at the last moment by clocks that disagree.
func ExpiryEdge(seed uint64) Config {
	c, rng := tight(seed, 1, 3, 10*time.Second)
	c.People.Think, c.People.Stay = time.Duration(5+rng.IntN(4))*time.Second, 0.3
	c.Network.LAN = time.Duration(1+rng.IntN(80)) * time.Millisecond
	f := &c.Faults
	f.Every, f.Last = time.Second, 1200*time.Millisecond
	f.CutEdge, f.Stop, f.Clocks = true, rng.IntN(2) == 0, true
	f.Tardy, f.Late = 0.3, 2500*time.Millisecond
	return c
}

// Cutoff disconnects data centres for longer than their lease.
func Cutoff(seed uint64) Config {
	c, rng := tight(seed, 2, 2, time.Duration(10+rng20(seed))*time.Second)
	c.Params.RegionalLease = 8 * time.Second
	f := &c.Faults
	f.Every, f.Last = 15*time.Second, time.Minute
	f.CutRegion, f.CutEdge, f.CrashRegion = true, rng.IntN(2) == 0, rng.IntN(3) == 0
	return c
}

// CutoffServe does the same under partition_policy serve, with edges that end or fall silent, and late messages.
func CutoffServe(seed uint64) Config {
	c, rng := tight(seed, 1+rng20(seed)%2, 3, 10*time.Second)
	c.Cap = false
	c.People.Pages, c.People.Think, c.People.Stay = 15, 2*time.Second, 0.95 // they stay at their edge
	f := &c.Faults
	f.Every, f.Last = 5*time.Second, time.Duration(5+rng.IntN(30))*time.Second
	f.CutEdge, f.CrashEdge, f.CrashRegion = true, rng.IntN(2) == 0, rng.IntN(2) == 0
	f.Tardy, f.Late = 0.1, 10*time.Second
	return c
}

// Guests has visitors with parallel requests at several edges, lost replies, copied cookies and moves, and a network
// that loses the lists of their moves.
func Guests(seed uint64) Config {
	c, rng := tight(seed, 2, 3, 10*time.Second)
	p := &c.People
	p.Think, p.Stay = 3*time.Second, 0.2
	p.Parallel, p.Lost, p.Move, p.Copy = rng.Float64(), 0.05, 0.1, 0.05
	c.Network.Loss = 0.05
	f := &c.Faults
	f.Every, f.Last = 5*time.Second, 3*time.Second
	f.CutEdge, f.CrashRegion = true, true
	return c
}

// Fleet adds and drains data centres all the time, while coordinators are replaced by some with older lists, or none.
func Fleet(seed uint64) Config {
	c, rng := tight(seed, 2+int(seed%2), 2, 10*time.Second)
	c.Listed = c.Centres - 1
	f := &c.Faults
	f.Every, f.Last = time.Duration(2+rng.IntN(4))*time.Second, time.Duration(5+rng.IntN(15))*time.Second
	f.Members, f.CrashGlobal, f.CutRegion = true, true, rng.IntN(2) == 0
	f.CrashRegion, f.Forsake = rng.IntN(3) == 0, rng.IntN(3) == 0
	return c
}

// Forced removes reachable data centres by force, while coordinators and aggregators are replaced: no permit is granted
// twice.
func Forced(seed uint64) Config {
	c, rng := tight(seed, 2+int(seed%2), 2, 10*time.Second)
	f := &c.Faults
	f.Every, f.Last = time.Duration(2+rng.IntN(3))*time.Second, 3*time.Second
	f.Members, f.Forsake, f.CrashGlobal = true, true, true
	f.CrashRegion = rng.IntN(2) == 0
	return c
}

// Copies copies data centres onto another NATS, while coordinators and aggregators are replaced and stores lose their
// data.
func Copies(seed uint64) Config {
	c, rng := tight(seed, 1+int(seed%3), 2, 10*time.Second)
	if c.People.Pages, c.People.Stay = 12, 0.8; c.Centres > 1 {
		c.Listed = c.Centres - rng.IntN(2)
	}
	f := &c.Faults
	f.Every, f.Last = time.Duration(2+rng.IntN(4))*time.Second, time.Duration(5+rng.IntN(30))*time.Second
	f.Copies, f.CrashRegion, f.CrashGlobal = true, rng.IntN(2) == 0, true
	f.Wipe, f.Blank, f.CrashEdge = rng.IntN(3) == 0, rng.IntN(3) == 0, rng.IntN(3) == 0
	f.CutRegion, f.CutEdge, f.Clocks = rng.IntN(3) == 0, rng.IntN(3) == 0, rng.IntN(2) == 0
	f.Members = c.Centres > 1 && rng.IntN(2) == 0
	return c
}

// Stores has stores that fail for long and lose parts of their data, while edges end and aggregators are replaced.
func Stores(seed uint64) Config {
	c, rng := tight(seed, 1+rng20(seed)%2, 3, 15*time.Second)
	c.People.Pages, c.People.Think, c.People.Stay = 12, 3*time.Second, 0.3
	f := &c.Faults
	f.Every, f.Last = time.Duration(2+rng.IntN(3))*time.Second, time.Duration(3+rng.IntN(10))*time.Second
	f.CrashRegion, f.CrashEdge, f.Fail, f.Torn = true, true, rng.IntN(3) > 0, rng.IntN(3) > 0
	f.Zombies, f.CutEdge, f.Ephemeral = rng.IntN(2) == 0, rng.IntN(2) == 0, rng.IntN(2) == 0
	if f.Ephemeral {
		c.GoneAbove = 1 + rng.IntN(20)
	}
	return c
}

// Keys rotates keys while edges and data centres are disconnected, for longer than a rotation.
func Keys(seed uint64) Config {
	c, rng := tight(seed, 1+rng20(seed)%2, 3, 15*time.Second)
	c.Cap, c.Network.Sealed = rng.IntN(2) == 0, true
	c.People.Pages, c.People.Think, c.People.Stay = 12, 3*time.Second, 0.3
	f := &c.Faults
	f.Every, f.Last = time.Duration(3+rng.IntN(5))*time.Second, time.Duration(10+rng.IntN(50))*time.Second
	f.Keys, f.CutEdge, f.CutRegion = true, true, rng.IntN(2) == 0
	f.CrashEdge, f.CrashRegion = rng.IntN(3) == 0, rng.IntN(3) == 0
	return c
}

// Operators edits the room and its controls all the time, while coordinators and aggregators are replaced and data
// centres are disconnected.
func Operators(seed uint64) Config {
	c, rng := tight(seed, 1+rng20(seed)%3, 2, 10*time.Second)
	f := &c.Faults
	f.Every, f.Last = time.Duration(1+rng.IntN(4))*time.Second, time.Duration(2+rng.IntN(20))*time.Second
	f.Methods, f.Pause, f.ForNow, f.Suspend, f.Renewal, f.Rename = true, true, true, rng.IntN(2) == 0, rng.IntN(2) == 0,
		rng.IntN(2) == 0
	f.CrashGlobal, f.CrashRegion, f.CrashEdge = rng.IntN(2) == 0, rng.IntN(2) == 0, rng.IntN(3) == 0
	f.CutRegion, f.CutEdge, f.Limits, f.Session = rng.IntN(2) == 0, rng.IntN(3) == 0, rng.IntN(2) == 0, rng.IntN(3) == 0
	if rng.IntN(2) == 0 {
		c.Probation = 5 * time.Second
	}
	return c
}

// Events has one event after the other, while coordinators, aggregators and edges are replaced, data centres are
// disconnected or unsure of the time, and limits are edited and overridden.
func Events(seed uint64) Config {
	c, rng := tight(seed, 1+rng20(seed)%3, 2, 10*time.Second)
	f := &c.Faults
	f.Every, f.Last = time.Duration(1+rng.IntN(4))*time.Second, time.Duration(2+rng.IntN(20))*time.Second
	f.Events, f.ForNow, f.Limits = true, rng.IntN(3) == 0, rng.IntN(3) == 0
	f.CrashGlobal, f.CrashRegion, f.CrashEdge = rng.IntN(2) == 0, rng.IntN(3) == 0, rng.IntN(3) == 0
	f.CutRegion, f.CutEdge, f.Clocks = rng.IntN(3) == 0, rng.IntN(3) == 0, rng.IntN(2) == 0
	if rng.IntN(2) == 0 {
		f.Vague = fleettime.MaxError + time.Duration(rng.IntN(1000))*time.Millisecond
	}
	return c
}

// Releases releases some visitors again and again while the room is paused, and coordinators, aggregators and edges are
// replaced, links are cut and messages are late or duplicated.
func Releases(seed uint64) Config {
	c, rng := tight(seed, 1+rng20(seed)%3, 2, 10*time.Second)
	c.People.Stay = 0.5 + rng.Float64()/2
	f := &c.Faults
	f.Every, f.Last = time.Duration(1+rng.IntN(4))*time.Second, time.Duration(2+rng.IntN(20))*time.Second
	f.Release, f.Pause, f.Disk = true, rng.IntN(2) == 0, rng.IntN(2) == 0
	f.CrashGlobal, f.CrashRegion, f.CrashEdge = rng.IntN(4) > 0, rng.IntN(2) == 0, rng.IntN(2) == 0
	f.CutRegion, f.CutEdge, f.Zombies, f.Rollback = rng.IntN(2) == 0, rng.IntN(2) == 0, rng.IntN(2) == 0, rng.IntN(4) == 0
	if rng.IntN(2) == 0 {
		f.Doubled, f.Tardy, f.Late = 0.1, 0.1, 6*time.Second
	}
	return c
}

// Twins starts processes with other edges' names, in empty folders and in copies, while those edges are disconnected or
// have ended, under partition_policy serve.
func Twins(seed uint64) Config {
	c, rng := tight(seed, 1+rng20(seed)%2, 2, 10*time.Second)
	c.Cap = false
	c.People.Pages, c.People.Think, c.People.Stay = 15, 2*time.Second, 0.95 // they stay at their edge
	f := &c.Faults
	f.Every, f.Last = 5*time.Second, time.Duration(15+rng.IntN(30))*time.Second
	f.Twins, f.Folders, f.CutEdge, f.CrashRegion = true, rng.IntN(2) == 0, rng.IntN(2) == 0, rng.IntN(3) == 0
	f.Forget, f.CrashEdge = rng.IntN(2) == 0, rng.IntN(2) == 0
	return c
}

// Memory has stores that lose their data while aggregators are replaced: the next leader is an earlier one, not always
// the last.
func Memory(seed uint64) Config {
	c, rng := tight(seed, 1, 2, 15*time.Second)
	f := &c.Faults
	f.Every, f.Last = time.Duration(2+rng.IntN(3))*time.Second, 4*time.Second
	f.CrashRegion, f.CrashEdge, f.Wipe, f.Zombies = true, true, true, rng.IntN(2) == 0
	f.CutEdge = rng.IntN(2) == 0
	return c
}

// Restarts restarts the whole fleet again and again, by shutdown or power cut, with some machines rebooted, while
// aggregators and edges end on their own.
func Restarts(seed uint64) Config {
	c, rng := tight(seed, 1+rng20(seed)%2, 2, time.Duration(10+rng20(seed))*time.Second)
	c.Cap = rng.IntN(2) == 0
	c.People.Pages, c.People.Think, c.People.Quit, c.People.Stay = 12, 3*time.Second, 0.5, 0.5
	c.People.Copy, c.People.Old, c.People.Move = 0.1*rng.Float64(), 0.3*rng.Float64(), 0.3*rng.Float64()
	f := &c.Faults
	f.Every, f.Last = time.Duration(4+rng.IntN(8))*time.Second, time.Duration(1+rng.IntN(10))*time.Second
	f.Restart, f.Clocks = true, rng.IntN(2) == 0
	f.CrashRegion, f.CrashEdge, f.CrashGlobal = rng.IntN(3) == 0, rng.IntN(3) == 0, rng.IntN(3) == 0
	f.CutRegion, f.Disk = rng.IntN(3) == 0, rng.IntN(3) == 0
	return c
}

// Pasts kills edges again and again, and they return in their data folders; writes of their snapshots fail or take
// long. Often their aggregator ends too, so that only the snapshots tell their sessions.
func Pasts(seed uint64) Config {
	c, rng := tight(seed, 1+rng20(seed)%2, 2, time.Duration(10+rng20(seed))*time.Second)
	c.Cap = rng.IntN(2) == 0
	c.Demand.PerMinute *= 2
	c.People.Pages, c.People.Think, c.People.Stay = 8, 2*time.Second, 0.5
	f := &c.Faults
	f.Every, f.Last = time.Duration(3+rng.IntN(6))*time.Second, time.Duration(1+rng.IntN(4))*time.Second
	f.CrashEdge, f.Pasts, f.BadFolders = true, true, rng.IntN(2) == 0
	f.CrashRegion, f.Restart, f.CutEdge = rng.IntN(2) == 0, rng.IntN(2) == 0, rng.IntN(3) == 0
	f.OldImages = !f.CutEdge && rng.IntN(3) == 0
	return c
}

// Lowered lowers and raises the limits, while data centres are cut off and coordinators and aggregators are replaced,
// often both at once: a limit that was lowered binds under the next coordinator too.
func Lowered(seed uint64) Config {
	c, rng := tight(seed, 2+int(seed%2), 1+rng20(seed)%2, time.Duration(10+rng20(seed))*time.Second)
	c.Cap = rng.IntN(3) == 0
	c.People.Pages, c.People.Think = 3, 4*time.Second
	f := &c.Faults
	f.Every, f.Last = time.Duration(3+rng.IntN(6))*time.Second, time.Duration(10+rng.IntN(40))*time.Second
	f.Limits, f.CutRegion, f.CrashGlobal, f.CrashRegion = true, true, true, rng.IntN(2) == 0
	f.ForNow, f.Disk, f.Methods = rng.IntN(3) == 0, rng.IntN(4) == 0, rng.IntN(4) == 0
	return c
}

// rng20 draws a number below 20 from the seed.
func rng20(seed uint64) int { return rand.New(rand.NewPCG(seed, 20)).IntN(20) }
