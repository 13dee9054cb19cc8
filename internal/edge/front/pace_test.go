package front

import (
	"testing"
	"time"
)

// A visitor may wait as long as the bytes so far allow, and no longer than the patience for one piece.
func TestPace(t *testing.T) {
	for _, c := range []struct {
		name      string
		bytes     int
		waited    time.Duration
		left, lag time.Duration
	}{
		{"the beginning", 0, 0, paceGrace, 0},
		{"a silent visitor", 0, paceGrace, 0, paceGrace},
		{"a byte every other second", 4, 8 * time.Second, 2 * time.Second, 8 * time.Second},
		{"the least rate for a minute", 60 * MinRate, time.Minute, paceGrace, 0},
		{"a megabyte, then a pause", 1 << 20, 20 * time.Second, time.Minute, 0},
		{"much", 1 << 60, time.Second, time.Minute, 0},
	} {
		var p Pace
		p.Add(c.bytes, c.waited)
		if left, lag := p.Left(time.Minute), p.Lag(); left != c.left || lag != c.lag {
			t.Errorf("%s: %v left, %v lag, want %v and %v", c.name, left, lag, c.left, c.lag)
		}
	}
}
