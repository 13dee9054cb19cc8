package region

import (
	"math"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/wire"
)

// This file has the wait for edges of a predecessor. The end of a wait is a stored fleet time, so that a
// successor continues the wait. Otherwise leaders that are replaced often would wait for ever.

// settleTime is how long a new aggregator waits for the edges of its predecessor before it stores the end of the wait
// for the missing ones. Most edges report within this time.
const settleTime = time.Second

// waitIsOver reports whether the wait for an edge of a predecessor is over: its lease has certainly ended, and it had
// the time to report. The first aggregator that waits for it stores the last second of that lease and the last expiry
// of a ticket stamped under it. Both hold for every successor until the edge joins, which removes them from the
// roster before it gets a lease.
func (s *silence) waitIsOver(now fleettime.Mono, ft fleettime.Time, e *edge) bool {
	if e.leased == 0 && now.Sub(s.clock.started) > settleTime {
		e.leased, e.until = s.leaseLeft(now)
		s.stored.patchEntry(e, func(r *wire.RosterEntry) { r.Leased, r.Until = e.leased, e.until })
	}
	return e.leased != 0 && (now.Sub(e.receivedAt) > s.takeoverWait() || ft.Second() > e.leased)
}

// waitEnd returns the latest end of the wait for an edge of a predecessor: until all tickets that it stamped under a
// lease have expired and, if its permits are unknown too, until it cannot be renewing any more.
func (s *silence) waitEnd(now fleettime.Mono, e *edge, blank bool) fleettime.Time {
	leased, until := e.leased, e.until
	if leased == 0 {
		leased, until = s.leaseLeft(now)
	}
	end := max(until, s.holdUntil, rateOver(leased))
	switch {
	case e.ended != 0:
		end = max(end, e.ended+int64(s.rooms.longestLife(now)/time.Second)+2)
	case blank && !s.roster.hasEnded(e):
		end = max(end, s.clock.Now(now).Second()) + int64(max(0, s.rooms.longestLostWait()-e.silent)/time.Second)
	}
	return fleettime.Time((end + 2) * 1000) // the watermark follows time
}

// rateOver returns the Unix second from which no permit of R counts that was used under a lease until second leased.
func rateOver(leased int64) int64 { return leased + int64(wire.RateWindow/time.Second) + 1 }

// leaseLeft returns the last second in which an edge of a predecessor can have a lease, and the last expiry of a
// ticket stamped under it.
func (s *silence) leaseLeft(now fleettime.Mono) (leased, until int64) {
	// The predecessor led before this term began, so the time since then counts.
	end := s.latest(now).Add(ledger.OwnerLease - fleettime.Shrink(now.Sub(s.clock.started)))
	leased = end.Add(fleettime.Stretch(s.params.EdgeLease)+2*fleettime.MaxError).Second() + 1
	return leased, s.rooms.maxExpiry(now, end, s.params.EdgeLease)
}

// holdsForGuess reports whether no second may be freed yet because fleet time was lost and then guessed: sessions
// from before are held until they have expired by the guessed time.
func (s *silence) holdsForGuess(now fleettime.Mono, ft fleettime.Time, synced bool) bool {
	d := &s.stored.durable
	if s.clock.guessed && synced {
		if s.clock.guess == 0 {
			s.clock.guess = s.latest(now).Second() + 1
		}
		wait := s.rooms.longestLife(now) + 2*time.Second + s.takeoverWait()
		if end := s.clock.guess + int64(wait/time.Second) + 1; end > d.HoldUntil {
			s.stored.holdNeeds = s.stored.change(func(d *wire.Durable) { d.HoldUntil = end })
		}
	}
	if d.HoldUntil != 0 && synced && ft.Second() > d.HoldUntil && !s.clock.guessed {
		d.HoldUntil = 0 // stored with the next change
	}
	return d.HoldUntil != 0 && (!synced || ft.Second() <= d.HoldUntil)
}

// guessCorrected handles the replacement of a guessed fleet time: times that depend on the guess are computed anew.
func (s *silence) guessCorrected() {
	s.clock.guess, s.holdUntil = 0, 0
	s.rooms.setPassed(math.MaxInt64)
	s.stored.change(func(d *wire.Durable) {
		d.HoldUntil = 0
		for i := range d.Roster { // a successor could not know that they depend on a guess
			r := &d.Roster[i]
			r.Leased, r.Until, r.Ended = 0, 0, 0
		}
	})
	for _, e := range s.roster.edges {
		if e.state == lost && !e.reservedLost {
			e.become(awaiting)
		}
		if e.state == awaiting {
			e.leased, e.until, e.ended = 0, 0, 0
		}
	}
}
