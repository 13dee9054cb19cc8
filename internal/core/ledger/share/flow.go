package share

import (
	"cmp"
	"slices"
	"time"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
)

// Flow estimates how visitors join, enter, stay and abandon.
type Flow struct {
	samples   [flowSamples]flowSample // ring, one per second
	n         int                     // total number of samples
	person    float64                 // cumulative waiting time, in person-seconds
	last      fleettime.Mono
	waiting   float64
	lineSince fleettime.Mono // start of the current line
	turnover  estimate.Turnover
	spread    estimate.Spread

	// The forecast and its inputs.
	forecastAt fleettime.Mono
	bounds     estimate.Limits
	life       time.Duration
	changed    fleettime.Time // last change of limits or life; 0 for none
	paces      []estimate.Pace
	ranges     estimate.Ranges

	late []lateCount // sums of overdue visitors since a second ago, oldest first
}

// lateCount is a sum of overdue visitors.
type lateCount struct {
	at fleettime.Mono
	n  float64
}

// overdue returns the least of the sums of the last second. A visitor that polled in turn at two edges counts once over
// both, but reports of before and after the end of its older poll may count it as overdue for a moment.
func (f *Flow) overdue(now fleettime.Mono, n float64) float64 {
	for len(f.late) > 1 && now.Sub(f.late[1].at) >= time.Second { // the first one holds until the second
		f.late = f.late[1:]
	}
	f.late = append(f.late, lateCount{now, n})
	return slices.MinFunc(f.late, func(a, b lateCount) int { return cmp.Compare(a.n, b.n) }).n
}

// forecast returns the expected pace of admissions and the ranges of waits. It computes them every two seconds, and
// when a limit changes.
func (f *Flow) forecast(
	now fleettime.Mono, ft fleettime.Time, life time.Duration, x estimate.Limits, coming []ledger.Change,
) ([]estimate.Pace, estimate.Ranges) {
	same := x.Total == f.bounds.Total && x.PerMinute == f.bounds.PerMinute && life == f.life
	if !same && f.life != 0 {
		f.changed = ft
	}
	f.life = life
	if !same || f.paces == nil || now.Sub(f.forecastAt) >= forecastEvery {
		f.forecastAt, f.bounds = now, x
		f.paces = f.turnover.Changed(f.turnover.Paces(x), x, after(ft, coming))
		f.ranges = f.spread.Ranges(f.turnover.Doubt(x))
	}
	return estimate.Later(f.paces, now.Sub(f.forecastAt)), f.ranges
}

// after returns the changes that begin after ft, within the longest forecast.
func after(ft fleettime.Time, coming []ledger.Change) (changes []estimate.Change) {
	for _, c := range coming {
		if in := c.At.Sub(ft); in > 0 && in < estimate.MaxWait {
			changes = append(changes, estimate.Change{In: in, Total: float64(c.Total), PerMinute: float64(c.Rate)})
		}
	}
	return changes
}

type flowSample struct {
	at                        fleettime.Mono
	admitted, joined, entered uint64
	waiting, person           float64
}

const (
	flowSamples = 361
	flowSpan    = 5 * time.Minute

	forecastEvery = 2 * time.Second

	// A visitor that abandons is detected when the window of its last poll ends.
	missedAfter = 45 * time.Second

	// The prior: one in half an hour abandons, with the weight of ten minutes of waiting.
	priorHazard = 1.0 / 1800
	priorWeight = 600.0
)

// Churn returns the learned durations of sessions.
func (f *Flow) Churn() estimate.Churn { return f.turnover.Churn() }

// Restore adds the durations of sessions that a predecessor learned.
func (f *Flow) Restore(c estimate.Churn) { f.turnover.Recall(c) }

// Recall adds the admissions before counted that a child remembers: used[i] were made i whole seconds ago.
func (f *Flow) Recall(now, counted fleettime.Mono, used []uint32) {
	for i, n := range used {
		if at := now.Add(-time.Duration(i)*time.Second - time.Second/2); n > 0 && at < counted {
			f.turnover.Admitted(at, float64(n))
		}
	}
}

// Sample records the current counters.
func (f *Flow) Sample(now fleettime.Mono, t *Tally, waiting float64) {
	f.turnover.Observe(now, t.Life, float64(t.Active), float64(t.Admitted))
	f.spread.Take(t.Outcomes)
	if f.n > 0 {
		f.person += f.waiting * now.Sub(f.last).Seconds()
	}
	if f.last, f.waiting = now, waiting; waiting < 1 {
		f.lineSince = now
	}
	if f.n > 0 && now.Sub(f.newest().at) < time.Second {
		return
	}
	f.samples[f.n%flowSamples] = flowSample{now, t.Admitted, t.Joined, t.Entered, waiting, f.person}
	f.n++
}

func (f *Flow) newest() *flowSample { return &f.samples[(f.n-1)%flowSamples] }

// mu returns the admissions per second: the mean of the rates of the last minute and of the last five minutes.
func (f *Flow) mu(now fleettime.Mono, admitted uint64) float64 {
	if f.n == 0 {
		return 0
	}
	rate := func(d time.Duration) float64 {
		s := f.since(now, d)
		dt := now.Sub(s.at).Seconds()
		if dt < 1 {
			return 0
		}
		return float64(admitted-s.admitted) / dt
	}
	return (rate(time.Minute) + rate(flowSpan)) / 2
}

// LastMinute returns how many of the admissions were made in the last minute, as far as they are known.
func (f *Flow) LastMinute(now fleettime.Mono, admitted uint64) uint64 {
	if f.n == 0 {
		return 0
	}
	return admitted - f.since(now, time.Minute).admitted
}

// joining returns the rate at which visitors joined in the last minute, and its expected duration: as many visitors
// are expected as joined in the last five minutes, and for as long as the line has existed.
func (f *Flow) joining(now fleettime.Mono, joined uint64) (perSecond float64, fading time.Duration) {
	if f.n == 0 {
		return 0, 0
	}
	s, long := f.since(now, time.Minute), f.since(now, flowSpan)
	perSecond = float64(joined-s.joined) / max(1, now.Sub(s.at).Seconds())
	if perSecond > 0 {
		fading = max(now.Sub(f.lineSince), time.Duration(float64(joined-long.joined)/perSecond*float64(time.Second)))
	}
	return perSecond, fading
}

// theta returns the rate of abandonment: missing visitors divided by the person-seconds of the time in which they
// abandoned. If R limits admissions, none is assumed before it is seen: a forecast that counts on it puts visitors next
// to a pause before the pause, and they wait up to a minute longer.
func (f *Flow) theta(now fleettime.Mono, t *Tally, waiting float64) float64 {
	prior := priorHazard
	if f.turnover.Doubt(f.bounds).ByRate {
		prior = 0
	}
	if f.n == 0 {
		return prior
	}
	s := f.since(now, flowSpan)
	gone := float64(t.Joined-s.joined) - float64(t.Entered-s.entered) - (waiting - s.waiting)
	person := f.since(now, missedAfter).person - f.since(now, flowSpan+missedAfter).person
	return (max(0, gone) + priorWeight*prior) / (person + priorWeight)
}

// since returns the newest sample that is at least d old, or the oldest one.
func (f *Flow) since(now fleettime.Mono, d time.Duration) *flowSample {
	for i := 1; i <= min(f.n, flowSamples); i++ {
		if s := &f.samples[(f.n-i)%flowSamples]; now.Sub(s.at) >= d {
			return s
		}
	}
	return &f.samples[(f.n-min(f.n, flowSamples))%flowSamples]
}
