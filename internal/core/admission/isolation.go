package admission

import (
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// decideAlone decides by the room's isolation policy. It returns false if the policy holds newcomers, if the limit
// of admissions is reached, or if the data centre drains or is not listed.
func (r *roomState) decideAlone(m moment, d *Decision, may bool) bool {
	switch r.OnIsolation {
	case room.IsolationClosed:
		d.Reason = Closed
		return true
	case room.IsolationOpen:
		return may && r.edge.up.standing == wire.Listed && r.letIn(m, d)
	}
	return false
}

// letIn admits the visitor of d without a permit. The session has no home: no ledger, report or metric counts it,
// and every edge serves it until it expires.
func (r *roomState) letIn(m moment, d *Decision) bool {
	if r.gone || r.alone.letInNow >= r.IsolationLimit {
		return false
	}
	r.alone.letInNow++
	r.alone.letIn++
	t := &d.Ticket
	if t.Flags&ticket.Returned != 0 {
		r.queue.add(t.Place(), t.Seen, -1)
		r.dirty = true
	}
	second := m.second()
	t.Admitted, t.Until, t.Home, t.Seen = second, second+1+wire.Life(r.Session), ticket.Nobody, second
	t.BindSession()
	d.Verdict, d.Reason, d.Reseal = Admit, Uncounted, true
	return true
}

// prolong renews a session without a home while the edge may admit it. After the isolation the session ends on
// time, and its visitor queues again.
func (r *roomState) prolong(m moment, d *Decision) {
	life := wire.Life(r.Session)
	until := m.second() + 1 + life
	if r.OnIsolation == room.IsolationOpen && r.life.fixed == 0 && until >= d.Ticket.Until+wire.RenewAfter(life) &&
		!r.edge.up.check(m.now) && r.edge.Isolated(m.now) {
		d.Ticket.Until, d.Ticket.Seen, d.Reseal = until, m.second(), true
	}
}
