package region

import (
	"time"

	"vestibule/internal/core/fleettime"
)

// counts is the number of sessions of a data centre by expiry second: for each second that is not freed, tickets
// stamped minus tickets renewed away, over all edges. Single seconds may be negative for a while. They are neither
// clamped nor dropped early, because only the sum is safe: a renewal is -1 at x and +1 at y with x <= y, so it can
// only count too much once x is freed (docs/GUARANTEES.md).
type counts struct {
	freed int64 // first second that is not freed
	ring  []int64
	sum   int64

	passed int64 // another aggregator may have freed seconds before this one; see total

	cachedTotal int64 // the result of head
	cached      bool  // cachedTotal is current
}

// ringSpan bounds the ring, in seconds. It is far above the life of any ticket. A later expiry is counted at the
// bound.
const ringSpan = 1 << 14

// start sets the first counted second, once: a minute before now, which is older than any ticket that a live edge can
// still accept. An edge that does not know the time has stamped nothing. If stored seconds are so old that current
// tickets would not fit into the ring, start frees the seconds that expired hours ago.
func (c *counts) start(now fleettime.Time) {
	switch start := now.Second() - 60; {
	case now <= 0:
	case c.freed == 0:
		c.freed = start
	case start-c.freed > ringSpan/2:
		c.free(now.Add(-ringSpan / 2 * time.Second))
	}
}

// add changes the count of a second. Freed seconds are not counted.
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

// setPassed sets the second before which another aggregator may have freed seconds.
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

// total returns the number of sessions, although a predecessor may have freed seconds. Edges have dropped these
// seconds, also the tickets that they stamped. The roster may still have tickets of such a second that other edges
// renewed away: -1 without its +1. Counted from the first second that the predecessor had not freed, the sum is
// right. That second is unknown, so total returns the largest sum from any second on.
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

// free frees every second whose tickets no live edge can accept: those that expired a guard before the watermark.
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
