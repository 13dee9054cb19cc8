package admission

import (
	"testing"
	"time"

	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

var dublin = ticket.DCOf("dublin")

// abroad returns a ticket with a session of another data centre.
func abroad(id uint64, left int64) ticket.Ticket {
	t := inside(id, left)
	t.Home = dublin
	return t
}

// TestWhoMovesHereTakesARightOfThisDataCentre and none of R: the visitor was already admitted. The old home is
// notified.
func TestWhoMovesHereTakesARightOfThisDataCentre(t *testing.T) {
	e, r := newEdge(t, at(0), 2, 1)
	old := abroad(7, 10)
	d := e.Arrive(at(0), sale, old)
	if d.Verdict != Serve || !d.Reseal || d.Ticket.Home != ticket.DCOf("nairobi") || d.Ticket.Until <= old.Until {
		t.Fatalf("%v with %+v, want a session of this data centre", d.Verdict, d.Ticket)
	}
	l := e.Ledger(at(0), sale)
	if l.Spent != 1 || l.RateIdle != 1 || l.Admitted != 0 || l.Sessions != 1 {
		t.Errorf("%+v, want one right of T spent and none of R", l)
	}
	rep := r.hear(at(0)).Rooms[0]
	if want := (wire.End{ID: 7, Home: uint32(dublin), Until: old.Until, Kind: wire.Moved}); len(rep.Ends) != 1 ||
		rep.Ends[0] != want {
		t.Errorf("reported %v, want %v", rep.Ends, want)
	}
	if len(rep.Moves) != 1 || rep.Moves[0] != (wire.Move{ID: 7, Until: d.Ticket.Until}) {
		t.Errorf("moves %v, want an admission", rep.Moves)
	}

	again := e.Arrive(at(time.Second), sale, old)
	if again.Ticket.Until != d.Ticket.Until || again.Ticket.Home != d.Ticket.Home ||
		e.Ledger(at(time.Second), sale).Spent != 1 {
		t.Errorf("the old ticket again: %+v, want the same new one without a charge", again.Ticket)
	}
}

func TestAForeignTicketIsServedAsItIsWhere(t *testing.T) {
	for _, c := range []struct {
		why    string
		given  func(e *Engine)
		left   int64
		movers uint64
	}{
		{"it is younger than what is worth a renewal", func(*Engine) {}, 315, 0},
		{"the edge is isolated", func(e *Engine) { e.Lapse(at(0)) }, 10, 0},
		{
			"no permit is in hand", func(e *Engine) {
				p := &stateOf(e).account.permits
				p.spent = p.sessions.Granted
			}, 10,
			1,
		},
		{"its session moved away from here a moment ago", func(e *Engine) {
			stateOf(e).account.ended.note(wire.End{
				ID: 7, Home: uint32(e.edge.home), Until: uint32(e.Clock.Time(at(0)).Second()) + 1000,
				Kind: wire.Moved,
			})
		}, 10, 0},
	} {
		e, r := newEdge(t, at(0), 2, 2)
		c.given(e)
		old := abroad(7, c.left)
		if d := e.Arrive(at(0), sale, old); d.Verdict != Serve || d.Reseal || d.Ticket != old {
			t.Errorf("%s: %v with %+v, want served as it is", c.why, d.Verdict, d.Ticket)
		}
		if got := r.hear(at(0)).Rooms[0].Movers; got != c.movers {
			t.Errorf("%s: %d wait for a permit, want %d", c.why, got, c.movers)
		}
	}
}

// TestWhoMovesComesBeforeWhoWaits: a freed permit is reserved for migrating sessions for half a minute.
func TestWhoMovesComesBeforeWhoWaits(t *testing.T) {
	e, r := newEdge(t, at(0), 0, 5)
	e.Arrive(at(0), sale, abroad(7, 100))
	r.hear(at(0))
	r.grant(at(0), 1, 0)
	gets(t, e.Arrive(at(0), sale, waiting(8, time.Minute)), Hold, "who waits outside")
	if d := e.Arrive(at(0), sale, abroad(7, 100)); d.Ticket.Home == dublin {
		t.Error("who moves did not get the permit that was kept")
	}
	e.Arrive(at(0), sale, abroad(9, 100))
	r.hear(at(0))
	r.grant(at(0), 1, 0)
	for s := time.Duration(0); s <= moverWait; s += time.Second {
		r.lease(at(s))
	}
	late := at(moverWait + time.Second)
	r.lease(late)
	gets(t, e.Arrive(late, sale, waiting(8, time.Minute)), Admit, "long after")
}

// TestNoPermitIsKeptForASessionThatHasEnded: it cannot migrate any more.
func TestNoPermitIsKeptForASessionThatHasEnded(t *testing.T) {
	const left = 3
	e, r := newEdge(t, at(0), 0, 5)
	e.Arrive(at(0), sale, abroad(7, left))
	r.hear(at(0))
	r.grant(at(0), 1, 0)
	for s := time.Duration(0); s <= left+1; s++ {
		r.lease(at(s * time.Second))
	}
	gets(t, e.Arrive(at((left+1)*time.Second), sale, waiting(8, time.Minute)), Admit, "after its end")
}

// TestWhoLeavesIsAcceptedNoMore: here at once, elsewhere after the report; repeating it has no effect.
func TestWhoLeavesIsAcceptedNoMore(t *testing.T) {
	e, r := newEdge(t, at(0), 5, 5)
	in := e.Arrive(at(0), sale, waiting(7, time.Minute)).Ticket
	if !e.Quit(at(0), sale, in) {
		t.Fatal("nothing to leave")
	}
	for range 2 {
		if e.Quit(at(0), sale, in) {
			t.Error("left twice")
		}
	}
	for _, old := range []ticket.Ticket{in, waiting(7, time.Minute)} {
		if d := e.Arrive(at(0), sale, old); d.Fresh != Gone && d.Verdict == Serve {
			t.Errorf("%+v after leaving: %v", old, d.Verdict)
		}
	}
	want := wire.End{ID: 7, Home: uint32(e.edge.home), Until: in.Until, Kind: wire.Left, Shown: in.Until}
	if rep := r.hear(at(0)).Rooms[0]; len(rep.Ends) != 1 || rep.Ends[0] != want {
		t.Errorf("reported %v, want %v", rep.Ends, want)
	}

	other, o := newEdge(t, at(0), 5, 5)
	if d := other.Arrive(at(0), sale, in); d.Verdict != Serve {
		t.Fatalf("before it is reported: %v", d.Verdict)
	}
	g := o.held
	g.Ends = []wire.End{want}
	o.room(at(0), g)
	if d := other.Arrive(at(0), sale, in); d.Verdict == Serve || d.Fresh != Gone {
		t.Errorf("once it is reported: %v %v", d.Verdict, d.Fresh)
	}
	if other.Rooms.Ended(sale, in) != wire.Left {
		t.Error("not known as left")
	}

	// It is reported once: an edge between two leases records it too.
	lapsed, l := newEdge(t, at(0), 5, 5)
	lapsed.Lapse(at(0))
	g = l.held
	g.Ends = []wire.End{want}
	l.room(at(0), g)
	if lapsed.Rooms.Ended(sale, in) != wire.Left {
		t.Error("an edge without a lease acknowledged it and did not keep it")
	}
}

// TestWhoLeavesTheLineIsNotCountedThere, however often it is repeated.
func TestWhoLeavesTheLineIsNotCountedThere(t *testing.T) {
	e, r := newEdge(t, at(0), 0, 0)
	g := r.held
	g.View = view(100, day, day)
	r.room(at(0), g)
	back := func(id uint64) ticket.Ticket { // the second request, so it is counted
		t := waiting(id, time.Minute)
		t.Flags = 0
		return e.Arrive(at(0), sale, t).Ticket
	}
	first, second := back(1), back(2)
	for range 3 {
		e.Quit(at(0), sale, first)
	}
	if got := e.Ledger(at(0), sale).Waiting; got != 1 {
		t.Errorf("%d wait, want 1", got)
	}
	if d := e.Arrive(at(0), sale, first); d.Fresh != Gone {
		t.Errorf("who left and comes back keeps the place: %v", d.Fresh)
	}
	if d := e.Arrive(at(0), sale, second); d.Fresh != Kept {
		t.Errorf("who stayed: %v", d.Fresh)
	}
	for _, none := range []ticket.Ticket{{}, {ID: 9}, inside(9, -10)} {
		if e.Quit(at(0), sale, none) {
			t.Errorf("%+v had something to leave", none)
		}
	}
}

// TestAMovedSessionIsServedAndNotRenewed at its old home, and ends by the earliest clock of the fleet.
func TestAMovedSessionIsServedAndNotRenewed(t *testing.T) {
	e, r := newEdge(t, at(0), 5, 5)
	in := inside(7, 100)
	g := r.held
	g.Ends = []wire.End{{ID: 7, Home: uint32(in.Home), Until: in.Until, Kind: wire.Moved}}
	r.room(at(0), g)
	if d := e.Arrive(at(0), sale, in); d.Verdict != Serve || d.Reseal {
		t.Errorf("%v, resealed %v", d.Verdict, d.Reseal)
	}
	end := at(100*time.Second - 200*time.Millisecond)
	for s := time.Second; at(s) < end; s += time.Second {
		r.lease(at(s))
	}
	r.lease(end)
	if d := e.Arrive(end, sale, in); d.Verdict == Serve {
		t.Error("served although the permit may be somebody else's by a clock that is ahead")
	}
	later := in
	later.Until += 300
	gets(t, e.Arrive(end, sale, later), Serve, "a session that began since")
}

// TestMarksOutliveTheRegionalAndNotTheTickets: a new regional gets them with the first report; they are dropped
// once the watermark has passed them.
func TestMarksOutliveTheRegionalAndNotTheTickets(t *testing.T) {
	e, r := newEdge(t, at(0), 5, 5)
	in := e.Arrive(at(0), sale, waiting(7, time.Minute)).Ticket
	e.Quit(at(0), sale, in)
	r.hear(at(0))
	r.grant(at(0), 0, 0)
	if rep := r.hear(at(0)); len(rep.Rooms) > 0 && len(rep.Rooms[0].Ends) != 0 {
		t.Errorf("reported again: %v", rep.Rooms[0].Ends)
	}
	r.term = wire.Term{N: 2, Nonce: 8}
	r.seq = 0
	r.say(at(0), wire.Grant{Handshake: wire.Promise})
	if rep := r.hear(at(0)).Rooms[0]; len(rep.Ends) != 1 || rep.Ends[0].ID != 7 {
		t.Errorf("a new regional gets %v", rep.Ends)
	}
	r.say(at(0), wire.Grant{
		Handshake: wire.Adopted, Watermark: e.Clock.Time(at(0)).Add(time.Hour),
		Rooms: []wire.RoomGrant{r.held},
	})
	if n := len(stateOf(e).account.ended.marks); n != 0 {
		t.Errorf("%d marks are left", n)
	}
}

// TestAFirstStampIsShort until the second request.
func TestAFirstStampIsShort(t *testing.T) {
	e, r := newEdge(t, at(0), 5, 5)
	e.SetRooms(at(0), []Room{{ID: sale, Probation: time.Minute}})
	d := e.Arrive(at(0), sale, waiting(7, time.Minute))
	now := uint32(e.Clock.Time(at(0)).Second())
	if d.Verdict != Admit || d.Ticket.Until != now+1+60 {
		t.Fatalf("%v for %d s, want 61", d.Verdict, d.Ticket.Until-now)
	}
	r.lease(at(time.Second))
	d = e.Arrive(at(time.Second), sale, d.Ticket)
	if d.Verdict != Serve || d.Ticket.Until != now+1+1+330 {
		t.Errorf("the second request: %v for %d s, want 331", d.Verdict, d.Ticket.Until-now)
	}
	short := r.held
	short.Life = 20
	r.room(at(time.Second), short)
	if d := e.Arrive(at(time.Second), sale, waiting(8, time.Minute)); d.Ticket.Until != now+1+1+20 {
		t.Errorf("a session shorter than the probation: %d s", d.Ticket.Until-now)
	}
}
