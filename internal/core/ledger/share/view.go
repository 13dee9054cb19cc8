package share

import (
	"slices"
	"time"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// ViewGap is the least time between views, unless a queue begins or ends.
const ViewGap = 200 * time.Millisecond

const (
	gainAhead = 1.0  // seconds of admissions called at factor 1
	parkAhead = 12.0 // seconds of admissions held at the edges
	shutAhead = 1000 // visitors held at the edges of a room that is paused: a release finds them there
)

// Prospect is the input of a view: the state of the room, or under isolation of the data centre, at one
// moment.
type Prospect struct {
	Flow         *Flow
	Gain         *Gain
	Lines        []estimate.Histogram // waiting visitors of each child
	Absent       []estimate.Histogram // waiting visitors of children that are silent: they count in the line, and are not called
	Supply, Rate int64                // idle rights of T and of R
	Total, Limit int64                // all permits of T and of R
	Pending      []estimate.Histogram // visitors expected to return for the first time, of each child
	HeldJoined   []fleettime.Time     // join times of people held at the edges, ascending
	Wanted       float64              // rights that newcomers want by the next report
	Debt         bool                 // more is lent than a lowered limit allows: nobody may enter
	Shut         bool                 // an operator lets nobody in: as a debt,
	Called       fleettime.Time       // visitors that joined before this time enter by a pass
	Random       bool                 // chance calls visitors, by rounds
	Lot          Lot                  // of the rounds
	Held         float64              // called visitors at the edges
	Tally        Tally
	Own          bool // Total and Limit are those lent to the data centre
}

// View tells how many permits are free, and up to which join time visitors may enter and be held for
// their turn.
func (x *Prospect) View(now fleettime.Mono, ft fleettime.Time) *wire.View {
	waiting := x.People()
	here := estimate.Sum(x.Lines...)
	whole := here.Compact(wire.MaxSlices)
	v := x.describe(now, ft, here)
	if x.Random {
		x.callRounds(now, ft, v, here, waiting)
	} else {
		x.Gain.rounds = rounds{}
	}
	switch {
	case x.Debt:
		x.Gain.step(now, 0, x.Tally.Admitted)
		x.shut(v, whole, waiting)
	case x.Open(waiting):
		x.Gain.step(now, 0, x.Tally.Admitted)
		x.Gain.reached = 0
	case x.Random:
		x.Gain.step(now, x.idle(), x.Tally.Admitted)
		v.Cutoff = x.Gain.rounds.cutoff()
		v.Park = v.Cutoff
	default:
		x.Gain.step(now, x.idle(), x.Tally.Admitted)
		x.call(v, whole, waiting)
	}
	return v
}

// People returns how many wait.
func (x *Prospect) People() float64 {
	n := 0.0
	for _, h := range x.Lines {
		n += h.Total()
	}
	return n
}

// Open reports whether everybody may enter while waiting visitors wait.
func (x *Prospect) Open(waiting float64) bool {
	return !x.Debt && (waiting < 0.5 || float64(min(x.Supply, x.Rate)) >= waiting+x.Wanted)
}

// avail returns the free permits of the limit that binds: those of the other are no use.
func (x *Prospect) avail() int64 { return min(x.Supply, x.Rate) }

// idle returns the idle share of the limit that binds.
func (x *Prospect) idle() float64 { return min(part(x.Supply, x.Total), part(x.Rate, x.Limit)) }

func part(n, of int64) float64 { return float64(max(n, 0)) / float64(max(of, 1)) }

// describe returns a view that lets everybody enter, with the line and the forecast. here are the
// visitors that wait at children that report.
func (x *Prospect) describe(now fleettime.Mono, ft fleettime.Time, here estimate.Histogram) *wire.View {
	all := estimate.Sum(append(x.Absent, here)...)
	known := all.Total()
	all, joining := x.expect(ft, all, known)
	x.Flow.Sample(now, &x.Tally, known)
	v := &wire.View{
		At: ft, Cutoff: estimate.Open, Park: estimate.Open,
		Slots: x.avail(), Active: x.Tally.Active,
		Mu:    x.Flow.mu(now, x.Tally.Admitted),
		Theta: x.Flow.theta(now, &x.Tally, known),
		Line:  estimate.NewDigest(all.Compact(wire.MaxSlices)), Joining: joining,
	}
	if v.Line.Total() >= 0.5 || x.Debt {
		v.Paces, v.Ranges = x.Flow.forecast(now, ft, x.Tally.Life, estimate.Limits{Total: float64(x.Total), PerMinute: float64(x.Limit), Free: float64(max(0, x.avail()))})
	}
	if !x.Own {
		v.Changed = x.Flow.changed
	}
	return v
}

// rush bounds the visitors that are expected to return for the first time, as a part of T, beyond as
// many as wait already. The first seconds of a flood of robots look like those of a rush: this bounds
// the effect of robots on the estimate.
const rush = 1.0

// expect adds visitors that joined lately and have yet to return to the line, and returns how many join
// per second.
func (x *Prospect) expect(ft fleettime.Time, h estimate.Histogram, waiting float64) (all estimate.Histogram, joining float64) {
	pending := estimate.Sum(x.Pending...).Clamp()
	if n, most := pending.Total(), waiting+float64(x.Total)*rush; n > most {
		pending = slices.Clone(pending)
		for i := range pending {
			pending[i].N *= most / n
		}
	}
	all = estimate.Sum(h, pending)
	const lag, span = 750, 2000 // ms: times newer than reports are not known; of the known times, the newest
	return all, (all.Before(ft-lag) - all.Before(ft-lag-span)) * 1000 / span
}

// callRounds calls visitors by chance, and forecasts the waits of the others.
func (x *Prospect) callRounds(now fleettime.Mono, ft fleettime.Time, v *wire.View, here estimate.Histogram, waiting float64) {
	r := &x.Gain.rounds
	if !x.Debt && !x.Open(waiting) {
		r.call(ft, x.Lot, here, float64(max(0, x.avail()))+estimate.Entered(v.Paces, wire.RateWindow)*ahead.Seconds()/wire.RateWindow.Seconds(), x.Held)
	}
	v.Rounds = r.recent
	if v.Paces == nil {
		return
	}
	joining, fading := x.Flow.joining(now, x.Tally.Joined)
	paces := v.Paces
	if x.Flow.turnover.Doubt(x.Flow.bounds).ByRate {
		// The permits of R come back in the bursts in which they were used. A visitor that was called
		// asks at any time of a round, which evens the bursts out.
		paces = []estimate.Pace{{Mu: estimate.Entered(paces, wire.RateWindow) / wire.RateWindow.Seconds()}}
	}
	v.Waits = r.waits(x.Held+r.coming(), v.Line.Total(), joining, fading, paces, v.Theta)
}

// shut lets nobody enter but by a pass: a visitor that was called would take each permit that becomes
// free before it can be returned, and a lowered limit would never be reached.
func (x *Prospect) shut(v *wire.View, whole estimate.Histogram, waiting float64) {
	v.Cutoff, v.Called = 0, x.Called
	hold := parkAhead*v.Mu + 1
	if x.Shut {
		hold = max(hold, shutAhead)
	}
	if hold < waiting {
		v.Park = whole.At(hold)
	}
}

// call calls visitors that will be let in before the next view reaches the edges. They are called by the
// place of held visitors: a visitor in front of them that is not there is passed, and goes first on
// coming back. Where too few are held, the line itself tells how far to call.
func (x *Prospect) call(v *wire.View, whole estimate.Histogram, waiting float64) {
	called := float64(x.avail()) + x.Gain.factor*gainAhead*v.Mu
	if n := int(called + 0.5); n < len(x.HeldJoined) {
		v.Cutoff = x.HeldJoined[n]
	} else {
		v.Cutoff = whole.At(called)
		if n := len(x.HeldJoined); n > 0 {
			v.Cutoff = max(v.Cutoff, x.HeldJoined[n-1])
		}
	}
	if x.Gain.stalled >= stall {
		// Nobody comes. Where in a slice its visitors joined is not known: when a
		// crowd came in one instant, the place between them that is called by
		// number may have nobody before it.
		x.Gain.reached = max(x.Gain.reached, sliceEnd(whole, v.Cutoff))
	}
	v.Cutoff = max(v.Cutoff, x.Gain.reached)
	hold := max(whole.Before(v.Cutoff), called) + parkAhead*v.Mu + 1
	if hold < waiting {
		v.Park = whole.At(hold)
	}
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

// SameView reports whether two views tell visitors and edges the same.
func SameView(a, b *wire.View) bool {
	if a.Since != b.Since || a.Changed != b.Changed || a.Cutoff != b.Cutoff || a.Called != b.Called || a.Park != b.Park || a.Slots != b.Slots || a.Active != b.Active {
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

// MergeTimes returns the first most join times of several lists, each ascending. The result is
// read-only.
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
