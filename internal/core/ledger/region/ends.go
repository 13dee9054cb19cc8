package region

import (
	"slices"

	"vestibule/internal/core/fleettime"
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
	}
}

// closeConditions is the state that decides when a termination is closed.
type closeConditions struct {
	known     uint64         // number up to which every edge knows them
	acked     uint64         // newest report that global has applied
	watermark fleettime.Time // every edge has reported everything before it
	expired   uint32         // Unix second at which all tickets stamped so far have expired; 0 if unknown
	movedIn   int64          // until then old tickets of sessions that moved here before this term are valid
}

// closeTerminations closes the terminations that every edge knows.
func (b *roomLedger) closeTerminations(at closeConditions) {
	ts := &b.terminations
	ts.up.Acked(at.acked)
	var raise []wire.End
	for _, m := range ts.order {
		switch {
		case m.closed:
		case m.Home == b.home && m.Kind == wire.Left && m.Shown != 0 && b.ids.find(m.ID) == nil && (!m.raised || m.skips != ts.skips):
			if int64(m.Shown) >= b.counts.freed && at.expired != 0 && at.movedIn < b.counts.freed {
				m.raised, m.skips = true, ts.skips
				raise = append(raise, wire.End{ID: m.ID, Home: m.Home, Until: max(at.expired, m.Until+1), Kind: wire.Left})
			}
		case m.n > at.known:
		case m.Home != b.home:
			ts.clear(m)
			b.dirty = true
		case m.Kind == wire.Moved || m.cleared:
			m.closed = true
			if (m.Kind == wire.Moved || !ts.older(m)) && b.uncount(m) {
				b.dirty, b.stale = true, true
			}
		}
	}
	for _, e := range raise {
		b.recordEnd(e, false)
	}
	ts.order = slices.DeleteFunc(ts.order, func(m *termination) bool {
		if fleettime.Time(int64(m.Until)*1000).Add(wire.EndMargin) > at.watermark {
			return false
		}
		delete(ts.byKey, terminationKey{m.ID, m.Home})
		return true
	})
}

// uncount removes a session from the count once every edge knows its termination, and reports whether it was counted.
//
// A session whose moves were reported only to a predecessor is counted once, in the second in which its newest ticket
// expires. That second is unknown, but no edge accepts any of its tickets (raised). So it is subtracted in the second
// in which the shown ticket expires, which is not later. If it is earlier, the session counts again from then on. A
// report without all moves since the raise may hide a newer ticket: then the termination is raised again.
func (b *roomLedger) uncount(m *termination) bool {
	if b.ids.find(m.ID) != nil {
		return b.ids.end(&b.counts, m.ID, m.Until)
	}
	if !m.raised || m.Shown == 0 || int64(m.Shown) < b.counts.freed {
		return false
	}
	b.counts.add(int64(m.Shown), -1)
	return true
}

// recordEnd records that a session ended; edge says that an edge reported it, not global.
func (b *roomLedger) recordEnd(e wire.End, edge bool) {
	if int64(e.Until) < b.counts.freed {
		return // expired
	}
	ts := &b.terminations
	m := ts.byKey[terminationKey{e.ID, e.Home}]
	if e.Kind == wire.Cleared {
		if m != nil && m.Kind == wire.Left && m.Until <= e.Until {
			m.cleared = true
		}
		return
	}
	if e.Kind == wire.Moved && e.Home != b.home {
		ts.movedIn = max(ts.movedIn, e.Until)
	}
	if m != nil && e.Until <= m.Until && e.Kind <= m.Kind {
		if !edge && m.closed && m.Home != b.home {
			ts.clear(m) // global has forgotten the answer
		}
		return
	}
	if m == nil {
		if len(ts.order) >= wire.MaxEnds {
			if e.Kind == wire.Moved && e.Home != b.home {
				ts.dropped = max(ts.dropped, e.Until)
			}
			return
		}
		m = &termination{End: e}
		if ts.byKey == nil {
			ts.byKey = map[terminationKey]*termination{}
		}
		ts.byKey[terminationKey{e.ID, e.Home}] = m
		ts.order = append(ts.order, m)
	} else {
		ts.order = append(slices.DeleteFunc(ts.order, func(o *termination) bool { return o == m }), m) // by number
	}
	m.Until, m.Kind, m.closed, m.cleared = max(m.Until, e.Until), max(m.Kind, e.Kind), false, false
	m.Shown = max(m.Shown, e.Shown)
	home := m.Home == b.home
	if (edge && !home) || (home && m.Kind == wire.Left) {
		ts.up.Add(m.End, 0)
		ts.unreported, b.dirty = true, true
	}
	if !home && m.Kind == wire.Moved {
		m.closed = true // its home handles it
		return
	}
	ts.n++
	m.n = ts.n
	for _, acc := range b.accounts {
		m.closed = !acc.ends.Add(m.End, m.n) || m.closed // an edge that does not know it may renew the session
		acc.markChanged()
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
	return m.Until <= ts.dropped || slices.ContainsFunc(ts.order, func(o *termination) bool { return o.ID == m.ID && o.Home != m.Home })
}

// overcommitEntry is the number of sessions that a silent edge may have beyond the counted ones: tickets that
// appeared elsewhere since, and all its sessions once it was declared lost. It remains until the edge or its
// successor reports.
type overcommitEntry struct {
	instance uint64
	n        int64
}

// maxOvercommitEntries bounds the edges with own entries.
const maxOvercommitEntries = 256

// overcommit are the sessions of a room that may be valid beyond those counted.
type overcommit []overcommitEntry

// add adds n sessions of an edge. It reports whether the edge had none before.
func (x *overcommit) add(instance uint64, n int64) bool {
	if n <= 0 {
		return false
	}
	for i := range *x {
		if (*x)[i].instance == instance {
			(*x)[i].n += n
			return false
		}
	}
	if len(*x) < maxOvercommitEntries {
		*x = append(*x, overcommitEntry{instance: instance, n: n})
	} else {
		(*x)[maxOvercommitEntries-1].n += n
	}
	return true
}

// remove removes an instance that reports again, or has ended: its sessions are counted.
func (x *overcommit) remove(instance uint64) {
	*x = slices.DeleteFunc(*x, func(s overcommitEntry) bool { return s.instance == instance })
}

// sum returns the number of sessions.
func (x overcommit) sum() int64 {
	n := int64(0)
	for _, s := range x {
		n += s.n
	}
	return n
}
