package region

import (
	"math"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// This file is what is made of silence (rule 5): what an edge that is not heard may have
// done, and may be doing still.

// waitedEvery is how often it is stored for how long an edge has been silent while
// others were heard, in seconds.
const waitedEvery = 5

// countSilence counts for how long an edge has been silent while others were heard.
// Silence of all is our own isolation.
func (l *lives) countSilence(now fleettime.Mono, e *edge) {
	if l.roster.anyHeard() {
		e.silent += now.Sub(l.advanced)
	}
	if s := uint32(min(e.silent/time.Second, math.MaxUint32)); s >= e.waited+waitedEvery {
		e.waited = s
		l.stored.patch(e, func(r *wire.RosterEntry) { r.Waited = s })
	}
}

// expireLost declares a silent edge lost once lost_after has passed in which other
// edges were heard. Silence of all is our own isolation and starts no clock. One
// that another process has succeeded has ended: what it might have gone
// on renewing has stopped, and ages from here. When here is nobody can say who does
// not know the time.
func (l *lives) expireLost(now fleettime.Mono, e *edge) {
	l.countSilence(now, e)
	if !l.clock.synced(now) {
		return
	}
	ended, unpinned := l.roster.hasEnded(e), false
	end := l.latest(now).Second()
	if e.ended != 0 {
		end = e.ended // so it goes on across takeovers
	}
	for b, acc := range l.rooms.accounts(e) {
		if acc.presumed.silent && (ended || e.silent > b.lostWait()) {
			if !ended || e.forgotten {
				b.dirty = b.excess.add(e.inc, acc.presumed.sum()) || b.dirty // it may be alive all the same
			}
			acc.unpinAll(now, end)
			unpinned = true
		}
	}
	if unpinned && e.state == dead {
		l.enrolOver(e) // the next aggregator need not wait for what has ended
	}
}

// stillLost looks at an edge that was given up. Nothing is freed until whatever it stamped
// under a lease has expired.
func (l *lives) stillLost(now fleettime.Mono, ft fleettime.Time, synced bool, e *edge, blank bool) {
	if e.ended == 0 && synced && l.roster.hasEnded(e) {
		l.endedNow(now, e)
	}
	switch over := synced && ft.Add(-fleettime.Guard).Second() > l.holdUntil; {
	case !over || ft.Second() <= e.leased+int64(wire.RateWindow/time.Second)+1:
		l.hold = true
	case e.lostHold:
		l.expireLost(now, e)
		l.reap(e)
	case l.rooms.watermark.Add(-fleettime.Guard).Second() > l.holdUntil:
		// The seconds of it are freed as well: until then a session that it admitted and
		// others have renewed since is counted as -1 and +1, which is nothing.
		l.holdLost(now, e, blank)
	}
}

// holdLost goes on reckoning with an edge that nobody has heard since the
// aggregator began, although all that it stamped under a lease has expired: under
// partition_policy serve it may be renewing sessions alone. How many nobody can
// tell. But everybody else's are counted by now, so it cannot be more than what
// would be free without it.
func (l *lives) holdLost(now fleettime.Mono, e *edge, blank bool) {
	switch {
	case e.ended != 0 && l.clock.past(now, e.ended+int64(l.rooms.longestLife(now)/time.Second)+2):
		e.become(left)
		l.meterForgotten(e, blank)
		return
	case blank: // nor is it known what there is to be free
		l.countSilence(now, e)
		if wait := l.rooms.longestLostWait(); wait == 0 || e.silent > wait {
			e.become(left)
		}
		return
	}
	e.lostHold = true
	life := int64(l.rooms.longestLife(now) / time.Second)
	for _, b := range l.rooms.list {
		free, _ := b.reckoned()
		if b.Cap || free <= 0 {
			continue
		}
		acc := b.account(e)
		p := &acc.presumed
		p.spent, p.silent, p.stampLife = free, true, life
		b.dirty, b.stale = true, true
		acc.news()
	}
	l.reap(e)
}

// meterForgotten tells as excess what an edge may go on renewing that an operator declared
// ended, and of which nobody knows what it held: all that nobody else has.
func (l *lives) meterForgotten(e *edge, blank bool) {
	if !e.forgotten {
		return
	}
	for _, b := range l.rooms.list {
		n, _ := b.reckoned()
		if blank {
			n = int64(b.Total) - b.active()
		}
		if !b.Cap {
			b.dirty = b.excess.add(e.inc, n) || b.dirty
		}
	}
}

// reap ends the reckoning with a lost edge, unless it may go on renewing.
func (l *lives) reap(e *edge) {
	if !l.rooms.silent(e) {
		e.become(left)
	}
}
