package estimate

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestLotsAreWhatChanceMakesOfALine draws the next admission among the waiting visitors, one by one, while others
// join, and compares the first visitors' waits with the quantiles.
func TestLotsAreWhatChanceMakesOfALine(t *testing.T) {
	for _, tc := range []struct {
		why     string
		people  int
		joining float64
		paces   []Pace
	}{
		{"as many come as leave", 2000, 20, steady(20)},
		{"nobody comes", 2000, 0, steady(20)},
		{"more come than leave", 2000, 30, steady(20)},
		{"the rate falls", 2000, 5, []Pace{{For: 30 * time.Second, Mu: 40}, {Mu: 10}}},
	} {
		rng := rand.New(rand.NewPCG(1, 2))
		var in []float64 // of the first visitors
		line, others := tc.people, 0
		came, enters := 0.0, 0.0
		for sec := 0.0; sec < 2000; sec += 0.25 {
			mu := Entered(tc.paces, time.Duration((sec+0.25)*1e9)) - Entered(tc.paces, time.Duration(sec*1e9))
			came, enters = came+tc.joining*0.25, enters+mu
			for ; came >= 1; came-- {
				others++
			}
			for ; enters >= 1 && line+others > 0; enters-- {
				if rng.IntN(line+others) < line {
					line--
					in = append(in, sec)
				} else {
					others--
				}
			}
		}
		w, ok := Lots(float64(tc.people), tc.joining, MaxWait, tc.paces, 0)
		if !ok || !slices.IsSorted(w[:]) {
			t.Fatalf("%s: %v %v", tc.why, w, ok)
		}
		for k, part := range WaitParts[:4] {
			n := 0
			for _, sec := range in {
				if sec <= w[k].Seconds() {
					n++
				}
			}
			if share := float64(n) / float64(tc.people); share < part-0.04 || share > part+0.04 {
				t.Errorf("%s: within %v %.3f are in, want %.2f", tc.why, w[k], share, part)
			}
		}
	}
	if w, ok := Lots(100, 1, MaxWait, nil, 0); ok || w.Known() {
		t.Errorf("nobody enters, and yet %v", w)
	}
	if w, ok := Lots(1e4, 0, 0, steady(0.1), 0); !ok || w[0] == MaxWait || w[4] != MaxWait {
		t.Errorf("a day and more: %v, %v", w, ok)
	}
	if slow, _ := Lots(2000, 20, MaxWait, steady(20),
		0); func() bool { fast, _ := Lots(2000, 20, MaxWait, steady(20), 0.01); return fast[4] >= slow[4] }() {
		t.Error("where some give up, the others wait as long")
	}
}

// TestWhoIsSupposedToComeFades: the expected arrivals sum to joining*fading, in whatever steps.
func TestWhoIsSupposedToComeFades(t *testing.T) {
	all, _ := Lots(100, 10, 10*time.Second, steady(10), 0)
	none, _ := Lots(100, 0, 0, steady(10), 0)
	forever, _ := Lots(100, 10, MaxWait, steady(10), 0)
	if last := all[4].Seconds(); last <= none[4].Seconds() || last >= forever[4].Seconds() || last > 20 {
		t.Errorf("with nobody else, a hundred, and ten a second for ever: %v, %v, %v", none, all, forever)
	}
}

// TestWaitsAreAsWideAsChanceAndForecastTogether: a forecast error that is small next to chance adds little, and
// without chance it is the whole error.
func TestWaitsAreAsWideAsChanceAndForecastTogether(t *testing.T) {
	r := Ranges{}
	for c := range r {
		r[c] = Range{Low: 0.9, High: 1.1}
	}
	const m = time.Minute
	exact := func(got, want time.Duration) bool { return (got - want).Abs() < 50*time.Millisecond }
	one := Waits{10 * m, 10 * m, 10 * m, 10 * m, 10 * m}
	same := one.In(&r, 0)
	if low, high := r.Of(10 * m); !exact(same[0], low) || !exact(same[4], high) || same[2] != 10*m || same[1] <= low ||
		same[3] >= high {
		t.Errorf("of one wait: %v", same)
	}
	wide := Waits{2 * m, 5 * m, 10 * m, 15 * m, 30 * m}
	if got := wide.In(&r, 0); got[0] > 2*m || got[0] < 118*time.Second || got[4] < 30*m || got[4] > 30*m+15*time.Second {
		t.Errorf("%v becomes %v", wide, got)
	}
	if asked := one.In(&Ranges{}, 20*time.Second); asked[4] == 10*m || asked[4] > 10*m+10*time.Second {
		t.Errorf("of one wait, and a question within 20 s: %v", asked)
	}
	if none := wide.In(&Ranges{}, 0); !exact(none[0], wide[0]) || !exact(none[4], wide[4]) {
		t.Errorf("with no range: %v", none)
	}
}
