package admission

import (
	"testing"
	"time"

	"vestibule/internal/fleet"
	"vestibule/internal/ticket"
)

// TestNobodyEntersARoomThatIsShut: those inside are served as ever, whoever waits keeps the place, held
// visitors are not let in, and the rights go to other edges.
func TestNobodyEntersARoomThatIsShut(t *testing.T) {
	now := at(0)
	e, r := newEdge(t, now, 10, 10)
	inside := e.Arrive(now, sale, ticket.Ticket{}).Ticket
	v := &Visit{Room: sale, Ticket: waiting(5, time.Minute)}
	e.Hold(now, v)
	place := waiting(7, 2*time.Minute)
	for _, shut := range []Reason{QueuedAll, Rejected} {
		e.SetRooms(now, []Room{{ID: sale, Shut: shut}})
		d := e.Arrive(now, sale, place)
		if d.Verdict != Queue || d.Reason != shut || d.Fresh != Kept || d.Ticket.ID != place.ID || d.Ticket.Joined != place.Joined {
			t.Errorf("%v: somebody who waits: %+v", shut, d)
		}
		if d := e.Arrive(now, sale, ticket.Ticket{}); d.Verdict != Queue || d.Reason != shut {
			t.Errorf("%v: a newcomer: %+v", shut, d)
		}
		if d := e.Arrive(now, sale, inside); d.Verdict != Serve {
			t.Errorf("%v: somebody inside: %+v", shut, d)
		}
		if out := e.Release(now, nil); len(out) > 0 {
			t.Errorf("%v: who was held is let in: %+v", shut, out[0].Decision)
		}
		if rep := r.hear(now).Rooms[0]; rep.Want != 0 || rep.HeldPeople != 0 {
			t.Errorf("%v: rights are asked for: %+v", shut, rep)
		}
	}
	e.SetRooms(now, []Room{{ID: sale}})
	if out := e.Release(now, nil); len(out) != 1 || out[0].Decision.Verdict != Admit {
		t.Errorf("after it: %+v", out)
	}
	if d := e.Arrive(now, sale, place); d.Verdict != Admit || d.Ticket.Joined != place.Joined {
		t.Errorf("the place after it: %+v", d)
	}
}

// TestARoomThatRejectsGivesNoPlace: who is new, or was away for too long, gets no ticket and is counted
// nowhere.
func TestARoomThatRejectsGivesNoPlace(t *testing.T) {
	now := at(0)
	e, r := newEdge(t, now, 10, 10)
	e.SetRooms(now, []Room{{ID: sale, Shut: Rejected}})
	gone := waiting(9, time.Hour)
	gone.Seen -= 3600
	for _, brought := range []ticket.Ticket{{}, gone, {ID: 3, Admitted: 1, Until: 2}} {
		d := e.Arrive(now, sale, brought)
		if d.Verdict != Queue || d.Reason != Rejected || d.Reseal || d.Ticket != brought || d.Counted {
			t.Errorf("%+v brought: %+v", brought, d)
		}
	}
	now = now.Add(5 * time.Second)
	if rep := r.hear(now).Rooms[0]; rep.Joined != 0 || rep.Unseen != 0 || len(rep.Waiting) != 0 {
		t.Errorf("somebody is counted: %+v", rep)
	}
}

// TestARenewalThatIsSwitchedOff: a session ends session_duration after its admission, however often its
// visitor asks and with whichever of its tickets, and a probation is not used.
func TestARenewalThatIsSwitchedOff(t *testing.T) {
	now := at(0)
	e, r := newEdge(t, now, 10, 10)
	e.SetRooms(now, []Room{{ID: sale, NoRenewal: true, Session: 2 * time.Minute, Probation: time.Minute}})
	place := waiting(7, time.Minute)
	in := e.Arrive(now, sale, place)
	end := in.Ticket.Admitted + 1 + 120
	if in.Verdict != Admit || in.Ticket.Until != end {
		t.Fatalf("admitted at %d until %d, want until %d", in.Ticket.Admitted, in.Ticket.Until, end)
	}
	for newest := in.Ticket; now < at(119*time.Second); now = now.Add(time.Second) {
		r.lease(now)
		for _, shown := range []ticket.Ticket{newest, place} {
			d := e.Arrive(now, sale, shown)
			if !d.Enters() || d.Ticket.Until > end {
				t.Fatalf("%v after the admission: %+v, want served until %d", now.Sub(at(0)), d, end)
			}
			newest = d.Ticket
		}
	}
	now = at(122 * time.Second)
	r.lease(now)
	if d := e.Arrive(now, sale, in.Ticket); d.Verdict == Serve || d.Fresh != Expired {
		t.Errorf("after the end: %+v", d)
	}

	// Who was admitted on probation before gets the whole of the session, and no more.
	e, r = newEdge(t, now, 10, 10)
	e.SetRooms(now, []Room{{ID: sale, Probation: time.Minute}})
	in = e.Arrive(now, sale, ticket.Ticket{})
	e.SetRooms(now, []Room{{ID: sale, NoRenewal: true, Session: 2 * time.Minute, Probation: time.Minute}})
	now = now.Add(30 * time.Second)
	r.lease(now)
	if d := e.Arrive(now, sale, in.Ticket); d.Ticket.Until != in.Ticket.Admitted+1+120 {
		t.Errorf("on probation before: admitted at %d until %d", d.Ticket.Admitted, d.Ticket.Until)
	}
}

// TestNobodyEntersWhilePeopleGather: before an event nobody is let in from the moment at which it may have begun to be
// before it by the edge's clock, until that moment is over for certain. Whoever waits keeps the place, whatever the
// method is, who is inside is served, and no wait is told.
func TestNobodyEntersWhilePeopleGather(t *testing.T) {
	now := at(0)
	e, r := newEdge(t, now, 10, 10)
	ft := e.Time(now)
	bound := e.TimeBound(now)
	if bound == 0 || bound > fleet.MaxError {
		t.Fatalf("the edge knows the time to %v", bound)
	}
	inside := e.Arrive(now, sale, ticket.Ticket{}).Ticket
	place := waiting(7, 2*time.Minute)
	v := &Visit{Room: sale, Ticket: waiting(5, time.Minute)}
	e.Hold(now, v)
	for _, c := range []struct {
		from, until time.Duration // from now on
		gathers     bool
	}{
		{-time.Minute, time.Minute, true},
		{-time.Minute, 1, true},
		{-time.Minute, -bound + time.Millisecond, true},    // by its own clock it is over
		{bound - time.Millisecond, time.Minute, true},      // by its own clock it has not begun
		{-time.Minute, -bound - 2*time.Millisecond, false}, // it is over for certain
		{bound + 2*time.Millisecond, time.Minute, false},   // it cannot have begun
		{-2 * time.Minute, -time.Minute, false},
	} {
		for _, shut := range []Reason{None, Rejected} {
			e.SetRooms(now, []Room{{ID: sale, Shut: shut, Gather: []Span{{day - 10, day - 5}, {ft.Add(c.from), ft.Add(c.until)}}}})
			if !c.gathers {
				if d := e.Arrive(now, sale, place); d.Reason == Gathering {
					t.Errorf("%+v: %+v", c, d)
				}
				continue
			}
			d := e.Arrive(now, sale, place)
			if d.Verdict != Queue || d.Reason != Gathering || d.Fresh != Kept || d.Ticket.ID != place.ID || d.Ticket.Joined != place.Joined || d.Known || d.Ticket.Forecast != place.Forecast {
				t.Errorf("%+v: somebody who waits: %+v", c, d)
			}
			if d := e.Arrive(now, sale, ticket.Ticket{}); d.Verdict != Queue || d.Reason != Gathering || !d.Reseal || d.Ticket.Joined != ft {
				t.Errorf("%+v: a newcomer: %+v", c, d)
			}
			if d := e.Arrive(now, sale, inside); d.Verdict != Serve {
				t.Errorf("%+v: somebody inside: %+v", c, d)
			}
			if out := e.Release(now, nil); len(out) > 0 {
				t.Errorf("%+v: who was held is let in: %+v", c, out[0].Decision)
			}
		}
		if rep := r.hear(now).Rooms[0]; c.gathers && (rep.Want != 0 || rep.HeldPeople != 0) {
			t.Errorf("%+v: rights are asked for: %+v", c, rep)
		}
		if !c.gathers {
			e.Abandon(now, v)
			v = &Visit{Room: sale, Ticket: waiting(5, time.Minute)}
			e.Hold(now, v)
		}
	}
	e.SetRooms(now, []Room{{ID: sale, Shut: QueuedAll, Gather: []Span{{ft.Add(-time.Minute), ft.Add(time.Minute)}}}})
	if d := e.Arrive(now, sale, waiting(9, time.Minute)); d.Reason != QueuedAll {
		t.Errorf("queue_all goes first: %+v", d)
	}
}
