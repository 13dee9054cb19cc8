package fleettime

import (
	"testing"
	"time"
)

func TestMinutelyHasALineAMinute(t *testing.T) {
	var m Minutely[Mono]
	now := Mono(0)
	for i, c := range []struct {
		after  time.Duration
		n, all int
		due    bool
	}{
		{0, 1, 1, true},
		{0, 2, 0, false},
		{time.Minute - 1, 1, 0, false},
		{1, 1, 4, true},
		{time.Minute, 3, 3, true},
	} {
		now = now.Add(c.after)
		if all, due := m.Count(now, c.n); all != c.all || due != c.due {
			t.Errorf("%d: %d %v, want %d %v", i, all, due, c.all, c.due)
		}
	}
}
