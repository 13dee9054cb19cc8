package region

import (
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/wire"
)

// registry stores edges and their sessions in the roster for a successor.
type registry struct {
	params   wire.Params
	rooms    *rooms
	roster   *roster
	stored   *stored
	clock    *clock
	advanced fleettime.Mono // time of the last advance

	ceilingsUntil   int64 // Unix second until which the ceilings of a predecessor are relied on
	ceilingsChecked bool  // the time was known since, and they were dropped if it is over
}

// storeEdge stores the roster entry of an instance that gets a lease. The edge waits for it.
func (r *registry) storeEdge(e *edge) {
	e.listed, e.listedNext = false, false
	r.write(e, nil)
}

// storeEnded stores the roster entry of an instance whose lease epoch has ended, with its sessions.
func (r *registry) storeEnded(e *edge) {
	latest := fleettime.Time(0)
	if r.clock.synced(r.advanced) {
		latest = r.latest(r.advanced)
	}
	var rooms []wire.RosterRoom
	for _, acc := range e.accounts {
		if acc.counts() {
			rooms = append(rooms, acc.entry(r.advanced, latest))
		}
	}
	if e.name == wire.Gone {
		rooms = summaryRooms(rooms)
	}
	r.write(e, rooms)
}

func (r *registry) write(e *edge, rooms []wire.RosterRoom) {
	entry := wire.RosterEntry{
		Edge: e.name, Instance: e.instance, LeaseEpoch: e.leaseEpoch, Dead: e.over(), Left: e.state == left,
		Gone: slices.Clone(e.summary), Waited: e.waited, Stored: e.folder, Rooms: rooms,
	}
	e.storeVersion = r.stored.putEntry(entry, uint32(r.rooms.longestLife(r.advanced)/time.Second))
}

// lapseMargin is the time in which the last report can arrive before the edge counts as silent.
const lapseMargin = 200 * time.Millisecond

// lapseAfter is the time after its last report at which an edge's lease has ended by every clock.
func (r *registry) lapseAfter() time.Duration {
	return fleettime.Stretch(fleettime.Stretch(r.params.EdgeLease)) + lapseMargin
}

// takeoverWait is the time for which a new aggregator waits for the edges of its predecessor, which may have extended
// their leases meanwhile.
func (r *registry) takeoverWait() time.Duration { return r.lapseAfter() + ledger.OwnerLease }

// endedNow stores that an edge of a predecessor has ended by now.
func (r *registry) endedNow(now fleettime.Mono, e *edge) {
	e.ended = r.latest(now).Second() + 1
	r.stored.patchEntry(e, func(entry *wire.RosterEntry) { entry.Ended = e.ended })
}

// latest returns the upper bound of fleet time. If it is unknown, latest uses the newest time that an edge has
// reported, which may be old.
func (r *registry) latest(now fleettime.Mono) fleettime.Time {
	if t, bound := r.clock.Read(now); bound != fleettime.Unsynced {
		return t.Add(bound)
	}
	return max(r.rooms.watermark, r.roster.newestTime(now)).Add(fleettime.MaxError)
}
