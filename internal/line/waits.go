package line

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

// Lots returns by when so many parts of those who wait are called, where people are called at the given paces and chance decides
// who of the people that wait is next: joining people come per second, and the part theta of those who wait gives up. With n
// people who wait, each is called within the second with the chance mu/n, so that after a time the part
// 1 − exp(−∫ mu/n dt) has been called. ok is false where the last of the parts is never reached.
func Lots(people, joining float64, paces []Pace, theta float64) (w Waits, ok bool) {
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
		n = max(1, n+(joining-mu-theta*n)*d)
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
