package estimate

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// steady is one pace for ever.
func steady(mu float64) []Pace { return []Pace{{Mu: mu}} }

func TestEstimate(t *testing.T) {
	for _, c := range []struct {
		why              string
		ahead, mu, theta float64
		want             time.Duration
		known            bool
	}{
		{"60 ahead, 30 a minute: two minutes", 60, 0.5, 0, 2 * time.Minute, true},
		{"nobody ahead", 0, 0.5, 0, 0, true},
		{"nobody ahead and nobody enters", 0, 0, 0, 0, false},
		{"nobody enters", 60, 0, 0, 0, false},
		{"nobody enters, but people give up", 60, 0, 0.01, 0, false},
		{"a rate that is nonsense", 60, -1, 0, 0, false},
		{"people give up as fast as they enter", 1000, 1, 0.001, 693147 * time.Millisecond, true}, // ln(2)/0.001 s
		{"a forecast of a day at most", 1e9, 0.5, 0, MaxWait, true},
		{"nor more than time can hold", math.MaxFloat64, 1e-300, 0, MaxWait, true},
		{"unless people give up", 1e9, 0.5, 0.01, 1681124 * time.Millisecond, true},
	} {
		got, known := Estimate(c.ahead, steady(c.mu), c.theta)
		if known != c.known || (got-c.want).Abs() > time.Millisecond {
			t.Errorf("%s: %v (%v), want %v (%v)", c.why, got, known, c.want, c.known)
		}
	}
}

func TestEstimateGrowsWithWhoIsAheadAndShrinksWithWhoEntersOrGivesUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ahead := rapid.Float64Range(0, 1e6).Draw(t, "ahead")
		mu := rapid.Float64Range(1e-3, 1e3).Draw(t, "mu")
		theta := rapid.Float64Range(0, 1).Draw(t, "theta")
		more := rapid.Float64Range(1, 10).Draw(t, "more")
		wait, known := Estimate(ahead, steady(mu), theta)
		if !known || wait < 0 || wait > MaxWait {
			t.Fatalf("%v (%v)", wait, known)
		}
		slack := time.Microsecond
		if longer, _ := Estimate(ahead*more+1, steady(mu), theta); longer+slack < wait {
			t.Errorf("more people ahead, less to wait: %v after %v", longer, wait)
		}
		if shorter, _ := Estimate(ahead, steady(mu*more), theta); shorter > wait+slack {
			t.Errorf("more enter, longer to wait: %v after %v", shorter, wait)
		}
		if shorter, _ := Estimate(ahead, steady(mu), theta*more+1e-6); shorter > wait+slack {
			t.Errorf("more give up, longer to wait: %v after %v", shorter, wait)
		}
		// With almost no abandonment it is the queue over its speed.
		plain, _ := Estimate(ahead, steady(mu), 0)
		if hardly, _ := Estimate(ahead, steady(mu), 1e-14); math.Abs(float64(hardly-plain)) > 1e-6*float64(plain)+1e3 {
			t.Errorf("%v if next to nobody gives up, %v if nobody does", hardly, plain)
		}
	})
}

// TestEstimateEqualsPlayingTheLineOut steps the queue through time instead.
func TestEstimateEqualsPlayingTheLineOut(t *testing.T) {
	for _, c := range []struct{ ahead, mu, theta float64 }{
		{1000, 5, 0}, {1000, 5, 0.001}, {50, 0.2, 0.01}, {100_000, 30, 0.0005},
	} {
		const dt = 0.01
		n, played := c.ahead, 0.0
		for n > 0 {
			n -= (c.mu + c.theta*n) * dt
			played += dt
		}
		got, _ := Estimate(c.ahead, steady(c.mu), c.theta)
		if math.Abs(got.Seconds()-played) > 0.001*played+2*dt {
			t.Errorf("%v: estimate %v, played out %.1f s", c, got, played)
		}
	}
}

// TestEstimateOverPhasesEqualsPlayingThemOut steps through changing paces.
func TestEstimateOverPhasesEqualsPlayingThemOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var paces []Pace
		for range rapid.IntRange(0, 4).Draw(t, "phases") {
			mu := rapid.SampledFrom([]float64{0, 0.2, 3, 40}).Draw(t, "mu")
			paces = append(paces, Pace{For: time.Duration(rapid.IntRange(0, 120).Draw(t, "s")) * time.Second, Mu: mu})
		}
		last := rapid.SampledFrom([]float64{0, 0.5, 10}).Draw(t, "last")
		paces = append(paces, Pace{Mu: last})
		ahead := float64(rapid.IntRange(0, 2000).Draw(t, "ahead"))
		theta := rapid.SampledFrom([]float64{0, 0.001, 0.01}).Draw(t, "theta")

		const dt, never = 0.02, 10_000.0
		fastest := 0.0
		for _, p := range paces {
			fastest = max(fastest, p.Mu)
		}
		play := func(n float64) float64 {
			played, i, left := 0.0, 0, paces[0].For.Seconds()
			for n > 0 && played < never {
				for i < len(paces)-1 && left <= 0 {
					i++
					left += paces[i].For.Seconds()
				}
				n -= (paces[i].Mu + theta*n) * dt
				played, left = played+dt, left-dt
			}
			return played
		}
		// One step too many at the fastest pace, and the error of a step over the whole queue, shift the end by
		// this many visitors. If a pace slows down or stops there, few visitors take a long time.
		slack := fastest*dt + 0.001*ahead
		soonest, latest := play(max(0, ahead-slack)), play(ahead+slack)
		got, known := Estimate(ahead, paces, theta)
		wait := got.Seconds()
		if !known {
			wait = never
		}
		if ahead == 0 || wait > 0.99*never && latest >= never {
			return // the head of the queue enters with the next admission
		}
		if wait < 0.99*soonest-3*dt || wait > 1.01*latest+3*dt {
			t.Fatalf("estimate %v (%v), played out %.2f to %.2f s", got, known, soonest, latest)
		}
	})
}

// TestLater: the admissions after some time are all admissions, less those in that time; the paces themselves do
// not change.
func TestLater(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var paces []Pace
		for range rapid.IntRange(1, 6).Draw(t, "phases") {
			paces = append(paces, Pace{
				For: time.Duration(rapid.IntRange(0, 60).Draw(t, "for")) * time.Second,
				Mu:  rapid.Float64Range(0, 20).Draw(t, "mu"),
			})
		}
		before := slices.Clone(paces)
		d := time.Duration(rapid.IntRange(0, 200).Draw(t, "later")) * time.Second
		within := time.Duration(rapid.IntRange(0, 200).Draw(t, "within")) * time.Second
		later := Later(paces, d)
		if got, want := Entered(later, within), Entered(paces, d+within)-Entered(paces, d); math.Abs(got-want) > 1e-6 {
			t.Fatalf("%v later, %v enter within %v, want %v", d, got, within, want)
		}
		if len(later) == 0 || !slices.Equal(paces, before) {
			t.Fatalf("%v became %v, and %v of it", before, paces, later)
		}
	})
}
