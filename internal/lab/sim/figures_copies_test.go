package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/ticket/reuse"
	"vestibule/internal/core/wire"
)

// This file has the figures of robots, and of tickets that are shown more than once.

// seen is what visitors of a full room notice, summed over runs.
type seen struct {
	let          float64 // who entered
	people, told float64 // displayed number of waiting visitors, and estimates
	real, pages  float64 // true number of waiting visitors, and waiting pages
}

// compare compares the time from fill on with the same time in which something happens. Chance moves the estimate of
// one run by some per cent, so there are several.
func compare(f *Finding, config func(seed uint64) Config, happen func(w *World)) (with, without seen) {
	for seed := range uint64(6) {
		for i, s := range []*seen{&without, &with} {
			w := filled(config(seed+1), nil)
			if i == 1 {
				happen(w)
			}
			f.run(w)
			m := w.meters
			s.let, s.people, s.told = s.let+float64(m.Inside-m.robots), s.people+m.people, s.told+m.told
			s.real, s.pages = s.real+m.real, s.pages+float64(m.tellings)
		}
	}
	return with, without
}

// flood sends robots to a room of 600 with a queue of 500.
func flood(f *Finding) {
	const length = 2 * time.Minute
	hits := 0
	with, without := compare(f, func(seed uint64) Config {
		c := busy(seed)
		c.Total, c.Demand.PerMinute, c.People.Patience = 600, 450, 3*time.Minute
		c.Length = fill + length
		return c
	}, func(w *World) {
		w.bring(&crowd{from: fill, until: fill + length, perSecond: 10_000, behave: func(v *visitor) {
			hits++
			noCookies(v)
		}})
	})
	people, told := with.let/without.let-1, with.told/with.pages/(without.told/without.pages)-1
	f.judge("flood: change of throughput", "", 100*people)
	f.judge("flood: change of the forecast", "", 100*told)
	f.add("", "%+.1f %% / %+.1f %% (%d hits)", 100*people,
		100*told, hits)
}

// replayed presents old tickets beside a queue of 500. The displayed numbers are compared with the true queue: a few of
// the tickets are valid and take their permits.
func replayed(f *Finding) {
	const length = 5 * time.Minute
	shown := 0
	with, without := compare(f, func(seed uint64) Config {
		c := busy(seed)
		c.Centres, c.Edges = 2, 2
		c.Demand.PerMinute, c.People.Patience = 1150, 3*time.Minute
		c.Length = fill + length
		return c
	}, func(w *World) {
		w.in(fill-30*time.Second, func() {
			w.replay(w.oldTickets(25), fill, fill+length, 1000, &shown)
		})
	})
	let := with.let/without.let - 1
	people := with.people/with.real/(without.people/without.real) - 1
	told := with.told/with.real/(without.told/without.real) - 1
	f.judge("replays: change of throughput", "", 100*let)
	f.judge("replays: change of visitors shown", "", 100*people)
	f.judge("replays: change of the forecast", "", 100*told)
	f.add("", "%+.1f %% / %+.1f %% / %+.1f %% (%d shown)", 100*let, 100*people, 100*told, shown)
}

// boundCopies compares copies by the binding of tickets: none, to networks of five clients each, to the address of each
// client.
func boundCopies(f *Finding, session bool) {
	none := math.MaxInt // clients inside at first, without binding
	for i, bind := range []struct {
		name string
		of   func(client int) ticket.Network
	}{
		{"none", func(int) ticket.Network { return 0 }},
		{"network", func(client int) ticket.Network { return ticket.Network(2 + 2*(client%10)) }},
		{"strict", func(client int) ticket.Network { return ticket.Network(3 + 2*client) }},
	} {
		seen := copying{clients: 50, roam: true, session: session, network: bind.of}.inside(f)
		of := "place, " + bind.name
		if session {
			of = "session, " + bind.name
		}
		f.judge("copied ticket: inside 60 s after the turn", of, float64(seen[2]))
		f.judge("copied ticket: inside 120 s after the turn", of, float64(seen[3]))
		if i > 0 {
			f.judge("copied ticket: inside 15 s after the turn beside ticket_binding none", of, float64(seen[0])/float64(none))
		}
		f.add("; ", "%s %d / %d / %d / %d", bind.name, seen[0], seen[1],
			seen[2], seen[3])
		if i == 0 {
			none = seen[0]
		}
	}
}

// copying has clients with copies of one ticket: of the place, or of the session.
type copying struct {
	clients int
	roam    bool // to any edge with every request
	session bool
	network func(client int) ticket.Network // nil for none
	life    time.Duration                   // of sessions; a minute by default
	// time to the next request inside; nil for 5 to 15 s
	next func(now int64, client, clients int, rng *rand.Rand) time.Duration
}

// inside returns how many clients are inside with the ticket, 15 s, 30 s, 60 s and 120 s after the first admission; in
// place of the last, five sessions after it where their length is given.
func (o copying) inside(f *Finding) (seen [4]int) {
	c := Defaults()
	c.Centres, c.Edges, c.Length = 1, 4, 12*time.Minute
	c.Total, c.Rate, c.Session, c.Demand.PerMinute = 100, 6000, time.Minute, 200
	c.People.Think = 10 * time.Second
	last := 2 * time.Minute
	if o.life > 0 {
		c.Session, last = o.life, 5*o.life
		c.Length, c.Total, c.Demand.PerMinute = 4*time.Minute+last, 2000, 0
	}
	w := New(c)
	place := w.foreign()
	jars := make([]ticket.Ticket, o.clients)
	rng := rand.New(rand.NewPCG(1, 0x636f7079))
	entered := false
	inside := func() (n int) {
		for _, t := range jars {
			if t.ID == place.ID && t.Valid(w.fleetTime()) {
				n++
			}
		}
		return n
	}
	seen = [4]int{-1, -1, -1, -1}
	var ask func(i int)
	ask = func(i int) {
		n := w.edges.all[i%4]
		if o.roam {
			n = w.edges.all[rng.IntN(4)]
		}
		if o.network != nil {
			jars[i].Network = o.network(i)
		}
		d := w.ask(n, jars[i])
		next := time.Second + time.Duration(rng.Int64N(int64(time.Second)))
		switch {
		case d.Enters():
			if next = 5*time.Second + time.Duration(rng.Int64N(int64(10*time.Second))); o.next != nil {
				next = o.next(w.now, i, o.clients, rng)
			}
			if !entered && d.Ticket.ID == place.ID {
				entered = true
				for j, later := range []time.Duration{15 * time.Second, 30 * time.Second, time.Minute, last} {
					w.in(later, func() { seen[j] = inside() })
				}
				for j := 1; o.session && j < o.clients; j++ {
					jars[j] = d.Ticket
					w.in(time.Duration(rng.Int64N(int64(2*time.Second))), func() { ask(j) })
				}
			}
		case d.Verdict == admission.Hold:
			w.hold(n, d.Ticket, jars[i], 500*time.Millisecond)
		}
		jars[i] = d.Ticket
		w.in(next, func() { ask(i) })
	}
	w.in(3*time.Minute, func() {
		place.Joined, place.Epoch, place.Seen = w.fleetTime().Add(-time.Minute), w.operator.epoch,
			uint32(w.fleetTime().Second())
		for i := range jars {
			if jars[i] = place; i == 0 || !o.session {
				ask(i)
			}
		}
	})
	f.run(w)
	return seen
}

// manyTabs has browsers with many parallel requests, from changing networks, behind a balancer that picks any edge.
// Answers are lost and late.
func manyTabs(f *Finding) {
	out := 0
	for _, session := range []time.Duration{10 * time.Second, time.Minute, 5 * time.Minute} {
		longest, twice := time.Duration(0), 0.0
		for seed := range uint64(4) {
			n, d, part := tabs(f, seed+1, session)
			out, longest, twice = out+n, max(longest, d), twice+part/4
		}
		f.judge("20 tabs: counted twice, in ticket lives", session.String(), longest.Seconds()/float64(wire.Life(session)))
		f.add(" / ", "%.1f s (%.1f %% of the time)",
			longest.Seconds(), 100*twice)
	}
	f.judge("20 tabs: sessions lost", "", float64(out))
	f.Seen = fmt.Sprintf("%d; %s", out, f.Seen)
}

// tabs returns how often a browser with many tabs loses its session within an hour, the longest time of being counted
// more than once, and the fraction of that time.
func tabs(f *Finding, seed uint64, session time.Duration) (out int, longest time.Duration, part float64) {
	c := Defaults()
	c.Seed, c.Centres, c.Edges, c.Length = seed, 1, 4, time.Hour
	c.Total, c.Rate, c.Session, c.Demand.PerMinute = 100, 600, session, 0
	w := New(c)
	rng := rand.New(rand.NewPCG(seed, 0x74616273))
	var jar ticket.Ticket
	var page func()
	page = func() {
		requests := 1 + rng.IntN(20)
		if rng.IntN(4) == 0 {
			requests = 50
		}
		for range requests {
			d := w.ask(w.edges.all[rng.IntN(4)], jar)
			if !d.Enters() {
				out++
			}
			if !d.Reseal || rng.IntN(10) == 0 {
				continue
			}
			late := time.Duration(rng.Int64N(int64(2 * time.Second)))
			if slow := time.Duration(rng.Int64N(int64(session / 3))); rng.IntN(10) == 0 && slow > reuse.InFlight*time.Second/2 {
				late += slow
				d.Ticket.Seen += uint32(slow / time.Second)
			}
			w.in(late, func() { jar = d.Ticket })
		}
		w.in(time.Duration(rng.Int64N(int64(session/3))), page)
	}
	twice := int64(0)
	w.in(10*time.Second, func() {
		jar = w.foreign()
		jar.Epoch = w.operator.epoch
		page()
		w.each(100*time.Millisecond, func() {
			if n, _ := w.counted(); n <= 1 {
				twice = w.now
			} else {
				part += 0.1 / time.Hour.Seconds()
			}
			longest = max(longest, time.Duration(w.now-twice))
		})
		twice = w.now
	})
	f.run(w)
	return out, longest, part
}

// TestRequestsAtOnceAreOneSession: fifty parallel requests of a page take one permit.
func TestRequestsAtOnceAreOneSession(t *testing.T) {
	t.Parallel()
	f := measured(parallelAsOne)
	f.check(t)
}

// parallelAsOne sends fifty parallel requests with one ticket, twice: when its turn has come, and when its session
// needs renewal.
func parallelAsOne(f *Finding) {
	c := Defaults()
	c.Centres, c.Edges, c.Length = 1, 4, 4*time.Minute
	c.Total, c.Rate, c.Session, c.Demand.PerMinute = 100, 600, time.Minute, 0
	w := New(c)
	var admitted, renewed, later int64
	w.in(10*time.Second, func() {
		first := w.edges.all[0].core.Arrive(w.edges.all[0].clock.read(w.now), w.room, w.foreign())
		last := first.Ticket
		parallel := func(t ticket.Ticket) {
			for k := range 50 {
				if d := w.ask(w.edges.all[k%4], t); d.Enters() {
					last = d.Ticket
				}
			}
		}
		parallel(last)
		w.in(2*time.Second, func() { admitted, _ = w.counted() })
		w.in(20*time.Second, func() { parallel(last) })
		w.in(22*time.Second, func() { renewed, _ = w.counted() })
		// The second of its first stamp is over, that of the renewal is not.
		w.in(time.Duration(wire.Life(c.Session)+6)*time.Second, func() { later, _ = w.counted() })
	})
	f.run(w)
	for of, n := range map[string]int64{"admitted": admitted, "renewed": renewed, "later": later} {
		f.judge("50 requests of one page: sessions counted", of, float64(n))
	}
	f.add("", "%d admitted, %d renewed, %d once the first second is over", admitted, renewed, later)
}
