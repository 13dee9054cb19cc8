package region

import (
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
)

// WaitReason is why an aggregator waits.
type WaitReason uint8

// The reasons to wait.
const (
	WaitTime     WaitReason = iota + 1 // nobody has told fleet time
	WaitBooks                          // global has not told the permits of the data centre
	WaitEdge                           // an edge of a predecessor is not heard: its sessions are not known
	WaitSessions                       // an edge that is not heard may go on renewing sessions
	WaitRate                           // edges that are not heard may have used the rights of R that are missed
	WaitGuess                          // all nodes had lost fleet time, and this one was a guess: sessions from before are waited out
)

// String returns the name of the reason; empty for none.
func (w WaitReason) String() string {
	return [...]string{WaitTime: "time", WaitBooks: "books", WaitEdge: "edge", WaitSessions: "sessions", WaitRate: "rate_rights", WaitGuess: "guessed_time"}[w]
}

// Wait is one thing that an aggregator waits for before all permits of its data centre are used again.
type Wait struct {
	Why      WaitReason     `json:"why"`
	Edge     string         `json:"edge"` // the edge that would end the wait by a report; empty for none
	Instance uint64         `json:"instance"`
	Until    fleettime.Time `json:"until"`                // when it ends at the latest; 0 where nobody can tell
	Closed   bool           `json:"closed"`               // nobody is let in meanwhile, but with rights that edges have in hand
	Sessions int64          `json:"sessions_kept_free"`   // that are kept free for it meanwhile, in all rooms
	Rate     int64          `json:"rate_rights_not_lent"` // rights of R that are not lent meanwhile, in all rooms that miss them
	Ended    bool           `json:"ended"`                // a successor or an operator told that the edge has ended
}

// maxWait is longer than any lost_after; without one a silent edge is waited for until it is
// heard.
const maxWait = 365 * 24 * time.Hour

// Waits returns the waits of the aggregator at now. It changes nothing.
func (a *Aggregator) Waits(now fleettime.Mono) []Wait {
	if now.Sub(a.clock.started) < ledger.StartupGrace {
		return nil
	}
	var out []Wait
	ft := a.clock.Now(now)
	synced := a.clock.synced(now)
	if !synced {
		out = append(out, Wait{Why: WaitTime, Closed: true})
	}
	if d := &a.stored.durable; synced && d.HoldUntil != 0 && ft.Second() <= d.HoldUntil {
		w := Wait{Why: WaitGuess, Until: fleettime.Time((d.HoldUntil + 1) * 1000)}
		for _, b := range a.rooms.list {
			w.Sessions += max(0, b.active())
		}
		if w.Sessions > 0 {
			out = append(out, w)
		}
	}
	if a.up.blank && !a.roster.recovering() {
		out = append(out, Wait{Why: WaitBooks, Closed: true})
	}
	for _, e := range a.roster.edges {
		w := Wait{Edge: e.name, Instance: e.instance, Ended: a.roster.hasEnded(e)}
		switch {
		case e.state == awaiting || (e.state == lost && !e.reservedLost):
			if w.Why, w.Closed = WaitEdge, true; synced {
				w.Until = a.lifecycle.silence.waitEnd(now, e, a.up.blank)
			}
		case e.state == dead || e.state == lost:
			left := time.Duration(0)
			for b, acc := range a.rooms.accounts(e) {
				if acc.reserved.silent {
					w.Why = WaitSessions
					w.Sessions += acc.reserved.count(&b.counts)
					left = max(left, b.lostWait()-e.silent)
				}
			}
			if w.Why == 0 {
				continue // it ages like any session
			}
			if synced && a.roster.anyReporting() && left < maxWait {
				w.Until = ft.Add(max(0, left))
			}
		default:
			continue
		}
		out = append(out, w)
	}
	if w := a.rooms.rateWait(now, ft); w.Rate > 0 {
		out = append(out, w)
	}
	return out
}

// rateWait returns the wait for rights of R that edges may have used which are gone, in rooms
// where somebody misses them. They come back one by one.
func (r *rooms) rateWait(now fleettime.Mono, ft fleettime.Time) Wait {
	w := Wait{Why: WaitRate}
	for _, b := range r.list {
		if !b.waitingForR {
			continue
		}
		w.Rate += b.rates.sum()
		for _, p := range b.rates {
			w.Until = max(w.Until, ft.Add(p.until.Sub(now)))
		}
	}
	return w
}
