package region

import (
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/stop"
)

// WaitReason is the reason for a wait of an aggregator.
type WaitReason uint8

// The reasons to wait.
const (
	WaitTime     WaitReason = iota + 1 // fleet time is unknown
	WaitBooks                          // the permits of the data centre are unknown until global sends them
	WaitEdge                           // an edge of a predecessor has not reported: its sessions are unknown
	WaitSessions                       // a silent edge may be renewing sessions
	WaitRate                           // silent edges may have used permits of R that visitors wait for
	WaitGuess                          // fleet time was lost and guessed: sessions from before must expire
	WaitFleet                          // global does not know the permits of all data centres: only the floor is used
)

// String returns the name of the reason; empty for none.
func (w WaitReason) String() string {
	return [...]string{
		WaitTime: "time", WaitBooks: "books", WaitEdge: "edge", WaitSessions: "sessions", WaitRate: "rate_permits",
		WaitGuess: "guessed_time", WaitFleet: "fleet",
	}[w]
}

// Wait is one reason for which permits of the data centre are not used.
type Wait struct {
	Why      WaitReason     `json:"why"`
	Edge     string         `json:"edge"` // the edge whose report would end the wait; empty for none
	Instance uint64         `json:"instance"`
	Until    fleettime.Time `json:"until"`                 // latest end; 0 for unknown
	Closed   bool           `json:"closed"`                // visitors are admitted only with the permits that edges hold
	Sessions int64          `json:"sessions_kept_free"`    // slots kept free meanwhile, in all rooms; of WaitFleet those in use
	Rate     int64          `json:"rate_permits_not_lent"` // permits of R not lent meanwhile, in all rooms that need them
	Ended    bool           `json:"ended"`                 // a successor or an operator declared that the edge has ended
}

// Stop returns the wait as the reason for which nobody enters a data centre.
func (w *Wait) Stop(dc string) stop.Stop {
	s := stop.Stop{Reason: stop.AwaitsEdge, Centre: dc, Until: w.Until, Edge: w.Edge, Instance: w.Instance, Ended: w.Ended}
	switch w.Why {
	case WaitTime:
		s.Reason = stop.NoTime
	case WaitBooks:
		s.Reason = stop.AwaitsAllocation
	default:
	}
	return s
}

// maxWait is longer than any lost_after. Without lost_after, a silent edge is waited for until it reports.
const maxWait = 365 * 24 * time.Hour

// Waits returns the waits of the aggregator at now. It does not change the aggregator.
func (c *centre) Waits(now fleettime.Mono) []Wait {
	if now.Sub(c.clock.started) < ledger.StartupGrace {
		return nil
	}
	var out []Wait
	ft := c.clock.Now(now)
	synced := c.clock.synced(now)
	if !synced {
		out = append(out, Wait{Why: WaitTime, Closed: true})
	}
	if d := &c.stored.durable; synced && d.HoldUntil != 0 && ft.Second() <= d.HoldUntil {
		w := Wait{Why: WaitGuess, Until: fleettime.Time((d.HoldUntil + 1) * 1000)}
		for _, b := range c.rooms.list {
			w.Sessions += max(0, b.active())
		}
		if w.Sessions > 0 {
			out = append(out, w)
		}
	}
	if c.up.blank && !c.roster.recovering() {
		out = append(out, Wait{Why: WaitBooks, Closed: true})
	}
	if w := fleetWait(c.rooms.list); w.Why != 0 && !c.snapshot(now).unknown() {
		out = append(out, w)
	}
	for _, e := range c.roster.edges {
		w := Wait{Edge: e.name, Instance: e.instance, Ended: c.roster.hasEnded(e)}
		switch {
		case e.state == awaiting || (e.state == lost && !e.reservedLost):
			if w.Why, w.Closed = WaitEdge, true; synced {
				w.Until = c.lifecycle.silence.waitEnd(now, e, c.up.blank)
			}
		case e.state == dead || e.state == lost:
			left := time.Duration(0)
			for _, acc := range e.accounts {
				b := acc.ledger
				if acc.reserved.silent {
					w.Why = WaitSessions
					w.Sessions += acc.reserved.count(&b.counts)
					left = max(left, b.lostWait()-e.silent)
				}
			}
			if w.Why == 0 {
				continue // its sessions expire like any other
			}
			if synced && c.roster.anyReporting() && left < maxWait {
				w.Until = ft.Add(max(0, left))
			}
		default:
			continue
		}
		out = append(out, w)
	}
	if w := rateWait(c.rooms.list, now, ft); w.Rate > 0 {
		out = append(out, w)
	}
	return out
}

// fleetWait returns the wait for the confirmation of reconstructed ledgers; the zero Wait for none.
func fleetWait(rooms []*roomLedger) (w Wait) {
	for _, b := range rooms {
		if h := &b.loan; h.reconstructed && !b.gone {
			w.Why, w.Sessions = WaitFleet, w.Sessions+h.certain().Sessions
		}
	}
	return w
}

// rateWait returns the wait for permits of R that ended edges may have used, in rooms that need them. They return one
// by one.
func rateWait(rooms []*roomLedger, now fleettime.Mono, ft fleettime.Time) Wait {
	w := Wait{Why: WaitRate}
	for _, b := range rooms {
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
