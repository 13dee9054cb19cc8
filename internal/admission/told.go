package admission

import (
	"time"

	"vestibule/internal/fleet"
)

const (
	// A wait that turns out longer than was told is told so, and why, if it is
	// longer by a fifth and by a minute at least. Below that the old one stands
	// until it is true again.
	raiseFrom = time.Minute
	raisePart = 5

	// longerFor is for how long after it was raised the page says so.
	longerFor = 5 * time.Minute
)

// keepWord keeps what is told from getting worse, visit by visit: the estimate moves
// a little with every view, and somebody who waits wants to see it go down. The
// ticket carries what was told last, so that any edge can keep to it.
func (d *Decision) keepWord(ft fleet.Time) {
	t := &d.Ticket
	wait, high := time.Duration(t.Wait)*time.Second, time.Duration(t.High)*time.Second
	if t.High > 0 {
		if d.High > high+max(raiseFrom, high/raisePart) {
			t.Longer = uint32(ft.Second())
		} else {
			d.High = min(d.High, high)
			d.Wait = min(d.Wait, wait)
			d.Low = min(d.Low, d.Wait)
		}
	}
	t.Wait, t.High = wholeSeconds(d.Wait), max(1, wholeSeconds(d.High))
	d.Longer = t.Longer > 0 && ft.Second()-int64(t.Longer) < int64(longerFor/time.Second)
}

// wholeSeconds rounds up: nothing is told that is shorter than it is.
func wholeSeconds(d time.Duration) uint32 { return uint32((d + time.Second - 1) / time.Second) }
