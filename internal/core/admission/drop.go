package admission

import (
	"slices"

	"vestibule/internal/core/fleettime"
)

// mayDrop reports whether the room is not in the room set and nothing of it is left: its counters may start anew.
// Marks of revoked sessions and counts of waiting visitors stay for as long as a ticket may need them.
func (r *roomState) mayDrop(now fleettime.Mono) bool {
	p := &r.permits
	return r.gone && len(r.held.visits)+len(r.movers) == 0 &&
		p.credit() == 0 && p.rate.Held() == 0 && p.past.owed(now) == 0 && r.passes.Unused() == 0 &&
		r.sessions.ring == nil && len(r.moves.list) == 0 && r.ends.Len()+r.tickets.found.Len() == 0 &&
		len(r.ended.marks) == 0 && r.alone.letInNow == 0 && r.queue.empty()
}

// drop handles wire.RoomGrant.Drop. The parent knows the newest counters if it has acknowledged them.
func (e *Engine) drop(now fleettime.Mono, r *roomState) {
	if r.dirty || r.changedAt > e.up.acked || !r.mayDrop(now) {
		r.dirty = true // the next report has the room
		e.reportSoon(now)
		return
	}
	delete(e.rooms, r.ID)
	e.order = slices.DeleteFunc(e.order, func(o *roomState) bool { return o == r })
	if s := &e.snapshots; s.on {
		s.dropped = append(s.dropped, r.ID)
	}
}
