package estimate

import (
	"math"
	"time"
)

// Outcomes counts forecasts by accuracy: per forecast class, a histogram of actual wait over forecast. Counts only
// grow. The zero value (nil) is empty.
type Outcomes []uint64

const (
	classes = 4
	bins    = 38

	// OutcomesLen is the length of non-empty Outcomes.
	OutcomesLen = classes * bins
)

// graceful is added to both sides of a ratio: otherwise the time of a request would make a very short forecast look
// wrong by a large factor.
const graceful = 5 * time.Second

// classOf returns the class of a forecast: below one, five or twenty minutes, or longer.
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

// bounds are the upper bounds of the bins above a ratio of 1, as logarithms. The bins below 1 mirror them. The last
// is the assumed end of the outermost bin.
var bounds = [bins / 2]float64{
	0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.13, 0.16, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1, 1.5, 2,
}

// Ratio returns the actual wait over the forecast, each plus five seconds.
func Ratio(forecast, actual time.Duration) float64 {
	return (max(0, actual) + graceful).Seconds() / (max(0, forecast) + graceful).Seconds()
}

// Add counts one completed wait and returns the outcomes.
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

// OutcomeCounter counts outcomes and returns snapshots. A snapshot is copied only after a change. The zero value is
// empty.
type OutcomeCounter struct {
	now, last Outcomes
	stale     bool
}

// Add counts one completed wait.
func (t *OutcomeCounter) Add(forecast, actual time.Duration) {
	t.now, t.stale = t.now.Add(forecast, actual), true
}

// Gain adds the increase from a to b.
func (t *OutcomeCounter) Gain(a, b Outcomes) {
	var some bool
	if t.now, some = t.now.Gain(a, b); some {
		t.stale = true
	}
}

// Outcomes returns the current counts. The result must not be changed.
func (t *OutcomeCounter) Outcomes() Outcomes {
	if t.stale {
		t.last, t.stale = append(Outcomes(nil), t.now...), false
	}
	return t.last
}

// Gain adds the increase from a to b, two states of one counter, to o. It returns o and whether there was an
// increase. If b is below a, the counter restarted and b counts in full.
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

// Range bounds the ratio of actual wait to forecast.
type Range struct {
	Low  float64 `json:"low_times_forecast"`
	High float64 `json:"high_times_forecast"`
}

// Ranges are the ranges of the forecast classes. The zero value is unknown.
type Ranges [classes]Range

// Of returns the range of waits around a forecast, or the forecast itself if no range is known.
func (r *Ranges) Of(forecast time.Duration) (low, high time.Duration) {
	c := r[classOf(forecast)]
	if c.High <= 0 {
		return forecast, forecast
	}
	whole := (forecast + graceful).Seconds()
	at := func(factor float64) time.Duration { return max(0, cut(whole*factor)-graceful) }
	return at(c.Low), at(c.High)
}

// Spread learns from outcomes the range that covers four of five waits. The zero value starts from the results of
// simulated sales.
//
// The range lies between two quantiles of recent outcomes. The quantiles are learned too: if fewer than four of
// five waits fall inside, the range widens (adaptive conformal inference: Gibbs and Candès, "Adaptive conformal
// inference under distribution shift", 2021). That needs no assumption about the distribution of waits.
type Spread struct {
	counts [OutcomesLen]float64
	shift  [classes]float64 // added to the target share outside the range
	taken  Outcomes
	doubt  Doubt // of the ranges returned last
}

const (
	// outside is the target share of waits outside the range.
	outside = 0.2
	// learn is how far one wait moves the target share.
	learn = 0.004
	// spreadMemory is how many waits of a class are remembered on average.
	spreadMemory = 3000
	// priorOutcomes is the weight of the prior, in waits. Errors of waits within one minute are correlated: the
	// first few hundred carry little more information than one.
	priorOutcomes = 100
)

// prior is, per class, the half-width in log ratio that covers four of five waits, before any outcome is known.
var prior = [classes]float64{0.035, 0.045, 0.055, 0.055}

// ratePrior is the prior while R limits admissions, where chance plays no part. The remaining error is the
// coarseness of the forecast's phases, two percent at most (see paced), and about half a second between the grant of
// a permit and the visitor's request: one percent of a wait of 40 s. Four of five are within 1.6 percent in random
// rooms.
var ratePrior = [classes]float64{0.016, 0.016, 0.016, 0.016}

// Take updates the ranges from the total outcomes counted so far. It keeps o, which must not change.
func (s *Spread) Take(o Outcomes) {
	gained, some := Outcomes(nil).Gain(s.taken, o)
	s.taken = o
	if !some {
		return
	}
	for c := range classes {
		lo, hi := s.shown(c)
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

// Ranges returns the current ranges. The error of the session length and all other errors are independent, so their
// squares add up.
func (s *Spread) Ranges(d Doubt) Ranges {
	var r Ranges
	s.doubt = d
	for c := range classes {
		lo, hi := s.shown(c)
		r[c] = Range{Low: math.Exp(lo), High: math.Exp(hi)}
	}
	return r
}

// shown returns the published range of a class, as logarithms.
func (s *Spread) shown(c int) (lo, hi float64) {
	lo, hi = s.span(c)
	return -math.Hypot(lo, s.doubt.Stay), math.Hypot(hi, s.doubt.Stay)
}

// span returns the range of a class, as logarithms. It contains the forecast itself.
func (s *Spread) span(c int) (lo, hi float64) {
	side := (outside + s.shift[c]) / 2
	return min(0, s.quantile(c, side)), max(0, s.quantile(c, 1-side))
}

// quantile returns the logarithm of the ratio at quantile q of a class.
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
