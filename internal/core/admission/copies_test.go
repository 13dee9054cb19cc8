package admission

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vestibule/internal/core/ticket"
	"vestibule/internal/core/ticket/reuse"
	"vestibule/internal/core/wire"
)

// answer is a response on its way to a browser.
type answer struct {
	there time.Duration
	pass  ticket.Ticket
}

// TestNoBrowserIsTakenForACopy: a browser with twenty tabs sends concurrent requests to edges chosen by a load
// balancer, with responses that are lost, slow at the site and late on the way. Its session always continues.
func TestNoBrowserIsTakenForACopy(tt *testing.T) {
	rapid.Check(tt, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		session := rapid.SampledFrom([]time.Duration{10 * time.Second, time.Minute, 5 * time.Minute}).Draw(t, "session")
		stay := rapid.Float64Range(0, 1).Draw(t, "requests at the edge of the one before")
		slow := rapid.Float64Range(0, 0.3).Draw(t, "answers that take the site long")
		busy := rapid.Float64Range(0, 0.5).Draw(t, "pages of fifty requests")
		var edges [4]*Engine
		var parents [4]*regional
		for i := range edges {
			edges[i], parents[i] = newEdge(tt, at(0), 5, 5)
			parents[i].held.Life, parents[i].held.RenewCeil = wire.Life(session), 1<<30
		}
		var under []answer
		place := waiting(7, time.Minute)
		jar := edges[0].Arrive(at(0), sale, place).Ticket
		for range 49 { // the page at the turn
			pass := edges[0].Arrive(at(0), sale, place).Ticket
			under = append(under, answer{there: time.Duration(rng.Int64N(int64(2 * time.Second))), pass: pass})
		}
		where := 0
		for now := time.Duration(0); now < 6*time.Minute; {
			step := time.Duration(rng.Int64N(int64(session / 3)))
			next := now + step
			for now < next { // arrivals until then, in order
				k := -1
				for i, a := range under {
					if a.there <= next && (k < 0 || a.there < under[k].there) {
						k = i
					}
				}
				if k < 0 {
					break
				}
				a := under[k]
				under = append(under[:k], under[k+1:]...)
				if a.pass.ID != 0 {
					jar = a.pass
				}
			}
			now = next
			for i := range parents {
				parents[i].lease(at(now))
			}
			requests := 1 + rng.IntN(8)
			if rng.Float64() < busy {
				requests = 50
			}
			for range requests {
				if rng.Float64() > stay {
					where = rng.IntN(len(edges))
				}
				d := edges[where].Arrive(at(now), sale, jar)
				if d.Fresh == Copied || !d.Enters() {
					t.Fatalf("after %v: %v (%v, %d), with %+v", now, d.Verdict, d.Reason, d.Fresh, jar)
				}
				if !d.Reseal || rng.IntN(10) == 0 { // unchanged, or lost
					continue
				}
				a := answer{pass: d.Ticket}
				if rng.Float64() < slow {
					if late := time.Duration(rng.Int64N(int64(session / 3))); late > reuse.InFlight*time.Second/2 {
						a.pass.Seen += uint32(late / time.Second)
						a.there = late
					}
				}
				a.there += now + time.Duration(rng.Int64N(int64(2*time.Second)))
				under = append(under, a)
			}
		}
	})
}

// TestCopiesOfATicketAreNotFreeEntries: many clients continue separately with copies of one place or session at one
// edge. One of them remains; every other admission takes a permit.
func TestCopiesOfATicketAreNotFreeEntries(t *testing.T) {
	const session = time.Minute
	for _, tc := range []struct {
		name    string
		clients int
		place   bool // the place is copied, otherwise the session
		by      time.Duration
	}{
		{"50 copies of a place", 50, true, time.Minute},
		{"50 copies of a session", 50, false, time.Minute},
		{"12 copies of a place", 12, true, time.Minute},
		{"2 copies of a session", 2, false, 4 * time.Minute},
	} {
		e, r := newEdge(t, at(0), 1, 1)
		r.held.Life = wire.Life(session)
		r.lease(at(0))
		r.held.Permits.Rate.Granted = 0
		r.grant(at(0), 0, 1)
		jars := make([]ticket.Ticket, tc.clients)
		k := waiting(7, time.Minute)
		if first := e.Arrive(at(0), sale, k); !tc.place {
			k = first.Ticket
		}
		rng := rand.New(rand.NewPCG(uint64(tc.clients), 1))
		next := make([]time.Duration, tc.clients)
		for i := range jars {
			jars[i], next[i] = k, time.Duration(rng.Int64N(int64(2*time.Second)))
		}
		found := 0
		for now := time.Duration(0); now < tc.by+30*time.Second; now += 100 * time.Millisecond {
			if now%time.Second == 0 {
				r.lease(at(now))
				r.held.RenewCeil = 1 << 30
			}
			for i := range jars {
				if next[i] > now {
					continue
				}
				d := e.Arrive(at(now), sale, jars[i])
				if d.Fresh == Copied {
					found++
					if d.Ticket.ID == 7 || d.Enters() {
						t.Fatalf("%s: a copy goes on as %+v (%v)", tc.name, d.Ticket, d.Verdict)
					}
				}
				if jars[i] = d.Ticket; d.Verdict == Hold { // disconnected
					jars[i].Flags = 0
				}
				next[i] = now + 5*time.Second + time.Duration(rng.Int64N(int64(10*time.Second)))
			}
		}
		inside := 0
		for i := range jars {
			if jars[i].ID == 7 && jars[i].Valid(e.Clock.Time(at(tc.by+30*time.Second))) {
				inside++
			}
		}
		if inside != 1 || found < tc.clients-1 {
			t.Errorf("%s: %d are inside, %d were found, want one inside", tc.name, inside, found)
		}
		if got := e.Ledger(at(tc.by+30*time.Second), sale); got.Copied != 1 || got.Sessions < 1 {
			t.Errorf("%s: %d copied tickets, %d sessions", tc.name, got.Copied, got.Sessions)
		}
	}
}

// TestOneBrowserEntersWithAPlace: of several browsers with versions of one place, one gets the session. The others are
// newcomers once that browser has shown the session. A browser whose answer was lost gets it again.
func TestOneBrowserEntersWithAPlace(t *testing.T) {
	place, other := waiting(7, time.Minute), waiting(7, time.Minute)
	other.Answer++
	begin := func(t *testing.T) (*Engine, ticket.Ticket) {
		e, _ := newEdge(t, at(0), 2, 9)
		d := e.Arrive(at(0), sale, place)
		gets(t, d, Admit, "the first browser")
		if d := e.Arrive(at(0), sale, place); d.Verdict != Serve || d.Reason != Repeated || d.Ticket.ID != 7 {
			t.Errorf("a parallel request: %v (%v)", d.Verdict, d.Reason)
		}
		if d := e.Arrive(at(time.Second), sale, other); d.Verdict != Queue || d.Fresh != Underway || d.Reseal ||
			d.Ticket != other {
			t.Errorf("another version: %v (%v, %d) as %+v", d.Verdict, d.Reason, d.Fresh, d.Ticket)
		}
		return e, d.Ticket
	}
	t.Run("copies", func(t *testing.T) {
		e, session := begin(t)
		gets(t, e.Arrive(at(2*time.Second), sale, session), Serve, "the session")
		for _, copied := range []ticket.Ticket{place, other} {
			d := e.Arrive(at(2*time.Second+onItsWay*time.Second), sale, copied)
			if d.Fresh != Copied || d.Ticket.ID == 7 {
				t.Errorf("a place of which the session was shown: %v (%d) as %+v", d.Verdict, d.Fresh, d.Ticket)
			}
		}
	})
	t.Run("the answer is lost", func(t *testing.T) {
		e, _ := begin(t)
		d := e.Arrive(at(onItsWay*time.Second), sale, other)
		getsFor(t, d, Serve, Repeated, "another tab of the browser")
		if d := e.Arrive(at((onItsWay+1)*time.Second), sale, place); d.Fresh != Underway {
			t.Errorf("the version from before: %v (%v, %d)", d.Verdict, d.Reason, d.Fresh)
		}
		if got := e.Ledger(at(onItsWay*time.Second), sale); got.Spent != 1 {
			t.Errorf("%d permits are spent, want 1", got.Spent)
		}
	})
}

// TestACopyStaysOneWhileTheSessionLasts: a version from before the decision is refused for as long as the session goes
// on here, at once and on a connection too.
func TestACopyStaysOneWhileTheSessionLasts(t *testing.T) {
	e, r := newEdge(t, at(0), 1, 9)
	r.held.Life, r.held.RenewCeil = 75, 1<<30
	r.lease(at(0))
	pass := e.Arrive(at(0), sale, waiting(7, time.Minute)).Ticket
	copied := pass
	renewed := e.Arrive(at(10*time.Second), sale, pass).Ticket
	copied.Stamp, copied.Parent = 99, pass.Stamp // another renewal of it
	copied.Until = renewed.Until
	r.held.Lines = []wire.Line{{ID: 7, Stamp: renewed.Stamp}}
	r.grant(at(11*time.Second), 0, 0)
	r.held.Lines = nil
	for now := 12 * time.Second; now < 10*time.Minute; now += 10 * time.Second {
		r.lease(at(now))
		d := e.Arrive(at(now), sale, renewed)
		gets(t, d, Serve, "the line that continues, after %v", now)
		renewed = d.Ticket
		if d := e.Arrive(at(now), sale, copied); d.Enters() {
			t.Fatalf("the copy is served after %v", now)
		}
		if got := e.Live(at(now), sale, copied); got.Until != copied.Until {
			t.Fatalf("the copy is renewed on its connection after %v", now)
		}
		if d := e.Arrive(at(now), sale, waiting(7, time.Minute)); d.Enters() {
			t.Fatalf("the place is served after %v", now)
		}
	}
}

// TestASessionIsBoundToItsNetwork: a session's ticket is valid only in the network in which the session began. A
// client that presents it, or its place, elsewhere is one newcomer per network, and takes a permit. Waiting
// visitors may change networks.
func TestASessionIsBoundToItsNetwork(t *testing.T) {
	const home, away, strict = ticket.Network(0x1d0e_0002), ticket.Network(0xa3a4_0004), ticket.Network(0x1d0e_0003)
	in := func(k ticket.Ticket, n ticket.Network) ticket.Ticket { k.Network = n; return k }
	begin := func(t *testing.T, where ticket.Network) (*Engine, *regional, ticket.Ticket, ticket.Ticket) {
		e, r := newEdge(t, at(0), 2, 9)
		place := waiting(7, time.Minute)
		d := e.Arrive(at(0), sale, in(place, where))
		if d.Verdict != Admit || (d.Ticket.Net != 0) != (where != 0) {
			t.Fatalf("%v as %+v", d.Verdict, d.Ticket)
		}
		return e, r, place, d.Ticket
	}
	t.Run("who stays in the network", func(t *testing.T) {
		e, r, place, pass := begin(t, home)
		net := pass.Net
		if d := e.Arrive(at(time.Second), sale, in(place, home)); d.Reason != Repeated || d.Ticket.Net != net {
			t.Errorf("an answer that was lost: %v (%v) as %+v", d.Verdict, d.Reason, d.Ticket)
		}
		renewed := 0
		for now := time.Duration(0); now < 30*time.Minute; now += 20 * time.Second {
			r.lease(at(now))
			d := e.Arrive(at(now), sale, in(pass, home))
			if d.Verdict != Serve || d.Ticket.Net != net || d.Ticket.ID != 7 {
				t.Fatalf("after %v: %v as %+v", now, d.Verdict, d.Ticket)
			}
			if d.Reseal {
				pass = d.Ticket
				renewed++
			}
		}
		if got := e.Ledger(at(30*time.Minute), sale); renewed < 10 || got.Spent != 1 || got.Sessions != 1 {
			t.Errorf("renewed %d times: %+v", renewed, got)
		}
	})
	t.Run("elsewhere", func(t *testing.T) {
		e, _, place, pass := begin(t, home)
		for i := range 50 { // many concurrent requests, with the session or the place, take one permit
			k := pass
			if i%2 == 1 {
				k = place
			}
			d := e.Arrive(at(2*time.Second), sale, in(k, away))
			if d.Ticket.ID != ticket.Derive(7, away) || d.Ticket.Net != ticket.Bind(d.Ticket.ID, away) || !d.Enters() {
				t.Fatalf("%v (%d) as %+v", d.Verdict, d.Fresh, d.Ticket)
			}
		}
		if got := e.Ledger(at(2*time.Second), sale); got.Spent != 2 || got.Admitted != 2 {
			t.Errorf("%d permits are spent by %d who were admitted, want 2", got.Spent, got.Admitted)
		}
		third := ticket.Network(0x77_0006)
		d := e.Arrive(at(2*time.Second), sale, in(pass, third))
		if d.Fresh != Elsewhere || d.Enters() || d.Ticket.ID != ticket.Derive(7, third) ||
			d.Ticket.Joined != e.Clock.Time(at(2*time.Second)) {
			t.Errorf("no permit is left: %v (%d) as %+v", d.Verdict, d.Fresh, d.Ticket)
		}
		if d := e.Arrive(at(3*time.Second), sale, in(d.Ticket, home)); d.Fresh != Kept {
			t.Errorf("the place that was given is not good in another network: %d", d.Fresh)
		}
		if d := e.Arrive(at(3*time.Second), sale, in(pass, home)); d.Verdict != Serve || d.Ticket.ID != 7 {
			t.Errorf("the session: %v as %+v", d.Verdict, d.Ticket)
		}
	})
	t.Run("one person in the line", func(t *testing.T) {
		e, r, _, pass := begin(t, home)
		r.held.View = view(100, day.Add(time.Minute), 0)
		r.grant(at(time.Second), 0, 0)
		e.Arrive(at(time.Second), sale, ticket.Ticket{})  // takes the other permit
		before := e.Ledger(at(time.Second), sale).Waiting // the place was counted at another edge
		var place ticket.Ticket
		for range 20 {
			place = e.Arrive(at(time.Second), sale, in(pass, away)).Ticket
		}
		if n := e.Ledger(at(time.Second), sale).Waiting - before; n != 0 {
			t.Errorf("%d wait before anybody came back", n)
		}
		for i := range 20 { // from any network
			place = e.Arrive(at(3*time.Second), sale, in(place, ticket.Network(2*i+2))).Ticket
		}
		if n := e.Ledger(at(3*time.Second), sale).Waiting - before; n != 1 {
			t.Errorf("%d wait, want 1", n)
		}
	})
	t.Run("held while it went in elsewhere", func(t *testing.T) {
		e, r := newEdge(t, at(0), 0, 9)
		place := waiting(7, time.Minute)
		var held [2]*Visit
		for i, n := range []ticket.Network{home, away} {
			d := e.Arrive(at(0), sale, in(place, n))
			if d.Verdict != Hold {
				t.Fatalf("%v", d.Verdict)
			}
			held[i] = &Visit{Room: sale, Ticket: d.Ticket, Brought: in(place, n)}
			e.Rooms.Hold(at(0), held[i])
		}
		r.grant(at(0), 1, 0)
		if out := e.Rooms.Release(at(0), nil); len(out) != 2 {
			t.Fatalf("%d are released", len(out))
		}
		enters, other := held[0].Decision, held[1].Decision
		if !enters.Enters() {
			enters, other = other, enters
		}
		if !enters.Enters() || other.Enters() || other.Fresh != Elsewhere || other.Ticket.ID == 7 {
			t.Errorf("%+v and %+v", enters, other)
		}
	})
	t.Run("a room that is bound otherwise now", func(t *testing.T) {
		for _, tc := range []struct{ began, now ticket.Network }{{home, 0}, {home, strict}, {strict, away}, {0, away}} {
			e, _, _, pass := begin(t, tc.began)
			if d := e.Arrive(at(time.Second), sale, in(pass, tc.now)); d.Verdict != Serve {
				t.Errorf("begun in %#x, shown in %#x: %v", tc.began, tc.now, d.Verdict)
			}
		}
	})
}
