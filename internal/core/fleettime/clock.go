package fleettime

import "time"

// Limits of a node's clock error.
const (
	// Drift bounds how far two monotonic clocks of the fleet run apart, as a fraction: 200 parts per million.
	// Quartz oscillators stay below half of it.
	Drift = 200e-6

	// MaxError is the clock error that every node tolerates in others. A node with a larger uncertainty, for lack
	// of a parent to ask, uses the lower bound of fleet time to stamp tickets and to free permits.
	MaxError = 250 * time.Millisecond

	// Rough is the uncertainty above which a node admits nobody and no other node learns the time from it: 14 hours
	// of drift.
	Rough = 10 * time.Second

	// Guard is added if one node acts on an expiry that another node's clock measured: twice the error of a node
	// with a good link (50 ms).
	Guard = 100 * time.Millisecond

	// MaxTrip is the longest round trip that is used as a sample while a shorter one may follow. After SlowTrips
	// trips in a row above MaxTrip the limit is LongTrip: the network is that slow.
	MaxTrip   = time.Second
	LongTrip  = Rough
	SlowTrips = 16

	// rounding is the loss by truncation to whole milliseconds: once at the parent's clock, once at ours.
	rounding = 2 * time.Millisecond

	// Unsynced is the uncertainty of a clock that was never set.
	Unsynced = time.Duration(1<<63 - 1)
)

// Stretch returns d lengthened by the drift bound: how long a lender waits for the end of a lease of d that the
// holder measures on another clock.
func Stretch(d time.Duration) time.Duration { return d + time.Duration(float64(d)*Drift) + 1 }

// Shrink returns d shortened by the drift bound: how long a holder may use a lease of d that the lender measures on
// another clock.
func Shrink(d time.Duration) time.Duration { return d - time.Duration(float64(d)*Drift) - 1 }

// Clock is one node's estimate of fleet time on top of its own monotonic clock. The zero value was never synced:
// its error is infinite. A Clock is not safe for concurrent use.
//
// Its readings never decrease and are never before a watermark given to Floor, even if the parent's clock steps
// back.
type Clock struct {
	synced bool
	base   Mono          // reading at which offset and bound were learned
	offset int64         // fleet nanoseconds minus mono nanoseconds
	bound  time.Duration // error bound of the estimate at base
	last   Time          // newest time returned
	slow   int           // round trips above MaxTrip in a row
}

// Set makes the clock a source of fleet time: at reading now it is exactly t. Only the coordinator, which has no
// parent, uses it. If t is in the past, fleet time stands still until it has caught up.
func (c *Clock) Set(now Mono, t Time, bound time.Duration) {
	c.synced = true
	c.base = now
	c.offset = int64(t)*1e6 - int64(now)
	c.bound = bound
}

// Sync learns from one round trip (Cristian's algorithm without the parent's dwell, as in NTP): the child sent at
// reading sent, the parent held the message for dwell and answered at its fleet time at, known to it within
// parentErr, and the answer arrived at reading now.
//
// Sync drops a sample that is less certain than the current estimate. A small tolerance, which grows with the age
// of the estimate, lets in a change of the parent's own time by a new leader. Sync reports whether it used the
// sample.
func (c *Clock) Sync(now, sent Mono, dwell time.Duration, at Time, parentErr time.Duration) bool {
	rtt := now.Sub(sent) - dwell
	if now < sent || dwell < 0 || parentErr < 0 || parentErr > time.Hour {
		return false // invalid, or a parent with a worse clock
	}
	if rtt <= MaxTrip {
		c.slow = 0
	} else if c.slow++; c.slow < SlowTrips || rtt > LongTrip {
		// The report was queued for long, for example in a suspended parent. Fleet time would be off by half of
		// that and, if it were ahead, stand still until the true time caught up.
		return false
	}
	if rtt < 0 { // drift during a long dwell: the round trip was shorter than the clocks can resolve
		rtt = 0
	}
	bound := rtt/2 + time.Duration(float64(now.Sub(sent))*Drift) + parentErr + rounding
	if known := c.known(now); c.synced && bound > known+min(now.Sub(c.base)/100, max(Guard/2, known/4)) {
		return false
	}
	c.synced = true
	c.base = now
	c.offset = int64(at)*1e6 + int64(rtt/2) - int64(now)
	c.bound = bound
	return true
}

// Restore sets a clock that was never synced to a time known at reading now.
func (c *Clock) Restore(now Mono, k Known) {
	if k.OK() && !c.synced {
		c.Set(now, k.Time, k.Bound)
	}
}

// Known returns the clock's fleet time and uncertainty at reading now.
func (c *Clock) Known(now Mono) Known {
	t, bound := c.Read(now)
	if bound > Rough {
		return Known{}
	}
	return Known{Time: t, Bound: bound}
}

// Slew moves the clock toward t, the correct time at now, by at most the fraction maxRate of the time since the
// last call: a source of fleet time must not jump. It returns the error found.
func (c *Clock) Slew(now Mono, t Time, maxRate float64) time.Duration {
	if !c.synced {
		return 0
	}
	off := time.Duration(int64(t)*1e6 - int64(now) - c.offset)
	step := time.Duration(float64(now.Sub(c.base)) * maxRate)
	c.offset += int64(min(max(off, -step), step))
	c.base = now
	return off
}

// Now returns fleet time at the reading now, never less than before. Before the first Sync or Set it returns the
// newest floor.
func (c *Clock) Now(now Mono) Time {
	t, _ := c.Read(now)
	return t
}

// Read returns Now and Bound.
func (c *Clock) Read(now Mono) (t Time, bound time.Duration) {
	if !c.synced {
		return c.last, Unsynced
	}
	bound = c.known(now)
	if t = c.estimate(now); t >= c.last {
		c.last = t
	} else {
		bound += time.Duration(c.last-t) * time.Millisecond
	}
	return c.last, bound
}

// Floor makes t the minimum of all later readings.
func (c *Clock) Floor(t Time) {
	if t > c.last {
		c.last = t
	}
}

// Bound returns the uncertainty of Now at the reading now. It grows with drift since the last sample, and while Now
// stands still ahead of the estimate, by that difference. For an unsynced clock it is Unsynced.
func (c *Clock) Bound(now Mono) time.Duration {
	if !c.synced {
		return Unsynced
	}
	ahead := max(0, c.last-c.estimate(now))
	return c.known(now) + time.Duration(ahead)*time.Millisecond
}

// known returns the uncertainty of the estimate itself.
func (c *Clock) known(now Mono) time.Duration {
	return c.bound + time.Duration(float64(now.Sub(c.base))*Drift)
}

// estimate returns fleet time without the rule that it never decreases.
func (c *Clock) estimate(now Mono) Time { return Time(floorDiv(int64(now)+c.offset, 1e6)) }

// Certain returns the lower bound of fleet time for a clock that reads t with uncertainty bound, less the tolerated
// [MaxError]. For an unsynced clock it returns t.
func Certain(t Time, bound time.Duration) Time {
	if bound <= MaxError || bound == Unsynced {
		return t
	}
	return t.Add(MaxError - bound)
}

// Settle reduces the uncertainty of a source that learned its time from an uncertain node: from now on its reading
// defines fleet time. The bound falls by at most the fraction maxRate of the time since the last call of Settle or
// Slew. Other nodes may still use the old time, off in the other direction; their bounds grow as fast.
func (c *Clock) Settle(now Mono, maxRate float64) {
	c.bound = max(0, c.bound-time.Duration(float64(now.Sub(c.base))*maxRate))
	c.base = now
}
