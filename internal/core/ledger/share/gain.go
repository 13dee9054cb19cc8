package share

import (
	"time"

	"vestibule/internal/core/fleettime"
)

// Gain decides how many visitors are called beyond the free permits. With too few, a permit waits for
// its visitor; with too many, a visitor that joined later enters first. The factor grows while permits
// are idle and shrinks while they are not.
type Gain struct {
	factor  float64
	at      fleettime.Mono
	entered uint64         // admissions as of the last step
	stalled int            // steps in a row in which slots lay idle and nobody came
	reached fleettime.Time // everybody that joined before has been called, and stays called
	rounds  rounds         // of a room in which chance decides
}

const (
	gainStep = 500 * time.Millisecond
	idleAim  = 0.004
	stall    = 20 // steps in which nobody comes, after which visitors are called by whole slices of the line
)

// Due reports whether it is time to adjust the factor again.
func (c *Gain) Due(now fleettime.Mono) bool { return now.Sub(c.at) >= gainStep }

// step adjusts the factor to the idle share of the limit that binds.
func (c *Gain) step(now fleettime.Mono, idle float64, admitted uint64) {
	if !c.Due(now) {
		return
	}
	c.at = now
	if c.factor == 0 {
		c.factor = 1
	}
	if c.stalled++; idle <= idleAim || admitted != c.entered {
		c.stalled, c.entered = 0, admitted
	}
	if idle > idleAim {
		c.factor = min(16, c.factor*1.1)
	} else {
		c.factor = max(0.25, c.factor*0.97)
	}
}
