package region

import (
	"slices"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// sessions are the tickets that an edge reported, and the number of its newest move.
type sessions struct {
	expiries    []wire.Expiry // by second
	moves       uint64        // number of the newest move
	missed      uint64        // moves without a report in this term
	missedUntil int64         // Unix second after which no ticket of those is valid
}

// applyReport replaces the expiry seconds by those of the newest report, and counts the difference.
func (s *sessions) applyReport(c *counts, next []wire.Expiry) {
	old := s.expiries
	merged := make([]wire.Expiry, 0, len(next))
	for i, j := 0, 0; i < len(old) || j < len(next); {
		switch {
		case j == len(next) || (i < len(old) && old[i].Until < next[j].Until):
			// The edge drops a second once the watermark has passed it. A second that is not freed here stays.
			if int64(old[i].Until) >= c.freed {
				merged = append(merged, old[i])
			}
			i++
		case i == len(old) || next[j].Until < old[i].Until:
			c.add(int64(next[j].Until), int64(next[j].Stamped)-int64(next[j].Consumed))
			merged = append(merged, next[j])
			j++
		default:
			o, n := old[i], next[j]
			// Counters only grow: a smaller one is a fault and is ignored.
			n.Stamped, n.Consumed = max(n.Stamped, o.Stamped), max(n.Consumed, o.Consumed)
			c.add(int64(n.Until), int64(n.Stamped-o.Stamped)-int64(n.Consumed-o.Consumed))
			merged = append(merged, n)
			i++
			j++
		}
	}
	s.expiries = merged
}

// recordMissed records moves that a report omits: it begins with a later one. Their tickets are valid until then at
// the latest. It reports whether there are any.
func (s *sessions) recordMissed(first uint64, until int64) bool {
	if first <= s.moves+1 {
		return false
	}
	s.missed += first - s.moves - 1
	s.missedUntil = until
	s.moves = first - 1
	return true
}

// live reports whether any second still counts.
func (s *sessions) live(c *counts) bool {
	return slices.ContainsFunc(s.expiries, func(x wire.Expiry) bool { return int64(x.Until) >= c.freed })
}

// unreported returns the number of sessions without a reported move that an edge may have; its last report was of
// least or later. Each of them was stamped at least once.
func (s *sessions) unreported(c *counts, least fleettime.Time) int64 {
	if s.missedUntil < min(c.freed, least.Second()) {
		return 0
	}
	return min(int64(s.missed), s.stamped(c))
}

// stamped returns the number of tickets stamped by the edge that may be valid.
func (s *sessions) stamped(c *counts) int64 {
	n := int64(0)
	for _, x := range s.expiries {
		if int64(x.Until) >= c.freed {
			n += int64(x.Stamped)
		}
	}
	return n
}
