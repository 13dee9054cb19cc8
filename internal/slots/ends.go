package slots

import (
	"slices"

	"vestibule/internal/fleet"
	"vestibule/internal/mutant"
	"vestibule/internal/wire"
)

// marks are the sessions of a room that ended before their tickets expire, in
// the books of one data centre: each is told to every edge, and once no edge can
// renew (moved) or accept (left) its tickets any more, the home takes the session
// out of its head-count, exactly once.
//
// Nothing of this is needed for safety. A mark that is lost, with an aggregator
// or for want of room, leaves the session counted until its tickets expire; a
// new aggregator counts it again, and learns the marks from its edges.
type marks struct {
	n     uint64 // number of the newest
	order []*mark
	byKey map[markKey]*mark
	up    wire.Outbox[wire.End] // to global
	news  bool                  // in up, since tellEnds
	blind uint32                // moves here that there was no room for: their old tickets are valid until then
}

type markKey struct {
	id   uint64
	home uint32
}

type mark struct {
	wire.End
	n       uint64 // for the edges; 0 for one that is not theirs
	closed  bool   // nothing more is to be done about it
	cleared bool   // Left, at home: no other data centre accepts it
}

// end takes note that a session ended; edge says that an edge told it, not
// global.
func (b *books) end(e wire.End, edge bool) {
	if int64(e.Until) < b.counts.freed {
		return // expired
	}
	ms := &b.marks
	m := ms.byKey[markKey{e.ID, e.Home}]
	if e.Kind == wire.Cleared {
		if m != nil && m.Kind == wire.Left && m.Until <= e.Until {
			m.cleared = true
		}
		return
	}
	if m != nil && e.Until <= m.Until && e.Kind <= m.Kind {
		if !edge && m.closed && m.Home != b.home {
			ms.clear(m) // global has forgotten the answer
		}
		return
	}
	if m == nil {
		if len(ms.order) >= wire.MaxEnds {
			if e.Kind == wire.Moved && e.Home != b.home {
				ms.blind = max(ms.blind, e.Until)
			}
			return
		}
		m = &mark{End: e}
		if ms.byKey == nil {
			ms.byKey = map[markKey]*mark{}
		}
		ms.byKey[markKey{e.ID, e.Home}] = m
		ms.order = append(ms.order, m)
	} else {
		ms.order = append(slices.DeleteFunc(ms.order, func(o *mark) bool { return o == m }), m) // by number
	}
	m.Until, m.Kind, m.closed, m.cleared = max(m.Until, e.Until), max(m.Kind, e.Kind), false, false
	home := m.Home == b.home
	if (edge && !home) || (home && m.Kind == wire.Left) {
		ms.up.Add(m.End, 0)
		ms.news, b.dirty = true, true
	}
	if !home && m.Kind == wire.Moved {
		m.closed = true // the home's business
		return
	}
	ms.n++
	m.n = ms.n
	for _, acc := range b.accounts {
		m.closed = !acc.ends.Add(m.End, m.n) || m.closed // who is not told may renew it
		acc.news()
	}
}

// tell owes an edge all that is known.
func (ms *marks) tell(acc *account) {
	acc.ends = wire.Outbox[wire.End]{}
	for _, m := range ms.order {
		if m.n != 0 {
			acc.ends.Add(m.End, m.n)
			acc.news()
		}
	}
}

// endsAgain tells everything anew: the edge is about to acknowledge a grant that
// carries none of it.
func (e *edge) endsAgain() {
	for _, acc := range e.open {
		acc.ends.Again()
		acc.lines.Again()
	}
}

func (ms *marks) clear(m *mark) {
	m.closed = true
	end := m.End
	end.Kind = wire.Cleared
	ms.up.Add(end, 0)
	ms.news = true
}

// closeMarks finds the marks that every edge knows, up to number known, and draws the
// conclusion.
func (b *books) closeMarks(known, acked uint64, watermark fleet.Time) {
	ms := &b.marks
	ms.up.Acked(acked)
	for _, m := range ms.order {
		switch {
		case m.closed || (m.n > known && !mutant.On(mutant.EndBeforeKnown)):
		case m.Home != b.home:
			ms.clear(m)
			b.dirty = true
		case m.Kind == wire.Moved || m.cleared || mutant.On(mutant.LeftUncleared):
			m.closed = true
			if m.Kind == wire.Moved || !ms.older(m) || mutant.On(mutant.OlderTicketForgotten) {
				b.finish(m)
			}
		}
	}
	ms.order = slices.DeleteFunc(ms.order, func(m *mark) bool {
		if fleet.Time(int64(m.Until)*1000).Add(markMargin) > watermark {
			return false
		}
		delete(ms.byKey, markKey{m.ID, m.Home})
		return true
	})
}

// older reports whether tickets of the session that another data centre stamped
// before it came here may still be accepted: they are covered by what is counted
// here, also when the visitor has left.
func (ms *marks) older(m *mark) bool {
	return m.Until <= ms.blind || slices.ContainsFunc(ms.order, func(o *mark) bool { return o.ID == m.ID && o.Home != m.Home })
}

// markMargin is how long after its tickets expired a mark is kept: other data
// centres' clocks may be wrong as far as they may.
const markMargin = 4 * fleet.MaxError

// finish takes a session that ended out of the head-count. Every edge has told
// all that it stamped before it knew the mark, and stamps nothing since: so all
// the session's tickets are counted, once at its newest expiry second at least.
// Where that lies beyond the mark it has begun anew; where it is not known, or
// the tickets went on to a silent edge, it stays counted until it expires.
func (b *books) finish(m *mark) {
	ent := b.ids.find(m.ID)
	if ent == nil || ent.frozen() || ent.until > m.Until || int64(ent.until) < b.counts.freed {
		return
	}
	b.counts.add(int64(ent.until), -1)
	*ent = idEntry{id: ent.id} // still occupies its slot, means nothing
	b.dirty, b.stale = true, true
}

// astray is how many sessions an edge that cannot be heard may have beyond those
// that are counted: tickets that turned up elsewhere since, and all its sessions
// once it was given up. It stays until the edge, or its successor, is heard.
type astray struct {
	inc uint64
	n   int64
}

// maxAstray bounds the edges that are remembered so.
const maxAstray = 256

func (b *books) strays(e *edge, n int64) {
	if n <= 0 {
		return
	}
	for i := range b.astray {
		if b.astray[i].inc == e.inc {
			b.astray[i].n += n
			return
		}
	}
	if len(b.astray) < maxAstray {
		b.astray = append(b.astray, astray{inc: e.inc, n: n})
	} else {
		b.astray[maxAstray-1].n += n
	}
	b.dirty = true
}

// found takes note that an incarnation is heard again, or has ended: what it has is
// counted.
func (b *books) found(inc uint64) {
	b.astray = slices.DeleteFunc(b.astray, func(s astray) bool { return s.inc == inc })
}

// excess returns how many sessions may be valid beyond those counted.
func (b *books) excess() int64 {
	n := int64(0)
	for _, s := range b.astray {
		n += s.n
	}
	return n
}
