// Package fleettime keeps time for a fleet of nodes that share no clock.
//
// Two kinds of time exist and they never mix. [Mono] is a reading of one
// process's own monotonic clock: leases and rate windows are measured with it
// and it never leaves the process except to be echoed back. [Time] is fleet
// time: every node's estimate of one shared timeline, used only to stamp and
// to expire tickets. The global coordinator is the source of fleet time; every
// other node keeps an offset from its own monotonic clock to its parent's
// fleet time, learned from the midpoint of a report's round trip.
//
// Everybody allows for an error of [MaxError]. A node that is less sure goes by what
// fleet time is at least ([Clock.Certain]): what it stamps ends earlier, what it frees
// is freed later. Above [Rough] it admits nobody.
package fleettime

import "time"

// Mono is a reading of one process's monotonic clock: nanoseconds since an
// origin that means nothing outside the process.
type Mono int64

// Add returns m moved by d.
func (m Mono) Add(d time.Duration) Mono { return m + Mono(d) }

// Sub returns the time from o to m.
func (m Mono) Sub(o Mono) time.Duration { return time.Duration(m - o) }

// Never is later than every reading: the deadline of something not due.
const Never = Mono(1<<63 - 1)

// Time is fleet time: milliseconds since the Unix epoch, UTC.
type Time int64

// TimeOf returns the fleet time that equals the wall time t.
func TimeOf(t time.Time) Time { return Time(t.UnixMilli()) }

// Add returns t moved by d, truncated to the millisecond.
func (t Time) Add(d time.Duration) Time { return t + Time(d.Milliseconds()) }

// Sub returns the time from u to t.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t-u) * time.Millisecond }

// Second returns the whole second that t lies in, as Unix time.
func (t Time) Second() int64 { return floorDiv(int64(t), 1000) }

// Minute returns the start of the UTC minute that t lies in.
func (t Time) Minute() Time { return Time(floorDiv(int64(t), 60_000) * 60_000) }

// Std returns t as a time.Time in UTC.
func (t Time) Std() time.Time { return time.UnixMilli(int64(t)).UTC() }

func (t Time) String() string { return t.Std().Format("2006-01-02T15:04:05.000Z") }

// floorDiv divides rounding toward minus infinity, so that times before the
// epoch (which only tests have) land in the bucket that holds them.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
