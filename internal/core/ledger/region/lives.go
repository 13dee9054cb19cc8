package region

import (
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/wire"
)

// lives are what becomes of edges: who is awaited, heard, silent, given up or gone, what is
// presumed of whom, and what of it a successor is to know.
type lives struct {
	params wire.Params
	rooms  *rooms
	roster *roster
	stored *stored
	clock  *clock
	gone   gone

	movedIn   int64          // until then tickets are valid whose sessions moved in under a predecessor
	advanced  fleettime.Mono // when they were last moved to the present
	alone     bool           // no edge is heard
	together  fleettime.Mono // when those are supposed to be back who fell silent together
	gathering bool           // until then some of them are waited for
	hold      bool           // an edge may have counted what nobody has told us
	holdUntil int64          // Unix second after which nothing of lost edges can be valid
}

// enrol writes the place of an incarnation that is to get a lease on the roster; the edge
// waits for it.
func (l *lives) enrol(e *edge) { l.write(e, nil) }

// enrolOver writes an incarnation whose tenure is over on the roster, with what a successor
// has to count of it.
func (l *lives) enrolOver(e *edge) {
	latest := fleettime.Time(0)
	if l.clock.synced(l.advanced) {
		latest = l.latest(l.advanced)
	}
	var rooms []wire.RosterRoom
	for _, acc := range l.rooms.accounts(e) {
		if acc.counts() {
			rooms = append(rooms, acc.entry(l.advanced, latest))
		}
	}
	if e.name == wire.Gone {
		rooms = goneRooms(rooms)
	}
	l.write(e, rooms)
}

func (l *lives) write(e *edge, rooms []wire.RosterRoom) {
	entry := wire.RosterEntry{
		Edge: e.name, Inc: e.inc, Tenure: e.tenure, Dead: e.over(), Left: e.state == left,
		Gone: slices.Clone(e.gone), Waited: e.waited, Rooms: rooms,
	}
	e.needs = l.stored.enrol(entry, uint32(l.rooms.longestLife(l.advanced)/time.Second))
}

// latest returns what fleet time is at most, by a clock that may be wrong as far as
// it knows. Where that does not know at all, it is by the newest that any edge has
// told, which may have been under way for long.
func (l *lives) latest(now fleettime.Mono) fleettime.Time {
	if t, bound := l.clock.Read(now); bound != fleettime.Unsynced {
		return t.Add(bound)
	}
	return max(l.rooms.watermark, l.roster.newest(now)).Add(fleettime.MaxError)
}

// lapseMargin lets the last answer of a report arrive before its edge is
// taken for silent.
const lapseMargin = 200 * time.Millisecond

// lapseAfter is how long after its last report an edge's lease is over by every
// clock.
func (l *lives) lapseAfter() time.Duration {
	return fleettime.Stretch(fleettime.Stretch(l.params.EdgeLease)) + lapseMargin
}

// patience is how long after its start an aggregator waits for the edges of its
// predecessor: the predecessor may have gone on leasing to them meanwhile.
func (l *lives) patience() time.Duration { return l.lapseAfter() + ledger.OwnerLease }
