package admission

import (
	"time"

	"vestibule/internal/core/fleettime"
)

// keptFor is the longest absence of a visitor with a kept place.
const keptFor = 24 * time.Hour

// claims remembers how far a room has called its visitors, minute by minute for longer than any claim time, so that a
// place that is kept lapses some time after its call. The zero value remembers nothing, and is small: most rooms keep
// no places.
type claims struct {
	called []call // a ring of claimMinutes: the greatest cutoff up to each minute; nil before the first
	n      int    // minutes noted, with those that were overwritten
}

// claimMinutes is more than the longest claim time, an hour.
const claimMinutes = 64

type call struct {
	minute int64
	cutoff fleettime.Time
}

// note records the cutoff in force at ft.
func (c *claims) note(ft, cutoff fleettime.Time) {
	if c.called == nil {
		c.called = make([]call, claimMinutes)
	}
	cutoff = min(cutoff, ft) // without a line it is later than any time: it calls those who are here
	minute, last := ft.Second()/60, &c.called[max(0, c.n-1)%len(c.called)]
	switch {
	case c.n == 0:
	case minute <= last.minute:
		last.cutoff = max(last.cutoff, cutoff)
		return
	default:
		cutoff = max(cutoff, last.cutoff)
	}
	c.called[c.n%len(c.called)] = call{minute, cutoff}
	c.n++
}

// since returns the Unix second since when a place is certainly called, 0 for not. A place that was called before the
// first note counts from that.
func (c *claims) since(place fleettime.Time) int64 {
	for i := max(0, c.n-len(c.called)); i < c.n; i++ {
		if at := &c.called[i%len(c.called)]; at.cutoff >= place {
			return (at.minute + 1) * 60
		}
	}
	return 0
}
