package slots

import (
	"math"
	"slices"
	"time"

	"vestibule/internal/fleet"
	"vestibule/internal/mutant"
	"vestibule/internal/wire"
)

// rootClock is fleet time at a coordinator: the machine's, or, where a fleet already runs,
// as its data centres tell it.
//
// Invariant: a time that is the machine's alone is told as a guess, and gives way.
type rootClock struct {
	fleet.Clock
	guessed bool // it is the machine's: nobody knew better
}

// centreTime is what a data centre tells of the time.
type centreTime struct {
	probes []probe // grants sent while the coordinator could learn the time
	trips  trips   // of their answers
	other  bool    // it has a fleet time that is not ours
	known  bool    // it knows a fleet time
	bound  time.Duration
}

// probe is the moment at which a grant was sent.
type probe struct {
	seq uint64
	at  fleet.Mono
}

// maxProbes bounds what is remembered of grants whose answers tell the time: seconds
// of them, where each is answered at once and the way is long.
const maxProbes = 256

// remember appends p; the oldest makes room.
func remember(probes []probe, p probe) []probe {
	if len(probes) == maxProbes {
		probes = probes[:copy(probes, probes[1:])]
	}
	return append(probes, p)
}

// SetTime offers the machine's wall time, to be called about once a second. A
// fleet that already runs goes on with its own time, as its data centres tell
// it (see rootClock.learn), drawn slowly toward the machine's; one that has none takes
// the machine's once everybody has had a chance to
// speak. It returns how far fleet time is from the machine's.
func (a *Allocator) SetTime(now fleet.Mono, wall fleet.Time) time.Duration {
	off, set := a.clock.offer(now, wall, &a.centres)
	if set {
		a.due = now
	}
	return off
}

// offer takes the machine's wall time. It returns how far fleet time is from it, and whether it is
// fleet time from now on.
func (c *rootClock) offer(now fleet.Mono, wall fleet.Time, all *centres) (off time.Duration, set bool) {
	if bound := c.Bound(now); bound != fleet.Unsynced {
		if bound > fleet.MaxError {
			c.Settle(now, slewRate) // instead: what everybody allows for is one of both
		}
		return c.Slew(now, wall, slewRate), false
	}
	silent := slices.ContainsFunc(all.all, func(d *centre) bool { return !d.heard })
	if slices.ContainsFunc(all.all, func(d *centre) bool { return d.time.known && !all.alone(now, d) }) {
		return 0, false // somebody knows it, and is about to tell
	}
	wait := timeWait
	switch {
	case !silent && all.bootstrap:
		wait = 0
	case !silent:
		wait = timeWait / 2
	}
	if now.Sub(all.started) < wait {
		return 0, false
	}
	c.guessed = !all.bootstrap
	c.Set(now, wall, 0)
	return 0, true
}

// timeWait is how long a new leader waits for somebody who knows fleet time:
// longer than a new aggregator takes to learn it from its edges.
const timeWait = 5 * time.Second

// slewRate is how fast fleet time is drawn toward the leader's wall time.
const slewRate = 100e-6

// learn takes over the time of a fleet that already runs. A report alone may
// have been under way for long; one that answers a grant of ours was written
// after that grant was sent, so its time lies between then and now.
//
// A time that was only the machine's gives way to the fleet's as soon as a data
// centre turns up that knows one; until its answer is there it is not told ours.
func (c *rootClock) learn(now fleet.Mono, d *centre, m *wire.Report, all *centres) {
	told := &d.time
	unknown := c.Bound(now) == fleet.Unsynced
	if !unknown && !c.guessed {
		told.probes, told.other = nil, false
		return
	}
	// Who knew may have ended since, and with it the only one.
	if told.known, told.bound = isSynced(m), m.AsOfBound; !told.known {
		told.other = false // nor has it a time that is not ours: it is told ours
		return
	}
	// What a data centre had from us differs by less than this, however late.
	told.other = !unknown && (m.AsOf > c.Now(now).Add(timeApart) || m.AsOf < c.Now(now).Add(-timeApart))
	if m.Seen != all.cfg.Term || (!unknown && !told.other) {
		return
	}
	trip, ok := answered(told.probes, now, m)
	since := now.Sub(all.started) // at first only a good answer will do
	ok = ok && (trip <= fleet.Guard || (trip <= fleet.MaxError && since > time.Second) || since > timeWait)
	ok = ok && told.trips.usable(trip)
	ok = ok && (m.AsOfBound <= fleet.MaxError || (since > timeWait && !all.surer(now, m.AsOfBound)) || since > 2*timeWait)
	if ok {
		*c = rootClock{}
		bound := trip / 2
		if m.AsOfBound > fleet.MaxError && !mutant.On(mutant.TimeOnTrust) {
			bound += m.AsOfBound
		}
		c.Set(now, m.AsOf.Add(trip/2), bound)
	}
}

// surer reports whether a data centre is heard that is surer of the time.
func (c *centres) surer(now fleet.Mono, bound time.Duration) bool {
	return slices.ContainsFunc(c.all, func(d *centre) bool {
		return d.time.known && d.time.bound+fleet.Guard < bound && !c.alone(now, d)
	})
}

// timeApart is by how much the time of a data centre must differ from the
// leader's to be another one and not the same, told late.
const timeApart = time.Second

// answered returns how long ago the grant was sent that m answers, where m tells
// the time and that was not long ago.
func answered(probes []probe, now fleet.Mono, m *wire.Report) (trip time.Duration, ok bool) {
	if m.AsOf <= 0 {
		return 0, false
	}
	for _, p := range probes {
		if trip = now.Sub(p.at); p.seq == m.Acked && trip <= fleet.LongTrip {
			return trip, true
		}
	}
	return 0, false
}

// trips tells a way that is long from a message that was late once: it counts the
// answers in a row that took longer than a second (see fleet.Clock).
type trips struct{ slow int }

// usable takes note of a round trip and reports whether the time may be learned
// from it.
func (t *trips) usable(trip time.Duration) bool {
	if trip <= fleet.MaxTrip {
		t.slow = 0
		return true
	}
	t.slow++
	return t.slow >= fleet.SlowTrips
}

// earliest returns the time that a report was written at, at the earliest; of somebody
// sure, what it says, as everybody allows for so much error.
func earliest(m *wire.Report) fleet.Time {
	if m.AsOfBound > fleet.MaxError {
		return max(0, m.AsOf.Add(-min(m.AsOfBound, 24*time.Hour)))
	}
	return m.AsOf
}

// wrote returns when a report that comes now was written, at the earliest: long ago where
// either side does not know the time.
func (c *clock) wrote(now fleet.Mono, m *wire.Report) fleet.Mono {
	ft, bound := c.Read(now)
	if bound == fleet.Unsynced || !isSynced(m) {
		return math.MinInt64 / 2
	}
	return now.Add(-max(0, ft.Add(max(bound, fleet.MaxError)).Sub(earliest(m).Add(-fleet.MaxError))))
}

// latest returns the time that a report was written at, at the latest; of one who did not
// know the time, what it took for it.
func latest(m *wire.Report) fleet.Time {
	if m.AsOfBound > fleet.MaxError && isSynced(m) {
		return m.AsOf.Add(m.AsOfBound)
	}
	return m.AsOf
}

// isSynced reports whether a report was written by somebody who knew the time.
func isSynced(m *wire.Report) bool { return m.AsOf > 0 && m.AsOfBound <= fleet.Rough }

// askEdges reports whether a new aggregator is still to learn fleet time from its
// edges, for as long as one that runs, under a lease of so long, may take to tell. They have lived through it, where a new leader of global may have heard
// nobody yet and be guessing: told in good faith, a time ahead of the fleet's
// would end sessions that are valid.
func (c *clock) askEdges(now fleet.Mono, lease time.Duration, edges []*edge) bool {
	return !c.synced(now) && now.Sub(c.started) < lease &&
		slices.ContainsFunc(edges, func(e *edge) bool { return e.state == awaiting || (e.recovered && e.timed) })
}

// doubts reports whether global tells another time than the fleet's, as far as we
// know that. It may be guessing, and have said so before it heard ours: our next
// report sets it right. Only if it insists, it must be us.
func (u *uplink) doubts(now fleet.Mono, c *clock, g *wire.Grant) bool {
	trip := max(0, now.Sub(g.Echo))
	ours, bound := c.Read(now)
	apart := timeApart + min(bound, fleet.Rough)
	if g.AtBound <= fleet.Rough {
		apart += g.AtBound
	}
	if bound > fleet.Rough || (g.At < ours.Add(apart) && g.At > ours.Add(-trip-apart)) {
		u.doubting = false
		return false
	}
	if !u.doubting {
		u.doubting, u.doubt = true, now
	}
	return now.Sub(u.doubt) < timeWait
}
