package region

import (
	"vestibule/internal/core/fleettime"
)

// lives keep the states of edges: awaited, heard, silent, given up or gone. They decide how many
// sessions are reserved for each.
type lives struct {
	*registry
	silence silence
	gone    gone

	movedIn   int64          // until then old tickets of sessions that moved in under a predecessor are valid
	alone     bool           // no edge is heard
	together  fleettime.Mono // when edges that fell silent together should be back
	gathering bool           // until then some of them are waited for
}

// newLives returns the lives of the edges of an aggregator.
func newLives(reg *registry, above int) lives {
	return lives{registry: reg, silence: silence{registry: reg}, gone: gone{above: above, rooms: reg.rooms, roster: reg.roster}}
}
