package admission

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// TestNobodyEntersARoomThatIsShut: sessions are served, places are kept, held visitors are not admitted, and the
// permits go to other edges.
func TestNobodyEntersARoomThatIsShut(t *testing.T) {
	now := at(0)
	e, r := newEdge(t, now, 10, 10)
	inside := e.Arrive(now, sale, ticket.Ticket{}).Ticket
	v := &Visit{Room: sale, Ticket: waiting(5, time.Minute)}
	e.Rooms.Hold(now, v)
	place := waiting(7, 2*time.Minute)
	for _, shut := range []Reason{QueuedAll, Rejected} {
		e.SetRooms(now, []Room{{ID: sale, Shut: shut}})
		d := e.Arrive(now, sale, place)
		if d.Verdict != Queue || d.Reason != shut || d.Fresh != Kept || d.Ticket.ID != place.ID ||
			d.Ticket.Joined != place.Joined {
			t.Errorf("%v: somebody who waits: %+v", shut, d)
		}
		getsFor(t, e.Arrive(now, sale, ticket.Ticket{}), Queue, shut, "%v: a newcomer", shut)
		gets(t, e.Arrive(now, sale, inside), Serve, "%v: somebody inside", shut)
		if out := e.Rooms.Release(now, nil); len(out) > 0 {
			t.Errorf("%v: who was held is let in: %+v", shut, out[0].Decision)
		}
		if rep := r.hear(now).Rooms[0]; rep.Want != 0 || rep.HeldPeople != 0 {
			t.Errorf("%v: permits are asked for: %+v", shut, rep)
		}
	}
	e.SetRooms(now, []Room{{ID: sale}})
	if out := e.Rooms.Release(now, nil); len(out) != 1 || out[0].Decision.Verdict != Admit {
		t.Errorf("after it: %+v", out)
	}
	if d := e.Arrive(now, sale, place); d.Verdict != Admit || d.Ticket.Joined != place.Joined {
		t.Errorf("the place after it: %+v", d)
	}
}

// TestARoomThatRejectsGivesNoPlace: new visitors, and those absent too long, get no ticket and are not counted.
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
	if rep := r.hear(now).Rooms[0]; rep.Joined != 0 || rep.Pending != nil || len(rep.Waiting) != 0 {
		t.Errorf("somebody is counted: %+v", rep)
	}
}

// TestARenewalThatIsSwitchedOff: a session ends session_duration after its admission, for any number of requests
// with any of its tickets, and probation is ignored.
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
		for _, shown := range []ticket.Ticket{newest, in.Ticket} {
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

	// A visitor admitted on probation before gets exactly the full session.
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

// TestFreeSlotsAreNotTakenOffBeforeTheStart: visitors that gather for an event are shown the visitors ahead,
// without subtracting free permits; after the start the free permits are subtracted.
func TestFreeSlotsAreNotTakenOffBeforeTheStart(t *testing.T) {
	now := at(0)
	e, r := newEdge(t, now, 0, 0)
	ft := e.Clock.Time(now)
	r.room(now, wire.RoomGrant{Room: sale, View: &wire.View{
		Version: 1, At: ft, Cutoff: ft.Add(-time.Hour), Free: 15, Paces: []estimate.Pace{{Mu: 1}},
		Line: estimate.NewDigest(estimate.Histogram{{Start: ft.Add(-2 * time.Minute), Width: 1000, N: 20}}),
	}})
	for _, c := range []struct {
		until time.Duration // people gather
		want  uint64
	}{{time.Minute, 20}, {-time.Second, 5}} {
		e.SetRooms(now, []Room{{ID: sale, Gather: []Span{{ft.Add(-time.Minute), ft.Add(c.until)}}}})
		if d := e.Arrive(now, sale, waiting(7, time.Minute)); d.Ahead != c.want {
			t.Errorf("people gather until %v: %d ahead (%v), want %d", c.until, d.Ahead, d.Reason, c.want)
		}
	}
}

// TestNobodyEntersWhilePeopleGather: nobody is admitted from the earliest possible start of the interval before an
// event, by the edge's clock, until its latest possible end. Places are kept, whatever the method, sessions are
// served, and no wait is shown.
func TestNobodyEntersWhilePeopleGather(t *testing.T) {
	now := at(0)
	e, r := newEdge(t, now, 10, 10)
	ft := e.Clock.Time(now)
	bound := e.Clock.Bound(now)
	if bound == 0 || bound > fleettime.MaxError {
		t.Fatalf("the edge knows the time to %v", bound)
	}
	inside := e.Arrive(now, sale, ticket.Ticket{}).Ticket
	place := waiting(7, 2*time.Minute)
	v := &Visit{Room: sale, Ticket: waiting(5, time.Minute)}
	e.Rooms.Hold(now, v)
	for _, c := range []struct {
		from, until time.Duration // from now on
		gathers     bool
	}{
		{-time.Minute, time.Minute, true},
		{-time.Minute, 1, true},
		{-time.Minute, -bound + time.Millisecond, true},    // over by its own clock
		{bound - time.Millisecond, time.Minute, true},      // not begun by its own clock
		{-time.Minute, -bound - 2*time.Millisecond, false}, // certainly over
		{bound + 2*time.Millisecond, time.Minute, false},   // certainly not begun
		{-2 * time.Minute, -time.Minute, false},
	} {
		for _, shut := range []Reason{None, Rejected} {
			e.SetRooms(now,
				[]Room{{ID: sale, Shut: shut, Gather: []Span{{day - 10, day - 5}, {ft.Add(c.from), ft.Add(c.until)}}}})
			if !c.gathers {
				if d := e.Arrive(now, sale, place); d.Reason == Gathering {
					t.Errorf("%+v: %+v", c, d)
				}
				continue
			}
			d := e.Arrive(now, sale, place)
			if d.Verdict != Queue || d.Reason != Gathering || d.Fresh != Kept || d.Ticket.ID != place.ID ||
				d.Ticket.Joined != place.Joined || d.Known || d.Ticket.Forecast != place.Forecast {
				t.Errorf("%+v: somebody who waits: %+v", c, d)
			}
			if d := e.Arrive(now, sale, ticket.Ticket{}); d.Verdict != Queue || d.Reason != Gathering || !d.Reseal ||
				d.Ticket.Joined != ft {
				t.Errorf("%+v: a newcomer: %+v", c, d)
			}
			gets(t, e.Arrive(now, sale, inside), Serve, "%+v: somebody inside", c)
			if out := e.Rooms.Release(now, nil); len(out) > 0 {
				t.Errorf("%+v: who was held is let in: %+v", c, out[0].Decision)
			}
		}
		if rep := r.hear(now).Rooms[0]; c.gathers && (rep.Want != 0 || rep.HeldPeople != 0) {
			t.Errorf("%+v: permits are asked for: %+v", c, rep)
		}
		if !c.gathers {
			e.Rooms.Abandon(now, v)
			v = &Visit{Room: sale, Ticket: waiting(5, time.Minute)}
			e.Rooms.Hold(now, v)
		}
	}
	e.SetRooms(now, []Room{{ID: sale, Shut: QueuedAll, Gather: []Span{{ft.Add(-time.Minute), ft.Add(time.Minute)}}}})
	getsFor(t, e.Arrive(now, sale, waiting(9, time.Minute)), Queue, QueuedAll, "queue_all goes first")
}

// passes grants passes of a release.
func (r *regional) passes(now fleettime.Mono, release, granted uint64) {
	r.held.Passes = wire.Passes{Release: release, Allocation: wire.Allocation{Granted: granted, Keep: granted}}
	r.grant(now, 0, 0)
}

// TestRule11APassLetsInOnePerson: of the held visitors the first enter, one per pass, if they were called and a
// permit of T and one of R are there. Passes of an earlier release end with the next.
func TestRule11APassLetsInOnePerson(t *testing.T) {
	now := at(0)
	paused := func(credit uint64, called fleettime.Time) (*Engine, *regional) {
		e, r := newEdge(t, now, credit, 100)
		e.SetRooms(now, []Room{{ID: sale, Shut: QueuedAll}})
		r.held.View = view(50, 0, day.Add(2*time.Hour))
		r.held.View.Called = called
		for id := range uint64(6) {
			d := e.Arrive(now, sale, waiting(10+id, time.Minute-time.Duration(id)*time.Second))
			if d.Verdict == Admit {
				t.Fatalf("%d enters without a pass: %+v", id, d)
			}
			e.Rooms.Hold(now, &Visit{Room: sale, Ticket: d.Ticket})
		}
		return e, r
	}
	all := day.Add(2 * time.Hour)
	enter := func(e *Engine, now fleettime.Mono) (ids []uint64) {
		for _, v := range e.Rooms.Release(now, nil) {
			if v.Decision.Verdict == Admit {
				ids = append(ids, v.Decision.Ticket.ID)
			}
		}
		return ids
	}

	e, r := paused(20, all)
	r.passes(now, 7, 2)
	if in := enter(e, now); len(in) != 2 || in[0] != 10 || in[1] != 11 {
		t.Errorf("two passes let in %v, want 10 and 11", in)
	}
	if rep := r.hear(now).Rooms[0]; rep.Passes != (wire.Passes{
		Release: 7, Allocation: wire.Allocation{Granted: 2},
		Spent: 2,
	}) || rep.Callable != 4 || rep.HeldPeople != 0 || rep.Want != 0 {
		t.Errorf("told of them: %+v, %d callable, %d held, %d wanted", rep.Passes, rep.Callable, rep.HeldPeople, rep.Want)
	}
	if d := e.Arrive(now, sale, waiting(9, 2*time.Minute)); d.Verdict == Admit {
		t.Errorf("nothing is left: %+v", d)
	}

	e, r = paused(20, all)
	r.passes(now, 7, 3)
	r.passes(now, 8, 1)
	if in := enter(e, now); len(in) != 1 {
		t.Errorf("a release of one after an unused one of three lets in %v", in)
	}
	r.passes(now, 7, 3)
	if in := enter(e, now); len(in) != 0 {
		t.Errorf("the earlier one lets in %v", in)
	}

	e, r = paused(1, all)
	r.passes(now, 7, 3)
	if in := enter(e, now); len(in) != 1 {
		t.Errorf("three passes and one right of T let in %v", in)
	}

	e, r = paused(20, day.Add(time.Hour-58*time.Second))
	r.passes(now, 7, 3)
	if in := enter(e, now); len(in) != 3 || in[2] != 12 { // joined 60, 59 and 58 s ago
		t.Errorf("called are those who joined 58 s ago or before: %v enter", in)
	}

	// A regional that replaces the granting one counts none of them.
	_, r = paused(20, all)
	r.passes(now, 7, 2)
	r.term.N++
	r.held.Passes = wire.Passes{}
	r.say(now, wire.Grant{Handshake: wire.Promise})
	if rep := r.hear(now).Rooms[0]; rep.Passes != (wire.Passes{}) {
		t.Errorf("told to another parent: %+v", rep.Passes)
	}

	// They are returned once the room is open.
	e, r = paused(0, all)
	r.passes(now, 7, 2)
	e.SetRooms(now, []Room{{ID: sale}})
	if rep := r.hear(now).Rooms[0]; rep.Passes != (wire.Passes{
		Release:    7,
		Allocation: wire.Allocation{Granted: 2, Returned: 2},
	}) {
		t.Errorf("an open room keeps passes: %+v", rep.Passes)
	}
}

// Whoever reads /status of an edge finds the numbers of a room by these names.
func TestTheNamesInTheStatusOfARoom(t *testing.T) {
	data, err := json.Marshal(Ledger{})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"partial", "paused", "people_waiting", "permits_granted", "permits_returned", "permits_spent", "permits_to_keep",
		"rate_permits_granted", "rate_permits_idle", "rate_permits_returned", "rate_permits_to_keep", "renewals",
		"renewals_allowed", "requests_held", "sessions", "sessions_copied", "sessions_of_other_edges",
		"ticket_life_seconds", "tickets_until_next_snapshot", "view", "visitors_admitted",
		"visitors_let_in_without_permit",
	}
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}
