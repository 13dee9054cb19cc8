package admission

import (
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
)

// departures knows who waits and said a moment ago that the page was going away: they
// are counted no more, although their tickets tell in which window they were.
//
// Invariant, at one edge: a ticket that came back is counted once, in the window
// of its Seen, or not at all: where its departure is known here, or that window is over.
//
// A departure is needed until that window is over, a minute at most. Bounded: who does
// not fit stays counted for as long.
type departures struct {
	limit int
	byID  map[uint64]departure // by ticket id
	order []departed           // as they came; some may be back
}

type departure struct {
	seen   uint32 // the window that the ticket was taken out of
	answer uint8  // as the ticket had it then, and
	place  fleettime.Time
}

// older reports whether t was given to its visitor after the one that was taken
// out.
func (d departure) older(t *ticket.Ticket) bool {
	return d.seen < t.Seen || (d.seen == t.Seen && d.answer != t.Answer)
}

type departed struct {
	id   uint64
	seen uint32
}

// put remembers that a ticket's page went away; false where there is no room.
func (a *departures) put(id uint64, d departure, w *waitBook) bool {
	over := 0
	for over < len(a.order) && !w.live(a.order[over].seen) {
		o := a.order[over]
		if known, ok := a.byID[o.id]; ok && !w.live(known.seen) {
			delete(a.byID, o.id)
		}
		over++
	}
	if over > 0 { // windows end together, so this moves the rest rarely
		a.order = a.order[:copy(a.order, a.order[over:])]
	}
	if len(a.order) >= a.limit {
		return false
	}
	if a.byID == nil {
		a.byID = map[uint64]departure{}
	}
	a.byID[id] = d
	a.order = append(a.order, departed{id, d.seen})
	return true
}

// take forgets that the page of a ticket went away, and returns what was known of it.
func (a *departures) take(id uint64) (d departure, ok bool) {
	if d, ok = a.byID[id]; ok {
		delete(a.byID, id)
	}
	return d, ok
}
