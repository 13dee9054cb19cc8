package admission

import (
	"maps"
	"testing"

	"pgregory.net/rapid"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// TestFoldedSecondsAreNeverCountedForLess: an edge that is isolated for hours continues to stamp and supersede. Its
// reports, periodic or only at the end, never make its parent count too few sessions, at whatever second the
// watermark arrives. Unfolded seconds are exact.
func TestFoldedSecondsAreNeverCountedForLess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s sessions
		truth := map[int64]int64{} // stamped minus superseded
		parent := map[uint32]wire.Expiry{}
		last := map[int64]int64{} // truth at the newest report
		now := int64(10_000)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now += rapid.Int64Range(0, 700).Draw(t, "pause")
			until := uint32(now + 600)
			if !s.issue(until) {
				t.Fatalf("second %d cannot be counted in [%d, %d)", until, s.base, s.end)
			}
			truth[int64(until)]++
			if rapid.Bool().Draw(t, "folded") {
				s.fold(now - keptAlone)
			}
			if from := rapid.Int64Range(now+1, now+600).Draw(t, "from"); rapid.Bool().Draw(t, "renewal") {
				if !s.consume(uint32(from)) {
					t.Fatalf("second %d cannot be consumed in [%d, %d)", from, s.base, s.end)
				}
				truth[from]--
			}
			if rapid.IntRange(0, 20).Draw(t, "reported") == 0 {
				take(parent, last, &s, truth)
			}
		}
		take(parent, last, &s, truth)
		sum := func(from int64) (counted, there int64) {
			for b, e := range parent {
				if int64(b) >= from {
					counted += int64(e.Stamped) - int64(e.Consumed)
				}
			}
			for b, n := range last {
				if b >= from {
					there += n
				}
			}
			return counted, there
		}
		for from := range last {
			counted, there := sum(from)
			if counted < there {
				t.Fatalf("from second %d on %d are counted, and there are %d", from, counted, there)
			}
			if from > s.base && counted != there {
				t.Fatalf("from second %d on, after what was folded, %d are counted instead of %d", from, counted, there)
			}
		}
		s.fold(now - keptAlone)
		if n := len(s.report(nil)); n > keptAlone+601 {
			t.Fatalf("%d seconds are reported", n)
		}
		s.forget(fleettime.Time((now + 700) * 1000))
		if s.live != 0 {
			t.Fatalf("%d sessions are left over", s.live)
		}
	})
}

// take merges a report like the parent: missing seconds stay, counters grow.
func take(parent map[uint32]wire.Expiry, last map[int64]int64, s *sessions, truth map[int64]int64) {
	for _, e := range s.report(nil) {
		p := parent[e.Until]
		p.Until, p.Stamped, p.Consumed = e.Until, max(p.Stamped, e.Stamped), max(p.Consumed, e.Consumed)
		parent[e.Until] = p
	}
	maps.Copy(last, truth)
}
