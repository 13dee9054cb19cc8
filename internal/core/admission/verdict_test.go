package admission

import (
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

const (
	present = day + 3600_000 // fleet time at at(0)
	session = 300            // seconds of session_duration; the harness grants a life of 330
)

// queueing gives the room a queue: visitors that joined more than 20 s ago may enter, those that joined more than
// 10 s ago may be held.
func (r *regional) queueing(now fleettime.Mono) {
	g := r.held
	g.View = view(1000, present.Add(-20*time.Second), present.Add(-10*time.Second))
	r.room(now, g)
}

// inside returns a ticket with a session that ends left seconds after at(0).
func inside(id uint64, left int64) ticket.Ticket {
	second := present.Second()
	return ticket.Ticket{
		ID: id, Joined: present - 600_000, Seen: uint32(second - 100), Admitted: uint32(second - 100),
		Until: uint32(second + left), Home: ticket.DCOf("nairobi"), Flags: ticket.Returned,
	}
}

func TestEveryVerdict(t *testing.T) {
	now := at(0)
	free := func(e *Engine, r *regional) {}
	queue := func(e *Engine, r *regional) { r.queueing(now) }
	spent := func(e *Engine, r *regional) {
		for e.Arrive(now, sale, ticket.Ticket{}).Verdict == Admit {
		}
	}
	verdicts, reasons, freshes := map[Verdict]bool{}, map[Reason]bool{None: true}, map[Fresh]bool{}
	for _, c := range []struct {
		situation string
		given     func(e *Engine, r *regional)
		who       string
		ticket    ticket.Ticket
		verdict   Verdict
		reason    Reason
		fresh     Fresh
	}{
		{"permits are free", free, "somebody new", ticket.Ticket{}, Admit, Permit, Newcomer},
		{"permits are free", free, "somebody who waited", waiting(7, time.Minute), Admit, Permit, Kept},
		{"permits are free", free, "a visitor with a session", inside(7, 320), Serve, Session, Kept},
		{"permits are free", free, "a visitor whose session has ended", inside(7, -1), Admit, Permit, Expired},
		{"permits are free", free, "a visitor whose session ends this second", inside(7, 0), Admit, Permit, Expired},
		{
			"permits are free", free, "somebody who was not there for longer than the grace",
			ticket.Ticket{ID: 7, Joined: present - 900_000, Seen: uint32(present.Second() - 361), Flags: ticket.Returned},
			Admit, Permit, Lost,
		},
		{
			"permits are free", free, "somebody who was not there for the grace",
			ticket.Ticket{ID: 7, Joined: present - 900_000, Seen: uint32(present.Second() - 360), Flags: ticket.Returned},
			Admit, Permit, Kept,
		},
		{
			"permits are free", free, "a visitor with a session of an epoch that was voided",
			ticket.Ticket{ID: 7, Joined: present - 1, Admitted: 1, Until: uint32(present.Second() + 99), Epoch: 3},
			Admit,
			Permit, Void,
		},

		{"people queue", queue, "somebody new", ticket.Ticket{}, Queue, Behind, Newcomer},
		{"people queue", queue, "somebody far back", waiting(7, 5*time.Second), Queue, Behind, Kept},
		{"people queue", queue, "somebody at the head of the line", waiting(7, 15*time.Second), Hold, Behind, Kept},
		{"people queue", queue, "somebody whose turn it is", waiting(7, 25*time.Second), Admit, Permit, Kept},
		{"people queue", queue, "a visitor with a session", inside(7, 320), Serve, Session, Kept},

		{"every permit of T is spent", spent, "somebody new", ticket.Ticket{}, Hold, Full, Newcomer},
		{"every permit of T is spent", spent, "a visitor with a session", inside(7, 10), Serve, Session, Kept},
		{"every permit of R is in use", func(e *Engine, r *regional) {
			spent(e, r)
			r.grant(now, 5, 0)
		}, "somebody new", ticket.Ticket{}, Hold, Full, Newcomer},
		{"a permit came, but somebody is held who joined earlier", func(e *Engine, r *regional) {
			spent(e, r)
			e.Rooms.Hold(now, &Visit{Room: sale, Ticket: waiting(6, time.Minute)})
			r.grant(now, 1, 1)
		}, "somebody who joined later", waiting(7, 30*time.Second), Hold, Full, Kept},
		{"a permit came, and somebody is held who joined later", func(e *Engine, r *regional) {
			spent(e, r)
			e.Rooms.Hold(now, &Visit{Room: sale, Ticket: waiting(6, 30*time.Second)})
			r.grant(now, 1, 1)
		}, "somebody who joined earlier", waiting(7, time.Minute), Admit, Permit, Kept},
		{"as many are held as may be", func(e *Engine, r *regional) {
			spent(e, r)
			for id := range e.edge.cfg.Limits.Held {
				e.Rooms.Hold(now, &Visit{Room: sale, Ticket: waiting(uint64(1000+id), time.Minute)})
			}
		}, "somebody new", ticket.Ticket{}, Queue, Crowded, Newcomer},

		{
			"the edge knows no room", func(e *Engine, r *regional) { e.SetRooms(now, nil) }, "somebody new",
			ticket.Ticket{},
			Queue, Unknown, Kept,
		},
		{"no life was granted yet", func(e *Engine, r *regional) {
			r.held.Life = 0
			r.grant(now, 0, 0)
		}, "somebody new", ticket.Ticket{}, Hold, Full, Newcomer},
		{
			"the lease of the edge is ended", func(e *Engine, r *regional) { e.Lapse(now) }, "somebody new",
			ticket.Ticket{},
			Queue,
			Isolated, Newcomer,
		},
		{
			"the lease of the edge is ended", func(e *Engine, r *regional) { e.Lapse(now) }, "a visitor with a session",
			inside(7, 100), Serve, Session, Kept,
		},
		{
			"the lease of the edge is ended", func(e *Engine, r *regional) { e.Lapse(now) },
			"a visitor whose session other clocks may have ended", inside(7, 0), Queue, Isolated, Expired,
		},
		{"the edge is isolated and the room closed then", func(e *Engine, r *regional) {
			e.SetRooms(now, isolating(room.IsolationClosed, 0))
			e.Lapse(now.Add(-time.Minute))
		}, "somebody new", ticket.Ticket{}, Queue, Closed, Newcomer},
		{"the edge is isolated and the room open then", func(e *Engine, r *regional) {
			e.SetRooms(now, isolating(room.IsolationOpen, 1))
			e.Lapse(now.Add(-time.Minute))
		}, "somebody who waited", waiting(7, time.Minute), Admit, Uncounted, Kept},
		{
			"the site does not answer", func(e *Engine, r *regional) { e.Rooms.Pause(now, sale, true) }, "somebody new",
			ticket.Ticket{},
			Queue, OriginDown, Newcomer,
		},
		{
			"the site does not answer", func(e *Engine, r *regional) { e.Rooms.Pause(now, sale, true) }, "somebody who waited",
			waiting(7, time.Minute), Queue, OriginDown, Kept,
		},
		{
			"the site does not answer", func(e *Engine, r *regional) { e.Rooms.Pause(now, sale, true) },
			"a visitor with a session", inside(7, 100), Serve, Session, Kept,
		},
		{"the site answers again", func(e *Engine, r *regional) {
			e.Rooms.Pause(now, sale, true)
			e.Rooms.Pause(now, sale, false)
			e.Rooms.Pause(now, 4711, true) // no such room
		}, "somebody who waited", waiting(7, time.Minute), Admit, Permit, Kept},
		{"fleet time is not known well", func(e *Engine, r *regional) {
			e.Clock.fleet = fleettime.Clock{}
			e.Clock.fleet.Set(now, present, fleettime.Rough+1)
		}, "somebody new", ticket.Ticket{}, Queue, Unsure, Newcomer},
		{"this ticket was admitted a moment ago", func(e *Engine, r *regional) {
			e.Arrive(now, sale, waiting(7, time.Minute))
		}, "the same ticket again", waiting(7, time.Minute), Serve, Repeated, Kept},
	} {
		e, r := newEdge(t, now, 10, 10)
		c.given(e, r)
		d := e.Arrive(now, sale, c.ticket)
		if d.Verdict != c.verdict || d.Reason != c.reason || d.Fresh != c.fresh {
			t.Errorf("When %s, %s gets %v (%v, %d), want %v (%v, %d)", c.situation, c.who, d.Verdict, d.Reason, d.Fresh,
				c.verdict, c.reason, c.fresh)
		}
		if d.Enters() != (d.Verdict == Serve || d.Verdict == Admit) || d.Enters() != d.Ticket.IsAdmitted() {
			t.Errorf("When %s, %s gets %v with the ticket %+v", c.situation, c.who, d.Verdict, d.Ticket)
		}
		if d.Fresh != Kept && (d.Ticket.ID == c.ticket.ID || d.Ticket.Joined != present || !d.Reseal || d.Ticket.Epoch != 0) {
			t.Errorf("When %s, %s is to get a new place, not %+v", c.situation, c.who, d.Ticket)
		}
		if !d.Enters() && (d.Retry <= 0 || d.Retry > 25*time.Second) {
			t.Errorf("When %s, %s is to come back after %v", c.situation, c.who, d.Retry)
		}
		verdicts[d.Verdict], reasons[d.Reason], freshes[d.Fresh] = true, true, true
	}

	e, _ := newEdge(t, now, 0, 0)
	v := &Visit{Room: sale, Ticket: e.Arrive(now, sale, ticket.Ticket{}).Ticket}
	e.Rooms.Hold(now, v)
	if !e.Rooms.GiveUp(at(time.Second), v) || v.Decision.Verdict != Queue || v.Decision.Reason != GaveUp {
		t.Errorf("held for a second without a permit: %v (%v), want queue (gave_up)", v.Decision.Verdict, v.Decision.Reason)
	}
	if e.Rooms.GiveUp(at(time.Second), v) {
		t.Error("gave up twice")
	}
	reasons[GaveUp] = true

	// A visitor that is held when the site fails enters when it is back, and no permit is wanted meanwhile.
	e, r := newEdge(t, now, 0, 0)
	v = &Visit{Room: sale, Ticket: e.Arrive(now, sale, ticket.Ticket{}).Ticket}
	e.Rooms.Hold(now, v)
	e.Rooms.Pause(now, sale, true)
	r.grant(now, 5, 5)
	if out := e.Rooms.Release(now, nil); len(out) > 0 {
		t.Errorf("let in %d while the site does not answer", len(out))
	}
	if reported := r.hear(now).Rooms[0]; reported.HeldPeople != 0 || reported.Want != 0 || len(reported.HeldJoined) > 0 {
		t.Errorf("wishes for permits while the site does not answer: %+v", reported)
	}
	e.Rooms.Pause(now, sale, false)
	if out := e.Rooms.Release(now, nil); len(out) != 1 || out[0].Decision.Verdict != Admit {
		t.Errorf("let in %d when the site answers again", len(out))
	}
	if reported := r.hear(now).Rooms[0]; reported.Admitted != 1 {
		t.Errorf("%+v", reported)
	}

	// If the data centre leaves the fleet nobody new is admitted, with or without permits.
	e, r = newEdge(t, now, 5, 5)
	r.standing = wire.Draining
	r.grant(now, 5, 5)
	getsFor(t, e.Arrive(now, sale, ticket.Ticket{}), Queue, Drains, "where the data centre drains")
	reasons[Drains] = true
	reasons[FirstTouch] = true                         // see TestWhoJoinsIsNotLetIn
	reasons[QueuedAll], reasons[Rejected] = true, true // see TestNobodyEntersARoomThatIsShut
	reasons[Gathering] = true                          // see TestNobodyEntersWhilePeopleGather

	for _, v := range Verdicts() {
		if !verdicts[v] {
			t.Errorf("no situation leads to %v", v)
		}
	}
	for _, r := range Reasons() {
		if !reasons[r] {
			t.Errorf("no situation leads to %v", r)
		}
	}
	if len(freshes) != int(Void)+1 {
		t.Errorf("only %d of the ways to a new place were walked", len(freshes))
	}
}

// TestANewEdgeServesAndAdmitsNobody is an edge that has just started: it has keys and rooms, but no
// regional.
func TestANewEdgeServesAndAdmitsNobody(t *testing.T) {
	now := at(0)
	e := alone(now, 1, DefaultLimits())
	e.Clock.Guess(now, present)
	if d := e.Arrive(now, sale, ticket.Ticket{}); d.Verdict != Queue || d.Reason != Unsure || d.Reseal {
		t.Errorf("somebody new: %v (%v), resealed %v", d.Verdict, d.Reason, d.Reseal)
	}
	s := inside(7, 10)
	if d := e.Arrive(now, sale, s); d.Verdict != Serve || d.Reseal || d.Ticket != s {
		t.Errorf("a visitor with a session by the machine's own clock: %v with %+v", d.Verdict, d.Ticket)
	}
	if st := e.Status(now); st.Synced || st.Sure || st.Leased || st.Joined || st.Time != present {
		t.Errorf("%+v", st)
	}
	if e.Clock.Bound(now) != fleettime.Unsynced || e.Ledger(now, 99) != (Ledger{}) {
		t.Error("knows a time or a room that it was not told")
	}
}

// TestNobodyIsCountedByAGuessedTime: the ticket is not resealed, so the check-in would be counted again, and a
// guess far ahead would close the book until then.
func TestNobodyIsCountedByAGuessedTime(t *testing.T) {
	now := at(0)
	e := alone(now, 1, DefaultLimits())
	e.Clock.Guess(now, present.Add(time.Minute))
	brought := waiting(7, time.Minute)
	if d := e.Arrive(now, sale, brought); d.Ticket != brought || d.Reseal {
		t.Errorf("the ticket became %+v (%v)", d.Ticket, d.Fresh)
	}
	rep := e.Report(now)[0].Rooms[0]
	if len(rep.Waiting) != 0 || len(rep.Arrivals) != 0 || rep.Joined != 0 {
		t.Errorf("counted %v, %v", rep.Waiting, rep.Arrivals)
	}
	r := &regional{t: t, e: e, term: wire.Term{N: 1}, held: wire.RoomGrant{Room: sale, Life: 330}}
	r.hear(now)
	r.say(now, wire.Grant{})
	e.Arrive(now, sale, ticket.Ticket{ID: 8, Joined: present - 1000, Seen: uint32(present.Second())})
	if n := r.hear(now).Rooms[0].Waiting.Total(); n != 1 {
		t.Errorf("%v people wait after fleet time was known, want 1", n)
	}
}

func TestAWaitingVisitorGetsPlaceAndForecast(t *testing.T) {
	e, r := newEdge(t, at(0), 0, 0)
	g := r.held
	g.View = view(1000, day-30_000, day-20_000) // 1000 joined in the minute before day, 0.5 enter per second
	g.View.Free = 100
	r.room(at(0), g)
	joined := func(at fleettime.Time) ticket.Ticket {
		return ticket.Ticket{ID: 5, Joined: at, Seen: uint32(present.Second()), Flags: ticket.Returned}
	}
	d := e.Arrive(at(0), sale, joined(day-12_000)) // 799.2 others joined before, 100 of them have a permit
	if d.Ahead != 699 || d.Waiting != 1000 || d.Wait != 1399*time.Second || !d.Known {
		t.Errorf("%d ahead of %d, %v (%v)", d.Ahead, d.Waiting, d.Wait, d.Known)
	}
	if d.Retry < 15*time.Second || d.Retry > 25*time.Second {
		t.Errorf("somebody far back is to come after %v, want the refresh of 20 s give or take a quarter", d.Retry)
	}
	near := view(1000, day-30_000, day-30_000)
	near.Free = 990
	g.View = near
	r.room(at(0), g)
	d = e.Arrive(at(0), sale, joined(day)) // 10 ahead: 20 s
	if d.Ahead != 10 || d.Retry < 3750*time.Millisecond || d.Retry > 6250*time.Millisecond {
		t.Errorf("with %d ahead to come after %v, want a quarter of the wait, give or take", d.Ahead, d.Retry)
	}
	near = view(1000, day-30_000, day-30_000)
	near.Mu, near.Paces = 0, nil
	g.View = near
	r.room(at(0), g)
	if d = e.Arrive(at(0), sale, joined(day)); d.Known || d.Wait != 0 {
		t.Errorf("nobody enters: forecast %v (%v)", d.Wait, d.Known)
	}
}

// TestAHeldPollEndsWhenTheNextPollWouldCome: the poll of a visitor whose turn is not near is answered as soon as
// without a hold; near the turn it is held for the longest time.
func TestAHeldPollEndsWhenTheNextPollWouldCome(t *testing.T) {
	e, r := newEdge(t, at(0), 0, 0)
	g := r.held
	g.View = view(1000, day-30_000, day) // all of the line may be held
	for _, c := range []struct {
		permits   int64
		low, high time.Duration
	}{
		{980, 7500 * time.Millisecond, 12500 * time.Millisecond}, // 20 ahead: 40 s, and the next poll would come after ten
		{997, 25 * time.Second, 25 * time.Second},
	} {
		g.View.Free = c.permits
		r.room(at(0), g)
		d := e.Arrive(at(0), sale, ticket.Ticket{
			ID: 5, Joined: day, Seen: uint32(present.Second()), Wait: 60, High: 90,
			Flags: ticket.Returned,
		})
		if d.Verdict != Hold || d.Retry < c.low || d.Retry > c.high {
			t.Errorf("with %d free places: %v for %v, want a hold of %v to %v", c.permits, d.Verdict, d.Retry, c.low, c.high)
		}
	}
}

// TestLookingAtAPlaceCountsNobody: an event stream is for valid places, and asking for one has no side
// effects.
func TestLookingAtAPlaceCountsNobody(t *testing.T) {
	e, r := newEdge(t, at(0), 1, 1)
	place := waiting(7, time.Minute)
	admitted := e.Arrive(at(0), sale, waiting(8, time.Minute)).Ticket
	left := waiting(9, time.Minute)
	e.Quit(at(0), sale, left)
	void := waiting(10, time.Minute)
	void.Epoch++
	r.hear(at(0))
	was := e.Ledger(at(0), sale)
	for _, tc := range []struct {
		name string
		t    ticket.Ticket
		now  fleettime.Mono
		want bool
	}{
		{"who waits", place, at(0), true},
		{"who has not come back for five minutes", place, at(5 * time.Minute), true},
		{"who has not come back within the grace", place, at(7 * time.Minute), false},
		{"nobody", ticket.Ticket{}, at(0), false},
		{"who is inside", admitted, at(0), false},
		{"who is inside, with the old ticket", waiting(8, time.Minute), at(0), false},
		{"who left", left, at(0), false},
		{"who stood in another line", void, at(0), false},
	} {
		if got := e.Waits(tc.now, sale, tc.t); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
	if e.Waits(at(0), sale+1, place) {
		t.Error("somebody waits in a room that there is not")
	}
	if got := e.Ledger(at(0), sale); got != was {
		t.Errorf("asking changed %+v to %+v", was, got)
	}
}

// Somebody new whose request is no visit gets a place, whatever is free, and enters with the
// next request.
func TestWhoJoinsIsNotLetIn(t *testing.T) {
	now := fleettime.Mono(time.Hour)
	for _, tc := range []struct {
		name   string
		given  func(*Engine)
		reason Reason
	}{
		{"permits are free", func(*Engine) {}, FirstTouch},
		{"the edge is isolated and the room open then", func(e *Engine) {
			e.SetRooms(now, []Room{{ID: sale, Session: 5 * time.Minute, OnIsolation: room.IsolationOpen, IsolationLimit: 1}})
			e.Lapse(now.Add(-time.Minute))
		}, Isolated},
		{"the site does not answer", func(e *Engine) { e.Rooms.Pause(now, sale, true) }, OriginDown},
		{"the edge knows no room", func(e *Engine) { e.SetRooms(now, nil) }, Unknown},
	} {
		e, _ := newEdge(t, now, 10, 10)
		tc.given(e)
		d := e.Join(now, sale, 0)
		if d.Verdict != Queue || d.Reason != tc.reason || d.Enters() {
			t.Errorf("When %s, who joins gets %v (%v)", tc.name, d.Verdict, d.Reason)
		}
		if tc.reason != FirstTouch {
			continue
		}
		if d.Fresh != Newcomer || !d.Reseal || d.Ticket.ID == 0 || d.Retry <= 0 {
			t.Errorf("who joins has no place: %+v", d)
		}
		if again := e.Arrive(now, sale, d.Ticket); again.Verdict != Admit || again.Ticket.ID != d.Ticket.ID {
			t.Errorf("the next request gets %v (%v)", again.Verdict, again.Reason)
		}
	}
}
