package wire

import (
	"time"

	"vestibule/internal/fleet"
	"vestibule/internal/line"
)

// Queues reports whether newcomers wait behind others.
func (v *View) Queues() bool { return v.Horizon != line.Open }

// Newcomer returns the wait that somebody who joins now is told.
func (v *View) Newcomer() (wait time.Duration, ok bool) {
	if !v.Queues() {
		return 0, true
	}
	return line.Estimate(max(0, v.Line.Total()-max(0, float64(v.Slots))), v.Mu, v.Theta)
}

// HorizonAge returns how long before now those joined who may enter; 0 while
// nobody queues.
func (v *View) HorizonAge(now fleet.Time) time.Duration {
	if !v.Queues() {
		return 0
	}
	return max(0, now.Sub(v.Horizon))
}
