package slots

import (
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
	if now.Sub(a.started) < unsaid {
		return nil
	}
	var out []Wait
	ft := a.clock.Now(now)
	synced := a.clock.Err(now) != fleet.Unsynced
	if !synced {
		out = append(out, Wait{Why: WaitTime, Closed: true})
	}
	if a.up.blank && !a.recovering() {
		out = append(out, Wait{Why: WaitBooks, Closed: true})
	}
	for _, e := range a.edges {
		w := Wait{Edge: e.name, Inc: e.inc, Ended: a.hasEnded(e)}
		switch {
		case e.state == awaiting || (e.state == lost && !e.vigil):
			if w.Why, w.Closed = WaitEdge, true; synced {
				w.Until = a.awaitedUntil(now, e)
			}
		case e.state == dead || e.state == lost:
			left := time.Duration(0)
			for _, b := range a.order {
				if acc := b.of(e); acc != nil && acc.silent {
					w.Why = WaitSessions
					w.Sessions += acc.presumed(&b.counts)
					left = max(left, b.lostWait()-e.silent)
				}
			}
			if w.Why == 0 {
				continue // it ages like any session
			}
			if synced && a.anyHeard() && left < maxWait {
				w.Until = ft.Add(max(0, left))
			}
		default:
			continue
		}
		out = append(out, w)
	}
	return out
}

// awaitedUntil returns for how long an edge of a predecessor is waited for at most: until
// everything has expired that it stamped under a lease; where the books are not known
// either, until it cannot be renewing any more.
func (a *Aggregator) awaitedUntil(now fleet.Mono, e *edge) fleet.Time {
	leased, until := e.leased, e.until
	if leased == 0 {
		leased, until = a.leaseLeft(now)
	}
	end := max(until, a.holdUntil, leased+int64(wire.RateWindow/time.Second)+1)
	switch {
	case e.ended != 0:
		end = max(end, e.ended+int64(a.longestLife(now)/time.Second)+2)
	case a.up.blank && !a.hasEnded(e):
		end = max(end, a.clock.Now(now).Second()) + int64(max(0, a.longestLostWait()-e.silent)/time.Second)
	}
	return fleet.Time((end + 2) * 1000) // the watermark follows time
}

// closedUntil returns until when nobody is let in at most, 0 where it is not known or the
// data centre is open.
func (a *Aggregator) closedUntil(now fleet.Mono) (until fleet.Time) {
	for _, w := range a.Waits(now) {
		if w.Closed {
			until = max(until, w.Until)
		}
	}
	return until
}
