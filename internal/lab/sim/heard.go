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
}

// Hearing follows what one visitor is told until the turn comes. The zero value
// has heard nothing.
type Hearing struct {
	answers     int
	first, last Telling // first: the first with an estimate
	next        time.Duration
	nextTold    bool
	steps       int
	wait, ahead int // steps at which they rose without the word
	most        uint64
}

// Hear takes the next thing that the visitor is told. Steps count once two answers
// have come: the visitor is counted among those who wait with the second.
func (h *Hearing) Hear(t Telling) {
	if h.answers >= 2 {
		h.steps++
		l := &h.last
		if t.Known && l.Known && !t.Longer && (t.Wait > l.Wait || t.High > l.High || t.Low > l.Low) {
			h.wait++
		}
		if !t.Counting && !l.Counting && !t.Longer && t.Ahead > l.Ahead {
			h.ahead++
			h.most = max(h.most, t.Ahead-l.Ahead)
		}
	}
	if t.Answer {
		h.answers++
	}
	if t.Known && !h.first.Known {
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
	steps     int       // things told after the second answer
	wait      int       // of which the wait rose without the word
	ahead     int       // the same of the people ahead
	aheadMost uint64    // by how much at most
	signed    []float64 // of the first estimate: above 0 where it was too long
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
	if f := &h.first; f.Known {
		actual := now - f.At
		err := (f.Wait - actual).Seconds() / max(1, actual.Seconds())
		w.errs, w.signed = append(w.errs, math.Abs(err)), append(w.signed, err)
		w.later = append(w.later, (f.At - joined).Seconds())
		if f.Low <= actual && actual <= f.High {
			w.inside++
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
}

// Error returns the median of the first estimates' errors, as parts of the waits.
func (w *Words) Error() float64 { return quantile(w.errs, 0.5) }

// Covered returns the share of waits inside the range that was told first.
func (w *Words) Covered() float64 { return float64(w.inside) / float64(max(1, len(w.errs))) }

// NextInVain returns how many were told that they are next and then waited for
// more than ten seconds.
func (w *Words) NextInVain() int { return len(w.nextLong) }

// Rises returns how often the wait, and how often the number of people ahead, rose
// without the word after the second answer.
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
	return s
}
