package estimate

import (
	"math"
	"time"
)

// Change is a later change of the limits, such as the start of an event. If a limit is 0, nobody enters from then on.
type Change struct {
	In               time.Duration
	Total, PerMinute float64
}

// Changed returns paces under x with the changes to come, in order, in at most [MaxPaces] phases. Permits that a change
// frees are used at once, as far as R allows. After a lower limit nobody enters until enough sessions have ended.
func (u *Turnover) Changed(paces []Pace, x Limits, changes []Change) []Pace {
	if paces == nil || len(changes) == 0 {
		return paces
	}
	stay := u.Stay().Seconds()
	mu := min(x.Total/stay, x.PerMinute/60)
	inside := mu * stay
	var out []Pace
	at := time.Duration(0)
	for i, c := range changes {
		length := c.In - at
		out = append(out, until(paces, length)...)
		if at = c.In; i > 0 && shut(&changes[i-1]) {
			inside *= math.Exp(-length.Seconds() / stay)
		}
		used := mu * 60 // permits of R
		if mu = 0; shut(&c) {
			paces = []Pace{{}}
			continue
		}
		mu = min(c.Total/stay, c.PerMinute/60)
		steady := Pace{Mu: mu}
		switch free := c.Total - inside; {
		case free > 0:
			burst := min(free, max(0, c.PerMinute-used))
			rest := Pace{For: cut((free - burst) / c.PerMinute * 60), Mu: c.PerMinute / 60}
			paces = []Pace{{For: time.Second, Mu: burst}, rest, steady}
		case free < 0:
			paces = []Pace{{For: cut(stay * math.Log(inside/c.Total))}, steady}
		default:
			paces = []Pace{steady}
		}
		inside = mu * stay
	}
	return fewer(append(out, paces...))
}

func shut(c *Change) bool { return c.Total <= 0 || c.PerMinute <= 0 }

// until returns paces for the time d.
func until(paces []Pace, d time.Duration) (out []Pace) {
	for i, p := range paces {
		if i == len(paces)-1 || p.For >= d {
			return append(out, Pace{d, p.Mu})
		}
		d -= p.For
		out = append(out, p)
	}
	return out
}

// fewer joins the shortest neighbours among paces until at most [MaxPaces] remain. The last stays, as it has no end.
func fewer(paces []Pace) []Pace {
	for len(paces) > MaxPaces {
		at := 0
		for i := 1; i < len(paces)-2; i++ {
			if paces[i].For+paces[i+1].For < paces[at].For+paces[at+1].For {
				at = i
			}
		}
		a, b := paces[at], paces[at+1]
		sum := a.For + b.For
		if sum > 0 {
			b.Mu = (a.Mu*a.For.Seconds() + b.Mu*b.For.Seconds()) / sum.Seconds()
		}
		b.For = sum
		paces[at+1] = b
		paces = append(paces[:at], paces[at+1:]...)
	}
	return paces
}
