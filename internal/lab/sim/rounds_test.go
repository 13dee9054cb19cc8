package sim

import (
	"slices"
	"testing"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/room"
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
