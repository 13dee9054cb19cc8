package share

import (
	"math"
	"slices"
	"time"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/wire"
)

// ViewGap is the minimum interval between views, unless a queue begins or ends. A view is computed anew after ViewAge
// while there is a queue, even if nothing is reported.
const (
	ViewGap = 200 * time.Millisecond
	ViewAge = 500 * time.Millisecond
)

const (
	callAhead = 0.5  // seconds of admissions called before permits are free: until the next view arrives
	passAhead = 1.0  // seconds of admissions by which held visitors may pass others
	parkAhead = 12.0 // seconds of admissions held at the edges
	burstRest = 0.1  // permits of a burst that may wait for its first admissions, as a part of these
	headHeld  = 1000 // of the line, held even if their turn is not near: limits may be raised, and a release may begin
)

// Prospect is the input of a view: the state of the room or, under isolation, of its part in a data centre, at one
// moment.
type Prospect struct {
	Flow         *Flow
	Rounds       *Rounds
	Lines        []estimate.Histogram // waiting visitors of each child; slices may be negative, their sums are not
	Absent       []estimate.Histogram // waiting visitors of silent children: they count in the line and are not called
	Supply, Rate int64                // idle permits of T and of R
	Total, Limit int64                // all permits of T and of R
	Pending      []estimate.Histogram // visitors expected to return for the first time, of each child
	HeldJoined   []fleettime.Time     // join times of held visitors, ascending
	Wanted       float64              // permits that newcomers need until the next report
	Debt         bool                 // nobody enters: a lowered limit is exceeded
	Paused       bool                 // nobody enters but by a pass
	Called       fleettime.Time       // visitors that joined before this time may enter by a pass
	Random       bool                 // visitors are called by rounds
	Lot          Lot                  // of the rounds
	Held         float64              // called visitors at the edges
	Overdue      float64              // called visitors that have not asked for ten seconds
	Tally        Tally
	Coming       []ledger.Change
	Own          bool // Total and Limit are those lent to the data centre
}

// View returns the view: the number of free permits, and the join times up to which visitors may enter, or may be
// held for their turn.
func (x *Prospect) View(now fleettime.Mono, ft fleettime.Time) *wire.View {
	waiting := x.People()
	here := estimate.Sum(x.Lines...).Clamp()
	whole := here.Compact(wire.MaxSlices)
	x.Overdue = x.Flow.overdue(now, x.Overdue)
	v := x.describe(now, ft, here)
	if x.Random {
		x.callRounds(now, ft, v, here, waiting)
	} else {
		*x.Rounds = Rounds{}
	}
	switch {
	case x.closed():
		x.shut(v, whole, waiting)
	case x.Open(waiting):
	case x.Random:
		v.Cutoff = x.Rounds.cutoff()
		v.Park = v.Cutoff
	default:
		x.call(v, whole, waiting)
	}
	return v
}

// People returns the number of waiting visitors.
func (x *Prospect) People() float64 {
	n := 0.0
	for _, h := range x.Lines {
		n += h.Total()
	}
	return n
}

// closed reports whether nobody enters but by a pass.
func (x *Prospect) closed() bool { return x.Debt || x.Paused }

// Open reports whether newcomers may enter while people wait.
func (x *Prospect) Open(waiting float64) bool {
	return !x.closed() && (waiting < 0.5 || float64(min(x.Supply, x.Rate)) >= waiting+x.Wanted)
}

// avail returns the free permits of the binding limit.
func (x *Prospect) avail() int64 { return min(x.Supply, x.Rate) }

// describe returns a view in which every visitor may enter, with the line and the forecast. here are the waiting
// visitors of the children that report.
func (x *Prospect) describe(now fleettime.Mono, ft fleettime.Time, here estimate.Histogram) *wire.View {
	all := estimate.Sum(append(x.Absent, here)...).Clamp()
	known := all.Total()
	all, joining := x.expect(ft, all, known)
	x.Flow.Sample(now, &x.Tally, known)
	v := &wire.View{
		At: ft, Cutoff: estimate.Open, Park: estimate.Open,
		Free: x.avail(), Active: x.Tally.Active,
		Mu:    x.Flow.mu(now, x.Tally.Admitted),
		Theta: x.Flow.theta(now, &x.Tally, known),
		Line:  estimate.NewDigest(all.Compact(wire.MaxSlices)), Joining: joining,
	}
	if v.Line.Total() >= 0.5 || x.closed() {
		v.Paces, v.Ranges = x.Flow.forecast(now, ft, x.Tally.Life, estimate.Limits{
			Total: float64(x.Total), PerMinute: float64(x.Limit), Free: float64(max(0, x.avail())),
		}, x.Coming)
	}
	if !x.Own {
		v.Changed = x.Flow.changed
	}
	return v
}

// rush bounds the expected first returns, as a multiple of T, beyond the number of visitors that wait already. The first
// seconds of a flood of robots look like a rush: the bound limits their effect on the estimate. Most of a rush may come
// within the second before the first returns, and a forecast that is too short stays for the whole wait.
const rush = 10.0

// expect adds visitors that joined lately and have not polled again, and returns the rate at which visitors join.
func (x *Prospect) expect(
	ft fleettime.Time, h estimate.Histogram, waiting float64,
) (all estimate.Histogram, joining float64) {
	pending := estimate.Sum(x.Pending...).Clamp()
	if n, most := pending.Total(), waiting+float64(x.Total)*rush; n > most {
		pending = slices.Clone(pending)
		for i := range pending {
			pending[i].N *= most / n
		}
	}
	all = estimate.Sum(h, pending)
	const span = 2 * time.Second // of the newest join times that all reports include
	known := ft.Add(-wire.NewestReports)
	return all, (all.Before(known) - all.Before(known.Add(-span))) / span.Seconds()
}

// callRounds calls visitors by rounds and forecasts the waits of the others. Under a debt those are called that will
// enter within [ahead], and are held until it is paid. While the room is paused nobody is called, but the round begins:
// a view without rounds would promise an order.
func (x *Prospect) callRounds(
	now fleettime.Mono, ft fleettime.Time, v *wire.View, here estimate.Histogram, waiting float64,
) {
	r := x.Rounds
	if !x.Open(waiting) {
		r.begin(ft, x.Lot)
		if waiting >= 0.5 && !x.Paused {
			soon := estimate.Entered(v.Paces, wire.RateWindow) * ahead.Seconds() / wire.RateWindow.Seconds()
			r.call(ft, here, float64(max(0, x.avail()))+soon, x.Held)
		}
	}
	v.Rounds = r.recent
	if v.Paces == nil {
		return
	}
	joining, fading := x.Flow.joining(now, x.Tally.Joined)
	paces := v.Paces
	if x.Flow.turnover.Doubt(x.Flow.bounds).ByRate {
		// Permits of R become free in the bursts in which they were used. A called visitor polls at any time
		// of a round, which evens out the bursts.
		paces = []estimate.Pace{{Mu: estimate.Entered(paces, wire.RateWindow) / wire.RateWindow.Seconds()}}
	}
	v.Waits = r.waits(x.Held+r.coming(), v.Line.Total(), joining, fading, paces, v.Theta)
}

// shut lets visitors enter only by a pass. A called visitor would take each permit that becomes free before it can be
// returned, and a lowered limit would never be reached. A round goes on with the visitors that it called: of a random
// room, only these are held. Passes are for the first of the line.
func (x *Prospect) shut(v *wire.View, whole estimate.Histogram, waiting float64) {
	v.Cutoff, v.Called = 0, x.Called
	if len(v.Rounds) > 0 && !x.Paused {
		v.Park = x.Rounds.cutoff()
	} else if hold := max(parkAhead*v.Mu+1, headHeld); hold < waiting {
		v.Park = whole.At(hold)
	}
}

// call calls the visitors that the free permits reach in the order of the line, or those that will be admitted before
// the next view reaches the edges if these are more. A data centre uses the permits that become free there for its own
// called visitors: with more of them, some would pass others that wait in another data centre. A called visitor that
// has not asked for ten seconds is skipped, and enters first on its return. While called visitors are between two
// polls, held ones may go first, but only as many as will be admitted within passAhead: the next permits are for the
// visitors that were passed.
func (x *Prospect) call(v *wire.View, whole estimate.Histogram, waiting float64) {
	soon := v.Mu        // in a second
	if v.Paces != nil { // after a burst of permits nobody may follow, which a forecast of before the burst does not show
		soon = min(soon, estimate.Entered(estimate.Later(v.Paces, forecastEvery), time.Second))
	}
	called := max(1, float64(x.avail()), callAhead*soon)
	reach := math.Floor(called + min(max(0, x.Overdue), waiting))
	v.Cutoff = x.upTo(whole, reach)
	if n := int(called); n <= len(x.HeldJoined) {
		v.Cutoff = max(v.Cutoff, min(x.HeldJoined[n-1], x.upTo(whole, math.Floor(reach+passAhead*soon))))
	}
	hold := max(max(whole.Before(v.Cutoff), reach)+parkAhead*v.Mu+1, headHeld)
	if hold < waiting {
		v.Park = max(whole.At(hold), whole.SliceOf(v.Cutoff).End()-1)
	}
}

// upTo returns the place of the last of n visitors. Within a slice of the line only the places of held visitors are
// known: of these, as many are called as permits are left for the slice. If that is a small part of a burst, the slice
// waits until the visitors before it have entered: by then its own are held.
func (x *Prospect) upTo(whole estimate.Histogram, n float64) fleettime.Time {
	at := whole.At(n) // the place of the next visitor
	in := whole.SliceOf(at)
	before := whole.Before(in.Start)
	k := max(0, int(n-before)) // of the visitors in the slice
	if k > 0 && float64(k) <= burstRest*(before-max(0, x.Overdue)) {
		return in.Start - 1
	}
	first, _ := slices.BinarySearch(x.HeldJoined, in.Start)
	held := x.HeldJoined[first:]
	for i, joined := range held[:min(k, len(held))] {
		if joined >= in.End() {
			held = held[:i]
			break
		}
	}
	switch m := min(k, len(held)); m {
	case 0:
		return at - 1
	case k:
		return held[m-1]
	default:
		return max(at-1, held[m-1])
	}
}

// SameView reports whether two views have the same effect on visitors and edges.
func SameView(a, b *wire.View) bool {
	if a.Since != b.Since || a.Changed != b.Changed || a.Cutoff != b.Cutoff || a.Called != b.Called || a.Park != b.Park ||
		a.Free != b.Free || a.Active != b.Active {
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

// alike reports whether two rates differ by too little to notice.
func alike(a, b float64) bool {
	d := a - b
	return d*d <= 1e-4*(a*a+b*b)
}

// MergeTimes returns the first most join times of several ascending lists. The result is read-only.
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
