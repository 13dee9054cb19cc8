package estimate

import (
	"math"
	"time"
)

// Outcomes counts what became of forecasts: per class of forecast, how many waits
// were so many times as long. Counts only grow. The zero value (nil) counts
// nothing yet.
type Outcomes []uint64

const (
	classes = 4
	bins    = 38

	// OutcomesLen is the length of Outcomes that count something.
	OutcomesLen = classes * bins
)

// A forecast of hardly anything is not wrong by a factor because a request takes
// its time.
const graceful = 5 * time.Second

// classOf sorts forecasts: below one minute, five minutes, twenty minutes, and longer.
func classOf(forecast time.Duration) int {
	switch {
	case forecast < time.Minute:
		return 0
	case forecast < 5*time.Minute:
		return 1
	case forecast < 20*time.Minute:
		return 2
	}
	return 3
}

// bounds are the upper bounds of the bins above a ratio of 1, as logarithms; the
// bins below it are their mirror image. The last is where the outermost bin is
// taken to end.
var bounds = [bins / 2]float64{0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.13, 0.16, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1, 1.5, 2}

// Ratio returns the actual wait over the forecast, both lengthened by five
// seconds.
func Ratio(forecast, actual time.Duration) float64 {
	return (max(0, actual) + graceful).Seconds() / (max(0, forecast) + graceful).Seconds()
}

// Add counts one wait that is over, and returns the outcomes.
func (o Outcomes) Add(forecast, actual time.Duration) Outcomes {
	if o == nil {
		o = make(Outcomes, OutcomesLen)
	}
	x := math.Log(Ratio(forecast, actual))
	i := 0
	for i < len(bounds)-1 && math.Abs(x) >= bounds[i] {
		i++
	}
	if i += bins / 2; x < 0 {
		i = bins - 1 - i
	}
	o[classOf(forecast)*bins+i]++
	return o
}

// OutcomeCounter counts outcomes and hands out snapshots, a new one only where
// something was counted. The zero value has counted nothing.
type OutcomeCounter struct {
	now, last Outcomes
	stale     bool
}

// Add counts one wait that is over.
func (t *OutcomeCounter) Add(forecast, actual time.Duration) {
	t.now, t.stale = t.now.Add(forecast, actual), true
}

// Gain counts what b counts beyond a.
func (t *OutcomeCounter) Gain(a, b Outcomes) {
	var some bool
	if t.now, some = t.now.Gain(a, b); some {
		t.stale = true
	}
}

// Outcomes returns all that was counted. It must not be changed.
func (t *OutcomeCounter) Outcomes() Outcomes {
	if t.stale {
		t.last, t.stale = append(Outcomes(nil), t.now...), false
	}
	return t.last
}

// Gain adds to o what b counts beyond a, two states of the same counter, and
// returns o and whether there was anything. Where b counts less it has begun anew.
func (o Outcomes) Gain(a, b Outcomes) (Outcomes, bool) {
	if len(b) == 0 || (len(a) > 0 && &a[0] == &b[0]) {
		return o, false // the same snapshot
	}
	some := false
	for i, n := range b {
		if i < len(a) && n >= a[i] {
			n -= a[i]
		}
		if n == 0 {
			continue
		}
		if o == nil {
			o = make(Outcomes, OutcomesLen)
		}
		if i < len(o) {
			o[i] += n
			some = true
		}
	}
	return o, some
}

// Range is between how many times the forecast waits are.
type Range struct{ Low, High float64 }

// Ranges are the ranges of the classes of forecasts. The zero value knows none.
type Ranges [classes]Range

// Of returns between what a wait lies that is forecast so: the forecast itself
// where no range is known.
func (r *Ranges) Of(forecast time.Duration) (low, high time.Duration) {
	c := r[classOf(forecast)]
	if c.High <= 0 {
		return forecast, forecast
	}
	whole := (forecast + graceful).Seconds()
	at := func(factor float64) time.Duration { return max(0, cut(whole*factor)-graceful) }
	return at(c.Low), at(c.High)
}

// Spread learns from outcomes between what waits are: four of five of them. The
// zero value supposes what simulated sales show.
//
// The range is between two quantiles of what was seen of late. Which quantiles is
// learned too: when fewer than four of five waits fall inside, it is widened
// (adaptive conformal inference: Gibbs and Candès, "Adaptive conformal inference
// under distribution shift", 2021). That needs no assumption about the waits.
type Spread struct {
	counts [OutcomesLen]float64
	shift  [classes]float64 // of the share that is to be outside
	taken  Outcomes
	doubt  Doubt // by which ranges were told last
}

const (
	// outside is the share of waits that is to be outside of the range.
	outside = 0.2
	// learn is by how much one wait moves the share that is aimed for.
	learn = 0.004
	// spreadMemory is how many waits of a class are remembered, on average.
	spreadMemory = 3000
	// priorOutcomes is how many waits the supposition weighs. The waits of a minute are wrong
	// together: the first some hundred tell little more than one.
	priorOutcomes = 100
)

// prior is between what logarithms of the ratio four of five waits lie, before
// anything is known, by class.
var prior = [classes]float64{0.035, 0.045, 0.055, 0.055}

// ratePrior is the same where R bounds those who enter, which chance has no part in. What is left
// is how coarse the phases of a forecast are, two in a hundred (see paced), and some half a second
// by which rights come and people ask: for waits around 40 s a hundredth.
var ratePrior = [classes]float64{0.023, 0.025, 0.025, 0.025}

// Take learns from all outcomes counted so far, and keeps them: they must not be
// changed.
func (s *Spread) Take(o Outcomes) {
	gained, some := Outcomes(nil).Gain(s.taken, o)
	s.taken = o
	if !some {
		return
	}
	for c := range classes {
		lo, hi := s.told(c)
		n, missed := 0.0, 0.0
		for i, k := range gained[c*bins : (c+1)*bins] {
			from, to := binOf(i)
			inside := max(0, min(hi, to)-max(lo, from)) / (to - from)
			n += float64(k)
			missed += float64(k) * (1 - inside)
		}
		if n == 0 {
			continue
		}
		s.shift[c] = min(max(s.shift[c]+learn*(outside*n-missed), -0.15), 0.4)
		keep := math.Exp(-n / spreadMemory)
		for i := c * bins; i < (c+1)*bins; i++ {
			s.counts[i] = s.counts[i]*keep + float64(gained[i])
		}
	}
}

// Ranges returns between how many times their forecast waits are. How long people stay and all
// else are wrong independently of each other, so their squares add up.
func (s *Spread) Ranges(d Doubt) Ranges {
	var r Ranges
	s.doubt = d
	for c := range classes {
		lo, hi := s.told(c)
		r[c] = Range{Low: math.Exp(lo), High: math.Exp(hi)}
	}
	return r
}

// told returns the range of a class that is told, in logarithms.
func (s *Spread) told(c int) (lo, hi float64) {
	lo, hi = s.span(c)
	return -math.Hypot(lo, s.doubt.Stay), math.Hypot(hi, s.doubt.Stay)
}

// span returns the range of a class in logarithms. The forecast itself lies in it.
func (s *Spread) span(c int) (lo, hi float64) {
	side := (outside + s.shift[c]) / 2
	return min(0, s.quantile(c, side)), max(0, s.quantile(c, 1-side))
}

// quantile returns the logarithm below which a part q of the ratios of a class lies.
func (s *Spread) quantile(c int, q float64) float64 {
	var weights [bins]float64
	wide, sum := prior[c], 0.0
	if s.doubt.ByRate {
		wide = ratePrior[c]
	}
	wide /= 1 - outside // the prior is even
	for i := range weights {
		lo, hi := binOf(i)
		part := max(0, min(hi, wide)-max(lo, -wide)) / (2 * wide)
		weights[i] = s.counts[c*bins+i] + priorOutcomes*part
		sum += weights[i]
	}
	at := q * sum
	for i, n := range weights {
		if lo, hi := binOf(i); at <= n && n > 0 {
			return lo + (hi-lo)*at/n
		}
		at -= n
	}
	return bounds[len(bounds)-1]
}

// binOf returns the bounds of a bin.
func binOf(i int) (lo, hi float64) {
	if i < bins/2 {
		lo, hi = binOf(bins - 1 - i)
		return -hi, -lo
	}
	if i -= bins / 2; i > 0 {
		lo = bounds[i-1]
	}
	return lo, bounds[i]
}
