package sim

import (
	"testing"
	"time"
)

// TestNobodyIsPutOutOfAFullRoomOfShortSessions is the room in which the ceiling of
// renewals, as a part of the rights, rounded to nothing.
func TestNobodyIsPutOutOfAFullRoomOfShortSessions(t *testing.T) {
	for _, total := range []int{50, 100, 200, 400} {
		early, use, fault := shortSessions(total, 2*time.Minute, false)
		if early > 0 || use < 0.98 || fault != "" {
			t.Errorf("T %d: %d people put out, use of T %.4f, want 0 and 0.98 or more; %s", total, early, use, fault)
		}
	}
}
