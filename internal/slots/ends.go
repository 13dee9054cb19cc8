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
func (a *Aggregator) end(b *books, e wire.End, edge bool) {
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
		if !edge && m.closed && m.Home != a.home {
			ms.clear(m) // global has forgotten the answer
		}
		return
	}
	if m == nil {
		if len(ms.order) >= wire.MaxEnds {
			if e.Kind == wire.Moved && e.Home != a.home {
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
	home := m.Home == a.home
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
	for _, e := range a.edges {
		if acc := e.accounts[b.ID]; acc != nil {
			m.closed = !acc.ends.Add(m.End, m.n) || m.closed // who is not told may renew it
			acc.news()
		}
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
	for _, acc := range e.accounts {
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

// endGap is how many SyncGaps lie between reports that ends alone hurry: a slot is
// waited for, and ends of a tenth of a second go together.
const endGap = 5

// tellEnds has the report to global be made soon, where there are ends to tell.
func (a *Aggregator) tellEnds(now fleet.Mono, b *books) {
	if b.marks.news {
		b.marks.news = false
		a.up.hurry(now, endGap*a.cfg.Params.SyncGap)
	}
}

// closeMarks finds the marks that every edge knows and draws the conclusion.
func (a *Aggregator) closeMarks(b *books) {
	ms := &b.marks
	if len(ms.order) == 0 {
		return
	}
	ms.up.Acked(a.up.acked)
	known := a.markedUpTo(b)
	for _, m := range ms.order {
		switch {
		case m.closed || (m.n > known && !mutant.On(mutant.EndBeforeKnown)):
		case m.Home != a.home:
			ms.clear(m)
			b.dirty = true
		case m.Kind == wire.Moved || m.cleared || mutant.On(mutant.LeftUncleared):
			m.closed = true
			if m.Kind == wire.Moved || !ms.older(m) || mutant.On(mutant.OlderTicketForgotten) {
				a.finish(b, m)
			}
		}
	}
	ms.order = slices.DeleteFunc(ms.order, func(m *mark) bool {
		if fleet.Time(int64(m.Until)*1000).Add(markMargin) > a.watermark {
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

// markedUpTo returns up to which number every edge that may act knows the marks.
// One that is silent, or still awaited, knows nothing.
func (a *Aggregator) markedUpTo(b *books) uint64 {
	known := b.marks.n
	if a.up.blank {
		return 0
	}
	for _, e := range a.edges {
		acc := e.accounts[b.ID]
		switch {
		case e.state == left:
		case e.state != alive || acc == nil || acc.report == nil:
			return 0
		default:
			acc.ends.Acked(e.told)
			if n, ok := acc.ends.First(); ok {
				known = min(known, n-1)
			}
		}
	}
	return known
}

// finish takes a session that ended out of the head-count. Every edge has told
// all that it stamped before it knew the mark, and stamps nothing since: so all
// the session's tickets are counted, once at its newest expiry second at least.
// Where that lies beyond the mark it has begun anew; where it is not known, or
// the tickets went on to a silent edge, it stays counted until it expires.
func (a *Aggregator) finish(b *books, m *mark) {
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

// relay is one end on its way between data centres.
type relay struct {
	end     wire.End
	left    bool // every other data centre has to answer
	cleared []*centre
}

// relay passes an end on that data centre d told: a move to the home that is to
// forget the session, a leave to everybody else, and their answers to the home
// once all of them have given theirs.
func (a *Allocator) relay(p *pool, d *centre, e wire.End) {
	home := -1
	for i, o := range a.centres {
		if wire.HomeOf(o.name) == e.Home && (home < 0 || o.listed) {
			home = i
		}
	}
	if home < 0 {
		return
	}
	key := e
	if e.Kind == wire.Cleared {
		key.Kind = wire.Left
	}
	r := p.relays[key]
	if r == nil {
		if e.Kind == wire.Cleared || len(p.relays) >= wire.MaxEnds {
			return
		}
		r = &relay{end: e}
		if p.relays == nil {
			p.relays = map[wire.End]*relay{}
		}
		p.relays[key] = r
		if e.Kind == wire.Moved || d != a.centres[home] {
			a.pass(p, a.centres[home], e)
		}
	}
	if e.Kind == wire.Left && d == a.centres[home] && !r.left {
		r.left = true
		for _, o := range a.centres {
			if o != d {
				a.pass(p, o, e)
			}
		}
	}
	if e.Kind == wire.Cleared && !slices.Contains(r.cleared, d) {
		r.cleared = append(r.cleared, d)
	}
	if r.left && len(r.cleared) >= len(a.centres)-1 {
		r.left = false
		end := r.end
		end.Kind = wire.Cleared
		a.pass(p, a.centres[home], end)
	}
}

// pass owes a data centre an end.
func (a *Allocator) pass(p *pool, d *centre, e wire.End) {
	l := a.loan(d, p.ID)
	l.ends.Add(e, 0)
	l.dirty = true
}

// forgetRelays drops what has expired.
func (a *Allocator) forgetRelays(ft fleet.Time) {
	for _, p := range a.order {
		for key, r := range p.relays {
			if ft > fleet.Time(int64(r.end.Until)*1000).Add(markMargin) {
				delete(p.relays, key)
			}
		}
	}
}
