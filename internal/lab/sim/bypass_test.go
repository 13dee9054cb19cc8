package sim

import "testing"

// TestRulesLetPast: a request that matches a rule, in every reading of the path, is neither counted nor queued, no
// other passes, and the room's promises hold while the rules change.
func TestRulesLetPast(t *testing.T) {
	t.Parallel()
	past, inside := 0, 0
	for seed := range uint64(6) {
		w := New(target("rules").Draw(seed))
		if r := w.Run(); r.Fault != "" {
			t.Errorf("rules, seed %d: %s", seed, r.Fault)
		}
		past, inside = past+w.meters.past, inside+w.meters.Inside
	}
	if past < 500 || inside < 500 {
		t.Errorf("%d requests were let past, %d people were let in: this shows nothing", past, inside)
	}
}
