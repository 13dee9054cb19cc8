package region

import (
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/wire"
)

// report is what an edge reports, and when it wrote that.
type report struct {
	*wire.Report
	earliest, latest fleettime.Time // by the clock of the edge, with its error
	timed            bool           // the edge knew the time
}

// decode notes when a report was written.
func decode(m *wire.Report) report {
	return report{Report: m, earliest: ledger.Earliest(m), latest: ledger.Latest(m), timed: ledger.IsSynced(m)}
}

// forgotten returns the answer to an edge whose books are gone: it is to end its tenure, or
// when it has, to begin anew.
func (m *report) forgotten() wire.Adoption {
	if m.Final {
		return wire.Dead
	}
	return wire.Fenced
}
