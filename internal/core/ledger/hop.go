package ledger

import (
	"slices"
	"time"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// Tick is the interval at which a ledger advances without messages: leases lapse and seconds are freed by time alone.
const Tick = 100 * time.Millisecond

// StartupGrace suppresses the alarms of a new aggregator about its waits; most waits end by then.
const StartupGrace = 2 * time.Second

// OwnerLease is how long a predecessor may still lead after this term began.
const OwnerLease = 4 * time.Second

// CrowdKept is how long the waiting visitors of a silent child still count. They are asked to return to another one
// within half of it. That edge counts each of them as returned, and as having left the window of the last question. So
// they count until that window has passed.
const CrowdKept = time.Minute

// Remaining returns the visitors that are still in a line after so long a silence of its child.
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

// Idle is how many permits of one kind a child last reported idle, and how many it had been
// granted by then.
type Idle struct{ N, Granted uint64 }

// Now returns the permits that are idle at the child, as far as known: those granted since the
// report are.
func (i Idle) Now(a *wire.Allocation) int64 { return int64(i.N) + int64(a.Granted) - int64(i.Granted) }

// Demand is what a child last reported of the visitors that want to enter there.
type Demand struct {
	Want       uint64           // permits that newcomers will need by the next report
	HeldJoined []fleettime.Time // join times of the oldest long-polled visitors, ascending
	HeldPeople uint64           // long-polled visitors; HeldJoined need not have all
	Movers     uint64           // visitors inside that wait to move their session here
	Overdue    int64            // called visitors that do not ask; see wire.RoomReport
	SiteDown   uint64           // edges at which the site does not answer
	SiteDownAt []string         // the first of them by name, from a regional
}

// DemandOf returns the demand of a report.
func DemandOf(r *wire.RoomReport) Demand {
	return Demand{
		Want: r.Want, HeldJoined: r.HeldJoined, HeldPeople: r.HeldPeople, Movers: r.Movers, Overdue: r.Overdue,
		SiteDown: r.SiteDown, SiteDownAt: r.SiteDownAt,
	}
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

// Join concatenates; a must not be shared. One of them is usually empty.
func Join(a, b []wire.Grant) []wire.Grant {
	if len(a) == 0 {
		return b
	}
	return append(a, b...)
}
