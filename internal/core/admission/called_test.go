package admission

import (
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
)

// TestACutoffThatIsBackForAMomentCallsNobodyAnew: called visitors stay called for as long as each second had the
// cutoff behind them, whatever the cutoff was at the begin of the current second.
func TestACutoffThatIsBackForAMomentCallsNobodyAnew(t *testing.T) {
	const far, near = 5000, 1000
	for _, tc := range []struct {
		name     string
		from, to time.Duration // the cutoff is near
		at       time.Duration
		want     fleettime.Time
	}{
		{"always called", 0, 0, 30 * time.Second, far},
		{"within a second", 20100 * time.Millisecond, 20900 * time.Millisecond, 30 * time.Second, far},
		{"over the end of a second", 20500 * time.Millisecond, 21400 * time.Millisecond, 30 * time.Second, far},
		{"now", 29900 * time.Millisecond, time.Hour, 30 * time.Second, far},
		{"a whole second", 20900 * time.Millisecond, 22100 * time.Millisecond, 30 * time.Second, near},
		{"a whole second, long ago", 10900 * time.Millisecond, 12100 * time.Millisecond, 30 * time.Second, far},
		{"called nine seconds ago", 0, 21100 * time.Millisecond, 30 * time.Second, near},
		{"called eleven seconds ago", 0, 18900 * time.Millisecond, 30 * time.Second, far},
	} {
		var c calledLog
		start := fleettime.Time(1_622_131_200_000)
		for d := time.Duration(0); d <= tc.at; d += 100 * time.Millisecond {
			if d >= tc.from && d < tc.to {
				c.note(start.Add(d), near)
			} else {
				c.note(start.Add(d), far)
			}
		}
		if got := c.since(); got != tc.want {
			t.Errorf("%s: called up to %d for ten seconds, want %d", tc.name, got, tc.want)
		}
	}
}
