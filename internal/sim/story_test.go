package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"vestibule/internal/admission"
	"vestibule/internal/ticket"
)

// TestStories plays the stories in testdata: known misfortunes of whole fleets
// with many visitors, and what comes of them. Each begins with
//
//	world T=200 R=6000 session=30s centres=3 edges=2 demand=600/min [policy=cap] [seed=1] [pages=6] [think=20s] [stay=0.7] [spike=40 into=2 at=1m ramp=10s length=1m]
//
// Edges are numbered through all data centres, from 1. Then
//
//	run 60s [every=20s]              time passes; a line tells what is true every so often
//	crash edge 2 [for=5s]            a process ends; another begins after so long, or never
//	crash region 1 for=2s, crash global for=2s
//	restart edges every=10s          each edge in turn says goodbye and is back after two seconds
//	cut region 1 for=12m             a data centre and global do not hear each other
//	cut all for=1h                   nobody hears anybody
//	home                             everybody inside goes home
//	books                            what is counted in the data centres
//	ask ann at=1 [reply=lost]        somebody asks for a page; repeated by n=50 at=1,2,3,4
//
// The judge of the world looks on at every event.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &story{people: map[string]ticket.Ticket{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.out.Reset()
			s.do(t, d)
			if s.w != nil && s.w.judge.broken() {
				t.Fatalf("%s: broken: %s", d.Pos, s.w.judge.fault)
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
	arg := func(key, def string) string {
		if a, ok := d.Arg(key); ok && len(a.Vals) > 0 {
			return strings.Join(a.Vals, ",")
		}
		return def
	}
	number := func(text string) int {
		n, err := strconv.Atoi(text)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		return n
	}
	share := func(text string) float64 {
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		return x
	}
	length := func(text string) time.Duration {
		x, err := time.ParseDuration(text)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		return x
	}
	var words []string
	for _, a := range d.CmdArgs {
		if len(a.Vals) == 0 {
			words = append(words, a.Key)
		}
	}
	word := func(i int) string {
		if i >= len(words) {
			d.Fatalf(t, "%s wants more words", d.Cmd)
		}
		return words[i]
	}

	switch d.Cmd {
	case "world":
		c := Defaults()
		c.Seed = uint64(number(arg("seed", "1")))
		c.Length = 48 * time.Hour
		c.Total, c.Rate = number(arg("T", "200")), number(arg("R", "6000"))
		c.Session = length(arg("session", "30s"))
		c.Centres, c.Edges = number(arg("centres", "3")), number(arg("edges", "2"))
		c.Cap = arg("policy", "serve") == "cap"
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
		s.printf("  time   sessions  counted  waiting  entered  order p99  queued while free")
		for done := time.Duration(0); done < whole && !w.judge.broken(); done += every {
			w.meters.begin(w)
			w.runFor(every)
			m := &w.meters
			n, presumed := w.counted()
			counted := strconv.FormatInt(n, 10)
			if presumed > 0 {
				counted += fmt.Sprintf(" (%d presumed)", presumed)
			}
			s.printf("%s  %8d  %7s  %7d  %7d  %7.1f s  %d", clockTime(w.now), w.sessions(), counted, w.judge.waiting, m.inside, quantile(m.orders(), 0.99), m.queuedFree)
			if m.early > 0 {
				s.printf("         %d people were put out before their time", m.early)
			}
		}

	case "crash":
		after := length(arg("for", "1000h"))
		switch word(0) {
		case "edge":
			i := int32(number(word(1)) - 1)
			w.endEdge(i)
			w.in(after, func() { w.startEdge(i) })
		case "region":
			w.endRegion(int32(number(word(1))-1), after)
		case "global":
			w.endGlobal(after)
		default:
			d.Fatalf(t, "no %q", word(0))
		}

	case "restart":
		for i := range w.edges {
			at := time.Duration(i) * length(arg("every", "10s"))
			w.in(at, func() { w.leaveEdge(int32(i)) })
			w.in(at+2*time.Second, func() { w.startEdge(int32(i)) })
		}

	case "cut":
		if word(0) == "all" {
			w.isolate(length(arg("for", "")))
			break
		}
		w.cutCentre(int32(number(word(1))-1), length(arg("for", "")))

	case "home":
		w.goHome()

	case "books":
		for _, r := range w.regions {
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
			s.printf("%s: holds %d, counts %d (%d presumed), %d free, %d lent to %d edges, %s",
				r.name, int64(l.Granted)-int64(l.Returned), l.Active, l.Presumed, l.Free, l.Credit, alive, heard)
		}

	case "ask":
		s.ask(word(0), strings.Split(arg("at", "1"), ","), number(arg("n", "1")), arg("reply", "") == "lost", number)

	default:
		d.Fatalf(t, "unknown command %q", d.Cmd)
	}
}

// ask sends n requests of somebody at once to the named edges in turn.
func (s *story) ask(who string, at []string, n int, lost bool, number func(string) int) {
	w := s.w
	v := &visitor{}
	brought, known := s.people[who]
	if !known { // joined a moment ago, somewhere
		brought = w.foreign()
		s.people[who] = brought
	}
	var told []string
	for k := range n {
		i := int32(number(at[k%len(at)]) - 1)
		e := w.edges[i]
		v.edge, v.centre = i, e.region
		d := e.core.Arrive(e.clock.read(w.now), w.room, brought)
		w.wakeEdge(i)
		if d.Verdict == admission.Admit || d.Verdict == admission.Serve {
			w.judge.issued(w, v, d)
		}
		verdict := fmt.Sprintf("%v (%v)", d.Verdict, d.Reason)
		if d.Reseal && d.Ticket.Until > brought.Until {
			verdict += fmt.Sprintf(", valid for %d s", int64(d.Ticket.Until)-w.fleetTime().Second())
		}
		if !slices.Contains(told, verdict) {
			told = append(told, verdict)
		}
		if !lost && d.Reseal {
			s.people[who] = d.Ticket
		}
	}
	s.printf("%s: %s", who, strings.Join(told, " / "))
}
