package admission

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
)

// awayEdge returns an edge with a lease that admits nobody, for tests of departures.
func awayEdge(t testing.TB, seed uint64, limit int) (*Engine, *regional) {
	t.Helper()
	e := alone(at(0), seed, Limits{Held: 100, Recent: 1000, Waiting: limit})
	return e, join(t, e, at(0), 0, 0)
}

func counted(e *Engine, now fleettime.Mono) int64 {
	w := &stateOf(e).line.queue.wait
	w.advance(e.Clock.Time(now))
	return w.sum
}

// TestWhoGoesAwayIsCountedNoMore: a page is closed, reloaded or left, with the requests in the orders of browsers.
func TestWhoGoesAwayIsCountedNoMore(t *testing.T) {
	e, _ := awayEdge(t, 1, 10)
	now := at(0)
	want := func(n int64, when string) {
		t.Helper()
		if got := counted(e, now); got != n {
			t.Fatalf("%s: %d are counted, want %d", when, got, n)
		}
	}
	ask := func(k ticket.Ticket) ticket.Ticket {
		t.Helper()
		d := e.Arrive(now, sale, k)
		if k.ID != 0 && d.Fresh != Kept {
			t.Fatalf("the place is lost: %d", d.Fresh)
		}
		return d.Ticket
	}
	away := func(k ticket.Ticket, answer uint8, gone bool) {
		t.Helper()
		if e.Away(now, sale, k, answer) != gone {
			t.Fatalf("gone: %v", !gone)
		}
	}
	k := ask(ticket.Ticket{})
	away(k, k.Answer, false)
	want(0, "closed before the first question")
	k = ask(k)
	other := ask(ask(ticket.Ticket{}))
	want(2, "two who came back")
	stateOf(e).line.queue.changed = false
	away(k, k.Answer, true)
	want(1, "one is closed")
	if !stateOf(e).line.queue.changed {
		t.Error("nobody is reported")
	}
	away(k, k.Answer, false)
	want(1, "and it is said again")
	if !e.Waits(now, sale, k) {
		t.Error("the place is gone")
	}

	now = at(30 * time.Second)
	k = ask(k)
	want(2, "back")
	reloaded := ask(k)
	want(2, "reloaded, not reported yet that the old page went away")
	away(reloaded, k.Answer, false)
	want(2, "reported, with the ticket of the new page")
	k = reloaded
	away(k, k.Answer, true)
	reloaded = ask(k)
	want(2, "reloaded, reported before")
	k = reloaded

	now = at(45 * time.Second) // in another window
	reloaded = ask(k)
	away(k, k.Answer, true)
	want(1, "reloaded, reported afterwards with the ticket of the old page")
	now = at(46 * time.Second)
	k = ask(reloaded)
	want(2, "until the new page asks")
	away(k, k.Answer, true)
	away(reloaded, reloaded.Answer, false) // an older copy
	want(1, "closed")

	now = at(59 * time.Second)
	other = ask(other)
	for now = at(60 * time.Second); now < at(3*time.Minute); now = now.Add(5 * time.Second) {
		if n := counted(e, now); n < 0 || n > 1 {
			t.Fatalf("%d are counted at %v", n, now.Sub(at(0)))
		}
	}
	want(0, "nobody asks for a minute")
	k, other = ask(k), ask(other)
	want(0, "both are back within the grace, and may be old tickets")
	k, other = ask(k), ask(other)
	want(2, "both have heard")
	if !e.Quit(now, sale, k) {
		t.Error("not left")
	}
	want(1, "one has left")
	away(k, k.Answer, false)
	away(other, other.Answer, true)
	if !e.Quit(now, sale, other) {
		t.Error("not left")
	}
	want(0, "the other went away, and then left")
	last := ask(ask(ticket.Ticket{}))
	void := last
	void.Epoch++
	away(void, void.Answer, false)
	if e.Away(now, sale+1, last, last.Answer) {
		t.Error("gone from a room that there is not")
	}
	want(1, "words of others")
}

// TestWhoGoesAwayWhileHeld: near the turn a poll is open most of the time. In either order of a closed connection
// and a departure nobody remains counted.
func TestWhoGoesAwayWhileHeld(t *testing.T) {
	for _, returned := range []bool{false, true} {
		for order := range 4 {
			e, r := awayEdge(t, 1, 10)
			now := at(0)
			k := e.Arrive(now, sale, ticket.Ticket{}).Ticket
			if returned {
				k = e.Arrive(now, sale, k).Ticket
			}
			now = at(15 * time.Second)
			r.lease(now)
			d := e.Arrive(now, sale, k)
			if d.Verdict != Hold {
				t.Fatalf("%v (%v), want to be held", d.Verdict, d.Reason)
			}
			v := &Visit{Room: sale, Ticket: d.Ticket, Brought: k}
			e.Rooms.Hold(now, v)
			now = at(16 * time.Second)
			name := fmt.Sprintf("returned %v, order %d", returned, order)
			switch order {
			case 0:
				e.Away(now, sale, k, k.Answer)
				if !e.Rooms.Abandon(now, v) {
					t.Error("not abandoned")
				}
			case 1:
				if !e.Rooms.Abandon(now, v) || e.Rooms.Abandon(now, v) || e.Rooms.GiveUp(now, v) {
					t.Error("not abandoned, once")
				}
				e.Away(now, sale, k, k.Answer)
			case 2: // another page of the same visitor is held
				e.Away(now, sale, k, k.Answer)
				if !e.Rooms.GiveUp(now, v) {
					t.Error("not given up")
				}
				if n := counted(e, now); n != 1 {
					t.Errorf("%s: %d are counted while another page asks", name, n)
				}
				k = v.Decision.Ticket
				e.Away(now, sale, k, k.Answer)
			case 3: // the turn comes at the same time
				e.Away(now, sale, k, k.Answer)
				r.lease(now)
				r.grant(now, 1, 1)
				if got := e.Rooms.Release(now, nil); len(got) != 1 || v.Decision.Verdict != Admit || e.Rooms.Abandon(now, v) {
					t.Errorf("%s: %+v", name, v.Decision)
				}
			}
			for _, later := range []time.Duration{0, 10, 30, 50, 58} {
				if n := counted(e, now.Add(later*time.Second)); n != 0 {
					t.Errorf("%s: %d are counted %d s later", name, n, later)
				}
			}
			if order < 3 {
				back := e.Arrive(now.Add(59*time.Second), sale, k).Ticket
				e.Arrive(now.Add(59*time.Second), sale, back)
				if n := counted(e, now.Add(59*time.Second)); n != 1 {
					t.Errorf("%s: %d are counted when the visitor is back", name, n)
				}
			}
		}
	}
}

// guest is a browser with one ticket and several pages, each with its last state. For the twin: whether the guest
// is present, since which second, and the same for the ticket in the browser.
type guest struct {
	ticket ticket.Ticket
	pages  []uint8
	visit  *Visit // a held poll

	there bool
	last  int64
}

// TestTheCountOfThoseWhoGoAwayIsExact: at one edge, for any actions of visitors with one or more tabs, in the
// orders of browsers, the edge's count equals that of a twin with a list.
func TestTheCountOfThoseWhoGoAwayIsExact(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		e, r := awayEdge(t, rapid.Uint64().Draw(rt, "seed"), 1000)
		now := at(0)
		var guests []*guest
		second := func() int64 { return e.Clock.Time(now).Second() }
		answered := func(g *guest, k ticket.Ticket) uint8 {
			if k.Flags&ticket.Returned != 0 {
				g.there, g.last = true, second()
			}
			g.ticket = k
			return k.Answer
		}
		ask := func(g *guest) uint8 { return answered(g, e.Arrive(now, sale, g.ticket).Ticket) }
		away := func(g *guest, answer uint8, k ticket.Ticket) {
			if k.Answer == answer {
				g.there = false
			}
			e.Away(now, sale, k, answer)
		}
		closePage := func(g *guest, i int) {
			answer := g.pages[i]
			g.pages = append(g.pages[:i], g.pages[i+1:]...)
			away(g, answer, g.ticket)
		}
		pick := func(ok func(g *guest) bool) *guest {
			var some []*guest
			for _, g := range guests {
				if ok(g) {
					some = append(some, g)
				}
			}
			if len(some) == 0 {
				rt.Skip("nobody")
			}
			return some[rapid.IntRange(0, len(some)-1).Draw(rt, "guest")]
		}
		idle := func(g *guest) bool { return g.visit == nil }
		open := func(g *guest) bool { return g.visit == nil && len(g.pages) > 0 }
		held := func(g *guest) bool { return g.visit != nil }
		page := func(g *guest) int { return rapid.IntRange(0, len(g.pages)-1).Draw(rt, "page") }
		drop := func(g *guest) {
			for i := range guests {
				if guests[i] == g {
					guests = append(guests[:i], guests[i+1:]...)
					return
				}
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"come": func(*rapid.T) {
				g := &guest{}
				g.pages = []uint8{ask(g)}
				guests = append(guests, g)
			},
			"another tab": func(*rapid.T) { g := pick(idle); g.pages = append(g.pages, ask(g)) },
			"ask":         func(*rapid.T) { g := pick(open); g.pages[page(g)] = ask(g) },
			"close":       func(*rapid.T) { g := pick(open); closePage(g, page(g)) },
			"reload": func(*rapid.T) {
				g := pick(open)
				i := page(g)
				old := g.pages[i]
				g.pages[i] = ask(g)
				away(g, old, g.ticket)
			},
			"reload, told before": func(*rapid.T) {
				g := pick(open)
				i := page(g)
				away(g, g.pages[i], g.ticket)
				g.pages[i] = ask(g)
			},
			"ask, and hear nothing": func(*rapid.T) {
				g := pick(func(g *guest) bool { return open(g) && g.ticket.Flags&ticket.Returned == 0 })
				if k := e.Arrive(now, sale, g.ticket).Ticket; k.Flags&ticket.Returned != 0 {
					g.there, g.last = true, second()
				}
			},
			"leave": func(*rapid.T) {
				g := pick(idle)
				e.Quit(now, sale, g.ticket)
				drop(g)
			},
			"be held": func(*rapid.T) {
				g := pick(open)
				d := e.Arrive(now, sale, g.ticket)
				g.visit = &Visit{Room: sale, Ticket: d.Ticket, Brought: g.ticket}
				e.Rooms.Hold(now, g.visit)
				if d.Ticket.Flags&ticket.Returned != 0 {
					g.there, g.last = true, second()
				}
			},
			"keep waiting": func(*rapid.T) {
				g := pick(held)
				e.Rooms.GiveUp(now, g.visit)
				g.pages[page(g)] = answered(g, g.visit.Decision.Ticket)
				g.visit = nil
			},
			"close while held": func(*rapid.T) {
				g := pick(held)
				i := page(g)
				mine := g.pages[i] == g.ticket.Answer
				first := rapid.Bool().Draw(rt, "reported first")
				if first {
					closePage(g, i)
				}
				e.Rooms.Abandon(now, g.visit)
				if (!first || !mine) && g.ticket.Flags&ticket.Returned != 0 { // if the ticket has it
					g.there, g.last = true, int64(g.ticket.Seen)
				}
				if !first {
					closePage(g, i)
				}
				g.visit = nil
			},
			"enter": func(*rapid.T) {
				g := pick(idle)
				r.lease(now)
				r.grant(now, 1, 1)
				if len(stateOf(e).line.held.visits) > 0 {
					for _, v := range e.Rooms.Release(now, nil) {
						for _, o := range guests {
							if o.visit == v {
								drop(o)
								return
							}
						}
					}
				} else if d := e.Arrive(now, sale, g.ticket); d.Verdict == Admit {
					drop(g)
				} else {
					rt.Fatalf("%v (%v), want in", d.Verdict, d.Reason)
				}
			},
			"wait": func(*rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 25_000).Draw(rt, "ms")) * time.Millisecond)
			},
			"": func(*rapid.T) {
				stateOf(e).line.queue.advanceBooks(e.Clock.Time(now))
				want, newest := map[int64]float64{}, second()/windowLen
				for _, g := range guests {
					if g.there && g.last/windowLen > newest-windowsKept {
						want[cellOf(g.ticket.Joined)]++
					}
				}
				got := stateOf(e).line.queue.wait.histogram()
				for _, s := range got {
					if cell := cellOf(s.Start); want[cell] != s.N {
						rt.Fatalf("%v are counted who joined in cell %d, want %v", s.N, cell, want[cell])
					}
					delete(want, cellOf(s.Start))
				}
				if len(want) > 0 {
					rt.Fatalf("not counted: %v", want)
				}
			},
		})
	})
}

// TestAWrongCountHealsInAMinute: after any requests in any order at two edges, the count is right a minute later.
func TestAWrongCountHealsInAMinute(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var edges [2]*Engine
		for i := range edges {
			// Different seeds: with equal ones two visitors would get one ticket.
			seed := rapid.Uint64().Draw(rt, "seed")<<1 | uint64(i)
			edges[i], _ = awayEdge(t, seed, rapid.IntRange(0, 5).Draw(rt, "limit"))
		}
		now := at(0)
		var tickets [][]ticket.Ticket // all tickets of each visitor
		total := func() (n int64) {
			for _, e := range edges {
				n += counted(e, now)
			}
			return n
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			e := edges[rapid.IntRange(0, 1).Draw(rt, "edge")]
			if len(tickets) == 0 || rapid.IntRange(0, 4).Draw(rt, "new") == 0 {
				tickets = append(tickets, []ticket.Ticket{e.Arrive(now, sale, ticket.Ticket{}).Ticket})
			}
			i := rapid.IntRange(0, len(tickets)-1).Draw(rt, "visitor")
			k := tickets[i][rapid.IntRange(max(0, len(tickets[i])-3), len(tickets[i])-1).Draw(rt, "ticket")]
			switch rapid.IntRange(0, 3).Draw(rt, "what") {
			case 0:
				e.Away(now, sale, k, k.Answer)
			case 1:
				now = now.Add(time.Duration(rapid.IntRange(0, 12_000).Draw(rt, "ms")) * time.Millisecond)
			default:
				tickets[i] = append(tickets[i], e.Arrive(now, sale, k).Ticket)
			}
		}
		if rapid.Bool().Draw(rt, "all stay") {
			for range 8 {
				for i, all := range tickets {
					k := all[len(all)-1]
					e := edges[rapid.IntRange(0, 1).Draw(rt, "edge")]
					tickets[i] = append(all, e.Arrive(now, sale, k).Ticket)
				}
				now = now.Add(10 * time.Second)
			}
			if n := total(); n != int64(len(tickets)) {
				rt.Fatalf("%d are counted, of %d who are there", n, len(tickets))
			}
		}
		now = now.Add(windowsKept * windowLen * time.Second)
		if n := total(); n != 0 {
			rt.Fatalf("%d are counted, and nobody is there", n)
		}
	})
}

// TestWhatIsKnownOfThoseWhoGoAwayIsBounded: visitors beyond the limit stay counted, so that none is removed twice.
func TestWhatIsKnownOfThoseWhoGoAwayIsBounded(t *testing.T) {
	const limit = 100
	e, _ := awayEdge(t, 1, limit)
	a := &stateOf(e).line.queue.away
	for minute := range 5 {
		now := at(time.Duration(minute) * time.Minute)
		var all []ticket.Ticket
		gone := 0
		for range 2 * limit {
			k := e.Arrive(now, sale, e.Arrive(now, sale, ticket.Ticket{}).Ticket).Ticket
			all = append(all, k)
			if e.Away(now, sale, k, k.Answer) {
				gone++
			}
		}
		if n := counted(e, now); gone != limit || n != limit || len(a.byID) > limit || len(a.order) > limit {
			t.Fatalf("minute %d: %d of %d went away, %d are counted; %d and %d are remembered", minute, gone, 2*limit, n,
				len(a.byID), len(a.order))
		}
		if minute%2 > 0 {
			continue // nobody comes back
		}
		for _, k := range all {
			e.Arrive(now, sale, k)
		}
		if n := counted(e, now); n != 2*limit {
			t.Fatalf("minute %d: %d of %d are back", minute, n, 2*limit)
		}
	}
}
