package root

import (
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// Config configures an allocator.
type Config struct {
	Term    wire.Term // fencing number; every predecessor had a lower one
	Centres []string  // names of all data centres that may hold permits, until SetMembers
	Params  wire.Params

	// Bootstrap asserts that nothing was ever lent and no ticket of any room exists: a data centre that has
	// not reported holds nothing. It holds until the report of a data centre contradicts it.
	Bootstrap bool

	// Time is fleet time at the start of the term; the zero value for unknown. It is used if no data centre
	// reports a better one.
	Time fleettime.Known
}
