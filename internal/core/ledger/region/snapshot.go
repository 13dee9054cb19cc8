package region

import (
	"math"
	"slices"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger/share"
	"vestibule/internal/core/wire"
)

// snapshot is the state of a data centre at one moment that decides about its permits. It is the same for all rooms.
//
// Invariant: no permit is free while the permits of the data centre, or the sessions counted by edges of a
// predecessor, are unknown.
type snapshot struct {
	blank      bool // the permits of the data centre are unknown
	recovering bool // sessions may exist that no edge has reported yet
	returning  bool // edges that fell silent together have not all returned
	isolated   bool // no message of global for long
	unanswered bool // global has not answered: nobody could use returned permits

	leased bool   // under the lease of global
	closed bool   // the data centre must not admit visitors
	life   uint32 // longest stored life of tickets

	since fleettime.Time // time since which every edge has counted waiting visitors
	term  wire.Term      // of the aggregator
}

// unknown reports whether the permits or the sessions of the data centre are unknown.
func (at *snapshot) unknown() bool { return at.blank || at.recovering }

// surplus returns the number of free permits of T and of R to return to global; none if negative.
func (at *snapshot) surplus(b *roomLedger) (n, rate int64) {
	if at.unknown() {
		return 0, 0
	}
	keep, rateKeep := at.keep(b)
	free, rfree := at.free(b)
	idle, ridle := b.accounts.idle()
	unsure, runsure := b.loan.unsure()
	return min(free, max(unsure, free+idle-keep)), min(rfree, max(runsure, rfree+ridle-rateKeep))
}

// divide decides how many permits every edge may hold in a room. It grants permits, sets the idle targets and allows
// renewals. It never takes permits back. It reports whether a report to global is urgent. ft is fleet time.
func (at *snapshot) divide(now fleettime.Mono, ft fleettime.Time, b *roomLedger, edges []*edge) (hurry bool) {
	to := make([]*account, 0, len(b.accounts))
	for _, acc := range b.accounts {
		// An edge that has not reported the room does not know it, or has dropped it: it would ignore the grant.
		if acc.report != nil && !acc.drops && acc.edge.state == alive {
			to = append(to, acc)
		}
	}
	if len(to) == 0 {
		return false
	}
	life := min(b.life.secs, at.life)
	if b.stop(at.leased, !at.blank); b.stopped || b.gone {
		if b.stopped {
			life = 0
		}
		for _, acc := range to {
			acc.setKeep(0, 0)
			acc.setLife(life)
		}
		return false
	}
	if at.unknown() {
		// Renewals add no session. But a new edge may not know yet which sessions were revoked, until the edges
		// of the predecessor have reported.
		if awaited := slices.ContainsFunc(edges, func(e *edge) bool { return e.state == awaiting }); awaited {
			to = slices.DeleteFunc(to, func(acc *account) bool { return !acc.edge.recovered })
		}
		allowRenewals(to, b.counts.sum, b.loan.permits.Sessions.Held(), life)
		return false
	}
	d := share.Division{Closed: at.closed}
	d.Free, d.RateFree = at.free(b)
	unsure, runsure := b.loan.unsure()
	if d.Free, d.RateFree = d.Free-unsure, d.RateFree-runsure; b.loan.reconstructed && at.closed {
		d.Free, d.RateFree = min(0, d.Free), min(0, d.RateFree) // it may be a copy
	}
	if at.alone() {
		t, r := b.beyond()
		d.Free, d.RateFree = d.Free-t, d.RateFree-r
	}
	d.Keep, d.RateKeep = at.keep(b)
	v := at.view(now, ft, b, d.Free, d.RateFree)
	if d.Cutoff = v.Cutoff; b.Shut {
		d.Cutoff = v.Called
	}
	d.Claims = make([]share.Claim, 0, len(to))
	for _, acc := range to {
		d.Claims = append(d.Claims, share.Claim{
			Idle: acc.idle(), RateIdle: acc.rateIdleNow(), Demand: acc.demand,
		})
	}
	push := d.Divide()
	b.waitingForR = d.WaitingForR
	for i, acc := range to {
		t, r := d.Claims[i].Targets[share.OfT], d.Claims[i].Targets[share.OfR]
		n, rate := acc.belowCeiling(t.Grant, r.Grant)
		acc.raise(&acc.permits.Sessions.Granted, uint64(n))
		acc.raise(&acc.permits.Rate.Granted, uint64(rate))
		acc.setKeep(uint64(t.Keep), uint64(r.Keep))
		acc.edge.urgent = acc.edge.urgent || push[i]
	}
	back := b.passes.lend(to, !at.closed)
	allowRenewals(to, b.counts.sum, b.loan.permits.Sessions.Held(), life)
	waits := slices.ContainsFunc(to, func(acc *account) bool { return acc.ceiling.waits() })
	b.dirty = b.dirty || back || d.Urgent // signal demand to global, or bring the permits that it waits for
	return d.Urgent || back || waits
}

// free returns the permits of T and of R that neither a session nor an edge holds. If it is negative, more are in use
// than the data centre holds: a debt, which decreases as sessions end.
func (at *snapshot) free(b *roomLedger) (t, rate int64) {
	if at.unknown() {
		return 0, 0
	}
	if t, rate = b.unallocated(); at.returning {
		t = 0
	}
	return t, rate
}

// alone reports whether global cannot receive idle permits.
func (at *snapshot) alone() bool { return at.isolated || at.unanswered }

// keep returns the idle targets of the data centre: 0 for a removed room, and no bound while global cannot receive
// idle permits.
func (at *snapshot) keep(b *roomLedger) (keep, rate int64) {
	switch {
	case b.gone:
		return 0, 0
	case at.alone():
		return math.MaxInt64, math.MaxInt64
	}
	return int64(b.loan.permits.Sessions.Keep), int64(b.loan.permits.Rate.Keep)
}

var openView = wire.View{Cutoff: estimate.Open, Park: estimate.Open}

// view returns the view by which permits are divided: the view of global, or the data centre's own after a long
// silence of global.
func (at *snapshot) view(now fleettime.Mono, ft fleettime.Time, b *roomLedger, free, rateFree int64) *wire.View {
	if b.view == nil {
		return &openView
	}
	if at.isolated {
		b.ownView(now, ft, at.term, free, rateFree, at.since)
	}
	return b.view
}

// lastSnapshot is the state at the last search of every room for permits to return.
type lastSnapshot struct {
	at    snapshot
	edges []edgeSnapshot
}

type edgeSnapshot struct {
	edge  *edge
	state edgeState
}

// changed reports whether the snapshot changed since the last call. If so, every room is searched, otherwise the
// changed rooms.
func (l *lastSnapshot) changed(is *snapshot, edges []*edge) bool {
	was := &l.at
	if is.blank == was.blank && is.recovering == was.recovering && is.returning == was.returning &&
		is.isolated == was.isolated && is.unanswered == was.unanswered &&
		slices.EqualFunc(l.edges, edges, func(b edgeSnapshot, e *edge) bool { return b.edge == e && b.state == e.state }) {
		return false
	}
	l.at, l.edges = *is, l.edges[:0]
	for _, e := range edges {
		l.edges = append(l.edges, edgeSnapshot{e, e.state})
	}
	return true
}

// countsSince returns the time since which every edge has counted waiting visitors; 0 for unknown.
func (r *roster) countsSince() fleettime.Time {
	since := fleettime.Time(math.MaxInt64)
	for _, e := range r.edges {
		switch {
		case e.reporting():
			since = min(since, e.since)
		case e.missing() && !r.hasEnded(e):
			return 0
		}
	}
	if since == math.MaxInt64 {
		return 0
	}
	return since
}
