package page_test

import (
	"testing"
	"time"

	"vestibule/internal/page"
)

// Visitors of a pre-queue poll when there is news, spread over some seconds, and before the first admission by a
// draw.
func TestWhenPeopleWhoGatherAsk(t *testing.T) {
	const wait = 20 * time.Second
	start := one().Now.Add(time.Hour)
	closes := start.Add(-30 * time.Second)
	draw := func(change func(*page.Draw)) page.Event {
		e := page.Event{Start: start, End: start.Add(time.Hour), Prequeue: true, Shuffle: true, Draw: page.Draw{Commit: "7f", Closes: closes}}
		change(&e.Draw)
		return e
	}
	public := func(d *page.Draw) {
		d.Drawn = true
		d.SettlesAt(closes.Add(time.Second))
	}
	for _, tc := range []struct {
		name   string
		event  page.Event
		before time.Duration // the start
		jitter float64
		want   time.Duration
	}{
		{"no event", page.Event{}, time.Second, 0, wait},
		{"it is on", page.Event{Start: start}, time.Second, 0, wait},
		{"long before the start", page.Event{Start: start, Prequeue: true}, time.Minute, 0, wait},
		{"before the start", page.Event{Start: start, Prequeue: true}, 15 * time.Second, 0, 15 * time.Second},
		{"before the start, with chance", page.Event{Start: start, Prequeue: true}, 15 * time.Second, 1, 23 * time.Second},
		{"before entries close", draw(func(*page.Draw) {}), 40 * time.Second, 0, 13 * time.Second},
		{"before entries close, with chance", draw(func(*page.Draw) {}), 40 * time.Second, 1, 19 * time.Second},
		{"the record is late", draw(func(*page.Draw) {}), 10 * time.Second, 0, wait},
		{"the record is there", draw(public), 28 * time.Second, 0, 12 * time.Second},
		{"places are counted", draw(public), 10 * time.Second, 0, 10 * time.Second},
	} {
		if got := tc.event.Asks(start.Add(-tc.before), wait, tc.jitter); got != tc.want {
			t.Errorf("%s: after %v, want %v", tc.name, got, tc.want)
		}
	}
}
