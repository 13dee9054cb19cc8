package sim

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
	"vestibule/internal/lab/testkit/command"
)

// TestStories plays the stories in testdata: known faults of whole fleets with many visitors, and their results. Each
// begins with
//
//	world T=200 R=6000 session=30s centres=3 edges=2 demand=600/min [policy=cap] [seed=1] [pages=6] [think=20s]
//	      [stay=0.7] [spike=40 into=2 at=1m ramp=10s length=1m]
//
// Edges are numbered through all data centres, from 1. Then
//
//	run 60s [every=20s] [quiet]      time passes; one line per interval describes it
//	crash edge 2 [for=5s]            a process ends; another begins after that time, or never
//	crash region 1 for=2s, crash global for=2s
//	restart all for=1s [killed] [anew] every process ends, by shutdown or killed, and begins again after that time and
//	                                 up to three seconds, on rebooted machines or not
//	restart edges every=10s          each edge in turn says goodbye and is back after two seconds
//	cut edge 1 for=5m                an edge and its regional are disconnected
//	twin edge 1 [copied|proves]      another process begins with its name, in an empty folder, in a copy of its
//	                                 folder, or on a clone of its machine
//	status                           the edges as their regionals see them
//	cut region 1 for=12m             a data centre and global are disconnected
//	cut all for=1h                   all nodes are disconnected
//	fleet add 3, fleet drain 2       the membership list changes; remove 2 removes one by force
//	fleet                            the list, and the version of each leader
//	takeover [list=1]                the coordinator ends; the next, two seconds later, uses that version of the list
//	home                             all active visitors leave
//	gone 2                           all waiting visitors of a data centre leave silently
//	books                            the counts of the data centres
//	count                            the total, to the last session
//	ask ann at=1 [reply=lost]        a visitor requests a page; repeated by n=50 at=1,2,3,4
//	copy ann bob                     another visitor has the same ticket
//	... network=2                    requests from this network, with tickets bound; 0 for unbound tickets
//
// The oracle checks every event. The printed lines are coarse on purpose, so that a changed timer does not change
// numbers that depend on chance.
func TestStories(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		t.Parallel()
		s := &story{people: map[string]ticket.Ticket{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.out.Reset()
			s.do(t, d)
			if s.w != nil && s.w.broken() {
				t.Fatalf("%s: broken: %s", d.Pos, s.w.fault)
			}
			if s.out.Len() == 0 {
				return "ok\n"
			}
			return s.out.String()
		})
	})
}

type story struct {
	w      *World
	out    strings.Builder
	people map[string]ticket.Ticket
}

func (s *story) printf(format string, args ...any) { fmt.Fprintf(&s.out, format+"\n", args...) }

func (s *story) do(t *testing.T, d *datadriven.TestData) {
	w := s.w
	of := command.Read(t, d)
	arg, is, word, number, share, length := of.Value, of.Is, of.Word, of.Number, of.Share, of.Length

	switch d.Cmd {
	case "world":
		c := Defaults()
		c.Seed = uint64(number(arg("seed", "1")))
		c.Length = 48 * time.Hour
		c.Total, c.Rate = number(arg("T", "200")), number(arg("R", "6000"))
		c.Session = length(arg("session", "30s"))
		c.Centres, c.Edges = number(arg("centres", "3")), number(arg("edges", "2"))
		c.Cap = arg("policy", "serve") == "cap"
		c.Listed = number(arg("listed", "0"))
		c.Demand.PerMinute = share(arg("demand", "0"))
		c.People.Pages, c.People.Think = share(arg("pages", "6")), length(arg("think", "5s"))
		c.People.Stay = share(arg("stay", "0.7"))
		if spike := share(arg("spike", "0")); spike > 0 {
			c.Demand.Spikes = []Spike{{
				PerMinute: spike, Centre: number(arg("into", "0")),
				At: length(arg("at", "1m")), Ramp: length(arg("ramp", "10s")), Length: length(arg("length", "1m")),
			}}
		}
		if errs := c.Validate(); len(errs) > 0 {
			d.Fatalf(t, "%v", errs)
		}
		s.w = New(c)
		s.w.Trace(func(format string, args ...any) { fmt.Fprintf(&s.out, format, args...) })

	case "run":
		whole := length(word(0))
		every := length(arg("every", word(0)))
		if is("quiet") {
			w.runFor(whole)
			break
		}
		s.printf("  time  room   waiting  order    reserved  queued early  put out")
		for done := time.Duration(0); done < whole && !w.broken(); done += every {
			s.pass(every)
		}

	case "crash":
		after := length(arg("for", "1000h"))
		switch word(0) {
		case "edge":
			n := w.edges.all[number(word(1))-1]
			w.edges.end(n)
			w.in(after, func() { w.edges.start(n) })
		case "region":
			w.centres.end(w.centres.all[number(word(1))-1], after)
		case "global":
			w.globals.end(after)
		default:
			d.Fatalf(t, "no %q", word(0))
		}

	case "takeover":
		w.globals.takeOver(number(arg("list", "0")))

	case "fleet":
		if len(of.Words) == 0 {
			s.fleet()
			break
		}
		i := number(word(1)) - 1
		switch word(0) {
		case "add":
			w.members.add(i)
		case "drain":
			w.members.drain(i)
		case "remove":
			w.members.remove(i, true, w.cfg.Faults.cutsCentres())
		default:
			d.Fatalf(t, "no %q", word(0))
		}

	case "restart":
		if word(0) == "all" {
			share := 0.0
			if is("anew") {
				share = 1
			}
			w.restartFleet(!is("killed"), length(arg("for", "1s")), share)
			return
		}
		for i, n := range w.edges.all {
			at := time.Duration(i) * length(arg("every", "10s"))
			w.in(at, func() { w.edges.leave(n) })
			w.in(at+2*time.Second, func() { w.edges.start(n) })
		}

	case "twin":
		n := w.edges.all[number(word(1))-1]
		folder := fleettime.Lives{}
		if is("copied") || is("proves") {
			folder = n.folder
		}
		s.printf("it is edge %d", 1+w.edges.add(n.centre, n.name, folder, is("proves")).id)

	case "status":
		for _, r := range w.centres.all {
			st := r.newest().core.Status(r.newest().clock.read(w.now))
			twins := r.newest().core.Edges().Twins
			var edges []string
			for _, e := range st.Edges {
				edges = append(edges, e.Name+" "+e.State)
			}
			slices.Sort(edges)
			s.printf("%s: %s; twins: %v", r.name, strings.Join(edges, ", "), twins)
		}

	case "cut":
		if word(0) == "edge" {
			n := w.edges.all[number(word(1))-1]
			n.cutUp = w.now + int64(length(arg("for", "")))
			n.cutDown = n.cutUp
			break
		}
		if word(0) == "all" {
			w.isolate(length(arg("for", "")))
			break
		}
		w.cutFor(w.centres.all[number(word(1))-1], length(arg("for", "")))

	case "home":
		w.goHome()

	case "gone":
		w.visitors.goAway(int32(number(word(0)) - 1))

	case "books":
		for _, r := range w.centres.all {
			n := r.newest()
			l := n.core.Ledger(w.room)
			st := n.core.Status(n.clock.read(w.now))
			heard := "hears global"
			if st.Isolated {
				heard = "alone"
			}
			alive := 0
			for _, e := range st.Edges {
				if e.State == "alive" {
					alive++
				}
			}
			held := int64(l.Granted) - int64(l.Returned)
			s.printf("%s: holds %s of T, reserves %s, %d edges report, %s",
				r.name, tenths(float64(held)/float64(w.cfg.Total)), some(float64(l.Reserved)/float64(max(1, held))), alive, heard)
		}

	case "count":
		n, reserved := w.counted()
		s.printf("%d sessions are valid, %d are counted, %d of them reserved", w.sessions(), n, reserved)

	case "copy":
		s.people[word(1)] = s.people[word(0)]

	case "ask":
		s.ask(word(0), strings.Split(arg("at", "1"), ","), number(arg("n", "1")), arg("reply", "") == "lost",
			ticket.Network(2*number(arg("network", "0"))), number)

	default:
		d.Fatalf(t, "unknown command %q", d.Cmd)
	}
}

// fleet prints the membership list, and the state of each data centre.
func (s *story) fleet() {
	w := s.w
	list := w.members.at(w.members.store)
	var names []string
	for _, m := range list.List {
		state := "active"
		if m.Draining {
			state = "draining"
		}
		if m.Removed {
			state = "removed"
		}
		names = append(names, m.Name+" "+state)
	}
	s.printf("version %d lists %s", list.Version, strings.Join(names, ", "))
	g := w.globals.newest()
	c := g.core.Census(g.clock.read(w.now))
	var unlisted []string
	for _, d := range c.Unlisted {
		unlisted = append(unlisted, d.Name)
	}
	s.printf("the coordinator knows version %d, unlisted %v; complete books: %v", c.Members, unlisted,
		g.core.Totals(w.room).Complete)
	for _, r := range w.centres.all {
		st := r.newest().core.Status(r.newest().clock.read(w.now))
		follows := "follows it"
		if st.Follows.N != g.term {
			follows = "does not follow it"
		}
		s.printf("%s knows version %d, is %v, %s", r.name, st.Members, st.Standing, follows)
	}
}

// pass runs for d and prints a line about it.
func (s *story) pass(d time.Duration) {
	w := s.w
	w.meters.begin()
	used, reserved, looks := 0.0, 0.0, 0
	until := w.now + int64(d)
	for w.now < until && !w.broken() {
		w.runFor(min(730*time.Millisecond, time.Duration(until-w.now))) // at varying fractions of a second
		n, p := w.counted()
		used += float64(w.sessions())
		reserved += float64(p) / float64(max(1, n))
		looks++
	}
	m := w.meters
	waiting, order := "nobody", "-"
	if w.oracle.waiting > 0 {
		waiting = "people"
	}
	if late := quantile(m.orders(), 0.99); len(m.joined) > 0 {
		order = "worse"
		for _, x := range []float64{10, 60} {
			if late < x {
				order = fmt.Sprintf("< %.0f s", x)
				break
			}
		}
	}
	s.printf("%s  %-5s  %-7s  %-7s  %-8s  %-12s  %s", clockTime(w.now), tenths(used/float64(looks)/float64(w.cfg.Total)),
		waiting, order,
		some(reserved/float64(looks)), some(float64(m.QueuedFree)/float64(max(1, m.Arrived))),
		some(float64(m.early)/float64(w.cfg.Total)))
}

// tenths formats a fraction in tenths.
func tenths(x float64) string {
	switch {
	case x == 0:
		return "empty"
	case x >= 0.95:
		return "full"
	case x < 0.05:
		return "< 5 %"
	}
	return fmt.Sprintf("%.0f %%", 10*math.Round(10*x))
}

// some formats the frequency of an unwanted event: none is at most one in a hundred.
func some(part float64) string {
	switch {
	case part <= 0.01:
		return "none"
	case part <= 0.05:
		return "few"
	}
	return "many"
}

// ask sends n parallel requests of a visitor to the named edges in turn.
func (s *story) ask(who string, at []string, n int, lost bool, network ticket.Network, number func(string) int) {
	w := s.w
	brought, known := s.people[who]
	if !known { // joined a moment ago, anywhere
		brought = w.foreign()
		s.people[who] = brought
	}
	brought.Network = network
	var verdicts []string
	for k := range n {
		d := w.ask(w.edges.all[number(at[k%len(at)])-1], brought)
		verdict := fmt.Sprintf("%v (%v)", d.Verdict, d.Reason)
		if d.Reseal && d.Ticket.Until > brought.Until {
			verdict += fmt.Sprintf(", valid for %d s", int64(d.Ticket.Until)-w.fleetTime().Second())
		}
		if !slices.Contains(verdicts, verdict) {
			verdicts = append(verdicts, verdict)
		}
		if !lost && d.Reseal {
			s.people[who] = d.Ticket
		}
	}
	s.printf("%s: %s", who, strings.Join(verdicts, " / "))
}

// takeOver ends the coordinator; another begins two seconds later with a version of the membership list, 0 for the
// stored one.
func (gs *coordinators) takeOver(version int) {
	gs.older, gs.olderFor = version, time.Hour
	gs.end(2 * time.Second)
}

// goAway makes all waiting visitors of a data centre leave silently. They are counted until they are missed.
func (vs *visitors) goAway(centre int32) {
	for i := range vs.all {
		v := &vs.all[i]
		if v.inside || v.centre != centre || v.pass.ticket.ID == 0 {
			continue
		}
		if n := v.edge; v.hold != nil {
			n.core.Rooms.Abandon(n.clock.read(vs.now), v.hold)
			vs.edges.wake(n)
		}
		vs.oracle.setWaiting(v, false)
		vs.end(int32(i))
	}
}

// clockTime formats a time of a scenario.
func clockTime(ns int64) string {
	d := time.Duration(ns)
	return fmt.Sprintf("%3d:%02.0f", int(d.Minutes()), math.Mod(d.Seconds(), 60))
}
