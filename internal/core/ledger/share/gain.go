package share

import (
	"time"

	"vestibule/internal/core/fleettime"
)

// Gain decides how far ahead of the free slots people are called to the door.
// Too few, and a slot waits for its visitor; too many, and somebody who joined
// later enters first. The factor grows while slots lie idle and shrinks while
// they do not.
type Gain struct {
	factor  float64
	at      fleettime.Mono
	entered uint64         // admissions as of the last step
	stalled int            // steps in a row in which slots lay idle and nobody came
	reached fleettime.Time // who joined before it has been called, and stays so
	rounds  rounds         // where chance decides who is called
}

const (
	gainStep = 500 * time.Millisecond
	idleAim  = 0.004
	stall    = 20 // steps in which nobody comes, after which visitors are called by whole slices of the line
)

// Due reports whether the factor is to be adjusted again.
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
