package sim

import (
	"math"
	"testing"
	"time"
)

// TestWhoNeverComesBackHoldsUpNobody: half of a line has closed the page, and half of those do not come when called.
func TestWhoNeverComesBackHoldsUpNobody(t *testing.T) {
	t.Parallel()
	f := measured(awayUntilCalled)
	t.Log(f.Seen, f.Bound)
	if !f.Met || f.Fault != "" {
		t.Errorf("%s: %s", f.Seen, f.Fault)
	}
}

// awayUntilCalled has half of a long line subscribe and close the page, and half of those never come back. It compares
// the waits of the others with those in a fleet where these never came, and with what they were told. One run differs
// from another by 2 %, so it takes the mean of two.
func awayUntilCalled(f *Finding) {
	run := func(seed uint64, subscribe, never, perMinute float64) (*meters, *Result) {
		c := busy(seed)
		c.Length, c.People.Patience, c.People.Stay = 25*time.Minute, 0, 1
		c.People.Subscribe, c.People.Never = subscribe, never
		c.Demand = Demand{
			PerMinute: perMinute,
			Spikes:    []Spike{{At: 2 * time.Minute, Length: time.Minute, PerMinute: 3 * perMinute}},
		}
		w := filled(c, func(w *World) { w.meters.listen() })
		return w.meters, f.run(w)
	}
	mean := func(x []float64) (m float64) {
		for _, s := range x {
			m += s / float64(len(x))
		}
		return m
	}
	var a, b float64
	for seed := range uint64(2) {
		with, r := run(seed+1, 0.5, 0.5, 2000)
		without, _ := run(seed+1, 1.0/3, 0, 1500)
		a, b = a+mean(with.waits)/2, b+mean(without.waits)/2
		f.add(", ", r.UseT >= 0.95 && r.Peak <= r.Config.Total && len(with.back) > 1000, "%.4f", r.UseT)
		f.note("the others: %s; %d came back and were in after p50 / p99 %.0f / %.0f s; peak sessions / T %.4f", with.words,
			len(with.back), quantile(with.back, 0.5), quantile(with.back, 0.99), float64(r.Peak)/float64(r.Config.Total))
	}
	off := a/b - 1
	f.add("; ", math.Abs(off) <= 0.05, "%+.1f %% (%.0f s, %.0f s without them)", 100*off, a, b)
}
