package admission

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

func byJoining(a, b *Visit) int {
	return cmp.Or(cmp.Compare(a.Ticket.Joined, b.Ticket.Joined), cmp.Compare(a.Ticket.ID, b.Ticket.ID))
}

// TestHeldEqualsASortedList holds, releases and gives up at random next to a twin that sorts all visits each time.
func TestHeldEqualsASortedList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h held
		var twin []*Visit
		for id := range rapid.Uint64Range(1, 60).Draw(t, "steps") {
			switch {
			case len(twin) == 0 || rapid.IntRange(0, 2).Draw(t, "do") > 0:
				v := &Visit{Ticket: ticket.Ticket{ID: id, Joined: fleettime.Time(rapid.Int64Range(0, 9).Draw(t, "joined"))}}
				v.turn = v.Ticket.Place()
				h.add(v)
				twin = append(twin, v)
			default:
				i := rapid.IntRange(0, len(twin)-1).Draw(t, "who")
				h.remove(twin[i])
				if twin[i].index != -1 {
					t.Fatalf("removed, and yet at %d", twin[i].index)
				}
				twin = slices.Delete(twin, i, i+1)
			}
			slices.SortFunc(twin, byJoining)
			n := rapid.IntRange(0, 70).Draw(t, "n")
			got := h.visits.oldest(n, estimate.Open)
			if len(got) != min(n, len(twin)) || len(h.visits) != len(twin) {
				t.Fatalf("%d oldest of %d", len(got), len(h.visits))
			}
			for i, joined := range got {
				if joined != twin[i].Ticket.Joined {
					t.Fatalf("place %d joined at %d, want %d", i, joined, twin[i].Ticket.Joined)
				}
			}
			for i, v := range h.visits {
				if v.index != i {
					t.Fatalf("visit at %d believes to be at %d", i, v.index)
				}
			}
			if len(twin) > 0 && h.visits[0] != twin[0] {
				t.Fatal("not the one who joined first comes first")
			}
		}
	})
}

func TestWhoJoinedFirstIsReleasedFirst(t *testing.T) {
	e, r := newEdge(t, at(0), 0, 0)
	rng := rand.New(rand.NewPCG(3, 4))
	var held []*Visit
	for id := range uint64(90) {
		v := &Visit{Room: sale, Ticket: waiting(1+id, time.Duration(rng.IntN(40))*time.Second)}
		held = append(held, v)
		e.Rooms.Hold(at(0), v)
	}
	slices.SortFunc(held, byJoining)
	rep := r.hear(at(0)).Rooms[0]
	if rep.HeldPeople != 90 || len(rep.HeldJoined) != 90 {
		t.Errorf("%d of %d parked are reported", len(rep.HeldJoined), rep.HeldPeople)
	}
	r.queueing(at(0)) // joined at least 20 s ago: may enter
	turn := 0
	for _, v := range held {
		if v.Ticket.Joined <= present-20_000 {
			turn++
		}
	}
	for _, permits := range []uint64{1, 7, 3, 100} {
		r.grant(at(0), permits, permits)
		got := e.Rooms.Release(at(0), nil)
		if want := min(int(permits), turn); len(got) != want {
			t.Fatalf("%d released with %d permits, want %d", len(got), permits, want)
		}
		for i, v := range got {
			if v != held[i] || v.Decision.Verdict != Admit || v.Decision.Reason != Permit || !v.Decision.Reseal {
				t.Errorf("released %d: %v (%v) who joined at %v, want who joined at %v", i, v.Decision.Verdict, v.Decision.Reason,
					v.Ticket.Joined, held[i].Ticket.Joined)
			}
			if e.Rooms.GiveUp(at(0), v) {
				t.Error("who was released is given up")
			}
		}
		held, turn = held[len(got):], turn-len(got)
	}
	if len(e.Rooms.Release(at(4*time.Second), nil)) != 0 || len(e.Rooms.ReleaseRoom(at(4*time.Second), sale)) != 0 {
		t.Error("released without a lease")
	}
	for _, v := range held {
		if !e.Rooms.GiveUp(at(0), v) || v.Decision.Verdict != Queue || v.Decision.Ticket.Joined != v.Ticket.Joined {
			t.Errorf("who is held and not released: %+v", v.Decision)
		}
		if near := v.Ticket.Joined <= present-10_000; near != (v.Decision.Retry <= time.Second) {
			t.Errorf("joined %v ago, to come back after %v", present.Sub(v.Ticket.Joined), v.Decision.Retry)
		}
	}
}

func TestTwoHeldRequestsOfOneTicketAreOneAdmission(t *testing.T) {
	e, r := newEdge(t, at(0), 0, 0)
	a, b := &Visit{Room: sale, Ticket: waiting(9, time.Minute)}, &Visit{Room: sale, Ticket: waiting(9, time.Minute)}
	e.Rooms.Hold(at(0), a)
	e.Rooms.Hold(at(0), b)
	r.grant(at(0), 1, 1)
	if got := e.Rooms.ReleaseRoom(at(0), sale); len(got) != 2 {
		t.Fatalf("%d released, want both", len(got))
	}
	d, o := a.Decision, b.Decision
	if d.Verdict == Serve {
		d, o = o, d
	}
	if d.Verdict != Admit || o.Verdict != Serve || o.Reason != Repeated || d.Ticket.Until != o.Ticket.Until ||
		e.Ledger(at(0), sale).Spent != 1 {
		t.Errorf("%v and %v (%v), %d spent", d.Verdict, o.Verdict, o.Reason, e.Ledger(at(0), sale).Spent)
	}
}

// TestWhoLeavesIsNotHeld: the held requests of a visitor that leaves in another tab end, and take no permit.
func TestWhoLeavesIsNotHeld(t *testing.T) {
	e, r := newEdge(t, at(0), 0, 0)
	gone, stays := waiting(9, time.Minute), waiting(8, time.Second)
	a, b, c := &Visit{Room: sale, Ticket: gone}, &Visit{Room: sale, Ticket: gone}, &Visit{Room: sale, Ticket: stays}
	for _, v := range []*Visit{a, b, c} {
		e.Rooms.Hold(at(0), v)
	}
	e.Quit(at(0), sale, gone)
	got := e.Rooms.Left(sale, gone.ID)
	if len(got) != 2 || slices.Contains(got, c) || a.Decision.Fresh != Gone || b.Decision.Fresh != Gone || a.Decision.Enters() {
		t.Errorf("%d holds end: %+v, %+v", len(got), a.Decision, b.Decision)
	}
	r.grant(at(0), 2, 2)
	if got := e.Rooms.ReleaseRoom(at(0), sale); len(got) != 1 || got[0] != c || e.Ledger(at(0), sale).Spent != 1 {
		t.Errorf("%d released, %d permits spent", len(got), e.Ledger(at(0), sale).Spent)
	}
	if got := e.Rooms.Left(sale, gone.ID); got != nil {
		t.Errorf("again: %v", got)
	}
}

// TestRobotsWithoutCookiesMoveNothing: a ticket counts once it came back.
func TestRobotsWithoutCookiesMoveNothing(t *testing.T) {
	e, r := newEdge(t, at(0), 0, 0)
	r.queueing(at(0))
	before := r.hear(at(0))
	var d Decision
	for range 1000 {
		d = e.Arrive(at(0), sale, ticket.Ticket{})
	}
	got := r.hear(at(0)).Rooms[0]
	if len(got.Waiting) != 0 || len(got.Arrivals) != 0 || got.Joined != 0 || got.Want != before.Rooms[0].Want {
		t.Errorf("a thousand requests without a cookie moved %+v", got)
	}
	d = e.Arrive(at(time.Second), sale, d.Ticket)
	got = r.hear(at(time.Second)).Rooms[0]
	if got.Waiting.Total() != 1 || got.Joined != 1 || len(got.Arrivals) != 1 || got.Arrivals[0].N != 1 ||
		d.Ticket.Flags&ticket.Returned == 0 {
		t.Errorf("one that came back: %+v", got)
	}
}

// TestAPollerIsCountedOnceAndWhoLeavesDropsOut simulates visitors that poll at two edges with slightly different
// clocks, some of which leave, and compares the counts with the visitors: of those that wait, and of those that asked
// in the last ten seconds.
func TestAPollerIsCountedOnceAndWhoLeavesDropsOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		counts, recent := [2]waitBook{}, [2]waitBook{{short: true}, {short: true}}
		ahead := fleettime.Time(rapid.Int64Range(0, 300).Draw(t, "ms that the second clock is ahead"))
		type visitor struct {
			joined fleettime.Time
			seen   uint32 // as in the ticket
			polled fleettime.Time
			next   fleettime.Time
			gone   bool
		}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		people := make([]visitor, rapid.IntRange(1, 12).Draw(t, "people"))
		for i := range people {
			people[i].joined = day + fleettime.Time(rng.IntN(60_000))
			people[i].next, people[i].seen = people[i].joined, uint32(people[i].joined.Second())
		}
		for now := day; now < day+400_000; now += 500 {
			for i := range people {
				p := &people[i]
				if p.gone || now < p.next {
					continue
				}
				where := rng.IntN(2)
				ft := now + fleettime.Time(where)*ahead
				q := queue{wait: counts[where], recent: recent[where]}
				k := ticket.Ticket{ID: uint64(i + 1), Joined: p.joined, Seen: p.seen}
				if p.polled != 0 {
					k.Flags = ticket.Returned
				}
				q.checkIn(ft, &k, k.Place())
				counts[where], recent[where], p.seen, p.polled = q.wait, q.recent, k.Seen, now
				p.next = now + 5_000 + fleettime.Time(rng.IntN(20_000))
				p.gone = rng.IntN(10) == 0
			}
			least, most, lately, before := 0, 0, 0, 0
			for i := range people {
				if people[i].polled == 0 {
					continue
				}
				if now-people[i].polled < 49_000 {
					least++
				}
				if now-people[i].polled <= 61_000 {
					most++
				}
				if now-people[i].polled < 9_500 {
					lately++
				}
				if now-people[i].polled <= 12_500 {
					before++
				}
			}
			sum := 0.0
			for w := range counts {
				counts[w].advance(now + fleettime.Time(w)*ahead)
				sum += counts[w].histogram().Total()
				if n := counts[w].histogram().Total(); n != float64(counts[w].sum) {
					t.Fatalf("the line holds %v, the counts say %d", n, counts[w].sum)
				}
			}
			asked := int64(0)
			for w := range recent {
				recent[w].advance(now + fleettime.Time(w)*ahead)
				asked += recent[w].before(now + 3_600_000)
			}
			if asked < int64(lately) || asked > int64(before) {
				t.Fatalf("%v: %d people asked lately, want %d to %d", now, asked, lately, before)
			}
			if sum < float64(least) || sum > float64(most) {
				t.Fatalf("%v: %v people wait, want %d to %d", now, sum, least, most)
			}
		}
	})
}

// TestAPollSeenByAClockAheadIsNotCountedTwice: two requests of one page reach two edges, one of which has begun the
// next window.
func TestAPollSeenByAClockAheadIsNotCountedTwice(t *testing.T) {
	var behind, ahead queue
	border := fleettime.Time((day.Second() / windowLen) * windowLen * 1000)
	k := ticket.Ticket{ID: 1, Joined: day - 60_000, Seen: uint32(border.Second()) - 20, Flags: ticket.Returned}
	behind.wait.advance(border - 20_000)
	behind.wait.add(k.Joined, k.Seen, 1)
	ahead.checkIn(border+10, &k, k.Place())
	behind.checkIn(border-40, &k, k.Place())
	for _, after := range []fleettime.Time{0, 45_000, 55_000} { // the last two: the first count is over
		behind.wait.advance(border + after)
		ahead.wait.advance(border + after)
		if n := behind.wait.sum + ahead.wait.sum; n != 1 {
			t.Errorf("counted %d times after %d ms", n, int64(after))
		}
	}
	if k.Seen != uint32(border.Second()) {
		t.Errorf("seen at %d, want the later of the two", k.Seen)
	}
}

func TestWhoIsAdmittedOrAwayTooLongWaitsNoMore(t *testing.T) {
	e, r := newEdge(t, at(0), 1, 10)
	a, b := waiting(7, time.Minute), waiting(8, 30*time.Second)
	a.Flags, b.Flags = 0, 0 // their first return
	r.queueing(at(0))
	r.held.View = nil
	g := r.held
	g.Permits.Sessions.Granted = 0
	g.View = view(2, day, day) // nobody may enter yet
	r.room(at(0), g)
	a, b = e.Arrive(at(0), sale, a).Ticket, e.Arrive(at(0), sale, b).Ticket
	if got := r.hear(at(0)).Rooms[0]; got.Waiting.Total() != 2 || got.Waiting.Before(b.Joined) != 1 || got.Joined != 2 ||
		got.Entered != 0 {
		t.Errorf("%v wait, %d joined", got.Waiting.Total(), got.Joined)
	}
	r.queueing(at(0))
	if d := e.Arrive(at(0), sale, a); d.Verdict != Admit {
		t.Fatalf("%v (%v)", d.Verdict, d.Reason)
	}
	if got := r.hear(at(0)).Rooms[0]; got.Waiting.Total() != 1 || got.Entered != 1 || got.Admitted != 1 ||
		got.Arrivals[0].N != 2 {
		t.Errorf("%v wait, %d entered, arrivals %v", got.Waiting.Total(), got.Entered, got.Arrivals)
	}
	if got := r.hear(at(49 * time.Second)); got.Rooms[0].Waiting.Total() != 1 {
		t.Errorf("dropped out after 49 s, want after 2.5 refresh intervals")
	}
	if got := r.hear(at(61 * time.Second)); got.Rooms[0].Waiting.Total() != 0 {
		t.Errorf("still counted after 61 s")
	}
	d := e.Arrive(at(299*time.Second), sale, b)
	if d.Fresh != Kept || d.Ticket.Joined != b.Joined {
		t.Errorf("back within the grace: %d, joined %v, want the place of %v", d.Fresh, d.Ticket.Joined, b.Joined)
	}
	if again := e.Arrive(at(299*time.Second), sale, b); again.Fresh != Kept || again.Ticket.Seen != d.Ticket.Seen {
		t.Errorf("the old ticket again: %+v, want %+v", again.Ticket, d.Ticket)
	}
	if got := r.hear(at(299 * time.Second)).Rooms[0]; got.Waiting.Total() != 0 {
		t.Errorf("%v wait, want nobody until the new version is shown", got.Waiting.Total())
	}
	e.Arrive(at(301*time.Second), sale, d.Ticket)
	if got := r.hear(at(301 * time.Second)).Rooms[0]; got.Waiting.Total() != 1 || got.Joined != 2 {
		t.Errorf("back within the grace: %v wait, %d joined", got.Waiting.Total(), got.Joined)
	}
}

// TestTheGraceIsTheRooms: it begins when the visitor is not counted any more, a minute after the last request, so
// that one request a minute keeps the place, however short it is. A changed one applies at once, to all.
func TestTheGraceIsTheRooms(t *testing.T) {
	e, r := newEdge(t, at(0), 0, 0)
	r.queueing(at(0))
	for _, tc := range []struct {
		grace, away time.Duration
		want        Fresh
	}{
		{10 * time.Second, time.Minute, Kept},
		{10 * time.Second, 70 * time.Second, Kept},
		{10 * time.Second, 71 * time.Second, Lost},
		{time.Hour, 61 * time.Minute, Kept},
		{time.Hour, 61*time.Minute + time.Second, Lost},
		{0, 6 * time.Minute, Kept},
		{0, 6*time.Minute + time.Second, Lost},
	} {
		e.SetRooms(at(0), []Room{{ID: sale, Grace: tc.grace}})
		k := waiting(7, 2*time.Hour)
		k.Seen = later(-tc.away)
		if e.Waits(at(0), sale, k) != (tc.want == Kept) {
			t.Errorf("grace %v, last asked %v ago: Waits says otherwise", tc.grace, tc.away)
		}
		if d := e.Arrive(at(0), sale, k); d.Fresh != tc.want {
			t.Errorf("grace %v, last asked %v ago: %d, want %d", tc.grace, tc.away, d.Fresh, tc.want)
		}
	}
}

// TestTheBookDoesNotGrowWithItsAge: for six hours visitors come, poll in time and are admitted, so that every
// window is empty before it is dropped.
func TestTheBookDoesNotGrowWithItsAge(t *testing.T) {
	var w waitBook
	for second := int64(0); second < 6*3600; second += 5 {
		now := day.Add(time.Duration(second) * time.Second)
		w.advance(now)
		w.add(now, uint32(now.Second()), 1)
		w.add(now, uint32(now.Second()), -1)
	}
	if len(w.total) > 200*perSecond {
		t.Errorf("%d cells are kept, of whom nobody is left", len(w.total))
	}
	if w.sum != 0 || w.histogram() != nil {
		t.Errorf("%d wait", w.sum)
	}
}

func TestALineOfManySecondsFitsAReport(t *testing.T) {
	var w waitBook
	w.advance(present)
	seen := uint32(present.Second())
	for s := range 4000 {
		w.add(present.Add(-time.Duration(s)*time.Second), seen, 1)
	}
	w.add(present.Add(-100*time.Hour), seen, 5) // older than the book reaches
	h := w.histogram()
	if len(h) > wire.MaxSlices || h.Total() < 4004.999 || h.Total() > 4005.001 {
		t.Errorf("%d slices of %v people", len(h), h.Total())
	}
	if len(w.total) > maxLine+1+windowLen*perSecond {
		t.Errorf("%d cells are kept", len(w.total))
	}
	if oldest := h[0].Start; oldest < present.Add(-(maxLine/perSecond+2*windowLen)*time.Second) {
		t.Errorf("the line begins at %v", oldest)
	}
	w.advance(present.Add(time.Hour)) // nobody came: all are dropped at once
	if w.sum != 0 || len(w.total) != 0 {
		t.Errorf("%d wait after an hour of silence", w.sum)
	}
	if w.advance(present) {
		t.Error("a clock that went back dropped somebody")
	}
}

func TestArrivalsKeepTheLastMinutes(t *testing.T) {
	var q queue
	for m := range fleettime.Time(wire.MaxMinutes + 2) {
		for range m + 1 {
			q.arrive(day.Minute() + m*60_000)
		}
	}
	var out wire.RoomReport
	q.addToReport(day, &out)
	got := out.Arrivals
	if len(got) != wire.MaxMinutes {
		t.Fatalf("%v", got)
	}
	for _, m := range got {
		if n := uint64((m.Start-day.Minute())/60_000) + 1; m.N != n || n < 3 {
			t.Errorf("%v: %d visitors, want %d", m.Start, m.N, n)
		}
	}
}

// TestATicketIsOneVisitorHoweverOftenItIsShown presents old versions of one ticket at two edges: very old ones add
// nothing, recent ones count once at each.
func TestATicketIsOneVisitorHoweverOftenItIsShown(t *testing.T) {
	var edges [2]*Engine
	var parents [2]*regional
	for i := range edges {
		edges[i], parents[i] = awayEdge(t, uint64(i), 1000)
		parents[i].queueing(at(0))
	}
	early := edges[0].Arrive(at(0), sale, ticket.Ticket{}).Ticket // before its first count
	counted := edges[0].Arrive(at(2*time.Second), sale, early).Ticket
	show := func(from, to time.Duration, most int64, versions ...ticket.Ticket) {
		t.Helper()
		for d := from; d < to; d += 100 * time.Millisecond {
			sum := int64(0)
			for i, e := range edges {
				if d%time.Second == 0 {
					parents[i].lease(at(d))
				}
				for _, k := range versions {
					if got := e.Arrive(at(d), sale, k); got.Fresh != Kept || got.Ticket.Joined != k.Joined {
						t.Fatalf("after %v: the place is lost: %d", d, got.Fresh)
					}
				}
				sum += max(0, e.Ledger(at(d), sale).Waiting)
			}
			if sum > most {
				t.Fatalf("after %v: %d people wait, want %d at most", d, sum, most)
			}
		}
	}
	show(2*time.Second, 100*time.Second, 2, early, counted)
	show(200*time.Second, 300*time.Second, 0, early, counted)
	if got := parents[0].hear(at(300 * time.Second)).Rooms[0]; got.Joined != 1 || got.Pending.Total() > 0 {
		t.Errorf("%d joined, %v are expected", got.Joined, got.Pending)
	}
	// The newest version is a waiting visitor.
	back := edges[1].Arrive(at(301*time.Second), sale, counted).Ticket
	if back = edges[1].Arrive(at(303*time.Second), sale, back).Ticket; edges[1].Ledger(at(303*time.Second),
		sale).Waiting != 1 {
		t.Error("who is back is not counted")
	}
	show(304*time.Second, 310*time.Second, 2, early, counted, back)
}

// TestTheTabsOfOneVisitorAreHeldAsOne: many requests of one ticket are one visitor at the head of the queue, a few
// are held, and all enter with one permit.
func TestTheTabsOfOneVisitorAreHeldAsOne(t *testing.T) {
	e, r := newEdge(t, at(0), 0, 0)
	k, other := waiting(7, time.Minute), waiting(8, 30*time.Second)
	var held []*Visit
	crowded := 0
	for _, place := range append(slices.Repeat([]ticket.Ticket{k}, 20), other) {
		switch d := e.Arrive(at(0), sale, place); {
		case d.Verdict == Hold:
			held = append(held, &Visit{Room: sale, Ticket: d.Ticket, Brought: place})
			e.Rooms.Hold(at(0), held[len(held)-1])
		case d.Reason == Crowded:
			crowded++
		default:
			t.Fatalf("%v (%v)", d.Verdict, d.Reason)
		}
	}
	if got := r.hear(at(0)).Rooms[0]; got.HeldPeople != 2 || len(got.HeldJoined) != 2 || crowded != 20-heldPerTicket {
		t.Errorf("%d parked, %v, %d are to ask again", got.HeldPeople, got.HeldJoined, crowded)
	}
	e.Rooms.GiveUp(at(time.Second), held[0])
	r.grant(at(time.Second), 1, 1)
	if out := e.Rooms.Release(at(time.Second), nil); len(out) != heldPerTicket-1 {
		t.Errorf("%d are let in, want all that are held of the first", len(out))
	}
	if got := r.hear(at(2 * time.Second)).Rooms[0]; got.Spent != 1 || got.HeldPeople != 1 || len(got.HeldJoined) != 1 {
		t.Errorf("%d spent, %d parked", got.Spent, got.HeldPeople)
	}
}
