package sim

import (
	"fmt"
	"math"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
)

// The event for which visitors gather begins after opens. Its limits, then or always, are openTotal and openRate.
const opens, openTotal, openRate = 4 * time.Minute, 20_000, 12_000

// gathering has 200,000 visitors gather for an event within a time, and others come from later on. The coordinator is
// replaced shortly before those. It returns the number of those that wait at the beginning.
func gathering(c Config, e *room.Event, within, later time.Duration) (w *World, waiting *int) {
	c.Centres, c.Edges, c.Session, c.People.Patience = 5, 4, time.Minute, 0
	c.Demand = Demand{Spikes: []Spike{
		{At: 10 * time.Second, Length: within, PerMinute: 202_000 * 60 / within.Seconds()},
		{At: later, Length: time.Minute, PerMinute: 6000},
	}}
	w, waiting = New(c), new(int)
	w.expect(opens, e)
	w.in(later-3*time.Second, func() {
		w.globals.newest().gone = true
		w.globals.start(false)
	})
	w.in(opens-time.Millisecond, func() { *waiting = w.oracle.waiting })
	return w, waiting
}

// opened adds when the first visitor entered, and whether the limits held.
func (f *Finding) opened(first int64, waiting int, r *Result, and string) {
	after := time.Duration(first) - opens
	f.judge("event: first admission", "", after.Seconds())
	f.judge("event: admissions before the start", "", map[bool]float64{true: 1}[after < 0])
	f.judge("event: peak of sessions / T", "", float64(r.Peak)/openTotal)
	f.judge("event: admissions in 60 s / R", "", float64(r.PeakRate)/openRate)
	f.happened(waiting >= 200_000, "fewer than 200,000 wait")
	f.add("", "%.2f s, with %d people; %s; %.3f / %.3f",
		after.Seconds(), waiting, and, float64(r.Peak)/openTotal, float64(r.PeakRate)/openRate)
}

// eventStart has visitors gather for an event that raises the limits tenfold, and others come after its start. The
// limits return afterwards.
func eventStart(f *Finding) {
	c := Defaults()
	c.Total, c.Rate, c.Length = openTotal/10, openRate/10, 9*time.Minute
	w, waiting := gathering(c, &room.Event{
		End: int64(epoch.Add(6 * time.Minute)), Overrides: room.Overrides{
			"total_active_users":   openTotal,
			"new_users_per_minute": openRate,
		},
	}, 3*time.Minute, opens)
	first := int64(0)
	w.each(10*time.Millisecond, func() {
		if first == 0 && w.oracle.peakRate > 0 {
			first = w.now
		}
	})
	r := f.run(w)
	f.opened(first, *waiting, r, map[bool]string{false: "none", true: "some"}[first > 0 && first < int64(opens)])
	f.Bound = fmt.Sprintf("order spread p50 / p99 %.1f s / %.1f s: who is called at the start comes within a refresh of "+
		"15 to 25 s", r.OrderP50, r.OrderP99)
}

// drawStart has visitors gather for an event with a draw. The coordinator is replaced shortly before entries close, and
// others arrive from then until the event begins.
func drawStart(f *Finding) {
	c := Defaults()
	c.Total, c.Rate, c.Length = openTotal, openRate, 6*time.Minute
	w, waiting := gathering(c, &room.Event{ID: eventID, End: int64(epoch.Add(7 * time.Minute)), Shuffle: true},
		190*time.Second, opens-draw.Lead)
	drawn, first, called, early, in := uint64(0), int64(0), fleettime.Time(0), 0, 0
	var off []float64 // places between the actual and the drawn order of admission
	look := func() {
		if v := w.globals.newest().core.Totals(w.room).View; v != nil {
			called = max(called, v.Cutoff)
		}
	}
	w.oracle.seeDrawn = func(n *draw.Notice, t *ticket.Ticket) {
		look()
		if first == 0 {
			first = w.now
		}
		if in++; t.Place() > called {
			early++
		}
		if drawn = n.Drawn().Entrants; t.Joined < n.Closes() {
			rank := float64(drawn) * (1 - float64(n.Closes()-t.Place())/float64(draw.Window.Milliseconds()))
			off = append(off, math.Abs(rank-float64(in)))
		}
	}
	w.each(10*time.Millisecond, look)
	r := f.run(w)
	share := float64(early) / float64(max(1, in))
	f.judge("event with a draw: let in before the call", "", 100*share)
	f.happened(in > 10_000, "fewer than 10,000 entered")
	f.opened(first, *waiting, r, fmt.Sprintf("%.2f %% of %d", 100*share, in))
	f.Bound = fmt.Sprintf("%d were drawn; places between the order drawn and the order of entering p50 / p99 %.0f / "+
		"%.0f: who is called at the start comes within a refresh of 15 to 25 s",
		drawn, quantile(off, 0.5), quantile(off, 0.99))
}
