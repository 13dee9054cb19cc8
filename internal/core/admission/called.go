package admission

import (
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
)

// overdueAfter is the time after which a called visitor that does not ask is overdue: the next one is called in its
// place. It keeps its own place, and enters first on its return.
const overdueAfter = 10 * time.Second

// calledLog remembers the admission cutoffs of the last seconds. The zero value remembers none.
type calledLog struct {
	least  [int(overdueAfter/time.Second) + 1]fleettime.Time // least cutoff in each second; a ring
	second int64                                             // the newest of them
	cutoff fleettime.Time                                    // in force
}

// note records the cutoff in force from ft on.
func (c *calledLog) note(ft, cutoff fleettime.Time) {
	n, second := int64(len(c.least)), max(c.second, ft.Second())
	if second-c.second > n {
		*c = calledLog{second: second} // of the time between nothing is known
	}
	for c.second < second {
		c.second++
		c.least[c.second%n] = c.cutoff
	}
	c.least[second%n] = min(c.least[second%n], cutoff)
	c.cutoff = cutoff
}

// since returns the place before which every visitor has been called for at least overdueAfter; 0 for none.
func (c *calledLog) since() fleettime.Time { return slices.Min(c.least[:]) }
