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

// TestOverdueIsTheLeastOfASecond: reports of before and after the end of an older poll do not add up for a moment.
func TestOverdueIsTheLeastOfASecond(t *testing.T) {
	var f Flow
	for _, tc := range []struct {
		at      time.Duration
		n, want float64
	}{
		{0, 1, 1},
		{5 * time.Second, 3, 1},
		{5500 * time.Millisecond, 2, 1},
		{6 * time.Second, 3, 2},
		{6500 * time.Millisecond, 3, 2},
		{7 * time.Second, 3, 3},
		{7100 * time.Millisecond, -1, -1},
	} {
		if got := f.overdue(fleettime.Mono(tc.at), tc.n); got != tc.want {
			t.Errorf("%v: %v of %v are overdue, want %v", tc.at, got, tc.n, tc.want)
		}
	}
}
