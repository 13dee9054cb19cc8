package slots

import (
	"math"
	"time"

	"vestibule/internal/fleet"
	"vestibule/internal/wire"
)

// WaitReason is why an aggregator waits.
type WaitReason uint8

// The reasons to wait.
const (
	WaitTime     WaitReason = iota + 1 // nobody has told fleet time
	WaitBooks                          // global has not told what the data centre holds
	WaitEdge                           // an edge of a predecessor is not heard: nobody knows what it counted
	WaitSessions                       // an edge that is not heard may go on renewing sessions
	WaitRate                           // edges that are not heard may have used the rights of R that are missed
)

// Wait is what an aggregator waits for before all rights of its data centre are used
// again.
type Wait struct {
	Why      WaitReason
	Edge     string // whose word would end the wait; empty where it is not about an edge
	Inc      uint64
	Until    fleet.Time // when it ends at the latest; 0 where nobody can tell
	Closed   bool       // nobody is let in meanwhile, but with rights that edges have in hand
	Sessions int64      // that are kept free for it meanwhile, in all rooms
	Rate     int64      // rights of R that are not lent meanwhile, in all rooms that miss them
	Ended    bool       // a successor or an operator told that the edge has ended
}

// maxWait is longer than any lost_after; without one a silent edge is waited for until it is
// heard.
const maxWait = 365 * 24 * time.Hour

// unsaid is for how long a new aggregator need not say that it waits: most of it is over
// by then.
const unsaid = 2 * time.Second

// Waits returns what the aggregator waits for at now. It changes nothing.
func (a *Aggregator) Waits(now fleet.Mono) []Wait {
	if now.Sub(a.clock.started) < unsaid {
		return nil
	}
	var out []Wait
	ft := a.clock.Now(now)
	synced := a.clock.synced(now)
	if !synced {
		out = append(out, Wait{Why: WaitTime, Closed: true})
	}
	if a.up.blank && !a.roster.recovering() {
		out = append(out, Wait{Why: WaitBooks, Closed: true})
	}
	for _, e := range a.roster.edges {
		w := Wait{Edge: e.name, Inc: e.inc, Ended: a.roster.hasEnded(e)}
		switch {
		case e.state == awaiting || (e.state == lost && !e.lostHold):
			if w.Why, w.Closed = WaitEdge, true; synced {
				w.Until = a.lives.awaitedUntil(now, e, a.up.blank)
			}
		case e.state == dead || e.state == lost:
			left := time.Duration(0)
			for b, acc := range a.rooms.accounts(e) {
				if acc.silent {
					w.Why = WaitSessions
					w.Sessions += acc.presumed(&b.counts)
					left = max(left, b.lostWait()-e.silent)
				}
			}
			if w.Why == 0 {
				continue // it ages like any session
			}
			if synced && a.roster.anyHeard() && left < maxWait {
				w.Until = ft.Add(max(0, left))
			}
		default:
			continue
		}
		out = append(out, w)
	}
	if w := a.rooms.waitRate(now, ft); w.Rate > 0 {
		out = append(out, w)
	}
	return out
}

// waitRate returns the wait for rights of R that edges may have used which are gone, in rooms
// where somebody misses them. They come back one by one.
func (r *rooms) waitRate(now fleet.Mono, ft fleet.Time) Wait {
	w := Wait{Why: WaitRate}
	for _, b := range r.list {
		if !b.unrated {
			continue
		}
		w.Rate += b.rates.sum()
		for _, p := range b.rates {
			w.Until = max(w.Until, ft.Add(p.until.Sub(now)))
		}
	}
	return w
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
func (l *lives) awaitedInVain(now fleet.Mono, ft fleet.Time, e *edge) bool {
	if e.leased == 0 && now.Sub(l.clock.started) > settleTime {
		e.leased, e.until = l.leaseLeft(now)
		l.stored.patch(e, func(r *wire.RosterEntry) { r.Leased, r.Until = e.leased, e.until })
	}
	return e.leased != 0 && (now.Sub(e.recv) > l.patience() || ft.Second() > e.leased)
}

// leaseLeft returns the last second in which an edge of a predecessor can have a lease,
// and the last one in which a ticket can be valid that it stamped under one.
func (l *lives) leaseLeft(now fleet.Mono) (leased, until int64) {
	// Of all predecessors, who led before this term began: what was waited since then counts.
	end := l.latest(now).Add(ownerLease - fleet.Shrink(now.Sub(l.clock.started)))
	return end.Add(fleet.Stretch(l.params.EdgeLease)+2*fleet.MaxError).Second() + 1, l.rooms.maxExpiry(now, end, l.params.EdgeLease)
}

// awaitedUntil returns for how long an edge of a predecessor is waited for at most: until
// everything has expired that it stamped under a lease; where the books are not known
// either, until it cannot be renewing any more.
func (l *lives) awaitedUntil(now fleet.Mono, e *edge, blank bool) fleet.Time {
	leased, until := e.leased, e.until
	if leased == 0 {
		leased, until = l.leaseLeft(now)
	}
	end := max(until, l.holdUntil, leased+int64(wire.RateWindow/time.Second)+1)
	switch {
	case e.ended != 0:
		end = max(end, e.ended+int64(l.rooms.longestLife(now)/time.Second)+2)
	case blank && !l.roster.hasEnded(e):
		end = max(end, l.clock.Now(now).Second()) + int64(max(0, l.rooms.longestLostWait()-e.silent)/time.Second)
	}
	return fleet.Time((end + 2) * 1000) // the watermark follows time
}

// holdsGuess reports whether nothing may be freed yet because nobody knew the time any
// more: what there was before is waited out by the time that was guessed.
func (l *lives) holdsGuess(now fleet.Mono, ft fleet.Time, synced bool) bool {
	d := &l.stored.durable
	if l.clock.guessed && synced {
		if l.clock.guess == 0 {
			l.clock.guess = l.latest(now).Second() + 1
		}
		if end := l.clock.guess + int64((l.rooms.longestLife(now)+2*time.Second+l.patience())/time.Second) + 1; end > d.HoldUntil {
			d.HoldUntil = end
			d.Version++
		}
	}
	if d.HoldUntil != 0 && synced && ft.Second() > d.HoldUntil && !l.clock.guessed {
		d.HoldUntil = 0 // stored with the next change
	}
	return d.HoldUntil != 0 && (!synced || ft.Second() <= d.HoldUntil)
}

// corrected takes note that the time which was guessed gave way to the fleet's: what was
// reckoned by the guess is reckoned anew.
func (l *lives) corrected() {
	l.clock.guess, l.holdUntil = 0, 0
	l.rooms.setPassed(math.MaxInt64)
	l.stored.change(func(d *wire.Durable) {
		d.HoldUntil = 0
		for i := range d.Roster { // of a guess a successor could not tell
			r := &d.Roster[i]
			r.Leased, r.Until, r.Ended = 0, 0, 0
		}
	})
	for _, e := range l.roster.edges {
		if e.state == lost && !e.lostHold {
			e.become(awaiting)
		}
		if e.state == awaiting {
			e.leased, e.until, e.ended = 0, 0, 0
		}
	}
}
