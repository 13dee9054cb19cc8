package region

import (
	"time"

	"vestibule/internal/core/fleettime"
)

// counts is the head-count of a data centre by expiry second: for each second
// that is not freed yet, tickets stamped minus tickets renewed away, over all
// edges. Single seconds may be negative for a while; they are neither clamped
// nor dropped early, because only the sum is safe (docs/GUARANTEES.md: a
// renewal is -1 at x and +1 at y with x <= y, so it can only over-count once x
// is freed).
type counts struct {
	freed int64 // first second not freed; everything before it is gone for good
	ring  []int64
	sum   int64

	passed int64 // before this second somebody else may have freed any; see head and setPassed

	cachedTotal  int64 // the result of head
	cached bool  // and that nothing has changed since
}

// ringSpan bounds the ring, in seconds: far above the life of any ticket. A later expiry is counted at
// the bound.
const ringSpan = 1 << 14

// start sets where counting starts, once: a minute before now, which is older
// than anything that a live edge can still accept. An edge that does not know
// the time yet has stamped nothing. Where counting began so long ago that tickets
// of now would not fit into the ring, because stored seconds are hours old, it
// frees the seconds that expired hours ago.
func (c *counts) start(now fleettime.Time) {
	switch start := now.Second() - 60; {
	case now <= 0:
	case c.freed == 0:
		c.freed = start
	case start-c.freed > ringSpan/2:
		c.free(now.Add(-ringSpan / 2 * time.Second))
	}
}

// add changes the count of a second; of a freed second nothing is counted.
func (c *counts) add(second int64, n int64) {
	if second < c.freed || n == 0 {
		return
	}
	second = min(second, c.freed+ringSpan-1)
	for second >= c.freed+int64(len(c.ring)) {
		c.grow()
	}
	c.ring[second&int64(len(c.ring)-1)] += n
	c.sum += n
	c.cached = false
}

// setPassed tells before which second somebody else may have freed any.
func (c *counts) setPassed(second int64) {
	if second != c.passed {
		c.passed, c.cached = second, false
	}
}

func (c *counts) grow() {
	if len(c.ring) == 0 {
		c.ring = make([]int64, 128)
		return
	}
	n := int64(len(c.ring))
	ring := make([]int64, 2*n)
	for s := c.freed; s < c.freed+n; s++ {
		ring[s&(2*n-1)] = c.ring[s&(n-1)]
	}
	c.ring = ring
}

// total returns the head-count, where a predecessor may have freed seconds. Edges have dropped those, also
// the tickets that they stamped; the roster may still have tickets of that second which other edges
// renewed away: -1 without its +1. Counted from the predecessor's border the sum is right. The border is
// not known, so it is the largest sum from any second on.
func (c *counts) total() int64 {
	if !c.cached {
		c.cachedTotal, c.cached = c.largest(), true
	}
	return c.cachedTotal
}

func (c *counts) largest() int64 {
	most, rest := c.sum, c.sum
	for s := c.freed; s < min(c.passed, c.freed+int64(len(c.ring))); s++ {
		rest -= c.ring[s&int64(len(c.ring)-1)]
		most = max(most, rest)
	}
	return most
}

// free frees every second whose tickets no live edge can touch again: those that expired a guard before
// the watermark.
func (c *counts) free(watermark fleettime.Time) {
	end := watermark.Add(-fleettime.Guard).Second()
	if end < c.freed {
		return
	}
	c.cached = false
	n := int64(len(c.ring))
	if end-c.freed >= n {
		clear(c.ring)
		c.sum = 0
		c.freed = max(c.freed, end+1)
		return
	}
	for ; c.freed <= end; c.freed++ {
		i := c.freed & (n - 1)
		c.sum -= c.ring[i]
		c.ring[i] = 0
	}
}
