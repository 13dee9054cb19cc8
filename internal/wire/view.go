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
	return line.Estimate(v.Ahead(v.At), v.Paces, v.Theta)
}

// Ahead returns how many people stand in front of somebody who joined at the
// given time, and will not be let in at once.
func (v *View) Ahead(joined fleet.Time) float64 {
	return max(0, v.Line.Before(joined)+v.Unseen*unseenBefore(joined.Sub(v.At))-max(0, float64(v.Slots)))
}

// Waiting returns how many people wait.
func (v *View) Waiting() float64 { return v.Line.Total() + v.Unseen }

const (
	// unseenFor is about how long people are in line before they return for the
	// first time, and unseenLag how old reports are on average when a view is made.
	unseenFor = 3 * time.Second
	unseenLag = 500 * time.Millisecond
)

// unseenBefore returns the part of the unseen people who joined before somebody
// who joined so long after the view was made; more than 1 where people will have
// gone on joining since.
func unseenBefore(since time.Duration) float64 {
	return min(3, max(0, 1+(since+unseenLag).Seconds()/unseenFor.Seconds()))
}

// HorizonAge returns how long before now those joined who may enter; 0 while
// nobody queues.
func (v *View) HorizonAge(now fleet.Time) time.Duration {
	if !v.Queues() {
		return 0
	}
	return max(0, now.Sub(v.Horizon))
}
