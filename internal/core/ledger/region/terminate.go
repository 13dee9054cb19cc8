package region

import (
	"slices"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

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
		case m.Home == b.home && m.Kind == wire.Left && m.Shown != 0 && b.ids.find(m.ID) == nil &&
			(!m.raised || m.skips != ts.skips):
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
	if !m.raised || m.Shown == 0 || !b.countsUnheard(m.ID, m.Shown) {
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
