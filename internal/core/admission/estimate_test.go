package admission

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
)

// TestWhatIsToldRisesOnlyWithAWord: between visits neither the wait, nor its range, nor the position rises, unless
// the page explains a longer wait; and then it rose by much. Tickets are sealed between the visits.
func TestWhatIsToldRisesOnlyWithAWord(t *testing.T) {
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
				t.Fatalf("told %d ahead, and it is %d", d.Ahead, real.Ahead)
			}
			rose := before.Ticket.Ahead > 0 && d.Ahead > before.Ahead
			if d.Known {
				if d.Low > d.Wait || d.Wait > d.High {
					t.Fatalf("%v, between %v and %v", d.Wait, d.Low, d.High)
				}
				if d.Wait > real.Wait+time.Second/2 || d.High > max(time.Second, real.High+time.Second/2) || d.Low > real.Low {
					t.Fatalf("told %v, %v to %v, and it is %v, %v to %v", d.Wait, d.Low, d.High, real.Wait, real.Low, real.High)
				}
				if told := before.Ticket; told.High == 0 {
					if d.Wait < real.Wait-time.Second/2 || d.High < real.High-time.Second/2 || d.Longer {
						t.Fatalf("the first word: %+v of %+v", d, real)
					}
				} else if high := time.Duration(told.High) * time.Second; d.Wait > time.Duration(told.Wait)*time.Second || d.High > high || d.Low > told.LowEnd() {
					rose = true
					if d.High <= high+high/5 || d.High <= high+time.Minute {
						t.Fatalf("raised from %v to %v, which is not worth it", high, d.High)
					}
				} else if real.High > high*6/5+time.Minute+2*time.Second {
					t.Fatalf("%v is told although it is %v", d.High, real.High)
				}
			}
			if rose && (!d.Longer || int64(d.Ticket.Longer) != now.Second()) {
				t.Fatalf("told %v up to %v, %d ahead, then %v up to %v, %d ahead without a word", before.Wait, before.High, before.Ahead, d.Wait, d.High, d.Ahead)
			}
		}
	})
}

// TestAChangeOfLimitsIsToldAtOnce: within a minute of a change a slightly longer wait is shown, with the
// explanation.
func TestAChangeOfLimitsIsToldAtOnce(t *testing.T) {
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
			t.Errorf("%v after the change, %v longer: told %v, with the word %v", c.since, c.longer, d.Wait, d.Longer)
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
