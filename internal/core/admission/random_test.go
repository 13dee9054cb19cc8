package admission

import (
	"testing"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// lots returns a view of a random room: its newest round began three seconds ago and has called a share.
func lots(share float64, before ...draw.Round) *wire.View {
	newest := draw.NewRound(present, 77).Upto(share, 0)
	v := view(1000, newest.Called, newest.Called)
	v.At, v.Rounds = present, append(before, newest)
	v.Waits = estimate.Waits{time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 20 * time.Minute}
	return v
}

// calls returns a ticket number that joined a minute ago, and that the round does, or does not, call with a share
// of one half.
func calls(r draw.Round, called bool, from uint64) uint64 {
	for id := from; ; id++ {
		if r = r.Upto(0.5, 0); r.Place(id, day.Add(time.Hour-time.Minute)) <= r.Called == called {
			return id
		}
	}
}

// TestChanceDecidesWhoIsCalled: called visitors enter, whatever their join time; others and new visitors do not. A
// visitor called by a past round still enters. The ticket is unchanged, so the order of joining is preserved.
func TestChanceDecidesWhoIsCalled(t *testing.T) {
	now := at(0)
	e, r := newEdge(t, now, 10, 10)
	newest := draw.NewRound(present, 77)
	old := draw.NewRound(present.Add(-draw.RoundLength), 78).Upto(0.5, 0)
	give := func(v *wire.View) {
		g := r.held
		v.Version = r.seq
		g.View = v
		r.room(now, g)
	}
	give(lots(0.5, old))
	in, out := calls(newest, true, 1), uint64(0)
	for id := uint64(1); out == 0; id++ {
		if w := waiting(id, time.Minute); newest.Place(id, w.Joined) > newest.Upto(0.5, 0).Called &&
			old.Place(id, w.Joined) > old.Called {
			out = id
		}
	}
	gets(t, e.Arrive(now, sale, waiting(in, time.Minute)), Admit, "who was called")
	early := waiting(out, time.Minute)
	early.Longer, early.Forecast, early.Ahead = 5, 9, 7
	d := e.Arrive(now, sale, early)
	if d.Verdict != Queue || d.Reason != Behind || d.Ahead != 0 || d.Waiting != 1000 || d.Ticket.Place() != early.Joined {
		t.Errorf("who was not called: %+v", d)
	}
	first := [5]time.Duration{d.Low, d.Quartiles[0], d.Wait, d.Quartiles[2], d.High}
	for i, want := range lots(0.5).Waits {
		if off := (first[i] - want).Abs(); off > time.Second {
			t.Errorf("gets %v, want %v", first, lots(0.5).Waits)
		}
	}
	if _, _, ok := d.Ticket.Quartiles(); !d.Known || d.Next || d.Longer || d.Quartiles[1] != d.Wait || !ok {
		t.Errorf("is told %+v", d)
	}

	// The shown wait rises only by much, with the explanation; for a visitor from another order it starts anew.
	longer := lots(0.5)
	for i := range longer.Waits {
		longer.Waits[i] += longer.Waits[i] / 10
	}
	give(longer)
	again := e.Arrive(now.Add(time.Second), sale, d.Ticket)
	if now := [5]time.Duration{again.Low, again.Quartiles[0], again.Wait, again.Quartiles[2], again.High}; now != first ||
		again.Longer {
		t.Errorf("a tenth more: shown %v, then %v", first, now)
	}
	longer = lots(0.5)
	longer.Changed = present.Add(-time.Second)
	for i := range longer.Waits {
		longer.Waits[i] += longer.Waits[i] / 10
	}
	give(longer)
	if again = e.Arrive(now.Add(2*time.Second), sale, again.Ticket); again.Wait != 330*time.Second ||
		again.Quartiles[2] <= first[3] || !again.Longer {
		t.Errorf("a tenth more since the limits were changed: %+v", again)
	}
	give(lots(0.5, old))
	getsFor(t, e.Arrive(now, sale, ticket.Ticket{}), Queue, Behind, "somebody new")
	past := uint64(0)
	for id := uint64(1); past == 0; id++ {
		if w := waiting(id, time.Minute); newest.Place(id, w.Joined) > newest.Upto(0.5, 0).Called &&
			old.Place(id, w.Joined) <= old.Called {
			past = id
		}
	}
	gets(t, e.Arrive(now, sale, waiting(past, time.Minute)), Admit, "who was called by a round that is over")

	// Back to fifo: the order of joining applies.
	give(view(1000, early.Joined, early.Joined))
	gets(t, e.Arrive(now, sale, d.Ticket), Admit, "first in line by fifo")
	if d := e.Arrive(now, sale, waiting(in+1000, 50*time.Second)); d.Verdict == Admit {
		t.Errorf("behind the cutoff: %v, %v", d.Verdict, d.Reason)
	}
}

// TestWhoIsHeldIsOrderedAnew: with every round, and after a change of the method, held visitors are sorted by their
// new turns. Those that a round did not call are not reported as visitors that can use a permit.
func TestWhoIsHeldIsOrderedAnew(t *testing.T) {
	now := at(0)
	e, r := newEdge(t, now, 0, 0)
	newest := draw.NewRound(present, 77)
	in, out := calls(newest, true, 1), calls(newest, false, 1)
	for _, id := range []uint64{in, out} {
		e.Rooms.Hold(now, &Visit{Room: sale, Ticket: waiting(id, time.Minute-time.Duration(id)*time.Millisecond)})
	}
	oldest := func(v *wire.View) (out []fleettime.Time) {
		g := r.held
		v.Version = r.seq
		g.View = v
		r.room(now, g)
		return stateOf(e).line.held.visits.oldest(10, estimate.Open)
	}
	reported := func() uint64 {
		report := stateOf(e).report(now, present)
		return report.HeldPeople
	}
	byLot := oldest(lots(0.5))
	if n := reported(); n != 1 {
		t.Errorf("%d held visitors can use a permit, want the called one", n)
	}
	if len(byLot) != 2 || byLot[0] != newest.Place(in, 0) || byLot[1] != newest.Place(out, 0) {
		t.Errorf("held at %v, want %v and %v", byLot, newest.Place(in, 0), newest.Place(out, 0))
	}
	if byJoining := oldest(view(1000, present, present)); byJoining[1] >= newest.Start() {
		t.Errorf("by fifo held at %v, want where they joined", byJoining)
	}
	if n := reported(); n != 2 {
		t.Errorf("by fifo %d held visitors can use a permit, want both", n)
	}
}
