package region

import (
	"math"

	"vestibule/internal/core/fleettime"
)

// lifecycle keeps the states of edges and decides how many sessions are reserved for each.
type lifecycle struct {
	*registry
	silence   silence
	compactor compactor

	movedIn       int64          // end of the old tickets of sessions that moved in under a predecessor
	noneReporting bool           // no edge reports
	returnBy      fleettime.Mono // end of the wait for edges that fell silent together
	returning     bool           // some of them have not returned yet
	foldersAt     fleettime.Mono // the newest snapshots of edges were stored
}

// newLifecycle returns the lifecycle of the edges of an aggregator.
func newLifecycle(reg *registry, above int) lifecycle {
	return lifecycle{
		registry: reg, silence: silence{registry: reg},
		compactor: compactor{threshold: above, rooms: reg.rooms, roster: reg.roster},
	}
}

// movedInUnknown means that the store does not tell whether sessions moved in.
const movedInUnknown = math.MaxInt64
