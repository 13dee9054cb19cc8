package node

import (
	"sync/atomic"
	"time"

	"vestibule/internal/core/fleettime"
)

// Clock is this process's monotonic clock. It also notices when the machine
// was asleep: a monotonic clock stands still in a suspended machine, and a
// lease that is counted on it would be believed for too long. It is safe for
// concurrent use.
type Clock struct {
	start time.Time
	skew  atomic.Int64 // wall time elapsed minus monotonic time elapsed, as last seen
	jumps atomic.Uint64
}

// jumpLimit is how far wall time may run ahead of monotonic time between two
// readings before the machine is taken to have slept. Slewing by a time daemon
// stays far below it.
const jumpLimit = 500 * time.Millisecond

// NewClock returns a clock that reads zero now.
func NewClock() *Clock { return &Clock{start: time.Now()} }

// Now returns the reading of the clock.
func (c *Clock) Now() fleettime.Mono {
	m, _ := c.Read()
	return m
}

// Read returns the reading of the clock and the wall time of the same moment.
func (c *Clock) Read() (fleettime.Mono, time.Time) {
	t := time.Now()
	mono := t.Sub(c.start)
	skew := int64(t.Round(0).Sub(c.start.Round(0)) - mono)
	if last := c.skew.Load(); skew != last {
		if time.Duration(skew-last) > jumpLimit {
			c.jumps.Add(1)
		}
		c.skew.Store(skew)
	}
	return fleettime.Mono(mono), t
}

// Jumps returns how often wall time has run ahead of the clock so far. Whoever
// holds a lease and sees the number change no longer holds it.
func (c *Clock) Jumps() uint64 { return c.jumps.Load() }
