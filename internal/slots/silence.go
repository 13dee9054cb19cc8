package slots

import (
	"math"
	"slices"
	"time"

	"vestibule/internal/fleet"
	"vestibule/internal/mutant"
	"vestibule/internal/wire"
)

// This file is what is made of silence (rule 5): what an edge that is not heard may have
// done, and may be doing still.

// lastBreath returns the last expiry second of a ticket that somebody silent
// since asOf may have stamped: one lease later, by a clock as wrong as a clock
// may be.
func (a *Aggregator) lastBreath(now fleet.Mono, asOf fleet.Time) int64 {
	life := int64(a.longestLife(now) / time.Second)
	if now < a.pastTill {
		life = max(life, int64(a.pastLife)) // also before the room set is known
	}
	return asOf.Add(fleet.Stretch(a.cfg.Params.EdgeLease)+2*fleet.MaxError).Second() + 2 + life
}

// longestLife returns the longest that any ticket of the data centre may be valid.
func (a *Aggregator) longestLife(now fleet.Mono) time.Duration {
	life := int64(0)
	for _, b := range a.order {
		life = max(life, b.longest(now))
	}
	for _, e := range a.edges {
		if e.state == alive || e.state == joining {
			continue // nothing is presumed of it
		}
		for _, b := range a.order {
			if acc := b.of(e); acc != nil && acc.silent {
				life = max(life, acc.stampLife)
			}
		}
	}
	return time.Duration(life) * time.Second
}

// lapse takes note that an edge's lease is over by every clock: what it may
// have done since its last report is presumed done.
func (a *Aggregator) lapse(now fleet.Mono, e *edge) {
	e.state = dead
	for _, b := range a.order {
		acc := b.of(e)
		if acc == nil {
			continue
		}
		b.phantomRate(e, acc.rateHeld(), e.recv.Add(fleet.Stretch(fleet.Stretch(a.cfg.Params.EdgeLease))+lapseMargin))
		acc.rateGranted, acc.rateReturned, acc.rateIdle, acc.rateSeen = 0, 0, 0, 0
		acc.want, acc.parked, acc.parkedN, acc.movers = 0, nil, 0, 0
		b.dirty = true
	}
	a.presume(now, e)
	a.enrol(e)
}

// presume counts what a lapsed edge may have spent and renewed without a word.
func (a *Aggregator) presume(now fleet.Mono, e *edge) {
	since := e.upTo
	if !e.timed { // our answer told it the time, and nobody has told us what it did with it
		since = a.latest(now)
	}
	breath := a.lastBreath(now, since)
	var gone *edge
	if a.wentBefore(e) {
		gone = a.find(wire.Gone, 0)
	}
	for _, b := range a.order {
		acc := b.of(e)
		if acc == nil {
			continue
		}
		renewals := int64(acc.renewCeil) - int64(acc.renewed)
		acc.drop(&b.counts)
		if acc.phantom = max(0, acc.credit()) + max(0, renewals); mutant.On(mutant.NoPhantoms) {
			acc.phantom = 0
		}
		acc.phantomUntil = max(acc.phantomUntil, breath+b.unknownLife())
		acc.stampLife = max(acc.stampLife, b.longest(now))
		if !b.Cap && (!a.hasEnded(e) || e.unheard) && !mutant.On(mutant.NoFreeze) {
			b.freeze(acc, gone)
		}
		b.dirty, b.stale = true, true
		acc.news()
	}
	a.due = now
}

// heardElse returns for how long since the last look edges were heard.
func (a *Aggregator) heardElse(now fleet.Mono) time.Duration {
	if a.anyHeard() || mutant.On(mutant.IsolationIsDeath) {
		return now.Sub(a.advanced)
	}
	return 0
}

// anyHeard reports whether any edge is heard: silence of all is our own isolation.
func (a *Aggregator) anyHeard() bool {
	return slices.ContainsFunc(a.edges, func(o *edge) bool { return o.state == alive })
}

// waitedEvery is how often it is stored for how long an edge has been silent while
// others were heard, in seconds.
const waitedEvery = 5

// countSilence counts for how long an edge has been silent while others were heard.
func (a *Aggregator) countSilence(now fleet.Mono, e *edge) {
	e.silent += a.heardElse(now)
	if s := uint32(min(e.silent/time.Second, math.MaxUint32)); s >= e.waited+waitedEvery {
		e.waited = s
		a.patch(e, func(r *wire.RosterEntry) { r.Waited = s })
	}
}

// past reports whether a second of fleet time is certainly over.
func (a *Aggregator) past(now fleet.Mono, second int64) bool {
	ft, synced := a.earliest(now)
	return synced && ft.Second() > second
}

// Waits. What an aggregator waits for is told in fleet time and stored, so that its
// successors go on waiting where it ended: leaders that are replaced all the time would
// never have waited for anything.

// settleTime is how long a new aggregator waits for the edges of its predecessor before
// it stores until when it may have to wait for those that are missing: most are back by then.
const settleTime = time.Second

// awaitedInVain reports whether an edge of a predecessor is given up: it had no lease
// any more for certain, and had the time to come back. The first aggregator that awaits it
// notes after which second it had none, and after which no ticket is valid that it stamped
// under one. Both hold for every successor until the edge is adopted, which takes them off
// the roster before it gets a lease.
func (a *Aggregator) awaitedInVain(now fleet.Mono, ft fleet.Time, e *edge) bool {
	if e.leased == 0 && now.Sub(a.started) > settleTime {
		e.leased, e.until = a.leaseLeft(now)
		a.patch(e, func(r *wire.RosterEntry) { r.Leased, r.Until = e.leased, e.until })
	}
	return e.leased != 0 && (now.Sub(e.recv) > a.patience() || ft.Second() > e.leased)
}

// leaseLeft returns the last second in which an edge of a predecessor can have a lease,
// and the last one in which a ticket can be valid that it stamped under one.
func (a *Aggregator) leaseLeft(now fleet.Mono) (leased, until int64) {
	end := a.latest(now).Add(ownerLease) // of all predecessors
	return end.Add(fleet.Stretch(a.cfg.Params.EdgeLease)+2*fleet.MaxError).Second() + 1, a.lastBreath(now, end)
}

// holdsGuess reports whether nothing may be freed yet because nobody knew the time any
// more: what there was before is waited out by the time that was guessed.
func (a *Aggregator) holdsGuess(now fleet.Mono, ft fleet.Time, synced bool) bool {
	d := &a.durable
	if a.guessed && synced {
		if a.guess == 0 {
			a.guess = a.latest(now).Second() + 1
		}
		if end := a.guess + int64((a.longestLife(now)+2*time.Second+a.patience())/time.Second) + 1; end > d.HoldUntil {
			d.HoldUntil = end
			d.Version++
		}
	}
	if d.HoldUntil != 0 && synced && ft.Second() > d.HoldUntil && !a.guessed {
		d.HoldUntil = 0 // stored with the next change
	}
	return d.HoldUntil != 0 && (!synced || ft.Second() <= d.HoldUntil)
}

// corrected takes note that the time which was guessed gave way to the fleet's: what was
// reckoned by the guess is reckoned anew.
func (a *Aggregator) corrected() {
	a.guess, a.holdUntil = 0, 0
	a.setPassed(math.MaxInt64)
	a.durable = a.durable.Clone()
	a.durable.HoldUntil = 0
	a.durable.Version++
	for i := range a.durable.Roster { // of a guess a successor could not tell
		r := &a.durable.Roster[i]
		r.Leased, r.Until, r.Ended = 0, 0, 0
	}
	for _, e := range a.edges {
		if e.state == lost && !e.vigil {
			e.state = awaiting
		}
		if e.state == awaiting {
			e.leased, e.until, e.ended = 0, 0, 0
		}
	}
}

// mourn declares a silent edge lost once lost_after has passed in which other
// edges were heard. Silence of all is our own isolation and starts no clock. One
// that another process has succeeded has ended: what it might have gone
// on renewing has stopped, and ages from here. When here is nobody can say who does
// not know the time.
func (a *Aggregator) mourn(now fleet.Mono, e *edge) {
	a.countSilence(now, e)
	if a.clock.Err(now) == fleet.Unsynced && !mutant.On(mutant.TimelessThaw) {
		return
	}
	ended, thawed := a.hasEnded(e), false
	end := a.latest(now).Second()
	if e.ended != 0 {
		end = e.ended // so it goes on across takeovers
	}
	for _, b := range a.order {
		if acc := b.of(e); acc != nil && acc.silent && (ended || e.silent > b.lostWait()) {
			if !ended || (e.forgotten && !mutant.On(mutant.ForgetUnmetered)) {
				b.strays(e, acc.phantom+acc.frozen+acc.frozenBlind) // it may be alive all the same
			}
			b.thaw(now, acc, end)
			thawed = true
		}
	}
	if thawed && e.state == dead {
		a.enrol(e) // the next aggregator need not wait for what has ended
	}
}

// keepVigil goes on reckoning with an edge that nobody has heard since the
// aggregator began, although all that it stamped under a lease has expired: under
// partition_policy serve it may be renewing sessions alone. How many nobody can
// tell. But everybody else's are counted by now, so it cannot be more than what
// would be free without it.
func (a *Aggregator) keepVigil(now fleet.Mono, e *edge) {
	switch {
	case mutant.On(mutant.LostIsStill), e.ended != 0 && a.past(now, e.ended+int64(a.longestLife(now)/time.Second)+2):
		e.state = left
		a.meterForgotten(e)
		return
	case a.up.blank: // nor is it known what there is to be free
		a.countSilence(now, e)
		if wait := a.longestLostWait(); wait == 0 || e.silent > wait {
			e.state = left
		}
		return
	}
	e.vigil = true
	life := int64(a.longestLife(now) / time.Second)
	for _, b := range a.order {
		free, _ := b.reckoned()
		if b.Cap || free <= 0 {
			continue
		}
		acc := b.account(e)
		acc.phantom, acc.silent, acc.stampLife = free, true, life
		b.dirty, b.stale = true, true
		acc.news()
	}
	e.state = a.graveOf(e)
}

// meterForgotten tells as excess what an edge may go on renewing that an operator declared
// ended, and of which nobody knows what it held: all that nobody else has.
func (a *Aggregator) meterForgotten(e *edge) {
	if !e.forgotten || mutant.On(mutant.ForgetUnmetered) {
		return
	}
	for _, b := range a.order {
		n, _ := b.reckoned()
		if a.up.blank {
			n = int64(b.Total) - b.active()
		}
		if !b.Cap {
			b.strays(e, n)
		}
	}
}

// graveOf returns the state of an edge that is reckoned with as long as anything
// is presumed of it.
func (a *Aggregator) graveOf(e *edge) edgeState {
	for _, b := range a.order {
		if acc := b.of(e); acc != nil && acc.silent {
			return lost
		}
	}
	return left
}

// endVigil takes note that an edge is heard after all. What was presumed may
// have been another's, who is not.
func (a *Aggregator) endVigil(e *edge) {
	if !e.vigil {
		return
	}
	e.vigil = false
	var other *edge
	for _, o := range a.edges {
		if o != e && o.state == lost && o.vigil {
			other = o
		}
	}
	for _, b := range a.order {
		acc := b.of(e)
		if acc == nil || !acc.silent {
			continue
		}
		if other != nil {
			to := b.account(other)
			to.phantom += acc.phantom
			to.silent, to.stampLife = true, max(to.stampLife, acc.stampLife)
		}
		acc.phantom, acc.silent, acc.stampLife = 0, false, 0
		b.dirty, b.stale = true, true
	}
}

// longestLostWait returns the longest lost_after of any room under serve, 0 where
// there is none.
func (a *Aggregator) longestLostWait() time.Duration {
	wait := time.Duration(0)
	for _, b := range a.order {
		if !b.Cap {
			wait = max(wait, b.lostWait())
		}
	}
	return wait
}

// settle takes the exact numbers of an edge whose tenure is over: nothing is
// presumed any more, and it may begin a new tenure.
func (a *Aggregator) settle(now fleet.Mono, e *edge, bye bool) {
	for _, b := range a.order {
		b.found(e.inc)
		acc := b.of(e)
		if acc == nil {
			continue
		}
		b.phantomRate(e, acc.rateHeld(), now) // used before the end of the tenure, which is past
		acc.rateGranted, acc.rateReturned, acc.rateIdle, acc.rateSeen = 0, 0, 0, 0
		if acc.silent {
			for i := range b.ids.slots {
				if ent := &b.ids.slots[i]; ent.frozen() && ent.edge() == e.num {
					ent.freeze(false)
					b.counts.add(int64(ent.until), 1)
				}
			}
		}
		acc.phantom, acc.frozen, acc.frozenBlind, acc.silent, acc.stampLife = 0, 0, 0, false, 0
		// What was granted and never reached the edge belongs to the tenure that is
		// over, and may have been presumed spent, forgotten and lent again since.
		seen := acc.spent + acc.returned
		if acc.report != nil {
			seen = max(seen, acc.report.Granted)
		}
		acc.granted = min(acc.granted, seen)
		b.dirty, b.stale = true, true
		acc.news()
	}
	if bye {
		e.state = left
		for _, b := range a.order {
			if acc := b.of(e); acc != nil {
				acc.returned = max(acc.returned, acc.granted-acc.spent)
				acc.want, acc.parked, acc.parkedN, acc.movers = 0, nil, 0, 0
			}
		}
		a.enrol(e)
		return
	}
	e.tenure++
	e.unheard = true
	e.state = joining
	if mutant.On(mutant.NoRosterOnRevival) || mutant.On(mutant.LeaseBeforeRoster) {
		e.state = alive
	}
	if mutant.On(mutant.NoRosterOnRevival) {
		return
	}
	a.enrol(e) // before it gets a lease again: the roster must not call it dead
}
