package region

import (
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/wire"
)

// report is a report of an edge, and the time at which the edge wrote it.
type report struct {
	*wire.Report
	earliest, latest fleettime.Time // by the clock of the edge, with its uncertainty
	timed            bool           // the edge knew the time
}

// decode reads the time at which a report was written.
func decode(m *wire.Report) report {
	return report{Report: m, earliest: ledger.Earliest(m), latest: ledger.Latest(m), timed: ledger.IsSynced(m)}
}
