package node

import (
	"sync/atomic"
	"time"

	"vestibule/internal/core/fleettime"
)

// Clock is this process's monotonic clock. It also detects a suspend of the machine: a monotonic clock stops in a
// suspended machine, so a lease measured on it would seem valid for too long. It is safe for concurrent use.
type Clock struct {
	start time.Time
	skew  atomic.Int64 // wall time elapsed minus monotonic time elapsed, at the last reading
	jumps atomic.Uint64
}

// jumpLimit is how far wall time may run ahead of monotonic time between two readings before the machine counts as
// suspended in between. Slewing by a time daemon stays far below it.
const jumpLimit = 500 * time.Millisecond

// NewClock returns a clock that reads zero now.
func NewClock() *Clock { return &Clock{start: time.Now()} }

// Now returns the clock reading.
func (c *Clock) Now() fleettime.Mono {
	m, _ := c.Read()
	return m
}

// Read returns the clock reading and the wall time at the same instant.
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

// Jumps returns how often wall time has run ahead of the clock. A lease is void if the number changed since it was
// obtained.
func (c *Clock) Jumps() uint64 { return c.jumps.Load() }
