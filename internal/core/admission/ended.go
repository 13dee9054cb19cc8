package admission

import (
	"cmp"
	"math"
	"slices"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// ended knows the sessions that ended before their tickets expire: it keeps a
// left one from being accepted and a moved one from being renewed. What it
// holds came from the regional, which bounds it, or from visitors who left here
// since the last report. An entry goes once the watermark has passed it.
type ended struct {
	marks map[endKey]endMark
	first uint32 // no mark is of an earlier second
}

type endKey struct {
	id   uint64
	home ticket.DC
}

type endMark struct {
	until uint32 // tickets up to here are meant
	shown uint32 // as wire.End has it
	kind  wire.EndKind
}

// Ended are sessions by their rooms that ended before their tickets expire, for the data folder of the process. What is
// lost of them costs use of the limit and no safety: a new regional counts these sessions again until their tickets expire.
type Ended map[room.ID][]wire.End

// AllEnded returns those that the edge knows.
func (e *Engine) AllEnded() Ended {
	out := Ended{}
	for _, r := range e.order {
		if ends := r.ended.list(nil, wire.MaxEnds); len(ends) > 0 {
			out[r.ID] = ends
		}
	}
	return out
}

// of returns how the session of a ticket ended, 0 where it did not.
func (m *ended) of(t *ticket.Ticket) wire.EndKind {
	if len(m.marks) == 0 {
		return 0
	}
	return m.covers(t.ID, t.Home, t.Until)
}

func (m *ended) covers(id uint64, home ticket.DC, until uint32) wire.EndKind {
	if e, ok := m.marks[endKey{id, home}]; ok && until <= e.until {
		return e.kind
	}
	return 0
}

// list appends the marks to out, in a fixed order, as long as there is room.
func (m *ended) list(out []wire.End, limit int) []wire.End {
	if len(m.marks) == 0 {
		return out
	}
	first := len(out)
	for k, e := range m.marks {
		if k.home != ticket.Nobody {
			out = append(out, wire.End{ID: k.id, Home: uint32(k.home), Until: e.until, Kind: e.kind, Shown: e.shown})
		}
	}
	slices.SortFunc(out[first:], func(a, b wire.End) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Home, b.Home))
	})
	return out[:min(len(out), limit)]
}

// forget drops what every live edge has reported past.
func (m *ended) forget(watermark fleettime.Time) {
	passed := func(until uint32) bool {
		return fleettime.Time(int64(until)*1000).Add(wire.EndMargin) <= watermark
	}
	if len(m.marks) == 0 || !passed(m.first) {
		return
	}
	m.first = math.MaxUint32
	for k, e := range m.marks {
		if passed(e.until) {
			delete(m.marks, k)
		} else {
			m.first = min(m.first, e.until)
		}
	}
}

// note takes note of a session that ended.
func (m *ended) note(e wire.End) {
	k := endKey{e.ID, ticket.DC(e.Home)}
	old := m.marks[k]
	if e.Until < old.until || (e.Until == old.until && e.Kind <= old.kind) {
		return
	}
	if m.marks == nil {
		m.marks = map[endKey]endMark{}
	}
	if len(m.marks) == 0 {
		m.first = e.Until
	}
	m.first = min(m.first, e.Until)
	m.marks[k] = endMark{until: e.Until, kind: e.Kind, shown: max(e.Shown, old.shown)}
}
