package region

import (
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// uplink is the session with global.
//
// Invariants: seen never returns to a lower term, and is stored before any message or action under it; while blank
// nothing is free.
type uplink struct {
	leaving bool // the process is shutting down

	params wire.Params

	seen     wire.Term
	promised uint64 // version of the Durable with seen
	before   uint64 // newest report before the promise: global answers later ones by what it knows of seen
	joined   bool   // both sides have the same ledger
	whole    uint64 // first report to the coordinator of seen without an awaited edge; 0 for none yet
	blank    bool   // the predecessor's ledger is lost and not replaced yet

	seq    uint64
	acked  uint64
	grants wire.Parts

	members  uint64        // version of the list of data centres at seen
	standing wire.Standing // of this data centre at seen

	tells      bool            // the coordinator of seen names memberships
	membership wire.Membership // the one that it named last; 0 for none
	granted    wire.Membership // the one of its newest complete grant

	doubting bool // the time of seen differs
	doubt    fleettime.Mono

	leaseEnd        fleettime.Mono
	heard           fleettime.Mono // arrival of the newest message of seen
	parent          wire.Reader    // the coordinator
	unansweredSince fleettime.Mono // time of the oldest unanswered report, if acked < seq
	reported        fleettime.Mono
	due             fleettime.Mono
	busy            bool
}

// reportSoon makes the next report due after the given number of intervals Params.SyncGap.
func (u *uplink) reportSoon(now fleettime.Mono, gaps int) {
	u.due = min(u.due, max(now, u.reported.Add(time.Duration(gaps)*u.params.SyncGap)))
}

// recalls reports whether the coordinator of seen must get a report at once when permits of R were used: it ignores
// that while edges are awaited.
func (u *uplink) recalls() bool { return u.whole > u.acked }

// leased reports whether this data centre has the lease of global.
func (u *uplink) leased(now fleettime.Mono) bool { return now < u.leaseEnd }

func (u *uplink) isolated(now fleettime.Mono) bool {
	return now.Sub(u.heard) > isolation || u.unanswered(now, isolationUnanswered)
}

// endGap is the number of intervals Params.SyncGap before a report that only ended sessions or overdue visitors cause: a
// visitor waits for the slot, and changes within a tenth of a second share a report.
const endGap = 5

// reportEnds makes the next report due soon if there are ends to report.
func (u *uplink) reportEnds(now fleettime.Mono, b *roomLedger) {
	if b.terminations.unreported {
		b.terminations.unreported = false
		u.reportSoon(now, endGap)
	}
}

// follow reports whether a grant is from the coordinator that the data centre follows, and can be applied. A newer
// coordinator is promised to be followed first.
func (u *uplink) follow(now fleettime.Mono, g *wire.Grant, s *stored) bool {
	if u.seen.Fences(g.From) {
		return false
	}
	if g.From == u.seen {
		return s.saved >= u.promised
	}
	// The promise: no grant of an older term can raise the permits from here on. It is stored before the first
	// message under it.
	u.seen, u.joined, u.acked, u.unansweredSince, u.grants = g.From, false, 0, now, wire.Parts{}
	u.granted = 0
	u.before, u.whole = u.seq, 0
	u.promised = s.change(func(d *wire.Durable) { d.Promise = g.From })
	u.reportSoon(now, 0)
	return false
}

const (
	// unansweredWait is the time without an answer after which no permit is returned: nobody could use it
	// until global is back.
	unansweredWait = time.Second

	// isolation is the time without a message of global after which the data centre uses its own view.
	// isolationUnanswered is the same for an unanswered report.
	isolation           = 5 * time.Second
	isolationUnanswered = 2500 * time.Millisecond
)

// unanswered reports whether a report has been unanswered for longer than d.
func (u *uplink) unanswered(now fleettime.Mono, d time.Duration) bool {
	return u.acked < u.seq && now.Sub(u.unansweredSince) > d
}

// syncTime applies the time of global, unless it is in doubt. It reports whether that corrected a guess.
func (u *uplink) syncTime(now fleettime.Mono, g *wire.Grant, c *clock, edges []*edge) (corrected bool) {
	if g.Echo != 0 && !c.prefersEdges(now, u.params.EdgeLease, edges) {
		wait := u.doubtsTime(now, c, g)
		if u.doubting {
			u.reportSoon(now, 1)
		}
		corrected = !wait && c.syncFromGrant(now, g)
	}
	if g.AtBound == fleettime.Unsynced && c.Bound(now) <= fleettime.Rough {
		u.reportSoon(now, 1) // a new leader uses this time only if it gets it at once
	}
	return corrected
}

// applyAdopted applies grants of global under the common ledger. It takes the ledger of global if the own one is
// lost.
func (u *uplink) applyAdopted(now fleettime.Mono, g *wire.Grant, complete bool, all *rooms) {
	if u.blank {
		if !g.Baseline {
			u.reportSoon(now, 1)
			return
		}
		for i := range g.Rooms {
			b := all.open(g.Rooms[i].Room)
			b.loan.restore(&g.Rooms[i])
			b.voided = g.Rooms[i].Gen > 0 // perhaps; the predecessor knew
			b.restoreMoves(&g.Rooms[i])
			b.dirty, b.stale = true, true
		}
		if !complete {
			return
		}
		u.blank = false
	}
	u.joined = true
	for i := range g.Rooms {
		if g.Rooms[i].Drop {
			u.drop(now, all, g.Rooms[i].Room)
		} else if all.open(g.Rooms[i].Room).applyGrant(now, u.seen, &g.Rooms[i]) {
			u.reportSoon(now, 1)
		}
	}
	if complete && g.Lease > 0 && g.Echo != 0 && u.lease(now, g) {
		all.markAllStale()
	}
}

// lease extends the lease of global. It reports whether there was none.
func (u *uplink) lease(now fleettime.Mono, g *wire.Grant) (begins bool) {
	begins = !u.leased(now)
	u.leaseEnd = max(u.leaseEnd, g.Echo.Add(fleettime.Shrink(g.Lease)))
	return begins
}

// doubtsTime reports whether the time of global differs from fleet time, as far as known. Global may be guessing,
// from before it received the time of this data centre; the next report corrects it. If global persists, the own time
// is wrong.
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

// drop handles wire.RoomGrant.Drop of global, which knows the newest counters if it has acknowledged them.
func (u *uplink) drop(now fleettime.Mono, all *rooms, id room.ID) {
	b := all.byID[id]
	switch {
	case b == nil:
	case b.gone && b.removed && !b.dirty && b.changedAt <= u.acked && len(b.accounts) == 0:
		delete(all.byID, id)
		all.list = slices.DeleteFunc(all.list, func(o *roomLedger) bool { return o == b })
	default:
		b.dirty = true // the next report has the room
		u.reportSoon(now, 1)
	}
}
