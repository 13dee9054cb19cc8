package admission

import (
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// decideAlone decides by the room's isolation policy. It returns false if the policy holds newcomers, if the limit
// of admissions is reached, or if the data centre drains or is not listed.
func (r *roomState) decideAlone(m moment, d *Decision, may bool) bool {
	switch r.settings.OnIsolation {
	case room.IsolationClosed:
		d.Reason = Closed
		return true
	case room.IsolationOpen:
		was := d.Ticket
		if !may || r.edge.up.standing != wire.Listed || !r.account.letIn(m, d) {
			return false
		}
		if was.Flags&ticket.Returned != 0 {
			r.line.queue.add(was.Place(), was.Seen, -1)
			r.dirty = true
		}
		return true
	}
	return false
}

// letIn admits the visitor of d without a permit. The session has no home: no ledger, report or metric counts it,
// and every edge serves it until it expires.
func (a *account) letIn(m moment, d *Decision) bool {
	if a.settings.gone || a.alone.letInNow >= a.settings.IsolationLimit {
		return false
	}
	a.alone.letInNow++
	a.alone.letIn++
	t, second := &d.Ticket, m.second()
	t.Admitted, t.Until, t.Home, t.Seen = second, second+1+wire.Life(a.settings.Session), ticket.Nobody, second
	t.BindSession()
	d.Verdict, d.Reason, d.Reseal = Admit, Uncounted, true
	return true
}

// prolong renews a session without a home while the edge may admit it. After the isolation the session ends on
// time, and its visitor queues again.
func (a *account) prolong(m moment, d *Decision) {
	life := wire.Life(a.settings.Session)
	until := m.second() + 1 + life
	if a.settings.OnIsolation == room.IsolationOpen && a.life.fixed == 0 &&
		until >= d.Ticket.Until+wire.RenewAfter(life) && !a.edge.up.check(m.now) && a.edge.isolated(m.now) {
		d.Ticket.Until, d.Ticket.Seen, d.Reseal = until, m.second(), true
	}
}
