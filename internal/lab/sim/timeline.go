package sim

import (
	"math/rand/v2"
	"time"

	"vestibule/internal/core/fleettime"
)

// timeline is virtual time with its events.
type timeline struct {
	now    int64 // nanoseconds since the start
	agenda agenda
	events uint64 // handled
}

// fleetTime returns true fleet time.
func (tl *timeline) fleetTime() fleettime.Time { return epoch + fleettime.Time(tl.now/1e6) }

func (tl *timeline) plan(e event) { tl.agenda.plan(e) }

// due plans the wake-up of a node at reading m of its clock.
func (tl *timeline) due(t *timer, c nodeClock, m fleettime.Mono, e event) {
	at := tl.now
	if m > c.read(tl.now) {
		if m == fleettime.Never {
			return
		}
		at = max(c.when(m), tl.now+1000) // rounding must not make it now
	}
	if t.at != 0 && t.at <= at {
		return
	}
	t.gen++
	t.at = max(at, 1)
	e.at, e.gen = at, t.gen
	tl.plan(e)
}

// in calls do after d.
func (tl *timeline) in(d time.Duration, do func()) {
	tl.plan(event{at: tl.now + int64(d), kind: evDo, msg: do})
}

// each calls do every d.
func (tl *timeline) each(d time.Duration, do func()) {
	var again func()
	again = func() { do(); tl.in(d, again) }
	tl.in(d, again)
}

// again calls do again and again, as often as perSecond on average.
func (tl *timeline) again(rng *rand.Rand, from, until time.Duration, perSecond float64, do func()) {
	var next func()
	next = func() {
		if tl.now <= int64(until) {
			do()
			tl.in(time.Duration(rng.ExpFloat64()/perSecond*1e9), next)
		}
	}
	tl.in(from, next)
}
