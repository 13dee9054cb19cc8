package region

import (
	"vestibule/internal/core/wire"
)

// loan has the permits of a room that global lends to the data centre.
//
// Invariant: within a generation the counters only grow.
type loan struct {
	gen           uint64 // raised by global when it voids the loan
	reconstructed bool   // permits are an upper bound; see books.reconstruct
	permits       wire.Permits
}

// giveBack returns t permits of T and rate permits of R to global; none if negative. It reports whether any were
// returned.
func (h *loan) giveBack(t, rate int64) bool {
	h.permits.Sessions.Returned += uint64(max(0, t))
	h.permits.Rate.Returned += uint64(max(0, rate))
	return t > 0 || rate > 0
}

// applyGrant applies a grant of global, of the same or a newer generation. It reports whether global waits for a
// report, and whether another data centre wants idle permits.
func (h *loan) applyGrant(g *wire.RoomGrant) (news, wanted bool) {
	if news = g.Gen > h.gen; news {
		// Global has lent the permits to other data centres, long after the last report. Nothing is granted until
		// enough sessions have ended.
		h.reconstructed, h.gen = false, g.Gen
		h.permits.Reset()
	}
	more, wanted := h.permits.Apply(&g.Permits)
	news = news || more || (h.reconstructed && g.Confirmed)
	h.reconstructed = h.reconstructed && !g.Confirmed
	return news, wanted
}

// restore sets the loan to the values of global, because the own ones are lost.
func (h *loan) restore(g *wire.RoomGrant) {
	*h = loan{gen: g.Gen, reconstructed: !g.Confirmed, permits: g.Permits}
}
