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

// TestTimesAroundAChangeOfClocks: an hour that comes twice is the first, in zones before and behind UTC, and one that is
// left out counts by the offset from before.
func TestTimesAroundAChangeOfClocks(t *testing.T) {
	for _, x := range []struct{ zone, text, want string }{
		{"Europe/Berlin", "2026-10-25 02:30", "2026-10-25T02:30:00+02:00"},
		{"Europe/Berlin", "2026-10-25 01:59", "2026-10-25T01:59:00+02:00"},
		{"Europe/Berlin", "2026-10-25 03:00", "2026-10-25T03:00:00+01:00"},
		{"Europe/Berlin", "2026-03-29 02:30", "2026-03-29T03:30:00+02:00"},
		{"Europe/Berlin", "2026-03-29 03:00", "2026-03-29T03:00:00+02:00"},
		{"America/New_York", "2026-11-01 01:30", "2026-11-01T01:30:00-04:00"},
		{"America/New_York", "2026-11-01 02:00", "2026-11-01T02:00:00-05:00"},
		{"America/New_York", "2026-03-08 02:30", "2026-03-08T03:30:00-04:00"},
		{"Australia/Lord_Howe", "2026-04-05 01:45", "2026-04-05T01:45:00+11:00"},
		{"Australia/Lord_Howe", "2026-10-04 02:15", "2026-10-04T02:45:00+11:00"},
		{"Pacific/Apia", "2026-12-01 09:00", "2026-12-01T09:00:00+13:00"},
	} {
		zone, err := time.LoadLocation(x.zone)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, zone)
		if got, err := parseTime(x.text, now); err != nil || got.Format(time.RFC3339) != x.want {
			t.Errorf("%s in %s: %v, %v, want %s", x.text, x.zone, got.Format(time.RFC3339), err, x.want)
		}
	}
}

// TestAnUnknownZone: a time of this machine is refused, since Go would take UTC. A time with its offset is not.
func TestAnUnknownZone(t *testing.T) {
	now := time.Date(2026, 11, 25, 21, 58, 30, 0, time.UTC)
	for zone, known := range map[string]bool{
		"Europa/Berlin": false, "CET-1CEST": false, "Europe/Berlin": true, ":Europe/Berlin": true, "": true, "UTC": true,
	} {
		t.Setenv("TZ", zone)
		for _, text := range []string{"22:30", "2026-12-01 09:00"} {
			if _, err := parseTime(text, now); (err == nil) != known {
				t.Errorf("TZ %q, %s: %v", zone, text, err)
			}
		}
		if _, err := parseTime("2026-12-01T09:00:00+01:00", now); err != nil {
			t.Errorf("TZ %q: %v", zone, err)
		}
	}
}
