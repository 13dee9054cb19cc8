package global

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"vestibule/internal/lab/testkit"
)

// TestLateNotificationsAreAnAlarm of the leader: while it calls visitors, and no notifier works or one message waits
// for long.
func TestLateNotificationsAreAnAlarm(t *testing.T) {
	var oldest time.Time
	var away error
	s := &Server{Options: Options{Outbox: func(context.Context) (time.Time, error) { return oldest, away }}}
	now := time.Now()
	heard := now
	look := func(want string, after time.Duration, calls bool) {
		t.Helper()
		now = now.Add(after)
		s.lookAtOutbox(testkit.Within(t), now, &heard, calls)
		if got := *s.late.Load(); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	hear := func() {
		t.Helper()
		testkit.NoError(t, s.candidates.hearNotifier([]byte(`{"name":"notifier-1"}`), now))
	}
	look("", 0, true)
	look("", noneAfter-1, true)
	look("no notifier works", 1, true)
	look("", time.Hour, false) // it calls nobody
	look("", noneAfter-1, true)
	hear()
	look("", noneAfter-1, true)
	look("no notifier works", 1, true)
	hear()
	look("", 1, true)
	oldest = now
	look("", noneAfter-2, true)
	hear()
	oldest = now.Add(1 - lateAfter)
	look("", 0, true)
	look("the oldest has waited for 6m0s", 1, true)
	away = errors.New("away")
	look("the oldest has waited", 1, true)
	away, oldest = nil, time.Time{}
	look("", 1, true)
}
