package root

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/ledger/share"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// loan has the permits of one room that one data centre holds, and its last report.
type loan struct {
	// Only void raises gen, above the generations of all earlier terms; adopt takes over that of a predecessor. A report
	// of another generation changes no permits.
	gen uint64

	// Granted and Keep are from lend, Returned from reports. The report that adopts the ledger raises them to those of a
	// predecessor; void resets them. Within a generation Granted and Returned only grow.
	permits       wire.Permits
	expired       bool // it was silent for so long that nobody waits for its report
	reclaimed     bool // void was called in this term: no report of an older generation is awaited; never cleared
	reconstructed bool // as reported: permits are an upper bound, computed by a data centre that lost its ledger

	moving moving

	passes share.PassLoan // Granted and Keep are from lendPasses, the rest from reports

	// As last reported. void clears idle, rateIdle, demand, active, pending and waiting.
	idle, rateIdle ledger.Idle // of this generation
	demand         ledger.Demand
	active         uint64
	overcommit     uint64
	bound          wire.PermitCounts // see pool.bound
	pending        estimate.Histogram
	waiting        estimate.Histogram
	arrivals       []wire.Minute
	lastWhole      visitors       // of an aggregator that knew all its edges
	progress       share.Progress // its part in pool.progress
	counted        fleettime.Mono // first report to this coordinator, which counts admissions from there; set once
	recalled       bool           // when the permits of R were used before counted is known

	// Permits that were held when the loan was voided, and may still be in use. It falls to 0 once the reported sessions
	// fit the permits.
	unreturned int64

	// Permits of T and R in use there beyond those lent, because they were voided: by this coordinator, or by a
	// predecessor, whose list may have had another membership. No other data centre is lent them.
	uncovered wire.PermitCounts

	// News for the data centre. pool.grant clears dirty and viewDirty, and sets the number of the first grant
	// with the newest change. It repeats the room until that grant is acknowledged.
	changedAt, viewAt uint64
	dirty, viewDirty  bool
	ends              wire.Outbox[wire.End] // from queueEnd

	heard   bool   // the data centre has reported the room
	removed bool   // in its newest report: see wire.RoomReport.Removed
	drops   bool   // the data centre is to drop the room: nothing is lent to it until it has answered
	dropAt  uint64 // the first grant that said so; 0 before
}

// visitors are the visitors inside a data centre and those that wait there.
type visitors struct {
	at               fleettime.Mono
	active           uint64
	waiting, pending estimate.Histogram
}

// out reports whether the data centre holds permits or sessions of the room, or may have unaccounted ones.
func (l *loan) outstanding() bool {
	return l.permits.Sessions.Held() != 0 || l.permits.Rate.Held() != 0 || l.active != 0 || l.overcommit != 0 ||
		l.unreturned != 0 || len(l.moving.sent) != 0 || l.uncovered != wire.PermitCounts{}
}

// idleNow returns the idle permits of T in the data centre, as reported.
func (l *loan) idleNow() int64 { return l.idle.Now(&l.permits.Sessions) }

// rateIdleNow returns the same for R.
func (l *loan) rateIdleNow() int64 { return l.rateIdle.Now(&l.permits.Rate) }

// pools are the permits of all rooms of a coordinator.
type pools struct {
	cfg     *Config
	centres *centres
	byID    map[room.ID]*pool
	list    []*pool // by ID

	churn map[room.ID]estimate.Churn // learned by a predecessor, for rooms that are opened later
}

// open returns the pool of a room and makes it if needed.
func (ps *pools) open(id room.ID) *pool {
	p := ps.byID[id]
	if p == nil {
		p = &pool{stale: true, holdings: holdings{
			RoomConfig: ledger.RoomConfig{ID: id}, cfg: ps.cfg, centres: ps.centres, loans: map[*centre]*loan{}, gone: true,
		}}
		p.flow.Restore(ps.churn[id])
		ps.byID[id] = p
		ps.list = append(ps.list, p)
		slices.SortFunc(ps.list, func(x, y *pool) int { return cmp.Compare(x.ID, y.ID) })
	}
	return p
}

// markAllStale makes the next Grants visit every room.
func (ps *pools) markAllStale() {
	for _, p := range ps.list {
		p.stale = true
	}
}

// drop drops the loans of a data centre that never reported.
func (ps *pools) drop(d *centre) {
	for _, p := range ps.list {
		delete(p.loans, d)
	}
}

// out reports whether a data centre holds permits or sessions of any room.
func (ps *pools) outstanding(d *centre) bool {
	for _, l := range ps.loans(d) {
		if l.outstanding() {
			return true
		}
	}
	return false
}

// allExpired reports whether a data centre has been silent for so long that none of its sessions can be valid.
func (ps *pools) allExpired(now fleettime.Mono, d *centre) bool {
	return len(ps.list) > 0 &&
		!slices.ContainsFunc(ps.list, func(p *pool) bool { return now.Sub(d.recv) <= p.reclaimAfter() })
}

// caps reports whether a data centre may have valid sessions in a room with partition_policy cap.
func (ps *pools) caps(now fleettime.Mono, d *centre) bool {
	return slices.ContainsFunc(ps.list, func(p *pool) bool { return p.Cap && now.Sub(d.recv) <= p.reclaimAfter() })
}

// pool has the permits of one room and the loans of its data centres.
//
// Invariants: held and free permits sum to no more than the limit, once the sessions beyond a lowered limit have
// ended. All held permits, also those of missing ledgers, sum to no more than bound-spare; so only permits that were
// returned in this term are free while the ledger of any data centre is missing.
type pool struct {
	holdings

	// Under partition_policy cap no loan is voided earlier: tickets of a longer session_duration may be valid.
	notBefore fleettime.Mono

	// The view and its inputs: progress is from reports, the rest from updateView.
	progress share.Progresses // of all data centres
	flow     share.Flow       // with the churn that a predecessor learned
	rounds   share.Rounds
	view     *wire.View // nil before the first lending
	viewed   fleettime.Mono
	looked   fleettime.Mono // when the view was last computed, though it may be the same
	partial  bool           // view lacks data centres that have not reported to a new leader, and is not sent

	stale  bool   // changed since permits were last lent; Grants clears it
	relays relays // from reports
}

// holdings are the permits of one room, held and free. Its methods answer questions and change nothing.
type holdings struct {
	ledger.RoomConfig // from set; kept until the room is dropped
	cfg               *Config
	centres           *centres
	loans             map[*centre]*loan // opened by loan; deleted once the room or the data centre is dropped
	gone              bool              // not in the room set: its limits are 0
	passes            share.Passes      // of the newest release of this coordinator; openRelease begins it

	// bound is the highest sum of held permits that this coordinator or a predecessor may have lent: the limits, or
	// more after a limit was lowered. The data centres keep it for a successor without their ledgers. 0 for unknown.
	bound            wire.PermitCounts
	spare, rateSpare int64 // permits returned in this term and not lent again; no others are lent while not complete
}

// set applies the settings of the room.
func (p *pool) set(now fleettime.Mono, r ledger.RoomConfig) {
	if old := p.Session; r.Session < old {
		// A data centre without the change stamps tickets of the old life for so long.
		life := time.Duration(wire.Life(old)) * time.Second
		sum := time.Minute + p.cfg.Params.RegionalLease + p.cfg.Params.EdgeLease + life
		p.notBefore = max(p.notBefore, now.Add(fleettime.Stretch(fleettime.Stretch(sum))))
	}
	p.RoomConfig, p.gone, p.stale = r, false, true
	p.openRelease()
}

// complete reports whether the ledgers of all data centres are known for the room. Then the free permits follow from
// the limit.
func (p *holdings) complete() bool {
	return !p.centres.outdated() && !slices.ContainsFunc(p.centres.all, p.missing)
}

// missing reports whether the permits that a data centre holds of the room are unknown.
func (p *holdings) missing(d *centre) bool {
	if p.centres.awaitsClusterID(d) {
		return true
	}
	l := p.loans[d]
	if d.uses {
		return l == nil || !l.expired
	}
	if !p.centres.unknown(d) {
		return false
	}
	return l == nil || !l.reclaimed
}

// confirms reports whether the limits are kept with the current ledgers. Reconstructed ledgers hold at least what is
// out, so nothing is lent twice then. The ledger of a data centre that is not listed, such as a copy, is never
// confirmed: the next leader does not wait for it, and may lend what it holds to others.
func (p *holdings) confirms(d *centre, l *loan) bool {
	if !l.reconstructed {
		return true
	}
	if p.centres.members != 0 && !d.listed {
		return false
	}
	free, rate, complete := p.free()
	return complete && free >= 0 && rate >= 0
}

// free returns the permits of T and of R that no data centre holds. They are negative until sessions beyond a lowered
// limit have ended. complete is the result of p.complete.
func (p *holdings) free() (free, rate int64, complete bool) {
	free, rate = p.limits()
	outdated := p.centres.outdated()
	if complete = p.complete(); !complete && !outdated {
		free, rate = p.spare-max(0, p.bound.Sessions-free), p.rateSpare-max(0, p.bound.Rate-rate)
		for _, l := range p.loans {
			free, rate = free-l.uncovered.Sessions, rate-l.uncovered.Rate
		}
		return free, rate, false
	}
	for _, d := range p.centres.all {
		if l := p.loans[d]; l != nil && (complete || !l.reconstructed) {
			free -= l.permits.Sessions.Held() + l.uncovered.Sessions
			rate -= l.permits.Rate.Held() + l.uncovered.Rate
		}
	}
	free -= p.onTheWay()
	if outdated { // others may hold the rest
		free, rate = min(0, free), min(0, rate)
	}
	return free, rate, complete
}

// limits returns T and R; 0 of a removed room.
func (p *holdings) limits() (t, rate int64) {
	if p.gone {
		return 0, 0
	}
	return int64(p.Total), int64(p.Rate)
}

// raiseBound updates the bound before permits are lent. It falls to a lowered limit once all permits fit it.
func (p *pool) raiseBound(free, rate int64, complete bool) {
	t, r := p.limits()
	switch {
	case p.Unbound && !p.gone:
		p.bound = wire.PermitCounts{Sessions: wire.MaxPermits, Rate: wire.MaxPermits}
	case complete:
		p.bound = wire.PermitCounts{Sessions: boundOf(p.bound.Sessions, t, free), Rate: boundOf(p.bound.Rate, r, rate)}
	}
	for d, l := range p.loans {
		if l.bound != p.bound && l.bound != (wire.PermitCounts{}) && l.changedAt <= d.acked { // else it is on its way
			l.dirty, d.push = true, true
		}
	}
}

// boundOf returns the bound of one kind of permits, of which free are free below the limit.
func boundOf(bound, limit, free int64) int64 {
	if free >= 0 {
		return limit
	}
	return max(bound, limit-free)
}

// openRelease opens the release that the store marks for this coordinator. An open release stays unchanged.
func (p *pool) openRelease() {
	r := &p.Release
	mine := r.Lender == p.cfg.Term
	if r.ID > p.passes.Release && mine {
		p.passes = share.Passes{Release: r.ID, N: r.N}
		for _, d := range p.centres.all {
			p.loan(d).dirty = true
		}
	}
}

// reclaim voids the loan of a silent data centre: under partition_policy cap when its sessions have expired, under
// serve after lost_after of silence while others reported.
func (p *pool) reclaim(now fleettime.Mono, d *centre) {
	silent, wait := d.silence(now), p.LostWait
	if p.Cap || d.removed { // an operator declared that a forced one renews nothing
		silent, wait = now.Sub(d.recv), p.reclaimAfter()
	} else if wait == 0 || !p.centres.othersHeard(now, d) {
		return
	}
	l := p.loan(d)
	if d.removed && silent > wait { // by the operator's word nothing of it can be valid
		l.unreturned, l.overcommit = 0, 0
	}
	l.expired = silent > wait
	none := l.reclaimed && l.permits.Sessions.Granted == 0 && l.permits.Rate.Granted == 0 && l.uncovered == wire.PermitCounts{}
	if silent <= wait || none || (p.Cap && p.notBefore != 0 && now < p.notBefore) {
		return
	}
	renews := !p.Cap && !d.removed
	if renews {
		l.unreturned += l.uncovered.Sessions
	}
	l.uncovered = wire.PermitCounts{}
	p.void(l, renews)
}

// reclaimAfter returns the time after its last report at which a data centre cannot have a valid session of the room
// (docs/GUARANTEES.md): its leader's lease, its own, its edges', and the life of a ticket, all on clocks that drift.
func (p *holdings) reclaimAfter() time.Duration {
	life := max(time.Duration(wire.Life(p.Session))*time.Second, wire.RateWindow)
	sum := ledger.OwnerLease + p.cfg.Params.RegionalLease + p.cfg.Params.EdgeLease + life
	return fleettime.Stretch(fleettime.Stretch(sum)) + 4*time.Second + 4*fleettime.Guard + 4*fleettime.MaxError
}

// adopt takes over the generation of a data centre that promises to follow this term.
func (p *pool) adopt(d *centre, r *wire.RoomReport) {
	l := p.loan(d)
	if !l.reclaimed {
		l.gen = r.Gen
	} else if d.void && r.Gen < l.gen { // it is alive, and its loan was voided
		l.unreturned = max(l.unreturned, r.Permits.Sessions.Held())
	}
}

// applyReport updates the loan of a data centre.
func (p *pool) applyReport(d *centre, r *wire.RoomReport) {
	p.stale = true
	l := p.reported(d)
	if !l.heard && d.adopted {
		p.adopt(d, r)
	}
	fresh := p.applyMoves(d, l, r)
	if !d.blank && r.Gen == l.gen {
		if !d.adopted || !l.heard {
			// Its ledger is the truth: it has the permits that a predecessor lent.
			l.permits.Recover(&r.Permits)
			p.bound.Sessions, p.bound.Rate = max(p.bound.Sessions, r.Bound.Sessions), max(p.bound.Rate, r.Bound.Rate)
		}
		back := int64(ledger.Growth(&l.permits.Sessions.Returned, r.Permits.Sessions.Returned))
		rateBack := int64(ledger.Growth(&l.permits.Rate.Returned, r.Permits.Rate.Returned))
		// Reconstructed permits may never have been lent. Those of a data centre that was removed by force may be lent to
		// others, by a predecessor that had not heard it for long.
		if l.reconstructed = r.Reconstructed; !l.reconstructed && !d.removed {
			p.spare += max(0, back-fresh)
			p.rateSpare += rateBack
		}
		l.idle = ledger.Idle{N: r.Idle, Granted: r.Permits.Sessions.Granted}
		l.rateIdle = ledger.Idle{N: r.RateIdle, Granted: r.Permits.Rate.Granted}
	}
	l.seeUncovered(d, r)
	l.demand, l.active, l.bound = ledger.DemandOf(r), r.Active, r.Bound
	l.waiting, l.arrivals, l.pending = r.Waiting, r.Arrivals, r.Pending
	if !d.blank && !d.recovering { // otherwise edges have not reported yet
		l.lastWhole = visitors{at: d.recv, active: r.Active, waiting: l.waiting, pending: l.pending}
	}
	l.overcommit = r.Overcommit
	p.passes.ApplyReport(&l.passes, r)
	if l.active <= uint64(max(0, l.permits.Sessions.Held())) {
		l.unreturned = 0
	} else if l.unreturned > 0 || !p.Cap && !d.blank && r.Gen < l.gen { // it is alive, and its loan was voided
		l.unreturned = int64(l.active) - l.permits.Sessions.Held()
	}
	for _, e := range r.Ends {
		p.relays.apply(d, e, p.centres.all, p.queueEnd)
	}
	if p.progress.Add(&l.progress, r) {
		l.counted = d.recv
	}
	if !l.recalled && !d.blank && !d.recovering {
		l.recalled = true
		p.flow.Recall(d.recv, l.counted, r.RateUsed)
	}
	l.heard, l.removed = true, r.Removed
}

// seeUncovered notes what a data centre has in use that was voided. The report decides, whatever the list says: a list
// that was rolled back, or from which the data centre was removed again, does not tell of the void. Permits of another
// generation are in use as far as a data centre that was added again has not returned them. While it does not know all
// its sessions, it may tell too few.
func (l *loan) seeUncovered(d *centre, r *wire.RoomReport) {
	n := r.Uncovered
	if r.Gen == l.gen { // what was lent since the report covers a part
		n.Sessions = max(0, n.Sessions-int64(l.permits.Sessions.Granted-min(l.permits.Sessions.Granted, r.Permits.Sessions.Granted)))
		n.Rate = max(0, n.Rate-int64(l.permits.Rate.Granted-min(l.permits.Rate.Granted, r.Permits.Rate.Granted)))
	} else if d.readmitted() {
		n.Sessions += max(0, r.Permits.Sessions.Held())
		n.Rate += max(0, r.Permits.Rate.Held())
	}
	if d.blank || d.recovering {
		n.Sessions, n.Rate = max(n.Sessions, l.uncovered.Sessions), max(n.Rate, l.uncovered.Rate)
	}
	l.uncovered = n
}

// cover lends data centres of the list what they have in use of voided permits, as far as it is not lent to others. It is kept
// back from the free permits already.
func (p *pool) cover(now fleettime.Mono, free, rate int64) {
	for _, d := range p.centres.all {
		l := p.loans[d]
		if l == nil || l.uncovered == (wire.PermitCounts{}) || !d.listed || !d.adopted || now.Sub(d.recv) > SilentAfter {
			continue
		}
		n := min(l.uncovered.Sessions, max(0, l.uncovered.Sessions+free))
		r := min(l.uncovered.Rate, max(0, l.uncovered.Rate+rate))
		if n+r == 0 {
			continue
		}
		l.permits.Sessions.Granted += uint64(n)
		l.permits.Rate.Granted += uint64(r)
		l.uncovered.Sessions, l.uncovered.Rate = l.uncovered.Sessions-n, l.uncovered.Rate-r
		l.dirty, d.push = true, true
	}
}

// queueEnd queues an end for a data centre.
func (p *pool) queueEnd(d *centre, e wire.End) {
	l := p.loan(d)
	l.ends.Add(e, 0)
	l.dirty = true
}

// loan returns the loan of a data centre, and opens it if needed.
func (p *pool) loan(d *centre) *loan {
	l := p.loans[d]
	if l == nil {
		l = &loan{dirty: true, viewDirty: true}
		p.loans[d] = l
		if d.void {
			p.void(l, false)
		}
	}
	return l
}

// loans returns the loans of a data centre, by room.
func (ps *pools) loans(d *centre) iter.Seq2[*pool, *loan] {
	return func(yield func(*pool, *loan) bool) {
		for _, p := range ps.list {
			if l := p.loans[d]; l != nil && !yield(p, l) {
				return
			}
		}
	}
}

// void voids a loan: reports of its generation no longer count. inUse says that the data centre may be alive.
func (p *pool) void(l *loan, inUse bool) {
	l.reclaimed = true
	if inUse {
		l.unreturned += max(0, l.permits.Sessions.Held())
	}
	l.gen = max(l.gen, p.cfg.Term.N<<16) + 1 // above all generations of earlier terms
	l.permits.Reset()
	l.idle, l.rateIdle = ledger.Idle{}, ledger.Idle{}
	l.demand, l.active = ledger.Demand{}, 0
	l.waiting, l.pending = nil, nil
	l.dirty = true
	p.stale = true
}

// reported returns the loan of a data centre that reports the room. If it has dropped the room, the loan starts
// anew: its counters are those of the report.
func (p *pool) reported(d *centre) *loan {
	if l := p.loans[d]; l != nil && l.answered(d) {
		p.close(d)
	}
	return p.loan(d)
}
