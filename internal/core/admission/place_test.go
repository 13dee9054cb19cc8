package admission

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
	"vestibule/internal/lab/figures"
)

// drawnAt is the place of ticket id in these tests, distinct from every join time.
func drawnAt(id uint64) fleettime.Time { return day - 3600_000 + fleettime.Time(id*7919%3000)*1000 }

// waitingAt returns the waiting visitors by the second of their place, summed over queues.
func waitingAt(queues ...*queue) map[int64]float64 {
	sum := map[int64]float64{}
	for _, q := range queues {
		for _, s := range q.wait.histogram() {
			if sum[s.Start.Second()] += s.N; sum[s.Start.Second()] == 0 {
				delete(sum, s.Start.Second())
			}
		}
	}
	return sum
}

// TestAPlaceMovesWithItsPerson sends requests with all versions of tickets to two edges, each of which learns of
// changed places at some time, next to twins that never do. For any requests each edge counts as many visitors as
// its twin, per window. If only newest tickets are presented, each visitor is counted once, under its place; and a
// minute later that holds after any requests.
func TestAPlaceMovesWithItsPerson(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var real, twin [2]queue
		for i := range real {
			limit := rapid.IntRange(0, 5).Draw(t, "limit")
			real[i], twin[i] = newQueue(limit), newQueue(limit)
			real[i].answers = uint8(100 * i) // two edges rarely give the same
			twin[i].answers = real[i].answers
		}
		now := day
		var drawn [2]bool
		type version struct{ real, twin ticket.Ticket }
		var people [][]version
		plain := rapid.Bool().Draw(t, "plain") // only newest versions are presented, and all responses arrive
		least := 0
		if plain {
			least = 4
		}
		newest := func(i int) *version { return &people[i][len(people[i])-1] }
		show := func(e int, v version) version {
			place := v.real.Place()
			if drawn[e] {
				place = drawnAt(v.real.ID)
			}
			a := real[e].checkIn(now, &v.real, place)
			b := twin[e].checkIn(now, &v.twin, v.twin.Place())
			if v.real.Place() != place || a != b {
				t.Fatalf("place %v, want %v; counted anew %v, the twin %v", v.real.Place(), place, a, b)
			}
			return v
		}
		same := func() {
			for e := range real {
				real[e].wait.advance(now)
				twin[e].wait.advance(now)
				if a, b := real[e].wait.sum, twin[e].wait.sum; a != b {
					t.Fatalf("edge %d counts %d, its twin %d", e, a, b)
				}
				for i := range real[e].wait.windows {
					a, b := int32(0), int32(0)
					for _, n := range real[e].wait.windows[i].counts {
						a += n
					}
					for _, n := range twin[e].wait.windows[i].counts {
						b += n
					}
					if a != b {
						t.Fatalf("edge %d counts %d in window %d, its twin %d", e, a, i, b)
					}
				}
			}
			for i := range people {
				a, b := newest(i).real, newest(i).twin
				if a.Seen != b.Seen || a.Answer != b.Answer || a.Flags != b.Flags {
					t.Fatalf("the ticket is %+v, the twin's %+v", a, b)
				}
			}
		}
		places := func(want map[int64]float64) {
			if got := waitingAt(&real[0], &real[1]); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("counted by place: %v, want %v", got, want)
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			e := rapid.IntRange(0, 1).Draw(t, "edge")
			if len(people) == 0 || rapid.IntRange(0, 5).Draw(t, "new") == 0 {
				k := ticket.Ticket{ID: uint64(len(people) + 1), Joined: now, Seen: uint32(now.Second())}
				people = append(people, []version{{k, k}})
			}
			i := rapid.IntRange(0, len(people)-1).Draw(t, "person")
			v := *newest(i)
			if !plain {
				v = people[i][rapid.IntRange(0, len(people[i])-1).Draw(t, "version")]
			}
			switch what := rapid.IntRange(least, 9).Draw(t, "what"); what {
			case 0: // the page goes away
				a, b := real[e].depart(now, &v.real), twin[e].depart(now, &v.twin)
				if a != b {
					t.Fatalf("departs: %v, the twin %v", a, b)
				}
			case 1: // the response is lost
				was := v
				v = show(e, v)
				a, b := real[e].moved(&was.real, &v.real), twin[e].moved(&was.twin, &v.twin)
				if a != b {
					t.Fatalf("is to be undone: %v, the twin %v", a, b)
				}
				if a {
					real[e].undo(now, &was.real, &v.real)
					twin[e].undo(now, &was.twin, &v.twin)
				}
			case 2: // the visitor leaves, and returns later
				for _, x := range []struct {
					q *queue
					k *ticket.Ticket
				}{{&real[e], &v.real}, {&twin[e], &v.twin}} {
					x.q.advanceBooks(now)
					if x.q.newest(x.k); x.k.Flags&ticket.Returned != 0 {
						x.q.uncount(x.k)
					}
				}
			case 3: // from a network over its limit
				v.real.Uncounted, v.twin.Uncounted = true, true
				v = show(e, v)
				v.real.Uncounted, v.twin.Uncounted = false, false
				people[i] = append(people[i], v)
			case 8:
				drawn[e] = true
			case 9:
				now = now.Add(time.Duration(rapid.IntRange(0, 12_000).Draw(t, "ms")) * time.Millisecond)
			default:
				people[i] = append(people[i], show(e, v))
			}
			same()
			if plain {
				want := map[int64]float64{}
				for i := range people {
					if k := newest(i).real; k.Flags&ticket.Returned != 0 && real[0].wait.live(k.Seen) {
						want[k.Place().Second()]++
					}
				}
				places(want)
			}
		}
		drawn = [2]bool{true, true}
		for range 8 {
			for i := range people {
				e := rapid.IntRange(0, 1).Draw(t, "edge")
				people[i] = append(people[i], show(e, *newest(i)))
			}
			same()
			now = now.Add(9 * time.Second)
		}
		want := map[int64]float64{}
		for i := range people {
			want[drawnAt(newest(i).real.ID).Second()]++
		}
		places(want)
	})
}

// TestAMovedPlaceDecides: only the place decides the order, not the rest of the ticket; waits shown for an earlier
// place are dropped.
func TestAMovedPlaceDecides(t *testing.T) {
	e, r := newEdge(t, at(0), 5, 5)
	r.held.View = view(40, day-30_000, day-10_000)
	r.grant(at(0), 0, 0)
	arrive := func(k ticket.Ticket) Decision { return e.Arrive(at(0), sale, k) }
	first, last := waiting(1, time.Hour+50*time.Second), waiting(2, time.Hour+5*time.Second)
	first.SetPlace(day - 5_000)
	last.SetPlace(day - 50_000)
	if d := arrive(first); d.Verdict != Queue || d.Reason != Behind || d.Ahead < 30 {
		t.Errorf("who joined first and stands behind: %v (%v), %d ahead", d.Verdict, d.Reason, d.Ahead)
	}
	gets(t, arrive(last), Admit, "who joined last and stands in front")
	d := Decision{Verdict: Admit, Reason: Permit, Ticket: ticket.Ticket{
		Joined: day, Placed: day - 3600_000,
		Admitted: uint32(day.Second()) + 60, Forecast: 1, Answer: 1,
	}}
	if _, actual, ok := d.Outcome(); !ok || actual != time.Minute {
		t.Errorf("waited %v, want the minute since joining", actual)
	}
	q := newQueue(10)
	k := waiting(3, time.Minute)
	q.advanceBooks(day.Add(time.Hour))
	k.Ahead, k.Low, k.Longer, k.Forecast = 9, 8, 7, 6
	q.checkIn(day.Add(time.Hour), &k, day)
	if k.Place() != day || k.Joined == day || k.Wait != 0 || k.High != 0 || k.Ahead != 0 || k.Low != 0 || k.Longer != 0 ||
		k.Forecast != 0 {
		t.Errorf("after the place has changed the ticket says %+v", k)
	}
}

// TestPlacesFarAwayAreCountedAtTheEnds: a place is sealed and therefore trusted, but no book grows beyond its
// bounds by one, and its visitor enters after all others.
func TestPlacesFarAwayAreCountedAtTheEnds(t *testing.T) {
	var w waitBook
	w.advance(present)
	seen := uint32(present.Second())
	for _, place := range []fleettime.Time{
		1, present.Add(-100 * time.Hour), present, present.Add(100 * time.Hour),
		1<<48 - 1,
	} {
		w.add(place, seen, 1)
	}
	h := w.histogram()
	if h.Total() != 5 || len(h) != 3 || h[0].N != 2 || h[2].N != 2 {
		t.Errorf("counted as %v", h)
	}
	if n := len(w.total); n > 2*maxLine+1 {
		t.Errorf("%d cells are kept", n)
	}
	for _, place := range []fleettime.Time{
		1, present.Add(-100 * time.Hour), present, present.Add(100 * time.Hour),
		1<<48 - 1,
	} {
		w.add(place, seen, -1)
	}
	if w.sum != 0 || w.histogram() != nil {
		t.Errorf("%d are left: %v", w.sum, w.histogram())
	}

	e, r := newEdge(t, at(0), 0, 0)
	late, early := waiting(1, time.Minute), waiting(2, time.Minute)
	late.SetPlace(1<<48 - 1)
	early.SetPlace(1)
	r.held.View = &wire.View{
		Version: 1, At: day.Add(time.Hour), Cutoff: day, Park: day, Mu: 1,
		Line: estimate.NewDigest(h),
	}
	r.grant(at(0), 1, 1)
	getsFor(t, e.Arrive(at(0), sale, late), Queue, Behind, "the last place of all")
	gets(t, e.Arrive(at(0), sale, early), Admit, "the first place of all")
	r.held.View = nil // nobody queues
	r.grant(at(0), 1, 1)
	stateOf(e).line.view = nil
	gets(t, e.Arrive(at(0), sale, late), Admit, "the last place of all where nobody queues")
}

// TestAPageThatReloadsKeepsItsPlace: a page whose script does not run is loaded again after the time that it was told.
// Its visitor keeps its place for half an hour, and is counted throughout.
func TestAPageThatReloadsKeepsItsPlace(t *testing.T) {
	now := at(0)
	e, r := newEdge(t, now, 0, 0)
	e.SetRooms(now, []Room{{ID: sale, Shut: QueuedAll}})
	d := e.Arrive(now, sale, ticket.Ticket{})
	first, loads, lost := d.Ticket, 0, 0
	for begun := now; now.Sub(begun) < 30*time.Minute; loads++ {
		gets(t, d, Queue, "load %d", loads)
		if d.Retry <= 0 || d.Retry > time.Minute {
			t.Fatalf("load %d: again after %v", loads, d.Retry)
		}
		if d.Ticket.ID != first.ID || d.Ticket.Joined != first.Joined {
			t.Logf("load %d: place %+v, at first %+v", loads, d.Ticket, first)
			lost++
		}
		if n := e.Ledger(now, sale).Waiting; loads > 0 && n != 1 {
			t.Fatalf("load %d: %d are counted", loads, n)
		}
		now = now.Add(d.Retry)
		r.lease(now)
		d = e.Arrive(now, sale, d.Ticket)
	}
	figures.Check(t, "page: places lost in 30 min of reloads", "", float64(lost))
	if loads < 30 {
		t.Errorf("%d loads in half an hour", loads)
	}
}

// TestSpace: a room has space if a newcomer would enter.
func TestSpace(t *testing.T) {
	now := at(0)
	for name, c := range map[string]struct {
		credit uint64
		room   Room
		do     func(e *Engine, r *regional)
		want   bool
	}{
		"permits":   {credit: 2, want: true},
		"none here": {},
		"some elsewhere": {do: func(_ *Engine, r *regional) {
			r.held.View = &wire.View{Version: 1, Cutoff: estimate.Open, Free: 3}
			r.grant(now, 0, 0)
		}, want: true},
		"a line": {credit: 2, do: func(_ *Engine, r *regional) {
			r.held.View = view(5, day, day)
			r.grant(now, 0, 0)
		}},
		"everybody waits": {credit: 2, room: Room{Shut: QueuedAll}},
		"rejected":        {credit: 2, room: Room{Shut: Rejected}},
		"the site is down": {credit: 2, do: func(e *Engine, _ *regional) {
			e.Rooms.Pause(now, sale, true)
		}},
	} {
		e, r := newEdge(t, now, c.credit, c.credit)
		c.room.ID = sale
		e.SetRooms(now, []Room{c.room})
		if c.do != nil {
			c.do(e, r)
		}
		if got := e.Rooms.Space(now, sale); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	e, _ := newEdge(t, now, 2, 2)
	if e.Rooms.Space(now, sale+1) || e.Rooms.Space(now.Add(time.Hour), sale) {
		t.Error("an unknown room, or an edge without a lease, has space")
	}
}
