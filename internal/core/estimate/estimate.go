package estimate

import (
	"math"
	"slices"
	"time"
)

// MaxWait is the longest wait that is shown. Longer forecasts are shown as "longer".
const MaxWait = 24 * time.Hour

// Pace is an admission rate that holds for a time.
type Pace struct {
	For time.Duration `json:"for_seconds"`         // the last pace of a list lasts for ever; its For is ignored
	Mu  float64       `json:"entering_per_second"` // people per second
}

// Estimate returns the wait of a visitor with ahead visitors in front, if visitors enter at the given paces, one
// after the other, and each waiting visitor abandons at the rate theta per second. At a steady pace mu the queue in
// front shrinks by mu + theta*n per second, so that
//
//	n(t) = (n + mu/theta) exp(-theta t) - mu/theta
//
// It is empty after ln(1 + theta*n/mu)/theta, which is n/mu if nobody abandons (the fluid limit of a queue with
// abandonment; Whitt, "Fluid models for multiserver queues with abandonments", 2006).
//
// ok is false if the visitor never enters.
func Estimate(ahead float64, paces []Pace, theta float64) (wait time.Duration, ok bool) {
	n, t := max(0, ahead), 0.0
	for i, p := range paces {
		last := i == len(paces)-1
		if p.Mu > 0 {
			s := n / p.Mu
			if theta > 0 {
				s = math.Log1p(theta*n/p.Mu) / theta
			}
			if last || s <= p.For.Seconds() {
				return cut(t + s), true
			}
		} else if last {
			return 0, false
		}
		d := p.For.Seconds()
		if t += d; t >= MaxWait.Seconds() {
			return MaxWait, true
		}
		if theta > 0 {
			n -= (n + max(0, p.Mu)/theta) * -math.Expm1(-theta*d)
		} else {
			n -= max(0, p.Mu) * d
		}
		n = max(0, n)
	}
	return 0, false
}

// Entered returns how many visitors enter within d.
func Entered(paces []Pace, d time.Duration) float64 {
	n := 0.0
	for i, p := range paces {
		part := min(d, p.For)
		if i == len(paces)-1 {
			part = d
		}
		n += part.Seconds() * max(0, p.Mu)
		d -= part
	}
	return n
}

// Later returns the paces shifted by d. It does not change its argument.
func Later(paces []Pace, d time.Duration) []Pace {
	for len(paces) > 1 && paces[0].For <= d {
		d -= paces[0].For
		paces = paces[1:]
	}
	if d <= 0 || len(paces) <= 1 {
		return paces
	}
	paces = slices.Clone(paces)
	paces[0].For -= d
	return paces
}

// cut returns s seconds, capped at MaxWait.
func cut(s float64) time.Duration {
	if !(s < MaxWait.Seconds()) {
		return MaxWait
	}
	return time.Duration(s * float64(time.Second))
}
