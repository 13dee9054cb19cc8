package region

import (
	"vestibule/internal/core/wire"
)

// loan has the permits of a room that global lends to the data centre.
//
// Invariant: within a generation the counters only grow.
type loan struct {
	gen           uint64 // raised by global when it voids the loan
	reconstructed bool   // permits are an upper bound; see roomLedger.reconstruct
	permits       wire.Permits

	sure  wire.PermitCounts // of reconstructed permits, those that were certainly lent
	floor wire.PermitCounts // in the newest Durable
	guard wire.PermitCounts // the highest floor that may be stored: no permit below it is returned
}

// unsure returns the reconstructed permits of T and of R that may never have been lent. They are returned unused.
func (h *loan) unsure() (t, rate int64) {
	if !h.reconstructed {
		return 0, 0
	}
	return max(0, h.permits.Sessions.Held()-h.sure.Sessions), max(0, h.permits.Rate.Held()-h.sure.Rate)
}

// aboveFloor returns how many of t and rate permits may be returned now; none if negative.
func (h *loan) aboveFloor(t, rate int64) (n, r int64) {
	return min(t, h.permits.Sessions.Held()-h.guard.Sessions), min(rate, h.permits.Rate.Held()-h.guard.Rate)
}

// certain returns the permits that were certainly lent.
func (h *loan) certain() wire.PermitCounts {
	n := wire.PermitCounts{Sessions: max(0, h.permits.Sessions.Held()), Rate: max(0, h.permits.Rate.Held())}
	if h.reconstructed {
		n.Sessions, n.Rate = min(n.Sessions, h.sure.Sessions), min(n.Rate, h.sure.Rate)
	}
	return n
}

// crossesFloor reports whether the floor is too high, or is to be lowered before t and rate permits are returned.
func (h *loan) crossesFloor(t, rate int64) bool {
	n, r := h.aboveFloor(t, rate)
	lent := h.certain()
	return t > 0 && n < t || rate > 0 && r < rate || h.floor.Sessions > lent.Sessions || h.floor.Rate > lent.Rate
}

// floorWithout returns the floor once t and rate permits are returned. It leaves a part out, given by a divisor, so that
// not every return needs a lower floor.
func (h *loan) floorWithout(t, rate, part int64) wire.PermitCounts {
	n := h.certain()
	n.Sessions = max(0, min(n.Sessions, h.permits.Sessions.Held()-max(0, t)))
	n.Rate = max(0, min(n.Rate, h.permits.Rate.Held()-max(0, rate)))
	n.Sessions -= (n.Sessions + part - 1) / part
	n.Rate -= (n.Rate + part - 1) / part
	return n
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
		h.sure = wire.PermitCounts{}
	}
	more, wanted := h.permits.Apply(&g.Permits)
	news = news || more || (h.reconstructed && g.Confirmed)
	h.reconstructed = h.reconstructed && !g.Confirmed
	return news, wanted
}

// restore sets the loan to the values of global, because the own ones are lost.
func (h *loan) restore(g *wire.RoomGrant) {
	h.gen, h.reconstructed, h.permits = g.Gen, !g.Confirmed, g.Permits
	h.sure.Sessions, h.sure.Rate = min(h.sure.Sessions, h.permits.Sessions.Held()), min(h.sure.Rate, h.permits.Rate.Held())
}
