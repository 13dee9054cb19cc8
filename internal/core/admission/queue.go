package admission

import (
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/ticket/reuse"
	"vestibule/internal/core/wire"
)

// queue counts the people who wait in a room at this edge, and who comes.
type queue struct {
	wait     waitBook
	answers  uint8                 // the newest ticket.Answer
	counted  reuse.Recent[showing] // as which version a ticket that waits was counted last
	away     departures
	returns  pendingReturns
	arrivals [wire.MaxMinutes]wire.Minute
	joined   uint64
	since    uint32 // Unix second: whoever was counted last before it is in no count, here or elsewhere; 0 for unknown
	changed  bool   // something is to be reported
}

func newQueue(limit int) queue {
	return queue{counted: reuse.NewRecent[showing](min(limit, maxShowings)), away: departures{limit: limit}}
}

// showing is the version of a ticket that was counted last, and under which place.
type showing struct {
	seen   uint32
	answer uint8
	place  fleettime.Time
}

// shown returns which version of a ticket t is.
func shown(t *ticket.Ticket) showing { return showing{t.Seen, t.Answer, t.Place()} }

// under returns the place under which t is counted that is to have a place from now on: t may be
// an older version of the same second, or one whose count could not go with it where it was shown.
func (k showing) under(t *ticket.Ticket, place fleettime.Time) fleettime.Time {
	if k.seen == t.Seen && (k.answer == t.Answer || k.place == place) {
		return k.place
	}
	return t.Place()
}

// maxShowings is of how many tickets per room that is remembered: of those who asked
// within the last seconds, where many wait. A version that is shown again after so
// many others have asked is counted again; as everybody asks every 20 s at least, each
// such ticket adds less than four in maxShowings to the number of those who wait.
const maxShowings = 1 << 14

// lapsed reports whether the place of t is lost: its visitor was not there for
// longer than the grace. A place is counted for as long as its visitor is there,
// so the grace begins when it is counted no more.
func lapsed(ft fleettime.Time, t *ticket.Ticket, grace time.Duration) bool {
	return ft.Second()-int64(t.Seen) > windowsKept*windowLen+int64(grace/time.Second)
}

// enqueued notes that somebody joined the line. Only newcomers
// are expected to return: an old ticket can be shown any number of times.
func (q *queue) enqueued(ft fleettime.Time, joined fleettime.Time, newcomer bool) {
	if newcomer {
		q.returns.issued(ft, joined)
	}
	q.changed = true
}

// advance moves the counts to now.
func (q *queue) advance(ft fleettime.Time) {
	if q.wait.advance(ft) {
		q.changed = true
	}
	if q.returns.advance(ft) {
		q.changed = true
	}
}

// checkIn counts a ticket that waits: among those who wait, in the window of this
// poll, and among the distinct visitors of this minute.
//
// Nobody is counted at the first touch: a new ticket is counted when it comes back,
// and so is one that was away for so long that nobody counts it any more. The first
// question of such a ticket stamps it anew, and the next one counts it. So an old
// version of a ticket, however often and wherever it is shown, adds nothing. Within
// the live windows a version is counted once at each edge. It reports whether somebody
// was counted who was not counted here before; nobody is whose ticket is Uncounted.
//
// From then on the ticket has the given place. What was counted under another one goes
// with it: it is taken back under the place that the ticket carried, so that somebody
// whose place changes is one person all the while, whichever versions of the ticket are
// shown.
func (q *queue) checkIn(ft fleettime.Time, t *ticket.Ticket, place fleettime.Time) (anew bool) {
	seen := uint32(ft.Second())
	defer moveTo(t, place)
	if q.wait.advance(ft) {
		q.changed = true
	}
	if q.wait.over(t.Seen) {
		t.Flags &^= ticket.Returned
		t.Seen = seen
		if t.Answer != 0 { // it was counted before: who joined is counted once
			t.Answer = q.nextAnswer()
		}
		return false
	}
	q.newest(t)
	k := q.counted.Get(t.ID)
	if k.seen == 0 || !q.wait.live(k.seen) {
		if t.Uncounted {
			return false
		}
		anew = true
	}
	before := *t
	t.Answer = q.nextAnswer()
	defer func() { q.counted.Put(t.ID, showing{t.Seen, t.Answer, place}) }()
	if before.Flags&ticket.Returned == 0 { // counted nowhere: nothing to take back
		t.Flags |= ticket.Returned
		t.Seen = seen
		if before.Answer == 0 {
			q.joined++
			q.returns.returned(ft, t.Joined)
		}
		q.wait.add(place, seen, 1)
		q.arrive(ft)
		return anew
	}
	// A ticket seen by an edge whose clock is ahead is counted there, in a window
	// that has not begun here.
	if q.recount(&before) || q.forgotten(&before, k) {
		q.wait.add(place, seen, 1)
		q.changed = true
	} else if was := k.under(&before, place); windowOf(int64(t.Seen)) < windowOf(int64(seen)) || was != place {
		q.wait.add(was, t.Seen, -1)
		q.wait.add(place, max(t.Seen, seen), 1)
		q.changed = true
	}
	if int64(t.Seen)/60 < int64(seen)/60 {
		q.arrive(ft)
	}
	t.Seen = max(t.Seen, seen)
	return anew
}

func (q *queue) nextAnswer() uint8 {
	if q.answers++; q.answers == 0 {
		q.answers = 1 // a new ticket has none
	}
	return q.answers
}

// newest makes of a version of a ticket the newest one that was counted here: that
// the visitor has not heard of it (the answer is on its way, or lost), or shows an old
// one, does not make it another visitor.
func (q *queue) newest(t *ticket.Ticket) {
	if k := q.counted.Get(t.ID); k.seen != 0 && q.wait.live(k.seen) && (t.Flags&ticket.Returned == 0 || k.seen > t.Seen) {
		t.Flags |= ticket.Returned
		t.Seen, t.Answer = k.seen, k.answer
		moveTo(t, k.place)
	}
}

// moveTo gives a ticket the place under which it is counted. What was told of another one
// binds nobody.
func moveTo(t *ticket.Ticket, place fleettime.Time) {
	if t.Place() != place {
		t.SetPlace(place)
		untell(t)
	}
}

// untell has a ticket remember nothing of what was told of another place or another order.
func untell(t *ticket.Ticket) {
	t.Wait, t.High, t.Ahead, t.Low, t.Longer, t.Forecast = 0, 0, 0, 0, 0, 0
}

// arrive counts a distinct visitor of the minute of ft.
func (q *queue) arrive(ft fleettime.Time) {
	m := ft.Minute()
	slot := &q.arrivals[int64(m)/60_000%wire.MaxMinutes]
	if slot.Start != m {
		*slot = wire.Minute{Start: m}
	}
	slot.N++
	q.changed = true
}

// enters takes somebody out of the line who is let in, and counts the visitor if
// nobody has.
func (q *queue) enters(ft fleettime.Time, t *ticket.Ticket) {
	if t.Flags&ticket.Returned != 0 {
		q.uncount(t)
	} else {
		q.arrive(ft)
	}
}

// uncount takes a ticket that came back out of the book, if it is in there.
func (q *queue) uncount(t *ticket.Ticket) {
	if k := q.counted.Get(t.ID); !q.recount(t) && !q.forgotten(t, k) {
		q.wait.add(k.under(t, t.Place()), t.Seen, -1)
	}
	q.counted.Drop(t.ID)
}

// forgotten reports whether the edge that counted t last has ended, as have all others that might have: the fleet
// was started again. k is how t was counted here.
func (q *queue) forgotten(t *ticket.Ticket, k showing) bool {
	return k.seen == 0 && t.Seen < q.since
}

// recount forgets that the page of a ticket went away. It reports whether the
// ticket is counted nowhere. Where it was counted anew before its page was said to
// go away (the page that went was an older one, and told late), that is undone.
func (q *queue) recount(t *ticket.Ticket) (nowhere bool) {
	d, ok := q.away.take(t.ID)
	if !ok || !q.wait.live(d.seen) {
		return false
	}
	if !d.older(t) {
		return true
	}
	q.wait.add(d.place, d.seen, 1)
	return false
}

// depart takes somebody whose page went away out of the count; false where nobody is
// counted.
func (q *queue) depart(ft fleettime.Time, t *ticket.Ticket) bool {
	q.wait.advance(ft)
	if t.Flags&ticket.Returned == 0 {
		q.newest(t)
	}
	if t.Flags&ticket.Returned == 0 || !q.wait.live(t.Seen) || q.forgotten(t, q.counted.Get(t.ID)) {
		return false // counted nowhere
	}
	if d, ok := q.away.byID[t.ID]; ok && q.wait.live(d.seen) {
		if !d.older(t) {
			return false
		}
		q.wait.add(d.place, d.seen, 1) // as in recount
		q.away.take(t.ID)
	}
	d := departure(shown(t))
	d.place = q.counted.Get(t.ID).under(t, d.place)
	if !q.away.put(t.ID, d, &q.wait) {
		return false
	}
	q.wait.add(d.place, d.seen, -1)
	q.changed = true
	return true
}

// moved reports whether a visitor who brought was is counted as the ticket t of the
// answer says.
func (q *queue) moved(was, t *ticket.Ticket) bool {
	if was.ID != t.ID || was.Flags&ticket.Returned == 0 || t.Flags&ticket.Returned == 0 {
		return false // counted nowhere, or for the first time: see newest
	}
	k := q.counted.Get(t.ID)
	return k.seen == 0 || k == shown(t) // else another request of this ticket was counted since
}

// undo counts a visitor who did not take the answer with t as the ticket was says that
// was brought; see moved.
func (q *queue) undo(ft fleettime.Time, was, t *ticket.Ticket) {
	q.wait.advance(ft)
	q.wait.add(t.Place(), t.Seen, -1)
	q.wait.add(was.Place(), was.Seen, 1)
	q.counted.Put(t.ID, shown(was))
}

// tell writes into a report who waits, and who came.
func (q *queue) tell(ft fleettime.Time, out *wire.RoomReport) {
	out.Joined = q.joined
	out.Waiting = q.wait.histogram()
	out.Pending = q.returns.expected(ft)
	for _, m := range q.arrivals {
		if m.N > 0 {
			out.Arrivals = append(out.Arrivals, m)
		}
	}
}
