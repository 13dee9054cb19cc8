package sim

import (
	"math"
	"math/rand/v2"
	"time"
)

// Vary returns an experiment drawn from seed: another fleet, other limits,
// another network and other people for every seed, from rooms of one slot to
// thousands, idle to four times overrun. Equal seeds give equal experiments.
func Vary(seed uint64) Config {
	rng := rand.New(rand.NewPCG(seed, 0x76617279))
	between := func(lo, hi float64) float64 { return lo * math.Pow(hi/lo, rng.Float64()) } // evenly in the logarithm
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

	// How many can be served in a minute, if only T counted; R binds in about
	// half of the experiments.
	stay := time.Duration(p.Pages*float64(p.Think)) + c.Session
	perMinute := float64(c.Total) / stay.Minutes()
	c.Rate = max(1, int(perMinute*between(0.3, 3)))
	c.Demand.PerMinute = min(3000, max(1, min(perMinute, float64(c.Rate))*between(0.2, 4)))
	for range rng.IntN(3) {
		c.Demand.Spikes = append(c.Demand.Spikes, Spike{
			At: length(5*time.Second, c.Length), Ramp: length(time.Second, time.Minute), Length: length(10*time.Second, 2*time.Minute),
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
	return c
}
