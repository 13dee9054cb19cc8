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
	wire.Sums

	begun    bool
	outcomes estimate.Outcomes
}

// Restart sets the counters to 0: the child was replaced, and its successor counts from there.
func (p *Progress) Restart() { *p = Progress{begun: p.begun} }

// Progresses sums the progress of children.
type Progresses struct {
	admitted, joined, entered uint64
	outcomes                  estimate.OutcomeCounter
	counts                    history.Counts
}

// Add adds the progress of a child since its previous report. The counters of a child may have begun under a
// predecessor: its first report adds what the predecessor did not get, or nothing if that is unknown.
func (s *Progresses) Add(p *Progress, r *wire.RoomReport) (first bool) {
	if first = !p.begun; first {
		*p = Progress{Sums: r.Sums(), begun: true, outcomes: r.Outcomes}
		if r.Forwarded != nil {
			p.Sums = *r.Forwarded
		}
	}
	s.admitted += ledger.Growth(&p.Admitted, r.Admitted)
	s.joined += ledger.Growth(&p.Joined, r.Joined)
	s.entered += ledger.Growth(&p.Entered, r.Entered)
	s.outcomes.Gain(p.outcomes, r.Outcomes)
	p.outcomes = r.Outcomes
	s.counts = s.counts.Grow(p.Counts, r.Counts)
	p.Counts = r.Counts
	return first
}

// Tally returns the sums as part of the state of a room.
func (s *Progresses) Tally(life time.Duration, active uint64) Tally {
	return Tally{
		Life: life, Active: active,
		Admitted: s.admitted, Joined: s.joined, Entered: s.entered, Outcomes: s.outcomes.Outcomes(), Counts: s.counts,
	}
}
