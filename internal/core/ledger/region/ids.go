package region

import (
	"iter"
	"math/bits"

	"vestibule/internal/core/wire"
)

// sessionIDs has the newest known ticket of each session: its expiry second, the one before, and the edge that
// stamped it. With it the aggregator cancels double counts: parallel requests of one page at several edges, a ticket
// admitted at two edges at once, a lost response. A missing entry costs use of the limit, never safety.
//
// It is an open-addressed table with linear probing. An entry takes 24 bytes and is dropped some time after its
// second was freed.
type sessionIDs struct {
	slots []idEntry
	n     int
}

type idEntry struct {
	id     uint64
	until  uint32
	prev   uint32
	base   uint32 // expiry of the ticket that the first known stamping consumed; 0 for an admission
	holder uint32 // see edge and pinned: 31 bits and one, so that an entry stays at 24 bytes
}

// edgeNum is the short ID of one instance of an edge. It is never reused within a term: 2^31 of them are one a second
// for 68 years.
type edgeNum uint32

// edge returns which edge stamped the ticket.
func (e *idEntry) edge() edgeNum { return edgeNum(e.holder >> 1) }

// pinned reports whether that edge is silent. The session is then counted as pinned, not by its second.
func (e *idEntry) pinned() bool { return e.holder&1 != 0 }

func (e *idEntry) at(n edgeNum) { e.holder = uint32(n)<<1 | e.holder&1 }

func (e *idEntry) pin(on bool) {
	if e.holder &^= 1; on {
		e.holder |= 1
	}
}

// parallel is the maximum distance, in seconds, of two stamps of one ticket that count as one visitor's parallel
// requests. Copies of a ticket that are used independently are counted separately.
const parallel = 10

// record records one stamping that edge reported and that c counts already, and cancels it if it is a double. It
// reports whether the ticket is used in two places at once, which counts twice, and whether the session is in the table.
//
// The stampings of a ticket in the table sum to +1 at entry.until and -1 at entry.base (none if the base is the
// admission). A correction keeps this true. It is safe as long as the stampings before the base are counted as
// reported: they carry the session from second to second up to the base, where the -1 takes it over. So a stamping
// that ends at the base or before it, from a later report of another edge, is never corrected, and a stamping that
// fits nowhere begins a new base. A stamping that is unknown or not corrected only adds to the count.
func (t *sessionIDs) record(c *counts, m wire.Move, edge edgeNum, limit int) (copied, kept bool) {
	e := t.find(m.ID)
	fresh := idEntry{id: m.ID, until: m.Until, prev: m.From, base: m.From, holder: uint32(edge) << 1}
	if e == nil {
		return false, t.insert(fresh, c.freed, limit)
	}
	if !e.pinned() && int64(e.until) < c.freed {
		*e = fresh
		return false, true
	}
	switch {
	case m.From != 0 && m.From == e.until: // the ordinary renewal
		e.prev, e.until = m.From, m.Until
		e.at(edge)
		return false, true
	case e.base != 0 && m.Until == e.base: // it precedes all known stampings
		e.base = m.From
		return false, true
	case e.base != 0 && m.Until < e.base: // an even earlier one
		return false, true
	case (m.From == e.prev && near(m.Until, e.until)) || (m.From != 0 && near(m.From, e.until)):
		if m.From != 0 {
			if int64(m.From) < c.freed {
				break // the consumed ticket is freed: there is nothing to correct
			}
			c.add(int64(m.From), 1)
		}
		c.add(int64(min(e.until, m.Until)), -1)
		e.until = max(e.until, m.Until)
		e.at(edge)
		return false, true
	}
	if m.Until >= e.until {
		e.prev, e.base, e.until = m.From, m.From, m.Until
		e.at(edge)
	}
	return true, true
}

// insert adds an entry for an ID that has none. Freed entries make room. Beyond limit entries nothing is added. It reports
// whether the entry was.
func (t *sessionIDs) insert(e idEntry, freed int64, limit int) bool {
	if t.n*4 >= len(t.slots)*3 {
		t.rebuild(freed)
	}
	if t.n >= limit {
		return false
	}
	t.put(e)
	return true
}

// rebuild drops entries that no longer count and resizes the table.
func (t *sessionIDs) rebuild(freed int64) {
	live := 0
	for i := range t.slots {
		if e := &t.slots[i]; e.id != 0 && (e.pinned() || int64(e.until) >= freed) {
			live++
		}
	}
	old := t.slots
	t.slots, t.n = make([]idEntry, 2*live+64), 0 // half as many again fit before the next rebuild
	for _, e := range old {
		if e.id != 0 && (e.pinned() || int64(e.until) >= freed) {
			t.put(e)
		}
	}
}

func (t *sessionIDs) put(e idEntry) {
	i := t.home(e.id)
	for t.slots[i].id != 0 {
		if i++; i == len(t.slots) {
			i = 0
		}
	}
	t.slots[i] = e
	t.n++
}

// end removes a session that ended no later than until from the count, and reports whether it was counted. Every edge
// has reported all tickets that it stamped before it knew of the end, and stamps none since. So all tickets of the
// session are counted, at least once at its newest expiry second. If that second is after the end, the session has
// begun anew. If it is unknown, or the session moved to a silent edge, the session counts until it expires.
func (t *sessionIDs) end(c *counts, id uint64, until uint32) bool {
	ent := t.find(id)
	if ent == nil || ent.pinned() || ent.until > until || int64(ent.until) < c.freed {
		return false
	}
	c.add(int64(ent.until), -1)
	*ent = idEntry{id: ent.id} // still occupies its slot, means nothing
	return true
}

// find returns the entry of id, or nil.
func (t *sessionIDs) find(id uint64) *idEntry {
	if len(t.slots) == 0 {
		return nil
	}
	for i := t.home(id); ; i++ {
		if i == len(t.slots) {
			i = 0
		}
		e := &t.slots[i]
		if e.id == id {
			return e
		}
		if e.id == 0 {
			return nil
		}
	}
}

// pinned returns the sessions that are pinned to a silent edge.
func (t *sessionIDs) pinned(at edgeNum) iter.Seq[*idEntry] {
	return func(yield func(*idEntry) bool) {
		for i := range t.slots {
			if ent := &t.slots[i]; ent.pinned() && ent.edge() == at && !yield(ent) {
				return
			}
		}
	}
}

// home is where the search for id begins: its bits, mixed (ids are random when
// edges draw them well, which this need not rely on), scaled to the table.
func (t *sessionIDs) home(id uint64) int {
	id ^= id >> 32
	id *= 0x9e3779b97f4a7c15
	hi, _ := bits.Mul64(id^id>>29, uint64(len(t.slots)))
	return int(hi)
}

func near(a, b uint32) bool {
	if a > b {
		a, b = b, a
	}
	return b-a <= parallel
}
