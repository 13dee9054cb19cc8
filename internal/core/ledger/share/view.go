package slots

import (
	"slices"
	"time"

	"vestibule/internal/fleet"
	"vestibule/internal/line"
	"vestibule/internal/wire"
)

// gain decides how far ahead of the free slots people are called to the door.
// Too few, and a slot waits for its visitor; too many, and somebody who joined
// later enters first. The factor grows while slots lie idle and shrinks while
// they do not.
type gain struct {
	factor  float64
	at      fleet.Mono
	entered uint64     // admissions as of the last step
	stalled int        // steps in a row in which slots lay idle and nobody came
	reached fleet.Time // who joined before it has been called, and stays so
	rounds  rounds     // where chance decides who is called
}

const (
	viewGap   = 200 * time.Millisecond // least time between views, unless a queue begins or ends
	gainStep  = 500 * time.Millisecond
	gainAhead = 1.0  // seconds of admissions called at factor 1
	parkAhead = 12.0 // seconds of admissions held at the edges
	shutAhead = 1000 // people held at the edges of a room that is paused: a release finds them there
	idleAim   = 0.004
	stall     = 20 // steps in which nobody comes, after which people are called by whole slices of the line
)

func (c *gain) due(now fleet.Mono) bool { return now.Sub(c.at) >= gainStep }

// step adjusts the factor to the idle share of the limit that binds.
func (c *gain) step(now fleet.Mono, idle float64, admitted uint64) {
	if !c.due(now) {
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

// flow is what is learned of how people come, enter, stay and give up.
type flow struct {
	samples  [flowSamples]flowSample // ring, one per second
	n        int                     // samples taken in all
	person   float64                 // cumulative person-seconds waited
	last     fleet.Mono
	waiting  float64
	turnover line.Turnover
	spread   line.Spread

	// What is foreseen, and of what.
	foreseen fleet.Mono
	bounds   line.Limits
	paces    []line.Pace
	ranges   line.Ranges
}

// foresee returns how fast people will enter, and between what waits are. It looks
// again every two seconds, and when a limit has changed.
func (f *flow) foresee(now fleet.Mono, x line.Limits) ([]line.Pace, line.Ranges) {
	same := x.Total == f.bounds.Total && x.PerMinute == f.bounds.PerMinute
	if !same || f.paces == nil || now.Sub(f.foreseen) >= foreseeEvery {
		f.foreseen, f.bounds = now, x
		f.paces, f.ranges = f.turnover.Paces(x), f.spread.Ranges(f.turnover.Doubt(x))
	}
	return line.Later(f.paces, now.Sub(f.foreseen)), f.ranges
}

// tally is how things stand in a room, or under isolation in a data centre.
type tally struct {
	life                      time.Duration // of a ticket
	active                    uint64
	admitted, joined, entered uint64 // cumulative
	outcomes                  line.Outcomes
}

type flowSample struct {
	at                        fleet.Mono
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

// sample notes the present.
func (f *flow) sample(now fleet.Mono, t *tally, waiting float64) {
	f.turnover.Observe(now, t.life, float64(t.active), float64(t.admitted))
	f.spread.Take(t.outcomes)
	if f.n > 0 {
		f.person += f.waiting * now.Sub(f.last).Seconds()
	}
	f.last, f.waiting = now, waiting
	if f.n > 0 && now.Sub(f.newest().at) < time.Second {
		return
	}
	f.samples[f.n%flowSamples] = flowSample{now, t.admitted, t.joined, t.entered, waiting, f.person}
	f.n++
}

func (f *flow) newest() *flowSample { return &f.samples[(f.n-1)%flowSamples] }

// since returns the newest sample that is at least d old, or the oldest kept.
func (f *flow) since(now fleet.Mono, d time.Duration) *flowSample {
	for i := 1; i < min(f.n, flowSamples); i++ {
		if s := &f.samples[(f.n-1-i)%flowSamples]; now.Sub(s.at) >= d {
			return s
		}
	}
	return &f.samples[(f.n-min(f.n, flowSamples))%flowSamples]
}

// mu returns the admissions per second: the mean of the last minute's and the
// last five minutes'.
func (f *flow) mu(now fleet.Mono, admitted uint64) float64 {
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

// joining returns how many people per second began to wait in the last minute.
func (f *flow) joining(now fleet.Mono, joined uint64) float64 {
	if f.n == 0 {
		return 0
	}
	s := f.since(now, time.Minute)
	return float64(joined-s.joined) / max(1, now.Sub(s.at).Seconds())
}

// theta returns the share of those who wait that gives up per second: those who
// were missed over the person-seconds of the time in which they gave up.
func (f *flow) theta(now fleet.Mono, t *tally, waiting float64) float64 {
	if f.n == 0 {
		return priorHazard
	}
	s := f.since(now, flowSpan)
	gone := float64(t.joined-s.joined) - float64(t.entered-s.entered) - (waiting - s.waiting)
	person := f.since(now, missedAfter).person - f.since(now, flowSpan+missedAfter).person
	return (max(0, gone) + priorWeight*priorHazard) / (person + priorWeight)
}

// prospect is what a view is made of: the room, or under isolation the data
// centre, at one moment.
type prospect struct {
	flow         *flow
	gain         *gain
	lines        []line.Histogram // who waits, of each child
	absent       []line.Histogram // who waits where nothing is heard now: they are told of, and not called
	supply, rate int64            // idle rights of T and of R
	total, limit int64            // of which so many exist
	pending      []line.Histogram // who is expected to return for the first time, of each child
	heldJoined   []fleet.Time     // join times of people held at the edges, ascending
	wanted       float64          // rights that newcomers want by the next report
	debt         bool             // more is lent than a lowered limit allows: nobody may enter
	shut         bool             // an operator lets nobody in: as a debt,
	called       fleet.Time       // but who joined before it enters by a pass
	random       bool             // chance decides who is called, by rounds
	lot          lot              // of which
	held         float64          // people at the edges who were called
	tally        tally
}

// rush is how many people may be expected who have not returned yet, as a part of T,
// beyond as many as wait already. The first seconds of a flood of robots look like
// those of a rush: what they can do to the estimate is bounded by this.
const rush = 1.0

// people returns how many wait.
func (x *prospect) people() float64 {
	n := 0.0
	for _, h := range x.lines {
		n += h.Total()
	}
	return n
}

// expect adds to the line who has joined of late and is yet to return, and tells
// how many people join per second.
func (x *prospect) expect(ft fleet.Time, h line.Histogram, waiting float64) (all line.Histogram, joining float64) {
	pending := line.Sum(x.pending...).Clamp()
	if n, most := pending.Total(), waiting+float64(x.total)*rush; n > most {
		pending = slices.Clone(pending)
		for i := range pending {
			pending[i].N *= most / n
		}
	}
	all = line.Sum(h, pending)
	const lag, span = 750, 2000 // ms: what is newer than reports are is not known; of what is known, the newest
	return all, (all.Before(ft-lag) - all.Before(ft-lag-span)) * 1000 / span
}

// open reports whether everybody may enter, where so many people wait.
func (x *prospect) open(waiting float64) bool {
	return !x.debt && (waiting < 0.5 || float64(min(x.supply, x.rate)) >= waiting+x.wanted)
}

// view tells how many slots there are, and up to which join time people may
// enter and be held for their turn.
func (x *prospect) view(now fleet.Mono, ft fleet.Time) *wire.View {
	// The horizon follows the limit that binds: slots of the other are no use.
	avail := min(x.supply, x.rate)
	waiting := x.people()
	here := line.Sum(x.lines...)
	whole := here.Compact(wire.MaxSlices)
	all := line.Sum(append(x.absent, here)...)
	known := all.Total()
	all, joining := x.expect(ft, all, known)
	x.flow.sample(now, &x.tally, known)
	v := &wire.View{
		At: ft, Horizon: line.Open, Park: line.Open,
		Slots: avail, Active: x.tally.active,
		Mu:    x.flow.mu(now, x.tally.admitted),
		Theta: x.flow.theta(now, &x.tally, known),
		Line:  line.NewDigest(all.Compact(wire.MaxSlices)), Joining: joining,
	}
	if v.Line.Total() >= 0.5 || x.debt {
		v.Paces, v.Ranges = x.flow.foresee(now, line.Limits{Total: float64(x.total), PerMinute: float64(x.limit), Free: float64(max(0, avail))})
	}
	if r := &x.gain.rounds; x.random {
		if !x.debt && !x.open(waiting) {
			r.call(ft, x.lot, here, float64(max(0, avail))+ahead*v.Mu, x.held)
		}
		v.Rounds = r.recent
		if v.Paces != nil {
			v.Waits = r.waits(v.Line.Total(), x.flow.joining(now, x.tally.joined), v)
		}
	} else {
		x.gain.rounds = rounds{}
	}
	if x.debt {
		// Whoever was called would take each right that becomes free before it
		// can go back, and the limit would stay as it was for ever.
		x.gain.step(now, 0, x.tally.admitted)
		v.Horizon, v.Called = 0, x.called
		hold := parkAhead*v.Mu + 1
		if x.shut {
			hold = max(hold, shutAhead)
		}
		if hold < waiting {
			v.Park = whole.At(hold)
		}
		return v
	}
	if x.open(waiting) {
		x.gain.step(now, 0, x.tally.admitted)
		x.gain.reached = 0
		return v
	}
	idle := min(part(x.supply, x.total), part(x.rate, x.limit))
	x.gain.step(now, idle, x.tally.admitted)
	if x.random {
		v.Horizon = x.gain.rounds.horizon()
		v.Park = v.Horizon
		return v
	}
	// Those who will be let in before the next view reaches the edges are
	// called by the place of people who are there, held at an edge: whoever
	// stands in front of them without being there is passed, and goes first on
	// coming back. Where too few are there, the line itself tells how far to call.
	called := float64(avail) + x.gain.factor*gainAhead*v.Mu
	if n := int(called + 0.5); n < len(x.heldJoined) {
		v.Horizon = x.heldJoined[n]
	} else {
		v.Horizon = whole.At(called)
		if n := len(x.heldJoined); n > 0 {
			v.Horizon = max(v.Horizon, x.heldJoined[n-1])
		}
	}
	if x.gain.stalled >= stall {
		// Nobody comes. Where in a slice its people joined is not known: when a
		// crowd came in one instant, the place between them that is called by
		// number may have nobody before it.
		x.gain.reached = max(x.gain.reached, sliceEnd(whole, v.Horizon))
	}
	v.Horizon = max(v.Horizon, x.gain.reached)
	hold := max(whole.Before(v.Horizon), called) + parkAhead*v.Mu + 1
	if hold < waiting {
		v.Park = whole.At(hold)
	}
	return v
}

// sliceEnd returns the end of the slice of h that t lies in or before.
func sliceEnd(h line.Histogram, t fleet.Time) fleet.Time {
	for _, s := range h {
		if t < s.End() {
			return s.End()
		}
	}
	return t
}

func part(n, of int64) float64 { return float64(max(n, 0)) / float64(max(of, 1)) }

// sameView reports whether two views tell visitors and edges the same.
func sameView(a, b *wire.View) bool {
	if a.Horizon != b.Horizon || a.Called != b.Called || a.Park != b.Park || a.Slots != b.Slots || a.Active != b.Active {
		return false
	}
	paces := line.Later(a.Paces, b.At.Sub(a.At))
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

// mergeTimes returns the first join times of several lists, each ascending, at
// most so many. What it returns is not to be changed.
func mergeTimes(lists [][]fleet.Time, most int) []fleet.Time {
	switch len(lists) {
	case 0:
		return nil
	case 1:
		return lists[0][:min(len(lists[0]), most)]
	}
	a, b := mergeTimes(lists[:len(lists)/2], most), mergeTimes(lists[len(lists)/2:], most)
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0:
		return a
	}
	out := make([]fleet.Time, 0, min(len(a)+len(b), most))
	for len(out) < cap(out) {
		if len(b) == 0 || (len(a) > 0 && a[0] <= b[0]) {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return out
}
