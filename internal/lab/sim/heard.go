package sim

import (
	"fmt"
	"math"
	"time"
)

// Telling is what somebody who waits was told once, by an answer or by a stream.
type Telling struct {
	At              time.Duration // when, by any clock
	Answer          bool          // to a question, so not by a stream
	Known           bool          // there is an estimate
	Wait, Low, High time.Duration // only where Known
	Ahead           uint64        // people in front
	Counting        bool          // how many stand in front is not known yet: Ahead means nothing
	Next            bool          // "you are next"
	Longer          bool          // the word that the wait has grown stands beside it

	// Where chance decides who is next: the quartiles of the waits. 0 elsewhere.
	Quartiles [3]time.Duration
}

// rises reports whether the wait is told to be longer than before.
func (t *Telling) rises(before *Telling) bool {
	if !t.Known || !before.Known {
		return false
	}
	rises := t.Wait > before.Wait || t.High > before.High || t.Low > before.Low
	for k := range t.Quartiles {
		rises = rises || t.Quartiles[k] > before.Quartiles[k]
	}
	return rises
}

// Hearing follows what one visitor is told until the turn comes. The zero value
// has heard nothing.
type Hearing struct {
	answers     int
	first, last Telling       // first: the forecast that is judged
	from        time.Duration // of which answers first is one; 0 for all
	next        time.Duration
	nextTold    bool
	steps       int
	wait, ahead int // steps at which they rose without the word
	most        uint64
	through     bool // the limits were changed after something had been told
	corrected   bool // the first answer was corrected upwards by the second, or by a stream before it
}

// Anew has the first answer from then on be the one that is judged: the limits are other ones. Who waits
// needs not be told anything new, if what was told is still so.
func (h *Hearing) Anew(from time.Duration) {
	h.through = h.through || h.first.Known
	h.first, h.from = Telling{}, from
	h.nextTold = false
}

// Hear takes the next thing that the visitor is told.
func (h *Hearing) Hear(t Telling) {
	if h.answers > 0 {
		h.steps++
		l := &h.last
		wait, ahead := !t.Longer && t.rises(l), !t.Counting && !l.Counting && !t.Longer && t.Ahead > l.Ahead
		if wait {
			h.wait++
		}
		if ahead {
			h.ahead++
			h.most = max(h.most, t.Ahead-l.Ahead)
		}
		h.corrected = h.corrected || h.answers == 1 && (wait || ahead)
	}
	if t.Answer {
		h.answers++
	}
	if t.Known && !h.first.Known && (h.from == 0 || t.Answer && t.At >= h.from) {
		h.first = t
	}
	if t.Next && !h.nextTold {
		h.nextTold, h.next = true, t.At
	}
	h.last = t
}

// Words sum up what many were told, and what became of it. The zero value is of
// nobody.
type Words struct {
	errs      []float64 // of the first estimate, by what part of the wait it was wrong
	later     []float64 // seconds from joining to the first estimate
	inside    int       // of those, in the range
	waited    int       // people who heard anything and came in
	next      int       // were told that they are next
	nextLong  []float64 // and then waited longer than nextGoal, in seconds
	steps     int       // things told after the first answer
	wait      int       // of which the wait rose without the word
	ahead     int       // the same of the people ahead
	aheadMost uint64    // by how much at most
	signed    []float64 // of the first estimate: above 0 where it was too long
	corrected int       // people whose first answer the second corrected upwards

	// Of those who waited through a change of the limits.
	through       []float64
	throughInside int

	// Where chance decides who is next.
	ratios []float64 // wait over the median told
	parts  [4]int    // waits below the first quartile told, between the first and the second, and so on
}

// nextGoal is within what time somebody is to come in who was told to be next.
const nextGoal = 10 * time.Second

// Entered takes what somebody heard who came at joined and came in at now.
func (w *Words) Entered(h *Hearing, joined, now time.Duration) {
	if h.answers == 0 {
		return
	}
	w.waited++
	w.steps, w.wait, w.ahead = w.steps+h.steps, w.wait+h.wait, w.ahead+h.ahead
	w.aheadMost = max(w.aheadMost, h.most)
	if h.nextTold {
		w.next++
		if d := now - h.next; d > nextGoal {
			w.nextLong = append(w.nextLong, d.Seconds())
		}
	}
	if h.corrected {
		w.corrected++
	}
	if f := &h.first; f.Known {
		actual := now - f.At
		if q := f.Quartiles; q != [3]time.Duration{} {
			k := 0
			for k < len(q) && actual > q[k] {
				k++
			}
			w.parts[k]++
			w.ratios = append(w.ratios, max(0.1, actual.Seconds())/max(0.1, f.Wait.Seconds()))
		}
		err := (f.Wait - actual).Seconds() / max(1, actual.Seconds())
		w.errs, w.signed = append(w.errs, math.Abs(err)), append(w.signed, err)
		w.later = append(w.later, (f.At - joined).Seconds())
		inside := f.Low <= actual && actual <= f.High
		if inside {
			w.inside++
		}
		if h.through {
			if w.through = append(w.through, math.Abs(err)); inside {
				w.throughInside++
			}
		}
	}
}

// Add adds the words of others.
func (w *Words) Add(o *Words) {
	w.errs, w.signed = append(w.errs, o.errs...), append(w.signed, o.signed...)
	w.later, w.nextLong = append(w.later, o.later...), append(w.nextLong, o.nextLong...)
	w.inside, w.waited, w.next = w.inside+o.inside, w.waited+o.waited, w.next+o.next
	w.steps, w.wait, w.ahead = w.steps+o.steps, w.wait+o.wait, w.ahead+o.ahead
	w.aheadMost = max(w.aheadMost, o.aheadMost)
	w.corrected += o.corrected
	w.through, w.throughInside = append(w.through, o.through...), w.throughInside+o.throughInside
	w.ratios = append(w.ratios, o.ratios...)
	for k, n := range o.parts {
		w.parts[k] += n
	}
}

// Error returns the median of |told - wait| / wait over the forecasts that are judged. Where chance decides who is
// next, no forecast of the wait of one person can be near (where the wait is as likely to be any from 0 to L, no
// number has a median error below 0.33): there it is by how much the medians told are off the median of the waits.
func (w *Words) Error() float64 {
	if len(w.ratios) > 0 {
		return math.Abs(1/quantile(w.ratios, 0.5) - 1)
	}
	return quantile(w.errs, 0.5)
}

// Quarters returns which shares of the waits lie between the quartiles told, where chance decides who is next.
func (w *Words) Quarters() (out [4]float64) {
	for k, n := range w.parts {
		out[k] = float64(n) / float64(max(1, len(w.ratios)))
	}
	return out
}

// Corrected returns how many people's first answer was corrected upwards by the second.
func (w *Words) Corrected() int { return w.corrected }

// Covered returns the share of waits inside the range that was told first.
func (w *Words) Covered() float64 { return float64(w.inside) / float64(max(1, len(w.errs))) }

// NextInVain returns how many were told that they are next and then waited for
// more than ten seconds.
func (w *Words) NextInVain() int { return len(w.nextLong) }

// Rises returns how often the wait, and how often the number of people ahead, rose
// without the word after the first answer.
func (w *Words) Rises() (wait, ahead int) { return w.wait, w.ahead }

// String tells all figures in one line.
func (w *Words) String() string {
	s := fmt.Sprintf("%d waited; first estimate after %.1f s (p90 %.1f): error %.3f (signed %+.3f), range covers %.2f; told \"next\" %d, in vain %d",
		w.waited, quantile(w.later, 0.5), quantile(w.later, 0.9), w.Error(), quantile(w.signed, 0.5), w.Covered(), w.next, len(w.nextLong))
	if len(w.nextLong) > 0 {
		s += fmt.Sprintf(" (median %.0f s, most %.0f s)", quantile(w.nextLong, 0.5), quantile(w.nextLong, 1))
	}
	s += fmt.Sprintf("; of %d steps the wait rose %d times, people ahead %d times", w.steps, w.wait, w.ahead)
	if w.ahead > 0 {
		s += fmt.Sprintf(" (by %d at most)", w.aheadMost)
	}
	s += fmt.Sprintf("; first answers corrected upwards %d", w.corrected)
	if n := len(w.through); n > 0 {
		s += fmt.Sprintf("; of %d who waited through a change: error %.3f, range covers %.2f", n, quantile(w.through, 0.5), float64(w.throughInside)/float64(n))
	}
	if len(w.ratios) > 0 {
		q := w.Quarters()
		s += fmt.Sprintf("; quarters %.0f/%.0f/%.0f/%.0f %%, of one person's wait %.2f", 100*q[0], 100*q[1], 100*q[2], 100*q[3], quantile(w.errs, 0.5))
	}
	return s
}
