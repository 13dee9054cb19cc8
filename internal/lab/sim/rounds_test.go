package sim

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
)

// TestRandom: under faults and changes of the method nobody enters without a call by a round, or before earlier
// visitors; and these worlds do admit by rounds.
func TestRandom(t *testing.T) {
	t.Parallel()
	entered := 0
	for seed := range uint64(40) {
		w := New(target("random").Draw(seed))
		if r := w.Run(); r.Fault != "" {
			t.Errorf("random, seed %d: %s", seed, r.Fault)
		}
		entered += w.oracle.lots
	}
	if entered < 300 {
		t.Errorf("%d people entered by rounds", entered)
	}
}

// TestTheOrderOfJoiningComesBack: after a while of random, fifo continues in the order of joining.
func TestTheOrderOfJoiningComesBack(t *testing.T) {
	t.Parallel()
	c := crowded(false)
	c.Length = 10 * time.Minute
	w := New(c)
	set := func(random bool) {
		w.cfg.Random = random
		w.operator.method = w.cfg.method()
		w.operator.edited()
	}
	w.in(3*time.Minute, func() { set(true) })
	w.in(4*time.Minute, func() { set(false) })
	w.in(5*time.Minute, func() { w.meters.joined = nil })
	r := w.Run()
	if r.Fault != "" || w.oracle.lots < 500 {
		t.Fatalf("%d people entered by rounds; %s", w.oracle.lots, r.Fault)
	}
	if r.OrderP50 > 1 || r.OrderP99 > 4 {
		t.Errorf("by fifo again people enter off the order of joining by %.2f s / %.2f s (p50 / p99)", r.OrderP50, r.OrderP99)
	}
}

// TestARandomRoomIsFullAfterADebt: visitors inside move between data centres while the first sessions of a rush end.
// The room owes them permits; then its called visitors enter at once.
func TestARandomRoomIsFullAfterADebt(t *testing.T) {
	t.Parallel()
	x := Crowds()[0]
	x.Name, x.Method = "random, moving", room.MethodRandom
	x.Total, x.People, x.Over, x.Move = 400, 1400, 25*time.Second, 0.2
	for seed := range uint64(4) {
		w := x.gather(seed + 1)
		if r := w.result(); r.Fault != "" || w.oracle.lots < 500 || r.UseT < 0.96 {
			t.Errorf("seed %d: %d people entered by rounds, %.3f of T in use while people wait; %s", seed, w.oracle.lots, r.UseT,
				r.Fault)
		}
		if wait, _ := w.meters.words.Rises(); wait > 0 {
			t.Errorf("seed %d: the wait rose %d times without the word", seed, wait)
		}
	}
}

// TestARandomRoomFillsAfterAPause: visitors gather in a paused room. Of the first of its line, which are held for a
// release, nobody is called. Once the room is open, its permits are used as soon as called visitors ask.
func TestARandomRoomFillsAfterAPause(t *testing.T) {
	t.Parallel()
	var times []time.Duration
	for seed := range uint64(8) {
		c := Defaults()
		c.Seed, c.Random, c.Centres, c.Edges = seed, true, 2, 2
		c.Total, c.Rate, c.Session, c.People.Patience = 300, 6000, 5*time.Minute, 0
		c.Demand = Demand{Spikes: []Spike{{At: 5 * time.Second, Length: 30 * time.Second, PerMinute: 2400}}}
		w := New(c)
		w.in(0, func() {
			w.operator.control.Pause = &room.Pause{Mark: room.Mark{Since: int64(w.fleetTime())}}
			w.operator.publish()
		})
		const opens = time.Minute
		w.in(opens, func() {
			w.operator.control.Pause = nil
			w.operator.publish()
		})
		w.runFor(opens)
		if n := w.oracle.waiting; n < 1000 || w.meters.Inside > 0 {
			t.Fatalf("seed %d: %d people wait, %d are inside", seed, n, w.meters.Inside)
		}
		full := time.Duration(0)
		for full < time.Minute && len(w.oracle.tickets) < c.Total*95/100 {
			full += 100 * time.Millisecond
			w.runFor(100 * time.Millisecond)
		}
		if r := w.result(); r.Fault != "" || full > draw.RoundLength*3/2 { // chance leaves some permits to the second round
			t.Errorf("seed %d: full %v after it opened; %s", seed, full, r.Fault)
		}
		times = append(times, full)
	}
	if slices.Sort(times); times[len(times)/2] > draw.RoundLength {
		t.Errorf("rooms are full %v after they opened", times)
	}
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
	f.judge("random order: share called off the law", "", 100*worst)
	f.judge("random order: throughput beside fifo", "", through)
	f.judge("random order: median forecast off", "", wrong)
	f.judge("random order: waits inside the range", "", coverage)
	f.happened(people > 20_000, "fewer than 20,000 joined")
	f.add("", "%.2f %% of %d; %.3f; %.3f; %.2f", 100*worst, people, through, wrong, coverage)
}
