package admission

import (
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// isolation is what an edge that is cut off did in a room that nobody may count.
type isolation struct {
	letIn    uint64 // without a right, in all
	letInNow int    // of those, in this isolation
	guests   int    // sessions of other edges that were renewed without a lease, since there was one
}

// decideAlone decides as the room says for an edge that is cut off. It reports
// false where the room says nothing else than that newcomers are held, or has let
// in as many as it may, or where the data centre drains or is in no list.
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

// letIn admits the visitor of d without a right. The session belongs to nobody:
// it is in no count, no report and no other number of the ledger, and every edge
// serves it until it expires.
func (r *roomState) letIn(m moment, d *Decision) bool {
	if r.gone || r.alone.letInNow >= r.IsolationLimit {
		return false
	}
	r.alone.letInNow++
	r.alone.letIn++
	t := &d.Ticket
	if t.Flags&ticket.Returned != 0 {
		r.queue.wait.add(t.Place(), t.Seen, -1)
		r.dirty = true
	}
	second := m.second()
	t.Admitted, t.Until, t.Home, t.Seen = second, second+1+wire.Life(r.Session), ticket.Nobody, second
	t.BindSession()
	d.Verdict, d.Reason, d.Reseal = Admit, Uncounted, true
	return true
}

// prolong renews a session of nobody, as long as the edge would let it in. When
// the regional is heard again the session ends in time, and its visitor queues
// like anybody.
func (r *roomState) prolong(m moment, d *Decision) {
	life := wire.Life(r.Session)
	until := m.second() + 1 + life
	if r.OnIsolation == room.IsolationOpen && r.life.fixed == 0 && until >= d.Ticket.Until+wire.RenewAfter(life) && !r.edge.up.check(m.now) && r.edge.Isolated(m.now) {
		d.Ticket.Until, d.Ticket.Seen, d.Reseal = until, m.second(), true
	}
}

// rejoined notes that the edge has a lease again.
func (e *Engine) rejoined() {
	again := e.up.alone != 0
	e.up.alone = 0
	for _, r := range e.order {
		r.alone.guests = 0
		if again {
			r.alone.letInNow = 0
		}
	}
}
