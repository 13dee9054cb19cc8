package region

import (
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/wire"
)

// registry writes edges and their sessions on the roster for a successor.
type registry struct {
	params   wire.Params
	rooms    *rooms
	roster   *roster
	stored   *stored
	clock    *clock
	advanced fleettime.Mono // when the edges were last moved to the present
}

// storeEdge writes the place of an instance that is to get a lease on the roster; the edge
// waits for it.
func (r *registry) storeEdge(e *edge) { r.write(e, nil) }

// storeEnded writes an instance whose lease epoch is over on the roster, with its sessions for a
// successor.
func (r *registry) storeEnded(e *edge) {
	latest := fleettime.Time(0)
	if r.clock.synced(r.advanced) {
		latest = r.latest(r.advanced)
	}
	var rooms []wire.RosterRoom
	for _, acc := range r.rooms.accounts(e) {
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
		Gone: slices.Clone(e.summary), Waited: e.waited, Rooms: rooms,
	}
	e.storeVersion = r.stored.putEntry(entry, uint32(r.rooms.longestLife(r.advanced)/time.Second))
}

// lapseMargin lets the last answer of a report arrive before its edge is
// taken for silent.
const lapseMargin = 200 * time.Millisecond

// lapseAfter is how long after its last report an edge's lease is over by every
// clock.
func (r *registry) lapseAfter() time.Duration {
	return fleettime.Stretch(fleettime.Stretch(r.params.EdgeLease)) + lapseMargin
}

// takeoverWait is how long after its start an aggregator waits for the edges of its
// predecessor: the predecessor may have gone on leasing to them meanwhile.
func (r *registry) takeoverWait() time.Duration { return r.lapseAfter() + ledger.OwnerLease }

// endedNow notes for all successors that an edge of a predecessor has ended by now.
func (r *registry) endedNow(now fleettime.Mono, e *edge) {
	e.ended = r.latest(now).Second() + 1
	r.stored.patchEntry(e, func(entry *wire.RosterEntry) { entry.Ended = e.ended })
}

// latest returns the latest time that fleet time can be, by the clock's own uncertainty. Where the clock
// does not know the time, the newest time that an edge has reported counts, and may be old.
func (r *registry) latest(now fleettime.Mono) fleettime.Time {
	if t, bound := r.clock.Read(now); bound != fleettime.Unsynced {
		return t.Add(bound)
	}
	return max(r.rooms.watermark, r.roster.newestTime(now)).Add(fleettime.MaxError)
}
