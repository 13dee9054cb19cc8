package ledger

import (
	"slices"
	"time"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/wire"
)

// Tick is how often the aggregator and the allocator look at their books when
// nothing arrives: leases lapse and seconds are freed by time alone.
const Tick = 100 * time.Millisecond

// StartupGrace is for how long a new aggregator need not say that it waits: most of it is over
// by then.
const StartupGrace = 2 * time.Second

// OwnerLease is how long a predecessor may have gone on leading after
// this term was won.
const OwnerLease = 4 * time.Second

// CrowdKept is for how long those count who were told last to wait where nothing is heard now. They
// are asked back elsewhere within half of it, and that edge tells each of them to have come, and to have
// left the window of the last question. So they count until that window drops out of its book.
const CrowdKept = time.Minute

// Remaining returns who is left of a line of which nothing was heard for so long.
func Remaining(h estimate.Histogram, silence time.Duration) estimate.Histogram {
	part := 2 * float64(CrowdKept-silence) / float64(CrowdKept)
	if part >= 1 {
		return h
	}
	if part <= 0 {
		return nil
	}
	h = slices.Clone(h)
	for i := range h {
		h[i].N *= part
	}
	return h
}

// Growth raises a cumulative counter and returns by how much.
func Growth(have *uint64, now uint64) uint64 {
	if now <= *have {
		return 0
	}
	d := now - *have
	*have = now
	return d
}

// Join appends b to a, which nobody else has. Mostly there is only one of them.
func Join(a, b []wire.Grant) []wire.Grant {
	if len(a) == 0 {
		return b
	}
	return append(a, b...)
}
