package admission

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// later is a fleet time in ticket seconds, d after at(0).
func later(d time.Duration) uint32 { return uint32(present.Add(d).Second()) }

func TestALostReplyIsChargedOnce(t *testing.T) {
	e, r := newEdge(t, at(0), 10, 10)
	old := waiting(7, time.Minute)
	first := e.Arrive(at(0), sale, old)
	for range 50 { // and so are the many requests of one page
		again := e.Arrive(at(time.Second), sale, old)
		if again.Verdict != Serve || again.Reason != Repeated || again.Ticket.Until != first.Ticket.Until || !again.Reseal {
			t.Fatalf("again: %v (%v) until %d, want the ticket of the first, until %d", again.Verdict, again.Reason,
				again.Ticket.Until, first.Ticket.Until)
		}
	}
	rep := r.hear(at(time.Second)).Rooms[0]
	if rep.Spent != 1 || rep.Renewed != 0 || len(rep.Moves) != 1 || rep.Active != 1 {
		t.Errorf("spent %d, renewed %d, moves %v, active %d", rep.Spent, rep.Renewed, rep.Moves, rep.Active)
	}
}

// TestALostReplyCostsNobodyTheSession: a visitor that comes back within the session's duration is served, with any
// ticket that the browser kept.
func TestALostReplyCostsNobodyTheSession(t *testing.T) {
	e, r := newEdge(t, at(0), 10, 10)
	lease := func(d time.Duration) { r.lease(at(d)) }
	place := waiting(7, time.Minute)
	pass := e.Arrive(at(0), sale, place).Ticket

	lease(200 * time.Second)
	d := e.Arrive(at(200*time.Second), sale, place)
	if d.Reason != Repeated || d.Ticket.Until < later((200+session)*time.Second) {
		t.Errorf("a request after 200 s with the waiting ticket leaves %d s, want the whole duration",
			int(d.Ticket.Until)-int(later(200*time.Second)))
	}
	lease(400 * time.Second) // the first ticket and the place's grace have expired
	for _, old := range []ticket.Ticket{pass, place} {
		d = e.Arrive(at(400*time.Second), sale, old)
		if d.Verdict != Serve || d.Reason != Repeated || d.Fresh != Kept ||
			d.Ticket.Until < later((400+session)*time.Second) {
			t.Errorf("200 s after the last request, with the ticket until %d: %v (%v, %d)", old.Until, d.Verdict, d.Reason,
				d.Fresh)
		}
	}
	if got := e.Ledger(at(400*time.Second), sale); got.Spent != 1 || got.Sessions != 1 || got.Renewed != 2 {
		t.Errorf("%+v, want one session, renewed twice", got)
	}
	lease(1200 * time.Second)
	if d = e.Arrive(at(1200*time.Second), sale, pass); d.Fresh != Expired {
		t.Errorf("after 800 s away: %v (%v, %d), want a new place", d.Verdict, d.Reason, d.Fresh)
	}
}

func TestTheRequestsOfOnePageRenewOnceAndAreOneVisitor(t *testing.T) {
	e, r := newEdge(t, at(0), 10, 10)
	old := inside(7, 100)
	var first Decision
	for i := range 50 {
		d := e.Arrive(at(0), sale, old)
		if i == 0 {
			first = d
		}
		if i > 0 && (d.Ticket.Stamp == first.Ticket.Stamp || d.Ticket.Parent != first.Ticket.Parent) {
			t.Fatalf("request %d: stamp %d after %d", i, d.Ticket.Stamp, d.Ticket.Parent)
		}
		d.Ticket.Stamp, d.Ticket.Root = first.Ticket.Stamp, first.Ticket.Root
		if d.Verdict != Serve || d.Reason != Session || d.Ticket != first.Ticket || !d.Reseal {
			t.Fatalf("request %d: %v with %+v, want %+v", i, d.Verdict, d.Ticket, first.Ticket)
		}
	}
	if first.Ticket.Until != later(331*time.Second) {
		t.Errorf("renewed until %d, want %d", first.Ticket.Until, later(331*time.Second))
	}
	rep := r.hear(at(0)).Rooms[0]
	want := []wire.Expiry{{Until: old.Until, Consumed: 1}, {Until: first.Ticket.Until, Stamped: 1}}
	if rep.Renewed != 1 || len(rep.Sessions) != 2 || rep.Sessions[0] != want[0] || rep.Sessions[1] != want[1] {
		t.Errorf("renewed %d, sessions %v, want %v", rep.Renewed, rep.Sessions, want)
	}
	if len(rep.Moves) != 1 || rep.Moves[0] != (wire.Move{ID: 7, From: old.Until, Until: first.Ticket.Until}) {
		t.Errorf("moves %v", rep.Moves)
	}
	if len(rep.Arrivals) != 1 || rep.Arrivals[0].N != 1 {
		t.Errorf("arrivals %v, want one visitor", rep.Arrivals)
	}
}

func TestATicketIsRenewedOnlyWhereItIsDueAndAllowed(t *testing.T) {
	for _, c := range []struct {
		why     string
		given   func(e *Engine, r *regional)
		left    int64
		renewed bool
	}{
		{"20 s old", func(*Engine, *regional) {}, 311, true},
		{"younger than that", func(*Engine, *regional) {}, 312, false},
		{
			"the ceiling is reached",
			func(e *Engine, r *regional) {
				stateOf(e).account.permits.renewed = stateOf(e).account.permits.renewCeil
			}, 10, false,
		},
		{"isolated under serve", func(e *Engine, _ *regional) { e.Lapse(at(0)) }, 10, true},
		{"isolated under serve, above the ceiling", func(e *Engine, _ *regional) {
			e.Lapse(at(0))
			stateOf(e).account.permits.renewed = stateOf(e).account.permits.renewCeil
		}, 10, true},
		{"isolated under cap", func(e *Engine, _ *regional) {
			e.SetRooms(at(0), []Room{{ID: sale, Cap: true}})
			e.Lapse(at(0))
		}, 10, false},
		{
			"under a lease and cap", func(e *Engine, _ *regional) { e.SetRooms(at(0), []Room{{ID: sale, Cap: true}}) },
			10, true,
		},
		{
			"fleet time is not known well",
			func(e *Engine, _ *regional) { e.Clock.fleet.Set(at(0), present, time.Minute) }, 10, true,
		},
		{
			"the lease is of before fleet time was known", func(e *Engine, _ *regional) { e.Clock.fleet = fleettime.Clock{} },
			10, false,
		},
		{"no life was granted", func(e *Engine, _ *regional) { stateOf(e).account.life.full = 0 }, 10, false},
		{
			"the life was shortened: nobody's session is", func(e *Engine, _ *regional) { stateOf(e).account.life.full = 60 },
			100, false,
		},
	} {
		e, r := newEdge(t, at(0), 10, 10)
		c.given(e, r)
		before := e.Ledger(at(0), sale).Renewed
		old := inside(7, c.left)
		d := e.Arrive(at(0), sale, old)
		renewed := d.Ticket.Until > old.Until
		if d.Verdict != Serve || d.Ticket.Until < old.Until || renewed != c.renewed ||
			renewed != (e.Ledger(at(0), sale).Renewed == before+1) || d.Reseal != renewed {
			t.Errorf("%s, %d s left: %v, renewed %v by %d s, want %v", c.why, c.left, d.Verdict, renewed,
				int(d.Ticket.Until)-int(old.Until), c.renewed)
		}
	}
}

// TestGuestsOfAnEdgeWithoutALease: under serve it renews foreign sessions, which no ledger counts until it
// reconnects. It reports their number.
func TestGuestsOfAnEdgeWithoutALease(t *testing.T) {
	e, r := newEdge(t, at(0), 10, 10)
	own := e.Arrive(at(0), sale, ticket.Ticket{}).Ticket
	guests := func(when string, want int) {
		t.Helper()
		if got := e.Ledger(at(0), sale).Guests; got != want {
			t.Errorf("%s: %d guests, want %d", when, got, want)
		}
	}
	e.Arrive(at(0), sale, inside(7, 10))
	guests("under a lease", 0)
	e.Lapse(at(0))
	later := at(100 * time.Second)
	if d := e.Arrive(later, sale, own); d.Ticket.Until <= own.Until {
		t.Fatal("the own session is not renewed")
	}
	guests("its own sessions", 0)
	e.Arrive(later, sale, inside(8, 10+100))
	e.Arrive(later, sale, inside(8, 10+100)) // the next request of the same page
	e.Arrive(later, sale, inside(9, 10+100))
	e.Arrive(later, sale, inside(10, 330+100)) // not due
	guests("two from elsewhere", 2)
	r.lease(later)
	guests("with a lease again", 0)
}

// TestAnUnsureClockStampsForLess: a ticket ends no later than one stamped by the true clock, for any error within
// the uncertainty; and nobody is admitted to a session that would not last.
func TestAnUnsureClockStampsForLess(t *testing.T) {
	const life = 330
	for _, c := range []struct {
		err       time.Duration
		probation time.Duration
		life      uint32
		admits    bool
		less      uint32 // seconds
	}{
		{fleettime.MaxError, 0, life, true, 0},
		{fleettime.MaxError + 5*time.Second, 0, life, true, 5},
		{fleettime.Rough, 0, life, true, 10},
		{fleettime.Rough + 1, 0, life, false, 10},
		{fleettime.MaxError + 5*time.Second, 20 * time.Second, life, true, 5},
		{fleettime.MaxError + 5100*time.Millisecond, 20 * time.Second, life, false, 6},
		{fleettime.MaxError + 5*time.Second, 0, 20, true, 5},
		{fleettime.MaxError + 6*time.Second, 0, 20, false, 6},
		{fleettime.MaxError + time.Hour, 0, life, false, 3600},
	} {
		e, r := newEdge(t, at(0), 10, 10)
		e.SetRooms(at(0), []Room{{ID: sale, Probation: c.probation}})
		stateOf(e).account.life.full = c.life
		_ = r
		second := uint32(present.Second())
		e.Clock.fleet = fleettime.Clock{}
		e.Clock.fleet.Set(at(0), present, c.err)

		d := e.Arrive(at(0), sale, ticket.Ticket{})
		first := c.life
		if c.probation > 0 {
			first = uint32(c.probation / time.Second)
		}
		if want := second + 1 + first - c.less; (d.Verdict == Admit) != c.admits || (c.admits && d.Ticket.Until != want) {
			t.Errorf("unsure by %v: %v until %d, want admitted %v until %d", c.err, d.Verdict, d.Ticket.Until, c.admits, want)
		}
		old := inside(7, 2)
		d = e.Arrive(at(0), sale, old)
		if want := max(old.Until, second+1+c.life-c.less); d.Verdict != Serve || d.Ticket.Until != want {
			t.Errorf("unsure by %v: renewed until %d, want %d", c.err, d.Ticket.Until, want)
		}
	}
}

// TestASessionEndsEarlierWhereNobodyWaitsForThisClock: the home frees a second when its own edges have reported
// past it, not when we have.
func TestASessionEndsEarlierWhereNobodyWaitsForThisClock(t *testing.T) {
	e, _ := newEdge(t, at(0), 10, 10)
	home, abroad := ticket.DCOf("nairobi"), ticket.DCOf("dublin")
	if got := e.ExpiryTime(at(0), home); got != present {
		t.Errorf("at home under a lease: %v, want %v", got, present)
	}
	if got := e.ExpiryTime(at(0), abroad); got != present+500 {
		t.Errorf("abroad: %v, want half a second later", got)
	}
	e.Lapse(at(0))
	if got := e.ExpiryTime(at(0), home); got != present+500 {
		t.Errorf("at home without a lease: %v, want half a second later", got)
	}
	long := at(2 * time.Hour)
	if got, least := e.ExpiryTime(long, home),
		present.Add(2*time.Hour+fleettime.MaxError+1400*time.Millisecond); got < least {
		t.Errorf("after two hours alone: %v, want %v at least: the clock may be off by more", got, least)
	}
}

// In an unlisted data centre, such as a copy, nobody waits for this clock or counts its renewals, although the sessions
// have the same home by name.
func TestInAnUnlistedDataCentreNothingOfItsHomeIsItsOwn(t *testing.T) {
	e, r := newEdge(t, at(0), 10, 10)
	home := ticket.DCOf("nairobi")
	old := inside(7, 2)
	for _, standing := range []wire.Standing{wire.Unlisted, wire.Listed} {
		r.say(at(0), wire.Grant{Standing: standing, ClusterID: 5})
		want := present
		if standing == wire.Unlisted {
			want += 500
		}
		if got := e.ExpiryTime(at(0), home); got != want {
			t.Errorf("%v: judges at %v, want %v", standing, got, want)
		}
		d := e.Arrive(at(0), sale, old)
		if d.Verdict != Serve || (d.Ticket.Until > old.Until) == (standing == wire.Unlisted) {
			t.Errorf("%v: %v until %d, it was %d", standing, d.Verdict, d.Ticket.Until, old.Until)
		}
	}
	if got := r.hear(at(time.Second)).ClusterID; got != 5 {
		t.Errorf("it remembers cluster ID %d", got)
	}
}

// TestTicketsAreCountedInWhateverOrderTheirSecondsCome: a new edge meets sessions of other admissions, the earliest
// expiry after the latest.
func TestTicketsAreCountedInWhateverOrderTheirSecondsCome(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s sessions
		twin := map[uint32]wire.Expiry{}
		live := int64(0)
		forgotten := int64(0)
		second := rapid.Uint32Range(5000, 5000+maxExpirySpan-1)
		for range rapid.IntRange(1, 80).Draw(t, "tickets") {
			until := second.Draw(t, "until")
			if int64(until) < forgotten {
				continue // no clock accepts it any more
			}
			c := twin[until]
			c.Until = until
			stamp := rapid.Bool().Draw(t, "stamp")
			ok := false
			if stamp {
				ok = s.issue(until)
				c.Stamped++
				live++
			} else {
				ok = s.consume(until)
				c.Consumed++
				live--
			}
			if !ok {
				t.Fatalf("second %d cannot be counted in a ring of %d from %d", until, len(s.ring), s.base)
			}
			twin[until] = c
			if rapid.IntRange(0, 9).Draw(t, "watermark") == 0 {
				wm := fleettime.Time(rapid.Int64Range(5000, 5000+maxExpirySpan).Draw(t, "wm") * 1000)
				s.forget(wm)
				for b, c := range twin {
					if fleettime.Time(int64(b)*1000).Add(fleettime.Guard) <= wm {
						live -= int64(c.Stamped) - int64(c.Consumed)
						delete(twin, b)
					}
				}
				forgotten = max(forgotten, wm.Second())
			}
			got := s.report(nil)
			if len(got) != len(twin) || s.live != live {
				t.Fatalf("%d seconds with %d sessions, want %d with %d", len(got), s.live, len(twin), live)
			}
			for i, g := range got {
				if g != twin[g.Until] || (i > 0 && g.Until <= got[i-1].Until) {
					t.Fatalf("%+v, want %+v, ascending", g, twin[g.Until])
				}
			}
		}
	})
}

func TestSecondsTooFarApartAreRefusedAndNothingIsCharged(t *testing.T) {
	var s sessions
	s.issue(10_000)
	for _, far := range []uint32{10_000 + maxExpirySpan, 10_000 - maxExpirySpan, 4_000_000_000, 0} {
		if s.issue(far) || s.consume(far) {
			t.Errorf("second %d was counted beside second 10000", far)
		}
	}
	if !s.issue(10_000+maxExpirySpan-1) || s.live != 2 {
		t.Errorf("%d sessions", s.live)
	}
	e, _ := newEdge(t, at(0), 10, 10)
	stateOf(e).account.sessions.issue(later(24 * time.Hour)) // left over from another time
	before := e.Ledger(at(0), sale)
	if d := e.Arrive(at(0), sale, ticket.Ticket{}); d.Verdict != Hold || e.Ledger(at(0), sale) != before {
		t.Errorf("%v although the session cannot be counted: %+v", d.Verdict, e.Ledger(at(0), sale))
	}
	if d := e.Arrive(at(0), sale, inside(7, 10)); d.Verdict != Serve || d.Reseal || e.Ledger(at(0), sale) != before {
		t.Errorf("renewed although the session cannot be counted: %+v", e.Ledger(at(0), sale))
	}
}

// TestPermitsOfRAreBusyForAWholeWindow spends as fast as possible and checks every window of 60 s.
func TestPermitsOfRAreBusyForAWholeWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r ratePermits
		r.Granted = rapid.Uint64Range(1, 20).Draw(t, "granted")
		now := fleettime.Mono(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(t, "now"))
		var used []fleettime.Mono
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			pause := time.Duration(rapid.SampledFrom([]int64{0, 1, 40e6, 99e6, 3e9, 31e9, 200e9}).Draw(t, "pause"))
			if len(used) > 0 && rapid.IntRange(0, 3).Draw(t, "to the end of a window") == 0 {
				// The last time at which a use is a minute old on no clock.
				u := used[rapid.IntRange(0, len(used)-1).Draw(t, "whose")]
				pause = max(0, u.Add(fleettime.Stretch(wire.RateWindow)-1).Sub(now))
			}
			now = now.Add(pause)
			recent, sure := uint64(0), uint64(0)
			for _, u := range used {
				if now.Sub(u) < fleettime.Stretch(wire.RateWindow) {
					recent++
				}
				if now.Sub(u) < wire.RateWindow+2*rateSlot+fleettime.Stretch(wire.RateWindow)-wire.RateWindow {
					sure++
				}
			}
			idle := r.idle(now)
			if idle+recent > r.Granted {
				t.Fatalf("%d idle, %d used in the last minute, %d granted", idle, recent, r.Granted)
			}
			if idle+sure < r.Granted {
				t.Fatalf("%d idle, %d used not long ago, %d granted: some are kept busy for no reason", idle, sure, r.Granted)
			}
			if idle > 0 && rapid.IntRange(0, 3).Draw(t, "use") > 0 {
				r.use(now)
				used = append(used, now)
			}
		}
	})
}

func TestPermitsOfRUsedUnderAnEarlierLeaseEpochAreOwedForAWindow(t *testing.T) {
	var r, past ratePermits
	r.Granted = 10
	use := func(second int) {
		now := fleettime.Mono(time.Duration(second) * time.Second)
		if r.idle(now) > 0 {
			r.use(now)
		}
	}
	use(0)
	use(20)
	r.moveTo(&past, fleettime.Mono(20*time.Second))
	if r.idle(fleettime.Mono(20*time.Second)) != 0 || r.Granted != 0 || past.owed(fleettime.Mono(20*time.Second)) != 2 {
		t.Errorf("%+v and %d owed, want nothing in hand and two owed", r, past.owed(fleettime.Mono(20*time.Second)))
	}
	r.Granted = 1
	use(30)
	r.moveTo(&past, fleettime.Mono(40*time.Second))
	for _, c := range []struct {
		second int
		owed   uint64
	}{{40, 3}, {59, 3}, {61, 2}, {79, 2}, {81, 1}, {89, 1}, {91, 0}} {
		if got := past.owed(fleettime.Mono(time.Duration(c.second) * time.Second)); got != c.owed {
			t.Errorf("after %d s %d are owed, want %d", c.second, got, c.owed)
		}
	}
}

func TestWhoIsForgottenIsChargedAgain(t *testing.T) {
	e, _ := newEdge(t, at(0), 5000, 5000)
	old := waiting(7, time.Minute)
	e.Arrive(at(0), sale, old)
	for id := range uint64(e.edge.cfg.Limits.Recent) {
		e.Arrive(at(0), sale, waiting(1000+id, time.Minute))
	}
	if d := e.Arrive(at(0), sale, old); d.Verdict != Admit {
		t.Errorf("%v (%v): more tickets are remembered than the limit", d.Verdict, d.Reason)
	}
}

// A visitor that is active on a connection renews its session there, without a new ticket: the one from before is
// served as long as the session is valid here, and the session is counted once, also after other requests in between.
func TestALiveConnectionRenewsTheSession(t *testing.T) {
	e, r := newEdge(t, at(0), 10, 10)
	pass := e.Arrive(at(0), sale, ticket.Ticket{}).Ticket
	live := pass
	for second := 30; second <= 3*session; second += 30 {
		now := time.Duration(second) * time.Second
		r.lease(at(now))
		live = e.Live(at(now), sale, live)
		if live.Until < later(now)+session*9/10 {
			t.Fatalf("after %v the session ends at %d, want the whole duration", now, live.Until)
		}
	}
	end := time.Duration(3*session) * time.Second
	if got := e.Ledger(at(end), sale); got.Spent != 1 || got.Sessions != 1 || got.Renewed == 0 {
		t.Errorf("%+v, want one session", got)
	}
	d := e.Arrive(at(end+time.Second), sale, pass)
	if d.Verdict != Serve || d.Fresh != Kept || !d.Reseal || d.Ticket.Until < live.Until {
		t.Errorf("a request with the expired ticket: %v (%v, %d) until %d", d.Verdict, d.Reason, d.Fresh, d.Ticket.Until)
	}
	over := end + time.Duration(2*session)*time.Second
	r.lease(at(over))
	if again := e.Live(at(over), sale, live); again.Until != live.Until {
		t.Errorf("a session that has ended is renewed until %d", again.Until)
	}
	if d := e.Arrive(at(over), sale, pass); d.Fresh == Kept || d.Verdict == Serve {
		t.Errorf("long after the connection: %v (%v, %d)", d.Verdict, d.Reason, d.Fresh)
	}
}

// A connection renews nothing for a session that was revoked, or whose room does not renew.
func TestALiveConnectionOfAnEndedSession(t *testing.T) {
	e, r := newEdge(t, at(0), 10, 10)
	pass := e.Arrive(at(0), sale, ticket.Ticket{}).Ticket
	if !e.Quit(at(time.Second), sale, pass) {
		t.Fatal("not revoked")
	}
	for _, d := range []time.Duration{time.Second, 30 * time.Second} {
		r.lease(at(d))
		if live := e.Live(at(d), sale, pass); live.Until != pass.Until {
			t.Errorf("revoked, and renewed until %d", live.Until)
		}
	}
	if got := e.Ledger(at(30*time.Second), sale); got.Renewed != 0 {
		t.Errorf("%+v", got)
	}
}

// TestABriefSession: a session that ends before its duration is marked where it is not renewed but may be in a moment:
// before the first grant, and at the renewal ceiling.
func TestABriefSession(t *testing.T) {
	e := alone(at(0), 1, Limits{Held: 100, Recent: 1000})
	e.SetRooms(at(0), []Room{{ID: sale, Session: time.Minute}})
	e.Clock.Restore(at(0), fleettime.Known{})
	r := &regional{t: t, e: e, term: wire.Term{N: 1, Nonce: 7}, held: wire.RoomGrant{Room: sale, Life: 66}}
	r.hear(at(0))
	r.say(at(0), wire.Grant{Handshake: wire.Promise})
	for left, want := range map[int64]bool{30: true, 63: false} {
		if d := e.Arrive(at(0), sale, inside(7, left)); d.Verdict != Serve || d.Brief != want {
			t.Errorf("before the first grant, %d s before the end: %v, brief %v", left, d.Verdict, d.Brief)
		}
	}
	r.hear(at(0))
	r.grant(at(0), 1, 1)
	if d := e.Arrive(at(0), sale, inside(7, 30)); d.Verdict != Serve || d.Brief || !d.Reseal {
		t.Errorf("with a lease: %v, brief %v", d.Verdict, d.Brief)
	}
	for id := uint64(8); ; id++ {
		d := e.Arrive(at(0), sale, inside(id, 30))
		if d.Unrenewed != d.Brief || id > 1000 {
			t.Fatalf("session %d: unrenewed %v, brief %v", id, d.Unrenewed, d.Brief)
		}
		if d.Brief {
			break
		}
	}
	if d := e.Arrive(at(5*time.Second), sale, inside(2000, 30)); d.Brief {
		t.Error("brief at an edge without a lease, which cannot renew in a moment")
	}
}
