package region

import (
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/wire"
)

// Observe applies one report of an edge.
func (a *Aggregator) Observe(now fleettime.Mono, m wire.Report) {
	if _, fenced := a.Fenced(); fenced {
		return
	}
	if m.Seen.Fences(a.cfg.Term) {
		// The edge follows a successor, which owns all permits of the data centre now.
		a.Fence(m.Seen.N)
		return
	}
	if a.member.learnClusterID(m.ClusterID, &a.up) {
		a.up.reportSoon(now, 0)
	}
	r := decode(&m)
	e, answer := a.lifecycle.identify(now, a.cfg.Term, &r)
	if e == nil {
		a.roster.queueReply(now, &r, answer)
		a.due = now
		return
	}
	a.due = now
	if r.Settles && a.lifecycle.settles(now, e) {
		if a.lifecycle.isSettled(e) {
			a.roster.queueReply(now, &r, wire.Dead)
		}
		return
	}
	fresh, complete := e.receive(now, &r)
	if !fresh {
		return
	}
	a.lifecycle.recordFolder(now, e, &r)
	a.count(now, e, &r)
	if complete {
		e.advance(&r)
		e.closeDropped()
	}
	a.lifecycle.endLeaseEpoch(now, e, &r, complete)
	if r.Settles && a.lifecycle.isSettled(e) {
		a.roster.queueReply(now, &r, wire.Dead)
	}
}

// receive applies the head of one part of a report. It reports whether the report is newer than the previous ones,
// and whether this part completes it.
func (e *edge) receive(now fleettime.Mono, m *report) (fresh, complete bool) {
	if e.settled && !m.Settles {
		if !e.contradicted {
			return false, false // written before it ended: its last report covers it
		}
		e.settled, e.parts = false, wire.Parts{} // it is alive after all
	}
	if fresh, complete = e.parts.Take(m.Seq, m.Part, m.Parts); fresh {
		e.receivedAt, e.echo, e.leaving, e.since = now, m.Sent, m.Leaving, m.CountsSince
		e.reads.Said(now, m.Reads)
		e.acked = max(e.acked, m.Acked)
		e.replyDue = !m.Settles
	}
	return fresh, complete
}

// count updates the counters of an edge in every room of a report.
func (a *Aggregator) count(now fleettime.Mono, e *edge, m *report) {
	wrote := a.clock.estimateWritten(now, m)
	by := a.clock.writtenBy(now, m)
	for i := range m.Rooms {
		r := &m.Rooms[i]
		b := a.rooms.openReported(r.Room, m)
		if b.applyReport(now, wrote, by, e, m, r) {
			a.up.reportSoon(now, endGap) // overdue visitors of all edges change together, and only their sum is right
		}
		a.stored.raiseMovedIn(int64(b.terminations.movedIn))
		a.up.reportEnds(now, b)
		if len(r.Asks) > 0 {
			a.up.reportSoon(now, endGap)
		}
	}
}

// applyReport updates the counters of an edge in one room. The report was written between wrote and by. The result says
// whether the number of overdue visitors changed.
func (b *roomLedger) applyReport(
	now, wrote, by fleettime.Mono, e *edge, m *report, r *wire.RoomReport,
) (overdueChanged bool) {
	acc := b.reported(e)
	acc.sessions.applyReport(&b.counts, r.Sessions)
	acc.permits.Sessions.Recover(r.Permits.Sessions)
	acc.renewCeil = max(acc.renewCeil, r.RenewCeil)
	if m.LeaseEpoch == e.leaseEpoch && !e.over() { // permits of R end with their lease epoch
		acc.permits.Rate.Recover(r.Permits.Rate)
		acc.rateIdle = ledger.Idle{N: r.RateIdle, Granted: r.Permits.Rate.Granted}
	}
	spent := ledger.Growth(&acc.spent, r.Spent)
	acc.renewedBefore = acc.renewed
	acc.renewed = max(acc.renewed, r.Renewed)
	overdueChanged = acc.demand.Overdue != r.Overdue
	acc.demand = ledger.DemandOf(r)
	b.passes.toEdges.ApplyReport(&acc.passes, r)
	if acc.report == nil {
		acc.markChanged() // the edge may have ignored it
		acc.markViewChanged()
		b.terminations.sendAllTo(acc) // before the edge can admit in the room
		b.copies.sendAllTo(acc, m.latest)
		b.sendStaysTo(acc)
	}
	if m.Join && !m.Settles { // a snapshot may lack the newest marks
		b.learnStays(r)
	}
	acc.report = r
	if first := b.progress.Add(&acc.progress, r); first {
		b.rates.add(e.num, int64(r.RateOwed), now, 0)
		b.flow.Recall(now, now, r.RateUsed)
		acc.rateUses.init(now, wrote, by, r.RateUsed, acc.permits.Rate.Held()-acc.rateIdleNow())
	} else {
		acc.rateUses.record(now, wrote, int64(spent))
	}
	b.applyMoves(acc, r, m.earliest, m.latest)
	acc.setAsks(r.Asks)
	b.answerAsks(acc, r.Asks)
	at := uint32(m.latest.Second())
	for _, l := range r.Copied {
		if b.copies.acceptReport(l, at, b.life.secs) {
			b.copies.send(l, b.accounts)
		}
	}
	for _, end := range r.Ends {
		b.recordEnd(end, true)
	}
	b.dirty, b.stale = true, true
	return overdueChanged
}

// applyMoves records stamped tickets and cancels double counts. The report was written between earliest and latest.
func (b *roomLedger) applyMoves(acc *account, r *wire.RoomReport, earliest, latest fleettime.Time) {
	if acc.sessions.recordMissed(r.FirstMove, max(acc.edge.latest, latest).Second()+2+int64(b.life.secs)) {
		b.terminations.skips++
	}
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
				continue // a late report: the session moved on to the silent edge
			}
			// The session of a silent edge appeared here, so it need not be reserved.
			b.unpin(ent, acc.edge)
		}
		copied, kept := b.ids.record(&b.counts, m, acc.edge.num, limit)
		if copied {
			b.copied++
		}
		if !kept { // like a move that no report has
			acc.sessions.missed++
			acc.sessions.missedUntil = max(acc.sessions.missedUntil, int64(m.Until)+1)
		}
		if l, found := b.copies.observe(&m, acc.life, b.life.secs, latest); found {
			b.copies.send(l, b.accounts)
		}
		if !acc.reserved.silent {
			continue
		}
		// This is an old report of the silent edge itself. The edge may have renewed tickets that were valid
		// then, even if their second is freed by now.
		if ent = b.ids.find(m.ID); ent != nil && !ent.pinned() && ent.edge() == acc.edge.num &&
			(silent || int64(ent.until) >= earliest.Second()) {
			acc.pin(&b.counts, ent)
		}
	}
}

// advance moves the time up to which the edge has reported everything. It follows a complete report.
func (e *edge) advance(m *report) {
	e.asOf, e.earliest = max(e.asOf, m.AsOf), max(e.earliest, m.earliest)
	e.latest, e.timed = max(e.latest, m.latest), m.timed
	e.ackedReported = e.acked
}
