package wire

import (
	"testing"
	"time"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
)

// firstInLine returns the view of the first visitor in line, at the time after, in a room of so many permits that was
// just full when the visitor joined.
func firstInLine(permits float64, session, after time.Duration) *View {
	const at, start = fleettime.Time(1_790_000_000_000), fleettime.Mono(time.Hour)
	life := time.Duration(Life(session)) * time.Second
	var u estimate.Turnover
	u.Observe(start, life, 0, 0)
	u.Observe(start.Add(time.Second), life, permits, permits)
	for t := 2 * time.Second; t <= after; t += time.Second {
		u.Observe(start.Add(t), life, permits, permits)
	}
	joined := at.Add(2 * time.Second)
	v := &View{
		At: at.Add(after), Cutoff: joined + 60_000, Park: joined + 60_000,
		Paces: u.Paces(estimate.Limits{Total: permits, PerMinute: 6000}),
		Line:  estimate.NewDigest(estimate.Histogram{{Start: joined, Width: 1000, N: 1}}),
	}
	return v
}

// TestNextCountsAPermitOnce: permits of R return in a burst. Once they are free, a forecast of a moment ago still has
// them as admissions: a visitor behind the burst waits for the next one, and is not next.
func TestNextCountsAPermitOnce(t *testing.T) {
	v := firstInLine(300, 20*time.Second, 23*time.Second)
	v.Free, v.Paces = 200, []estimate.Pace{{For: time.Second, Mu: 200}, {Mu: 0.01}}
	joined := v.Line.Histogram()[0].Start
	v.Line = estimate.NewDigest(estimate.Histogram{
		{Start: joined - 1000, Width: 1000, N: 220},
		{Start: joined, Width: 1000, N: 1},
	})
	if ahead := v.Place(joined, true); ahead != 20 || v.Next(joined, ahead) {
		t.Errorf("%v ahead, next %v", ahead, v.Next(joined, ahead))
	}
	if v.Free = 0; !v.Next(joined, 20) {
		t.Error("a visitor in front of a burst is not next")
	}
}

// TestTheFirstInLineSeesTheWait: the first visitor sees the wait, and "next" only if a permit will soon be free.
func TestTheFirstInLineSeesTheWait(t *testing.T) {
	for _, tt := range []struct {
		permits        float64
		session, after time.Duration
		least, most    time.Duration
		next           bool
	}{
		{1, 10 * time.Minute, 5 * time.Second, 10 * time.Minute, 15 * time.Minute, false},
		{1, 10 * time.Minute, 9 * time.Minute, 30 * time.Second, 5 * time.Minute, false},
		{1, 10 * time.Minute, 12 * time.Minute, 30 * time.Second, 8 * time.Minute, false},
		{30, 10 * time.Minute, 5 * time.Second, 9 * time.Minute, 12 * time.Minute, false},
		{300, 20 * time.Second, 5 * time.Second, 15 * time.Second, 30 * time.Second, false},
		{300, 20 * time.Second, 23 * time.Second, 0, 5 * time.Second, true},
		{300, 20 * time.Second, 40 * time.Second, 2 * time.Second, 10 * time.Second, false}, // all have stayed on
	} {
		v := firstInLine(tt.permits, tt.session, tt.after)
		joined := v.Line.Histogram()[0].Start
		for ms := fleettime.Time(0); ms < 1000; ms += 100 { // a visitor is not in front of itself
			if ahead := v.Place(joined+ms, true); ahead != 0 {
				t.Fatalf("alone, and %v ahead", ahead)
			}
		}
		wait, ok := v.Wait(v.Place(joined, true))
		if next := v.Next(joined, v.Place(joined, true)); !ok || wait < tt.least || wait > tt.most || next != tt.next {
			t.Errorf("%v permits, sessions of %v, %v after all were taken: the first waits for %v, next %v; want %v to %v, %v",
				tt.permits, tt.session, tt.after, wait, next, tt.least, tt.most, tt.next)
		}
	}
}
