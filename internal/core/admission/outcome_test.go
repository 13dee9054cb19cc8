package admission

import (
	"testing"
	"time"

	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// TestOutcomesOfForecastsThatHeld: the ranges learn from a wait only if its forecast was a single time, under limits
// that did not change since.
func TestOutcomesOfForecastsThatHeld(t *testing.T) {
	joined := waiting(7, time.Minute).Joined
	for _, c := range []struct {
		name     string
		forecast func(*ticket.Ticket)
		view     *wire.View
		counted  bool
	}{
		{"the same limits", func(*ticket.Ticket) {}, &wire.View{Changed: joined.Add(-time.Second)}, true},
		{"limits that changed during the wait", func(*ticket.Ticket) {}, &wire.View{Changed: joined.Add(time.Second)}, false},
		{"without a forecast", func(t *ticket.Ticket) { t.Forecast = 0 }, &wire.View{}, false},
		{"with quartiles", func(t *ticket.Ticket) { t.PutQuartiles(30*time.Second, 80*time.Second) }, &wire.View{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, r := newEdge(t, at(0), 1, 10)
			visitor := waiting(7, time.Minute)
			visitor.Forecast = 60
			c.forecast(&visitor)
			g := r.held
			g.View = c.view
			g.View.Version, g.View.Cutoff, g.View.Park = 1, day.Add(2*time.Hour), day.Add(2*time.Hour)
			r.room(at(0), g)
			d := e.Arrive(at(0), sale, visitor)
			if d.Verdict != Admit {
				t.Fatalf("%v (%v)", d.Verdict, d.Reason)
			}
			if _, _, ok := d.Outcome(); ok != c.counted {
				t.Errorf("the decision has an outcome: %v, want %v", ok, c.counted)
			}
			if got := r.hear(at(0)).Rooms[0].Outcomes; (got != nil) != c.counted {
				t.Errorf("outcomes %v, want some: %v", got, c.counted)
			}
		})
	}
}
