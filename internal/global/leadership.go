package global

import (
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger/root"
	"vestibule/internal/core/room"
	"vestibule/internal/core/stop"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/history"
	"vestibule/internal/node"
)

// leadership is one term in which this candidate leads. currentTerm.mu guards alloc, reports and skew.
type leadership struct {
	s     *Server
	alloc *root.Allocator
	term  wire.Term
	began fleettime.Mono

	reports map[string]*centreReport // of the data centres on themselves, by name
	skew    time.Duration            // of fleet time from this machine's clock

	alarms []string            // last logged faults of the list of data centres
	waits  node.Steady[string] // data centres logged as missing their ledgers

	history *history.Writer // nil for none

	since   stop.Memory            // of the stops
	stopped map[string][]stop.Stop // as last determined, by room, "" for those of all rooms
}

// lender identifies the term in controls.
func (l *leadership) lender() room.Lender { return room.Lender{Term: l.term.N, Nonce: l.term.Nonce} }

// stopOf returns why nobody enters any room of a data centre. The caller holds the lock.
func (l *leadership) stopOf(dc string) stop.Stop {
	for _, s := range l.stopped[""] {
		if s.Centre == dc && s.Reason != stop.Silent {
			return s
		}
	}
	return stop.Stop{}
}
