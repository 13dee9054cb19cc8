package sim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"vestibule/internal/core/wire"
)

// full returns a world whose room is full of visitors that stay: they ask for pages for the whole run.
func full(c Config) Config {
	c.Rate = 100_000
	c.People.Pages, c.People.Patience = 1000, 0
	c.Demand.PerMinute = float64(c.Total) * 2
	return c
}

// TestNobodyIsPutOutByAMoveInAFullRoom: visitors of a full room change data centre at each click, all at once and at
// random. Nobody's permit is free. A session moves at most once in 10 s, or in half of its ticket's life.
func TestNobodyIsPutOutByAMoveInAFullRoom(t *testing.T) {
	t.Parallel()
	for _, session := range []time.Duration{5 * time.Second, time.Minute, 5 * time.Minute} {
		for _, centres := range []int{2, 3} {
			c := Defaults()
			c.Seed, c.Length, c.Centres, c.Edges = uint64(centres), 3*time.Minute+session, centres, 2
			if session == time.Minute {
				c.Length = 11 * time.Minute
			}
			c.Total, c.Session, c.Strict = 40, session, true
			c.People.Think = session / 5
			c.People.Move = 1
			c = full(c)
			w := New(c)
			w.in(time.Minute, w.meters.begin)
			r := w.Run()
			gap := min(10*time.Second, time.Duration(wire.Life(session))*time.Second/2)
			moves, soon := movesWithin(w, gap)
			if r.Fault != "" || w.meters.early > 0 || soon > 0 || moves < 100 {
				t.Errorf("%d data centres, sessions of %v: %d people put out; %d moves, %d within %v after another one; %s", centres,
					session, w.meters.early, moves, soon, gap, r.Fault)
			}
		}
	}
}

// movesWithin returns the moves of all sessions, and those that follow another one of the session within a time.
func movesWithin(w *World, gap time.Duration) (moves, soon int) {
	at := map[uint64][]int64{}
	for x, when := range w.oracle.sent {
		at[x.ID] = append(at[x.ID], when)
		moves++
	}
	for _, list := range at {
		slices.Sort(list)
		for i := 1; i < len(list); i++ {
			if time.Duration(list[i]-list[i-1]) < gap {
				soon++
			}
		}
	}
	return moves, soon
}

// TestACopyElsewherePutsNobodyOut: each session of a full room is copied, and the copy asks once in the other data centre. The
// session moves there, and its visitor goes on where it was.
func TestACopyElsewherePutsNobodyOut(t *testing.T) {
	t.Parallel()
	for _, session := range []time.Duration{5 * time.Second, time.Minute} {
		c := Defaults()
		c.Seed, c.Length, c.Centres, c.Edges = 3, fill+4*session, 2, 2
		c.Total, c.Session, c.Strict = 100, session, true
		c.People.Think, c.People.Stay = session/5, 1
		c = full(c)
		w := New(c)
		copies := 0
		w.in(fill, func() {
			w.meters.begin()
			for i := range w.visitors.all {
				v := &w.visitors.all[i]
				t, ok := w.visitors.ticketOf(v.edge, v)
				if !ok || !v.inside {
					continue
				}
				if d := w.ask(w.centres.all[1-v.centre].edges[0], t); d.Enters() {
					copies++
				}
			}
		})
		r := w.Run()
		moves, _ := movesWithin(w, 0)
		if r.Fault != "" || w.meters.early > 0 || copies < 95 || moves < copies {
			t.Errorf("sessions of %v: %d people put out by %d copies, %d moves; %s", session, w.meters.early, copies, moves, r.Fault)
		}
	}
}

// TestMoversUnderFaults draws small worlds, of which each visitor changes data centre before most requests, while nodes
// end, fall silent and are replaced: both limits hold after every event.
func TestMoversUnderFaults(t *testing.T) {
	t.Parallel()
	worlds := uint64(60)
	if testing.Short() {
		worlds = 6
	}
	for seed := range worlds {
		c := Small(seed)
		c.Centres = max(c.Centres, 2)
		c.People.Move, c.People.Pages, c.People.Think = 0.7, 60, c.Session/6
		if r := New(c).Run(); r.Fault != "" {
			t.Errorf("seed %d: %s", seed, r.Fault)
		}
	}
}

// drained is the result of a drain.
type drained struct {
	out, moved int           // people who were put out, and whose session was in the data centre that drained
	twice      time.Duration // longest time in which the data centres counted more sessions than T
	lost       int64         // permits that are neither held nor free once the data centre has left
	fault      string
}

// drain runs a full room of n sessions in two data centres, of which the second drains: each of its visitors asks the
// first one from the next click on.
func drain(n int, session time.Duration) (x drained) {
	c := Defaults()
	c.Seed, c.Centres, c.Edges, c.Total, c.Session = 7, 2, 2, n, session
	c.People.Think, c.Length = session/5, fill+2*session+2*time.Minute
	c = full(c)
	c.Demand.PerMinute = float64(n)
	w := New(c)
	w.in(fill, func() {
		w.meters.begin()
		if !w.members.drain(1) {
			x.fault = "it does not drain"
		}
		x.moved = int(w.centres.all[1].newest().core.Ledger(w.room).Active)
		w.arrivals.demand(Demand{PerMinute: 10, Skew: 1})
		w.arrivals.await()
		var leave func()
		leave = func() { // the edge that holds a visitor answers it first
			for i := range w.visitors.all {
				if v := &w.visitors.all[i]; v.centre == 1 && v.hold == nil {
					v.centre, v.edge = 0, w.visitors.anyEdge(0)
				}
			}
			w.in(time.Second, leave)
		}
		leave()
	})
	since := time.Duration(0)
	var watch func()
	watch = func() {
		w.in(100*time.Millisecond, watch)
		sum := uint64(0)
		for _, r := range w.centres.all {
			sum += uint64(r.newest().core.Ledger(w.room).Active)
		}
		if sum <= uint64(n) {
			since = time.Duration(w.now)
		}
		x.twice = max(x.twice, time.Duration(w.now)-since)
	}
	w.in(fill-time.Second, func() { since = time.Duration(w.now); watch() })
	r := w.Run()
	l := w.globals.newest().core.Ledger(w.room)
	held := l.Free
	for _, d := range l.Centres {
		held += d.Held
	}
	x.out, x.lost = w.meters.early, int64(n)-held
	if all, _ := w.members.listed(); x.fault == "" && (r.Fault != "" || len(all) != 1 || !l.Complete || r.Peak < n*99/100) {
		x.fault = fmt.Sprintf("%q; %d data centres are listed, peak %d: %+v", r.Fault, len(all), r.Peak, l.Centres)
	}
	return x
}

func TestADrainOfAFullRoomPutsNobodyOut(t *testing.T) {
	t.Parallel()
	for _, session := range []time.Duration{5 * time.Second, time.Minute} {
		x := drain(300, session)
		if x.out > 0 || x.lost != 0 || x.twice > 2*time.Second || x.moved < 100 || x.fault != "" {
			t.Errorf("sessions of %v: %+v", session, x)
		}
	}
}
