package admission

import (
	"cmp"
	"math"
	"slices"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// stays are the sessions that are leaving this data centre, or have left it. The edge does not renew their old tickets,
// because the regional sends the session on once all edges have acknowledged that; it serves them while the session
// counts elsewhere. The regional bounds the entries. One expires once the watermark has passed it.
type stays struct {
	byID  map[uint64]wire.Stay
	first uint32 // no entry ends earlier
}

// marks reports whether the ticket of a session of this data centre is not renewed; newest is the newest expiry second
// of the session that the edge knows.
func (ss *stays) marks(id uint64, newest uint32) bool {
	if len(ss.byID) == 0 {
		return false
	}
	s, ok := ss.byID[id]
	return ok && newest <= s.Marked
}

// elsewhere returns where a session that left is counted, and until when; 0 for unknown.
func (ss *stays) elsewhere(id uint64) (home ticket.DC, until uint32) {
	if len(ss.byID) == 0 {
		return 0, 0
	}
	s := ss.byID[id]
	return ticket.DC(s.Home), s.Until
}

// put records that a session leaves or has left.
func (ss *stays) put(s wire.Stay) {
	if ss.byID == nil {
		ss.byID = map[uint64]wire.Stay{}
	}
	if len(ss.byID) == 0 {
		ss.first = math.MaxUint32
	}
	if old, ok := ss.byID[s.ID]; ok {
		s.Marked = max(s.Marked, old.Marked)
		if s.Until < old.Until {
			s.Home, s.Until = old.Home, old.Until
		}
	}
	ss.byID[s.ID] = s
	ss.first = min(ss.first, max(s.Marked, s.Until))
}

// remove records that a session is here.
func (ss *stays) remove(id uint64) { delete(ss.byID, id) }

// list returns the entries in a fixed order, at most wire.MaxAsks: those that end last.
func (ss *stays) list(out []wire.Stay) []wire.Stay {
	first := len(out)
	for _, s := range ss.byID {
		out = append(out, s)
	}
	slices.SortFunc(out[first:], func(a, b wire.Stay) int {
		return cmp.Or(cmp.Compare(b.Marked, a.Marked), cmp.Compare(a.ID, b.ID))
	})
	return out[:min(len(out), first+wire.MaxAsks)]
}

// asEnds appends the sessions of this data centre that have left, as revocations of their old tickets.
func (ss *stays) asEnds(out []wire.End, here ticket.DC) []wire.End {
	for _, s := range ss.list(nil) {
		if s.Marked != 0 && s.Until != 0 && len(out) < wire.MaxEnds {
			out = append(out, wire.End{ID: s.ID, Home: uint32(here), Until: s.Marked, Kind: wire.Moved})
		}
	}
	return out
}

// forget drops the entries that every live edge has reported past.
func (ss *stays) forget(watermark fleettime.Time) {
	passed := func(until uint32) bool {
		return fleettime.Time(int64(until)*1000).Add(wire.EndMargin) <= watermark
	}
	if len(ss.byID) == 0 || !passed(ss.first) {
		return
	}
	ss.first = math.MaxUint32
	for id, s := range ss.byID {
		if end := max(s.Marked, s.Until); passed(end) {
			delete(ss.byID, id)
		} else {
			ss.first = min(ss.first, end)
		}
	}
}
