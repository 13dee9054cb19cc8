package admission

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
)

// TestTheForecastRisesOnlyWhenAnnounced: between visits neither the wait, nor its range, nor the position rises, unless
// the page explains a longer wait; and then it rose by much. Tickets are sealed between the visits.
func TestTheForecastRisesOnlyWhenAnnounced(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d Decision
		now := day
		for i := range rapid.IntRange(1, 30).Draw(t, "visits") {
			now = now.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "later")) * time.Second)
			before := d
			d.Low = time.Duration(rapid.IntRange(0, 5000).Draw(t, "low")) * time.Second
			d.Wait = d.Low + time.Duration(rapid.IntRange(0, 600_000).Draw(t, "wait"))*time.Millisecond
			d.High = d.Wait + time.Duration(rapid.IntRange(0, 600_000).Draw(t, "high"))*time.Millisecond
			d.Ahead = rapid.Uint64Range(0, 3*ticket.MaxAhead).Draw(t, "ahead")
			d.Known = rapid.IntRange(0, 9).Draw(t, "known") > 0
			real := d
			d.keepMonotone(now, 0)
			if d.Ahead > real.Ahead || (i == 0 && d.Ahead != real.Ahead) {
				t.Fatalf("shown %d ahead, and it is %d", d.Ahead, real.Ahead)
			}
			rose := before.Ticket.Ahead > 0 && d.Ahead > before.Ahead
			if d.Known {
				if d.Low > d.Wait || d.Wait > d.High {
					t.Fatalf("%v, between %v and %v", d.Wait, d.Low, d.High)
				}
				if d.Wait > real.Wait+time.Second/2 || d.High > max(time.Second, real.High+time.Second/2) || d.Low > real.Low {
					t.Fatalf("shown %v, %v to %v, and it is %v, %v to %v", d.Wait, d.Low, d.High, real.Wait, real.Low, real.High)
				}
				if kept := before.Ticket; kept.High == 0 {
					if d.Wait < real.Wait-time.Second/2 || d.High < real.High-time.Second/2 || d.Longer {
						t.Fatalf("the first word: %+v of %+v", d, real)
					}
				} else if high := time.Duration(kept.High) * time.Second; d.Wait > time.Duration(kept.Wait)*time.Second ||
					d.High > high || d.Low > kept.LowEnd() {
					rose = true
					if d.High <= high+high/5 || d.High <= high+time.Minute {
						t.Fatalf("raised from %v to %v, which is not worth it", high, d.High)
					}
				} else if real.High > high*6/5+time.Minute+2*time.Second {
					t.Fatalf("%v is shown although it is %v", d.High, real.High)
				}
			}
			if rose && (!d.Longer || int64(d.Ticket.Longer) != now.Second()) {
				t.Fatalf("shown %v up to %v, %d ahead, then %v up to %v, %d ahead, unannounced", before.Wait, before.High,
					before.Ahead, d.Wait, d.High, d.Ahead)
			}
		}
	})
}

// TestAChangeOfLimitsIsShownAtOnce: within a minute of a change a slightly longer wait is shown, with the
// explanation.
func TestAChangeOfLimitsIsShownAtOnce(t *testing.T) {
	for _, c := range []struct {
		since  time.Duration // since the change
		longer time.Duration
		raised bool
	}{
		{10 * time.Second, 5 * time.Second, true},
		{10 * time.Second, time.Second, false},
		{59 * time.Second, 30 * time.Second, true},
		{time.Minute, 30 * time.Second, false},
	} {
		var d Decision
		tell := func(at fleettime.Time, wait time.Duration) {
			d.Low, d.Wait, d.High, d.Known = wait, wait, wait, true
			d.keepMonotone(at, day)
		}
		tell(day.Add(-time.Minute), time.Minute)
		tell(day.Add(c.since), time.Minute+c.longer)
		want := time.Minute
		if c.raised {
			want += c.longer
		}
		if d.Wait != want || d.Longer != c.raised {
			t.Errorf("%v after the change, %v longer: shown %v, announced %v", c.since, c.longer, d.Wait, d.Longer)
		}
	}
}

// TestTheWordFades: the page explains a longer wait for five minutes.
func TestTheWordFades(t *testing.T) {
	var d Decision
	tell := func(at fleettime.Time, wait time.Duration) bool {
		d.Low, d.Wait, d.High, d.Known = wait, wait, wait, true
		d.keepMonotone(at, 0)
		return d.Longer
	}
	if tell(day, 10*time.Minute) || !tell(day.Add(time.Minute), 20*time.Minute) {
		t.Fatal("ten minutes that become twenty")
	}
	if !tell(day.Add(5*time.Minute), 18*time.Minute) || tell(day.Add(6*time.Minute), 18*time.Minute) {
		t.Fatal("the word is to stay for five minutes")
	}
}

// TestAHeldRequestIsShownNothing: numbers that nobody was shown do not bound those that are shown later. The line
// was still being counted when the request was held.
func TestAHeldRequestIsShownNothing(t *testing.T) {
	e, r := newEdge(t, at(0), 0, 10)
	show := func(now fleettime.Mono, ahead float64) {
		g := r.held
		g.View = view(ahead, day, day.Add(2*time.Hour))
		g.View.Version = uint64(now)
		r.room(now, g)
	}
	visitor := waiting(7, time.Minute)
	visitor.Ahead, visitor.Wait, visitor.High, visitor.Forecast = 80, 297, 330, 0
	show(at(0), 0)
	d := e.Arrive(at(0), sale, visitor)
	if d.Verdict != Hold || d.Ticket.Forecast != 0 {
		t.Fatalf("%v (%v), forecast %d; want a hold without a forecast", d.Verdict, d.Reason, d.Ticket.Forecast)
	}
	v := &Visit{Room: sale, Ticket: d.Ticket, Brought: visitor}
	e.Rooms.Hold(at(0), v)
	show(at(time.Second), 20)
	e.Rooms.GiveUp(at(time.Second), v)
	if v.Decision.Ahead != 20 || v.Decision.Ticket.Ahead != 21 {
		t.Errorf("shown %d ahead, want 20", v.Decision.Ahead)
	}
}

// TestAnEdgeThatHasJustBegunCounts: a view of a line whose earlier counts may be lost shows no number to a visitor
// that joined before this edge began, until everybody has asked again.
func TestAnEdgeThatHasJustBegunCounts(t *testing.T) {
	for _, c := range []struct {
		name     string
		since    fleettime.Time // of the view
		after    time.Duration  // since the edge began
		joined   time.Duration  // before the edge began
		counting bool
	}{
		{"unknown since when, just begun", 0, 2 * time.Second, time.Minute, true},
		{"unknown since when, everybody has asked again", 0, 28 * time.Second, time.Minute, false},
		{"unknown since when, joined here", 0, 20 * time.Second, -10 * time.Second, false},
		{"counted elsewhere all the time", day, 2 * time.Second, time.Minute, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := at(c.after)
			e, r := newEdge(t, at(0), 0, 10)
			visitor := waiting(7, c.joined)
			for lease := time.Duration(0); lease <= c.after; lease += 2 * time.Second {
				r.lease(at(lease))
			}
			g := r.held
			g.View = view(0, day, day)
			g.View.At, g.View.Since = day.Add(time.Hour+c.after), c.since
			r.room(now, g)
			d := e.Arrive(now, sale, visitor)
			if d.Verdict != Queue || d.Counting != c.counting {
				t.Errorf("%v (%v), counting %v, want %v", d.Verdict, d.Reason, d.Counting, c.counting)
			}
			if got := e.Ledger(now, sale).Partial; got != c.counting {
				t.Errorf("the room is partial: %v, want %v", got, c.counting)
			}
			if n := r.hear(now).Rooms[0].Waiting.Total(); c.since == 0 && c.joined > 0 && n != 1 {
				t.Errorf("%v wait, want the one that no other process counts", n)
			}
		})
	}
}

// TestWhoMayBeNextAsksSoonWhileOthersAreRecounted: after a restart a visitor asks again in time for the turn that it
// has if nobody else returns, and otherwise when everybody has been counted.
func TestWhoMayBeNextAsksSoonWhileOthersAreRecounted(t *testing.T) {
	for _, c := range []struct {
		ahead    float64 // of those counted; one enters in 2 s
		from, to time.Duration
	}{
		{3, 1300 * time.Millisecond, 2200 * time.Millisecond},
		{20, 7500 * time.Millisecond, 13 * time.Second},
		{1000, 15 * time.Second, 25 * time.Second},
	} {
		e, r := newEdge(t, at(0), 0, 10)
		now := at(2 * time.Second)
		r.held.View = view(c.ahead, day, day)
		r.held.View.At = day.Add(time.Hour + 2*time.Second)
		r.held.View.Since = day.Add(time.Hour)
		r.room(now, r.held)
		d := e.Arrive(now, sale, waiting(7, time.Minute))
		if !d.Counting || d.Retry < c.from || d.Retry > c.to {
			t.Errorf("%v counted in front: counting %v, asks again after %v, want between %v and %v", c.ahead, d.Counting,
				d.Retry, c.from, c.to)
		}
	}
}

// TestAFleetThatRestartsWithinASecondCountsEverybody: every process is restarted within a second, in which a visitor
// asks before and after. Tickets carry whole seconds, and the visitor is counted all the same, once, at either edge.
func TestAFleetThatRestartsWithinASecondCountsEverybody(t *testing.T) {
	for _, second := range []time.Duration{0, 5 * time.Second, 9 * time.Second} { // windows begin every ten
		for _, again := range []time.Duration{600 * time.Millisecond, 1100 * time.Millisecond, 8 * time.Second} {
			t.Run(fmt.Sprintf("%v, asks again after %v", second, again), func(t *testing.T) {
				old, _ := newEdge(t, at(second-10*time.Second), 0, 10)
				visitor := old.Arrive(at(second+100*time.Millisecond), sale, waiting(7, time.Minute)).Ticket

				begin := second + 300*time.Millisecond
				e, r := newEdge(t, at(begin), 0, 10)
				other, s := newEdge(t, at(begin), 0, 10)
				for _, r := range []*regional{r, s} {
					r.held.View = view(0, day, day)
					r.held.View.At, r.held.View.Since = day.Add(time.Hour+begin), day.Add(time.Hour+begin)
					r.room(at(begin), r.held)
				}
				asks := []time.Duration{again, again + 200*time.Millisecond, again + 12*time.Second, again + 30*time.Second}
				for i, to := range []*Engine{e, e, other, e} {
					ask := second + asks[i]
					visitor = to.Arrive(at(ask), sale, visitor).Ticket
					if n := e.Ledger(at(ask), sale).Waiting + other.Ledger(at(ask), sale).Waiting; n != 1 {
						t.Errorf("%v wait after the visitor asked %d times, want 1", n, i+1)
					}
				}
			})
		}
	}
}
