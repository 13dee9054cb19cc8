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
	// A longer wait is shown, with the reason, if it grew by a fifth and by at least a minute. Below that the old
	// one stays until it is true again.
	raiseFrom = time.Minute
	raisePart = 5

	// Within a minute of a change of the limits, by an operator or an event, every visitor has asked again. In that
	// time smaller increases are shown too, by these thresholds.
	changedFor  = time.Minute
	changedFrom = 2 * time.Second
	changedPart = 50

	// longerFor is how long the page explains a raised wait.
	longerFor = 5 * time.Minute
)

// position fills in the visitor's position by the view (nil for none yet), the wait, and when to ask again.
func (l *line) position(ft fleettime.Time, d *Decision) {
	t, e, v := &d.Ticket, l.edge, l.view
	back := t.Flags&ticket.Returned != 0
	p := &e.cfg.Params
	d.Retry, d.Counting = p.Refresh, v == nil
	first, partial, turn, rank := v == nil, false, p.Refresh, -1.0
	if v != nil && len(v.Rounds) > 0 && d.Reason != Gathering && d.Reason != QueuedAll {
		d.positionRandom(ft, v, l.partial(ft, t.Joined < l.since()))
	} else if v != nil {
		place := v.Place(t.Place(), back)
		if d.Reason == Gathering { // no permit is used before the start
			place += max(0, float64(v.Free))
		}
		d.Ahead = uint64(max(0, place) + 0.5)
		d.Waiting = uint64(v.Waiting() + 0.5)
		first = d.Ahead == 0
		if d.Reason == Gathering { // the wait is shown from the start on
			if d.Counting = l.partial(ft, t.Joined < l.since()); !d.Counting && !l.settles(ft, t) {
				rank = place
				l.keepRank(t, place)
				d.keepMonotone(ft, v.Changed)
			}
		} else if partial = l.partial(ft, t.Joined < l.since()); partial {
			d.Counting = true
			if wait, ok := v.Wait(place); ok { // at least
				turn = wait / 4
			}
		} else if d.Counting = counting(ft, v, t); !d.Counting {
			if d.Wait, d.Known = v.Wait(place); d.Known {
				d.Low, d.High = v.Ranges.Of(d.Wait)
				d.Next = v.Next(t.Place(), place)
			}
			d.keepMonotone(ft, v.Changed)
			d.forecast(ft, v.Changed)
		}
	}
	if partial { // the next response should have a number, unless the turn may come before
		d.Retry = min(max(min(l.since().Add(wire.Recount(p.Refresh)).Sub(ft), turn), p.Nearest), p.Refresh)
	} else if first || (!back && !t.Uncounted) { // an uncounted visitor should be counted soon
		d.Retry = p.Nearest
	} else if d.Called {
		d.Retry = p.Nearest // do not let a free permit wait
	} else if d.Known {
		d.Retry = min(max(d.Wait/4, p.Nearest), p.Refresh)
	}
	if d.Reason == Closed || d.Reason == QueuedAll || d.Reason == Rejected ||
		(d.Reason == Gathering && (back || t.Uncounted)) {
		d.Retry = p.Refresh
	}
	if d.Reason == Isolated || d.Reason == Unsure || d.Reason == OriginDown || d.Reason == Drains {
		d.Retry = p.Nearest * 2
	}
	// Jitter of a quarter either way spreads the polls.
	d.Retry = d.Retry*3/4 + jitter(e.cfg.Rand, d.Retry/2)
	if d.Reason == Gathering {
		d.Retry = l.gathers(ft, d.Retry, rank)
	}
}

// partial reports whether waiting visitors may be missing from the view's count; see [wire.View.Partial].
func (l *line) partial(ft fleettime.Time, elder bool) bool {
	return l.view.Partial(ft, l.since(), l.edge.cfg.Params.Refresh, elder)
}

// positionRandom fills in the decision of a random room: the number of waiting visitors and the quantiles of the wait.
func (d *Decision) positionRandom(ft fleettime.Time, v *wire.View, partial bool) {
	t := &d.Ticket
	if _, _, ok := t.Quartiles(); !ok {
		clearShown(t) // it is from another order
	}
	d.Waiting = uint64(v.Waiting() + 0.5)
	d.Counting = partial || (!v.Waits.Known() && ft.Sub(t.Joined) <= countFor)
	if partial || !v.Waits.Known() {
		return
	}
	w := v.Waits
	start := draw.StartOf(v.At)
	called := v.Queues() && v.Rounds.Place(t.ID, t.Place()) <= v.Rounds.Called() // also under a debt
	switch {
	case t.Joined >= start && !called:
		// Takes part from the next round on. In this round the visitor is called after all participants.
		last, _ := v.Wait(v.Line.Total())
		for i, d := range w.Later(start.Add(draw.RoundLength).Sub(max(ft, v.At))) {
			w[i] = min(d, max(w[i], last))
		}
	case called && t.Joined < start:
		for i, part := range estimate.WaitParts {
			w[i] = time.Duration(part * float64(v.Waits[0])) // uniform over the called visitors
		}
	}
	w = w.In(&v.Ranges, draw.RoundLength)
	d.Known, d.Low, d.Wait, d.High = true, w[0], w[2], w[4]
	d.Quartiles = [3]time.Duration(w[1:4])
	d.Called = called
	d.Next = called && v.Waits[0] <= nextByLot
	d.keepMonotone(ft, v.Changed)
}

// keepMonotone prevents the shown wait from growing between visits: estimates vary a little with every view. The
// ticket carries the last shown values, so every edge can continue them, in the ticket's resolution: whole seconds,
// and the low end as a fraction of the wait. changed is the last change of the limits.
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
		d.High = max(d.High, d.Wait, time.Second) // 0 would mean that nothing was shown
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

// forecast records the first forecast of the whole wait for the learning of ranges. It skips visitors without a
// forecast for long, because admissions were stopped, and forecasts under limits that changed since.
func (d *Decision) forecast(ft, changed fleettime.Time) {
	t := &d.Ticket
	if t.Rank() != 0 {
		return // it holds the rank in a draw
	}
	if changed > t.Joined {
		t.Forecast = 0
		return
	}
	if waited := ft.Sub(t.Joined); d.Known && t.Forecast == 0 && waited < forecastBy {
		t.Forecast = max(1, uint32((d.Wait+max(0, waited)).Seconds()+0.5))
	}
}

// counting reports whether a visitor's position is still unknown: reports have not covered its join time.
//
//   - The view has no queue, or is older than the place.
//   - Too many visitors in front joined after the reports in the view. Their number is extrapolated from the seconds
//     before, in which a crowd may have come faster and faster.
func counting(ft fleettime.Time, v *wire.View, t *ticket.Ticket) bool {
	if ft.Sub(t.Joined) > countFor {
		return false
	}
	if t.Flags&ticket.Returned != 0 {
		return !v.Queues() || v.At < t.Joined.Add(countLag)
	}
	return !v.Queues() || v.MostSupposed(t.Place()) > supposedMost*max(1, v.Line.Total())
}

const (
	forecastBy = 10 * time.Second

	// countFor is the maximum time after joining in which a visitor is shown as being counted.
	countFor = 8 * time.Second
	// countLag is the age of the newest reports in a view.
	countLag = 500 * time.Millisecond
	// nextByLot is the longest time until the last called visitor enters for which a called visitor is shown as
	// next.
	nextByLot = 8 * time.Second
	// supposedMost is the maximum fraction that may be extrapolated of the visitors in front.
	supposedMost = 0.15
)
