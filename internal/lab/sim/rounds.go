package sim

import (
	"vestibule/internal/core/admission"
	"vestibule/internal/core/draw"
)

// checkRounds checks an admission in a random room, by the state of its edge: nobody enters without a call by a round,
// and nobody that came during a round enters before all who waited before it.
func (j *oracle) checkRounds(e *edgeNode, d *admission.Decision) {
	v := e.core.Ledger(e.clock.read(j.now), j.room).View
	if v == nil || len(v.Rounds) == 0 || !v.Queues() || d.Reason != admission.Permit || e.told.Shut == admission.QueuedAll {
		return
	}
	t := &d.Ticket
	place := v.Rounds.Place(t.ID, t.Place())
	for _, r := range v.Rounds {
		if r.Start() != draw.StartOf(place) || place > r.Called {
			continue
		}
		if j.lots++; t.Place() >= r.Start() && int64(r.Called-r.Start()) <= draw.RoundParts {
			j.fail("%s admits a visitor that came during a round before earlier ones", e)
		}
		return
	}
	j.fail("%s admits a visitor that no round has called", e)
}
