package admission

import (
	"reflect"
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// state is all state of an edge that a message may change.
func state(e *Engine, now fleettime.Mono) [3]any {
	return [3]any{e.Ledger(now, sale), e.Status(now), e.up}
}

func TestALeaseEndsCountedFromTheSendingOfTheReport(t *testing.T) {
	e, r := newEdge(t, at(0), 10, 10)
	r.hear(at(time.Second))
	r.grant(at(2*time.Second), 0, 0) // the response took a second
	end := at(time.Second).Add(fleettime.Shrink(3 * time.Second))
	if got := e.Status(at(2 * time.Second)); got.LeaseEnd != end || !got.Leased {
		t.Errorf("leased until %v, want %v", got.LeaseEnd, end)
	}
	if !e.Status(end-1).Leased || e.Status(end).Leased {
		t.Error("the lease does not end when it ends")
	}
	if e.Report(end); e.Status(at(0)).Leased { // detected once
		t.Error("a clock that went back revives a lease")
	}
}

func TestALeaseThatLapsedStaysLapsedForItsLeaseEpoch(t *testing.T) {
	for _, looked := range []bool{true, false} {
		e, r := newEdge(t, at(0), 10, 10)
		r.hear(at(2 * time.Second))
		late := at(4 * time.Second) // the lease ended at 3 s; this grant would extend it to 5 s
		if looked {
			e.Arrive(at(3500*time.Millisecond), sale, ticket.Ticket{})
		}
		r.grant(late, 5, 5)
		getsFor(t, e.Arrive(late, sale, ticket.Ticket{}), Queue, Isolated, "looked at meanwhile %v", looked)
		if e.Due() > late.Add(e.edge.cfg.Params.ReportGap) {
			t.Errorf("looked at meanwhile %v: the final report is not hurried", looked)
		}
		rep := r.hear(late)
		room := rep.Rooms[0]
		if !rep.Final || room.Permits.Sessions.Granted != room.Spent+room.Permits.Sessions.Returned ||
			room.Permits.Rate.Granted != room.Permits.Rate.Returned {
			t.Errorf("looked at meanwhile %v: final %v, %+v", looked, rep.Final, room)
		}
		r.lease(late)
		if !e.Status(late).Leased || e.Status(late).LeaseEpoch != 2 {
			t.Errorf("looked at meanwhile %v: a new lease epoch does not begin", looked)
		}
	}
}

func TestTheFinalReportEndsALeaseEpoch(t *testing.T) {
	e, r := newEdge(t, at(0), 10, 10)
	e.Arrive(at(0), sale, ticket.Ticket{})
	r.hear(at(0))
	r.say(at(0), wire.Grant{Handshake: wire.Fenced})
	getsFor(t, e.Arrive(at(0), sale, ticket.Ticket{}), Queue, Isolated, "after it was fenced")
	if e.Due() > at(0).Add(e.edge.cfg.Params.ReportGap) {
		t.Error("fenced, and the final report is not hurried")
	}
	rep := r.hear(at(0))
	if got := rep.Rooms[0]; !rep.Final || rep.Bye || got.Spent != 1 || got.Permits.Sessions.Returned != 9 ||
		got.Permits.Rate.Returned != 9 || got.Active != 1 {
		t.Errorf("final %v: %+v", rep.Final, got)
	}
	before := state(e, at(0))
	r.grant(at(0), 3, 3) // of the past epoch
	if got := state(e, at(0)); got[0] != before[0] || got[1] != before[1] {
		t.Errorf("a grant of the lease epoch that is over changed %+v to %+v", before, got)
	}
	r.ten = 2
	r.held = wire.RoomGrant{Room: sale, Life: 330, Permits: wire.Permits{
		Sessions: wire.Allocation{Granted: 12, Keep: 100},
		Rate:     wire.Allocation{Granted: 4, Keep: 100},
	}, RenewCeil: 10}
	r.room(at(0), r.held)
	got := e.Ledger(at(0), sale)
	if got.Credit() != 2 || got.RateIdle != 4 || got.Spent != 1 || got.Sessions != 1 {
		t.Errorf("after the new lease epoch's first grant: %+v", got)
	}
	if owed := r.hear(at(0)).Rooms[0].RateOwed; owed != 1 {
		t.Errorf("%d permits of R are owed from the old lease epoch, want 1", owed)
	}
}

func TestAParentIsFollowedUpwardOnly(t *testing.T) {
	e, r := newEdge(t, at(0), 10, 10)
	r.hear(at(0))
	for why, term := range map[string]wire.Term{
		"of a lower term": {N: 0, Nonce: 7},
		"of the same term whose store lost its memory": {N: 1, Nonce: 8},
	} {
		before := state(e, at(0))
		mine := r.term
		r.term = term
		for _, v := range []wire.Handshake{wire.Adopted, wire.Promise, wire.Fenced, wire.Dead} {
			r.say(at(0), wire.Grant{
				Handshake: v, Lease: time.Hour, Watermark: present + 1e6,
				Rooms: []wire.RoomGrant{{Room: sale, Permits: wire.Permits{Sessions: wire.Allocation{Granted: 1000}}, Life: 1}},
			})
		}
		r.term = mine
		if got := state(e, at(0)); got != before {
			t.Errorf("a parent %s changed %+v to %+v", why, before, got)
		}
		if e.Clock.Time(at(0)) != present {
			t.Errorf("a parent %s moved fleet time to %v", why, e.Clock.Time(at(0)))
		}
	}

	r.term = wire.Term{N: 2, Nonce: 9}
	r.say(at(0), wire.Grant{Handshake: wire.Promise})
	if st := e.Status(at(0)); st.Follows != r.term || st.Joined || !st.Leased {
		t.Errorf("%+v, want the promise, and the old lease for as long as it lasts", st)
	}
	if e.Due() > at(0) {
		t.Error("the promise is not reported at once")
	}
	e.Arrive(at(0), sale, ticket.Ticket{}) // under the old lease
	rep := r.hear(at(0))
	if got := rep.Rooms[0]; !rep.Join || rep.Seen != r.term || got.Permits.Sessions.Granted != 10 || got.Spent != 1 ||
		len(got.Moves) != 1 {
		t.Errorf("the new parent gets %+v: %+v", rep, got)
	}
	r.term = wire.Term{N: 1, Nonce: 7}
	before := state(e, at(0))
	r.grant(at(0), 5, 5)
	if got := state(e, at(0)); got != before {
		t.Error("the old parent is still listened to")
	}
}

func TestAGrantThatIsNotForUsOrNotNewChangesNothing(t *testing.T) {
	e, r := newEdge(t, at(0), 10, 10)
	r.hear(at(0))
	var last wire.Grant
	base := wire.Grant{
		To: "edge-1", Instance: r.instance, LeaseEpoch: 1, From: r.term, Seq: 100, Parts: 1, Echo: at(0), At: present,
		Lease: 3 * time.Second,
		Rooms: []wire.RoomGrant{{Room: sale, Permits: wire.Permits{
			Sessions: wire.Allocation{Granted: 20, Keep: 50},
			Rate:     wire.Allocation{Granted: 20, Keep: 50},
		}, RenewCeil: 200, Life: 330}},
	}
	e.Apply(at(0), base)
	if got := e.Ledger(at(0), sale); got.Granted != 20 || got.RateGranted != 20 || got.RenewCeil != 200 || got.Keep != 50 {
		t.Fatalf("%+v", got)
	}
	for why, change := range map[string]func(*wire.Grant){
		"to another edge":                    func(g *wire.Grant) { g.To = "edge-2" },
		"to another instance":                func(g *wire.Grant) { g.Instance++ },
		"of another lease epoch":             func(g *wire.Grant) { g.LeaseEpoch++ },
		"that came before":                   func(g *wire.Grant) { g.Seq = 100 },
		"older than one applied":             func(g *wire.Grant) { g.Seq = 99 },
		"that is no part of itself":          func(g *wire.Grant) { g.Part = 1 },
		"with a verdict of a newer protocol": func(g *wire.Grant) { g.Handshake = 9 },
	} {
		before := e.Ledger(at(0), sale)
		end := e.up.leaseEnd
		last = base
		last.Seq, last.Lease = 200, time.Hour
		last.Rooms = []wire.RoomGrant{{Room: sale, Permits: wire.Permits{
			Sessions: wire.Allocation{Granted: 900},
			Rate:     wire.Allocation{Granted: 900},
		}, RenewCeil: 900, Life: 1}}
		change(&last)
		grants := e.up.grants
		e.Apply(at(0), last)
		e.up.grants = grants
		if got := e.Ledger(at(0), sale); got != before || e.up.leaseEnd != end {
			t.Errorf("a grant %s changed %+v to %+v", why, before, got)
		}
	}
	// Lower counters are ignored; policy is replaced.
	lower := base
	lower.Seq = 300
	lower.Rooms = []wire.RoomGrant{
		{Room: sale, Permits: wire.Permits{
			Sessions: wire.Allocation{Granted: 1, Keep: 2},
			Rate:     wire.Allocation{Granted: 1, Keep: 3},
		}, RenewCeil: 1, Life: 60},
		{Room: 4711, Permits: wire.Permits{Sessions: wire.Allocation{Granted: 9}}},
	}
	e.Apply(at(0), lower)
	if got := e.Ledger(at(0), sale); got.Granted != 20 || got.RateGranted != 20 || got.RenewCeil != 200 || got.Keep != 2 ||
		got.RateKeep != 3 || got.Life != 60 {
		t.Errorf("%+v", got)
	}
}

func TestALeaseComesWithTheLastPartOfItsGrant(t *testing.T) {
	e, r := newEdge(t, at(0), 10, 10)
	r.hear(at(time.Second))
	end := e.Status(at(0)).LeaseEnd
	part := func(n uint32) wire.Grant {
		return wire.Grant{
			To: "edge-1", Instance: r.instance, LeaseEpoch: 1, From: r.term, Seq: 50, Part: n, Parts: 3, Echo: at(time.Second),
			At:    present + 1000,
			Lease: 3 * time.Second,
		}
	}
	for _, n := range []uint32{2, 0, 2} {
		e.Apply(at(time.Second), part(n))
		if got := e.Status(at(time.Second)).LeaseEnd; got != end {
			t.Fatalf("part %d of 3 lengthened the lease", n)
		}
	}
	e.Apply(at(time.Second), part(1))
	if got := e.Status(at(time.Second)).LeaseEnd; got <= end {
		t.Error("the last part did not lengthen the lease")
	}
	push := part(0)
	push.Seq, push.Parts, push.Echo = 51, 1, 0
	end = e.Status(at(time.Second)).LeaseEnd
	e.Apply(at(2*time.Second), push)
	if got := e.Status(at(2 * time.Second)).LeaseEnd; got != end {
		t.Error("a grant that answers no report lengthened the lease")
	}
}

func TestFleetTimeIsNeverBehindTheWatermark(t *testing.T) {
	e, r := newEdge(t, at(0), 10, 10)
	d := e.Arrive(at(0), sale, ticket.Ticket{})
	r.hear(at(0))
	r.say(at(0), wire.Grant{Lease: 3 * time.Second, Watermark: present + 150})
	if got := e.Clock.Time(at(0)); got != present+150 {
		t.Errorf("fleet time is %v, want the watermark", got)
	}
	end := fleettime.Time(int64(d.Ticket.Until) * 1000)
	r.hear(at(0))
	r.say(at(0), wire.Grant{Lease: 3 * time.Second, Watermark: end.Add(fleettime.Guard) - 1})
	if got := e.Ledger(at(0), sale).Sessions; got != 1 {
		t.Errorf("%d sessions before the watermark has passed the second by the guard", got)
	}
	r.hear(at(0))
	r.say(at(0), wire.Grant{Lease: 3 * time.Second, Watermark: end.Add(fleettime.Guard)})
	if got := e.Ledger(at(0), sale); got.Sessions != 0 || got.Spent != 1 {
		t.Errorf("%d sessions after it has", got.Sessions)
	}
	if again := e.Arrive(at(0), sale, d.Ticket); again.Enters() {
		t.Errorf("a ticket is accepted that was freed: %v (%v)", again.Verdict, again.Reason)
	}
}

func TestADeadInstanceStartsANewOne(t *testing.T) {
	e, r := newEdge(t, at(0), 10, 10)
	d := e.Arrive(at(0), sale, ticket.Ticket{})
	e.Rooms.Hold(at(0), &Visit{Room: sale, Ticket: waiting(9, time.Minute)})
	rep := r.hear(at(0))
	old := r.instance
	r.say(at(0), wire.Grant{Handshake: wire.Dead})
	if e.Due() > at(0) {
		t.Error("the new instance is not reported at once")
	}
	next := r.hear(at(0))
	got := next.Rooms[0]
	if next.Instance == old || next.Instance == 0 || next.Seq != 1 || next.LeaseEpoch != 1 || !next.Join || next.Final ||
		next.Seen != r.term {
		t.Errorf("%+v", next)
	}
	if got.Permits.Sessions.Granted != 0 || got.Spent != 0 || got.Permits.Sessions.Returned != 0 ||
		got.Permits.Rate.Granted != 0 || len(got.Sessions) != 0 || len(got.Moves) != 0 || got.FirstMove != 1 {
		t.Errorf("the new instance counts what the old one did: %+v", got)
	}
	if got.Admitted != 1 || got.Forwarded == nil {
		t.Errorf("the sums do not go on: %+v", got)
	}
	if got.HeldPeople != 1 || got.RateOwed != 1 || next.AsOf < rep.AsOf {
		t.Errorf("who is held, what is owed or the time was lost: %+v", got)
	}
	gets(t, e.Arrive(at(0), sale, d.Ticket), Serve, "a visitor with a session")
	getsFor(t, e.Arrive(at(0), sale, ticket.Ticket{}), Queue, Isolated, "somebody new")
	before := state(e, at(0))
	r.instance = old
	r.grant(at(0), 10, 10)
	if after := state(e, at(0)); after != before {
		t.Error("a grant to the dead instance was taken")
	}
}

func TestLeavingReturnsEverything(t *testing.T) {
	e, r := newEdge(t, at(0), 10, 10)
	e.Arrive(at(0), sale, ticket.Ticket{})
	v, w := &Visit{Room: sale, Ticket: waiting(9, time.Minute)}, &Visit{Room: sale, Ticket: waiting(8, time.Hour)}
	e.Rooms.Hold(at(0), v)
	e.Rooms.Hold(at(0), w)
	drained := e.Rooms.Drain(at(0))
	if len(drained) != 2 || drained[0] != w || drained[1] != v || v.Decision.Verdict != Queue ||
		v.Decision.Reason != GaveUp || v.Decision.Ticket.Joined != v.Ticket.Joined {
		t.Errorf("drained %d, the first decided %+v", len(drained), v.Decision)
	}
	if again := e.Rooms.Drain(at(0)); len(again) != 0 || e.Ledger(at(0), sale).Held != 0 {
		t.Errorf("%d are held after draining", len(again))
	}
	rep := e.Leave(at(0))[0]
	if got := rep.Rooms[0]; !rep.Bye || !rep.Final ||
		got.Permits.Sessions.Granted != got.Spent+got.Permits.Sessions.Returned || got.Permits.Rate.Returned != 9 ||
		got.HeldPeople != 0 {
		t.Errorf("bye %v, final %v: %+v", rep.Bye, rep.Final, got)
	}
	if d := e.Arrive(at(0), sale, ticket.Ticket{}); d.Verdict != Queue {
		t.Errorf("%v after leaving", d.Verdict)
	}
	_ = r
}

func TestARoomThatIsRemovedGivesItsPermitsBackAsTheyComeFree(t *testing.T) {
	e, r := newEdge(t, at(0), 10, 10)
	d := e.Arrive(at(0), sale, ticket.Ticket{})
	v := &Visit{Room: sale, Ticket: waiting(9, time.Minute)}
	e.Rooms.Hold(at(0), v)
	e.SetRooms(at(0), nil)
	if len(e.Rooms.Release(at(0), nil)) != 0 {
		t.Error("admitted to a room that is gone")
	}
	if !e.Rooms.GiveUp(at(0), v) {
		t.Error("who is held cannot be given up")
	}
	r.hear(at(0))
	r.held.Permits.Sessions.Granted += 5
	r.grant(at(0), 0, 0)
	if got := r.hear(at(time.Second)).Rooms[0]; got.Permits.Sessions.Returned != 14 || got.Spent != 1 ||
		got.Permits.Rate.Returned != 9 {
		t.Errorf("%+v, want all but what is in use", got)
	}
	for s := 2 * time.Second; s < 63*time.Second; s += time.Second {
		r.grant(at(s-time.Second), 0, 0)
		r.hear(at(s))
	}
	if got := e.Ledger(at(62*time.Second), sale); got.RateReturned != 10 {
		t.Errorf("%+v, want the permit of R back after its window", got)
	}
	e.SetRooms(at(62*time.Second), []Room{{ID: sale}})
	gets(t, e.Arrive(at(62*time.Second), sale, d.Ticket), Serve, "the room came back, a session")
	if q := e.Arrive(at(62*time.Second), sale, ticket.Ticket{}); q.Verdict != Hold || q.Reason != Full {
		t.Errorf("the room came back without permits, somebody new gets %v (%v)", q.Verdict, q.Reason)
	}
}

func TestWhoIsHeldWhenTicketsAreVoidedIsAdmittedWithAValidOne(t *testing.T) {
	e, r := newEdge(t, at(0), 0, 0)
	visits := []*Visit{{Room: sale, Ticket: waiting(9, time.Minute)}, {Room: sale, Ticket: waiting(8, time.Hour)}}
	for _, v := range visits {
		e.Rooms.Hold(at(0), v)
	}
	e.SetRooms(at(0), []Room{{ID: sale, Epoch: 4}})
	r.hear(at(0))
	r.grant(at(0), 5, 5)
	if n := len(e.Rooms.Release(at(0), nil)); n != 2 {
		t.Fatalf("%d released, want 2", n)
	}
	for _, v := range visits {
		if d := e.Arrive(at(0), sale, v.Decision.Ticket); d.Verdict != Serve || d.Fresh != Kept ||
			v.Decision.Ticket.Joined != present {
			t.Errorf("admitted with %+v, and at the next request %v", v.Decision.Ticket, d.Verdict)
		}
	}
}

func TestAReportIsTheWholeStateUntilItIsAcknowledged(t *testing.T) {
	e, r := newEdge(t, at(0), 10, 10)
	e.Arrive(at(0), sale, ticket.Ticket{})
	first := r.hear(at(0))
	for i := range 3 {
		again := r.hear(at(0))
		if again.Seq != first.Seq+uint64(i)+1 {
			t.Errorf("seq %d after %d", again.Seq, first.Seq)
		}
		if !reflect.DeepEqual(again.Rooms, first.Rooms) {
			t.Errorf("unanswered, the report became %+v, was %+v", again.Rooms, first.Rooms)
		}
	}
	r.grant(at(0), 0, 0) // acknowledges; its higher ceiling needs an acknowledgement in turn
	if got := r.hear(at(0)); len(got.Rooms) != 1 || got.Acked != r.seq || len(got.Rooms[0].Moves) != 0 ||
		got.Rooms[0].FirstMove != 2 {
		t.Errorf("%+v", got)
	}
	r.say(at(0), wire.Grant{Lease: 3 * time.Second})
	if got := r.hear(at(0)); len(got.Rooms) != 0 {
		t.Errorf("nothing changed, and yet %+v", got.Rooms)
	}
	e.Arrive(at(0), sale, ticket.Ticket{})
	if got := r.hear(at(0)).Rooms[0]; got.Spent != 2 || got.FirstMove != 2 || len(got.Moves) != 1 {
		t.Errorf("%+v", got)
	}
}

func TestMovesThatDoNotFitGiveWayOldestFirst(t *testing.T) {
	e, r := newEdge(t, at(0), 10_000, 10_000)
	for range wire.MaxMoves + 1 {
		e.Arrive(at(0), sale, ticket.Ticket{})
	}
	got := r.hear(at(0)).Rooms[0]
	if len(got.Moves) != wire.MaxMoves*3/4+1 || got.FirstMove != wire.MaxMoves/4+1 || got.Spent != wire.MaxMoves+1 {
		t.Errorf("%d moves from %d, %d spent", len(got.Moves), got.FirstMove, got.Spent)
	}
	r.grant(at(0), 0, 0)
	e.Arrive(at(0), sale, ticket.Ticket{})
	if got = r.hear(at(0)).Rooms[0]; len(got.Moves) != 1 || got.FirstMove != wire.MaxMoves+2 {
		t.Errorf("%d moves from %d, want the newest alone", len(got.Moves), got.FirstMove)
	}
}

// TestMovesAreForgottenOnlyWhenTaken leaves many reports unanswered and then acknowledges each of them in turn.
func TestMovesAreForgottenOnlyWhenTaken(t *testing.T) {
	e, r := newEdge(t, at(0), 1000, 1000)
	const n = maxMarks + 20
	carried := map[uint64]uint64{} // by report: number of the first move that it did not carry
	var seqs []uint64
	for range n {
		e.Arrive(at(0), sale, ticket.Ticket{})
		rep := r.hear(at(0))
		carried[rep.Seq] = rep.Rooms[0].FirstMove + uint64(len(rep.Rooms[0].Moves))
		seqs = append(seqs, rep.Seq)
	}
	for _, seq := range seqs {
		r.last.Seq = seq
		r.say(at(0), wire.Grant{Lease: 3 * time.Second})
		if first := stateOf(e).account.moves.first; first > carried[seq] {
			t.Fatalf("report %d carried moves before %d, and those before %d were forgotten", seq, carried[seq], first)
		}
	}
	if s := stateOf(e); len(s.account.moves.list) != 0 || s.account.moves.first != n+1 || len(s.account.moves.sent) != 0 {
		t.Errorf("%d moves are kept after all were taken", len(s.account.moves.list))
	}
}

func TestCreditIsReturnedAsTheParentWantsItAndRefilledBeforeItIsDry(t *testing.T) {
	e, r := newEdge(t, at(0), 100, 100)
	r.hear(at(0))
	r.held.Permits.Sessions.Keep, r.held.Permits.Rate.Keep = 30, 40
	r.room(at(0), r.held)
	if e.Due() > at(0).Add(e.edge.cfg.Params.ReportGap) {
		t.Error("somebody else wants the permits, and nobody hurries")
	}
	if got := r.hear(at(20 * time.Millisecond)).Rooms[0]; got.Permits.Sessions.Returned != 70 ||
		got.Permits.Rate.Returned != 60 {
		t.Errorf("%d and %d returned, want 70 and 60", got.Permits.Sessions.Returned, got.Permits.Rate.Returned)
	}
	r.room(at(20*time.Millisecond), r.held)
	if got := r.hear(at(time.Second)); len(got.Rooms) > 0 && got.Rooms[0].Permits.Sessions.Returned != 70 {
		t.Errorf("%+v, want no more returned", got.Rooms[0])
	}

	// Twenty visitors a second: an interval of 250 ms sees five, twice that is ten.
	e, r = newEdge(t, at(0), 1000, 1000)
	now := at(0)
	want := uint64(0)
	for range 40 {
		for range 5 {
			now = now.Add(50 * time.Millisecond)
			e.Arrive(now, sale, ticket.Ticket{})
		}
		want = r.hear(now).Rooms[0].Want
		r.grant(now, 0, 0)
	}
	if want < 9 || want > 12 {
		t.Errorf("20 visitors a second: %d permits wanted for an interval, want about 10", want)
	}
	left := e.Ledger(now, sale).Credit()
	for ; left > want/2+1; left-- {
		e.Arrive(now, sale, ticket.Ticket{})
	}
	r.hear(now)
	r.grant(now, 0, 0)
	r.hear(now)
	if e.Due() <= now.Add(e.edge.cfg.Params.ReportGap) {
		t.Error("hurries with more in hand than half of what is wanted")
	}
	e.Arrive(now, sale, ticket.Ticket{})
	if e.Due() > now.Add(e.edge.cfg.Params.ReportGap) {
		t.Errorf("%d permits left of %d wanted, and the refill is not hurried", e.Ledger(now, sale).Credit(), want)
	}

	// Without visitors nothing is wanted after a while.
	for i := range 300 {
		now = now.Add(250 * time.Millisecond)
		if rep := r.hear(now); i > 250 && len(rep.Rooms) > 0 && rep.Rooms[0].Want != 0 {
			t.Fatalf("%d permits are wanted a minute after the last visitor", rep.Rooms[0].Want)
		}
		r.say(now, wire.Grant{Lease: 3 * time.Second})
	}
	if stateOf(e).account.permits.want != 0 {
		t.Errorf("%d permits are wanted a minute after the last visitor", stateOf(e).account.permits.want)
	}
}

// TestAnEdgeKnowsWhatItsRegionalReads: the newest grant of the regional that the edge follows names it, also a promise,
// which comes before the first report that counts. The edge names what it reads in every report.
func TestAnEdgeKnowsWhatItsRegionalReads(t *testing.T) {
	e, r := newEdge(t, at(0), 10, 10)
	if r.last.Reads != wire.Read || e.up.parent.Reads(at(0), wire.Extended) {
		t.Fatalf("an edge that reads %b is sent %v by a regional of an older release", r.last.Reads, e.up.parent)
	}
	r.say(at(0), wire.Grant{Handshake: wire.Adopted, Reads: wire.Extended})
	if !e.up.parent.Reads(at(0), wire.Extended) {
		t.Error("the regional named the form")
	}
	r.term.N--
	if r.say(at(0), wire.Grant{Reads: 0}); !e.up.parent.Reads(at(0), wire.Extended) {
		t.Error("an earlier regional counts")
	}
	r.term.N += 2
	if r.say(at(0), wire.Grant{Handshake: wire.Promise}); e.up.parent.Reads(at(0), wire.Extended) {
		t.Error("its successor is of an older release")
	}
}
