package region

import (
	"slices"
	"time"

	"vestibule/internal/core/ledger/share"
	"vestibule/internal/core/wire"
)

// accounts are those of the edges in one room, by name and instance of the edge.
type accounts []*account

// lent returns the permits that edges may use: the permits of T that are not known to be spent, and all permits of R
// that they hold.
func (as accounts) lent() (credit, rate int64) {
	for _, acc := range as {
		if acc.edge.reporting() {
			credit += max(0, acc.credit())
			rate += max(0, acc.permits.Rate.Held())
		}
	}
	return credit, rate
}

// idle returns the unused permits of T and of R at the edges, as reported.
func (as accounts) idle() (t, rate int64) {
	for _, acc := range as {
		if acc.edge.state == alive {
			t += acc.idle()
			rate += acc.rateIdleNow()
		}
	}
	return t, rate
}

// anyReserved reports whether sessions are reserved for any edge.
func (as accounts) anyReserved() bool {
	return slices.ContainsFunc(as, func(acc *account) bool {
		return !acc.reserved.none()
	})
}

// allowRenewals raises the ceilings of renewals: to twice the renewals of an edge since its last report, and at least
// to the number due there until the next answer. A session can be renewed once in [wire.RenewAfter] at most, so the
// sum of the ceilings is bounded by the possible renewals of all edges in that time and some for each edge, or by a
// fiftieth of the permits if that is more. That sum is reserved if edges fall silent. The bound is shared evenly, so
// that no edge is left without. Some are for visitors that ask at the same moment: a renewal that is refused can end a
// session early.
func allowRenewals(to []*account, sessions, held int64, life uint32) {
	sessions = max(1, sessions)
	due := int(float64(sessions) * renewAnswer.Seconds() / float64(wire.RenewAfter(life)))
	wants := make([]int, len(to))
	for i, acc := range to {
		wants[i] = int(min(int64(max(2*int(acc.renewed-acc.renewedBefore), due/len(to))+someRenewals), sessions))
	}
	bound := max(someRenewals*len(to)+due, int(held/50))
	for i, part := range share.Fill(bound, wants, nil) {
		// An edge that renewed sessions while it was isolated starts from its current counter.
		acc := to[i]
		if ceil := acc.renewed + uint64(part); ceil > acc.renewCeil {
			n, _ := acc.belowCeiling(int64(ceil-acc.renewCeil), 0)
			acc.raise(&acc.renewCeil, uint64(n))
		}
		acc.setLife(life)
	}
}

const (
	renewAnswer  = 100 * time.Millisecond // expected until an edge near its ceiling gets a higher one
	someRenewals = 4                      // of an edge beyond those due until then
)
