package admission

import (
	"time"

	"vestibule/internal/draw"
	"vestibule/internal/fleet"
	"vestibule/internal/line"
	"vestibule/internal/ticket"
	"vestibule/internal/wire"
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

// position tells where the visitor stands by view v (nil for none yet), for how long, and
// when to ask again.
func (e *edge) position(ft fleet.Time, v *wire.View, d *Decision) {
	t := &d.Ticket
	back := t.Flags&ticket.Returned != 0
	p := &e.cfg.Params
	d.Retry, d.Counting = p.Refresh, v == nil
	first := v == nil
	if v != nil && len(v.Rounds) > 0 && d.Reason != Gathering && d.Reason != QueuedAll {
		d.byLot(ft, v)
	} else if v != nil {
		place := v.Place(t.Place(), back)
		d.Ahead = uint64(max(0, place) + 0.5)
		d.Waiting = uint64(v.Waiting() + 0.5)
		first = d.Ahead == 0
		if d.Reason == Gathering {
			d.Counting = false // how long it takes is told from the start on
		} else if d.Counting = counting(ft, v, t); !d.Counting {
			if d.Wait, d.Known = v.Wait(place); d.Known {
				d.Low, d.High = v.Ranges.Of(d.Wait)
				d.Next = v.Next(t.Place(), place)
			}
			d.keepMonotone(ft)
			d.forecast(ft)
		}
	}
	if first || (!back && !t.Uncounted) { // who has yet to be counted is to be soon
		d.Retry = p.Nearest
	} else if d.Known {
		d.Retry = min(max(d.Wait/4, p.Nearest), p.Refresh)
	}
	if d.Reason == Closed || d.Reason == QueuedAll || d.Reason == Rejected || (d.Reason == Gathering && (back || t.Uncounted)) {
		d.Retry = p.Refresh
	}
	if d.Reason == Isolated || d.Reason == Unsure || d.Reason == OriginDown || d.Reason == Drains {
		d.Retry = p.Nearest * 2
	}
	// A quarter of jitter either way, so that polls do not come in herds.
	d.Retry = d.Retry*3/4 + time.Duration(e.cfg.Rand.Int64N(int64(d.Retry)/2+1))
}

// byLot tells what there is to tell where chance decides who is next: how many wait, and by when so many parts of them are in. It is
// told anew each time. Nobody comes nearer to the turn by waiting, so nothing is kept from growing.
func (d *Decision) byLot(ft fleet.Time, v *wire.View) {
	t := &d.Ticket
	untell(t) // it binds nobody
	d.Waiting = uint64(v.Waiting() + 0.5)
	d.Counting = !v.Waits.Known() && ft.Sub(t.Joined) <= countFor
	if !v.Waits.Known() {
		return
	}
	w := v.Waits
	start := draw.StartOf(v.At)
	if t.Joined >= start { // takes part from the next round on
		for i := range w {
			w[i] += start.Add(draw.RoundLength).Sub(max(ft, v.At))
		}
	}
	d.Known, d.Low, d.Wait, d.High = true, w[0], w[2], w[4]
	d.Quartiles = [3]time.Duration(w[1:4])
	d.Next = v.Queues() && v.Rounds.Place(t.ID, t.Place()) <= v.Horizon
}

// horizon returns the place up to which visitors may enter.
func horizon(v *wire.View) fleet.Time {
	if v == nil {
		return line.Open
	}
	return v.Horizon
}

// keepMonotone keeps what is told from getting worse, visit by visit: the estimate moves
// a little with every view, and somebody who waits wants to see it go down. The
// ticket carries what was told last, so that any edge can keep to it. What is told
// is what the ticket can hold: whole seconds, and a low end in parts of the wait.
func (d *Decision) keepMonotone(ft fleet.Time) {
	t := &d.Ticket
	raised := false
	if d.Known {
		d.Wait, d.High = d.Wait.Round(time.Second), d.High.Round(time.Second)
		if high := time.Duration(t.High) * time.Second; t.High > 0 {
			if raised = d.High > high+max(raiseFrom, high/raisePart); raised {
				t.Longer = uint32(ft.Second())
			} else {
				d.Wait, d.High = min(d.Wait, time.Duration(t.Wait)*time.Second), min(d.High, high)
				if t.Ahead > 0 { // else it was told by an older edge, which kept no low end
					d.Low = min(d.Low, t.LowEnd())
				}
			}
		}
		d.High = max(d.High, d.Wait, time.Second) // 0 would be nothing told
		t.Wait, t.High = uint32(d.Wait/time.Second), uint32(d.High/time.Second)
		d.Low = t.PutLowEnd(min(d.Low, d.Wait))
	}
	if t.Ahead > 0 && !raised {
		d.Ahead = min(d.Ahead, uint64(t.Ahead-1))
	}
	if t.Ahead = 0; d.Ahead < ticket.MaxAhead {
		t.Ahead = uint32(d.Ahead) + 1
	}
	d.Longer = t.Longer > 0 && ft.Second()-int64(t.Longer) < int64(longerFor/time.Second)
}

// forecast notes what is told first of the whole wait, so that the ranges learn from
// what comes of it. Who was told nothing for long, because nobody was let in, is no
// measure.
func (d *Decision) forecast(ft fleet.Time) {
	t := &d.Ticket
	if waited := ft.Sub(t.Joined); d.Known && t.Forecast == 0 && waited < forecastBy {
		t.Forecast = max(1, uint32((d.Wait+max(0, waited)).Seconds()+0.5))
	}
}

// counting reports whether it is not known yet where somebody stands: nobody can be
// told more than reports have brought.
//
//   - The view knows of no line, or is older than the place.
//   - Too many of those in front have joined after what the view knows: how many
//     is supposed from how many came in the seconds before.
func counting(ft fleet.Time, v *wire.View, t *ticket.Ticket) bool {
	if ft.Sub(t.Joined) > countFor {
		return false
	}
	if t.Flags&ticket.Returned != 0 {
		return !v.Queues() || v.At < t.Joined.Add(countLag)
	}
	return !v.Queues() || v.Supposed(t.Place()) > supposedMost*max(1, v.Line.Total())
}

const (
	forecastBy = 10 * time.Second

	// countFor is for how long after joining people are told that they are being
	// counted, at most.
	countFor = 8 * time.Second
	// countLag is how old the newest reports in a view are.
	countLag = 500 * time.Millisecond
	// supposedMost is the part of the people in front that may be supposed.
	supposedMost = 0.15
)
