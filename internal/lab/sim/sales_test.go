package sim

import (
	"math/rand/v2"
	"testing"
	"time"

	"vestibule/internal/core/room"
)

// TestForecastsInASale: forecasts at joining a sale are close to the wait. `make figures` runs many sales.
func TestForecastsInASale(t *testing.T) {
	t.Parallel()
	var f Finding
	name, those := sellOut(&f, 8)
	f.happened(len(those.errs) >= 500, "fewer than 500 forecasts")
	f.judge("forecasts of sales: median error", name, those.Error())
	f.check(t)
}

// sale is a recognizable pattern of demand. It is drawn for a room that can admit perMinute visitors.
type sale struct {
	name   string
	demand func(rng *rand.Rand, perMinute float64) []Spike
}

// sales are the simulated sales used to evaluate forecasts.
var sales = []sale{
	{"doors open, a quiet site before", func(rng *rand.Rand, mu float64) []Spike {
		quiet, rush := 5*time.Minute, time.Duration(20+rng.IntN(100))*time.Second
		return []Spike{
			{At: 0, Length: quiet, PerMinute: 0.3 * mu},
			{At: quiet, Ramp: 10 * time.Second, Length: rush, PerMinute: between(rng, 8, 25) * mu},
			{At: quiet + rush, Length: 25 * time.Minute, PerMinute: 0.5 * mu},
		}
	}},
	{"doors open, an empty site before", func(rng *rand.Rand, mu float64) []Spike {
		open, rush := time.Minute, time.Duration(60+rng.IntN(180))*time.Second
		return []Spike{
			{At: open, Ramp: 10 * time.Second, Length: rush, PerMinute: between(rng, 5, 12) * mu},
			{At: open + rush, Length: 30 * time.Minute, PerMinute: between(rng, 0.3, 0.8) * mu},
		}
	}},
	{"a third too many, all day", func(rng *rand.Rand, mu float64) []Spike {
		return []Spike{{At: time.Second, Length: 50 * time.Minute, PerMinute: between(rng, 1.2, 1.5) * mu}}
	}},
	{"waves", func(rng *rand.Rand, mu float64) (out []Spike) {
		for i := range 3 {
			at, high := time.Duration(i)*20*time.Minute, time.Duration(4+rng.IntN(6))*time.Minute
			out = append(out,
				Spike{At: at, Ramp: time.Minute, Length: high, PerMinute: between(rng, 2, 4) * mu},
				Spike{At: at + high, Length: 20*time.Minute - high, PerMinute: between(rng, 0.2, 0.7) * mu})
		}
		return out
	}},
}

// between draws a number between a and b.
func between(rng *rand.Rand, a, b float64) float64 { return a + (b-a)*rng.Float64() }

// sellOut draws a sale and runs it until the queue is empty. The effective limit, the session length and the patience
// are drawn too: R limits one room in three, and in another third R limits until T does.
func sellOut(f *Finding, seed uint64) (name string, those *Words) {
	rng := rand.New(rand.NewPCG(seed, 0x73616c65))
	s := sales[seed%uint64(len(sales))]
	c := Defaults()
	c.Seed, c.Probation = seed, room.DefaultProbation
	c.Centres, c.Edges = 1+rng.IntN(3), 1+rng.IntN(4)
	c.Total = 200 + rng.IntN(1300)
	c.Session = time.Duration(1+rng.IntN(5)) * time.Minute
	c.People.Think = time.Duration(5+rng.IntN(25)) * time.Second
	c.People.Pages = between(rng, 2, 10)
	c.People.Patience = time.Duration(10+rng.IntN(50)) * time.Minute
	stay := c.Session + time.Duration(c.People.Pages*float64(c.People.Think))
	perMinute := float64(c.Total) / stay.Minutes()
	switch rng.IntN(3) {
	case 0:
		c.Rate = int(perMinute * between(rng, 0.5, 0.9))
		perMinute = float64(c.Rate)
	case 1:
		c.Rate = int(perMinute * between(rng, 1.5, 4))
	default:
		c.Rate = 100 * c.Total
	}
	c.Demand = Demand{Spikes: s.demand(rng, perMinute)}
	last := time.Duration(0)
	for _, spike := range c.Demand.Spikes {
		last = max(last, spike.At+spike.Length)
	}
	w := New(c)
	w.meters.listen()
	w.runFor(last + warmUp)
	w.letIn(6 * time.Hour)
	f.take(w.result())
	return s.name, w.meters.words
}

// forecasts runs many sales, and compares the forecasts at joining with the outcomes.
func forecasts(f *Finding, seeds int) {
	var all Words
	kinds := map[string]*Words{}
	for seed := range uint64(seeds) {
		name, those := sellOut(f, seed)
		if all.Add(those); kinds[name] == nil {
			kinds[name] = &Words{}
		}
		kinds[name].Add(those)
	}
	f.judge("forecasts of sales: median error", "", all.Error())
	f.judge("forecasts of sales: waits inside the range", "", all.Covered())
	f.add("", "%.3f / %.3f (%d people in %d sales)", all.Error(), all.Covered(), len(all.errs), seeds)
	for _, s := range sales {
		if those := kinds[s.name]; those != nil {
			f.note("%s: %s", s.name, those)
		}
	}
}
