package ledger

import (
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// TimeWait is the time for which a new leader waits for a child that knows fleet time:
// longer than a new aggregator takes to learn it from its edges.
const TimeWait = 5 * time.Second

// TimeApart is by how much the time of a data centre must differ from the
// leader's to be another one and not the same, reported late.
const TimeApart = time.Second

// Earliest returns the earliest time at which a report can have been written. The time of a child that
// knows it well is taken as it is, because every node allows for that error.
func Earliest(m *wire.Report) fleettime.Time {
	if m.AsOfBound > fleettime.MaxError {
		return max(0, m.AsOf.Add(-min(m.AsOfBound, 24*time.Hour)))
	}
	return m.AsOf
}

// Latest returns the latest time at which a report can have been written; of a child that did not know
// the time, its guess.
func Latest(m *wire.Report) fleettime.Time {
	if m.AsOfBound > fleettime.MaxError && IsSynced(m) {
		return m.AsOf.Add(m.AsOfBound)
	}
	return m.AsOf
}

// IsSynced reports whether the child knew the time when it wrote the report.
func IsSynced(m *wire.Report) bool { return m.AsOf > 0 && m.AsOfBound <= fleettime.Rough }
