package admission

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// isolating is a room with an isolation policy.
func isolating(policy string, limit int) []Room {
	return []Room{{ID: sale, Session: session * time.Second, OnIsolation: policy, IsolationLimit: limit}}
}

// cutOff returns an edge whose lease ended at 3 s, and the state at that time.
func cutOff(t *testing.T, policy string, limit int) (*Engine, *regional) {
	t.Helper()
	e, r := newEdge(t, at(0), 10, 10)
	e.SetRooms(at(0), isolating(policy, limit))
	e.Report(at(3 * time.Second))
	if e.Status(at(3 * time.Second)).Leased {
		t.Fatal("the lease did not end")
	}
	return e, r
}

// TestWhoLooksOnChangesNothing: the edge itself detects the end of a lease, reading its state has no side effects.
func TestWhoLooksOnChangesNothing(t *testing.T) {
	e, _ := newEdge(t, at(0), 10, 10)
	e.SetRooms(at(0), isolating(room.IsolationOpen, 5))
	for _, now := range []time.Duration{3 * time.Second, isolated, 2 * isolated} {
		if st := e.Status(at(now)); st.Leased || st.Isolated {
			t.Errorf("at %v: %+v, want no lease, and nobody to have noticed", now, st)
		}
	}
	e.Report(at(3 * time.Second))
	if !e.Status(at(isolated)).Isolated {
		t.Error("it noticed 10 s ago, and is not isolated")
	}
}

const (
	notYet   = 13*time.Second - 1 // not isolated yet: the lease ended at 3 s
	isolated = 13 * time.Second
)

func TestNewcomersAtAnIsolatedEdge(t *testing.T) {
	for _, c := range []struct {
		policy  string
		limit   int
		verdict Verdict
		reason  Reason
	}{
		{"", 0, Queue, Isolated},
		{room.IsolationHold, 5, Queue, Isolated},
		{room.IsolationClosed, 5, Queue, Closed},
		{room.IsolationOpen, 2, Admit, Uncounted},
		{room.IsolationOpen, 0, Queue, Isolated},
	} {
		e, _ := cutOff(t, c.policy, c.limit)
		if d := e.Arrive(at(notYet), sale, ticket.Ticket{}); d.Verdict != Queue || d.Reason != Isolated {
			t.Errorf("%q: a moment after the lease %v (%v)", c.policy, d.Verdict, d.Reason)
		}
		for _, who := range []ticket.Ticket{{}, waiting(7, time.Minute)} {
			if d := e.Arrive(at(isolated), sale, who); d.Verdict != c.verdict || d.Reason != c.reason {
				t.Errorf("%q: isolated %v (%v), want %v (%v)", c.policy, d.Verdict, d.Reason, c.verdict, c.reason)
			} else if !d.Enters() && (d.Retry <= 0 || d.Retry > 25*time.Second) {
				t.Errorf("%q: come back after %v", c.policy, d.Retry)
			}
		}
		gets(t, e.Arrive(at(isolated), sale, inside(8, 200)), Serve, "%q: who is inside", c.policy)
	}
}

// In a draining data centre nobody is admitted, also not by an isolated edge: its regional may have stopped before
// it.
func TestAnIsolatedEdgeOfADataCentreThatDrains(t *testing.T) {
	e, r := newEdge(t, at(0), 10, 10)
	r.standing = wire.Draining
	r.grant(at(0), 10, 10)
	e.SetRooms(at(0), isolating(room.IsolationOpen, 5))
	e.Report(at(3 * time.Second))
	getsFor(t, e.Arrive(at(isolated), sale, ticket.Ticket{}), Queue, Isolated, "somebody new")
	gets(t, e.Arrive(at(isolated), sale, inside(8, 200)), Serve, "who is inside")
}

// No number of the ledger includes the admissions of an isolated edge: its later reports are the same as without
// them, but for the waiting visitors.
func TestSessionsOfNobodyAreInNoBooks(t *testing.T) {
	reports := func(visitors int) []wire.Report {
		e, _ := cutOff(t, room.IsolationOpen, 100)
		var in []ticket.Ticket
		for range visitors {
			d := e.Arrive(at(isolated), sale, ticket.Ticket{})
			if d.Verdict != Admit || !d.Reseal || d.Ticket.Home != ticket.Nobody || !d.Ticket.IsAdmitted() {
				t.Fatalf("let in with %+v", d)
			}
			in = append(in, d.Ticket)
		}
		// Renewed, repeated and expired: none of it is reported.
		for _, after := range []time.Duration{
			isolated + time.Second, 100 * time.Second, 200 * time.Second,
			2000 * time.Second,
		} {
			for _, t := range in {
				e.Arrive(at(after), sale, t)
			}
		}
		reports := e.Report(at(2001 * time.Second))
		for i := range reports {
			for j := range reports[i].Rooms {
				reports[i].Rooms[j].Counts = nil // they came back, which the history may tell
			}
		}
		return reports
	}
	if diff := cmp.Diff(reports(0), reports(40)); diff != "" {
		t.Errorf("the ledger knows of them:\n%s", diff)
	}
}

func TestNobodysSessionLastsWhileItsEdgeIsIsolated(t *testing.T) {
	e, r := cutOff(t, room.IsolationOpen, 1)
	d := e.Arrive(at(isolated), sale, ticket.Ticket{})
	if want := uint32(present.Second()) + 13 + 1 + 320; d.Ticket.Until != want {
		t.Fatalf("ends at %d, want %d", d.Ticket.Until, want)
	}
	soonAgain := e.Arrive(at(isolated+19*time.Second), sale, d.Ticket)
	if soonAgain.Verdict != Serve || soonAgain.Reseal {
		t.Errorf("renewed before it is 20 s old: %+v", soonAgain)
	}
	kept := e.Arrive(at(isolated+20*time.Second), sale, d.Ticket)
	if kept.Verdict != Serve || !kept.Reseal || kept.Ticket.Until != d.Ticket.Until+20 ||
		kept.Ticket.Home != ticket.Nobody {
		t.Errorf("not renewed once it is: %+v", kept)
	}

	// The regional is back: served to the end, not renewed, then queued.
	r.lease(at(60 * time.Second))
	served := e.Arrive(at(100*time.Second), sale, kept.Ticket)
	if served.Verdict != Serve || served.Reseal {
		t.Errorf("under a lease: %+v", served)
	}
	end := time.Duration(int64(kept.Ticket.Until)-present.Second()) * time.Second
	r.lease(at(end))
	r.grant(at(end), 1, 1)
	over := e.Arrive(at(end), sale, kept.Ticket)
	if over.Verdict != Admit || over.Reason != Permit || over.Fresh != Expired || over.Ticket.Home == ticket.Nobody {
		t.Errorf("after its end: %+v", over)
	}
	if l := e.Ledger(at(end), sale); l.Spent != 1 || l.LetIn != 1 {
		t.Errorf("permits spent %d (want 1: for the visitor who was in before), let in %d", l.Spent, l.LetIn)
	}

	// A visitor that leaves is gone, and nothing is reported.
	leaver, lr := cutOff(t, room.IsolationOpen, 1)
	in := leaver.Arrive(at(isolated), sale, ticket.Ticket{})
	if !leaver.Quit(at(isolated), sale, in.Ticket) || leaver.Quit(at(isolated), sale, in.Ticket) {
		t.Error("a session of nobody cannot be left, or twice")
	}
	if d := leaver.Arrive(at(isolated), sale, in.Ticket); d.Enters() || d.Fresh != Gone {
		t.Errorf("who has left gets %v (%v)", d.Verdict, d.Fresh)
	}
	if rep := lr.hear(at(isolated)); len(rep.Rooms[0].Ends) != 0 {
		t.Errorf("the regional gets %+v", rep.Rooms[0].Ends)
	}

	// An isolated edge with another policy serves it, and does not renew it.
	other, _ := cutOff(t, room.IsolationHold, 0)
	if d := other.Arrive(at(isolated+30*time.Second), sale, d.Ticket); d.Verdict != Serve || d.Reseal {
		t.Errorf("at an edge that holds: %+v", d)
	}
}

func TestAnIsolationHasOneLimit(t *testing.T) {
	e, r := cutOff(t, room.IsolationOpen, 3)
	letIn := func(after time.Duration) (n int) {
		for range 10 {
			if d := e.Arrive(at(after), sale, ticket.Ticket{}); d.Reason == Uncounted {
				n++
			} else if d.Verdict != Queue || d.Reason != Isolated {
				t.Fatalf("%v (%v)", d.Verdict, d.Reason)
			}
		}
		return n
	}
	if n := letIn(isolated); n != 3 {
		t.Errorf("let in %d, want 3", n)
	}
	// No event in between gives the edge a new allowance: the rooms are published again, the regional has forgotten
	// the edge, the machine is suspended.
	e.SetRooms(at(isolated), isolating(room.IsolationOpen, 3))
	e.Lapse(at(isolated))
	r.hear(at(isolated))
	r.say(at(isolated), wire.Grant{Handshake: wire.Dead})
	if n := letIn(60 * time.Second); n != 0 {
		t.Errorf("the same isolation: %d more", n)
	}
	e.SetRooms(at(60*time.Second), isolating(room.IsolationOpen, 5))
	if n := letIn(60 * time.Second); n != 2 {
		t.Errorf("a limit that was raised by two: %d more", n)
	}
	r.held = wire.RoomGrant{Room: sale, Life: 330} // the new instance holds nothing
	r.lease(at(60 * time.Second))
	e.Report(at(64 * time.Second))
	if n := letIn(73 * time.Second); n != 0 {
		t.Errorf("nine seconds after the lease: %d", n)
	}
	if n := letIn(74 * time.Second); n != 5 {
		t.Errorf("the next isolation: %d, want 5", n)
	}
	if l := e.Ledger(at(74*time.Second), sale); l.LetIn != 10 {
		t.Errorf("let in %d in all, want 10", l.LetIn)
	}
}

// A suspended process or machine first finds out that nobody answers.
func TestTimeThatPassedUnseenIsNoIsolation(t *testing.T) {
	for what, pause := range map[string]func(e *Engine, now fleettime.Mono){
		"stopped": func(*Engine, fleettime.Mono) {},
		"slept":   func(e *Engine, now fleettime.Mono) { e.Lapse(now) },
	} {
		e, _ := newEdge(t, at(0), 10, 10)
		e.SetRooms(at(0), isolating(room.IsolationOpen, 3))
		wakes := at(time.Hour)
		pause(e, wakes)
		for _, after := range []time.Duration{0, 10*time.Second - 1} {
			if d := e.Arrive(wakes.Add(after), sale, ticket.Ticket{}); d.Enters() {
				t.Errorf("%s: %v (%v) after %v", what, d.Verdict, d.Reason, after)
			}
		}
		getsFor(t, e.Arrive(wakes.Add(10*time.Second), sale, ticket.Ticket{}), Admit, Uncounted, "%s, and alone since", what)
	}
}

// An edge that starts from its data folder without a regional: it knows the time only from the machine's clock, and
// still applies the room's policy.
func TestAnEdgeThatNeverHadALease(t *testing.T) {
	for policy, want := range map[string]Reason{
		room.IsolationHold: Unsure, room.IsolationOpen: Uncounted,
		room.IsolationClosed: Closed,
	} {
		e := New(Config{Edge: "edge-1", DC: "nairobi", Params: wire.DefaultParams(), Rand: rand.New(rand.NewPCG(1, 2))})
		e.Clock.Guess(at(0), present)
		getsFor(t, e.Arrive(at(time.Hour), sale, ticket.Ticket{}), Queue, Unknown, "without rooms")
		e.SetRooms(at(time.Hour), isolating(policy, 1))
		getsFor(t, e.Arrive(at(time.Hour+10*time.Second-1), sale, ticket.Ticket{}), Queue, Unsure, "%s: at first", policy)
		d := e.Arrive(at(time.Hour+10*time.Second), sale, ticket.Ticket{})
		if d.Reason != want {
			t.Errorf("%s: %v, want %v", policy, d.Reason, want)
		}
		if d.Enters() && e.Arrive(at(time.Hour+11*time.Second), sale, d.Ticket).Verdict != Serve {
			t.Errorf("%s: let in and not served", policy)
		}
	}
}
