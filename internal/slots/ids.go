package slots

import (
	"math/bits"

	"vestibule/internal/wire"
)

// sessionIDs knows, best effort, where each session's newest ticket stands:
// its expiry second, the one before, and the edge that stamped it. It lets the
// aggregator cancel what was counted twice: parallel requests of one page at
// several edges, a ticket admitted at two edges at once, a reply that was
// lost. Losing an entry costs use of the limit, never safety.
//
// It is an open-addressed table with linear probing; an entry takes 24 bytes
// and is dropped some time after its second was freed.
type sessionIDs struct {
	slots []idEntry
	n     int
}

type idEntry struct {
	id     uint64
	until  uint32
	prev   uint32
	edge   uint16
	frozen bool // its edge is silent: the session is counted as frozen, not by its second
}

// parallel is how far apart, in seconds, two stamps of one ticket may be to be
// taken for one visitor's parallel requests. Copies of a ticket that go on
// living apart are counted apart.
const parallel = 10

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

// home is where the search for id begins: its bits, mixed (ids are random when
// edges draw them well, which this need not rely on), scaled to the table.
func (t *sessionIDs) home(id uint64) int {
	id ^= id >> 32
	id *= 0x9e3779b97f4a7c15
	hi, _ := bits.Mul64(id^id>>29, uint64(len(t.slots)))
	return int(hi)
}

// insert adds an id that find did not find. Entries whose second is before
// freed make room; beyond limit entries nothing is added.
func (t *sessionIDs) insert(e idEntry, freed int64, limit int) {
	if t.n*4 >= len(t.slots)*3 {
		t.rebuild(freed)
	}
	if t.n >= limit {
		return
	}
	t.put(e)
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

// rebuild drops what is no longer counted and sizes the table for what is.
func (t *sessionIDs) rebuild(freed int64) {
	live := 0
	for i := range t.slots {
		if e := &t.slots[i]; e.id != 0 && (e.frozen || int64(e.until) >= freed) {
			live++
		}
	}
	old := t.slots
	t.slots, t.n = make([]idEntry, 2*live+64), 0 // half as many again fit before the next rebuild
	for _, e := range old {
		if e.id != 0 && (e.frozen || int64(e.until) >= freed) {
			t.put(e)
		}
	}
}

// take notes one stamping reported by edge, counted already in c, and cancels
// it where it is a double. It reports whether the ticket was seen living in
// two places at once, which is charged twice.
//
// Of every ticket the table knows about, the stampings it was told of sum to
// +1 at entry.until (and -1 at the second the first of them came from, if its
// admission was not among them). A double is corrected so that this stays
// true; a stamping it was not told of only adds to the count.
func (t *sessionIDs) take(c *counts, m wire.Move, edge uint16, limit int) (copied bool) {
	e := t.find(m.ID)
	if e == nil || (!e.frozen && int64(e.until) < c.freed) {
		if e != nil {
			*e = idEntry{id: m.ID, until: m.Until, prev: m.From, edge: edge}
			return false
		}
		t.insert(idEntry{id: m.ID, until: m.Until, prev: m.From, edge: edge}, c.freed, limit)
		return false
	}
	switch {
	case m.From != 0 && m.From == e.until: // the ordinary renewal
		e.prev, e.until, e.edge = m.From, m.Until, edge
		return false
	case (m.From == e.prev && near(m.Until, e.until)) || (m.From != 0 && near(m.From, e.until)):
		if m.From != 0 {
			if int64(m.From) < c.freed {
				break // what it consumed is gone, so there is nothing to give back
			}
			c.add(int64(m.From), 1)
		}
		c.add(int64(min(e.until, m.Until)), -1)
		e.until = max(e.until, m.Until)
		e.edge = edge
		return false
	}
	if m.Until >= e.until {
		e.prev, e.until, e.edge = m.From, m.Until, edge
	}
	return true
}

func near(a, b uint32) bool {
	if a > b {
		a, b = b, a
	}
	return b-a <= parallel
}
