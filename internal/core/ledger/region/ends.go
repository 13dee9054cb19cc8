package region

import (
	"slices"

	"vestibule/internal/core/wire"
)

// terminations are the sessions of a room that were revoked before their tickets expire. Each is sent to every edge.
// Once no edge can renew (moved) or accept (left) its tickets, the home data centre removes the session from its
// count, exactly once.
//
// Safety does not depend on it. If a termination is lost, with an aggregator or for lack of space, the session counts
// until its tickets expire. A new aggregator counts it again and learns the terminations from its edges.
type terminations struct {
	n          uint64 // number of the newest
	order      []*termination
	byKey      map[terminationKey]*termination
	up         wire.Outbox[wire.End] // to global
	unreported bool                  // up changed since reportEnds
	movedIn    uint32                // end of the old tickets of sessions that moved here from other data centres
	dropped    uint32                // the same for moves that did not fit
	skips      uint64                // reports so far without all moves
}

type terminationKey struct {
	id   uint64
	home uint32
}

type termination struct {
	wire.End
	n       uint64 // for the edges; 0 if it is not sent to them
	raised  bool   // Left, at home: it covers every ticket that edges may have stamped by then
	skips   uint64 // terminations.skips when it was raised
	closed  bool   // nothing remains to be done
	cleared bool   // Left, at home: no other data centre accepts it
}

// sendAllTo queues all terminations for an edge.
func (ts *terminations) sendAllTo(acc *account) {
	acc.ends = wire.Outbox[wire.End]{}
	for _, m := range ts.order {
		if m.n != 0 {
			acc.ends.Add(m.End, m.n)
			acc.markChanged()
		}
	}
}

// resendEnds queues sent terminations and decisions again: the edge will acknowledge a grant without them.
func (e *edge) resendEnds() {
	for _, acc := range e.changed {
		acc.ends.Again()
		acc.lines.Again()
		acc.stays.Again()
	}
}

func (ts *terminations) clear(m *termination) {
	m.closed = true
	end := m.End
	end.Kind = wire.Cleared
	ts.up.Add(end, 0)
	ts.unreported = true
}

// older reports whether edges may still accept tickets that another data centre stamped before the session came here.
// Counted sessions here cover them, also after the visitor left.
func (ts *terminations) older(m *termination) bool {
	return m.Until <= ts.dropped ||
		slices.ContainsFunc(ts.order, func(o *termination) bool { return o.ID == m.ID && o.Home != m.Home })
}
