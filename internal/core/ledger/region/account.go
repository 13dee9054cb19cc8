package region

import (
	"slices"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/ledger/share"
	"vestibule/internal/core/wire"
)

// account is what one edge incarnation holds and has counted in one room.
//
// Invariant, for an edge that is alive: beyond its last report it has used no more than the permits
// of T that it held unused, and has renewed no more than renewCeil-renewed sessions.
type account struct {
	permits wire.Permits // what was granted is never lowered within a tenure

	// Granted to the edge.
	renewCeil uint64 // never lowered within a tenure
	life      uint32

	// As last reported.
	spent, renewed           uint64
	rateIdle                 ledger.Idle
	rateUses                 rateUses
	sessions                 []wire.Expiry
	moves                    uint64 // number of the newest move taken
	missed                   uint64 // moves that were never told
	missedUntil              int64  // Unix second after which no ticket of them is valid
	want, heldPeople, movers uint64
	heldJoined               []fleettime.Time
	renewedBefore            uint64 // renewed as of the report before
	admitted                 uint64
	joined, entered          uint64
	outcomes                 estimate.Outcomes
	told                     bool             // the counters above have a beginning
	report                   *wire.RoomReport // the advisory rest of it
	passes                   share.PassLoan

	// Presumed about an edge that is not alive.
	presumedSpent int64 // sessions, counted until presumedUntil
	presumedUntil int64 // Unix second
	silent        bool  // it may go on renewing (partition_policy serve): nothing presumed of it ages
	pinned        int64 // sessions last seen at the silent edge
	pinnedUntold  int64 // more of them, whose moves nobody told
	stampLife     int64 // seconds for which the silent edge may stamp tickets: what it was last told
	presumedLost  int64 // presumed when the silent edge was given up: no late report of it lessens that until presumedUntil

	edge  *edge
	books *books

	changedAt uint64                 // first grant that carried the newest change
	viewAt    uint64                 // the same for the room's view
	ends      wire.Outbox[wire.End]  // what the edge is to know of sessions that ended
	lines     wire.Outbox[wire.Line] // the same of copied tickets
	unsaid    bool                   // something changed since the last grant; set by news
	unshown   bool                   // so did the room's view; set by viewNews
	open      bool                   // it is in edge.open
}

// news notes that the edge is to be told of the account. Grants look at no others:
// most edges have nothing to hear of most rooms.
func (a *account) news() {
	a.unsaid = true
	a.list()
}

// viewNews notes that the edge is to be told of the room's view.
func (a *account) viewNews() {
	a.unshown = true
	a.list()
}

func (a *account) list() {
	if !a.open {
		a.open = true
		a.edge.open = append(a.edge.open, a)
	}
}

// pending returns the people who joined there and are expected to return for the first
// time, by join time.
func (a *account) pending(asOf fleettime.Time) estimate.Histogram {
	if a.report == nil {
		return nil
	}
	return ledger.PendingOf(a.report, asOf)
}

// credit returns the permits of T that the edge may still use.
func (a *account) credit() int64 { return a.permits.Sessions.Held() - int64(a.spent) }

// rateIdleNow returns the permits of R that are idle at the edge, as far as known.
func (a *account) rateIdleNow() int64 { return a.rateIdle.Now(&a.permits.Rate) }

// idle returns the permits of T that are idle at the edge, as far as known.
func (a *account) idle() int64 { return max(0, a.credit()) }

// takeSessions replaces the vectors of the account by the newest report and
// counts the difference.
func (a *account) takeSessions(c *counts, next []wire.Expiry) {
	old := a.sessions
	merged := make([]wire.Expiry, 0, len(next))
	for i, j := 0, 0; i < len(old) || j < len(next); {
		switch {
		case j == len(next) || (i < len(old) && old[i].Until < next[j].Until):
			// The edge forgets a second once our watermark has passed it. One
			// that is not freed here yet stays as it was.
			if int64(old[i].Until) >= c.freed {
				merged = append(merged, old[i])
			}
			i++
		case i == len(old) || next[j].Until < old[i].Until:
			c.add(int64(next[j].Until), int64(next[j].Stamped)-int64(next[j].Consumed))
			merged = append(merged, next[j])
			j++
		default:
			o, n := old[i], next[j]
			// Counters grow; a smaller one can only be a fault, and is not believed.
			n.Stamped, n.Consumed = max(n.Stamped, o.Stamped), max(n.Consumed, o.Consumed)
			c.add(int64(n.Until), int64(n.Stamped-o.Stamped)-int64(n.Consumed-o.Consumed))
			merged = append(merged, n)
			i++
			j++
		}
	}
	a.sessions = merged
}

// presumed returns the sessions that are counted without having been reported.
func (a *account) presumed(c *counts) int64 {
	n := a.presumedSpent + a.pinned + a.pinnedUntold
	if a.presumedUntil < c.freed {
		if a.silent {
			return n
		}
		return 0
	}
	return n + a.presumedLost
}

// stamped returns how many tickets the edge stamped that may still be valid.
func (a *account) stamped(c *counts) int64 {
	n := int64(0)
	for _, s := range a.sessions {
		if int64(s.Until) >= c.freed {
			n += int64(s.Stamped)
		}
	}
	return n
}

// holds reports whether the account still matters to the head-count.
func (a *account) holds(c *counts) bool {
	return a.presumed(c) > 0 || slices.ContainsFunc(a.sessions, func(s wire.Expiry) bool { return int64(s.Until) >= c.freed })
}

// counts reports whether the edge still matters to the books.
func (a *account) counts() bool { return a.holds(&a.books.counts) || a.books.rates.of(a.edge.num) > 0 }

// unfollowed returns how many sessions an edge that reported at least last may have of
// which no move was told: each of them was stamped once at least.
func (a *account) unfollowed(c *counts, least fleettime.Time) int64 {
	if a.missedUntil < min(c.freed, least.Second()) {
		return 0
	}
	return min(int64(a.missed), a.stamped(c))
}

// drop forgets what was kept once it has expired.
func (a *account) drop(c *counts) {
	if a.presumedUntil < c.freed {
		a.presumedLost = 0
	}
}

// pin takes one session out of the ageing.
func (a *account) pin(c *counts, ent *idEntry) {
	ent.pin(true)
	c.add(int64(ent.until), -1)
	a.pinned++
}

// setKeep sets the idle targets of the edge.
func (a *account) setKeep(sessions, rate uint64) {
	if a.permits.SetKeep(sessions, rate) {
		a.news()
	}
}

// setLife sets for how many seconds the edge stamps tickets.
func (a *account) setLife(secs uint32) {
	if a.life != secs {
		a.life = secs
		a.news()
	}
}

func (a *account) raise(counter *uint64, n uint64) {
	if n > 0 {
		*counter += n
		a.news()
	}
}

// noRate drops the permits of R, which end with a tenure.
func (a *account) noRate() {
	a.permits.Rate.Reset()
	a.rateIdle, a.rateUses.list = ledger.Idle{}, nil
}

// noAsk forgets who asked for rights.
func (a *account) noAsk() {
	a.want, a.heldJoined, a.heldPeople, a.movers = 0, nil, 0, 0
	a.passes.Callable, a.passes.Joined = 0, nil
}
