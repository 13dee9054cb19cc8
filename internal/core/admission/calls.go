package admission

import (
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
)

// noteCalled records the admission cutoff at ft: before an event the one expected at its start. It reports whether
// visitors are called by their places.
func (l *line) noteCalled(ft fleettime.Time) bool {
	v := l.view
	if v != nil && l.settings.Claim != 0 && !l.settings.gathersAt(ft) && !l.settings.queuedAll() {
		l.claims.note(ft, v.Cutoff)
	}
	switch {
	case v == nil || !v.Queues() || len(v.Rounds) > 0 || l.settings.queuedAll():
		l.called = calledLog{}
		return false
	case l.settings.gathersAt(ft) || v.Cutoff == 0: // the view of the start is on its way
		l.called.note(ft, v.Line.Histogram().At(float64(v.Free)))
	default:
		l.called.note(ft, v.Cutoff)
	}
	return true
}

// overdue returns the number of waiting visitors that were called at least [overdueAfter] ago and have not asked since.
// It is negative if they are counted at other edges: the sum over all edges is right.
func (l *line) overdue(ft fleettime.Time) int64 {
	if !l.noteCalled(ft) {
		return 0
	}
	called := l.called.since()
	n := l.queue.overdue(called)
	if n > 0 {
		n -= min(n, l.held.silent(called, ft.Add(-overdueAfter).Second()))
	}
	return n
}

// calledUpTo returns the place up to which the visitors are called.
func (l *line) calledUpTo(ft fleettime.Time) fleettime.Time {
	if l.view.Queues() {
		return l.view.Cutoff
	}
	return ft
}

// callAsleep removes the called ones. It reports whether there were any.
func (l *line) callAsleep(ft fleettime.Time) bool {
	if len(l.asleep.seconds) == 0 || l.view == nil || l.settings.gathersAt(ft) || l.settings.queuedAll() {
		return false
	}
	return l.asleep.call(ft, l.calledUpTo(ft))
}

// wakes records that the visitor of t asks. It reports whether it was asleep.
func (l *line) wakes(m moment, t *ticket.Ticket) bool {
	if !t.Kept || l.settings.Claim == 0 {
		return false
	}
	was := l.asleep.drop(t.ID)
	_, departed := l.queue.away.byID[t.ID]
	if (departed || l.queue.wait.over(t.Seen)) && l.view != nil && t.Place() < l.calledUpTo(m.time) {
		l.asleep.came++
	}
	return was
}

// lapsed reports whether the place of t is lost: see Lapsed. One that is kept is not before its visitor was called, and
// could come for the claim time.
func (l *line) lapsed(ft fleettime.Time, t *ticket.Ticket) bool {
	if !t.Kept || l.settings.Claim == 0 || !Lapsed(ft, t, l.settings.Grace) {
		return Lapsed(ft, t, l.settings.Grace)
	}
	called, claim := l.claims.since(t.Place()), int64(l.settings.Claim/time.Second)
	return absent(ft, t) > int64(keptFor/time.Second) || called != 0 && ft.Second() > called+claim
}
