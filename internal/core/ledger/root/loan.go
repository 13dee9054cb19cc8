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

// loan is what one data centre holds of one room, and what it said of it.
type loan struct {
	gen                       uint64
	granted, returned         uint64
	rateGranted, rateReturned uint64
	reclaimed                 bool // voided in this term without the data centre's word
	reconstructed             bool // an upper bound, reckoned by a data centre that does not know

	keep, rateKeep uint64

	passes share.PassLoan

	idle, idleSeen     uint64 // idle rights when it had seen so many granted
	rateIdle, rateSeen uint64
	want, heldPeople   uint64
	heldJoined         []fleettime.Time
	movers             uint64
	active             uint64
	excess             uint64 // as its aggregator tells
	unreturned         int64  // held when it was given up, and may be in use there still
	ends               wire.Outbox[wire.End]
	admitted           uint64
	joined, entered    uint64
	pending            estimate.Histogram
	outcomes           estimate.Outcomes
	told               bool // the counters above have a beginning
	waiting            estimate.Histogram
	arrivals           []wire.Minute
	whole              crowd // as told last by an aggregator that had heard all its edges

	changedAt, viewAt uint64
	dirty, viewDirty  bool
}

// crowd is who was in a data centre, and who waited there.
type crowd struct {
	at               fleettime.Mono
	active           uint64
	waiting, pending estimate.Histogram
}

func (l *loan) held() int64 { return int64(l.granted) - int64(l.returned) }

func (l *loan) rateHeld() int64 { return int64(l.rateGranted) - int64(l.rateReturned) }

// out reports whether anything of the room is out in the data centre: rights, sessions, or
// what is not accounted for.
func (l *loan) out() bool {
	return l.held() != 0 || l.rateHeld() != 0 || l.active != 0 || l.excess != 0 || l.unreturned != 0
}

// idleNow returns the rights that lie idle in the data centre, as far as known.
func (l *loan) idleNow() int64 { return int64(l.idle) + int64(l.granted) - int64(l.idleSeen) }

func (l *loan) rateIdleNow() int64 {
	return int64(l.rateIdle) + int64(l.rateGranted) - int64(l.rateSeen)
}

func (l *loan) set(keep, rateKeep uint64) {
	if l.keep != keep || l.rateKeep != rateKeep {
		l.keep, l.rateKeep = keep, rateKeep
		l.dirty = true
	}
}

// pools are the rights of all rooms of a coordinator.
type pools struct {
	cfg     *Config
	centres *centres
	byID    map[room.ID]*pool
	list    []*pool // by ID

	churn map[room.ID]estimate.Churn // that a predecessor learned, for rooms that are opened later
}

// open returns the pool of a room, which it makes if need be.
func (ps *pools) open(id room.ID) *pool {
	p := ps.byID[id]
	if p == nil {
		p = &pool{RoomConfig: ledger.RoomConfig{ID: id}, cfg: ps.cfg, centres: ps.centres, loans: map[*centre]*loan{}, gone: true, stale: true}
		p.flow.Recall(ps.churn[id])
		ps.byID[id] = p
		ps.list = append(ps.list, p)
		slices.SortFunc(ps.list, func(x, y *pool) int { return cmp.Compare(x.ID, y.ID) })
	}
	return p
}

// restale makes the next Grants look at every room again.
func (ps *pools) restale() {
	for _, p := range ps.list {
		p.stale = true
	}
}

// loans returns what a data centre holds, by room.
func (ps *pools) loans(d *centre) iter.Seq2[*pool, *loan] {
	return func(yield func(*pool, *loan) bool) {
		for _, p := range ps.list {
			if l := p.loans[d]; l != nil && !yield(p, l) {
				return
			}
		}
	}
}

// drop forgets a data centre of which nothing was ever heard.
func (ps *pools) drop(d *centre) {
	for _, p := range ps.list {
		delete(p.loans, d)
	}
}

// out reports whether anything of any room is out in a data centre.
func (ps *pools) out(d *centre) bool {
	for _, l := range ps.loans(d) {
		if l.out() {
			return true
		}
	}
	return false
}

// over reports whether a data centre was silent for so long that nothing of it can be valid.
func (ps *pools) over(now fleettime.Mono, d *centre) bool {
	return len(ps.list) > 0 && !slices.ContainsFunc(ps.list, func(p *pool) bool { return now.Sub(d.recv) <= p.reclaimAfter() })
}

// pool is the rights of one room in a coordinator's books, and who told what of it.
//
// Invariant: what data centres hold and what is free sum to no more than the limit, as soon
// as a lowered limit has drained. While the books of any data centre are missing, only what
// came back in this term is free.
type pool struct {
	ledger.RoomConfig
	cfg     *Config
	centres *centres
	loans   map[*centre]*loan
	gone    bool

	notBefore fleettime.Mono // nothing is reclaimed earlier: tickets of a longer session_duration may be valid

	spare, rateSpare int64 // while not complete: what came back in this term and was not lent again
	debt, rateDebt   int64 // by how much more than the limits was lent when the books were complete last; 0 or less

	admitted, joined, entered uint64
	outcomes                  estimate.OutcomeCounter
	flow                      share.Flow
	gain                      share.Gain
	view                      *wire.View
	viewed                    fleettime.Mono
	partial                   bool // the view lacks data centres that a new leader has yet to hear
	stale                     bool
	relays                    relays
	passes                    share.Passes // of the newest release that is ours to lend
}

// set takes the settings of the room.
func (p *pool) set(now fleettime.Mono, r ledger.RoomConfig) {
	if old := p.Session; r.Session < old {
		// A data centre that has not heard of it goes on stamping for so long.
		life := time.Duration(wire.Life(old)) * time.Second
		sum := time.Minute + p.cfg.Params.RegionalLease + p.cfg.Params.EdgeLease + life
		p.notBefore = max(p.notBefore, now.Add(fleettime.Stretch(fleettime.Stretch(sum))))
	}
	p.RoomConfig, p.gone, p.stale = r, false, true
	p.begin()
}

// loan returns what a data centre holds of the room, which it opens if need be.
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

// awaits reports whether it is not known what a data centre holds of the room.
func (p *pool) awaits(d *centre) bool {
	if p.centres.unproven(d) {
		return true
	}
	if !p.centres.unknown(d) {
		return false
	}
	l := p.loans[d]
	return l == nil || !l.reclaimed
}

// complete reports whether the books of every data centre are known for the
// room: then what is free can be reckoned from the limit.
func (p *pool) complete() bool {
	return !p.centres.outdated() && !slices.ContainsFunc(p.centres.all, p.awaits)
}

// free returns the rights of T and of R that nobody holds. Negative: the limit
// was lowered and has yet to drain. complete is what p.complete returns.
func (p *pool) free() (free, rate int64, complete bool) {
	if !p.complete() {
		if p.centres.outdated() {
			return p.debt, p.rateDebt, false
		}
		return p.spare, p.rateSpare, false
	}
	free, rate = int64(p.Total), int64(p.Rate)
	if p.gone {
		free, rate = 0, 0
	}
	for _, d := range p.centres.all {
		if l := p.loans[d]; l != nil {
			free -= l.held()
			rate -= l.rateHeld()
		}
	}
	return free, rate, true
}

// confirms reports whether the limits are kept with the books as they are. Books
// that were only reconstructed hold no less than is out there, so then nothing is
// lent twice. Those of a copy never are: whoever leads next does not wait for it.
func (p *pool) confirms(d *centre, l *loan) bool {
	if !l.reconstructed {
		return true
	}
	if p.centres.copyOf(d) != nil {
		return false
	}
	free, rate, complete := p.free()
	return complete && free >= 0 && rate >= 0
}

// reclaimAfter returns how long after its last word a data centre cannot hold
// a valid session of the room (docs/GUARANTEES.md): its leader's lease, its own,
// its edges', and the life of a ticket, all on clocks that drift.
func (p *pool) reclaimAfter() time.Duration {
	life := max(time.Duration(wire.Life(p.Session))*time.Second, wire.RateWindow)
	sum := ledger.OwnerLease + p.cfg.Params.RegionalLease + p.cfg.Params.EdgeLease + life
	return fleettime.Stretch(fleettime.Stretch(sum)) + 4*time.Second + 4*fleettime.Guard + 4*fleettime.MaxError
}

// reclaim takes back what a data centre holds that is silent: under partition_policy cap
// when it must have stopped, under serve when it has been lost for lost_after while
// others were heard.
func (p *pool) reclaim(now fleettime.Mono, d *centre) {
	silent, wait := now.Sub(d.recv), p.LostWait
	if p.Cap || d.forced { // of that one an operator says that it goes on renewing nothing
		wait = p.reclaimAfter()
	} else if wait == 0 || !p.centres.othersHeard(now, d) {
		return
	}
	l := p.loan(d)
	if silent <= wait || l.reclaimed && l.granted == 0 && l.rateGranted == 0 || (p.Cap && p.notBefore != 0 && now < p.notBefore) {
		return
	}
	p.void(l, !p.Cap)
}

// void closes the books of a loan; what comes of older ones does not count. inUse
// says that the data centre may be alive all the same.
func (p *pool) void(l *loan, inUse bool) {
	l.reclaimed = true
	if inUse {
		l.unreturned += max(0, l.held())
	}
	l.gen = max(l.gen, p.cfg.Term.N<<16) + 1 // above every one of an earlier term
	l.granted, l.returned, l.rateGranted, l.rateReturned = 0, 0, 0, 0
	l.idle, l.idleSeen, l.rateIdle, l.rateSeen = 0, 0, 0, 0
	l.want, l.heldPeople, l.heldJoined, l.movers, l.active = 0, 0, nil, 0, 0
	l.waiting, l.pending = nil, nil
	l.dirty = true
	p.stale = true
}

// adopt begins with what a data centre says that promises to follow us.
func (p *pool) adopt(d *centre, r *wire.RoomReport) {
	l := p.loan(d)
	if !l.reclaimed {
		l.gen = r.Gen
	} else if d.void && r.Gen < l.gen { // it is alive, and was given up
		l.unreturned = max(l.unreturned, int64(r.Granted)-int64(r.Returned))
	}
}

// pass owes a data centre an end.
func (p *pool) pass(d *centre, e wire.End) {
	l := p.loan(d)
	l.ends.Add(e, 0)
	l.dirty = true
}

// take brings what a data centre says of a room into the books.
func (p *pool) take(d *centre, r *wire.RoomReport, asOf fleettime.Time) {
	p.stale = true
	l := p.loan(d)
	if !d.blank && r.Gen == l.gen {
		if !d.adopted {
			// Its books are the truth: whatever a predecessor lent is in them.
			l.granted, l.rateGranted = max(l.granted, r.Granted), max(l.rateGranted, r.RateGranted)
			l.returned, l.rateReturned = max(l.returned, r.Returned), max(l.rateReturned, r.RateReturned)
		}
		back, rateBack := int64(ledger.Growth(&l.returned, r.Returned)), int64(ledger.Growth(&l.rateReturned, r.RateReturned))
		if l.reconstructed = r.Reconstructed; !l.reconstructed {
			p.spare += back
			p.rateSpare += rateBack
		} // else: what comes back may never have been lent
		l.idle, l.idleSeen = r.Idle, r.Granted
		l.rateIdle, l.rateSeen = r.RateIdle, r.RateGranted
	}
	l.want, l.heldPeople, l.heldJoined, l.active = r.Want, r.HeldPeople, r.HeldJoined, r.Active
	l.waiting, l.arrivals, l.pending = r.Waiting, r.Arrivals, ledger.PendingOf(r, asOf)
	if !d.blank && !d.recovering { // else edges are missing that have not told anything yet
		l.whole = crowd{at: d.recv, active: r.Active, waiting: l.waiting, pending: l.pending}
	}
	l.movers, l.excess = r.Movers, r.Excess
	p.passes.Take(&l.passes, r)
	if l.active <= uint64(max(0, l.held())) {
		l.unreturned = 0
	} else if l.unreturned > 0 {
		l.unreturned = int64(l.active) - l.held()
	}
	for _, e := range r.Ends {
		p.relays.take(d, e, p.centres.all, p.pass)
	}
	if !l.told { // what was before this term says nothing of how fast people enter now
		l.told = true
		l.admitted, l.joined, l.entered, l.outcomes = r.Admitted, r.Joined, r.Entered, r.Outcomes
	}
	p.admitted += ledger.Growth(&l.admitted, r.Admitted)
	p.joined += ledger.Growth(&l.joined, r.Joined)
	p.entered += ledger.Growth(&l.entered, r.Entered)
	p.outcomes.Gain(l.outcomes, r.Outcomes)
	l.outcomes = r.Outcomes
}
