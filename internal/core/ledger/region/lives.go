package region

import (
	"vestibule/internal/core/fleettime"
)

// lifecycle keep the states of edges: awaited, heard, silent, given up or gone. They decide how many
// sessions are reserved for each.
type lifecycle struct {
	*registry
	silence silence
	compactor    compactor

	movedIn   int64          // until then old tickets of sessions that moved in under a predecessor are valid
	noneReporting     bool           // no edge is heard
	returnBy  fleettime.Mono // when edges that fell silent together should be back
	returning bool           // until then some of them are waited for
}

// newLifecycle returns the lives of the edges of an aggregator.
func newLifecycle(reg *registry, above int) lifecycle {
	return lifecycle{registry: reg, silence: silence{registry: reg}, compactor: compactor{threshold: above, rooms: reg.rooms, roster: reg.roster}}
}
