package admission

import (
	"slices"

	"vestibule/internal/core/fleettime"
)

// mayDrop reports whether the room is not in the room set and nothing of it is left: its counters may start anew.
// Marks of revoked sessions and counts of waiting visitors stay for as long as a ticket may need them.
func (r *roomState) mayDrop(now fleettime.Mono) bool {
	return r.settings.gone && len(r.line.held.visits) == 0 && r.account.empty(now) && r.line.queue.empty()
}

// drop handles wire.RoomGrant.Drop. The parent knows the newest counters if it has acknowledged them.
func (e *Engine) drop(now fleettime.Mono, r *roomState) {
	if r.dirty || r.account.changed || r.changedAt > e.up.acked || !r.mayDrop(now) {
		r.dirty = true // the next report has the room
		e.reportSoon(now)
		return
	}
	delete(e.rooms, r.settings.ID)
	e.order = slices.DeleteFunc(e.order, func(o *roomState) bool { return o == r })
	if s := &e.snapshots; s.on {
		s.dropped = append(s.dropped, r.settings.ID)
	}
}
