package region

import (
	"slices"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/ledger/share"
	"vestibule/internal/core/wire"
)

// account has the permits and counters of one edge instance in one room. roomLedger.account opens it. close deletes it,
// with the edge or once the edge has dropped the room.
//
// Invariant, for a live edge: since its last report it has used at most the unused permits of T that it held then,
// and renewed at most renewCeil-renewed sessions.
type account struct {
	edge   *edge
	ledger *roomLedger

	// Granted is raised by divide, and by a report of permits that a predecessor lent. It is not lowered within a lease
	// epoch: at its end settle lowers it to what the edge received of T, and clearRate resets R. Keep is from divide,
	// Returned from reports and from leave.
	permits wire.Permits

	ceiling ceiling // stored bounds of what a successor does not know

	renewCeil uint64 // only grows: by allowRenewals, and by a report of the ceiling of a predecessor
	life      uint32 // the edge stamps tickets for so many seconds; from divide; 0 for none

	// As last reported. applyReport alone writes these counters, and never lowers them.
	spent, renewed uint64
	renewedBefore  uint64 // renewed as of the report before

	// The permits of R as last reported; clearRate drops them with the lease epoch.
	rateIdle ledger.Idle
	rateUses rateUses

	// Counted in ledger.counts. Reports, the roster of a predecessor and the compactor change them.
	sessions sessions

	demand   ledger.Demand    // as last reported; clearDemand drops it once the edge lapses or leaves
	progress share.Progress   // as last reported: the part of the edge in ledger.progress
	report   *wire.RoomReport // the newest one, for display and estimates; nil for none in this term
	passes   share.PassLoan   // Granted and Keep are from passes.lend, the rest from reports

	// For an edge that does not report. While it reports, silent is false, and only fromLost may still count.
	reserved reserved

	drops  bool   // the edge is to drop the room: nothing is granted until it has answered
	dropAt uint64 // the first grant that said so; 0 before

	// Changes for the edge. packChanges clears changed and viewChanged, and sets changedAt and viewAt.
	//
	// Invariant: until the edge acknowledges all of them, queued is set, and the account is in edge.changed.
	changedAt   uint64                 // first grant that carried the newest change
	viewAt      uint64                 // the same for the room's view
	ends        wire.Outbox[wire.End]  // sessions that ended
	lines       wire.Outbox[wire.Line] // lines of copied tickets that stay valid
	stays       wire.Outbox[wire.Stay] // of sessions that change data centres
	marked      uint64                 // number of the newest stay when the edge began to report the room
	told        map[uint64]uint32      // sessions that the edge asked for and was told to be here, until then
	asks        bool                   // it asks for sessions of this data centre
	changed     bool                   // set by markChanged
	viewChanged bool                   // set by markViewChanged
	queued      bool                   // set by edge.enqueue
}

// close deletes the account.
func (a *account) close() {
	same := func(o *account) bool { return o == a }
	e, b := a.edge, a.ledger
	e.accounts, b.accounts = slices.DeleteFunc(e.accounts, same), slices.DeleteFunc(b.accounts, same)
	a.setAsks(nil)
	if a.queued {
		a.queued, e.changed = false, slices.DeleteFunc(e.changed, same)
	}
	if a.drops {
		e.dropping--
		b.stale = true
	}
}

// markViewChanged queues the view of the room for the edge.
func (a *account) markViewChanged() {
	a.viewChanged = true
	a.edge.enqueue(a)
}

// pending returns the visitors that joined at the edge and have not returned yet, by join time.
func (a *account) pending() estimate.Histogram {
	if a.report == nil {
		return nil
	}
	return a.report.Pending
}

// credit returns the permits of T that the edge may still use.
func (a *account) credit() int64 { return a.permits.Sessions.Held() - int64(a.spent) }

// rateIdleNow returns the permits of R that are idle at the edge, as far as known.
func (a *account) rateIdleNow() int64 { return a.rateIdle.Now(&a.permits.Rate) }

// idle returns the permits of T that are idle at the edge, as far as known.
func (a *account) idle() int64 { return max(0, a.credit()) }

// counts reports whether sessions or permits of the edge still count.
func (a *account) counts() bool {
	c := &a.ledger.counts
	return a.reserved.count(c) > 0 || a.sessions.live(c) || a.ledger.rates.of(a.edge.num) > 0 ||
		a.edge.name == movesName && len(a.ledger.moves.leaving) > 0
}

// pin counts a session as held by its silent edge, so that it does not expire.
func (a *account) pin(c *counts, ent *idEntry) {
	ent.pin(true)
	c.add(int64(ent.until), -1)
	a.reserved.pinned++
}

// setKeep sets the idle targets of the edge.
func (a *account) setKeep(sessions, rate uint64) {
	if a.permits.SetKeep(sessions, rate) {
		a.markChanged()
	}
}

// setLife sets for how many seconds the edge stamps tickets.
func (a *account) setLife(secs uint32) {
	if a.life != secs {
		a.life = secs
		a.markChanged()
	}
}

func (a *account) raise(counter *uint64, n uint64) {
	if n > 0 {
		*counter += n
		a.markChanged()
	}
}

// markChanged queues the account for the next grant to the edge. Grants visit only queued accounts: most rooms of
// most edges have no changes.
func (a *account) markChanged() {
	a.changed = true
	a.edge.enqueue(a)
}

// clearRate drops the permits of R, which end with the lease epoch.
func (a *account) clearRate() {
	a.permits.Rate.Reset()
	a.rateIdle, a.rateUses.list = ledger.Idle{}, nil
}

// clearDemand drops the demand of an edge that does not report.
func (a *account) clearDemand() {
	a.demand = ledger.Demand{}
	a.passes.Callable, a.passes.Joined = 0, nil
}
