package admission

import (
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/ticket/reuse"
	"vestibule/internal/core/wire"
)

// queue counts the waiting visitors of a room at this edge, and the arrivals.
type queue struct {
	wait     waitBook
	recent   waitBook              // those of them that asked in the last ten seconds
	answers  uint8                 // the newest ticket.Answer
	counted  reuse.Recent[showing] // the version of each waiting ticket that was last counted
	away     departures
	returns  pendingReturns
	arrivals arrivals
	joined   uint64
	since    uint32 // Unix second: visitors last counted before it are in no count, here or elsewhere; 0 for unknown
	changed  bool   // changes to report
}

func newQueue(limit int) queue {
	return queue{
		recent: waitBook{short: true}, counted: reuse.NewRecent[showing](min(limit, maxShowings)),
		away: departures{limit: limit},
	}
}

// add changes the count of a ticket's place by n (1 or -1), as of its last poll at second seen.
func (q *queue) add(place fleettime.Time, seen uint32, n int32) {
	q.wait.add(place, seen, n)
	q.recent.add(place, seen, n)
}

// overdue returns the number of waiting visitors with a place before called that have not asked in the last ten
// seconds. It is negative if they are counted at other edges.
func (q *queue) overdue(called fleettime.Time) int64 {
	return q.wait.before(called) - q.recent.before(called)
}

// showing is the version of a ticket that was last counted, and its place.
type showing struct {
	seen   uint32
	answer uint8
	place  fleettime.Time
}

// shown returns the version of ticket t.
func shown(t *ticket.Ticket) showing { return showing{t.Seen, t.Answer, t.Place()} }

// under returns the place under which t is counted before it moves to place. t may be an older version of the same
// second, or one whose count could not move at the edge that saw it.
func (k showing) under(t *ticket.Ticket, place fleettime.Time) fleettime.Time {
	if k.seen == t.Seen && (k.answer == t.Answer || k.place == place) {
		return k.place
	}
	return t.Place()
}

// maxShowings is the number of remembered versions per room, enough for the requests of the last seconds in a large
// queue. A version that is presented again after that many others is counted again; as everybody asks at least
// every 20 s, each such ticket adds less than four in maxShowings to the count.
const maxShowings = 1 << 14

// absent returns the seconds since the visitor of t is not counted any more.
func absent(ft fleettime.Time, t *ticket.Ticket) int64 {
	return ft.Second() - int64(t.Seen) - windowsKept*windowLen
}

// Lapsed reports whether the place of t is lost at fleet time ft: its visitor was absent longer than the grace period,
// which begins when the visitor is not counted any more.
func Lapsed(ft fleettime.Time, t *ticket.Ticket, grace time.Duration) bool {
	return absent(ft, t) > int64(grace/time.Second)
}

// enqueued records that a visitor joined the queue. Only newcomers are expected to return: an old ticket can be
// presented any number of times.
func (q *queue) enqueued(ft fleettime.Time, joined fleettime.Time, newcomer bool) {
	if newcomer {
		q.returns.issued(ft, joined)
	}
	q.changed = true
}

// advance moves the counts to now.
func (q *queue) advance(ft fleettime.Time) {
	if q.advanceBooks(ft) {
		q.changed = true
	}
	if q.returns.advance(ft) {
		q.changed = true
	}
}

// advanceBooks moves the counts of waiting visitors to now. It reports whether visitors were dropped.
func (q *queue) advanceBooks(ft fleettime.Time) (dropped bool) {
	lately := q.recent.advance(ft) // the overdue ones change at all edges at once: see overdue
	return q.wait.advance(ft) || lately
}

// checkIn counts a waiting ticket: among the waiting visitors, in the window of this poll, and among the distinct
// visitors of this minute.
//
// The first request does not count: a new ticket is counted when it comes back, and so is one that was absent so
// long that it is not counted any more. The first request of such a ticket stamps it anew, and the next one counts
// it. So presenting an old version of a ticket, however often and at any edge, adds nothing. Within the live
// windows each edge counts a version once. checkIn reports whether it counted a visitor that was not counted here
// before; a ticket marked Uncounted never is.
//
// From then on the ticket has the given place. The count moves with it: it is removed under the place that the
// ticket carried, so that a visitor with a changed place stays one visitor, whichever versions of the ticket are
// presented.
func (q *queue) checkIn(ft fleettime.Time, t *ticket.Ticket, place fleettime.Time) (anew bool) {
	seen := uint32(ft.Second())
	defer moveTo(t, place)
	if q.advanceBooks(ft) {
		q.changed = true
	}
	if q.wait.over(t.Seen) {
		t.Flags &^= ticket.Returned
		t.Seen = seen
		if t.Answer != 0 { // counted before: a join is counted once
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
	if before.Flags&ticket.Returned == 0 { // not counted: nothing to remove
		t.Flags |= ticket.Returned
		t.Seen = seen
		if before.Answer == 0 {
			q.joined++
			q.returns.returned(ft, t.Joined)
		}
		q.add(place, seen, 1)
		q.arrive(ft)
		return anew
	}
	// An edge with a faster clock counts the ticket in a window that has not begun here.
	if q.cancelDeparture(&before) || q.forgotten(&before, k) {
		q.add(place, seen, 1)
		q.changed = true
	} else {
		was, again := k.under(&before, place), max(t.Seen, seen)
		q.recent.move(was, t.Seen, place, again)
		q.changed = q.wait.move(was, t.Seen, place, again) || q.changed
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

// newest replaces a version of a ticket by the newest version that was counted here: a lost response, one in
// flight, or an old version does not make another visitor.
func (q *queue) newest(t *ticket.Ticket) {
	if k := q.counted.Get(t.ID); k.seen != 0 && q.wait.live(k.seen) && (t.Flags&ticket.Returned == 0 || k.seen > t.Seen) {
		t.Flags |= ticket.Returned
		t.Seen, t.Answer = k.seen, k.answer
		moveTo(t, k.place)
	}
}

// moveTo sets the place under which a ticket is counted. The waits shown for another place are dropped.
func moveTo(t *ticket.Ticket, place fleettime.Time) {
	if t.Place() != place {
		t.SetPlace(place)
		clearShown(t)
	}
}

// clearShown removes from a ticket the waits shown for another place or order.
func clearShown(t *ticket.Ticket) {
	t.Wait, t.High, t.Ahead, t.Low, t.Longer, t.Forecast = 0, 0, 0, 0, 0, 0
}

// arrivals are the distinct visitors of the last minutes, a ring.
type arrivals [wire.MaxMinutes]wire.Minute

// add counts a distinct visitor of the minute of ft.
func (a *arrivals) add(ft fleettime.Time) {
	m := ft.Minute()
	slot := &a[int64(m)/60_000%wire.MaxMinutes]
	if slot.Start != m {
		*slot = wire.Minute{Start: m}
	}
	slot.N++
}

// arrive counts a distinct visitor of the minute of ft.
func (q *queue) arrive(ft fleettime.Time) {
	q.arrivals.add(ft)
	q.changed = true
}

// enters removes an admitted visitor from the queue, and counts it if it was never counted.
func (q *queue) enters(ft fleettime.Time, t *ticket.Ticket) {
	if t.Flags&ticket.Returned != 0 {
		q.uncount(t)
	} else {
		q.arrive(ft)
	}
}

// uncount removes a returned ticket from the book.
func (q *queue) uncount(t *ticket.Ticket) {
	if k := q.counted.Get(t.ID); !q.cancelDeparture(t) && !q.forgotten(t, k) {
		q.add(k.under(t, t.Place()), t.Seen, -1)
	}
	q.counted.Drop(t.ID)
}

// forgotten reports whether the edge that last counted t has ended, with all others that might have: the whole
// fleet was restarted. k is the version counted here.
func (q *queue) forgotten(t *ticket.Ticket, k showing) bool {
	return k.seen == 0 && t.Seen < q.since
}

// cancelDeparture forgets the departure of a ticket. It reports whether the ticket is not counted anywhere. If the
// ticket was counted anew before its departure arrived (of an older page, and late), that is undone.
func (q *queue) cancelDeparture(t *ticket.Ticket) (nowhere bool) {
	d, ok := q.away.remove(t.ID)
	if !ok || !q.wait.live(d.seen) {
		return false
	}
	if !d.older(t) {
		return true
	}
	q.add(d.place, d.seen, 1)
	return false
}

// depart removes a visitor from the count after its page went away. It returns false if the visitor is not counted.
func (q *queue) depart(ft fleettime.Time, t *ticket.Ticket) bool {
	q.advanceBooks(ft)
	if t.Flags&ticket.Returned == 0 {
		q.newest(t)
	}
	if t.Flags&ticket.Returned == 0 || !q.wait.live(t.Seen) || q.forgotten(t, q.counted.Get(t.ID)) {
		return false // not counted
	}
	if d, ok := q.away.byID[t.ID]; ok && q.wait.live(d.seen) {
		if !d.older(t) {
			return false
		}
		q.add(d.place, d.seen, 1)
		q.away.remove(t.ID)
	}
	d := departure(shown(t))
	d.place = q.counted.Get(t.ID).under(t, d.place)
	if !q.away.put(t.ID, d, &q.wait) {
		return false
	}
	q.add(d.place, d.seen, -1)
	q.changed = true
	return true
}

// moved reports whether a visitor that brought was is counted as ticket t of the response says.
func (q *queue) moved(was, t *ticket.Ticket) bool {
	if was.ID != t.ID || was.Flags&ticket.Returned == 0 || t.Flags&ticket.Returned == 0 {
		return false // not counted, or for the first time: see newest
	}
	k := q.counted.Get(t.ID)
	return k.seen == 0 || k == shown(t) // otherwise another request of this ticket was counted since
}

// undo restores the count of a visitor that brought was and did not receive the response with t; see moved.
func (q *queue) undo(ft fleettime.Time, was, t *ticket.Ticket) {
	q.advanceBooks(ft)
	q.add(t.Place(), t.Seen, -1)
	q.add(was.Place(), was.Seen, 1)
	q.counted.Put(t.ID, shown(was))
}

// addToReport adds the waiting visitors and the arrivals to a report.
func (q *queue) addToReport(ft fleettime.Time, out *wire.RoomReport) {
	out.Joined = q.joined
	out.Waiting = q.wait.histogram()
	out.Pending = q.returns.expected(ft)
	for _, m := range q.arrivals {
		if m.N > 0 {
			out.Arrivals = append(out.Arrivals, m)
		}
	}
}

// empty reports whether no visitor was counted lately.
func (q *queue) empty() bool {
	for i := range q.wait.windows {
		if len(q.wait.windows[i].counts) > 0 {
			return false
		}
	}
	return q.returns.cells == [returnCells]returnCell{}
}
