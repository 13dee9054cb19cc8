package admission

import (
	"vestibule/internal/core/draw"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// line is the waiting visitors of a room at one edge: their order, and the numbers that they see. An error here costs
// order, not a limit.
type line struct {
	edge     *edge
	settings *Room
	draw     *draw.Draw // of settings.Drawn, or nil; from roomState.set

	queue  queue          // counts the visitors
	held   held           // visits between Hold and its end
	view   *wire.View     // of the newest grant with one; nil before
	called calledLog      // from noteCalled
	claims claims         // of places that are kept; from noteCalled
	asleep asleep         // visitors without a page that keep their place
	elder  fleettime.Time // the newest since() with visitors that joined before it and wait here
}

// since returns since when waiting visitors are counted: as the view says, otherwise since this edge began. Without the
// second, an edge that is heard first after a restart of all would show the visitors that it counted as the whole line.
func (l *line) since() fleettime.Time {
	if l.view != nil && l.view.Since != 0 {
		return l.view.Since
	}
	return l.edge.clock.since
}

// updateSince records since when waiting visitors are counted, and whether some have waited since before.
func (l *line) updateSince(t *ticket.Ticket) {
	since := l.since()
	l.queue.since = uint32(max(0, since.NextSecond().Second()))
	if t.Joined < since {
		l.elder = since
	}
}

// placeIn returns the place of a waiting visitor from now on: the drawn one if there was a draw.
func placeIn(d *draw.Draw, t *ticket.Ticket) fleettime.Time {
	if d == nil {
		return t.Place()
	}
	return d.Place(t.ID, t.Joined, 0)
}

// redraw gives held visitors their drawn places. The caller sorts them.
func (l *line) redraw(m moment) {
	if !m.synced() {
		return
	}
	for _, v := range l.held.visits {
		l.queue.checkIn(l.edge.clock.countAt(m.time), &v.Ticket, placeIn(l.draw, &v.Ticket))
	}
}

// newTicket returns a new place. A visitor that arrives after a draw is late for it, even if this clock is slow.
func (l *line) newTicket(m moment, in ticket.Network) ticket.Ticket {
	t := l.edge.newTicket(m.time, l.settings.Epoch, in)
	if l.settings.Drawn != nil {
		t.Joined = max(t.Joined, fleettime.TimeOf(l.settings.Drawn.Closes))
	}
	return t
}
