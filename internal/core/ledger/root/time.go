package root

import (
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/wire"
)

// rootClock is fleet time at a coordinator: the time that data centres report or, in a new fleet, the machine's.
//
// Invariant: a time that is only the machine's is sent as a guess, and is replaced by the fleet's.
type rootClock struct {
	fleettime.Clock
	guessed bool // it is the machine's time

	restored fleettime.Clock // the time that this process knew at the start of the term
}

// set offers the machine's wall time. It returns the difference to fleet time, and whether fleet time is set now.
func (c *rootClock) set(now fleettime.Mono, wall fleettime.Time, all *centres) (off time.Duration, set bool) {
	if bound := c.Bound(now); bound != fleettime.Unsynced {
		if bound > fleettime.MaxError {
			c.Settle(now, slewRate) // every node allows for this difference
		}
		return c.Slew(now, wall, slewRate), false
	}
	silent := slices.ContainsFunc(all.all, func(d *centre) bool { return !d.heard })
	if slices.ContainsFunc(all.all, func(d *centre) bool { return d.time.known && !all.alone(now, d) }) {
		return 0, false // a data centre knows it and will report it
	}
	kept := c.restored.Known(now)
	wait := ledger.TimeWait
	switch {
	case !silent && (all.bootstrap || kept.OK()):
		wait = 0
	case kept.OK():
		wait = restoredWait
	case !silent:
		wait = ledger.TimeWait / 2
	}
	if now.Sub(all.started) < wait {
		return 0, false
	}
	if kept.OK() {
		c.Set(now, kept.Time, kept.Bound)
		c.guessed = all.cfg.Time.Guess
		return c.Slew(now, wall, slewRate), true
	}
	c.guessed = !all.bootstrap
	c.Set(now, wall, 0)
	return 0, true
}

// restoredWait is how long a new leader that restored fleet time waits for a data centre that knows it better.
const restoredWait = time.Second

// slewRate is the rate at which fleet time approaches the leader's wall time.
const slewRate = 100e-6

// syncFromReport takes over the time of a running fleet. A report alone may be old. A report that answers a grant of
// this leader was written after the grant was sent, so its time lies between then and now.
//
// A time that was only the machine's is replaced as soon as a data centre reports fleet time. Until that report is an
// answer, the data centre does not get the machine's time.
func (c *rootClock) syncFromReport(now fleettime.Mono, d *centre, m *wire.Report, all *centres) {
	t := &d.time
	t.known, t.bound = ledger.IsSynced(m), m.AsOfBound
	unknown := c.Bound(now) == fleettime.Unsynced
	if !unknown && !c.guessed {
		t.probes, t.other = nil, false
		return
	}
	// The data centre may have lost the only node that knew fleet time.
	if !t.known {
		t.other = false // it gets the time of this leader
		return
	}
	// A time that came from this leader differs by less than TimeApart, however late.
	t.other = !unknown && (m.AsOf > c.Now(now).Add(ledger.TimeApart) || m.AsOf < c.Now(now).Add(-ledger.TimeApart))
	if m.Seen != all.cfg.Term || (!unknown && !t.other) {
		return
	}
	trip, ok := ledger.Answered(t.probes, now, m)
	since := now.Sub(all.started) // at first only a precise answer is accepted
	ok = ok && (trip <= fleettime.Guard || (trip <= fleettime.MaxError && since > time.Second) || since > ledger.TimeWait)
	ok = ok && t.trips.Usable(trip)
	ok = ok && (m.AsOfBound <= fleettime.MaxError || (since > ledger.TimeWait && !all.surer(now, m.AsOfBound)) ||
		since > 2*ledger.TimeWait)
	if ok {
		*c = rootClock{}
		bound := trip / 2
		if m.AsOfBound > fleettime.MaxError {
			bound += m.AsOfBound
		}
		c.Set(now, m.AsOf.Add(trip/2), bound)
	}
}

// surer reports whether a reporting data centre knows the time with less uncertainty.
func (c *centres) surer(now fleettime.Mono, bound time.Duration) bool {
	return slices.ContainsFunc(c.all, func(d *centre) bool {
		return d.time.known && d.time.bound+fleettime.Guard < bound && !c.alone(now, d)
	})
}
