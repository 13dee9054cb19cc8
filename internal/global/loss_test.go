package global

import (
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/ticket"
	"vestibule/internal/global/audit"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/lab/testkit/fakes"
)

// A store whose audit log begins anew long after the fleet was lost, for a day.
func TestALostStoreIsAnAlarm(t *testing.T) {
	made := time.Date(2026, 11, 1, 8, 0, 0, 0, time.UTC)
	ring := ticket.Keyring{Keys: []ticket.Key{{ID: uint32(made.Unix())}, {ID: uint32(made.Unix()) + 1}}}
	month := made.Add(30 * 24 * time.Hour)
	for what, c := range map[string]struct {
		ring  ticket.Keyring
		first *audit.Entry
		now   time.Time
		alarm bool
	}{
		"a new fleet":             {ring, &audit.Entry{Number: 1, At: made.Add(time.Minute)}, made.Add(time.Hour), false},
		"a lost store":            {ring, &audit.Entry{Number: 1, At: month}, month.Add(time.Minute), true},
		"a day later":             {ring, &audit.Entry{Number: 1, At: month}, month.Add(lossFor), false},
		"old entries are dropped": {ring, &audit.Entry{Number: 900, At: month}, month.Add(time.Minute), false},
		"no entry":                {ring, nil, month, false},
		"no keys":                 {ticket.Keyring{}, &audit.Entry{Number: 1, At: month}, month, false},
	} {
		got := lossAlarm(c.now, c.ring, c.first)
		if (got != "") != c.alarm || c.alarm && (!strings.Contains(got, "API tokens, webhooks") || len(got) > maxAlarmText) {
			t.Errorf("%s: %q", what, got)
		}
	}
}

func TestTheFirstEntryOfTheAuditLog(t *testing.T) {
	journal := audit.NewJournal(&fakes.Stream{})
	if e, err := firstEntry(t.Context(), journal); e != nil || err != nil {
		t.Errorf("%v, %v", e, err)
	}
	for _, name := range []string{"a", "b"} {
		testkit.NoError(t, journal.Add(t.Context(), audit.Entry{ID: name, At: time.Now(), By: audit.By{Name: name}}))
	}
	if e, err := firstEntry(t.Context(), journal); err != nil || e == nil || e.By.Name != "a" || e.Number != 1 {
		t.Errorf("%+v, %v", e, err)
	}
}
