package admission

import (
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// Clock is fleet time as one edge knows it.
type Clock struct {
	fleet   fleettime.Clock
	guess   fleettime.Clock // the machine's clock: used to serve sessions before the first grant
	since   fleettime.Time  // since when this process knows the time and counts; 0 for not yet
	guessed bool            // the regional's time is a guess, as is a stored one
}

// at returns the moment of a clock reading.
func (c *Clock) at(now fleettime.Mono) moment {
	t, bound := c.fleet.Read(now)
	if bound == fleettime.Unsynced {
		t = max(c.guess.Now(now), t)
	}
	return moment{now: now, time: t, bound: bound}
}

// Time returns fleet time, or the machine's clock before the first grant.
func (c *Clock) Time(now fleettime.Mono) fleettime.Time { return c.at(now).time }

// Bound returns the uncertainty of fleet time, or fleettime.Unsynced before the first grant.
func (c *Clock) Bound(now fleettime.Mono) time.Duration { return c.fleet.Bound(now) }

// Guess sets the machine's clock, which serves sessions until the first grant. Based on it nothing is admitted or
// renewed.
func (c *Clock) Guess(now fleettime.Mono, t fleettime.Time) { c.guess.Set(now, t, time.Hour) }

// Restore sets fleet time as stored by an earlier process.
func (c *Clock) Restore(now fleettime.Mono, k fleettime.Known) {
	c.fleet.Restore(now, k)
	c.start(now)
}

// Known returns fleet time for the data folder, or the zero value if it is unknown or, according to the regional,
// not reliable after a restart.
func (c *Clock) Known(now fleettime.Mono) fleettime.Known {
	if c.guessed {
		return fleettime.Known{}
	}
	return c.fleet.Known(now)
}

// receive takes the time from a grant.
func (c *Clock) receive(now fleettime.Mono, g *wire.Grant) {
	if g.Echo != 0 && c.fleet.Sync(now, g.Echo, g.Dwell, g.At, g.AtBound) {
		c.guessed = g.Guess
		c.start(now)
	}
	c.fleet.Floor(g.Watermark)
}

// start records when the time became known: nobody was counted here before.
func (c *Clock) start(now fleettime.Mono) {
	if c.since == 0 && c.fleet.Bound(now) != fleettime.Unsynced {
		c.since = c.fleet.Now(now)
	}
}

// countAt returns the time at which a request at ft counts as a check-in. Tickets carry the second of the last one,
// and those of the second in which this process began may be from its predecessors: it begins with the next one.
func (c *Clock) countAt(ft fleettime.Time) fleettime.Time { return max(ft, c.since.NextSecond()) }

// moment is a clock reading with fleet time then.
type moment struct {
	now   fleettime.Mono
	time  fleettime.Time // the machine's clock before the first grant
	bound time.Duration  // uncertainty of time; fleettime.Unsynced before the first grant
}

// synced reports whether fleet time is known.
func (m *moment) synced() bool { return m.bound != fleettime.Unsynced }

// second returns the Unix second.
func (m *moment) second() uint32 { return uint32(m.time.Second()) }

// stampTime returns the second from which tickets are stamped: the lower bound of fleet time. A ticket stamped with
// an uncertain clock ends no later than one that other edges stamp now, so a wait for its end need not consider how
// long this edge was without a time source.
func (m *moment) stampTime() uint32 {
	return uint32(fleettime.Certain(m.time, m.bound).Second())
}
