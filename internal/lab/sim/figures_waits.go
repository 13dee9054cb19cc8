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

// flappingLeaders ends every process of a full room at once, and compares the time until the next admission with and
// without continuous replacement of leaders.
func flappingLeaders() Finding {
	f := Finding{Met: true}
	for i, capped := range []bool{true, false} {
		calm, fault := coldStart(capped, false)
		flapping, other := coldStart(capped, true)
		if f.Fault == "" {
			f.Fault = fault + other
		}
		if i > 0 {
			f.Seen += " / "
		}
		f.Seen += fmt.Sprintf("%.1f s (%.1f s without)", (flapping - calm).Seconds(), calm.Seconds())
		f.Met = f.Met && calm > 0 && flapping > 0 && flapping-calm <= 10*time.Second
	}
	return f
}

// coldStart ends and restarts all processes, and returns the time until the next admission; 0 for none. With flap,
// global and every regional are replaced every ten seconds for five minutes.
func coldStart(capped, flap bool) (first time.Duration, fault string) {
	c := Defaults()
	c.Centres, c.Edges, c.Length, c.Cap = 2, 3, 12*time.Minute, capped
	c.Total, c.Rate, c.Session = 100, 600, time.Minute
	c.People.Think = 10 * time.Second
	c.Demand.PerMinute = 200
	w := New(c)
	const cut, every, takeover = 3 * time.Minute, 10 * time.Second, 1500 * time.Millisecond
	begin := int64(0)
	w.in(cut, func() {
		for i := range w.edges.all {
			w.edges.end(int32(i))
		}
		for _, r := range w.centres.all {
			r.newest().gone = true
		}
		w.globals.newest().gone = true
		w.in(5*time.Second, func() {
			begin = w.now
			before := w.meters.inside
			w.globals.start(false)
			for i := range w.centres.all {
				w.centres.start(int32(i), false)
			}
			for i := range w.edges.all {
				w.edges.revive(int32(i))
			}
			w.each(50*time.Millisecond, func() {
				if first == 0 && w.meters.inside > before {
					first = time.Duration(w.now - begin)
				}
			})
			for at := every; flap && at <= 5*time.Minute; at += every {
				w.in(at, func() {
					w.globals.end(takeover)
					for i := range w.centres.all {
						w.centres.end(int32(i), takeover)
					}
				})
			}
		})
	})
	fault = w.Run().Fault
	return first, fault
}

// eventStart has 200,000 visitors gather for an event that raises the limits tenfold, and others after its start. The
// coordinator is replaced shortly before, and the limits return afterwards.
func eventStart() Finding {
	const begin, end = 4 * time.Minute, 6 * time.Minute
	c := Defaults()
	c.Centres, c.Edges, c.Length = 5, 4, 9*time.Minute
	c.Total, c.Rate, c.Session, c.People.Patience = 2000, 1200, time.Minute, 0
	c.Demand = Demand{Spikes: []Spike{
		{At: 10 * time.Second, Length: 3 * time.Minute, PerMinute: 202_000.0 / 3}, {At: begin, Length: time.Minute, PerMinute: 6000},
	}}
	w := New(c)
	gathered, first, early := 0, int64(0), false
	w.in(time.Second, func() {
		at := func(d time.Duration) int64 { return int64(epoch.Add(d)) }
		w.operator.giveEvent(&room.Event{Name: "launch", Prequeue: at(5 * time.Second), Start: at(begin), End: at(end), Overrides: room.Overrides{"total_active_users": 20_000, "new_users_per_minute": 12_000}})
		w.operator.edited()
	})
	w.in(begin-3*time.Second, func() {
		w.globals.newest().gone = true
		w.globals.start(false)
	})
	w.in(begin-time.Millisecond, func() { gathered, early = w.oracle.waiting, w.oracle.peakRate > 0 })
	w.each(10*time.Millisecond, func() {
		if first == 0 && w.oracle.peakRate > 0 {
			first = w.now
		}
	})
	r := w.Run()
	after := time.Duration(first) - begin
	return Finding{
		Seen: fmt.Sprintf("%.2f s, with %d people; %v; %.3f / %.3f", after.Seconds(), gathered, map[bool]string{false: "none", true: "some"}[early], float64(r.Peak)/20_000, float64(r.PeakRate)/12_000),
		Met:  after > 0 && after <= 2*time.Second && !early && gathered >= 200_000 && r.Peak <= 20_000 && r.PeakRate <= 12_000, Fault: r.Fault,
		Bound: fmt.Sprintf("order spread p50 / p99 %.1f s / %.1f s: who is called at the start comes within a refresh of 15 to 25 s", r.OrderP50, r.OrderP99),
	}
}

// drawStart has 200,000 visitors gather for an event with a draw. The coordinator is replaced shortly before entries
// close, and others arrive from then until the event begins.
func drawStart() Finding {
	const begin, end = 4 * time.Minute, 6 * time.Minute
	c := Defaults()
	c.Centres, c.Edges, c.Length = 5, 4, end
	c.Total, c.Rate, c.Session, c.People.Patience = 20_000, 12_000, time.Minute, 0
	c.Demand = Demand{Spikes: []Spike{
		{At: 10 * time.Second, Length: 190 * time.Second, PerMinute: 202_000 * 60.0 / 190}, {At: begin - draw.Lead, Length: time.Minute, PerMinute: 6000},
	}}
	w := New(c)
	gathered, drawn, first, called, early, in := 0, uint64(0), int64(0), fleettime.Time(0), 0, 0
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
	w.in(time.Second, func() {
		at := func(d time.Duration) int64 { return int64(epoch.Add(d)) }
		w.operator.giveEvent(&room.Event{ID: "25756b2dfe6e378a06b033b670413757", Name: "launch", Prequeue: at(5 * time.Second), Start: at(begin), End: at(end + time.Minute), Shuffle: true})
		w.operator.edited()
	})
	w.in(begin-draw.Lead-3*time.Second, func() {
		w.globals.newest().gone = true
		w.globals.start(false)
	})
	w.in(begin-time.Millisecond, func() { gathered = w.oracle.waiting })
	w.each(10*time.Millisecond, look)
	r := w.Run()
	after := time.Duration(first) - begin
	share := float64(early) / float64(max(1, in))
	return Finding{
		Seen: fmt.Sprintf("%.2f s, with %d people; %.2f %% of %d; %.3f / %.3f", after.Seconds(), gathered, 100*share, in, float64(r.Peak)/20_000, float64(r.PeakRate)/12_000),
		Met:  after >= 0 && after <= 2*time.Second && share <= 0.001 && in > 10_000 && gathered >= 200_000 && r.Peak <= 20_000 && r.PeakRate <= 12_000, Fault: r.Fault,
		Bound: fmt.Sprintf("%d were drawn; places between the order drawn and the order of entering p50 / p99 %.0f / %.0f: who is called at the start comes within a refresh of 15 to 25 s", drawn, quantile(off, 0.5), quantile(off, 0.99)),
	}
}
