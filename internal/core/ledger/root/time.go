package root

import (
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/wire"
)

// rootClock is fleet time at a coordinator: the machine's, or, where a fleet already runs, the time
// that its data centres report.
//
// Invariant: a time that is the machine's alone is sent as a guess, and gives way.
type rootClock struct {
	fleettime.Clock
	guessed bool // it is the machine's: nobody knew better

	restored fleettime.Clock // the time that this process knew when the term began
}

// centreTime has the time as a data centre reports it.
type centreTime struct {
	probes []ledger.Probe // grants sent while the coordinator could learn the time
	trips  ledger.Trips   // of their answers
	other  bool           // it has a fleet time that is not ours
	known  bool           // it knows a fleet time
	bound  time.Duration
}

// SetTime offers the machine's wall time, to be called about once a second. A
// fleet that already runs goes on with its own time, as its data centres tell
// it (see rootClock.learn), drawn slowly toward the machine's; one that has none takes
// the machine's once everybody has had a chance to
// speak. It returns how far fleet time is from the machine's.
func (a *Allocator) SetTime(now fleettime.Mono, wall fleettime.Time) time.Duration {
	off, set := a.clock.set(now, wall, &a.centres)
	if set {
		a.due = now
	}
	return off
}

// set takes the machine's wall time. It returns how far fleet time is from it, and whether it is
// fleet time from now on.
func (c *rootClock) set(now fleettime.Mono, wall fleettime.Time, all *centres) (off time.Duration, set bool) {
	if bound := c.Bound(now); bound != fleettime.Unsynced {
		if bound > fleettime.MaxError {
			c.Settle(now, slewRate) // instead: every node allows for this difference
		}
		return c.Slew(now, wall, slewRate), false
	}
	silent := slices.ContainsFunc(all.all, func(d *centre) bool { return !d.heard })
	if slices.ContainsFunc(all.all, func(d *centre) bool { return d.time.known && !all.alone(now, d) }) {
		return 0, false // somebody knows it, and is about to tell
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

// restoredWait is how long a new leader that knows fleet time from before its start waits for a data centre that
// knows it better.
const restoredWait = time.Second

// Known returns fleet time for the data folder of the process; the zero value where it is not known.
func (a *Allocator) Known(now fleettime.Mono) fleettime.Known {
	k := a.clock.Known(now)
	k.Guess = a.clock.guessed
	return k
}

// slewRate is how fast fleet time is drawn toward the leader's wall time.
const slewRate = 100e-6

// syncFromReport takes over the time of a fleet that already runs. A report alone may
// have been under way for long; one that answers a grant of ours was written
// after that grant was sent, so its time lies between then and now.
//
// A time that was only the machine's gives way to the fleet's as soon as a data
// centre turns up that knows one; until its answer is there it is not told ours.
func (c *rootClock) syncFromReport(now fleettime.Mono, d *centre, m *wire.Report, all *centres) {
	told := &d.time
	unknown := c.Bound(now) == fleettime.Unsynced
	if !unknown && !c.guessed {
		told.probes, told.other = nil, false
		return
	}
	// The data centre may have lost the only node that knew it.
	if told.known, told.bound = ledger.IsSynced(m), m.AsOfBound; !told.known {
		told.other = false // nor does its time differ from ours: it gets ours
		return
	}
	// A time that a data centre had from us differs by less than this, however late.
	told.other = !unknown && (m.AsOf > c.Now(now).Add(ledger.TimeApart) || m.AsOf < c.Now(now).Add(-ledger.TimeApart))
	if m.Seen != all.cfg.Term || (!unknown && !told.other) {
		return
	}
	trip, ok := ledger.Answered(told.probes, now, m)
	since := now.Sub(all.started) // at first only a good answer will do
	ok = ok && (trip <= fleettime.Guard || (trip <= fleettime.MaxError && since > time.Second) || since > ledger.TimeWait)
	ok = ok && told.trips.Usable(trip)
	ok = ok && (m.AsOfBound <= fleettime.MaxError || (since > ledger.TimeWait && !all.surer(now, m.AsOfBound)) || since > 2*ledger.TimeWait)
	if ok {
		*c = rootClock{}
		bound := trip / 2
		if m.AsOfBound > fleettime.MaxError {
			bound += m.AsOfBound
		}
		c.Set(now, m.AsOf.Add(trip/2), bound)
	}
}

// surer reports whether a data centre is heard that is surer of the time.
func (c *centres) surer(now fleettime.Mono, bound time.Duration) bool {
	return slices.ContainsFunc(c.all, func(d *centre) bool {
		return d.time.known && d.time.bound+fleettime.Guard < bound && !c.alone(now, d)
	})
}
