package wire

import (
	"math"
	"time"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
)

// Queues reports whether newcomers wait behind others.
func (v *View) Queues() bool { return v.Horizon != estimate.Open }

// Recount is for how long after they were told to people ask again, so that everybody is counted who waits: a refresh
// with its jitter, and the time until it is in a view.
func Recount(refresh time.Duration) time.Duration { return refresh*5/4 + 2*time.Second }

// Partial reports whether at t people who wait may have yet to be counted anew, because every process that
// had counted them has ended; elder says that one of them is known to wait.
func (v *View) Partial(t fleettime.Time, refresh time.Duration, elder bool) bool {
	return v.Since > 0 && t < v.Since.Add(Recount(refresh)) && (elder || v.Line.Histogram().Before(v.Since) >= 0.5)
}

// Newcomer returns the wait that somebody who joins now is told.
func (v *View) Newcomer() (wait time.Duration, ok bool) {
	if !v.Queues() {
		return 0, true
	}
	return v.Wait(v.Place(v.At, false))
}

// Place returns how many people stand in front of somebody who joined at the given
// time. Those who will be let in at once are taken off: it is below zero where
// there is a slot to spare. counted says that the person is in the line already.
func (v *View) Place(joined fleettime.Time, counted bool) float64 {
	return v.Line.Ahead(joined, counted) + v.Supposed(joined) - max(0, float64(v.Slots))
}

// Supposed returns how many people in front of somebody who joined then are only
// supposed to be there, because others came in the seconds before.
func (v *View) Supposed(joined fleettime.Time) float64 {
	since := joined.Sub(v.At) + reportLag
	return v.Joining * min(5, max(0, since.Seconds()))
}

// Wait returns the estimate for somebody at that place. The n-th to enter does so
// when the model, in which people flow, has let in half a person less: that is the
// median where they come and go one by one.
func (v *View) Wait(place float64) (wait time.Duration, ok bool) {
	if place <= -1 {
		return 0, len(v.Paces) > 0
	}
	return estimate.Estimate(place+0.5, v.Paces, v.Theta)
}

// Next reports whether somebody who joined then, at that place, is sure to be let in
// within seconds: the turn is near, and so many people will enter within
// [nextWithin] that even with bad luck this one is among them.
func (v *View) Next(joined fleettime.Time, place float64) bool {
	if !v.Queues() || joined > min(max(v.Horizon, v.Park), v.At.Add(-settled)) {
		return false
	}
	n := estimate.Entered(v.Paces, nextWithin)
	return max(0, place) <= n-badLuck*math.Sqrt(n) && n > 0
}

const (
	nextWithin = 8 * time.Second
	// settled is after what time a view knows who took a slot: at the opening, slots
	// that have just been taken look as if they were free.
	settled = 2 * time.Second
	// badLuck is by how many standard deviations of their number fewer people may
	// enter than is expected.
	badLuck = 2.5
)

// Waiting returns how many people wait.
func (v *View) Waiting() float64 { return v.Line.Total() }

// reportLag is how old reports are on average when a view is made.
const reportLag = 500 * time.Millisecond

// HorizonAge returns how long before now those joined who may enter; 0 while
// nobody queues.
func (v *View) HorizonAge(now fleettime.Time) time.Duration {
	if !v.Queues() {
		return 0
	}
	return max(0, now.Sub(v.Horizon))
}
