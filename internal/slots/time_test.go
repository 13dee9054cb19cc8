package slots

import (
	"testing"
	"time"

	"vestibule/internal/fleet"
	"vestibule/internal/wire"
)

// TestADataCentreThatForgotTheTimeIsToldIt: it had another time than the leader's
// guess; then its aggregator was replaced by one that knows none.
func TestADataCentreThatForgotTheTimeIsToldIt(t *testing.T) {
	now, wall := fleet.Mono(time.Hour), fleet.Time(1622133200_000)
	a := NewAllocator(now, AllocatorConfig{Term: wire.Term{N: 3}, Centres: []string{"dublin"}, Params: wire.DefaultParams()})
	a.SetLease(fleet.Never)
	now = now.Add(2 * timeWait)
	a.SetTime(now, wall)
	report := func(inc uint64, asOf fleet.Time) wire.Grant {
		a.Observe(now, wire.Report{From: "dublin", Inc: inc, Seq: inc, Parts: 1, Sent: 1, Seen: wire.Term{N: 3}, AsOf: asOf})
		for _, g := range a.Grants(now) {
			return g
		}
		t.Fatal("no answer")
		return wire.Grant{}
	}
	if g := report(1, wall.Add(-time.Minute)); g.AtErr != fleet.Unsynced {
		t.Errorf("who knows another time is told the leader's guess, sure to %v", g.AtErr)
	}
	if g := report(2, 0); g.AtErr == fleet.Unsynced || g.At < wall {
		t.Errorf("who knows no time is told %v, sure to %v", g.At, g.AtErr)
	}
}
