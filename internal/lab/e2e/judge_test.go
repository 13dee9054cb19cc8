package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"vestibule/internal/allinone"
)

// transit is the oracle's tolerance between an edge's decision and the site's clock: the promises hold at the
// edge's decision, and on the way through the proxy and two schedulers an early request may be delayed more than
// its successor. So the oracle shortens both windows: a session lasts for its duration less transit after its last
// request, and admissions are counted in 60 seconds less transit. An error of the protocol would be larger: a
// ticket's second, a lease, a minute.
const transit = 500 * time.Millisecond

// judgement is the result of the site's journal for the two promises.
type judgement struct {
	peak     int           // maximum of sessions
	rate     int           // maximum of admissions in any window
	admitted int           // total of sessions
	guests   int           // total of visitors
	tightest time.Duration // of most+1 admissions; 0 for fewer
	use      float64       // mean of sessions, from the first peak to the last admission
}

// judge counts visits in order; a session lasts for session after its last request, and most may be admitted in
// window. It knows nothing of rooms.
func judge(visits []allinone.Visit, session, window time.Duration, most int) judgement {
	var j judgement
	last := map[string]time.Time{}
	entries := []time.Time{}
	area, full, before := time.Duration(0), time.Time{}, time.Time{}
	for _, v := range visits {
		// Sessions that expired before this visit, each at its own time.
		var ends []time.Time
		for g, at := range last {
			if end := at.Add(session); !end.After(v.At) {
				ends = append(ends, end)
				delete(last, g)
			}
		}
		if !full.IsZero() {
			in := len(last) + len(ends)
			slices.SortFunc(ends, time.Time.Compare)
			for _, end := range ends {
				area += time.Duration(in) * end.Sub(before)
				before = end
				in--
			}
			area += time.Duration(in) * v.At.Sub(before)
			before = v.At
		}
		if _, in := last[v.Guest]; !in {
			entries = append(entries, v.At)
		}
		last[v.Guest] = v.At
		if len(last) > j.peak {
			j.peak, full, before, area = len(last), v.At, v.At, 0
		}
	}
	j.admitted = len(entries)
	guests := map[string]bool{}
	for _, v := range visits {
		guests[v.Guest] = true
	}
	j.guests = len(guests)
	for i, at := range entries {
		n := 1
		for i-n >= 0 && at.Sub(entries[i-n]) < window {
			n++
		}
		j.rate = max(j.rate, n)
		if i >= most {
			if d := at.Sub(entries[i-most]); j.tightest == 0 || d < j.tightest {
				j.tightest = d
			}
		}
	}
	if d := before.Sub(full); d > 0 {
		j.use = float64(area) / float64(d)
	}
	return j
}

// read returns the visits of a journal in order.
func read(t *testing.T, journal string) []allinone.Visit {
	t.Helper()
	f, err := os.Open(journal)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var visits []allinone.Visit
	for d := json.NewDecoder(f); ; {
		var v allinone.Visit
		err := d.Decode(&v)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(fmt.Errorf("journal: %w", err))
		}
		visits = append(visits, v)
	}
	slices.SortStableFunc(visits, func(a, b allinone.Visit) int { return a.At.Compare(b.At) })
	return visits
}

// TestJudge tests the oracle with a hand-made journal.
func TestJudge(t *testing.T) {
	file := t.TempDir() + "/journal"
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	zero := time.Unix(1000, 0)
	for _, v := range []struct {
		at    int
		guest string
	}{{0, "a"}, {1, "b"}, {4, "a"}, {8, "c"}, {20, "a"}, {61, "d"}, {62, "e"}} {
		if err := json.NewEncoder(f).Encode(allinone.Visit{At: zero.Add(time.Duration(v.at) * time.Second), Guest: v.guest}); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	got := judge(read(t, file), 5*time.Second, time.Minute, 3)
	// a 0-9, b 1-6, c 8-13, a again 20-25, d 61-66, e 62-67: never three at once;
	// a b c a within 60 s, and b c a d exactly 60 s apart.
	want := judgement{peak: 2, rate: 4, admitted: 6, guests: 5, tightest: 20 * time.Second, use: got.use}
	if got != want {
		t.Errorf("judged %+v, want %+v", got, want)
	}
}
