package slots

import (
	"math"
	"time"

	"vestibule/internal/fleet"
	"vestibule/internal/mutant"
	"vestibule/internal/wire"
)

// This file is what is made of silence (rule 5): what an edge that is not heard may have
// done, and may be doing still.

// waitedEvery is how often it is stored for how long an edge has been silent while
// others were heard, in seconds.
const waitedEvery = 5

// lapse takes note that an edge's lease is over by every clock: what it may
// have done since its last report is presumed done.
func (l *lives) lapse(now fleet.Mono, e *edge) {
	e.become(dead)
	for _, acc := range l.rooms.accounts(e) {
		acc.lapse(e.recv.Add(l.lapseAfter()))
	}
	l.presume(now, e)
	l.enrol(e)
}

// presume counts what a lapsed edge may have spent and renewed without a word.
func (l *lives) presume(now fleet.Mono, e *edge) {
	since := e.latest
	if !e.timed { // our answer told it the time, and nobody has told us what it did with it
		since = l.latest(now)
	}
	breath := l.rooms.maxExpiry(now, since, l.params.EdgeLease)
	var gone *edge
	if l.roster.wentBefore(e, l.rooms.watermark.Second()) {
		gone = l.roster.find(wire.Gone, 0)
	}
	renews := !l.roster.hasEnded(e) || e.unheard
	for b, acc := range l.rooms.accounts(e) {
		acc.presume(now, breath)
		if !b.Cap && renews && !mutant.On(mutant.NoPin) {
			acc.pinAll(gone)
		}
	}
}

// countSilence counts for how long an edge has been silent while others were heard.
// Silence of all is our own isolation.
func (l *lives) countSilence(now fleet.Mono, e *edge) {
	if l.roster.anyHeard() || mutant.On(mutant.IsolationIsDeath) {
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
func (l *lives) expireLost(now fleet.Mono, e *edge) {
	l.countSilence(now, e)
	if !l.clock.synced(now) && !mutant.On(mutant.TimelessUnpin) {
		return
	}
	ended, unpinned := l.roster.hasEnded(e), false
	end := l.latest(now).Second()
	if e.ended != 0 {
		end = e.ended // so it goes on across takeovers
	}
	for b, acc := range l.rooms.accounts(e) {
		if acc.silent && (ended || e.silent > b.lostWait()) {
			if !ended || (e.forgotten && !mutant.On(mutant.ForgetUnmetered)) {
				b.dirty = b.excess.add(e.inc, acc.presumedSpent+acc.pinned+acc.pinnedUntold) || b.dirty // it may be alive all the same
			}
			acc.unpinAll(now, end)
			unpinned = true
		}
	}
	if unpinned && e.state == dead {
		l.enrol(e) // the next aggregator need not wait for what has ended
	}
}

// stillLost looks at an edge that was given up. Nothing is freed until whatever it stamped
// under a lease has expired.
func (l *lives) stillLost(now fleet.Mono, ft fleet.Time, synced bool, e *edge, blank bool) {
	if e.ended == 0 && synced && l.roster.hasEnded(e) {
		l.endedNow(now, e)
	}
	switch over := synced && ft.Add(-fleet.Guard).Second() > l.holdUntil; {
	case !over || ft.Second() <= e.leased+int64(wire.RateWindow/time.Second)+1:
		l.hold = !mutant.On(mutant.NoHold)
	case e.lostHold:
		l.expireLost(now, e)
		l.reap(e)
	case l.rooms.watermark.Add(-fleet.Guard).Second() > l.holdUntil:
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
func (l *lives) holdLost(now fleet.Mono, e *edge, blank bool) {
	switch {
	case mutant.On(mutant.LostIsStill), e.ended != 0 && l.clock.past(now, e.ended+int64(l.rooms.longestLife(now)/time.Second)+2):
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
		acc.presumedSpent, acc.silent, acc.stampLife = free, true, life
		b.dirty, b.stale = true, true
		acc.news()
	}
	l.reap(e)
}

// meterForgotten tells as excess what an edge may go on renewing that an operator declared
// ended, and of which nobody knows what it held: all that nobody else has.
func (l *lives) meterForgotten(e *edge, blank bool) {
	if !e.forgotten || mutant.On(mutant.ForgetUnmetered) {
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

// endLostHold takes note that an edge is heard after all. What was presumed may
// have been another's, who is not.
func (l *lives) endLostHold(e *edge) {
	if !e.lostHold {
		return
	}
	e.lostHold = false
	var other *edge
	for _, o := range l.roster.edges {
		if o != e && o.state == lost && o.lostHold {
			other = o
		}
	}
	for b, acc := range l.rooms.accounts(e) {
		if !acc.silent {
			continue
		}
		if other != nil {
			to := b.account(other)
			to.presumedSpent += acc.presumedSpent
			to.silent, to.stampLife = true, max(to.stampLife, acc.stampLife)
		}
		acc.presumedSpent, acc.silent, acc.stampLife = 0, false, 0
		b.dirty, b.stale = true, true
	}
}
