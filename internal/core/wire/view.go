package wire

import (
	"math"
	"time"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
)

// Queues reports whether newcomers wait behind others.
func (v *View) Queues() bool { return v.Cutoff != estimate.Open }

// Recount returns how long it takes until all waiting visitors are counted again: one refresh with its jitter, and the
// delay of a view.
func Recount(refresh time.Duration) time.Duration { return refresh*5/4 + 2*time.Second }

// Partial reports whether waiting visitors may be missing from the count at t, because all processes that counted them
// before since have ended. elder says that one such visitor is known.
func (v *View) Partial(t, since fleettime.Time, refresh time.Duration, elder bool) bool {
	return since > 0 && t < since.Add(Recount(refresh)) && (elder || v.Line.Histogram().Before(since) >= 0.5)
}

// Newcomer returns the estimate for a visitor that joins now.
func (v *View) Newcomer() (wait time.Duration, ok bool) {
	if !v.Queues() {
		return 0, true
	}
	return v.Wait(v.Place(v.At, false))
}

// Place returns the number of visitors in front of a visitor that joined at the given time, minus those that can enter
// at once: it is negative if a permit is to spare. counted says that the visitor is in the line already.
func (v *View) Place(joined fleettime.Time, counted bool) float64 {
	return v.Line.Ahead(joined, counted) + v.Supposed(joined) - max(0, float64(v.Free))
}

// Supposed returns the assumed number of unreported visitors in front, from the recent join rate.
func (v *View) Supposed(joined fleettime.Time) float64 {
	return v.Joining * unreported(v.At, joined)
}

// MostSupposed returns their number if visitors join as fast as the newest reported ones. It is far above
// [View.Supposed] when a crowd has begun to come: then their number is not known.
func (v *View) MostSupposed(joined fleettime.Time) float64 {
	newest := v.Line.Total() - v.Line.Before(v.At.Add(-NewestReports))
	return max(v.Joining, newest/NewestReports.Seconds()) * unreported(v.At, joined)
}

// unreported returns the seconds before a join time that the reports in a view of a time do not cover.
func unreported(view, joined fleettime.Time) float64 {
	return min(5, max(0, (joined.Sub(view)+reportLag).Seconds()))
}

// Wait returns the estimate for a place. The n-th visitor enters when the fluid model has admitted n - 0.5: the median
// for discrete visitors.
func (v *View) Wait(place float64) (wait time.Duration, ok bool) {
	if place <= -1 {
		return 0, len(v.Paces) > 0
	}
	return estimate.Estimate(place+0.5, v.Paces, v.Theta)
}

// Next reports whether a visitor is sure to enter within seconds: the turn is near, and half of the admissions forecast
// within [nextWithin] include this place even with bad luck. Sessions that began together end together: a forecast of
// when may be off by half of their number.
func (v *View) Next(joined fleettime.Time, place float64) bool {
	if !v.Queues() || joined > min(max(v.Cutoff, v.Park), v.At.Add(-settled)) {
		return false
	}
	// The place is counted without the free permits. A forecast of a moment ago may have them as admissions.
	n := estimate.Entered(v.Paces, nextWithin) - float64(max(0, v.Free))
	return n > 0 && max(0, place) < n/2-math.Sqrt(n)
}

const (
	nextWithin = 8 * time.Second
	// settled is the delay until a view includes new sessions: at the opening, just used permits still look free.
	settled = 2 * time.Second
)

// Waiting returns how many visitors wait.
func (v *View) Waiting() float64 { return v.Line.Total() }

const (
	// reportLag is the mean age of reports when a view is made.
	reportLag = 500 * time.Millisecond
	// NewestReports is the time before a view in which only part of the visitors that joined are reported.
	NewestReports = 750 * time.Millisecond
)

// CutoffAge returns the age of the admission cutoff; 0 without a queue.
func (v *View) CutoffAge(now fleettime.Time) time.Duration {
	if !v.Queues() {
		return 0
	}
	return max(0, now.Sub(v.Cutoff))
}
