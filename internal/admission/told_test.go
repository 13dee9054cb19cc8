package admission

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"vestibule/internal/fleet"
)

// TestWhatIsToldRisesOnlyWithAWord: from one visit to the next neither the wait
// nor its upper end gets longer, unless the page says that it did; and then it did
// by much.
func TestWhatIsToldRisesOnlyWithAWord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d Decision
		now := day
		for i := range rapid.IntRange(1, 30).Draw(t, "visits") {
			now = now.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "later")) * time.Second)
			before := d
			d.Low = time.Duration(rapid.IntRange(0, 5000).Draw(t, "low")) * time.Second
			d.Wait = d.Low + time.Duration(rapid.IntRange(0, 600).Draw(t, "wait"))*time.Second
			d.High = d.Wait + time.Duration(rapid.IntRange(0, 600).Draw(t, "high"))*time.Second
			real := d
			d.keepWord(now)
			if d.Low > d.Wait || d.Wait > d.High {
				t.Fatalf("%v, between %v and %v", d.Wait, d.Low, d.High)
			}
			if d.Wait > real.Wait || d.High > real.High {
				t.Fatalf("told %v up to %v, and it is %v up to %v", d.Wait, d.High, real.Wait, real.High)
			}
			if i == 0 {
				if d.Wait != real.Wait || d.High != real.High || d.Longer {
					t.Fatalf("the first word: %+v", d)
				}
				continue
			}
			if rose := d.Wait > before.Wait+time.Second || d.High > before.High+time.Second; rose {
				if !d.Longer || int64(d.Ticket.Longer) != now.Second() {
					t.Fatalf("told %v up to %v, then %v up to %v without a word", before.Wait, before.High, d.Wait, d.High)
				}
				if d.High <= before.High+before.High/5 || d.High <= before.High+time.Minute {
					t.Fatalf("raised from %v to %v, which is not worth it", before.High, d.High)
				}
			} else if real.High > before.High*6/5+time.Minute+2*time.Second {
				t.Fatalf("%v is told although it is %v", d.High, real.High)
			}
		}
	})
}

// TestTheWordFades: the page says for five minutes that the wait has grown.
func TestTheWordFades(t *testing.T) {
	var d Decision
	tell := func(at fleet.Time, wait time.Duration) bool {
		d.Low, d.Wait, d.High = wait, wait, wait
		d.keepWord(at)
		return d.Longer
	}
	if tell(day, 10*time.Minute) || !tell(day.Add(time.Minute), 20*time.Minute) {
		t.Fatal("ten minutes that become twenty")
	}
	if !tell(day.Add(5*time.Minute), 18*time.Minute) || tell(day.Add(6*time.Minute), 18*time.Minute) {
		t.Fatal("the word is to stay for five minutes")
	}
}
