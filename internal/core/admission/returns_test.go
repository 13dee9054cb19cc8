package admission

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
)

// TestWhoIsToReturnIsExpected lets visitors join and return two seconds later, among others that never do, and
// compares with the true number on the way.
func TestWhoIsToReturnIsExpected(t *testing.T) {
	for _, c := range []struct {
		why            string
		people, robots func(second int) int
	}{
		{"a rush", func(s int) int { return map[bool]int{false: 2, true: 300}[s >= 30] }, func(int) int { return 0 }},
		{"a steady stream", func(int) int { return 20 }, func(int) int { return 0 }},
		{"nobody", func(int) int { return 0 }, func(int) int { return 0 }},
		{
			"a flood of robots", func(int) int { return 20 },
			func(s int) int { return map[bool]int{false: 0, true: 5000}[s >= 30] },
		},
		{"robots at all times", func(int) int { return 20 }, func(int) int { return 100 }},
	} {
		rng := rand.New(rand.NewPCG(1, 2))
		var p pendingReturns
		back := map[int][]fleettime.Time{} // returning visitors by second
		waiting := 0
		for s := range 120 {
			now := day.Add(time.Duration(s) * time.Second)
			for _, joined := range back[s] {
				p.returned(now, joined)
				waiting--
			}
			for range c.people(s) {
				p.issued(now, now)
				then := s + 2 + rng.IntN(2)
				back[then] = append(back[then], now)
				waiting++
			}
			for range c.robots(s) {
				p.issued(now, now)
			}
			by := p.expected(now)
			got := max(0, by.Total())
			if len(by) > 0 && by[len(by)-1].End() > now.Add(time.Second) {
				t.Fatalf("%s: second %d: %.1f expected, by join time %v", c.why, s, got, by)
			}
			settled := (s > returnWait+1 && s < 30) || s > 30+returnWait+returnTrial
			if c.why == "a flood of robots" && s >= 30 && s <= 30+returnWait {
				continue // a rush is known to be real only after returns
			}
			if math.Abs(got-float64(waiting)) > 0.25*float64(waiting)+15 && (settled || c.why == "a rush") {
				t.Errorf("%s: second %d: %.1f expected, %d are on the way", c.why, s, got, waiting)
			}
		}
		if by := p.expected(day.Add(time.Hour)); by != nil {
			t.Errorf("%s: %v expected an hour later", c.why, by)
		}
	}
}

// TestRobotsAreNobodyAtASmallEdge: at an edge with few visitors the expectation before the first returns must not
// turn a flood into visitors.
func TestRobotsAreNobodyAtASmallEdge(t *testing.T) {
	for _, robots := range []int{0, 100, 1000} {
		var p pendingReturns
		sum, n := 0.0, 0
		for s := range 120 {
			now := day.Add(time.Duration(s) * time.Second)
			for range robots {
				p.issued(now, now)
			}
			p.issued(now, now) // one visitor a second, back after two
			if s >= 2 {
				p.returned(now, now.Add(-2*time.Second))
			}
			if by := p.expected(now); s > 30 {
				sum, n = sum+max(0, by.Total()), n+1
			}
		}
		if mean := sum / float64(n); mean < 1 || mean > 3 {
			t.Errorf("%d robots a second: %.1f people are expected, want 2", robots, mean)
		}
	}
}
