package admission

import (
	"testing"
	"time"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
)

// TestAKeptPlace: a visitor that will be told keeps its place until it is called, for a day, then for the claim time;
// any other for the grace period. Without a note of the call, the claim time begins with the first note.
func TestAKeptPlace(t *testing.T) {
	const claim = 10 * time.Minute
	hour := fleettime.Time(time.Hour.Milliseconds())
	now := day + 30*hour
	for name, tc := range map[string]struct {
		kept   bool
		claim  time.Duration
		away   time.Duration // since the last request
		called time.Duration // since the call; 0 for not
		want   bool          // lapsed
	}{
		"present":                          {true, claim, time.Minute, 0, false},
		"others, within the grace":         {false, claim, 6 * time.Minute, 0, false},
		"others, after it":                 {false, claim, 7 * time.Minute, 0, true},
		"a room that keeps none":           {true, 0, 7 * time.Minute, 0, true},
		"absent for hours, not called":     {true, claim, 5 * time.Hour, 0, false},
		"absent for more than a day":       {true, claim, 25 * time.Hour, 0, true},
		"called five minutes ago":          {true, claim, 2 * time.Hour, 5 * time.Minute, false},
		"called twelve minutes ago":        {true, claim, 2 * time.Hour, 12 * time.Minute, true},
		"present, called long ago":         {true, claim, time.Minute, 50 * time.Minute, false},
		"called before all that is noted":  {true, claim, 10 * time.Hour, 9 * time.Hour, true},
		"a long claim, called not so long": {true, time.Hour, 2 * time.Hour, 55 * time.Minute, false},
	} {
		r := &line{settings: &Room{Grace: room.DefaultGrace, Claim: tc.claim}}
		k := waiting(7, 26*time.Hour)
		k.Joined, k.Kept = now-26*hour, tc.kept
		k.Seen = uint32(now.Add(-tc.away).Second())
		for ft := now - 3*hour; ft <= now; ft += 1000 {
			cutoff := k.Joined - 1
			if tc.called > 0 && ft >= now.Add(-tc.called) {
				cutoff = k.Joined + 1
			}
			r.claims.note(ft, cutoff)
		}
		if got := r.lapsed(now, &k); got != tc.want {
			t.Errorf("%s: lapsed %v", name, got)
		}
	}
}

// TestNoLineCallsThoseWhoAreHere, and nobody who joins later.
func TestNoLineCallsThoseWhoAreHere(t *testing.T) {
	r := &line{settings: &Room{Grace: room.DefaultGrace, Claim: time.Minute}}
	r.claims.note(day, estimate.Open)
	r.claims.note(day.Add(5*time.Minute), 1)
	k := waiting(7, time.Hour)
	k.Kept, k.Seen = true, uint32(day.Second())
	for joined, want := range map[fleettime.Time]bool{day - 1000: true, day + 120_000: false} {
		if k.Joined = joined; r.lapsed(day.Add(10*time.Minute), &k) != want {
			t.Errorf("joined at %v: %v", joined, !want)
		}
	}
}

// TestWhoSleepsCountsAsWhoComes: the visitors with closed pages count as the share of them that comes when called; none
// that was called, is back or has left.
func TestWhoSleepsCountsAsWhoComes(t *testing.T) {
	a := &asleep{}
	at := func(s int) fleettime.Time { return day + fleettime.Time(s*1000) }
	people := func() float64 { return a.addTo(estimate.Histogram{{Start: day, Width: 1000, N: 5}}).Total() - 5 }
	for i := range 100 {
		if !a.put(at(0), uint64(i+1), at(i)) || a.put(at(0), uint64(i+1), at(i)) {
			t.Fatal(i)
		}
	}
	if got := people(); got != 50 {
		t.Errorf("before anybody was called: %v of 100", got)
	}
	if !a.drop(91) || a.drop(91) || a.drop(1000) {
		t.Error("one that is back is there")
	}
	if !a.call(at(60), at(40)) || a.call(at(61), at(40)) || people() != 59*0.5 {
		t.Errorf("40 are called: %v", people())
	}
	if a.drop(7) { // it was called
		t.Error("it is counted")
	}
	a.came = 9
	if a.call(at(120), at(40)); people() != 59*11.0/44 || len(a.seconds) != 59 {
		t.Errorf("9 of 40 came: %v of %d", people(), len(a.seconds))
	}
	if a.put(at(0), 2000, at(-25*3600)) {
		t.Error("a place of yesterday")
	}
}
