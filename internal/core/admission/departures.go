package admission

import (
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
)

// departures remembers waiting visitors with a page that went away in the last minute: they are not counted any more,
// although their tickets name the window in which they were.
//
// Invariant, at one edge: a ticket that came back is counted once, in the window of its Seen, or not at all: if its
// departure is known here, or that window is over.
//
// A departure is needed until that window is over, a minute at most. The memory is bounded: a visitor without space
// stays counted for that time.
type departures struct {
	limit int
	byID  map[uint64]departure // by ticket ID
	order []departed           // in order; some may be back
}

type departure struct {
	seen   uint32 // the window that the ticket was removed from
	answer uint8  // the ticket's answer number then
	place  fleettime.Time
}

// older reports whether t was issued after the ticket that was removed.
func (d departure) older(t *ticket.Ticket) bool {
	return d.seen < t.Seen || (d.seen == t.Seen && d.answer != t.Answer)
}

type departed struct {
	id   uint64
	seen uint32
}

// put remembers that a ticket's page went away. It returns false without space.
func (a *departures) put(id uint64, d departure, w *waitBook) bool {
	over := 0
	for over < len(a.order) && !w.live(a.order[over].seen) {
		o := a.order[over]
		if known, ok := a.byID[o.id]; ok && !w.live(known.seen) {
			delete(a.byID, o.id)
		}
		over++
	}
	if over > 0 { // windows end together, so this rarely moves the rest
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

// remove forgets a departure and returns it.
func (a *departures) remove(id uint64) (d departure, ok bool) {
	if d, ok = a.byID[id]; ok {
		delete(a.byID, id)
	}
	return d, ok
}
