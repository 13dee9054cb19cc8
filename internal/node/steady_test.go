package node

import (
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
)

// TestAFlappingStateIsReportedOnce: a state that comes and goes every second begins once, and ends after a long enough
// absence.
func TestAFlappingStateIsReportedOnce(t *testing.T) {
	var s Steady[string]
	begun, over := 0, 0
	note := func(at time.Duration, states ...string) {
		begin, end := s.Note(fleettime.Mono(at), states)
		if begun += len(begin); end {
			over++
		}
	}
	for i := range 40 {
		if i%2 == 0 {
			note(time.Duration(i)*time.Second, "rate")
		} else {
			note(time.Duration(i) * time.Second)
		}
	}
	if begun != 1 || over != 0 {
		t.Errorf("it began %d times and was over %d times", begun, over)
	}
	for i := 40; i < 120; i++ {
		note(time.Duration(i) * time.Second)
	}
	if over != 1 {
		t.Errorf("it was over %d times", over)
	}
	if note(2*time.Minute, "rate", "edge"); begun != 3 {
		t.Errorf("%d states began, want 3", begun)
	}
}
