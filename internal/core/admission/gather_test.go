package admission

import (
	"math/rand/v2"
	"testing"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
	"vestibule/internal/lab/testkit"
)

// eventAt returns an event with a draw.
func eventAt(start fleettime.Time) draw.Event {
	const id = "25756b2dfe6e378a06b033b670413757"
	return draw.Event{Room: id, ID: id, Start: start, End: start.Add(time.Hour)}
}

// announced returns the notice of a draw before its record is published, and after it, a second after the close.
func announced(t *testing.T, start fleettime.Time) (open, public *draw.Notice) {
	t.Helper()
	secret := draw.Secret{1}
	closes := start.Add(-draw.Lead)
	open = draw.Announce(closes.Add(-time.Hour), eventAt(start), secret, draw.BeaconNone)
	public = testkit.Must(open.Publish(closes.Add(time.Second), secret, nil, 290))(t)
	return open, public
}

// TestWhenVisitorsThatGatherAsk: visitors of a pre-queue ask when there is news, spread over some seconds; the first of
// the line once more shortly before the start; and all in the order of the line within two seconds of it, never later.
func TestWhenVisitorsThatGatherAsk(t *testing.T) {
	const wait = 20 * time.Second
	start := day.Add(time.Hour)
	open, public := announced(t, start)
	void := draw.Without(eventAt(start), "too late")
	between := func(least, most time.Duration) [2]time.Duration { return [2]time.Duration{least, most} }
	const s = time.Second
	for _, tc := range []struct {
		name   string
		draw   *draw.Notice
		before time.Duration // the start
		wait   time.Duration
		rank   float64
		want   [2]time.Duration
	}{
		{"long before the start", nil, time.Minute, wait, 0, between(wait, wait)},
		{"the first, before the start", nil, 15 * s, wait, 0, between(7*s, 13*s)},
		{"the last that may enter at once, before the start", nil, 15 * s, wait, 87, between(7*s, 13*s)},
		{"the first, just before the start", nil, 6 * s, wait, 0, between(6*s, 6*s)},
		{"in the middle, before the start", nil, 15 * s, wait, 100, between(15500*time.Millisecond, 15500*time.Millisecond)},
		{"the last, before the start", nil, 4 * s, wait, 199, between(4990*time.Millisecond, 5*s)},
		{"rank unknown, before the start", nil, 12 * s, wait, -1, between(12*s, 13*s)},
		{"a void draw", void, 12 * s, wait, 100, between(12500*time.Millisecond, 12500*time.Millisecond)},
		{"the start has come, but not for this clock", nil, 0, wait, 0, between(500*time.Millisecond, 500*time.Millisecond)},
		{"before entries close", open, 40 * s, wait, 0, between(13*s, 19*s)},
		{"nobody asks just after the close, before there is a record", open, 31 * s, 2 * s, 0, between(4*s, 10*s)},
		{"the record is late", open, 20 * s, wait, 0, between(3*s, 9*s)},
		{"the record does not come", open, -s, wait, 0, between(wait, wait)},
		{"the record is there", public, 28 * s, wait, 0, between(12*s, 16*s)},
		{"places are counted", public, 10 * s, wait, 100, between(10500*time.Millisecond, 10500*time.Millisecond)},
	} {
		r := newRoomState(&edge{cfg: Config{Params: wire.DefaultParams(), Rand: rand.New(rand.NewPCG(1, 2))}}, sale)
		r.settings = Room{ID: sale, Draw: tc.draw, Gather: []Span{{From: day, Until: max(start, start.Add(-tc.before))}}}
		r.line.view = &wire.View{Free: 40, Line: estimate.NewDigest(estimate.Histogram{{Start: day, Width: 1000, N: 200}})}
		if tc.draw == open && tc.before < 0 {
			r.settings.Gather[0].Until = start.Add(time.Hour)
		}
		for range 50 {
			if got := r.line.gathers(start.Add(-tc.before), tc.wait, tc.rank); got < tc.want[0] || got > tc.want[1] {
				t.Errorf("%s: after %v, want %v to %v", tc.name, got, tc.want[0], tc.want[1])
				break
			}
		}
	}
}

// TestNumbersAreKeptOnceAllAreCounted: a visitor asks after a draw before the others, who are still counted by their
// join times. The ticket does not keep the low number of that moment.
func TestNumbersAreKeptOnceAllAreCounted(t *testing.T) {
	start := day.Add(time.Hour)
	_, public := announced(t, start)
	closes := public.Closes()
	r := newRoomState(&edge{cfg: Config{Params: wire.DefaultParams(), Rand: rand.New(rand.NewPCG(1, 2))}}, sale)
	r.settings = Room{ID: sale, Draw: public, Gather: []Span{{From: day, Until: start}}}
	mine := ticket.Ticket{ID: 7, Joined: closes.Add(-time.Minute), Flags: ticket.Returned}
	mine.SetPlace(closes.Add(-20 * time.Minute))
	for _, tc := range []struct {
		name     string
		at       fleettime.Time
		drawn    float64 // of a hundred visitors, those that are counted by their drawn places
		ahead    uint64
		has      uint64 // the rank in the ticket, from 1; 0 for none
		retained uint64 // the number that the ticket keeps
	}{
		{"most have not asked", public.Published.Add(5 * time.Second), 3, 1, 0, 0},
		{"all were counted", public.Counted(), 100, 66, 67, 66},
		{"some in front have left", public.Counted().Add(time.Second), 70, 46, 67, 46},
		{"the estimate varies", public.Counted().Add(2 * time.Second), 76, 46, 67, 46},
	} {
		r.line.view = &wire.View{At: tc.at, Line: estimate.NewDigest(estimate.Histogram{
			{Start: closes.Add(-draw.Window), Width: draw.Window.Milliseconds(), N: tc.drawn},
			{Start: closes, Width: 1000, N: 100 - tc.drawn},
		})}
		d := Decision{Ticket: mine, Reason: Gathering}
		r.line.position(tc.at, &d)
		mine = d.Ticket
		if d.Ahead != tc.ahead || mine.Rank() != tc.has || uint64(max(1, mine.Ahead))-1 != tc.retained {
			t.Errorf("%s: %d in front, want %d; the ticket keeps %d and the rank %d, want %d and %d", tc.name, d.Ahead, tc.ahead,
				max(1, mine.Ahead)-1, mine.Rank(), tc.retained, tc.has)
		}
	}
}

// TestVisitorsThatDoNotComeAreOverdue: a visitor that was called ten seconds ago, before an event that may enter at its
// start, and has not asked since is overdue; not one that asked, is held or stands behind the cutoff.
func TestVisitorsThatDoNotComeAreOverdue(t *testing.T) {
	now := at(0)
	e, h := newEdge(t, now, 0, 0)
	r := stateOf(e)
	e.Clock.since = 1
	ft := e.Clock.Time(now)
	gone, polls, holds, behind := waiting(1, time.Minute), waiting(2, time.Minute), waiting(3, time.Minute),
		waiting(4, 10*time.Second)
	for _, k := range []*ticket.Ticket{&gone, &polls, &holds, &behind} {
		k.Flags = 0 // counted nowhere yet
	}
	line := estimate.NewDigest(estimate.Histogram{
		{Start: ft.Add(-time.Minute).NextSecond(), Width: 1000, N: 3},
		{Start: ft.Add(-10 * time.Second), Width: 1000, N: 1},
	})
	r.line.view = &wire.View{Cutoff: ft.Add(-30 * time.Second), Park: ft.Add(-30 * time.Second), Free: 3, Line: line}
	for _, k := range []*Visit{{Ticket: gone}, {Ticket: polls}, {Ticket: behind}} {
		d := e.Arrive(now, sale, k.Ticket)
		if k.Ticket.ID == polls.ID {
			polls = d.Ticket
		}
	}
	e.Rooms.Hold(now, &Visit{Room: sale, Ticket: e.Arrive(now, sale, holds).Ticket})
	overdue := func(after time.Duration) int64 { return h.hear(now.Add(after)).Rooms[0].Overdue }
	for s := range 11 {
		if n := overdue(time.Duration(s) * time.Second); n != 0 {
			t.Fatalf("%d overdue %d s after the call", n, s)
		}
	}
	e.Arrive(now.Add(11*time.Second), sale, polls)
	if n := overdue(14 * time.Second); n != 1 {
		t.Errorf("%d overdue, want the one that went away", n)
	}
	r.settings.Gather, r.line.view = []Span{{Until: ft.Add(time.Hour)}}, &wire.View{Free: 3, Line: line}
	for s := 15; s < 30; s++ {
		overdue(time.Duration(s) * time.Second)
		if s%5 == 0 {
			polls = e.Arrive(now.Add(time.Duration(s)*time.Second), sale, polls).Ticket
		}
	}
	if n := overdue(30 * time.Second); n != 1 {
		t.Errorf("%d overdue before the start of an event, want 1", n)
	}
}
