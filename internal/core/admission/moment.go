package admission

import (
	"time"

	"vestibule/internal/core/fleettime"
)

// moment is a clock reading with fleet time then.
type moment struct {
	now   fleettime.Mono
	time  fleettime.Time // the machine's clock before the first grant
	bound time.Duration  // uncertainty of time; fleettime.Unsynced before the first grant
}

// synced reports whether fleet time is known.
func (m *moment) synced() bool { return m.bound != fleettime.Unsynced }

// second returns the Unix second.
func (m *moment) second() uint32 { return uint32(m.time.Second()) }

// stampTime returns the second from which tickets are stamped: the lower bound of fleet time. A ticket stamped with
// an uncertain clock ends no later than one that other edges stamp now, so a wait for its end need not consider how
// long this edge was without a time source.
func (m *moment) stampTime() uint32 {
	return uint32(fleettime.Certain(m.time, m.bound).Second())
}
