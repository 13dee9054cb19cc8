package ledger

import (
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// Probe is the moment at which a grant was sent.
type Probe struct {
	Seq uint64
	At  fleettime.Mono
}

// maxProbes bounds the remembered grants whose answers have the time: some seconds of grants at a long round trip.
const maxProbes = 256

// Remember appends p; the oldest makes room.
func Remember(probes []Probe, p Probe) []Probe {
	if len(probes) == maxProbes {
		probes = probes[:copy(probes, probes[1:])]
	}
	return append(probes, p)
}

// Answered returns the round trip of the grant that m acknowledges. ok is false if m has no fleet time, or the trip
// exceeds [fleettime.LongTrip].
func Answered(probes []Probe, now fleettime.Mono, m *wire.Report) (trip time.Duration, ok bool) {
	if m.AsOf <= 0 {
		return 0, false
	}
	for _, p := range probes {
		if trip = now.Sub(p.At); p.Seq == m.Acked && trip <= fleettime.LongTrip {
			return trip, true
		}
	}
	return 0, false
}

// Trips tells a slow network from one late message: it counts the answers in a row that took longer than
// [fleettime.MaxTrip].
type Trips struct{ slow int }

// Usable notes a round trip and reports whether the time may be learned from it.
func (t *Trips) Usable(trip time.Duration) bool {
	if trip <= fleettime.MaxTrip {
		t.slow = 0
		return true
	}
	t.slow++
	return t.slow >= fleettime.SlowTrips
}
