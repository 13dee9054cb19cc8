package region

import (
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/wire"
)

// take brings the numbers of a room of a report into its books, which was written at wrote at
// the earliest.
func (b *books) take(now, wrote fleettime.Mono, e *edge, m *report, r *wire.RoomReport) {
	acc := b.account(e)
	acc.sessions.take(&b.counts, r.Sessions)
	acc.permits.Sessions.Recover(r.Permits.Sessions)
	acc.renewCeil = max(acc.renewCeil, r.RenewCeil)
	if m.Tenure == e.tenure && !e.over() { // permits of R end with their tenure
		acc.permits.Rate.Recover(r.Permits.Rate)
		acc.rateIdle = ledger.Idle{N: r.RateIdle, Granted: r.Permits.Rate.Granted}
	}
	spent := ledger.Growth(&acc.spent, r.Spent)
	acc.renewedBefore = acc.renewed
	acc.renewed = max(acc.renewed, r.Renewed)
	acc.demand = ledger.DemandOf(r)
	b.passes.lent.Take(&acc.passes, r)
	if acc.report == nil {
		b.terminations.tell(acc) // before it may act in the room
		b.copies.tell(acc, m.latest, b.life.secs)
	}
	acc.report = r
	if first := b.progress.Add(&acc.progress, r); first {
		b.rates.add(e.num, int64(r.RateOwed), now, 0)
		acc.rateUses.begin(now, wrote, r.RateUsed, acc.permits.Rate.Held()-acc.rateIdleNow())
	} else {
		acc.rateUses.add(now, wrote, int64(spent))
	}
	b.takeMoves(acc, r, m.earliest, m.latest)
	at := uint32(m.latest.Second())
	for _, l := range r.Copied {
		if b.copies.follow(l, at, b.life.secs) {
			b.copies.decide(l, at, b.life.secs, b.accounts)
		}
	}
	for _, end := range r.Ends {
		b.end(end, true)
	}
	b.dirty, b.stale = true, true
}

// takeMoves follows the tickets that were stamped, and cancels doubles. The report was
// written between earliest and latest.
func (b *books) takeMoves(acc *account, r *wire.RoomReport, earliest, latest fleettime.Time) {
	acc.sessions.skip(r.FirstMove, max(acc.edge.latest, latest).Second()+2+int64(b.life.secs))
	limit := 2*int(b.loan.permits.Sessions.Held()) + 1024
	for i, m := range r.Moves {
		n := r.FirstMove + uint64(i)
		if n <= acc.sessions.moves {
			continue
		}
		acc.sessions.moves = n
		ent := b.ids.find(m.ID)
		silent := ent != nil && ent.pinned()
		if silent {
			if ent.edge() != acc.edge.num && m.Until <= ent.until {
				continue // told late: it went on to the silent edge
			}
			// The session of a silent edge turned up here: no need to guess.
			b.unpin(ent, acc.edge)
		}
		if b.ids.take(&b.counts, m, acc.edge.num, limit) {
			b.copied++
		}
		if l, made, found := b.copies.shown(&m, acc.life, b.life.secs, latest); found {
			b.copies.decide(l, made, b.life.secs, b.accounts)
		}
		if !acc.presumed.silent {
			continue
		}
		// It is the silent edge that tells, of long ago. It may have renewed since what
		// was valid then, also where that second is freed by now.
		if ent = b.ids.find(m.ID); ent != nil && !ent.pinned() && ent.edge() == acc.edge.num && (silent || int64(ent.until) >= earliest.Second()) {
			acc.pin(&b.counts, ent)
		}
	}
}
