package sim

import "testing"

// TestWhoNeverComesBackHoldsUpNobody: half of a line has closed the page, and half of those do not come when called.
func TestWhoNeverComesBackHoldsUpNobody(t *testing.T) {
	t.Parallel()
	f := measured(awayUntilCalled)
	t.Log(f.Seen, f.Bound)
	if !f.Met || f.Fault != "" {
		t.Errorf("%s: %s", f.Seen, f.Fault)
	}
}
