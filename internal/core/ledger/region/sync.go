package region

import (
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// ReportDue returns when the next report to global is due.
func (a *Aggregator) ReportDue() fleettime.Mono {
	if a.up.busy {
		return min(a.up.due, a.up.reported.Add(a.cfg.Params.SyncFast))
	}
	return a.up.due
}

// Report returns the report to global. Permits beyond the idle targets are returned in the same step.
func (a *Aggregator) Report(now fleettime.Mono) []wire.Report {
	u := &a.up
	u.reported = now
	u.due = now.Add(a.cfg.Params.SyncIdle)
	if !u.joined || !a.clock.synced(now) {
		u.due = now.Add(a.cfg.Params.SyncFast)
	}
	if a.stored.durable.ClusterID == 0 && now.Sub(a.clock.started) > a.lifecycle.takeoverWait() {
		a.member.makeClusterID() // no edge has reported it
	}
	if a.stored.clusterID == 0 {
		return nil
	}
	if !a.leads(now) || a.stored.saved < u.promised {
		return nil // the promise is not stored yet
	}
	a.advance(now)
	if u.acked == u.seq {
		u.unansweredSince = now
	}
	u.seq++
	at := a.snapshot(now)
	head := wire.Report{
		From: a.cfg.DC, Instance: a.cfg.Term.N, Seq: u.seq, Sent: now, AsOf: a.clock.Now(now), AsOfBound: a.clock.Bound(now),
		Seen: u.seen, Acked: u.grants.Done(), Join: !u.joined, Blank: u.blank, Recovering: at.recovering || at.returning,
		Members: a.stored.members, Membership: a.stored.membership, ClusterID: a.stored.clusterID, Leaving: u.leaving, CountsSince: a.roster.countsSince(),
		Reads: wire.Read,
	}
	if u.whole == 0 && !head.Recovering && !head.Blank {
		u.whole = u.seq
	}
	a.adoptAnew(at)
	a.storeRooms(now, at)
	a.depart(now, at)
	pack := wire.NewReportPacker(head)
	busy, turned := false, a.lastReturn.changed(at, a.roster.edges)
	for _, b := range a.rooms.list {
		if turned || b.dirty || b.stale || b.divided || b.reservedAtReturn {
			n, rate := at.surplus(b)
			t, r := b.loan.aboveFloor(n, rate)
			b.dirty = b.loan.giveBack(t, r) || b.dirty
			b.divided, b.reservedAtReturn = max(0, t) < n || max(0, r) < rate, b.accounts.anyReserved()
		}
		if b.terminations.up.Len() > 0 && b.changedAt <= u.acked {
			b.dirty = true
		}
		if removed := a.mayDrop(at, b); removed != b.removed {
			b.removed, b.dirty = removed, true
		}
		if b.dirty {
			b.dirty, b.changedAt = false, u.seq
		}
		busy = busy || b.changedAt == u.seq
		if u.joined && b.changedAt <= u.acked && !u.recalls() {
			continue
		}
		free, rateFree := at.free(b)
		r := b.report(now, free, rateFree)
		b.moves.reported(u.seq)
		if u.recalls() {
			for _, acc := range b.accounts {
				r.RateUsed = acc.rateUses.addAges(now, r.RateUsed)
			}
		}
		if a.stored.saved >= a.stored.movedNeeds { // otherwise a successor would not know that sessions moved in
			r.Ends = b.terminations.up.Take(u.seq, u.acked)
		}
		b.passes.addToReport(u.seen, &r, b.accounts)
		pack.Add(r)
	}
	u.busy = busy
	return pack.Reports()
}

// Apply applies a grant of global. A grant of a lower term, or older than one applied, changes nothing.
func (a *Aggregator) Apply(now fleettime.Mono, g wire.Grant) {
	u := &a.up
	_, fenced := a.Fenced()
	if g.To != a.cfg.DC || g.Instance != a.cfg.Term.N || fenced || g.ClusterID != a.stored.clusterID ||
		!u.follow(now, &g, &a.stored) {
		return
	}
	fresh, complete := u.grants.Take(g.Seq, g.Part, g.Parts)
	if !fresh {
		return
	}
	if u.syncTime(now, &g, &a.clock, a.roster.edges) {
		a.lifecycle.silence.guessCorrected()
	}
	if g.Acked > u.acked {
		u.acked, u.unansweredSince = g.Acked, now
	}
	u.heard = now
	u.parent.Said(now, g.Reads)
	a.due = now
	was := a.member.standing(u)
	u.members, u.standing, u.membership = g.Members, g.Standing, g.Membership
	u.tells = u.parent.Reads(now, wire.Memberships)
	if a.member.standing(u) != was {
		a.rooms.markAllStale()
	}
	switch g.Handshake {
	case wire.Promise:
		// Global has no ledger of this data centre, if it answers a report with the promise. If this aggregator has none
		// either, the reported permits and sessions of the edges are all there are.
		if u.blank && g.Acked > u.before && !a.roster.recovering() {
			a.recallFloors(now)
			u.blank = false
			a.rooms.reconstruct()
		}
		u.reportSoon(now, 1)
	case wire.Adopted:
		if u.blank {
			a.recallFloors(now)
		}
		u.applyAdopted(now, &g, complete, &a.rooms)
		if a.member.readmitted(u) {
			a.rooms.voided()
		}
		if complete && u.joined {
			a.member.adopted(u, &g)
		}
		a.storeMoves()
	case wire.Fenced, wire.Dead: // only sent to edges
	}
}

// Leave records that the process is shutting down, and reports it to global.
func (a *Aggregator) Leave(now fleettime.Mono) {
	if !a.up.leaving {
		a.up.leaving = true
		a.up.reportSoon(now, 1)
	}
}
