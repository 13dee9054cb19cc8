package admission

import (
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
)

// noteCalled records the admission cutoff at ft: before an event the one expected at its start. It reports whether
// visitors are called by their places.
func (r *roomState) noteCalled(ft fleettime.Time) bool {
	v := r.view
	if v != nil && r.Claim != 0 && !r.gathersAt(ft) && !r.queuedAll() {
		r.claims.note(ft, v.Cutoff)
	}
	switch {
	case v == nil || !v.Queues() || len(v.Rounds) > 0 || r.queuedAll():
		r.called = calledLog{}
		return false
	case r.gathersAt(ft):
		r.called.note(ft, v.Line.Histogram().At(float64(v.Slots)))
	default:
		r.called.note(ft, v.Cutoff)
	}
	return true
}

// overdue returns the number of waiting visitors that were called at least [overdueAfter] ago and have not asked since.
// It is negative if they are counted at other edges: the sum over all edges is right.
func (r *roomState) overdue(ft fleettime.Time) int64 {
	if !r.noteCalled(ft) {
		return 0
	}
	called := r.called.since()
	n := r.queue.overdue(called)
	if n > 0 {
		n -= min(n, r.held.silent(called, ft.Add(-overdueAfter).Second()))
	}
	return n
}

// calledUpTo returns the place up to which the visitors are called.
func (r *roomState) calledUpTo(ft fleettime.Time) fleettime.Time {
	if r.view.Queues() {
		return r.view.Cutoff
	}
	return ft
}

// callAsleep removes the called ones. It reports whether there were any.
func (r *roomState) callAsleep(ft fleettime.Time) bool {
	if len(r.asleep.seconds) == 0 || r.view == nil || r.gathersAt(ft) || r.queuedAll() {
		return false
	}
	return r.asleep.call(ft, r.calledUpTo(ft))
}

// wakes records that the visitor of t asks.
func (r *roomState) wakes(m moment, t *ticket.Ticket) {
	if !t.Kept || r.Claim == 0 {
		return
	}
	r.dirty = r.asleep.drop(t.ID) || r.dirty
	_, departed := r.queue.away.byID[t.ID]
	if (departed || r.queue.wait.over(t.Seen)) && r.view != nil && t.Place() < r.calledUpTo(m.time) {
		r.asleep.came++
	}
}

// lapsed reports whether the place of t is lost: see Lapsed. One that is kept is not before its visitor was called, and
// could come for the claim time.
func (r *roomState) lapsed(ft fleettime.Time, t *ticket.Ticket) bool {
	if !t.Kept || r.Claim == 0 || !Lapsed(ft, t, r.Grace) {
		return Lapsed(ft, t, r.Grace)
	}
	called := r.claims.since(t.Place())
	return absent(ft, t) > int64(keptFor/time.Second) || called != 0 && ft.Second() > called+int64(r.Claim/time.Second)
}
