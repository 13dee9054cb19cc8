package reuse

import (
	"cmp"
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
)

// room is a model of the renewals of one session, in milliseconds: the edge renews a version that is due, and each
// renewal makes a new version.
type room struct {
	book Book
	life int64 // of a ticket
	due  int64 // age from which a version is renewed
	last uint32
}

func newRoom(session int64) *room {
	r := &room{book: NewBook(9, 0), life: session + session/4, due: max(1000, min(session/10, 20_000))}
	return r
}

// pass is a client's ticket.
type pass struct {
	Version
	until int64
}

func (r *room) issue(now int64, parent *Version) pass {
	r.last++
	return pass{Version{Stamp: r.last, Parent: parent.Stamp, Root: parent.Root, Seen: uint32(now / 1000)}, now + r.life}
}

// ask answers a request with a ticket. ok is false for a ticket that is a copy or expired.
func (r *room) ask(now int64, p pass) (next pass, found, ok bool) {
	switch {
	case now >= p.until:
		return p, false, false
	case p.Stamp != 0 && now-int64(p.Seen)*1000 < r.due:
		return p, false, true
	}
	v := p.Version
	switch r.book.Shown(uint32(now/1000), 7, &v, uint32(r.life/1000)) {
	case Copy:
		return p, false, false
	case Found:
		found = true
	case Fine:
	}
	return r.issue(now, &v), found, true
}

const start = 1_000_000_000_000

// TestCopiesInAnyRhythm: copies of one ticket are found whatever the rhythm of their renewals. One of them stays for
// longer than a ticket's life.
func TestCopiesInAnyRhythm(t *testing.T) {
	for _, session := range []int64{60_000, 300_000} {
		for _, clients := range []int{2, 8, 50, 1000} {
			for name, at := range map[string]func(rng *rand.Rand, i int, round, every int64) int64{
				"in step":          func(rng *rand.Rand, _ int, round, every int64) int64 { return round*every + rng.Int64N(4900) },
				"in step, at once": func(_ *rand.Rand, _ int, round, every int64) int64 { return round * every },
				"in turns": func(_ *rand.Rand, i int, round, every int64) int64 {
					return round*every + int64(i)*every/int64(clients)
				},
				"at random": func(rng *rand.Rand, _ int, round, every int64) int64 { return round*every + rng.Int64N(every) },
			} {
				for _, every := range []int64{5_000, 7_000, 21_000, 45_000} {
					if name == "in turns" && clients == 2 && every < 2*InFlight*1000 && session < 10*2*InFlight*1000 {
						continue // within the time in which answers may be in flight: GUARANTEES.md has the exception
					}
					inside := copiesInside(session, clients, every, at)
					if gone := 2*every > newRoom(session).life; inside > 1 || inside == 0 && !gone {
						t.Errorf("sessions of %d s, %d clients every %d s, %s: %d inside", session/1000, clients, every/1000,
							name, inside)
					}
				}
			}
		}
	}
}

// copiesInside returns how many clients are inside after five sessions.
func copiesInside(session int64, clients int, every int64,
	at func(rng *rand.Rand, i int, round, every int64) int64,
) (inside int) {
	r := newRoom(session)
	rng := rand.New(rand.NewPCG(uint64(clients), uint64(every)))
	jars := make([]pass, clients)
	out := make([]bool, clients)
	first := r.issue(start, &Version{})
	for i := range jars {
		jars[i] = first
	}
	order := make([]int, clients)
	when := make([]int64, clients)
	for round := int64(1); round*every < 5*session; round++ {
		for i := range jars {
			order[i], when[i] = i, start+at(rng, i, round, every)
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(when[a], when[b]) })
		for _, i := range order {
			if out[i] {
				continue
			}
			next, _, ok := r.ask(when[i], jars[i])
			jars[i], out[i] = next, !ok
		}
	}
	for i := range jars {
		if !out[i] {
			inside++
		}
	}
	return inside
}

// browser is a browser with many tabs.
type browser struct {
	late    int64   // a slow site's answers take up to this, which their tickets tell
	stalled float64 // part of the answers that stall for up to stall on the network, which nothing tells
	stall   int64
}

// lost returns how many of n browsers lose their sessions within an hour: 1 to 20 requests at once or 50, every tenth
// answer lost.
func (b browser) lost(session int64, n uint64) (out int) {
	type answer struct {
		at int64
		pass
	}
	for seed := range n {
		r := newRoom(session)
		rng := rand.New(rand.NewPCG(seed, uint64(session)))
		jar := r.issue(start, &Version{})
		var under []answer
		for now := int64(start); now < start+3_600_000; {
			now += rng.Int64N(session / 3)
			for { // arrivals until now, in order
				k := -1
				for i := range under {
					if under[i].at <= now && (k < 0 || under[i].at < under[k].at) {
						k = i
					}
				}
				if k < 0 {
					break
				}
				jar = under[k].pass
				under[k] = under[len(under)-1]
				under = under[:len(under)-1]
			}
			requests := 1 + rng.IntN(20)
			if rng.IntN(4) == 0 {
				requests = 50
			}
			lost := false
			for range requests {
				next, found, ok := r.ask(now, jar)
				lost = lost || found || !ok
				if next.Stamp == jar.Stamp || rng.IntN(10) == 0 {
					continue
				}
				a := answer{now + rng.Int64N(2000), next}
				if rng.IntN(10) == 0 && b.late > 0 {
					slow := rng.Int64N(b.late)
					a.at += slow
					a.Seen += uint32(slow / 1000)
				}
				if rng.Float64() < b.stalled {
					a.at += rng.Int64N(b.stall)
				}
				under = append(under, a)
			}
			if lost {
				out++
				break
			}
		}
	}
	return out
}

var honest = flag.Uint64("honest", 1000, "number of honest browsers of each kind")

// oldHTTP is a browser with eight tabs over HTTP/1.1: six connections, and requests that wait for one with the cookie
// of the time at which they were made. The site takes up to slow for every tenth request, which its answer tells; every
// tenth answer is lost.
type oldHTTP struct{ slow int64 }

// lost returns how many of n browsers lose their sessions within an hour.
func (o oldHTTP) lost(session int64, n uint64) (out int) {
	type request struct {
		at int64 // of the next event
		pass
		sent bool
		lost bool
	}
	for seed := range n {
		r := newRoom(session)
		rng := rand.New(rand.NewPCG(seed, uint64(session)))
		jar := r.issue(start, &Version{})
		var queue, busy []request
		tabs := [8]int64{}
		for i := range tabs { // restored, all at once
			tabs[i] = start + rng.Int64N(1000)
		}
		failed := false
		for now := int64(start); now < start+3_600_000 && !failed; {
			// The next event: a tab loads a page, or a request gets on.
			tab, next := 0, -1
			for i := range tabs {
				if tabs[i] < tabs[tab] {
					tab = i
				}
			}
			now = tabs[tab]
			for i := range busy {
				if busy[i].at <= now {
					next, now = i, busy[i].at
				}
			}
			if next < 0 {
				for range 1 + rng.IntN(8) {
					queue = append(queue, request{pass: jar})
				}
				tabs[tab] = now + 1 + rng.Int64N(session/3*int64(len(tabs)))
			} else if q := &busy[next]; !q.sent {
				answer, found, ok := r.ask(now, q.pass)
				if now >= q.until { // away for longer than a session: a new one
					r, queue, busy = newRoom(session), nil, nil
					jar = r.issue(now, &Version{})
					continue
				}
				failed = failed || found || !ok
				q.lost = answer.Stamp == q.Stamp || rng.IntN(10) == 0
				q.pass, q.sent = answer, true
				q.at = now + 1 + rng.Int64N(1000)
				if rng.IntN(10) == 0 && o.slow > 0 {
					late := rng.Int64N(o.slow)
					q.Seen, q.at = q.Seen+uint32(late/1000), q.at+late
				}
			} else {
				if !q.lost {
					jar = q.pass
				}
				busy[next] = busy[len(busy)-1]
				busy = busy[:len(busy)-1]
			}
			for len(queue) > 0 && len(busy) < 6 {
				q := queue[0]
				queue = queue[1:]
				q.at = now + 1 + rng.Int64N(300)
				busy = append(busy, q)
			}
		}
		if failed {
			out++
		}
	}
	return out
}

// TestHonestBrowsers: no browser of each kind is taken for a copy in an hour.
func TestHonestBrowsers(t *testing.T) {
	n := *honest
	if testing.Short() {
		n = 100
	}
	for _, session := range []int64{60_000, 300_000} {
		for _, slow := range []int64{0, 5_000, 30_000} {
			if out := (oldHTTP{slow}).lost(session, n/4); out != 0 {
				t.Errorf("sessions of %d s, eight tabs over HTTP/1.1, a site that takes up to %d s: %d of %d lost", session/1000,
					slow/1000, out, n/4)
			}
		}
	}
	for _, session := range []int64{60_000, 300_000} {
		for _, b := range []browser{{}, {late: 30_000}, {late: session / 3}} {
			if out := b.lost(session, n); out != 0 {
				t.Errorf("sessions of %d s, %+v: %d of %d lost", session/1000, b, out, n)
			}
		}
		for _, p := range []float64{0.001, 0.01, 0.05} {
			out := browser{late: 30_000, stalled: p, stall: 30_000}.lost(session, n)
			t.Logf("sessions of %d s, %.1f %% of the answers stall untold for up to 30 s: %d of %d lost", session/1000,
				100*p, out, n)
		}
	}
}
