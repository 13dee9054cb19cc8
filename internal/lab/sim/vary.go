package sim

import (
	"math"
	"math/rand/v2"
	"time"

	"vestibule/internal/core/fleettime"
)

// Vary returns an experiment drawn from seed: fleet, limits, network and visitors, from rooms of one permit to
// thousands, idle to four times overloaded. Equal seeds give equal experiments.
func Vary(seed uint64) Config {
	rng := rand.New(rand.NewPCG(seed, 0x76617279))
	between := func(lo, hi float64) float64 { return lo * math.Pow(hi/lo, rng.Float64()) } // log-uniform
	length := func(lo, hi time.Duration) time.Duration {
		return time.Duration(between(float64(lo), float64(hi))).Round(time.Millisecond)
	}
	some := func(p float64) bool { return rng.Float64() < p }

	c := Defaults()
	c.Seed = seed
	c.Centres, c.Edges = 1+rng.IntN(6), 1+rng.IntN(6)
	c.Length = length(3*time.Minute, 8*time.Minute)
	c.Total = int(between(1, 3000))
	c.Session = length(10*time.Second, 5*time.Minute)
	c.Cap = some(0.5)

	p := &c.People
	p.Pages, p.Think, p.Stay = between(1, 12), length(2*time.Second, 30*time.Second), rng.Float64()
	if p.Patience = length(20*time.Second, time.Hour); some(0.2) {
		p.Patience = 0
	}
	if some(0.3) {
		p.Robots = rng.Float64() / 2
	}

	if some(0.4) {
		p.Parallel = rng.Float64()
	}
	if some(0.2) {
		p.Lost = between(0.001, 0.1)
	}

	// The capacity per minute by T alone; R limits about half of the experiments.
	stay := time.Duration(p.Pages*float64(p.Think)) + c.Session
	perMinute := float64(c.Total) / stay.Minutes()
	c.Rate = max(1, int(perMinute*between(0.3, 3)))
	c.Demand.PerMinute = min(3000, max(1, min(perMinute, float64(c.Rate))*between(0.2, 4)))
	for range rng.IntN(3) {
		c.Demand.Spikes = append(c.Demand.Spikes, Spike{
			At: length(5*time.Second, c.Length), Ramp: length(time.Second, time.Minute),
			Length:    length(10*time.Second, 2*time.Minute),
			PerMinute: c.Demand.PerMinute * between(0.5, 5), Centre: rng.IntN(c.Centres + 1),
		})
	}
	if some(0.3) {
		c.Demand.Skew = rng.Float64()
	}

	n := &c.Network
	n.LAN, n.WAN = length(100*time.Microsecond, 5*time.Millisecond), length(time.Millisecond, 200*time.Millisecond)
	if some(0.5) {
		n.Loss = between(0.001, 0.1)
	}
	n.Encode = some(0.1)

	p.enemies(rng, 0.3)
	n.Sealed = some(0.1)
	if some(0.5) {
		c.Probation = length(5*time.Second, 2*time.Minute).Round(time.Second)
	}
	p.bind(seed)
	return c
}

// enemies draws misbehaviour of visitors: each kind with probability often.
func (p *People) enemies(rng *rand.Rand, often float64) {
	for _, e := range []struct {
		share *float64
		most  float64
	}{{&p.Move, 0.5}, {&p.Copy, 0.1}, {&p.Old, 0.3}, {&p.Drop, 0.1}, {&p.Burst, 0.05}, {&p.Quit, 1}} {
		x, y := rng.Float64(), rng.Float64()
		if x < often {
			*e.share = e.most * y
		}
	}
}

// bind draws whether tickets are bound to networks, and how often visitors change network.
func (p *People) bind(seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0x62696e64))
	if rng.Float64() < 0.2 {
		p.Bound, p.Roam = true, rng.Float64()/5
	}
}

// VaryFaults returns an experiment with faults drawn from seed. Each seed draws its kinds of faults.
func VaryFaults(seed uint64) Config {
	c := Vary(seed)
	c.Length += 2 * time.Minute
	rng := rand.New(rand.NewPCG(seed, 0x6661756c74))
	c.Faults.Every = time.Duration(3+rng.IntN(30)) * time.Second
	c.Faults.Last = []time.Duration{300 * time.Millisecond, 3 * time.Second, 15 * time.Second, time.Minute}[rng.IntN(4)]
	c.enableFaults(rng)
	c.Faults.restart(seed)
	return c
}

// enableFaults draws the kinds of faults.
func (c *Config) enableFaults(rng *rand.Rand) {
	some := func(p float64) bool { return rng.Float64() < p }
	f := &c.Faults
	c.Cap = some(0.7)
	f.CrashEdge, f.CrashRegion, f.CrashGlobal = some(0.6), some(0.6), some(0.6)
	f.Zombies, f.CutEdge, f.CutRegion = some(0.5), some(0.5), some(0.5)
	f.Stop, f.Limits, f.Disk, f.Clocks = some(0.4), some(0.3), some(0.4), some(0.4)
	if some(0.5) {
		f.Doubled, f.Tardy, f.Late = rng.Float64()*0.1, rng.Float64()*0.1, time.Duration(1+rng.IntN(10000))*time.Millisecond
	}
	if some(0.3) {
		c.Params.RegionalLease = 10 * time.Second
	}
	// Not policy: an aggregator must know first whether an edge may renew without a lease, which nothing
	// ensures.
	f.CutPair, f.Forever, f.Session = some(0.3), some(0.15), some(0.2)
	f.Epoch, f.Remove, f.Blank, f.Rollback = some(0.15), some(0.15), some(0.1), some(0.3)
	f.Keys = c.Network.Sealed && some(0.7)
	f.Wipe = some(0.1)
	if f.Ephemeral = some(0.2); f.Ephemeral {
		c.GoneAbove = 1 + rng.IntN(60)
	}
	if some(0.2) {
		most := min(c.Session/8, 3*time.Second)
		f.Vague = fleettime.MaxError + time.Duration(rng.Float64()*float64(most)).Round(time.Millisecond)
	}
	f.Members, f.Forsake = some(0.3), some(0.3)
	f.Twins, f.Folders, f.Forget = some(0.2), some(0.2), some(0.2)
	f.Copies, f.Fail, f.Torn = some(0.2), some(0.2), some(0.15)
	if some(0.35) {
		f.Methods, f.Pause, f.ForNow = some(0.6), some(0.5), some(0.5)
		f.Suspend, f.Renewal, f.Rename = some(0.3), some(0.4), some(0.3)
		f.Release = some(0.4)
	}
}

// thenCalm ends all faults after the present length of the run, and adds the time of the recovery.
func (c *Config) thenCalm() {
	longest := c.Session
	if c.Faults.Session {
		longest *= 2
	}
	c.Faults.Until, c.Calm = c.Length, c.Length
	c.Length += recoveryLength(longest, c.Faults.Vague)
}

// Small returns a small world drawn from seed: a few edges, few permits, short sessions, permanent faults, checked
// after every event. Most defects show in small worlds, and many fit into an hour.
func Small(seed uint64) Config {
	rng := rand.New(rand.NewPCG(seed, 0x736d616c6c))
	between := func(lo, hi float64) float64 { return lo * math.Pow(hi/lo, rng.Float64()) }
	length := func(lo, hi time.Duration) time.Duration {
		return time.Duration(between(float64(lo), float64(hi))).Round(time.Millisecond)
	}
	some := func(p float64) bool { return rng.Float64() < p }

	c := Defaults()
	c.Seed, c.Strict = seed, true
	c.Centres, c.Edges = 1+rng.IntN(3), 1+rng.IntN(4)
	c.Length = length(40*time.Second, 150*time.Second)
	c.Total = int(between(1, 60))
	c.Session = length(10*time.Second, 40*time.Second)

	p := &c.People
	p.Pages, p.Think, p.Stay = between(1, 6), length(time.Second, 10*time.Second), rng.Float64()
	if p.Patience = length(10*time.Second, 5*time.Minute); some(0.2) {
		p.Patience = 0
	}
	if some(0.2) {
		p.Robots = rng.Float64() / 2
	}
	if some(0.3) {
		p.Parallel = rng.Float64()
	}
	if some(0.3) {
		p.Lost = between(0.001, 0.1)
	}
	stay := time.Duration(p.Pages*float64(p.Think)) + c.Session
	perMinute := float64(c.Total) / stay.Minutes()
	c.Rate = max(1, int(perMinute*between(0.3, 4)))
	c.Demand.PerMinute = min(300, max(2, min(perMinute, float64(c.Rate))*between(0.5, 4)))
	n := &c.Network
	// With round trips above 250 ms a new leader waits for longer than these worlds.
	n.LAN, n.WAN = length(100*time.Microsecond, 20*time.Millisecond), length(time.Millisecond, 80*time.Millisecond)
	if some(0.4) {
		n.Loss = between(0.001, 0.1)
	}
	p.enemies(rng, 0.4)
	n.Sealed = some(0.1)
	if some(0.5) {
		c.Probation = time.Duration(2+rng.IntN(20)) * time.Second
	}

	c.Faults.Every = length(800*time.Millisecond, 15*time.Second)
	c.Faults.Last = []time.Duration{
		300 * time.Millisecond, 3 * time.Second, 10 * time.Second,
		30 * time.Second,
	}[rng.IntN(4)]
	c.enableFaults(rng)
	c.Faults.Events = rand.New(rand.NewPCG(seed, 0x6576656e)).IntN(8) == 0
	c.Faults.Draws = !c.Faults.Events && rand.New(rand.NewPCG(seed, 0x64726177)).IntN(8) == 0
	c.Faults.Rules = rand.New(rand.NewPCG(seed, 0x72756c65)).IntN(8) == 0
	c.Faults.Busy = rand.New(rand.NewPCG(seed, 0x62757379)).IntN(4) == 0
	c.Network.Encode = rand.New(rand.NewPCG(seed, 0x656e636f)).IntN(8) == 0
	if rand.New(rand.NewPCG(seed, 0x64726f70)).IntN(5) == 0 {
		c.Faults.Remove, c.Faults.Drop = true, true
		c.Length += 80 * time.Second
	}
	if rng := rand.New(rand.NewPCG(seed, 0x72656164)); c.Centres > 1 && rng.IntN(10) == 0 {
		c.Faults.Readmit = true
		c.Length += time.Duration(rng.IntN(150)) * time.Second
	}
	c.Faults.restart(seed)
	c.thenCalm()
	p.bind(seed)
	return c
}

// restart draws whether the whole fleet is restarted, and whether processes store fleet time.
func (f *Faults) restart(seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0x72657374))
	f.Restart, f.Forgetful = rng.IntN(4) == 0, rng.IntN(3) == 0
	if f.Pasts = rng.IntN(3) > 0; f.Pasts {
		f.BadFolders = rng.IntN(3) == 0
		f.OldImages = !f.CutEdge && rng.IntN(3) == 0
	}
}
