package admission

import (
	"math/rand/v2"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
)

const (
	// The record of a draw is usually public within recordAfter of the close.
	recordAfter = 3 * time.Second
	recordOver  = 6 * time.Second

	// Before the start, visitors that may enter at once ask a last time, so that absent ones are known. They are the
	// first as many as twice the free permits, and confirmMore.
	confirmFrom = 8 * time.Second // before the start
	confirmOver = 6 * time.Second
	confirmMore = 8

	// At the start visitors ask in the order of the line, at most askRate of them per second in a room, within these
	// times. Answers round up to whole seconds.
	askRate      = 10_000
	askOverLeast = time.Second
	askOverMost  = 8 * time.Second
)

// gathers returns the time until a visitor that gathers for an event asks again, at most wait: when its draw can give
// places, when positions are counted by them, shortly before the start, and at the start. rank is the number of
// visitors in front, negative if unknown.
func (l *line) gathers(ft fleettime.Time, wait time.Duration, rank float64) time.Duration {
	e := l.edge
	within := func(at fleettime.Time, over time.Duration) time.Duration {
		if left := at.Sub(ft); left > 0 && left < wait+recordAfter {
			return left + jitter(e.cfg.Rand, over)
		}
		return wait
	}
	start := l.settings.gathersUntil(ft)
	if n := l.settings.Draw; n != nil && n.Void == "" {
		switch {
		case n.Drawn() == nil && ft >= n.Closes().Add(draw.Lead): // the beacon fails
			return wait
		case n.Drawn() == nil && ft >= n.Closes().Add(recordAfter): // all ask before places are counted: see draw.Settle
			return min(wait, recordAfter+jitter(e.cfg.Rand, recordOver))
		case n.Drawn() == nil:
			return within(n.Closes().Add(recordAfter), recordOver)
		case ft < n.Counted():
			return within(n.Counted(), 4*time.Second)
		}
	}
	left := start.Sub(ft)
	if left <= 0 { // but for the uncertainty of the clock
		return min(wait, e.cfg.Params.Nearest/4)
	}
	slots, waiting := 0.0, 0.0
	if l.view != nil {
		slots, waiting = max(0, float64(l.view.Free)), l.view.Waiting()
	}
	if left > confirmFrom && rank >= 0 && rank < 2*slots+confirmMore {
		return within(start.Add(-confirmFrom), confirmOver)
	}
	if left >= wait {
		return wait
	}
	over := min(max(time.Duration(waiting/askRate*float64(time.Second)), askOverLeast), askOverMost)
	if rank < 0 {
		return left + jitter(e.cfg.Rand, over)
	}
	return left + time.Duration(min(1, rank/max(1, waiting))*float64(over))
}

// settles reports whether the place of a visitor was drawn while others are still counted by their join times: the
// number in front is too low, and the ticket must not keep it.
func (l *line) settles(ft fleettime.Time, t *ticket.Ticket) bool {
	n := l.settings.Draw
	return n != nil && n.Void == "" && t.Place() != t.Joined && ft < n.Counted()
}

// keepRank stores the rank of a visitor in the draw in its ticket, once: as soon as places are counted by the draw,
// and everybody that was counted then still waits.
func (l *line) keepRank(t *ticket.Ticket, ahead float64) {
	if n := l.settings.Draw; n == nil || n.Void != "" || t.Joined >= n.Closes() || t.Place() == t.Joined {
		return
	} else if t.Rank() == 0 {
		t.PutRank(min(uint64(max(0, ahead)+1.5), max(1, n.Drawn().Entrants)))
	}
}

// jitter returns a random duration of at most d.
func jitter(rng *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(d) + 1))
}
