package region

import (
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/wire"
)

// uplink is the data centre's parent session, with global.
//
// Invariants: seen never goes back to a lower term, and is stored before
// anything is said or done under it; while blank nothing is free.
type uplink struct {
	leaving bool // the process was told to end

	params wire.Params

	seen     wire.Term
	promised uint64 // version of the Durable that holds seen
	joined   bool   // seen has our books, or we have its
	blank    bool   // the predecessor's books are lost, and not replaced yet

	seq    uint64
	acked  uint64
	grants wire.Parts

	members  uint64        // version of the list of data centres that seen uses
	standing wire.Standing // of this data centre, as it told

	doubting bool // seen tells another time than ours
	doubt    fleettime.Mono

	leaseEnd fleettime.Mono
	heard    fleettime.Mono // newest word of seen
	unansweredSince    fleettime.Mono // since when an answer is owed, where acked is behind seq
	reported fleettime.Mono
	due      fleettime.Mono
	busy     bool
}

// reportSoon makes the next report due after gaps of the least gap between reports.
func (u *uplink) reportSoon(now fleettime.Mono, gaps int) {
	u.due = min(u.due, max(now, u.reported.Add(time.Duration(gaps)*u.params.SyncGap)))
}

// leased reports whether this data centre is under the lease of global.
func (u *uplink) leased(now fleettime.Mono) bool { return now < u.leaseEnd }

func (u *uplink) isolated(now fleettime.Mono) bool {
	return now.Sub(u.heard) > isolation || u.unanswered(now, isolationUnanswered)
}

// endGap is how many SyncGaps lie between reports that ends alone hurry: a slot is
// waited for, and ends of a tenth of a second go together.
const endGap = 5

// reportEnds has the report to global be made soon, where there are ends to tell.
func (u *uplink) reportEnds(now fleettime.Mono, b *roomLedger) {
	if b.terminations.unreported {
		b.terminations.unreported = false
		u.reportSoon(now, endGap)
	}
}

// follow reports whether a grant is from the coordinator that the data centre follows, and
// may be used. Another one is promised to be followed first, unless it is older.
func (u *uplink) follow(now fleettime.Mono, g *wire.Grant, s *stored) bool {
	if u.seen.Fences(g.From) {
		return false
	}
	if g.From == u.seen {
		return s.saved >= u.promised
	}
	// The promise: nothing older can raise our books from here. It is stored before the
	// first word under it.
	u.seen, u.joined, u.acked, u.unansweredSince, u.grants = g.From, false, 0, now, wire.Parts{}
	u.promised = s.change(func(d *wire.Durable) { d.Promise = g.From })
	u.reportSoon(now, 0)
	return false
}

const (
	// deaf is the time without an answer after which nothing is returned: permits that go
	// to a coordinator that is not there are of no use to anybody until the next.
	unansweredWait = time.Second

	// isolation is the time without a word from global after which the data centre uses its own
	// view, or a shorter time without an answer.
	isolation       = 5 * time.Second
	isolationUnanswered = 2500 * time.Millisecond
)

// unanswered reports whether global has owed an answer for longer than d.
func (u *uplink) unanswered(now fleettime.Mono, d time.Duration) bool {
	return u.acked < u.seq && now.Sub(u.unansweredSince) > d
}

// syncTime takes the time that global tells, unless it is in doubt. It reports whether that
// corrected a guess.
func (u *uplink) syncTime(now fleettime.Mono, g *wire.Grant, c *clock, edges []*edge) (corrected bool) {
	if g.Echo != 0 && !c.prefersEdges(now, u.params.EdgeLease, edges) {
		wait := u.doubtsTime(now, c, g)
		if u.doubting {
			u.reportSoon(now, 1)
		}
		corrected = !wait && c.syncFromGrant(now, g)
	}
	if g.AtBound == fleettime.Unsynced && c.Bound(now) <= fleettime.Rough {
		u.reportSoon(now, 1) // a new leader believes our time only if it hears it at once
	}
	return corrected
}

// applyAdopted takes the books of global, where ours are lost, and applies its grants.
func (u *uplink) applyAdopted(now fleettime.Mono, g *wire.Grant, complete bool, all *rooms) {
	if u.blank {
		if !g.Baseline {
			u.reportSoon(now, 1)
			return
		}
		for i := range g.Rooms {
			b := all.open(g.Rooms[i].Room)
			b.loan.restore(&g.Rooms[i])
			b.dirty, b.stale = true, true
		}
		if !complete {
			return
		}
		u.blank = false
	}
	u.joined = true
	for i := range g.Rooms {
		if all.open(g.Rooms[i].Room).applyGrant(u.seen, &g.Rooms[i]) {
			u.reportSoon(now, 1)
		}
	}
	if complete && g.Lease > 0 && g.Echo != 0 && u.lease(now, g) {
		all.markAllStale()
	}
}

// lease prolongs the lease of global. It reports whether there was none.
func (u *uplink) lease(now fleettime.Mono, g *wire.Grant) (begins bool) {
	begins = !u.leased(now)
	u.leaseEnd = max(u.leaseEnd, g.Echo.Add(fleettime.Shrink(g.Lease)))
	return begins
}

// doubtsTime reports whether global tells another time than the fleet's, as far as we
// know that. It may be guessing, and have said so before it heard ours: our next
// report sets it right. Only if it insists, it must be us.
func (u *uplink) doubtsTime(now fleettime.Mono, c *clock, g *wire.Grant) bool {
	trip := max(0, now.Sub(g.Echo))
	ours, bound := c.Read(now)
	apart := ledger.TimeApart + min(bound, fleettime.Rough)
	if g.AtBound <= fleettime.Rough {
		apart += g.AtBound
	}
	if bound > fleettime.Rough || (g.At < ours.Add(apart) && g.At > ours.Add(-trip-apart)) {
		u.doubting = false
		return false
	}
	if !u.doubting {
		u.doubting, u.doubt = true, now
	}
	return now.Sub(u.doubt) < ledger.TimeWait
}
