package region

import (
	"slices"
	"time"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/ledger/share"
	"vestibule/internal/core/wire"
)

// This file exchanges the numbers of a room with global.

// report returns the room's part of a report to global.
func (b *roomLedger) report(now fleettime.Mono, free, rateFree int64) wire.RoomReport {
	t := b.tally()
	idle, ridle := b.accounts.idle()
	r := wire.RoomReport{
		Room: b.ID, Gen: b.loan.gen, Reconstructed: b.loan.reconstructed,
		Permits:   b.loan.permits.Reported(),
		Bound:     b.bound,
		Uncovered: b.uncovered(),
		Idle:      uint64(max(0, free) + idle),
		RateIdle:  uint64(max(0, rateFree) + ridle),
		Active:    t.Active,
		Admitted:  t.Admitted, Joined: t.Joined, Entered: t.Entered,
		Taken: slices.Clone(b.moves.storedTaken()), Asks: b.asksUp(),
		Overcommit: uint64(b.overcommit.sum()), Outcomes: t.Outcomes, Counts: t.Counts, Removed: b.removed,
	}
	if n := b.moves.unstored(); n > 0 { // a successor would not know that these permits are used
		r.Permits.Sessions.Granted -= n
		r.Idle -= min(r.Idle, n)
	}
	for _, s := range b.moves.sent {
		r.Transfers = append(r.Transfers, s.Transfer)
	}
	var few struct { // avoids allocations with few edges
		lines, pending [8]estimate.Histogram
		heldJoined     [8][]fleettime.Time
	}
	lines, pending, heldJoined := few.lines[:0], few.pending[:0], few.heldJoined[:0]
	var absent []estimate.Histogram
	some := false
	for _, acc := range b.accounts {
		if acc.edge.state != alive {
			if acc.report != nil {
				absent = append(absent, ledger.Remaining(acc.report.Waiting, now.Sub(acc.edge.receivedAt)))
			}
			continue
		}
		some = true
		r.Want += acc.demand.Want
		r.HeldPeople += acc.demand.HeldPeople
		r.Movers += acc.demand.Movers
		r.Overdue += acc.demand.Overdue
		if n := acc.demand.SiteDown; n > 0 {
			r.SiteDown += n
			r.SiteDownAt = append(r.SiteDownAt, acc.edge.name)
		}
		pending = append(pending, acc.pending())
		heldJoined = append(heldJoined, acc.demand.HeldJoined)
		if acc.report != nil {
			lines = append(lines, acc.report.Waiting)
			for _, m := range acc.report.Arrivals {
				r.Arrivals = addMinute(r.Arrivals, m)
			}
		}
	}
	slices.Sort(r.SiteDownAt)
	r.SiteDownAt = r.SiteDownAt[:min(len(r.SiteDownAt), wire.MaxNamed)]
	r.HeldJoined = share.MergeTimes(heldJoined, wire.MaxHeld)
	r.Pending = estimate.Sum(pending...).Compact(wire.MaxSlices)
	if some { // otherwise no edge here can admit visitors
		// Their visitors are expected to return, and are not called before.
		r.Pending = estimate.Sum(append(absent, r.Pending)...).Compact(wire.MaxSlices)
	}
	// A visitor that has moved here from another data centre counts below zero: only global's sum is right.
	r.Waiting = estimate.Sum(lines...).Compact(wire.MaxSlices)
	b.waiting = r.Waiting.Clamp()
	b.flow.Sample(now, &t, b.waiting.Total())
	slices.SortFunc(r.Arrivals, func(x, y wire.Minute) int { return int(x.Start - y.Start) })
	if n := len(r.Arrivals); n > wire.MaxMinutes {
		r.Arrivals = r.Arrivals[n-wire.MaxMinutes:]
	}
	return r
}

// addMinute adds m to the entry of its minute.
func addMinute(minutes []wire.Minute, m wire.Minute) []wire.Minute {
	for i := range minutes {
		if minutes[i].Start == m.Start {
			minutes[i].N += m.N
			return minutes
		}
	}
	return append(minutes, m)
}

// applyGrant applies a grant of global to the room. It reports whether global waits for a report.
func (b *roomLedger) applyGrant(now fleettime.Mono, from wire.Term, g *wire.RoomGrant) (hurry bool) {
	if b.passes.applyGrant(from, &g.Passes, b.accounts) {
		b.dirty, b.stale = true, true
	}
	b.dirty = b.dirty || b.bound != g.Bound
	b.bound = g.Bound
	if g.Gen < b.loan.gen {
		return false // of an older generation
	}
	if g.Gen > b.loan.gen {
		b.voidMoves()
	}
	news, hurry := b.loan.applyGrant(g)
	b.dirty, b.stale = b.dirty || news, true
	for _, end := range g.Ends {
		b.recordEnd(end, false)
	}
	b.moves.asked = g.Asks
	b.arrived(g.Taken)
	for _, s := range g.Stays {
		b.tellStay(s)
	}
	if b.takeTransfers(now, g.Transfers) {
		hurry = true
	}
	if g.View != nil {
		b.setView(g.View)
	}
	return hurry
}

// reconstruct replaces an unknown loan by the permits and sessions of the edges. These cover every session and every
// permit at an edge, so that global lends no more than T and R beside them. They also cover reserved sessions and
// doubles, and so may exceed what was lent. Until global has confirmed that all ledgers together keep the limits, only
// permits up to the stored floor are reused.
func (b *roomLedger) reconstruct() {
	credit, rate := b.accounts.lent()
	rate += b.rates.sum()
	held := &b.loan.permits
	held.Reset()
	held.Sessions.Granted = uint64(max(b.loan.sure.Sessions, b.active()+credit))
	held.Rate.Granted = uint64(max(b.loan.sure.Rate, rate))
	held.Sessions.Keep, held.Rate.Keep = held.Sessions.Granted, held.Rate.Granted // until global sets them
	b.loan.reconstructed = true
	b.moves.forgotten()
	b.dirty, b.stale = true, true
}

// expire voids the loan of a room under partition_policy cap once none of its sessions can be valid after the lease
// of global has lapsed. Global reclaims the permits a little later, and a new leader of it may not know.
func (b *roomLedger) expire(now, leaseEnd fleettime.Mono, edgeLease time.Duration) {
	if !b.Cap || leaseEnd == 0 || b.loan.permits.Sessions.Held() <= 0 {
		return
	}
	life := max(time.Duration(b.life.longest(now))*time.Second, wire.RateWindow)
	// The edges stopped one edge lease after the lease of global lapsed. Two seconds cover the rounding of
	// expiry and the allowed clock error.
	if now.Sub(leaseEnd) < fleettime.Stretch(edgeLease+life+2*time.Second) {
		return
	}
	held := &b.loan.permits
	held.Sessions.Returned, held.Rate.Returned = held.Sessions.Granted, held.Rate.Granted
	b.dirty, b.stale = true, true
}
