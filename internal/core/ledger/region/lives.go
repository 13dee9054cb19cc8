package region

import (
	"vestibule/internal/core/fleettime"
)

// lives are what becomes of edges: who is awaited, heard, silent, given up or gone, what is
// presumed of whom, and what of it a successor is to know.
type lives struct {
	*registry
	silence silence
	gone    gone

	movedIn   int64          // until then tickets are valid whose sessions moved in under a predecessor
	alone     bool           // no edge is heard
	together  fleettime.Mono // when those are supposed to be back who fell silent together
	gathering bool           // until then some of them are waited for
}

// newLives returns the lives of edges, of which the parts of an aggregator tell.
func newLives(reg *registry, above int) lives {
	return lives{registry: reg, silence: silence{registry: reg}, gone: gone{above: above, rooms: reg.rooms, roster: reg.roster}}
}
