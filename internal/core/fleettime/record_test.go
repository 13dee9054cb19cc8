package fleettime

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestARecordedTimeIsAsGoodAsItSays: with any oscillator within the drift bound, and a record of any age, the error
// is at most the reported uncertainty.
func TestARecordedTimeIsAsGoodAsItSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		drift := rapid.Float64Range(-Drift, Drift).Draw(t, "drift")
		bound := time.Duration(rapid.Int64Range(0, int64(MaxError)).Draw(t, "bound"))
		off := time.Duration(rapid.Int64Range(-int64(bound), int64(bound)).Draw(t, "off"))
		booted := time.Duration(rapid.Int64Range(0, int64(1000*time.Hour)).Draw(t, "booted"))
		elapsed := time.Duration(rapid.Int64Range(0, int64(20*time.Hour)).Draw(t, "elapsed"))
		const truth = Time(1_622_131_200_000)
		r := Record{Boot: "a", At: booted, Wall: truth, Time: truth + Time(math.Round(float64(off)/1e6)), Bound: bound}
		age := elapsed + time.Duration(float64(elapsed)*drift)
		k, err := r.Read("a", booted+age, truth.Add(age))
		if err != nil {
			if elapsed < 13*time.Hour {
				t.Fatalf("not known after %v: %v", elapsed, err)
			}
			return
		}
		if wrong := k.Time.Sub(truth.Add(elapsed)).Abs(); wrong > k.Bound {
			t.Fatalf("after %v the time is wrong by %v, and said to be by %v at most", elapsed, wrong, k.Bound)
		}
	})
}

// TestARecordThatDoesNotTell: a record from another boot, from the future, damaged, or from before an undetected
// suspend is rejected.
func TestARecordThatDoesNotTell(t *testing.T) {
	const now = Time(1_622_131_200_000)
	good := Record{Boot: "a", At: time.Hour, Wall: now, Time: now, Bound: time.Millisecond}
	later := now.Add(time.Minute)
	if k, err := good.Read("a", time.Hour+time.Minute, later); err != nil || k.Time != later {
		t.Fatalf("%+v, %v", k, err)
	}
	for name, c := range map[string]struct {
		change func(r *Record)
		boot   string
		at     time.Duration
		wall   Time
	}{
		"another start":      {func(*Record) {}, "b", time.Hour + time.Minute, later},
		"no start known":     {func(r *Record) { r.Boot = "" }, "", time.Hour + time.Minute, later},
		"from the future":    {func(*Record) {}, "a", time.Hour - time.Second, later},
		"no time":            {func(r *Record) { r.Time = 0 }, "a", time.Hour + time.Minute, later},
		"a bound below zero": {func(r *Record) { r.Bound = -1 }, "a", time.Hour + time.Minute, later},
		"an unsure one":      {func(r *Record) { r.Bound = Rough }, "a", time.Hour + time.Minute, later},
		"very old":           {func(*Record) {}, "a", 30 * time.Hour, now.Add(29 * time.Hour)},
		"stood still":        {func(*Record) {}, "a", time.Hour + time.Minute, later.Add(5 * time.Second)},
	} {
		r := good
		c.change(&r)
		if k, err := r.Read(c.boot, c.at, c.wall); err == nil {
			t.Errorf("%s: %+v", name, k)
		}
	}
	// A machine's clock that was set back says nothing about its oscillator.
	if _, err := good.Read("a", time.Hour+time.Minute, now.Add(-time.Hour)); err != nil {
		t.Errorf("set back: %v", err)
	}
}
