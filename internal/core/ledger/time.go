package ledger

import (
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// TimeWait is how long a new leader waits for somebody who knows fleet time:
// longer than a new aggregator takes to learn it from its edges.
const TimeWait = 5 * time.Second

// TimeApart is by how much the time of a data centre must differ from the
// leader's to be another one and not the same, told late.
const TimeApart = time.Second

// Earliest returns the time that a report was written at, at the earliest; of somebody
// sure, what it says, as everybody allows for so much error.
func Earliest(m *wire.Report) fleettime.Time {
	if m.AsOfBound > fleettime.MaxError {
		return max(0, m.AsOf.Add(-min(m.AsOfBound, 24*time.Hour)))
	}
	return m.AsOf
}

// Latest returns the time that a report was written at, at the latest; of one who did not
// know the time, what it took for it.
func Latest(m *wire.Report) fleettime.Time {
	if m.AsOfBound > fleettime.MaxError && IsSynced(m) {
		return m.AsOf.Add(m.AsOfBound)
	}
	return m.AsOf
}

// IsSynced reports whether a report was written by somebody who knew the time.
func IsSynced(m *wire.Report) bool { return m.AsOf > 0 && m.AsOfBound <= fleettime.Rough }
