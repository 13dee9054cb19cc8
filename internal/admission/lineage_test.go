package admission

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vestibule/internal/lineage"
	"vestibule/internal/ticket"
	"vestibule/internal/wire"
)

// answer is an answer on its way to a browser.
type answer struct {
	there time.Duration
	pass  ticket.Ticket
}

// TestNoBrowserIsTakenForACopy: a browser with twenty tabs asks for many things at
// once, at edges of its balancer's choice, with answers that are lost, slow at the site
// and late on the way. Whatever it does, its session goes on.
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
			for now < next { // what arrives until then, in the order of arrival
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
				if !d.Reseal || rng.IntN(10) == 0 { // nothing to tell, or lost
					continue
				}
				a := answer{pass: d.Ticket}
				if rng.Float64() < slow {
					if late := time.Duration(rng.Int64N(int64(session / 3))); late > lineage.InFlight*time.Second/2 {
						a.pass.Late()
						a.there = late
					}
				}
				a.there += now + time.Duration(rng.Int64N(int64(2*time.Second)))
				under = append(under, a)
			}
		}
	})
}

// TestCopiesOfATicketAreNotFreeEntries: many clients with one ticket, of a place or of
// a session, go on by themselves at one edge. One of them stays; who else is let in
// takes a right.
func TestCopiesOfATicketAreNotFreeEntries(t *testing.T) {
	const session = time.Minute
	for _, tc := range []struct {
		name    string
		clients int
		place   bool // the place is copied, else the session
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
		r.held.RateGranted = 0
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
				if jars[i] = d.Ticket; d.Verdict == Hold { // hung up
					jars[i].Flags = 0
				}
				next[i] = now + 5*time.Second + time.Duration(rng.Int64N(int64(10*time.Second)))
			}
		}
		inside := 0
		for i := range jars {
			if jars[i].ID == 7 && jars[i].Valid(e.Time(at(tc.by+30*time.Second))) {
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
