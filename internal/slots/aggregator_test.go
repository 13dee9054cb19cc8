package slots_test

import (
	"testing"
	"time"

	"vestibule/internal/fleet"
	"vestibule/internal/slots"
	"vestibule/internal/wire"
)

// TestALateJoinIsNotTheEdge: an edge that was forgotten is adopted again by a
// report of its first tenure that was under way for long. What it says under a
// later tenure shows that, and it hears that it has to begin anew; it was never
// answered under its own tenure.
func TestALateJoinIsNotTheEdge(t *testing.T) {
	for _, tt := range []struct {
		final bool
		want  wire.Verdict
	}{{false, wire.Fenced}, {true, wire.Dead}} {
		now := fleet.Mono(time.Hour)
		term := wire.Term{N: 2, Nonce: 1}
		agg := slots.NewAggregator(now, slots.AggregatorConfig{DC: "dublin", Term: term, Params: wire.DefaultParams(), Bootstrap: true}, wire.Durable{})
		agg.SetLease(fleet.Never)
		last := func() wire.Verdict {
			if d, ok := agg.Unsaved(); ok {
				agg.Saved(now, d.Version)
			}
			v := wire.Verdict(99)
			for _, g := range agg.Grants(now) {
				v = g.Verdict
			}
			return v
		}
		r := wire.Report{From: "d1", Inc: 7, Tenure: 1, Seq: 2, Parts: 1, Seen: term, Join: true}
		agg.Observe(now, r)
		if v := last(); v != wire.Adopted {
			t.Fatalf("the late report is answered by %v", v)
		}
		r.Tenure, r.Seq, r.Join, r.Final = 2, 9, false, tt.final
		now = now.Add(100 * time.Millisecond)
		agg.Observe(now, r)
		if v := last(); v != tt.want {
			t.Errorf("final %v: the edge is answered by %v, want %v", tt.final, v, tt.want)
		}
	}
}
