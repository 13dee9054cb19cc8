package estimate

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
)

// TestChangesAreForeseen compares predictions with the admissions of full rooms whose limits change later.
func TestChangesAreForeseen(t *testing.T) {
	const crowd = math.MaxInt32
	for _, c := range []struct {
		name        string
		total, rate int
		changes     []Change
	}{
		{"T rises", 100, 100_000, []Change{{2 * time.Minute, 1000, 100_000}}},
		{"T and R rise, R lets the room fill up", 100, 100_000, []Change{{2 * time.Minute, 3000, 600}}},
		{"nobody enters before a start", 1000, 100_000, []Change{{time.Minute, 0, 0}, {6 * time.Minute, 1000, 100_000}}},
		{"T falls", 1000, 100_000, []Change{{2 * time.Minute, 100, 100_000}}},
		{"R falls, and rises again", 100_000, 600, []Change{
			{90 * time.Second, 100_000, 60}, {7 * time.Minute, 100_000, 600},
		}},
	} {
		const life = 66 * time.Second
		s := &site{rng: rand.New(rand.NewPCG(1, 2)), life: life.Seconds(), browse: 50, total: c.total, rate: c.rate}
		var u Turnover
		u.Observe(0, life, 0, 0)
		second := 0
		for range 1200 {
			second++
			s.step(float64(second), crowd)
			u.Observe(fleettime.Mono(second)*fleettime.Mono(time.Second), life, float64(len(s.ends)), float64(s.admitted))
		}
		x := Limits{Total: float64(c.total), PerMinute: float64(c.rate)}
		paces := u.Changed(u.Paces(x), x, c.changes)
		if len(paces) > MaxPaces {
			t.Errorf("%s: %d phases", c.name, len(paces))
		}
		before, most := s.admitted, 0.0
		for _, change := range c.changes {
			most = max(most, change.Total)
		}
		for at := 1; at <= 600; at++ {
			for _, change := range c.changes {
				if change.In == time.Duration(at)*time.Second {
					s.total, s.rate = int(change.Total), int(change.PerMinute)
				}
			}
			second++
			s.step(float64(second), crowd)
			// The sessions of a burst end in a burst, a life later. The phases after a change are even.
			got := float64(s.admitted - before)
			early, late := entered(paces, max(0, float64(at-60))), entered(paces, float64(at+60))
			if slack := 5 + 0.05*got; at%10 == 0 && (got < early-slack || got > late+slack) {
				t.Errorf("%s: %v in %d s, foreseen %.0f: %v", c.name, got, at, entered(paces, float64(at)), paces)
				break
			}
		}
	}
}

// TestARoomThatFillsForYearsIsForeseen: a start with a large T and a small R fills the room for longer than a duration
// can say.
func TestARoomThatFillsForYearsIsForeseen(t *testing.T) {
	var u Turnover
	u.Observe(0, time.Minute, 0, 0)
	x := Limits{Total: 10, PerMinute: 10}
	for _, p := range u.Changed(u.Paces(x), x, []Change{{time.Minute, math.MaxInt32, 1}}) {
		if p.For < 0 || p.Mu < 0 {
			t.Errorf("%v", p)
		}
	}
}

// TestFewerPacesAdmitAsMany: a forecast with many phases before several changes has few paces.
func TestFewerPacesAdmitAsMany(t *testing.T) {
	var paces []Pace
	for i := range 3 * MaxPaces {
		paces = append(paces, Pace{For: time.Duration(1+i%7) * time.Second, Mu: float64(i % 5)})
	}
	paces = append(paces, Pace{Mu: 3})
	want := entered(paces, 3600)
	few := fewer(paces)
	if got := entered(few, 3600); len(few) != MaxPaces || math.Abs(got-want) > 1e-6 || few[MaxPaces-1].Mu != 3 {
		t.Errorf("%d phases admit %v in an hour, want %d with %v", len(few), got, MaxPaces, want)
	}
}
