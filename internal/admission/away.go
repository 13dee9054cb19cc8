package admission

import (
	"vestibule/internal/fleet"
	"vestibule/internal/room"
	"vestibule/internal/ticket"
)

// aways knows who waits and said a moment ago that the page was going away: they
// are counted no more, although their tickets tell in which window they were.
//
// Invariant, at one edge: a ticket that came back is counted once, in the window
// of its Seen, or not at all: where it is marked here, or that window is over.
//
// A mark is needed until that window is over, a minute at most. Bounded: who does
// not fit stays counted for as long.
type aways struct {
	limit int
	marks map[uint64]awayMark // by ticket id
	order []awayEntry         // as they came; some may be back
}

type awayMark struct {
	seen   uint32 // the window that the ticket was taken out of
	answer uint8  // as the ticket had it then
}

// older reports whether t was given to its visitor after the one that was taken
// out.
func (m awayMark) older(t *ticket.Ticket) bool {
	return m.seen < t.Seen || (m.seen == t.Seen && m.answer != t.Answer)
}

type awayEntry struct {
	id   uint64
	seen uint32
}

// put marks a ticket; false where there is no room.
func (a *aways) put(id uint64, m awayMark, w *waitBook) bool {
	over := 0
	for over < len(a.order) && !w.live(a.order[over].seen) {
		o := a.order[over]
		if known, ok := a.marks[o.id]; ok && !w.live(known.seen) {
			delete(a.marks, o.id)
		}
		over++
	}
	if over > 0 { // windows end together, so this moves the rest rarely
		a.order = a.order[:copy(a.order, a.order[over:])]
	}
	if len(a.order) >= a.limit {
		return false
	}
	if a.marks == nil {
		a.marks = map[uint64]awayMark{}
	}
	a.marks[id] = m
	a.order = append(a.order, awayEntry{id, m.seen})
	return true
}

// uncount takes a ticket that came back out of the book, if it is in there.
func (r *roomState) uncount(t *ticket.Ticket) {
	if !r.recount(t) {
		r.wait.add(t.Joined, t.Seen, -1)
	}
	r.counted.Drop(t.ID)
}

// recount forgets that the page of a ticket went away. It reports whether the
// ticket is counted nowhere. Where it was counted anew before its page was said to
// go away (the page that went was an older one, and told late), that is undone.
func (r *roomState) recount(t *ticket.Ticket) (nowhere bool) {
	m, ok := r.away.marks[t.ID]
	if !ok {
		return false
	}
	delete(r.away.marks, t.ID)
	if !r.wait.live(m.seen) {
		return false
	}
	if !m.older(t) {
		return true
	}
	r.wait.add(t.Joined, m.seen, 1)
	return false
}

// Away takes a visitor whose page went away out of the count of those who wait.
// The place is kept as if the visitor had fallen silent: every edge can tell that
// from the ticket, and another page of the same visitor may be slow to ask. The
// next question counts the visitor again.
//
// answer is what the page was told of ticket.Ticket.Answer. Where the ticket says
// otherwise, another page was answered since: a browser says that a page goes away
// once the next one is there, so nobody has gone who reloads. Away reports whether
// the visitor has; saying it again changes nothing.
func (e *Engine) Away(now fleet.Mono, id room.ID, t ticket.Ticket, answer uint8) bool {
	if t.Answer != answer || !e.Waits(now, id, t) {
		return false
	}
	r := e.rooms[id]
	ft, _ := e.time(now)
	r.wait.advance(ft)
	if t.Flags&ticket.Returned == 0 {
		r.newest(&t)
	}
	if t.Flags&ticket.Returned == 0 || !r.wait.live(t.Seen) {
		return false // counted nowhere
	}
	if m, ok := r.away.marks[t.ID]; ok && r.wait.live(m.seen) {
		if !m.older(&t) {
			return false
		}
		r.wait.add(t.Joined, m.seen, 1) // as in recount
		delete(r.away.marks, t.ID)
	}
	if !r.away.put(t.ID, awayMark{seen: t.Seen, answer: t.Answer}, &r.wait) {
		return false
	}
	r.wait.add(t.Joined, t.Seen, -1)
	r.dirty = true
	return true
}

// Abandon ends the holding of v, if the engine still holds it, where its visitor
// did not wait for the answer. The visitor has the ticket that was brought, still,
// and is counted as it says. It reports false where Release has decided already.
func (e *Engine) Abandon(now fleet.Mono, v *Visit) bool {
	r := e.rooms[v.Room]
	if !r.letGo(v) {
		return false
	}
	was, t := &v.Brought, &v.Ticket
	v.Decision = Decision{Verdict: Queue, Reason: GaveUp, Ticket: *was}
	if was.ID != t.ID || was.Flags&ticket.Returned == 0 || t.Flags&ticket.Returned == 0 {
		return true // counted nowhere, or for the first time: see newest
	}
	if k := r.counted.Get(t.ID); k.seen != 0 && k != (showing{seen: t.Seen, answer: t.Answer}) {
		return true // another request of this ticket was counted since
	}
	ft, _ := e.time(now)
	r.wait.advance(ft)
	r.wait.add(t.Joined, t.Seen, -1)
	r.wait.add(t.Joined, was.Seen, 1)
	r.counted.Put(t.ID, showing{seen: was.Seen, answer: was.Answer})
	return true
}
