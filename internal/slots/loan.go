package slots

import (
	"cmp"
	"slices"
	"time"

	"vestibule/internal/fleet"
	"vestibule/internal/line"
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
