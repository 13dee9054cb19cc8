package share

import (
	"time"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/history"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/wire"
)

// Tally is the state of a room or, under isolation, of its part in a data centre.
type Tally struct {
	Life                      time.Duration // of a ticket
	Active                    uint64
	Admitted, Joined, Entered uint64 // cumulative
	Outcomes                  estimate.Outcomes
	Counts                    history.Counts
}

// Progress has the last reported counters of admissions and waiting visitors of a child.
type Progress struct {
	begun                     bool
	admitted, joined, entered uint64
	outcomes                  estimate.Outcomes
	counts                    history.Counts
}

// Restart sets the counters to 0: the child was replaced, and its successor counts from there.
func (p *Progress) Restart() { *p = Progress{begun: p.begun} }

// Progresses sums the progress of children.
type Progresses struct {
	admitted, joined, entered uint64
	outcomes                  estimate.OutcomeCounter
	counts                    history.Counts
}

// Add adds the progress of a child since its previous report. The first report of a child adds nothing: its counters
// began under a predecessor.
func (s *Progresses) Add(p *Progress, r *wire.RoomReport) (first bool) {
	if first = !p.begun; first {
		*p = Progress{begun: true, admitted: r.Admitted, joined: r.Joined, entered: r.Entered, outcomes: r.Outcomes, counts: r.Counts}
	}
	s.admitted += ledger.Growth(&p.admitted, r.Admitted)
	s.joined += ledger.Growth(&p.joined, r.Joined)
	s.entered += ledger.Growth(&p.entered, r.Entered)
	s.outcomes.Gain(p.outcomes, r.Outcomes)
	p.outcomes = r.Outcomes
	s.counts = s.counts.Grow(p.counts, r.Counts)
	p.counts = r.Counts
	return first
}

// Tally returns the sums as part of the state of a room.
func (s *Progresses) Tally(life time.Duration, active uint64) Tally {
	return Tally{
		Life: life, Active: active,
		Admitted: s.admitted, Joined: s.joined, Entered: s.entered, Outcomes: s.outcomes.Outcomes(), Counts: s.counts,
	}
}
