package admission

import (
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

const (
	// A wait that turns out longer than was told is told so, and why, if it is
	// longer by a fifth and by a minute at least. Below that the old one stands
	// until it is true again.
	raiseFrom = time.Minute
	raisePart = 5

	// Within a minute after an operator, or an event, has changed the limits everybody has asked again.
	// There a wait that is longer is told so by these.
	changedFor  = time.Minute
	changedFrom = 2 * time.Second
	changedPart = 50

	// longerFor is for how long after it was raised the page says so.
	longerFor = 5 * time.Minute
)

// position tells where the visitor stands by the view (nil for none yet), for how long, and
// when to ask again.
func (r *roomState) position(ft fleettime.Time, d *Decision) {
	t, e, v := &d.Ticket, r.edge, r.view
	back := t.Flags&ticket.Returned != 0
	p := &e.cfg.Params
	d.Retry, d.Counting = p.Refresh, v == nil
	first, partial := v == nil, false
	if v != nil && len(v.Rounds) > 0 && d.Reason != Gathering && d.Reason != QueuedAll {
		d.byLot(ft, v, p.Refresh)
	} else if v != nil {
		place := v.Place(t.Place(), back)
		if d.Reason == Gathering { // nobody takes a free slot before the start
			place += max(0, float64(v.Slots))
		}
		d.Ahead = uint64(max(0, place) + 0.5)
		d.Waiting = uint64(v.Waiting() + 0.5)
		first = d.Ahead == 0
		if d.Reason == Gathering {
			d.Counting = false // how long it takes is told from the start on
			if r.Drawn != nil && t.Place() != t.Joined {
				d.Ahead = r.Drawn.Ahead(t.Place())
			}
			d.keepMonotone(ft, v.Changed)
		} else if partial = v.Partial(ft, p.Refresh, t.Joined < v.Since); partial {
			d.Counting = true
		} else if d.Counting = counting(ft, v, t); !d.Counting {
			if d.Wait, d.Known = v.Wait(place); d.Known {
				d.Low, d.High = v.Ranges.Of(d.Wait)
				d.Next = v.Next(t.Place(), place)
			}
			d.keepMonotone(ft, v.Changed)
			d.forecast(ft, v.Changed)
		}
	}
	if partial { // the next answer is to tell a number
		d.Retry = min(max(v.Since.Add(wire.Recount(p.Refresh)).Sub(ft), p.Nearest), p.Refresh)
	} else if first || (!back && !t.Uncounted) { // who has yet to be counted is to be soon
		d.Retry = p.Nearest
	} else if d.Called {
		d.Retry = p.Nearest // a slot that is free is not to wait
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

// byLot tells what there is to tell where chance decides who is next: how many wait, and by when so many parts of those are in who
// are as the visitor is.
func (d *Decision) byLot(ft fleettime.Time, v *wire.View, refresh time.Duration) {
	t := &d.Ticket
	if _, _, ok := t.Quartiles(); !ok {
		untell(t) // it was told of another order
	}
	d.Waiting = uint64(v.Waiting() + 0.5)
	partial := v.Partial(ft, refresh, t.Joined < v.Since)
	d.Counting = partial || (!v.Waits.Known() && ft.Sub(t.Joined) <= countFor)
	if partial || !v.Waits.Known() {
		return
	}
	w := v.Waits
	start := draw.StartOf(v.At)
	called := v.Queues() && v.Rounds.Place(t.ID, t.Place()) <= v.Horizon
	switch {
	case t.Joined >= start && !called:
		// Takes part from the next round on, but is called in this one, behind everybody, once all are called who take part.
		last, _ := v.Wait(v.Line.Total())
		for i, d := range w.Later(start.Add(draw.RoundLength).Sub(max(ft, v.At))) {
			w[i] = min(d, max(w[i], last))
		}
	case called && t.Joined < start:
		for i, part := range estimate.WaitParts {
			w[i] = time.Duration(part * float64(v.Waits[0])) // anywhere among those who were called
		}
	}
	w = w.In(&v.Ranges, draw.RoundLength)
	d.Known, d.Low, d.Wait, d.High = true, w[0], w[2], w[4]
	d.Quartiles = [3]time.Duration(w[1:4])
	d.Called = called
	d.Next = called && v.Waits[0] <= nextByLot
	d.keepMonotone(ft, v.Changed)
}

// horizon returns the place up to which visitors may enter.
func horizon(v *wire.View) fleettime.Time {
	if v == nil {
		return estimate.Open
	}
	return v.Horizon
}

// keepMonotone keeps what is told from getting worse, visit by visit: the estimate moves
// a little with every view, and somebody who waits wants to see it go down. The
// ticket carries what was told last, so that any edge can keep to it. What is told
// is what the ticket can hold: whole seconds, and a low end in parts of the wait. changed is when the limits were
// changed last.
func (d *Decision) keepMonotone(ft, changed fleettime.Time) {
	t := &d.Ticket
	raised := false
	from, part := raiseFrom, time.Duration(raisePart)
	if changed != 0 && ft.Sub(changed) < changedFor {
		from, part = changedFrom, changedPart
	}
	if d.Known {
		d.Wait, d.High = d.Wait.Round(time.Second), d.High.Round(time.Second)
		if high := time.Duration(t.High) * time.Second; t.High > 0 {
			if raised = d.High > high+max(from, high/part); raised {
				t.Longer = uint32(ft.Second())
			} else {
				d.Wait, d.High = min(d.Wait, time.Duration(t.Wait)*time.Second), min(d.High, high)
				d.Low = min(d.Low, t.LowEnd())
			}
		}
		first, third, lots := t.Quartiles()
		d.High = max(d.High, d.Wait, time.Second) // 0 would be nothing told
		t.Wait, t.High = uint32(d.Wait/time.Second), uint32(d.High/time.Second)
		d.Low = t.PutLowEnd(min(d.Low, d.Wait))
		if q := &d.Quartiles; *q != [3]time.Duration{} {
			if q[1] = d.Wait; lots && !raised {
				q[0], q[2] = min(q[0], first), min(q[2], third)
			}
			q[0], q[2] = t.PutQuartiles(max(q[0], d.Low), max(q[2], d.Wait))
		}
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
// measure, and neither is a forecast by limits that were changed since.
func (d *Decision) forecast(ft, changed fleettime.Time) {
	t := &d.Ticket
	if changed > t.Joined {
		t.Forecast = 0
		return
	}
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
func counting(ft fleettime.Time, v *wire.View, t *ticket.Ticket) bool {
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
	// Where chance decides, somebody who was called is told to be next where all are in within so long who were.
	nextByLot = 8 * time.Second
	// supposedMost is the part of the people in front that may be supposed.
	supposedMost = 0.15
)
