package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
)

// Telling is the information shown to a waiting visitor by one answer or stream message.
type Telling struct {
	At              time.Duration // by any clock
	Answer          bool          // an answer, not a stream message
	Known           bool          // there is an estimate
	Wait, Low, High time.Duration // only if Known
	Ahead           uint64        // visitors in front
	Counting        bool          // the number in front is not known yet; Ahead is meaningless
	Next            bool          // "you are next"
	Longer          bool          // it says that the wait has grown

	// In a random room: the quartiles of the wait. 0 elsewhere.
	Quartiles [3]time.Duration
}

// rises reports whether the displayed wait is longer than before.
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

// Hearing tracks the information shown to one visitor until its turn. The zero value has none.
type Hearing struct {
	answers     int
	first, last Telling       // first: the forecast to evaluate
	from        time.Duration // first is the first answer after this; 0 for any
	next        time.Duration
	nextTold    bool
	steps       int
	wait, ahead int // unannounced increases
	most        uint64
	told        []told
	corrected   bool // the first answer was corrected upwards by the second, or by a stream message before it
}

// told is a forecast and its time.
type told struct{ at, wait time.Duration }

// Anew makes the first answer from then on the one to evaluate, after a change of limits. It may repeat the earlier
// forecast if that still holds.
func (h *Hearing) Anew(from time.Duration) {
	h.first, h.from, h.told = Telling{}, from, nil
	h.nextTold = false
}

// Hear adds the next information.
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
	if t.Known && t.At >= h.from && t.Quartiles == [3]time.Duration{} {
		h.told = append(h.told, told{t.At, t.Wait})
	}
	if t.Next && !h.nextTold {
		h.nextTold, h.next = true, t.At
	}
	h.last = t
}

// Words sum up the information shown to many visitors, and the outcomes. The zero value is empty.
type Words struct {
	errs      []float64 // relative errors of the first estimate
	later     []float64 // seconds from joining to the first estimate
	inside    int       // first estimates with the wait in their range
	waited    int       // visitors that got information and entered
	next      int       // were told that they are next
	nextLong  []float64 // and then waited longer than nextGoal, in seconds
	steps     int       // information after the first answer
	wait      int       // of those, unannounced increases of the wait
	ahead     int       // unannounced increases of the number ahead
	aheadMost uint64    // largest of them
	signed    []float64 // of the first estimate: above 0 if too long
	corrected int       // visitors whose second answer corrected the first upwards

	// Visitors that got any forecast more than a minute before they entered; those whom one told more than twice their
	// wait, and less than half of it.
	long, twice, half int

	// Visitors that got a forecast ten seconds to a minute before they entered; those whom one told a wait that was off by
	// over two times and five seconds.
	near, off int

	turns []turn    // of the newest run
	late  []float64 // of earlier runs; see lateness

	// In random rooms.
	ratios []float64 // wait over the forecast median
	parts  [4]int    // waits below the first forecast quartile, between the first and the second, and so on
}

// turn is a place in the line and the time of its admission.
type turn struct {
	place fleettime.Time
	at    time.Duration
}

// lateness returns, for each admission of the newest run, the seconds by which it was later than in the strict order of
// the line: than that at the same position in the order of places.
func (w *Words) lateness() []float64 {
	line := slices.SortedFunc(slices.Values(w.turns),
		func(a, b turn) int { return cmp.Or(cmp.Compare(a.place, b.place), cmp.Compare(a.at, b.at)) })
	order := slices.SortedFunc(slices.Values(w.turns), func(a, b turn) int { return cmp.Compare(a.at, b.at) })
	out := make([]float64, len(line))
	for i, t := range line {
		out[i] = max(0, t.at-order[i].at).Seconds()
	}
	return out
}

// Late returns the lateness of which 99 % of the visitors had less.
func (w *Words) Late() float64 { return quantile(append(w.lateness(), w.late...), 0.99) }

// nextGoal is the time within which a visitor told "next" should enter.
const nextGoal = 10 * time.Second

// Entered adds the information of a visitor with a place in the line that joined at joined and entered at now.
func (w *Words) Entered(h *Hearing, place fleettime.Time, joined, now time.Duration) {
	w.turns = append(w.turns, turn{place, now})
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
	w.misled(h.told, now)
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
		if f.Low <= actual && actual <= f.High {
			w.inside++
		}
	}
}

// misled adds the forecasts of a visitor that entered at now.
func (w *Words) misled(all []told, now time.Duration) {
	long, twice, half, near, off := 0, 0, 0, 0, 0
	for _, t := range all {
		switch wait := now - t.at; {
		case wait <= 10*time.Second:
			continue
		case wait <= time.Minute:
			near = 1
			if t.wait > 2*wait+5*time.Second || t.wait < wait/2-5*time.Second {
				off = 1
			}
			continue
		case t.wait > 2*wait:
			twice = 1
		case t.wait < wait/2:
			half = 1
		}
		long = 1
	}
	w.long, w.twice, w.half, w.near, w.off = w.long+long, w.twice+twice, w.half+half, w.near+near, w.off+off
}

// MisledSoon returns the share of visitors that were told, ten seconds to a minute before they entered, a wait that was
// off by over two times and five seconds.
func (w *Words) MisledSoon() float64 { return float64(w.off) / float64(max(1, w.near)) }

// Misled returns the shares of visitors that were told, more than a minute before they entered, more than twice their
// wait, and less than half of it.
func (w *Words) Misled() (twice, half float64) {
	n := float64(max(1, w.long))
	return float64(w.twice) / n, float64(w.half) / n
}

// Add adds the counts of o.
func (w *Words) Add(o *Words) {
	w.errs, w.signed = append(w.errs, o.errs...), append(w.signed, o.signed...)
	w.later, w.nextLong = append(w.later, o.later...), append(w.nextLong, o.nextLong...)
	w.inside, w.waited, w.next = w.inside+o.inside, w.waited+o.waited, w.next+o.next
	w.steps, w.wait, w.ahead = w.steps+o.steps, w.wait+o.wait, w.ahead+o.ahead
	w.aheadMost = max(w.aheadMost, o.aheadMost)
	w.corrected += o.corrected
	w.long, w.twice, w.half, w.near, w.off = w.long+o.long, w.twice+o.twice, w.half+o.half, w.near+o.near, w.off+o.off
	w.late = append(append(w.late, o.late...), o.lateness()...)
	w.ratios = append(w.ratios, o.ratios...)
	for k, n := range o.parts {
		w.parts[k] += n
	}
}

// Error returns the median of |forecast - wait| / wait over the evaluated forecasts. In a random room no forecast of a
// single wait can be near (for waits uniform in 0 to L every number has a median error of at least 0.33): there it is
// the error of the forecast medians against the median wait.
func (w *Words) Error() float64 {
	if len(w.ratios) > 0 {
		return math.Abs(1/quantile(w.ratios, 0.5) - 1)
	}
	return quantile(w.errs, 0.5)
}

// Quarters returns the fractions of waits between the forecast quartiles, in a random room.
func (w *Words) Quarters() (out [4]float64) {
	for k, n := range w.parts {
		out[k] = float64(n) / float64(max(1, len(w.ratios)))
	}
	return out
}

// Covered returns the fraction of waits inside the first forecast range.
func (w *Words) Covered() float64 { return float64(w.inside) / float64(max(1, len(w.errs))) }

// NextInVain returns how many visitors were told "next" and then waited for more than ten seconds.
func (w *Words) NextInVain() int { return len(w.nextLong) }

// Rises returns the unannounced increases of the wait, and of the number ahead, after the first answer.
func (w *Words) Rises() (wait, ahead int) { return w.wait, w.ahead }

// Judge judges the forecasts of a crowd by the goals of docs/figures.json.
func (w *Words) Judge(crowd string, judge func(goal, of string, value float64)) {
	wait, ahead := w.Rises()
	judge("crowds: median error of the first forecast", crowd, w.Error())
	judge("crowds: waits inside the range", crowd, w.Covered())
	judge("crowds: told to be next in vain", crowd, float64(w.NextInVain()))
	judge("crowds: rises without the reason", crowd, float64(wait+ahead))
}

// String returns all figures in one line.
func (w *Words) String() string {
	s := fmt.Sprintf("%d waited; first estimate after %.1f s (p90 %.1f): error %.3f (signed %+.3f), range covers %.2f; told \"next\" %d, in vain %d",
		w.waited, quantile(w.later, 0.5), quantile(w.later, 0.9), w.Error(), quantile(w.signed, 0.5), w.Covered(), w.next,
		len(w.nextLong))
	if len(w.nextLong) > 0 {
		s += fmt.Sprintf(" (median %.0f s, most %.0f s)", quantile(w.nextLong, 0.5), quantile(w.nextLong, 1))
	}
	s += fmt.Sprintf("; of %d steps the wait rose %d times, people ahead %d times", w.steps, w.wait, w.ahead)
	if w.ahead > 0 {
		s += fmt.Sprintf(" (by %d at most)", w.aheadMost)
	}
	s += fmt.Sprintf("; first answers corrected upwards %d", w.corrected)
	if w.long > 0 {
		s += fmt.Sprintf("; of %d over a minute before they entered, told more than twice %d, less than half %d", w.long,
			w.twice, w.half)
	}
	if w.near > 0 {
		s += fmt.Sprintf("; of %d ten seconds or more before, off by over two times and 5 s %d", w.near, w.off)
	}
	if len(w.ratios) == 0 {
		s += fmt.Sprintf("; later than in the order of the line p99 %.1f s", w.Late())
	} else {
		q := w.Quarters()
		s += fmt.Sprintf("; quarters %.0f/%.0f/%.0f/%.0f %%, of one person's wait %.2f", 100*q[0], 100*q[1], 100*q[2],
			100*q[3], quantile(w.errs, 0.5))
	}
	return s
}
