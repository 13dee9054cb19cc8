package sim

import (
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

// plan plans an event at a time.
func (tl *timeline) plan(at int64, do func()) { tl.agenda.plan(at, do) }

// next lets the next event happen, unless it is after end. It reports false if it does not.
func (tl *timeline) next(end int64) bool {
	at, do := tl.agenda.next()
	if do == nil || at > end {
		return false
	}
	tl.now = at
	tl.events++
	do()
	return true
}

// due plans the wake-up of a process at reading m of its clock.
func (k *kernel) due(p *proc, m fleettime.Mono) {
	at, t, c := k.now, &p.timer, p.clock
	if m > c.read(k.now) {
		if m == fleettime.Never {
			return
		}
		at = max(c.when(m), k.now+1000) // rounding must not make it now
	}
	if t.at != 0 && t.at <= at {
		return
	}
	t.gen++
	t.at = max(at, 1)
	gen := t.gen
	k.plan(at, func() { k.fire(p, gen) })
}

// busyFor is the longest time for which a busy leader takes messages before it answers them.
const busyFor = 100 * time.Millisecond

// answer runs a leader that got a message: at once or, if it is busy, with the messages of the next moments.
func (k *kernel) answer(p *proc) {
	if k.cfg.Faults.Busy && !k.calm && k.chaos.IntN(2) == 0 {
		k.due(p, p.clock.read(k.now).Add(time.Duration(k.chaos.Int64N(int64(busyFor)))))
		return
	}
	p.run()
}

// fire wakes a process up, unless it has been planned anew. A stopped process is waited for.
func (k *kernel) fire(p *proc, gen uint64) {
	switch {
	case p.timer.gen != gen || p.gone:
	case p.asleep > k.now:
		k.plan(p.asleep, func() { k.fire(p, gen) })
	default:
		p.timer.at = 0
		p.run()
	}
}

// in calls do after d.
func (tl *timeline) in(d time.Duration, do func()) {
	tl.plan(tl.now+int64(d), do)
}

// each calls do every d.
func (tl *timeline) each(d time.Duration, do func()) {
	var again func()
	again = func() { do(); tl.in(d, again) }
	tl.in(d, again)
}
