package admission

import (
	"cmp"
	"math"
	"slices"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// ended holds sessions that were revoked before their tickets expire: visitors that left must not be served, and
// migrated sessions must not be renewed. Its entries come from the regional, which bounds them, or from visitors
// that left here since the last report. An entry expires once the watermark has passed it.
type ended struct {
	marks map[endKey]endMark
	first uint32 // no mark has an earlier second
}

type endKey struct {
	id   uint64
	home ticket.DC
}

type endMark struct {
	until uint32 // applies to tickets that expire until then
	shown uint32 // as in wire.End
	kind  wire.EndKind
}

// of returns how a ticket's session was revoked, or 0.
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

// list appends the marks to out in a fixed order, up to limit.
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

// forget drops the marks that every live edge has reported past.
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

// note records a revoked session.
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

// reject records a session or place that only this edge rejects, if there is space.
func (m *ended) reject(e wire.End) {
	if len(m.marks) < 2*wire.MaxEnds {
		m.note(e)
	}
}
