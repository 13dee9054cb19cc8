// Package fleettime keeps time for a fleet of nodes without a shared clock.
//
// There are two kinds of time, and they never mix. [Mono] is a reading of one process's monotonic clock. Leases and
// rate windows are measured with it, and it leaves the process only to be echoed back. [Time] is fleet time: every
// node's estimate of one shared timeline, used only to stamp and to expire tickets. The global coordinator is the
// source of fleet time. Every other node keeps the offset from its own monotonic clock to its parent's fleet time,
// learned from the midpoint of a report's round trip.
//
// Every node tolerates an error of [MaxError] in others. A node with a larger uncertainty uses the lower bound of
// fleet time ([Certain]): its tickets expire earlier, and it frees permits later. Above [Rough] it admits nobody.
package fleettime

import "time"

// Mono is a reading of one process's monotonic clock: nanoseconds since an arbitrary origin.
type Mono int64

// Add returns m moved by d.
func (m Mono) Add(d time.Duration) Mono { return m + Mono(d) }

// Sub returns the time from o to m.
func (m Mono) Sub(o Mono) time.Duration { return time.Duration(m - o) }

// Never is later than every reading: the deadline of an event that is not due.
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

// NextSecond returns the start of the first whole second after t.
func (t Time) NextSecond() Time { return Time((t.Second() + 1) * 1000) }

// Minute returns the start of the UTC minute that t lies in.
func (t Time) Minute() Time { return Time(floorDiv(int64(t), 60_000) * 60_000) }

// Std returns t as a time.Time in UTC.
func (t Time) Std() time.Time { return time.UnixMilli(int64(t)).UTC() }

func (t Time) String() string { return t.Std().Format("2006-01-02T15:04:05.000Z") }

// floorDiv divides and rounds toward minus infinity, so that times before the epoch (tests only) land in the right
// bucket.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
