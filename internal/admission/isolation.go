package admission

import (
	"vestibule/internal/fleet"
	"vestibule/internal/room"
	"vestibule/internal/ticket"
	"vestibule/internal/wire"
)

// Isolated reports whether the edge has been without a lease for so long that
// on_isolation applies. Nothing in a request can bring that about, nor does asking for it.
func (e *Engine) Isolated(now fleet.Mono) bool {
	l := &e.link
	return !e.Leased(now) && l.alone != 0 && now.Sub(l.alone) >= e.cfg.Params.Isolation
}

// isolated decides as the room says for an edge that is cut off. It reports
// false where the room says nothing else than that newcomers are held, or has let
// in as many as it may, or where the data centre drains or is in no list.
func (e *Engine) isolated(ft fleet.Time, r *roomState, d *Decision) bool {
	switch r.OnIsolation {
	case room.IsolationClosed:
		d.Reason = Closed
		return true
	case room.IsolationOpen:
		return e.link.standing == wire.Listed && e.letIn(ft, r, d)
	}
	return false
}

// letIn admits the visitor of d without a right. The session belongs to nobody:
// it is in no count, no report and no other number of the ledger, and every edge
// serves it until it expires.
func (e *Engine) letIn(ft fleet.Time, r *roomState, d *Decision) bool {
	if r.gone || r.letInNow >= r.IsolationLimit {
		return false
	}
	r.letInNow++
	r.letIn++
	t := &d.Ticket
	if t.Flags&ticket.Returned != 0 {
		r.wait.add(t.Joined, t.Seen, -1)
		r.dirty = true
	}
	second := uint32(ft.Second())
	t.Admitted, t.Until, t.Home, t.Seen = second, second+1+wire.Life(r.Session), ticket.Nobody, second
	t.BindSession()
	d.Verdict, d.Reason, d.Reseal = Admit, Uncounted, true
	return true
}

// prolong renews a session of nobody, as long as the edge would let it in. When
// the regional is heard again the session ends in time, and its visitor queues
// like anybody.
func (e *Engine) prolong(now fleet.Mono, ft fleet.Time, r *roomState, d *Decision) {
	life := wire.Life(r.Session)
	until := uint32(ft.Second()) + 1 + life
	if r.OnIsolation == room.IsolationOpen && until >= d.Ticket.Until+wire.RenewAfter(life) && !e.link.leased(now) && e.Isolated(now) {
		d.Ticket.Until, d.Ticket.Seen, d.Reseal = until, uint32(ft.Second()), true
	}
}

// rejoined notes that the edge has a lease again.
func (e *Engine) rejoined() {
	for _, r := range e.order {
		r.guests = 0
	}
	if e.link.alone == 0 {
		return
	}
	e.link.alone = 0
	for _, r := range e.order {
		r.letInNow = 0
	}
}
