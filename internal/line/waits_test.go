package line

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestLotsAreWhatChanceMakesOfALine draws who is next among those who wait, one by one, while others come, and holds what
// became of those who waited at first against what was told.
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
		var in []float64 // of those who waited at first
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
		w, ok := Lots(float64(tc.people), tc.joining, tc.paces, 0)
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
	if w, ok := Lots(100, 1, nil, 0); ok || w.Known() {
		t.Errorf("nobody enters, and yet %v", w)
	}
	if w, ok := Lots(1e4, 0, steady(0.1), 0); !ok || w[0] == MaxWait || w[4] != MaxWait {
		t.Errorf("a day and more: %v, %v", w, ok)
	}
	if slow, _ := Lots(2000, 20, steady(20), 0); func() bool { fast, _ := Lots(2000, 20, steady(20), 0.01); return fast[4] >= slow[4] }() {
		t.Error("where some give up, the others wait as long")
	}
}
