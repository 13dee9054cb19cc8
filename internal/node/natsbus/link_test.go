package natsbus

import (
	"fmt"
	"testing"
	"time"
)

// TestLinesOfAsynchronousErrors: each text has a line a minute, with the number of those in between. The number of
// texts is bounded.
func TestLinesOfAsynchronousErrors(t *testing.T) {
	var l lines
	now := time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC)
	for i, c := range []struct {
		after time.Duration
		text  string
		more  int
		due   bool
	}{
		{0, "report", 0, true},
		{time.Second, "report", 0, false},
		{0, "copy", 0, true},
		{time.Second, "report", 0, false},
		{time.Minute, "report", 2, true},
		{time.Minute, "report", 0, true},
	} {
		now = now.Add(c.after)
		if more, due := l.note(now, c.text); more != c.more || due != c.due {
			t.Errorf("%d: %d %v, want %d %v", i, more, due, c.more, c.due)
		}
	}
	for i := range 10 * maxLines {
		l.note(now, fmt.Sprint(i))
	}
	if len(l.last) > maxLines {
		t.Errorf("%d texts are kept", len(l.last))
	}
}
