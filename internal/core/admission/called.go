package admission

import (
	"time"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
)

// overdueAfter is the time after which a called visitor that does not ask is overdue: the next one is called in its
// place. It keeps its own place, and enters first on its return.
const overdueAfter = 10 * time.Second

// calledLog remembers the admission cutoffs of the last seconds: of each second the furthest one. Numbers of different
// moments may move the cutoff back for less than a second, and called visitors are still to come. The zero value
// remembers none.
type calledLog struct {
	furthest [int(overdueAfter/time.Second) + 2]fleettime.Time // cutoff in each second; a ring
	second   int64                                             // the newest of them
	cutoff   fleettime.Time                                    // in force
}

// note records the cutoff in force from ft on.
func (c *calledLog) note(ft, cutoff fleettime.Time) {
	n, second := int64(len(c.furthest)), max(c.second, ft.Second())
	if second-c.second > n {
		*c = calledLog{second: second} // of the time between nothing is known
	}
	for c.second < second {
		c.second++
		c.furthest[c.second%n] = c.cutoff
	}
	c.furthest[second%n] = max(c.furthest[second%n], cutoff)
	c.cutoff = cutoff
}

// since returns the place before which every visitor has been called in each second of overdueAfter; 0 for none. The
// current second does not count: at its begin the cutoff may be back.
func (c *calledLog) since() fleettime.Time {
	called := estimate.Open
	for i, cutoff := range c.furthest {
		if int64(i) != c.second%int64(len(c.furthest)) {
			called = min(called, cutoff)
		}
	}
	return called
}
