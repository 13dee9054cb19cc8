package estimate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestRangesHoldFourOfFive: whatever the ratio of waits to forecasts, four of five end up in the published range,
// also after a change.
func TestRangesHoldFourOfFive(t *testing.T) {
	for _, c := range []struct {
		why   string
		ratio func(rng *rand.Rand, i int) float64 // as a logarithm
	}{
		{"a little off to both sides", func(rng *rand.Rand, _ int) float64 { return 0.03 * rng.NormFloat64() }},
		{"far off to both sides", func(rng *rand.Rand, _ int) float64 { return 0.5 * rng.NormFloat64() }},
		{"always longer", func(rng *rand.Rand, _ int) float64 { return 0.1 + 0.2*rng.Float64() }},
		{"always shorter", func(rng *rand.Rand, _ int) float64 { return -0.3 * rng.Float64() }},
		{"good forecasts that become bad", func(rng *rand.Rand, i int) float64 {
			return []float64{0.02, 0.3}[i*2/30_000] * rng.NormFloat64()
		}},
		{"off by what nobody would believe", func(rng *rand.Rand, _ int) float64 { return 3 * rng.NormFloat64() }},
	} {
		rng := rand.New(rand.NewPCG(1, 2))
		var s Spread
		var o OutcomeCounter
		inside, n := 0, 0
		for i := range 30_000 {
			forecast := 10 * time.Minute
			x := c.ratio(rng, i)
			actual := time.Duration(math.Exp(min(x, 4))*float64(forecast+graceful)) - graceful
			r := s.Ranges(Doubt{})
			low, high := r.Of(forecast)
			if low > forecast || high < forecast || low < 0 {
				t.Fatalf("%s: %v to %v", c.why, low, high)
			}
			if i > 2000 {
				n++
				if low <= actual && actual <= high {
					inside++
				}
			}
			o.Add(forecast, actual)
			s.Take(o.Outcomes())
		}
		// Beyond the outermost bound waits cannot be distinguished.
		if share := float64(inside) / float64(n); math.Abs(share-0.8) > 0.03 && c.why != "off by what nobody would believe" {
			t.Errorf("%s: %.3f inside", c.why, share)
		}
	}
}

func TestRangesByClass(t *testing.T) {
	var s Spread
	var o OutcomeCounter
	for range 2000 {
		o.Add(30*time.Second, 60*time.Second)
		o.Add(time.Hour, 61*time.Minute)
	}
	s.Take(o.Outcomes())
	s.Take(slices.Clone(o.Outcomes())) // unchanged outcomes
	r := s.Ranges(Doubt{})
	if _, high := r.Of(30 * time.Second); high < 50*time.Second {
		t.Errorf("half a minute takes up to %v, though it took twice as long each time", high)
	}
	if _, high := r.Of(time.Hour); high < 60*time.Minute || high > 63*time.Minute {
		t.Errorf("an hour takes up to %v", high)
	}
	doubt := s.Ranges(Doubt{Stay: 0.2})
	a, b := r.Of(time.Hour)
	x, y := doubt.Of(time.Hour)
	if x >= a || y <= b {
		t.Errorf("in doubt %v to %v, without %v to %v", x, y, a, b)
	}
	byRate := s.Ranges(Doubt{ByRate: true})
	if low, high := byRate.Of(time.Hour); high > b || low < a {
		t.Errorf("by R %v to %v, by T %v to %v", low, high, a, b)
	}
	var none Ranges
	if low, high := none.Of(time.Hour); low != time.Hour || high != time.Hour {
		t.Errorf("without a range: %v to %v", low, high)
	}
}

// TestOutcomesGain: a chain of counters, some of which restart, passes on all counts.
func TestOutcomesGain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var child, seen, parent, all Outcomes
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "do") {
			case 0: // the child restarts, and is recognised by that
				parent, _ = parent.Gain(seen, child)
				child, seen = nil, nil
			case 1, 2:
				parent, _ = parent.Gain(seen, child)
				seen = slices.Clone(child)
			default:
				f := time.Duration(rapid.IntRange(0, 4000).Draw(t, "forecast")) * time.Second
				a := time.Duration(rapid.IntRange(0, 9000).Draw(t, "actual")) * time.Second
				child, all = child.Add(f, a), all.Add(f, a)
			}
		}
		parent, _ = parent.Gain(seen, child)
		if !slices.Equal(parent, all) {
			t.Fatalf("counted %v, passed on %v", all, parent)
		}
	})
}
