package line

import (
	"math"
	"time"
)

// MaxWait is the longest wait that is told; beyond it the estimate says no
// more than "longer".
const MaxWait = 24 * time.Hour

// Estimate returns how long someone with ahead people in front will wait, if
// mu people per second enter and each of those who wait gives up at the rate
// theta per second. The line in front shrinks at mu + theta*n, so it is gone
// after ln(1 + theta*ahead/mu)/theta, which is ahead/mu when nobody gives up
// (the fluid limit of a queue with abandonment; Whitt, "Fluid models for
// multiserver queues with abandonments", 2006).
//
// ok is false when nobody enters (mu <= 0): then there is no estimate.
func Estimate(ahead, mu, theta float64) (wait time.Duration, ok bool) {
	if ahead <= 0 {
		return 0, mu > 0
	}
	if mu <= 0 {
		return 0, false
	}
	s := ahead / mu
	if theta > 0 {
		s = math.Log1p(theta*ahead/mu) / theta
	}
	if s >= MaxWait.Seconds() {
		return MaxWait, true
	}
	return time.Duration(s * float64(time.Second)), true
}
