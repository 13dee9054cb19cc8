package sim

import "testing"

// TestRemovedRoomsAreDroppedAndComeBack runs small worlds in which the room is removed and added again, before, while
// and after nodes drop it.
func TestRemovedRoomsAreDroppedAndComeBack(t *testing.T) {
	t.Parallel()
	worlds, edges, all := 0, 0, 0
	for seed := uint64(0); worlds < 12; seed++ {
		v := Variant{Profile: Profiles[2], Seed: seed}
		c := v.Config()
		if !c.Faults.Drop {
			continue
		}
		worlds++
		w := New(c)
		if r := w.Run(); r.Fault != "" {
			t.Errorf("%s\nreplay: %s", r.Fault, v.Command())
		}
		edges, all = edges+w.operator.drops.edges, all+w.operator.drops.all
	}
	if t.Logf("%d edges had dropped the room, %d times no node had it", edges, all); edges == 0 || all == 0 {
		t.Errorf("%d edges had dropped the room, %d times no node had it", edges, all)
	}
}
