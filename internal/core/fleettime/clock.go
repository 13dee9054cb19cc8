package fleettime

import "time"

// Bounds of a node's belief about time.
const (
	// Drift bounds how far two monotonic clocks of the fleet run apart, as a
	// fraction: 200 parts per million. Quartz oscillators stay below half of it.
	Drift = 200e-6

	// MaxError is the error that everybody allows for. A node that is less sure, for
	// want of a parent to ask, goes by what time is at least where it stamps and
	// where it frees.
	MaxError = 250 * time.Millisecond

	// Rough is the uncertainty above which nobody is admitted, and nobody takes the
	// time from a node: 14 hours of drift.
	Rough = 10 * time.Second

	// Guard is added wherever an expiry seen by one clock is acted on by
	// another: twice the error that a node with a good link has (50 ms).
	Guard = 100 * time.Millisecond

	// MaxTrip is the longest round trip that fleet time is learned from as long as a
	// shorter one may come; LongTrip the longest where as many as SlowTrips in a row
	// took longer than MaxTrip: then the way is as long as that.
	MaxTrip   = time.Second
	LongTrip  = Rough
	SlowTrips = 16

	// rounding is lost where a time is cut to whole milliseconds: once when the
	// parent reads its clock, once when we read ours.
	rounding = 2 * time.Millisecond

	// Unsynced is the error of a clock that was never set: no bound at all.
	Unsynced = time.Duration(1<<63 - 1)
)

// Stretch returns d lengthened by the drift bound: how long a lender waits for
// a lease of d that the holder measures on another clock.
func Stretch(d time.Duration) time.Duration { return d + time.Duration(float64(d)*Drift) + 1 }

// Shrink returns d shortened by the drift bound: how long a holder believes a
// lease of d that the lender measures on another clock.
func Shrink(d time.Duration) time.Duration { return d - time.Duration(float64(d)*Drift) - 1 }

// Clock is one node's estimate of fleet time on top of its own monotonic
// clock. The zero value has never been synced: its error is infinite. A Clock
// is not safe for concurrent use.
//
// Fleet time as read from a Clock never decreases and never lies behind a
// watermark given to Floor, whatever the parent says.
type Clock struct {
	synced bool
	base   Mono          // reading at which offset and bound were learned
	offset int64         // fleet nanoseconds minus mono nanoseconds
	bound  time.Duration // by how much the estimate may be wrong at base
	last   Time          // newest time handed out
	slow   int           // answers in a row that took longer than MaxTrip
}

// Set makes the clock a source of fleet time: at reading now it is t exactly.
// Used by the coordinator, which has nobody to learn from. Setting the clock
// back makes fleet time stand still until it has caught up.
func (c *Clock) Set(now Mono, t Time, bound time.Duration) {
	c.synced = true
	c.base = now
	c.offset = int64(t)*1e6 - int64(now)
	c.bound = bound
}

// Sync learns from one round trip (Cristian's algorithm with the parent's
// dwell taken out, as NTP does): the child sent at reading sent, the parent
// held the message for dwell and answered at its fleet time at, known to it
// within parentErr; the answer arrived at reading now.
//
// A sample that is less certain than what the clock already believes is dropped,
// but for a little, which grows with the age of the belief: the parent's own time
// may have been moved since, by a new leader. Sync reports whether the sample was
// taken.
func (c *Clock) Sync(now, sent Mono, dwell time.Duration, at Time, parentErr time.Duration) bool {
	rtt := now.Sub(sent) - dwell
	if now < sent || dwell < 0 || parentErr < 0 || parentErr > time.Hour {
		return false // nonsense, or a parent that knows no better
	}
	if rtt <= MaxTrip {
		c.slow = 0
	} else if c.slow++; c.slow < SlowTrips || rtt > LongTrip {
		// Our report lay somewhere for long: in the hands of a parent that stood
		// still. Fleet time would be off by as much as half of that, and where it
		// were ahead, stand still until it were true.
		return false
	}
	if rtt < 0 { // drift over a long dwell: the round trip was shorter than the clocks can tell
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

// Restore sets a clock that was never synced to what was known at reading now.
func (c *Clock) Restore(now Mono, k Known) {
	if k.OK() && !c.synced {
		c.Set(now, k.Time, k.Bound)
	}
}

// Known returns what the clock knows at reading now.
func (c *Clock) Known(now Mono) Known {
	t, bound := c.Read(now)
	if bound > Rough {
		return Known{}
	}
	return Known{Time: t, Bound: bound}
}

// Slew moves the clock toward t, which it should read at now, by no more than
// the fraction maxRate of the time since the last call for this: a source of
// fleet time must not jump. It reports how far off the clock was.
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

// Now returns fleet time at the reading now: never less than what was returned
// before. Before the first Sync or Set it returns the newest floor.
func (c *Clock) Now(now Mono) Time {
	t, _ := c.Read(now)
	return t
}

// Read returns what Now and Bound return.
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

// Floor makes sure that the clock never again reads less than t.
func (c *Clock) Floor(t Time) {
	if t > c.last {
		c.last = t
	}
}

// Bound returns the bound on the error of Now at the reading now; it grows with
// drift since the last sample, and by as much as Now stands still ahead of what
// the clock has learned since. A clock never synced answers Unsynced.
func (c *Clock) Bound(now Mono) time.Duration {
	if !c.synced {
		return Unsynced
	}
	ahead := max(0, c.last-c.estimate(now))
	return c.known(now) + time.Duration(ahead)*time.Millisecond
}

// known is the error of the estimate itself.
func (c *Clock) known(now Mono) time.Duration {
	return c.bound + time.Duration(float64(now.Sub(c.base))*Drift)
}

// estimate is what the clock would read if it could go back.
func (c *Clock) estimate(now Mono) Time { return Time(floorDiv(int64(now)+c.offset, 1e6)) }

// Certain returns what fleet time is at least where a clock reads t, wrong by no more
// than bound, but for the error that everybody allows for; of a clock that was never set,
// t itself.
func Certain(t Time, bound time.Duration) Time {
	if bound <= MaxError || bound == Unsynced {
		return t
	}
	return t.Add(MaxError - bound)
}

// Settle makes a source surer of a time that it learned from somebody unsure, as the
// fleet's time is what it says: its error bound falls by no more than the fraction
// maxRate of the time since the last call of this or of Slew. Others may go by the
// time that it was learned from, wrong the other way; their bounds grow as fast.
func (c *Clock) Settle(now Mono, maxRate float64) {
	c.bound = max(0, c.bound-time.Duration(float64(now.Sub(c.base))*maxRate))
	c.base = now
}
