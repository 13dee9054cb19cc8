package share

import (
	"time"

	"vestibule/internal/core/fleettime"
)

// Gain decides how many visitors are called beyond the free permits. If too few are called, a permit waits for its
// visitor; if too many, a visitor that joined later enters first. The factor grows while permits are idle and
// decreases otherwise.
type Gain struct {
	factor float64
	at     fleettime.Mono
	rounds rounds // of a random room
}

const (
	gainStep = 500 * time.Millisecond
	idleAim  = 0.004
)

// Due reports whether the factor is due for adjustment.
func (c *Gain) Due(now fleettime.Mono) bool { return now.Sub(c.at) >= gainStep }

// step adjusts the factor to the idle share of the binding limit.
func (c *Gain) step(now fleettime.Mono, idle float64) {
	if !c.Due(now) {
		return
	}
	c.at = now
	if c.factor == 0 {
		c.factor = 1
	}
	if idle > idleAim {
		c.factor = min(16, c.factor*1.1)
	} else {
		c.factor = max(0.25, c.factor*0.97)
	}
}
