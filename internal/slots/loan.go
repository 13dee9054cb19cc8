package slots

import (
	"cmp"
	"slices"
	"time"

	"vestibule/internal/fleet"
	"vestibule/internal/line"
	"vestibule/internal/mutant"
	"vestibule/internal/room"
	"vestibule/internal/wire"
)

// loan is what one data centre holds of one room, and what it said of it.
type loan struct {
	gen                       uint64
	granted, returned         uint64
	rateGranted, rateReturned uint64
	reclaimed                 bool // voided in this term without the data centre's word
	reconstructed             bool // an upper bound, reckoned by a data centre that does not know

	keep, rateKeep uint64

	passes passLoan

	idle, idleSeen     uint64 // idle rights when it had seen so many granted
	rateIdle, rateSeen uint64
	want, heldPeople   uint64
	heldJoined         []fleet.Time
	movers             uint64
	active             uint64
	excess             uint64 // as its aggregator tells
	unreturned         int64  // held when it was given up, and may be in use there still
	ends               wire.Outbox[wire.End]
	admitted           uint64
	joined, entered    uint64
	pending            line.Histogram
	outcomes           line.Outcomes
	told               bool // the counters above have a beginning
	waiting            line.Histogram
	arrivals           []wire.Minute
	whole              crowd // as told last by an aggregator that had heard all its edges

	changedAt, viewAt uint64
	dirty, viewDirty  bool
}

// crowd is who was in a data centre, and who waited there.
type crowd struct {
	at               fleet.Mono
	active           uint64
	waiting, pending line.Histogram
}

// crowdKept is for how long those count who were told last to wait where nothing is heard now. They
// are asked back elsewhere within half of it, and that edge tells each of them to have come, and to have
// left the window of the last question. So they count until that window drops out of its book.
const crowdKept = time.Minute

// remaining returns who is left of a line of which nothing was heard for so long.
func remaining(h line.Histogram, silence time.Duration) line.Histogram {
	part := 2 * float64(crowdKept-silence) / float64(crowdKept)
	if part >= 1 {
		return h
	}
	if part <= 0 {
		return nil
	}
	h = slices.Clone(h)
	for i := range h {
		h[i].N *= part
	}
	return h
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

// pool is one room in the allocator's books.
type pool struct {
	RoomConfig
	gone bool

	notBefore fleet.Mono // nothing is reclaimed earlier: tickets of a longer session_duration may be valid

	spare, rateSpare int64 // while not complete: what came back in this term and was not lent again
	debt, rateDebt   int64 // by how much more than the limits was lent when the books were complete last; 0 or less

	admitted, joined, entered uint64
	outcomes                  line.OutcomeCounter
	flow                      flow
	gain                      gain
	view                      *wire.View
	viewed                    fleet.Mono
	partial                   bool // the view lacks data centres that a new leader has yet to hear
	stale                     bool
	relays                    map[wire.End]*relay
	passes                    passes // of the newest release that is ours to lend
}

func (a *Allocator) pool(id room.ID) *pool {
	p := a.rooms[id]
	if p == nil {
		p = &pool{RoomConfig: RoomConfig{ID: id}, gone: true, stale: true}
		a.rooms[id] = p
		a.order = append(a.order, p)
		slices.SortFunc(a.order, func(x, y *pool) int { return cmp.Compare(x.ID, y.ID) })
	}
	return p
}

func (a *Allocator) loan(d *centre, id room.ID) *loan {
	l := d.loans[id]
	if l == nil {
		l = &loan{dirty: true, viewDirty: true}
		d.loans[id] = l
		if d.void {
			a.void(a.pool(id), l, false)
		}
	}
	return l
}

// take brings what a data centre says of a room into the books.
func (a *Allocator) take(d *centre, l *loan, r *wire.RoomReport, asOf fleet.Time) {
	p := a.pool(r.Room)
	if !d.blank && r.Gen == l.gen {
		if !d.adopted {
			// Its books are the truth: whatever a predecessor lent is in them.
			l.granted, l.rateGranted = max(l.granted, r.Granted), max(l.rateGranted, r.RateGranted)
			l.returned, l.rateReturned = max(l.returned, r.Returned), max(l.rateReturned, r.RateReturned)
		}
		back, rateBack := int64(growth(&l.returned, r.Returned)), int64(growth(&l.rateReturned, r.RateReturned))
		if l.reconstructed = r.Reconstructed; !l.reconstructed || mutant.On(mutant.ReconstructedUsed) {
			p.spare += back
			p.rateSpare += rateBack
		} // else: what comes back may never have been lent
		l.idle, l.idleSeen = r.Idle, r.Granted
		l.rateIdle, l.rateSeen = r.RateIdle, r.RateGranted
	}
	l.want, l.heldPeople, l.heldJoined, l.active = r.Want, r.HeldPeople, r.HeldJoined, r.Active
	l.waiting, l.arrivals, l.pending = r.Waiting, r.Arrivals, pendingOf(r, asOf)
	if !d.blank && !d.recovering { // else edges are missing that have not told anything yet
		l.whole = crowd{at: d.recv, active: r.Active, waiting: l.waiting, pending: l.pending}
	}
	l.movers, l.excess = r.Movers, r.Excess
	p.passes.take(&l.passes, r)
	if l.active <= uint64(max(0, l.held())) {
		l.unreturned = 0
	} else if l.unreturned > 0 {
		l.unreturned = int64(l.active) - l.held()
	}
	for _, e := range r.Ends {
		a.relay(p, d, e)
	}
	if !l.told { // what was before this term says nothing of how fast people enter now
		l.told = true
		l.admitted, l.joined, l.entered, l.outcomes = r.Admitted, r.Joined, r.Entered, r.Outcomes
	}
	p.admitted += growth(&l.admitted, r.Admitted)
	p.joined += growth(&l.joined, r.Joined)
	p.entered += growth(&l.entered, r.Entered)
	p.outcomes.Gain(l.outcomes, r.Outcomes)
	l.outcomes = r.Outcomes
}

// share returns how many visitors the data centre had in the minute before the
// last full one: history that cannot change any more.
func (l *loan) share(ft fleet.Time) float64 {
	minute := ft.Minute().Add(-2 * time.Minute)
	for _, m := range l.arrivals {
		if m.Start == minute {
			return float64(m.N)
		}
	}
	return 0
}

// floorShares gives everybody at least one per cent of the whole.
func floorShares(shares []float64) {
	sum := 0.0
	for _, s := range shares {
		sum += s
	}
	for i := range shares {
		shares[i] = max(shares[i], sum/100)
	}
}
