package main

import (
	"testing"
	"time"
)

// TestTimesOfOperators: a time without a zone is one of this machine, and a time of day is the next one.
func TestTimesOfOperators(t *testing.T) {
	nairobi := time.FixedZone("EAT", 3*60*60)
	now := time.Date(2026, 11, 25, 21, 58, 30, 0, nairobi)
	for text, want := range map[string]string{
		"now":                       "2026-11-25T21:58:30+03:00",
		"in 10m":                    "2026-11-25T22:08:30+03:00",
		"in 2d":                     "2026-11-27T21:58:30+03:00",
		"2h ago":                    "2026-11-25T19:58:30+03:00",
		"22:30":                     "2026-11-25T22:30:00+03:00",
		"21:58":                     "2026-11-26T21:58:00+03:00",
		"09:00":                     "2026-11-26T09:00:00+03:00",
		"22:30:15":                  "2026-11-25T22:30:15+03:00",
		"2026-12-01 09:00":          "2026-12-01T09:00:00+03:00",
		"2026-12-01T09:00":          "2026-12-01T09:00:00+03:00",
		"2026-12-01T09:00:00Z":      "2026-12-01T09:00:00Z",
		"2026-12-01T09:00:00+01:00": "2026-12-01T09:00:00+01:00",
		"in 10 minutes":             "2026-11-25T22:08:30+03:00",
		"in 10 mins":                "2026-11-25T22:08:30+03:00",
		"in 90 secs":                "2026-11-25T22:00:00+03:00",
		"in 2 hrs":                  "2026-11-25T23:58:30+03:00",
		"in 1 hour":                 "2026-11-25T22:58:30+03:00",
		"2 days ago":                "2026-11-23T21:58:30+03:00",
		"2026-12-01T09:00Z":         "2026-12-01T09:00:00Z",
		"in -5m":                    "",
		"in 5m ago":                 "",
		"24:00":                     "", "soon": "", "in soon": "", "tomorrow": "", "9": "", "": "", "2026-02-30 09:00": "",
	} {
		got, err := parseTime(text, now)
		if (err == nil) != (want != "") || err == nil && got.Format(time.RFC3339) != want {
			t.Errorf("%q: %v, %v, want %s", text, got, err, want)
		}
	}
}
