package share

import (
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
)

// TestAdmissionsOfTheLastMinute: they are counted, not extrapolated from the first seconds, and end although no counter
// changes any more.
func TestAdmissionsOfTheLastMinute(t *testing.T) {
	var f Flow
	at := func(s time.Duration) fleettime.Mono { return fleettime.Mono(0).Add(s * time.Second) }
	if n := f.LastMinute(at(0), 7); n != 0 {
		t.Errorf("%d before the first sample, want 0", n)
	}
	for s := range 11 {
		f.Sample(at(time.Duration(s)), &Tally{Life: time.Minute, Admitted: uint64(7 + s)}, 0) // 7 before this coordinator
	}
	for s, want := range map[time.Duration]uint64{10: 10, 59: 10, 65: 5, 70: 0, 3600: 0} {
		if n := f.LastMinute(at(s), 17); n != want {
			t.Errorf("after %d s %d of the last minute, want %d", s, n, want)
		}
	}
	if n := f.LastMinute(at(3600), 18); n != 1 {
		t.Errorf("%d with one that is not sampled yet, want 1", n)
	}
}
