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
	"vestibule/internal/lab/judge"
	"vestibule/internal/lab/testkit"
)

// judgement is the result of the site's journal for the two promises.
type judgement struct {
	peak     int           // maximum of sessions
	rate     int           // maximum of admissions in any window
	admitted int           // total of sessions
	guests   int           // total of visitors
	tightest time.Duration // of most+1 admissions; 0 for fewer
	use      float64       // mean of sessions, from the first peak to the last admission
}

// judgeVisits counts visits in order of their arrival; a session lasts for session after its last request, and most may
// be admitted in a minute. It knows nothing of rooms.
func judgeVisits(visits []allinone.Visit, session time.Duration, most int) judgement {
	if len(visits) == 0 {
		return judgement{}
	}
	var all []judge.Visit
	guests := map[string]bool{}
	for _, v := range visits {
		all = append(all, judge.Visit{Sent: v.Sent.Sub(visits[0].At), At: v.At.Sub(visits[0].At), Visitor: v.Guest})
		guests[v.Guest] = true
	}
	lasted, entered := judge.Sessions(all, session, allinone.LongestSession(session))
	j := judgement{admitted: len(entered), guests: len(guests)}
	full := time.Duration(0)
	j.peak, full = judge.Most(lasted)
	j.use = judge.Use(lasted, full, all[len(all)-1].At)
	j.rate, _ = judge.MostWithin(entered, time.Minute)
	for i := most; i < len(entered); i++ {
		if d := entered[i].To - entered[i-most].To; j.tightest == 0 || d < j.tightest {
			j.tightest = d
		}
	}
	return j
}

// read returns the visits of a journal in order.
func read(t *testing.T, journal string) []allinone.Visit {
	t.Helper()
	f := testkit.Must(os.Open(journal))(t)
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
	f := testkit.Must(os.Create(file))(t)
	zero := time.Unix(1000, 0)
	for _, v := range []struct {
		at    int
		guest string
	}{{0, "a"}, {1, "b"}, {4, "a"}, {8, "c"}, {20, "a"}, {61, "d"}, {62, "e"}} {
		at := zero.Add(time.Duration(v.at) * time.Second)
		testkit.NoError(t, json.NewEncoder(f).Encode(allinone.Visit{Sent: at, At: at, Guest: v.guest}))
	}
	testkit.NoError(t, f.Close())
	got := judgeVisits(read(t, file), 5*time.Second, 3)
	// a 0-9, b 1-6, c 8-13, a again 20-25, d 61-66, e 62-67: never three at once;
	// a b c a within 60 s, and b c a d exactly 60 s apart.
	want := judgement{peak: 2, rate: 4, admitted: 6, guests: 5, tightest: 20 * time.Second, use: got.use}
	if got != want {
		t.Errorf("judged %+v, want %+v", got, want)
	}
}
