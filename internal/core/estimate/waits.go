package estimate

import (
	"math"
	"time"
)

// WaitParts are the parts of those who wait that [Waits] tells of.
var WaitParts = [len(Waits{})]float64{0.10, 0.25, 0.50, 0.75, 0.90}

// Waits is by when so many parts of those who wait are in, where chance decides who is next: of the fastest 10, 25, 50, 75 and 90 of a
// hundred, the longest. The zero value is not known.
type Waits [5]time.Duration

// Known reports whether anything is known.
func (w Waits) Known() bool { return w != Waits{} }

// Later returns by when so many parts are in of people whom chance cannot call before d has passed: from then on it calls them
// as it calls the others.
func (w Waits) Later(d time.Duration) Waits {
	// What w says as points: by then so much is the sum of the chances of all moments.
	var at, chances [len(w) + 1]float64
	for k, part := range WaitParts {
		at[k+1], chances[k+1] = w[k].Seconds(), -math.Log1p(-part)
	}
	at[0] = max(0, at[1]-(at[2]-at[1])*chances[1]/(chances[2]-chances[1])) // who is called first of them is in
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

// In returns by when so many parts are in where other things differ as well: by the range of the forecast of the median,
// in which four of five waits lie, and by when within the time asks somebody asks who was called. They have nothing to do with each
// other, so their squares add.
func (w Waits) In(r *Ranges, asks time.Duration) Waits {
	asked := normal80 * asks.Seconds() / math.Sqrt(12) // a moment that is anywhere within has this standard deviation, times normal80 as sides have
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

// normal80 is within how many standard deviations four of five values are that are distributed normally.
const normal80 = 1.2816

// Lots returns by when so many parts of those who wait are called, where people are called at the given paces and chance decides
// who of the people that wait is next. joining people come per second, and fewer and fewer: after the time fading a third as many, so
// that joining*fading come in all. The part theta of those who wait gives up per second. With n people who wait, each is called
// within the second with the chance mu/n, so that after a time the part
// 1 − exp(−∫ mu/n dt) has been called. ok is false where the last of the parts is never reached.
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
