package share

import (
	"slices"
	"time"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// Gain decides how far ahead of the free slots people are called to the door.
// Too few, and a slot waits for its visitor; too many, and somebody who joined
// later enters first. The factor grows while slots lie idle and shrinks while
// they do not.
type Gain struct {
	factor  float64
	at      fleettime.Mono
	entered uint64         // admissions as of the last step
	stalled int            // steps in a row in which slots lay idle and nobody came
	reached fleettime.Time // who joined before it has been called, and stays so
	rounds  rounds         // where chance decides who is called
}

// ViewGap is the least time between views, unless a queue begins or ends.
const ViewGap = 200 * time.Millisecond

const (
	gainStep  = 500 * time.Millisecond
	gainAhead = 1.0  // seconds of admissions called at factor 1
	parkAhead = 12.0 // seconds of admissions held at the edges
	shutAhead = 1000 // people held at the edges of a room that is paused: a release finds them there
	idleAim   = 0.004
	stall     = 20 // steps in which nobody comes, after which people are called by whole slices of the line
)

// Due reports whether the factor is to be adjusted again.
func (c *Gain) Due(now fleettime.Mono) bool { return now.Sub(c.at) >= gainStep }

// step adjusts the factor to the idle share of the limit that binds.
func (c *Gain) step(now fleettime.Mono, idle float64, admitted uint64) {
	if !c.Due(now) {
		return
	}
	c.at = now
	if c.factor == 0 {
		c.factor = 1
	}
	if c.stalled++; idle <= idleAim || admitted != c.entered {
		c.stalled, c.entered = 0, admitted
	}
	if idle > idleAim {
		c.factor = min(16, c.factor*1.1)
	} else {
		c.factor = max(0.25, c.factor*0.97)
	}
}

// Flow is what is learned of how people come, enter, stay and give up.
type Flow struct {
	samples  [flowSamples]flowSample // ring, one per second
	n        int                     // samples taken in all
	person   float64                 // cumulative person-seconds waited
	last     fleettime.Mono
	waiting  float64
	lined    fleettime.Mono // since when there has been a line
	turnover estimate.Turnover
	spread   estimate.Spread

	// What is foreseen, and of what.
	foreseen fleettime.Mono
	bounds   estimate.Limits
	life     time.Duration
	changed  fleettime.Time // when one of the two was another one last; 0 where that was not seen
	paces    []estimate.Pace
	ranges   estimate.Ranges
}

// foresee returns how fast people will enter, and between what waits are. It looks
// again every two seconds, and when a limit has changed.
func (f *Flow) foresee(now fleettime.Mono, ft fleettime.Time, life time.Duration, x estimate.Limits) ([]estimate.Pace, estimate.Ranges) {
	same := x.Total == f.bounds.Total && x.PerMinute == f.bounds.PerMinute && life == f.life
	if !same && f.life != 0 {
		f.changed = ft
	}
	f.life = life
	if !same || f.paces == nil || now.Sub(f.foreseen) >= foreseeEvery {
		f.foreseen, f.bounds = now, x
		f.paces, f.ranges = f.turnover.Paces(x), f.spread.Ranges(f.turnover.Doubt(x))
	}
	return estimate.Later(f.paces, now.Sub(f.foreseen)), f.ranges
}

// Tally is how things stand in a room, or under isolation in a data centre.
type Tally struct {
	Life                      time.Duration // of a ticket
	Active                    uint64
	Admitted, Joined, Entered uint64 // cumulative
	Outcomes                  estimate.Outcomes
}

type flowSample struct {
	at                        fleettime.Mono
	admitted, joined, entered uint64
	waiting, person           float64
}

const (
	flowSamples = 361
	flowSpan    = 5 * time.Minute

	foreseeEvery = 2 * time.Second

	// Somebody who gives up is missed when the window of the last poll is over.
	missedAfter = 45 * time.Second

	// Before anybody has given up, one in half an hour is supposed to, with
	// the weight of ten minutes' waiting.
	priorHazard = 1.0 / 1800
	priorWeight = 600.0
)

// Churn returns what was learned of how long sessions last.
func (f *Flow) Churn() estimate.Churn { return f.turnover.Churn() }

// Recall adds what a predecessor learned of how long sessions last.
func (f *Flow) Recall(c estimate.Churn) { f.turnover.Recall(c) }

// Sample notes the present.
func (f *Flow) Sample(now fleettime.Mono, t *Tally, waiting float64) {
	f.turnover.Observe(now, t.Life, float64(t.Active), float64(t.Admitted))
	f.spread.Take(t.Outcomes)
	if f.n > 0 {
		f.person += f.waiting * now.Sub(f.last).Seconds()
	}
	if f.last, f.waiting = now, waiting; waiting < 1 {
		f.lined = now
	}
	if f.n > 0 && now.Sub(f.newest().at) < time.Second {
		return
	}
	f.samples[f.n%flowSamples] = flowSample{now, t.Admitted, t.Joined, t.Entered, waiting, f.person}
	f.n++
}

func (f *Flow) newest() *flowSample { return &f.samples[(f.n-1)%flowSamples] }

// since returns the newest sample that is at least d old, or the oldest kept.
func (f *Flow) since(now fleettime.Mono, d time.Duration) *flowSample {
	for i := 1; i < min(f.n, flowSamples); i++ {
		if s := &f.samples[(f.n-1-i)%flowSamples]; now.Sub(s.at) >= d {
			return s
		}
	}
	return &f.samples[(f.n-min(f.n, flowSamples))%flowSamples]
}

// mu returns the admissions per second: the mean of the last minute's and the
// last five minutes'.
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

// joining returns how many people per second began to wait in the last minute, and for how long as many are supposed to
// do so: as many are supposed to come as came in the last five minutes, and for as long as there has been a line.
func (f *Flow) joining(now fleettime.Mono, joined uint64) (perSecond float64, fading time.Duration) {
	if f.n == 0 {
		return 0, 0
	}
	s, long := f.since(now, time.Minute), f.since(now, flowSpan)
	perSecond = float64(joined-s.joined) / max(1, now.Sub(s.at).Seconds())
	if perSecond > 0 {
		fading = max(now.Sub(f.lined), time.Duration(float64(joined-long.joined)/perSecond*float64(time.Second)))
	}
	return perSecond, fading
}

// theta returns the share of those who wait that gives up per second: those who
// were missed over the person-seconds of the time in which they gave up.
func (f *Flow) theta(now fleettime.Mono, t *Tally, waiting float64) float64 {
	if f.n == 0 {
		return priorHazard
	}
	s := f.since(now, flowSpan)
	gone := float64(t.Joined-s.joined) - float64(t.Entered-s.entered) - (waiting - s.waiting)
	person := f.since(now, missedAfter).person - f.since(now, flowSpan+missedAfter).person
	return (max(0, gone) + priorWeight*priorHazard) / (person + priorWeight)
}

// Prospect is what a view is made of: the room, or under isolation the data
// centre, at one moment.
type Prospect struct {
	Flow         *Flow
	Gain         *Gain
	Lines        []estimate.Histogram // who waits, of each child
	Absent       []estimate.Histogram // who waits where nothing is heard now: they are told of, and not called
	Supply, Rate int64                // idle rights of T and of R
	Total, Limit int64                // of which so many exist
	Pending      []estimate.Histogram // who is expected to return for the first time, of each child
	HeldJoined   []fleettime.Time     // join times of people held at the edges, ascending
	Wanted       float64              // rights that newcomers want by the next report
	Debt         bool                 // more is lent than a lowered limit allows: nobody may enter
	Shut         bool                 // an operator lets nobody in: as a debt,
	Called       fleettime.Time       // but who joined before it enters by a pass
	Random       bool                 // chance decides who is called, by rounds
	Lot          Lot                  // of which
	Held         float64              // people at the edges who were called
	Tally        Tally
	Own          bool // Total and Limit are what is lent to the data centre
}

// rush is how many people may be expected who have not returned yet, as a part of T,
// beyond as many as wait already. The first seconds of a flood of robots look like
// those of a rush: what they can do to the estimate is bounded by this.
const rush = 1.0

// People returns how many wait.
func (x *Prospect) People() float64 {
	n := 0.0
	for _, h := range x.Lines {
		n += h.Total()
	}
	return n
}

// expect adds to the line who has joined of late and is yet to return, and tells
// how many people join per second.
func (x *Prospect) expect(ft fleettime.Time, h estimate.Histogram, waiting float64) (all estimate.Histogram, joining float64) {
	pending := estimate.Sum(x.Pending...).Clamp()
	if n, most := pending.Total(), waiting+float64(x.Total)*rush; n > most {
		pending = slices.Clone(pending)
		for i := range pending {
			pending[i].N *= most / n
		}
	}
	all = estimate.Sum(h, pending)
	const lag, span = 750, 2000 // ms: what is newer than reports are is not known; of what is known, the newest
	return all, (all.Before(ft-lag) - all.Before(ft-lag-span)) * 1000 / span
}

// Open reports whether everybody may enter, where so many people wait.
func (x *Prospect) Open(waiting float64) bool {
	return !x.Debt && (waiting < 0.5 || float64(min(x.Supply, x.Rate)) >= waiting+x.Wanted)
}

// View tells how many slots there are, and up to which join time people may
// enter and be held for their turn.
func (x *Prospect) View(now fleettime.Mono, ft fleettime.Time) *wire.View {
	// The horizon follows the limit that binds: slots of the other are no use.
	avail := min(x.Supply, x.Rate)
	waiting := x.People()
	here := estimate.Sum(x.Lines...)
	whole := here.Compact(wire.MaxSlices)
	all := estimate.Sum(append(x.Absent, here)...)
	known := all.Total()
	all, joining := x.expect(ft, all, known)
	x.Flow.Sample(now, &x.Tally, known)
	v := &wire.View{
		At: ft, Horizon: estimate.Open, Park: estimate.Open,
		Slots: avail, Active: x.Tally.Active,
		Mu:    x.Flow.mu(now, x.Tally.Admitted),
		Theta: x.Flow.theta(now, &x.Tally, known),
		Line:  estimate.NewDigest(all.Compact(wire.MaxSlices)), Joining: joining,
	}
	if v.Line.Total() >= 0.5 || x.Debt {
		v.Paces, v.Ranges = x.Flow.foresee(now, ft, x.Tally.Life, estimate.Limits{Total: float64(x.Total), PerMinute: float64(x.Limit), Free: float64(max(0, avail))})
	}
	if !x.Own {
		v.Changed = x.Flow.changed
	}
	if r := &x.Gain.rounds; x.Random {
		if !x.Debt && !x.Open(waiting) {
			r.call(ft, x.Lot, here, float64(max(0, avail))+estimate.Entered(v.Paces, wire.RateWindow)*ahead.Seconds()/wire.RateWindow.Seconds(), x.Held)
		}
		v.Rounds = r.recent
		if v.Paces != nil {
			joining, fading := x.Flow.joining(now, x.Tally.Joined)
			paces := v.Paces
			if x.Flow.turnover.Doubt(x.Flow.bounds).ByRate {
				// The rights of R come back in the bursts in which they were used. Who was called asks at any moment of a
				// round, and evens them out.
				paces = []estimate.Pace{{Mu: estimate.Entered(paces, wire.RateWindow) / wire.RateWindow.Seconds()}}
			}
			v.Waits = r.waits(x.Held+r.coming(), v.Line.Total(), joining, fading, paces, v.Theta)
		}
	} else {
		x.Gain.rounds = rounds{}
	}
	if x.Debt {
		// Whoever was called would take each right that becomes free before it
		// can go back, and the limit would stay as it was for ever.
		x.Gain.step(now, 0, x.Tally.Admitted)
		v.Horizon, v.Called = 0, x.Called
		hold := parkAhead*v.Mu + 1
		if x.Shut {
			hold = max(hold, shutAhead)
		}
		if hold < waiting {
			v.Park = whole.At(hold)
		}
		return v
	}
	if x.Open(waiting) {
		x.Gain.step(now, 0, x.Tally.Admitted)
		x.Gain.reached = 0
		return v
	}
	idle := min(part(x.Supply, x.Total), part(x.Rate, x.Limit))
	x.Gain.step(now, idle, x.Tally.Admitted)
	if x.Random {
		v.Horizon = x.Gain.rounds.horizon()
		v.Park = v.Horizon
		return v
	}
	// Those who will be let in before the next view reaches the edges are
	// called by the place of people who are there, held at an edge: whoever
	// stands in front of them without being there is passed, and goes first on
	// coming back. Where too few are there, the line itself tells how far to call.
	called := float64(avail) + x.Gain.factor*gainAhead*v.Mu
	if n := int(called + 0.5); n < len(x.HeldJoined) {
		v.Horizon = x.HeldJoined[n]
	} else {
		v.Horizon = whole.At(called)
		if n := len(x.HeldJoined); n > 0 {
			v.Horizon = max(v.Horizon, x.HeldJoined[n-1])
		}
	}
	if x.Gain.stalled >= stall {
		// Nobody comes. Where in a slice its people joined is not known: when a
		// crowd came in one instant, the place between them that is called by
		// number may have nobody before it.
		x.Gain.reached = max(x.Gain.reached, sliceEnd(whole, v.Horizon))
	}
	v.Horizon = max(v.Horizon, x.Gain.reached)
	hold := max(whole.Before(v.Horizon), called) + parkAhead*v.Mu + 1
	if hold < waiting {
		v.Park = whole.At(hold)
	}
	return v
}

// sliceEnd returns the end of the slice of h that t lies in or before.
func sliceEnd(h estimate.Histogram, t fleettime.Time) fleettime.Time {
	for _, s := range h {
		if t < s.End() {
			return s.End()
		}
	}
	return t
}

func part(n, of int64) float64 { return float64(max(n, 0)) / float64(max(of, 1)) }

// SameView reports whether two views tell visitors and edges the same.
func SameView(a, b *wire.View) bool {
	if a.Since != b.Since || a.Changed != b.Changed || a.Horizon != b.Horizon || a.Called != b.Called || a.Park != b.Park || a.Slots != b.Slots || a.Active != b.Active {
		return false
	}
	paces := estimate.Later(a.Paces, b.At.Sub(a.At))
	if !alike(a.Mu, b.Mu) || !alike(a.Theta, b.Theta) || !alike(a.Joining, b.Joining) || len(paces) != len(b.Paces) {
		return false
	}
	for i := range paces {
		if !alike(paces[i].Mu, b.Paces[i].Mu) || !alike(paces[i].For.Seconds(), b.Paces[i].For.Seconds()) {
			return false
		}
	}
	for i := range a.Ranges {
		if !alike(a.Ranges[i].Low, b.Ranges[i].Low) || !alike(a.Ranges[i].High, b.Ranges[i].High) {
			return false
		}
	}
	for i := range a.Waits {
		if !alike(a.Waits[i].Seconds(), b.Waits[i].Seconds()) {
			return false
		}
	}
	return slices.Equal(a.Rounds, b.Rounds) && slices.Equal(a.Line.Histogram(), b.Line.Histogram())
}

// alike reports whether two rates differ by less than anybody would notice.
func alike(a, b float64) bool {
	d := a - b
	return d*d <= 1e-4*(a*a+b*b)
}

// MergeTimes returns the first join times of several lists, each ascending, at
// most so many. What it returns is not to be changed.
func MergeTimes(lists [][]fleettime.Time, most int) []fleettime.Time {
	switch len(lists) {
	case 0:
		return nil
	case 1:
		return lists[0][:min(len(lists[0]), most)]
	}
	a, b := MergeTimes(lists[:len(lists)/2], most), MergeTimes(lists[len(lists)/2:], most)
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0:
		return a
	}
	out := make([]fleettime.Time, 0, min(len(a)+len(b), most))
	for len(out) < cap(out) {
		if len(b) == 0 || (len(a) > 0 && a[0] <= b[0]) {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return out
}
