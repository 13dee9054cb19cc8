package sim

import (
	"testing"
	"time"
)

// TestTheLineIsShownThroughTakeovers: after the replacement of a leader or the end of an edge, the displayed queue
// neither lacks waiting visitors nor counts them twice.
func TestTheLineIsShownThroughTakeovers(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		what string
		end  func(w *World)
	}{
		{"regional", func(w *World) { w.centres.end(w.centres.all[0], 1500*time.Millisecond) }},
		{"global", func(w *World) { w.globals.end(1500 * time.Millisecond) }},
		{"edge in place of one that ended", func(w *World) { w.edges.end(w.edges.all[0]) }},
	} {
		c := Defaults()
		c.Centres, c.Edges, c.Total, c.Rate, c.Session, c.Length = 2, 2, 100, 6000, time.Minute, 6*time.Minute
		c.Demand.PerMinute = 100
		w := New(c)
		least, most := 1.0, 1.0
		w.in(4*time.Minute, func() {
			x.end(w)
			w.each(100*time.Millisecond, func() {
				part := w.waitingInView() / float64(w.oracle.waiting)
				least, most = min(least, part), max(most, part)
			})
		})
		if r := w.Run(); r.Fault != "" {
			t.Fatal(r.Fault)
		}
		if least < 0.9 || most > 1.15 {
			t.Errorf("a new %s: between %.2f and %.2f of those who wait were shown", x.what, least, most)
		}
	}
}

// toldLine returns the number of waiting visitors in the view of the last edge.
func (w *World) waitingInView() float64 {
	e := w.edges.all[len(w.edges.all)-1]
	v := e.core.Ledger(e.clock.read(w.now), w.room).View
	if v == nil {
		return 0
	}
	return v.Line.Total()
}
