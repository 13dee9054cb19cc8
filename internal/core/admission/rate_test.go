package admission

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// TestAgesOfPermitsOfR: the reported ages of used permits of R sum to the permits in use; no age is too old, or too
// young by more than a slot and a second.
func TestAgesOfPermitsOfR(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := fleettime.Mono(rapid.Int64Range(-100e9, 1e12).Draw(t, "start"))
		r := ratePermits{Allocation: wire.Allocation{Granted: 1000}}
		var uses []fleettime.Mono // oldest first
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 9000).Draw(t, "ms")) * time.Millisecond)
			for range rapid.IntRange(0, 3).Draw(t, "uses") {
				r.idle(now)
				r.use(now)
				uses = append(uses, now)
			}
		}
		idle := r.idle(now)
		ages := r.ages(now, nil)
		uses = uses[len(uses)-int(r.Granted-idle):]
		for s, n := range ages {
			for range n {
				k := len(uses) - 1
				age := now.Sub(uses[k])
				if reported := time.Duration(s) * time.Second; reported > age || reported < age-time.Second-rateSlot {
					t.Fatalf("used %v ago, reported as %v", age, reported)
				}
				uses = uses[:k]
			}
		}
		if len(uses) > 0 {
			t.Fatalf("%d permits in use are not reported", len(uses))
		}
	})
}
