package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/ticket/reuse"
	"vestibule/internal/core/wire"
)

// Figure is one measurable property of the whole system, its goal, and the experiment that measures it.
type Figure struct {
	Name string
	Goal string
	Show func() Finding
}

// Finding is the result of an experiment.
type Finding struct {
	Seen  string
	Met   bool
	Bound string // the limiting resource, if not obvious
	Fault string // a broken promise
}

// Figures returns all figures, in the order of display. Each has its own experiments with fixed seeds: equal code gives
// equal figures.
func Figures() []Figure {
	const edges, centre = "use of T, every edge crashes once in 10 min and is back after ", "use of T, one of three data centres cut off for 12 min, "
	return []Figure{
		{"use of T, no faults", ">= 0.99", func() Finding { return useOf(0.99, false, nil) }},
		{edges + "2 s, serve", ">= 0.99", func() Finding { return useOf(0.99, false, crashEveryEdge(2*time.Second)) }},
		{edges + "2 s, cap", ">= 0.99", func() Finding { return useOf(0.99, true, crashEveryEdge(2*time.Second)) }},
		{edges + "10 s, cap", ">= 0.99", func() Finding { return useOf(0.99, true, crashEveryEdge(10*time.Second)) }},
		{edges + "10 s, serve", "", func() Finding {
			f := useOf(0, false, crashEveryEdge(10*time.Second))
			f.Bound = "an edge that is silent for longer than its lease may be renewing: what was last seen there counts until one session after it is back"
			return f
		}},
		{"use of T, 4 of 10 edges killed for good, serve, told after 10 s; from session_duration + 60 s on", ">= 0.95", func() Finding { return killedForGood(0.95, true) }},
		{"use of T, 4 of 10 edges killed for good, serve, nobody tells; from session_duration + 60 s on", "", func() Finding {
			f := killedForGood(0, false)
			f.Bound = "an edge that is silent may be renewing: what it held counts until lost_after, unless somebody who knows says that it has ended"
			return f
		}},
		{centre + "serve", ">= 0.95", func() Finding { return useOf(0.95, false, cutOneCentre) }},
		{centre + "cap", ">= 0.95", func() Finding { return useOf(0.95, true, cutOneCentre) }},
		{"use of T, coordinator dead for 10 min, serve", ">= 0.97", func() Finding { return useOf(0.97, false, loseGlobal) }},
		{"use of T, coordinator dead for 10 min, cap", "", func() Finding {
			f := useOf(0, true, loseGlobal)
			f.Bound = "under cap nobody is let in once the leases of the data centres have ended, after 60 s; that is what cap means, and standbys are for"
			return f
		}},
		{"use of T, coordinator dead for an hour, serve; people put out", ">= 0.97; 0", hourWithoutGlobal},
		{"sessions of 10 s, T of 50 to 400, no faults: people put out; with every edge crashing once in 10 min: use of T", "0; >= 0.97", sessionsOfTenSeconds},
		{"spike 0 to 20x in 10 s into one idle data centre: peak sessions / T", "<= 1.000", func() Finding { return spikeIntoOne(true) }},
		{"spike 0 to 20x in 10 s into one idle data centre: queued while slots were free", "<= 0.1 %", func() Finding { return spikeIntoOne(false) }},
		{"order spread p50 / p99, from the strict order of arrival", "<= 1 s / <= 4 s", orderStrict},
		{"order spread p50 / p99, from the median of the last 100 admissions", "<= 1 s / <= 4 s", orderMedian},
		{"an edge crashes and restarts, everybody leaves: slots in use again after", "<= session_duration + 30 s", restartedEdge},
		{"peak sessions / T over runs with faults, cap", "<= 1.000", func() Finding { return peakOverFaults(40) }},
		{"serve, a data centre is cut off and its visitors move to others: peak sessions / T / overcommit told", "<= 1 / 0", moveOut},
		{"serve, an edge is cut off and its visitors go elsewhere and back: sessions above T, as many as told at most", "<= told <= moved", awayAndBack},
		{"a data centre is added and drained ten times, coordinators with older lists lead in turn: peak sessions / T, admissions in 60 s / R", "<= 1.000 / <= 1.000", changingFleet},
		{"one hour without NATS, serve: errors or waiting pages seen by people inside", "0", hourAlone},
		{"10,000 cookie-less hits/s for 2 min beside 1,000 people: change of throughput / of the estimate", "< 5 % / < 5 %", flood},
		{"1,000 replays/s of 100 old tickets over four edges for 5 min beside 450 people who wait: change of throughput / of people told of for each who waits / of the estimate for each", ">= -5 % / <= 5 % / <= 5 %", func() Finding { return replayed(100, 1000) }},
		{"one old ticket 20 times a second: the same", ">= -5 % / <= 5 % / <= 5 %", func() Finding { return replayed(1, 20) }},
		{"50 clients with one waiting ticket over 4 edges, sessions of 60 s: of them inside 15 s / 30 s / 60 s / 120 s after its turn, each at one edge", "1 after 60 s", func() Finding { return copies(50, false) }},
		{"the same, at any edge with every request", "1 after 60 s", func() Finding { return copies(50, true) }},
		{"the same with 4 clients, each at an edge of its own", "1 after 60 s", func() Finding { return copies(4, false) }},
		{"50 clients with one waiting ticket in 10 networks, any of 4 edges, sessions of 60 s: inside with it 15 s / 30 s / 60 s / 120 s after its turn by ticket_binding", "fewer than with none; 1 after 60 s", func() Finding { return boundCopies(false) }},
		{"the same, the ticket of a session", "fewer than with none; 1 after 60 s", func() Finding { return boundCopies(true) }},
		{"8 / 50 / 1000 clients with one waiting ticket at 4 edges, sessions of 5 min: inside with it after five of them, renewing in step within 4.9 s; in turns; at random", "1", func() Finding { return copiesInAnyRhythm(8, 50, 1000) }},
		{"a browser for an hour: 20 tabs, 50 requests at once, every tenth answer lost, others late, any edge with every request; sessions of 10 s / 60 s / 5 min: put out; counted twice for at most", "0; the life of a ticket", manyTabs},
		{"50 requests of one page at once over 4 edges: sessions counted", "1", parallelAsOne},
		{"forecast at joining over simulated sales: median of its error / share of waits inside the range", "<= 0.10 / 0.80 +- 0.05", func() Finding { return forecasts(40) }},
		{"crowds, what people are told: error of the first estimate against its goal, coverage off 0.8 by, told to be next in vain, rises without the word", "<= 1, <= 0.08, 0, 0", func() Finding { return crowds(8) }},
		{"crowds, all leaders replaced: error of the first forecast from then on, told to be next in vain", "<= 0.15, 0", func() Finding { return wordsAfterTakeovers(8) }},
		{"crowds, order: seconds later than in the strict order of the line, p99", "<= 1", func() Finding { return orderOfCrowds(8) }},
		{"rushes of 250 and 1,000 with waits over a minute: median error of the first estimate; people told above twice their wait / below half of it, over a minute before they enter", "<= 0.12; <= 1 % / <= 1 %", func() Finding { return rushesTold(20) }},
		{"crowds into rooms drawn at random, 30 of each kind: share of waits inside the range", "0.80 +- 0.08", func() Finding { return anyCrowds(30) }},
		{"after a cold start the leaders are replaced every 10 s for 5 min: first admission later by, cap / serve", "<= 10 s", flappingLeaders},
		{"an event with 200,000 people in the pre-queue over 5 data centres, whose coordinator is replaced 3 s before the start: first admission after the start; before it; peak sessions / T, admissions in 60 s / R", "<= 2 s; none; <= 1.000 / <= 1.000", eventStart},
		{"an event with 200,000 people in the pre-queue over 5 data centres that begins with a draw, whose coordinator is replaced 3 s before entries close: first admission after the start; let in before they were called by the place that was drawn; peak sessions / T, admissions in 60 s / R", "<= 2 s; <= 0.1 %; <= 1.000 / <= 1.000", drawStart},
		{"a room whose method is random, a line of a minute: share called within so many rounds off the law of the rounds by; throughput beside fifo; the median told off that of the waits by; waits inside the range", "<= 2 %; >= 0.99; <= 0.10; 0.80 +- 0.05", randomRounds},
		{"let in the next N (1 to 500) of a room that is paused, nothing fails: releases that let in fewer; all within", "0; 3 s", func() Finding { return releasesInPeace(1000) }},
		{"the same while coordinators end between taking and lending, aggregators and edges end, links are cut, messages come late and twice: releases that let in more than N", "0", func() Finding { return releasesInTrouble(1000) }},
		{"half of those in line subscribe and close the page, half of these never come back: use of T; waits of the others beside a fleet that these never came to", ">= 0.95; +- 5 %", awayUntilCalled},
		{"50 visitors/s who take a slot and leave: throughput left to the others", ">= 80 %", abandoners},
	}
}

// busy is a room of 2,000 with sessions of a minute, in three data centres of four edges each, with twice the visitors
// that it can serve.
func busy(seed uint64) Config {
	c := Defaults()
	c.Seed, c.Length, c.Probation = seed, 18*time.Minute, room.DefaultProbation
	c.Total, c.Rate, c.Session = 2000, 100_000, time.Minute
	c.People.Think = 10 * time.Second
	c.Demand.PerMinute = 2000
	return c
}

// fill is the time to fill a busy room before any measurement.
const fill = 5 * time.Minute

// use runs a busy room, calls happen once it is full, and returns the results from then on.
func use(c Config, happen func(w *World)) *Result {
	w := New(c)
	w.in(fill, w.meters.begin)
	if happen != nil {
		w.in(fill, func() { happen(w) })
	}
	return w.Run()
}

func useOf(goal float64, capped bool, happen func(w *World)) Finding {
	c := busy(1)
	c.Cap = capped
	r := use(c, happen)
	return Finding{Seen: fmt.Sprintf("%.4f", r.UseT), Met: r.UseT >= goal, Fault: r.Fault}
}

// crashEveryEdge ends every edge once within ten minutes, evenly spread; each restarts after later.
func crashEveryEdge(later time.Duration) func(w *World) {
	return func(w *World) {
		for i := range w.edges.all {
			at := 10 * time.Minute * time.Duration(i) / time.Duration(len(w.edges.all))
			w.in(at, func() { w.edges.end(int32(i)) })
			w.in(at+later, func() { w.edges.start(int32(i)) })
		}
	}
}

// killedForGood ends four of ten edges for good. told says whether an operator declares them dead.
func killedForGood(goal float64, told bool) Finding {
	c := busy(1)
	c.Centres, c.Edges, c.Length = 2, 5, fill+10*time.Minute
	w := New(c)
	w.in(fill, func() {
		for _, i := range []int32{0, 1, 5, 6} {
			w.edges.crash(i, 0, true)
			if told {
				w.in(10*time.Second, func() { w.centres.forgetEdge(i) })
			}
		}
	})
	w.in(fill+c.Session+time.Minute, w.meters.begin)
	r := w.Run()
	return Finding{Seen: fmt.Sprintf("%.4f", r.UseT), Met: r.UseT >= goal, Fault: r.Fault}
}

func cutOneCentre(w *World) { w.centres.cutFor(0, 12*time.Minute) }

func loseGlobal(w *World) { w.globals.end(10 * time.Minute) }

// hourWithoutGlobal has no coordinator for so long that no data centre is certain of the time any more.
func hourWithoutGlobal() Finding {
	c := busy(1)
	c.Length = fill + time.Hour + 5*time.Minute
	w := New(c)
	w.in(fill, w.meters.begin)
	w.in(fill, func() { w.globals.end(time.Hour) })
	r := w.Run()
	return Finding{
		Seen: fmt.Sprintf("%.4f; %d", r.UseT, w.meters.early), Met: r.UseT >= 0.97 && w.meters.early == 0, Fault: r.Fault,
	}
}

// shortSessions fills one data centre with sessions of ten seconds, which are renewed every second, and returns the
// number of active visitors that lost their session.
func shortSessions(total int, length time.Duration, crashes bool) (early int, use float64, fault string) {
	c := Defaults()
	c.Seed, c.Length, c.Centres = uint64(total), time.Minute+length, 1
	c.Total, c.Rate, c.Session = total, 100_000, 10*time.Second
	c.People.Pages, c.People.Think = 30, 4*time.Second
	c.Demand.PerMinute = float64(total) * 4
	w := New(c)
	w.in(time.Minute, w.meters.begin)
	if crashes {
		w.in(time.Minute, func() { crashEveryEdge(2 * time.Second)(w) })
	}
	r := w.Run()
	return w.meters.early, r.UseT, r.Fault
}

func sessionsOfTenSeconds() Finding {
	early, least := 0, 1.0
	for _, total := range []int{50, 100, 200, 400} {
		n, _, fault := shortSessions(total, 10*time.Minute, false)
		_, use, fault2 := shortSessions(total, 10*time.Minute, true)
		if fault+fault2 != "" {
			return Finding{Fault: fault + fault2}
		}
		early, least = early+n, min(least, use)
	}
	return Finding{Seen: fmt.Sprintf("%d; %.4f", early, least), Met: early == 0 && least >= 0.97}
}

// spikeIntoOne starts without visitors, then raises demand to 4,000 per minute within ten seconds, all in the second
// of four data centres.
func spikeIntoOne(peak bool) Finding {
	var came, early, most int
	const total = 2000
	for seed := range uint64(5) {
		c := busy(seed + 1)
		c.Centres, c.Length = 4, 5*time.Minute
		c.Demand = Demand{Spikes: []Spike{{At: time.Minute, Ramp: 10 * time.Second, Length: 3 * time.Minute, PerMinute: 4000, Centre: 2}}}
		r := New(c).Run()
		if r.Fault != "" {
			return Finding{Fault: r.Fault}
		}
		came, early, most = came+r.Arrived, early+r.QueuedFree, max(most, r.Peak)
	}
	if peak {
		return Finding{Seen: fmt.Sprintf("%d / %d = %.4f", most, total, float64(most)/total), Met: most <= total}
	}
	part := float64(early) / float64(came)
	return Finding{Seen: fmt.Sprintf("%d of %d = %.3f %%", early, came, 100*part), Met: part <= 0.001}
}

func orderStrict() Finding {
	r := use(busy(1), nil)
	return Finding{
		Seen: fmt.Sprintf("%.2f s / %.2f s at use %.4f", r.OrderP50, r.OrderP99, r.UseT),
		Met:  r.OrderP50 <= 1 && r.OrderP99 <= 4, Fault: r.Fault,
	}
}

// orderMedian measures like the prototype, which finds a distance even for strict order of arrival.
func orderMedian() Finding {
	w := New(busy(1))
	w.in(fill, w.meters.begin)
	r := w.Run()
	spread := spreads(w.meters.joined)
	strict := slices.Clone(w.meters.joined)
	slices.Sort(strict)
	least := spreads(strict)
	p50, p99 := quantile(spread, 0.5), quantile(spread, 0.99)
	return Finding{
		Seen: fmt.Sprintf("%.2f s / %.2f s", p50, p99), Met: p50 <= 1 && p99 <= 4, Fault: r.Fault,
		Bound: fmt.Sprintf("strict order of arrival would give %.2f s / %.2f s", quantile(least, 0.5), quantile(least, 0.99)),
	}
}

// spreads returns, per admission, the distance in seconds of the join time from the median of the last hundred.
func spreads(joined []int64) []float64 {
	var out []float64
	for i := 99; i < len(joined); i++ {
		last := slices.Clone(joined[i-99 : i+1])
		slices.Sort(last)
		out = append(out, math.Abs(float64(joined[i]-(last[49]+last[50])/2))/1e3)
	}
	return out
}

// restartedEdge crashes an edge in a full room whose visitors all leave then; the edge restarts two seconds later. It
// measures when the room is full again.
func restartedEdge() Finding {
	out := Finding{Met: true}
	for _, d := range []time.Duration{time.Minute, 5 * time.Minute} {
		c := busy(1)
		c.Session, c.Length = d, fill+3*d+4*time.Minute
		c.Demand.PerMinute = 4000
		w := New(c)
		took := time.Duration(-1)
		left := map[uint64]bool{}
		w.in(fill+d, func() {
			for i := range w.visitors.all {
				if v := &w.visitors.all[i]; v.inside {
					left[v.pass.ticket.ID] = true
				}
			}
			w.edges.end(0)
			w.visitors.goHome()
			w.in(2*time.Second, func() { w.edges.start(0) })
			began := w.now
			var look func()
			look = func() {
				others := w.sessions()
				for id := range left {
					if w.oracle.alive(id) {
						others--
					} else {
						delete(left, id)
					}
				}
				if took < 0 && float64(others) >= 0.999*float64(c.Total) {
					took = time.Duration(w.now - began)
					return
				}
				w.in(100*time.Millisecond, look)
			}
			look()
		})
		r := w.Run()
		if r.Fault != "" {
			return Finding{Fault: r.Fault}
		}
		if out.Seen != "" {
			out.Seen += ", "
		}
		out.Seen += fmt.Sprintf("%v + %.1f s", d, (took - d).Seconds())
		out.Met = out.Met && took >= 0 && took <= d+30*time.Second
	}
	out.Bound = "a ticket is valid for a tenth of session_duration longer, 20 s at most; what the crashed edge may have stamped is reserved for one lease more"
	return out
}

// peakOverFaults runs fleets under cap with all kinds of faults.
func peakOverFaults(seeds int) Finding {
	worst, done := 0.0, 0
	for seed := uint64(1); done < seeds; seed++ {
		c := VaryFaults(seed)
		if f := &c.Faults; !c.Cap || f.Limits || f.Events || f.ForNow { // peak / T is meaningless while T changes
			continue
		}
		done++
		r := New(c).Run()
		if r.Fault != "" {
			return Finding{Fault: r.Fault}
		}
		worst = max(worst, float64(r.Peak)/float64(c.Total))
	}
	return Finding{Seen: fmt.Sprintf("%.3f over %d seeds", worst, done), Met: worst <= 1}
}

// hourAlone lets visitors continue for an hour without any message between nodes.
func hourAlone() Finding {
	c := busy(1)
	c.Length = fill + time.Hour + time.Minute
	c.Session = 5 * time.Minute
	c.People.Pages, c.People.Think = 400, 20*time.Second
	c.Demand.PerMinute = 1000
	w := New(c)
	w.in(fill, w.meters.begin)
	people, stayed := 0, 0
	inside := func() int {
		n := 0
		for i := range w.visitors.all {
			if w.visitors.all[i].inside {
				n++
			}
		}
		return n
	}
	w.in(fill, func() { people = inside(); w.isolate(time.Hour) })
	w.in(fill+time.Hour, func() { stayed = inside() })
	r := w.Run()
	return Finding{
		Seen:  fmt.Sprintf("%d of %d people, %d of whom were still there after the hour", w.meters.early, people, stayed),
		Met:   w.meters.early == 0,
		Fault: r.Fault,
	}
}

// flood sends robots to a room of 600 with a queue of 500, and compares those minutes with the same minutes without
// robots. Chance moves the estimate of one run by some per cent, so there are several.
func flood() Finding {
	type seen struct{ people, told float64 }
	const length = 2 * time.Minute
	run := func(seed uint64, robots bool) (s seen, hits int, fault string) {
		c := busy(seed)
		c.Total, c.Demand.PerMinute, c.People.Patience = 600, 450, 3*time.Minute
		c.Length = fill + length
		w := New(c)
		w.in(fill, w.meters.begin)
		all := &crowd{from: fill, until: fill + length, perSecond: 10_000, centre: -1, behave: noCookies}
		if robots {
			w.visitors.bring(all)
		}
		r := w.Run()
		m := w.meters
		return seen{people: float64(m.inside - m.robots), told: m.told / float64(max(1, m.tellings))}, all.came, r.Fault
	}
	var with, without seen
	hits := 0
	for seed := range uint64(6) {
		a, _, fault := run(seed+1, false)
		b, n, fault2 := run(seed+1, true)
		if fault+fault2 != "" {
			return Finding{Fault: fault + fault2}
		}
		without.people, without.told = without.people+a.people, without.told+a.told
		with.people, with.told = with.people+b.people, with.told+b.told
		hits += n
	}
	people, told := with.people/without.people-1, with.told/without.told-1
	return Finding{
		Seen: fmt.Sprintf("%+.1f %% / %+.1f %% (%d hits)", 100*people, 100*told, hits),
		Met:  math.Abs(people) < 0.05 && math.Abs(told) < 0.05,
	}
}

// replayed presents old tickets beside a queue of 500, and compares those minutes with the same minutes without. A
// single ticket is a waiting visitor's. The displayed numbers are compared with the true queue: a few of the tickets
// are valid and take their permits.
func replayed(tickets int, perSecond float64) Finding {
	type seen struct{ let, people, told, real, tellings float64 }
	const length = 5 * time.Minute
	run := func(s *seen, seed uint64, perSecond float64) (shown int, fault string) {
		c := busy(seed)
		c.Centres, c.Edges = 2, 2
		c.Demand.PerMinute, c.People.Patience = 1150, 3*time.Minute
		c.Length = fill + length
		w := New(c)
		w.in(fill, w.meters.begin)
		old := &replays{from: fill, until: fill + length, perSecond: perSecond}
		w.in(fill-30*time.Second, func() {
			if old.tickets = w.visitors.oldTickets((tickets + 3) / 4); tickets == 1 {
				old.tickets = old.tickets[2:3]
			}
		})
		if perSecond > 0 {
			w.visitors.replay(old)
		}
		r := w.Run()
		m := w.meters
		s.let += float64(m.inside - m.robots)
		s.people, s.told, s.real, s.tellings = s.people+m.people, s.told+m.told, s.real+m.real, s.tellings+float64(m.tellings)
		return old.shown, r.Fault
	}
	var with, without, used seen // used: the same tickets, each as often as an active visitor requests
	shown := 0
	for seed := range uint64(6) {
		_, fault := run(&without, seed+1, 0)
		_, fault2 := run(&used, seed+1, float64(tickets)/10)
		n, fault3 := run(&with, seed+1, perSecond)
		if fault+fault2+fault3 != "" {
			return Finding{Fault: fault + fault2 + fault3}
		}
		shown += n
	}
	let := with.let/without.let - 1
	people := with.people/with.real/(without.people/without.real) - 1
	told := with.told/with.real/(without.told/without.real) - 1
	raw := func(than *seen) string {
		per := func(a, b float64) float64 { return 100 * (a/with.tellings/(b/than.tellings) - 1) }
		return fmt.Sprintf("%+.1f %% let in, %+.1f %% told of, %+.1f %% estimate, %+.1f %% really waiting",
			100*(with.let/than.let-1), per(with.people, than.people), per(with.told, than.told), per(with.real, than.real))
	}
	return Finding{
		Seen:  fmt.Sprintf("%+.1f %% / %+.1f %% / %+.1f %% (%d shown)", 100*let, 100*people, 100*told, shown),
		Met:   let >= -0.05 && people <= 0.05 && told <= 0.05,
		Bound: "against the runs without replays: " + raw(&without) + "; in which each of those tickets is shown every 10 s: " + raw(&used),
	}
}

// copies gives one ticket near its turn to many independent clients, in a room filled by others.
func copies(clients int, roam bool) Finding {
	seen, fault := copying{clients: clients, roam: roam}.inside()
	return Finding{
		Seen: fmt.Sprintf("%d / %d / %d / %d", seen[0], seen[1], seen[2], seen[3]), Met: seen[2] == 1 && seen[3] == 1, Fault: fault,
	}
}

// boundCopies compares copies by the binding of tickets: none, to networks of five clients each, to the address of each
// client.
func boundCopies(session bool) Finding {
	f := Finding{Met: true}
	var none [4]int
	for i, bind := range []struct {
		name string
		of   func(client int) ticket.Network
	}{
		{"none", func(int) ticket.Network { return 0 }},
		{"network", func(client int) ticket.Network { return ticket.Network(2 + 2*(client%10)) }},
		{"strict", func(client int) ticket.Network { return ticket.Network(3 + 2*client) }},
	} {
		seen, fault := copying{clients: 50, roam: true, session: session, network: bind.of}.inside()
		if f.Fault = fault; fault != "" {
			return f
		}
		if i == 0 {
			none = seen
		} else {
			f.Seen += "; "
		}
		f.Seen += fmt.Sprintf("%s %d / %d / %d / %d", bind.name, seen[0], seen[1], seen[2], seen[3])
		f.Met = f.Met && (i == 0 || seen[0] < none[0]) && seen[2] == 1 && seen[3] == 1
	}
	return f
}

// copiesInAnyRhythm gives one ticket to clients that renew it in several rhythms.
func copiesInAnyRhythm(sizes ...int) Finding {
	const every = 5 * time.Second
	f := Finding{Met: true}
	sep := ""
	for _, next := range []func(now int64, client, clients int, rng *rand.Rand) time.Duration{
		func(now int64, _, _ int, rng *rand.Rand) time.Duration {
			return every - time.Duration(now)%every + time.Duration(rng.Int64N(int64(4900*time.Millisecond)))
		},
		func(now int64, client, clients int, _ *rand.Rand) time.Duration {
			return every - time.Duration(now)%every + every*time.Duration(client)/time.Duration(clients)
		},
		func(_ int64, _, _ int, rng *rand.Rand) time.Duration {
			return time.Duration(rng.Int64N(int64(2 * every)))
		},
	} {
		for _, clients := range sizes {
			seen, fault := copying{clients: clients, roam: true, life: 5 * time.Minute, next: next}.inside()
			if fault != "" {
				return Finding{Fault: fault}
			}
			f.Seen += fmt.Sprintf("%s%d", sep, seen[3])
			f.Met, sep = f.Met && seen[3] == 1, " / "
		}
		sep = "; "
	}
	return f
}

// copying has clients with copies of one ticket: of the place, or of the session.
type copying struct {
	clients int
	roam    bool // to any edge with every request
	session bool
	network func(client int) ticket.Network                                    // nil for none
	life    time.Duration                                                      // of sessions; a minute by default
	next    func(now int64, client, clients int, rng *rand.Rand) time.Duration // time to the next request inside; nil for 5 to 15 s
}

// inside returns how many clients are inside with the ticket, 15 s, 30 s, 60 s and 120 s after the first admission; in
// place of the last, five sessions after it where their length is given.
func (o copying) inside() (seen [4]int, fault string) {
	clients, roam, session := o.clients, o.roam, o.session
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
	place := w.visitors.foreign()
	jars := make([]ticket.Ticket, clients)
	rng := rand.New(rand.NewPCG(1, 0x636f7079))
	entered := int64(0)
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
		k := int32(i % 4)
		if roam {
			k = int32(rng.IntN(4))
		}
		n := w.edges.all[k]
		if o.network != nil {
			jars[i].Network = o.network(i)
		}
		d := n.core.Arrive(n.clock.read(w.now), w.room, jars[i])
		w.edges.wake(k)
		next := time.Second + time.Duration(rng.Int64N(int64(time.Second)))
		switch {
		case d.Enters():
			w.oracle.issued(&visitor{edge: k}, d)
			if next = 5*time.Second + time.Duration(rng.Int64N(int64(10*time.Second))); o.next != nil {
				next = o.next(w.now, i, clients, rng)
			}
			if entered == 0 && d.Ticket.ID == place.ID {
				entered = w.now
				for j, later := range []time.Duration{15 * time.Second, 30 * time.Second, time.Minute, last} {
					w.in(later, func() { seen[j] = inside() })
				}
				for j := 1; session && j < clients; j++ {
					jars[j] = d.Ticket
					w.in(time.Duration(rng.Int64N(int64(2*time.Second))), func() { ask(j) })
				}
			}
		case d.Verdict == admission.Hold:
			w.edges.hold(k, &admission.Visit{Room: w.room, Ticket: d.Ticket, Brought: jars[i], Data: int32(-1)}, 500*time.Millisecond)
		}
		jars[i] = d.Ticket
		w.in(next, func() { ask(i) })
	}
	w.in(3*time.Minute, func() {
		place.Joined, place.Epoch, place.Seen = w.fleetTime().Add(-time.Minute), w.operator.epoch, uint32(w.fleetTime().Second())
		for i := range jars {
			if jars[i] = place; i == 0 || !session {
				ask(i)
			}
		}
	})
	fault = w.Run().Fault
	return seen, fault
}

// manyTabs has browsers with many parallel requests, from changing networks, behind a balancer that picks any edge.
// Answers are lost and late.
func manyTabs() Finding {
	f := Finding{Met: true}
	out, sep := 0, "; "
	for i, session := range []time.Duration{10 * time.Second, time.Minute, 5 * time.Minute} {
		longest, twice := time.Duration(0), 0.0
		for seed := range uint64(4) {
			n, d, part, fault := tabs(seed+1, session)
			if fault != "" {
				return Finding{Fault: fault}
			}
			out, longest, twice = out+n, max(longest, d), twice+part/4
		}
		f.Met = f.Met && longest <= time.Duration(wire.Life(session))*time.Second
		if i > 0 {
			sep = " / "
		}
		f.Seen += fmt.Sprintf("%s%.1f s (%.1f %% of the time)", sep, longest.Seconds(), 100*twice)
	}
	f.Seen, f.Met = fmt.Sprint(out)+f.Seen, f.Met && out == 0
	f.Bound = "a version that is shown after a newer one was renewed elsewhere, because an answer was lost or late, is charged beside it until that one expires"
	return f
}

// tabs returns how often a browser with many tabs loses its session within an hour, the longest time of being counted
// more than once, and the fraction of that time.
func tabs(seed uint64, session time.Duration) (out int, longest time.Duration, part float64, fault string) {
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
			k := int32(rng.IntN(4))
			n := w.edges.all[k]
			d := n.core.Arrive(n.clock.read(w.now), w.room, jar)
			w.edges.wake(k)
			if d.Enters() {
				w.oracle.issued(&visitor{edge: k}, d)
			} else {
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
		jar = w.visitors.foreign()
		jar.Epoch = w.operator.epoch
		page()
		w.each(100*time.Millisecond, func() {
			if n, _ := w.centres.counted(); n <= 1 {
				twice = w.now
			} else {
				part += 0.1 / time.Hour.Seconds()
			}
			longest = max(longest, time.Duration(w.now-twice))
		})
		twice = w.now
	})
	fault = w.Run().Fault
	return out, longest, part, fault
}

// parallelAsOne sends fifty parallel requests with one ticket, twice: when its turn has come, and when its session
// needs renewal.
func parallelAsOne() Finding {
	c := Defaults()
	c.Centres, c.Edges, c.Length = 1, 4, 4*time.Minute
	c.Total, c.Rate, c.Session, c.Demand.PerMinute = 100, 600, time.Minute, 0
	w := New(c)
	var admitted, renewed, later int64
	w.in(10*time.Second, func() {
		first := w.edges.all[0].core.Arrive(w.edges.all[0].clock.read(w.now), w.room, w.visitors.foreign())
		tickets := w.visitors.parallelRequests(0, 50, first.Ticket)
		w.in(2*time.Second, func() { admitted, _ = w.centres.counted() })
		w.in(20*time.Second, func() { tickets = w.visitors.parallelRequests(0, 50, tickets[len(tickets)-1]) })
		w.in(22*time.Second, func() { renewed, _ = w.centres.counted() })
		// The second of its first stamp is over, that of the renewal is not.
		w.in(time.Duration(wire.Life(c.Session)+6)*time.Second, func() { later, _ = w.centres.counted() })
	})
	r := w.Run()
	return Finding{
		Seen: fmt.Sprintf("%d admitted, %d renewed, %d once the first second is over", admitted, renewed, later),
		Met:  admitted == 1 && renewed == 1 && later == 1, Fault: r.Fault,
	}
}

// abandoners adds visitors that abandon to a room that is four fifths full.
func abandoners() Finding {
	run := func(leavers bool) (people float64, fault string) {
		c := Defaults()
		c.Length, c.Total, c.Rate, c.Probation = 20*time.Minute, 20_000, 100_000, room.DefaultProbation
		c.Demand.PerMinute = 2400
		w := New(c)
		w.in(10*time.Minute, w.meters.begin)
		if leavers {
			w.visitors.bring(&crowd{from: 5 * time.Minute, until: c.Length, perSecond: 50, centre: -1, behave: oneLook})
		}
		r := w.Run()
		return float64(w.meters.inside - w.meters.robots), r.Fault
	}
	without, fault := run(false)
	with, fault2 := run(true)
	part := with / without
	return Finding{Seen: fmt.Sprintf("%.1f %%", 100*part), Met: part >= 0.8, Fault: fault + fault2}
}
