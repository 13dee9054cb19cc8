package estimate

import (
	"math"
	"time"
)

// WaitParts are the fractions of waiting visitors that [Waits] describes.
var WaitParts = [len(Waits{})]float64{0.10, 0.25, 0.50, 0.75, 0.90}

// Waits are the quantiles of the wait if admission is by chance: the time by which the fastest 10, 25, 50, 75 and
// 90 percent have entered. The zero value is unknown.
type Waits [5]time.Duration

// Known reports whether the quantiles are known.
func (w Waits) Known() bool { return w != Waits{} }

// Later returns the quantiles of visitors that cannot be called before d has passed and are then called like the
// others.
func (w Waits) Later(d time.Duration) Waits {
	// The quantiles as points: the cumulative chance by each time.
	var at, chances [len(w) + 1]float64
	for k, part := range WaitParts {
		at[k+1], chances[k+1] = w[k].Seconds(), -math.Log1p(-part)
	}
	at[0] = max(0, at[1]-(at[2]-at[1])*chances[1]/(chances[2]-chances[1])) // the first visitor called
	interpolate := func(x float64, from, to *[len(w) + 1]float64) float64 {
		k := 1
		for k < len(w) && x > from[k] {
			k++
		}
		if from[k] <= from[k-1] {
			return to[k]
		}
		return to[k-1] + (x-from[k-1])*(to[k]-to[k-1])/(from[k]-from[k-1])
	}
	missed := interpolate(at[0]+max(0, d).Seconds(), &at, &chances)
	for k := range w {
		w[k] = max(w[k], cut(interpolate(chances[k+1]+missed, &chances, &at)))
	}
	return w
}

// In returns the quantiles with two more errors added: the range of the forecast of the median, which covers four
// of five waits, and the time within which a called visitor asks. They are independent of chance, so their squares
// add up.
func (w Waits) In(r *Ranges, asks time.Duration) Waits {
	// a uniform time has this standard deviation, scaled to the 80 % interval
	asked := normal80 * asks.Seconds() / math.Sqrt(12)
	median := (w[2] + graceful).Seconds()
	low, high := r.Of(w[2])
	sides := [2]float64{math.Log((low + graceful).Seconds() / median), math.Log((high + graceful).Seconds() / median)}
	for k, part := range WaitParts {
		by := math.Abs(math.Sqrt2 * math.Erfinv(2*part-1) / normal80)
		x := math.Log((w[k] + graceful).Seconds() / median)
		switch {
		case k < 2:
			x = -math.Sqrt(x*x + by*by*(sides[0]*sides[0]+asked*asked/(median*median)))
		case k > 2:
			x = math.Sqrt(x*x + by*by*(sides[1]*sides[1]+asked*asked/(median*median)))
		}
		w[k] = max(0, cut(median*math.Exp(x))-graceful)
	}
	return w
}

// normal80 is the half-width, in standard deviations, of the central 80 % of a normal distribution.
const normal80 = 1.2816

// Lots returns the quantiles of the wait if visitors are called by chance, at the given paces. New visitors join at
// joining per second, a rate that decays exponentially with the time constant fading, so that joining*fading join
// in all. Waiting visitors abandon at the rate theta per second. With n waiting, each is called within the second
// with probability mu/n, so that after a time the fraction 1 − exp(−∫ mu/n dt) has been called. ok is false if the
// last quantile is never reached.
func Lots(people, joining float64, fading time.Duration, paces []Pace, theta float64) (w Waits, ok bool) {
	n, t, hazard := max(1, people), 0.0, 0.0
	for k := 0; k < len(w); {
		if len(paces) == 0 || t >= MaxWait.Seconds() {
			break
		}
		mu := max(0, paces[0].Mu)
		d := max(0.1, t/50)
		if len(paces) > 1 {
			d = min(d, max(1e-3, paces[0].For.Seconds()))
		} else if mu == 0 {
			break
		}
		more := mu / n * d
		for ; k < len(w); k++ {
			need := -math.Log1p(-WaitParts[k])
			if hazard+more < need {
				break
			}
			w[k] = cut(t + d*(need-hazard)/more)
		}
		hazard += more
		n = max(1, n+(joining*math.Exp(-t/max(1, fading.Seconds()))-mu-theta*n)*d)
		t += d
		paces = Later(paces, time.Duration(d*float64(time.Second)))
	}
	if w[0] == 0 {
		return Waits{}, false
	}
	for k := 1; k < len(w); k++ {
		if w[k] == 0 {
			w[k] = MaxWait
		}
	}
	return w, true
}
