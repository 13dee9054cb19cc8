package admission

import (
	"cmp"
	"slices"

	"vestibule/internal/fleet"
	"vestibule/internal/ticket"
	"vestibule/internal/wire"
)

// ended knows the sessions that ended before their tickets expire: it keeps a
// left one from being accepted and a moved one from being renewed. What it
// holds came from the regional, which bounds it, or from visitors who left here
// since the last report. An entry goes once the watermark has passed it.
type ended map[endKey]endMark

type endKey struct {
	id   uint64
	home ticket.DC
}

type endMark struct {
	until uint32 // tickets up to here are meant
	kind  wire.EndKind
}

// of returns how the session of a ticket ended, 0 where it did not.
func (m ended) of(t *ticket.Ticket) wire.EndKind {
	if len(m) == 0 {
		return 0
	}
	return m.covers(t.ID, t.Home, t.Until)
}

func (m ended) covers(id uint64, home ticket.DC, until uint32) wire.EndKind {
	if e, ok := m[endKey{id, home}]; ok && until <= e.until {
		return e.kind
	}
	return 0
}

// list appends the marks to out, in a fixed order, as long as there is room.
func (m ended) list(out []wire.End, limit int) []wire.End {
	if len(m) == 0 {
		return out
	}
	first := len(out)
	for k, e := range m {
		if k.home != ticket.Nobody {
			out = append(out, wire.End{ID: k.id, Home: uint32(k.home), Until: e.until, Kind: e.kind})
		}
	}
	slices.SortFunc(out[first:], func(a, b wire.End) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Home, b.Home))
	})
	return out[:min(len(out), limit)]
}

// forget drops what every live edge has reported past.
func (m ended) forget(watermark fleet.Time) {
	for k, e := range m {
		if fleet.Time(int64(e.until)*1000).Add(wire.EndMargin) <= watermark {
			delete(m, k)
		}
	}
}

// note takes note of a session that ended.
func (m *ended) note(e wire.End) {
	k := endKey{e.ID, ticket.DC(e.Home)}
	old := (*m)[k]
	if e.Until < old.until || (e.Until == old.until && e.Kind <= old.kind) {
		return
	}
	if *m == nil {
		*m = ended{}
	}
	(*m)[k] = endMark{until: e.Until, kind: e.Kind}
}
