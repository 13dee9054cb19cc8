package console

import (
	"strings"
	"testing"
)

// Every entry of the runbook says what to do, in plain text.
func TestTheRunbookIsRead(t *testing.T) {
	if len(runbook) < 20 {
		t.Fatalf("%d entries", len(runbook))
	}
	for _, a := range runbook {
		if len(a.steps) == 0 || a.steps[len(a.steps)-1].Name != "Action" {
			t.Errorf("%s: %v", a.alarm, a.steps)
		}
		for _, s := range a.steps {
			if s.Text == "" || strings.ContainsAny(s.Text, "[]`") || strings.Contains(s.Text, "Action:") {
				t.Errorf("%s: %s: %q", a.alarm, s.Name, s.Text)
			}
		}
	}
	if steps := adviceOn("the store has accepted no lease for 12 s: disk full"); len(steps) == 0 ||
		!strings.Contains(steps[0].Text, "nobody can lead") {
		t.Errorf("%v", steps)
	}
	if steps := adviceOn("something else"); steps != nil {
		t.Errorf("%v", steps)
	}
}
