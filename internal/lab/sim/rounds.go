package sim

import (
	"fmt"
	"math"
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/draw"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
)

// checkRounds checks an admission in a random room, by the state of its edge: nobody enters without a call by a round,
// and nobody that came during a round enters before all who waited before it.
func (j *oracle) checkRounds(e *edgeNode, d *admission.Decision) {
	v := e.core.Ledger(e.clock.read(j.now), j.room).View
	if v == nil || len(v.Rounds) == 0 || !v.Queues() || d.Reason != admission.Permit || e.told.Shut == admission.QueuedAll {
		return
	}
	t := &d.Ticket
	place := v.Rounds.Place(t.ID, t.Place())
	for _, r := range v.Rounds {
		if r.Start() != draw.StartOf(place) || place > r.Called {
			continue
		}
		if j.lots++; t.Place() >= r.Start() && int64(r.Called-r.Start()) <= draw.RoundParts {
			j.fail("%s admits a visitor that came during a round before earlier ones", e)
		}
		return
	}
	j.fail("%s admits a visitor that no round has called", e)
}

// lots observes a random room: the calls of each round, and the rounds from joining to the call.
type lots struct {
	rounds  []draw.Round                   // oldest first, with their latest state
	entered map[fleettime.Time]map[int]int // by round of joining: number called by the n-th later round
	joined  map[fleettime.Time]int
}

// look records the progress of the rounds.
func (l *lots) look(w *World) {
	v := w.globals.newest().core.Totals(w.room).View
	if v == nil {
		return
	}
	for _, r := range v.Rounds {
		if n := len(l.rounds); n == 0 || l.rounds[n-1].Start() < r.Start() {
			l.rounds = append(l.rounds, r)
			continue
		}
		for i := len(l.rounds) - 1; i >= 0 && l.rounds[i].Start() >= r.Start(); i-- {
			if l.rounds[i].Start() == r.Start() {
				l.rounds[i] = r
			}
		}
	}
}

// admitted records the round that called a visitor.
func (l *lots) admitted(t *ticket.Ticket) {
	start := draw.StartOf(t.Place())
	n := 0
	for _, r := range l.rounds {
		if r.Start() <= start {
			continue
		}
		n++
		if r.Place(t.ID, t.Place()) <= r.Called {
			break
		}
	}
	if l.entered[start] == nil {
		l.entered[start] = map[int]int{}
	}
	l.entered[start][n]++
	l.joined[start]++
}

// off returns the largest deviation, among visitors that joined in an interval, of the fraction called within n rounds
// from the law of the rounds: each round gives all waiting visitors the same chance, its calls divided by the
// participants.
func (l *lots) off(from, to fleettime.Time) (most float64, people int) {
	const deep = 60
	seen, law := [deep]float64{}, [deep]float64{}
	for start, joined := range l.joined {
		if start < from || start >= to {
			continue
		}
		people += joined
		left, k := 1.0, 0
		sum := 0
		for n := range deep {
			for k < len(l.rounds) && l.rounds[k].Start() <= start {
				k++
			}
			if n > 0 && k < len(l.rounds) {
				left *= 1 - min(1, float64(l.rounds[k].Called-l.rounds[k].Start())/float64(draw.RoundParts))
				k++
			}
			sum += l.entered[start][n]
			seen[n] += float64(sum)
			law[n] += float64(joined) * (1 - left)
		}
	}
	for n := range deep {
		most = max(most, math.Abs(seen[n]-law[n])/float64(max(1, people)))
	}
	return most, people
}

// crowded is a room with a long queue: more visitors than enter within minutes, and as many that abandon.
func crowded(random bool) Config {
	c := Defaults()
	c.Random = random
	c.Centres, c.Edges, c.Length = 3, 2, 20*time.Minute
	c.Total, c.Rate, c.Session, c.People.Patience = 100_000, 1200, time.Minute, 0
	c.Demand = Demand{Spikes: []Spike{
		{Length: 14 * time.Minute, PerMinute: 1200},
		{At: 10 * time.Second, Length: 30 * time.Second, PerMinute: 4800},
	}}
	return c
}

// randomRounds compares a random room with the law of its rounds, and with a fifo room, while the queue is long.
func randomRounds(f *Finding) {
	const from, to, until = 4 * time.Minute, 11 * time.Minute, 14 * time.Minute
	var those Words
	worst, people, ordered, drawn := 0.0, 0, 0, 0
	for seed := range uint64(3) {
		for _, random := range []bool{false, true} {
			c := crowded(random)
			c.Seed = seed + 1
			w := New(c)
			l := lots{entered: map[fleettime.Time]map[int]int{}, joined: map[fleettime.Time]int{}}
			n := &ordered
			if random {
				w.each(50*time.Millisecond, func() { l.look(w) })
				w.oracle.seeAdmitted = l.admitted
				n = &drawn
			}
			w.in(from, func() { w.meters.listen(); *n -= w.meters.Inside })
			w.in(to, func() { w.meters.hears = false })
			w.in(until, func() { *n += w.meters.Inside })
			r := f.run(w)
			f.Bound += fmt.Sprintf("%s: waits p50 / p99 %.0f / %.0f s; ", c.method(), r.WaitP50, r.WaitP99)
			if !random {
				continue
			}
			off, joined := l.off(epoch.Add(from), epoch.Add(to))
			worst, people = max(worst, off), people+joined
			those.Add(w.meters.words)
		}
	}
	through, wrong, coverage := float64(drawn)/float64(ordered), those.Error(), those.Covered()
	f.add("", worst <= 0.02 && people > 20_000 && through >= 0.99 && wrong <= 0.1 && math.Abs(coverage-0.8) <= 0.05,
		"%.2f %% of %d; %.3f; %.3f; %.2f", 100*worst, people, through, wrong, coverage)
}
