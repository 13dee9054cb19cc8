package ledger_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger/region"
	"vestibule/internal/core/wire"
	"vestibule/internal/lab/testkit/command"
)

// TestScripts runs the stories in testdata. Each begins with
//
//	fleet total=10 rate=60 session=1m policy=cap centres=dublin,nairobi edges=2 [bootstrap=false] [drift=95]
//
// which starts one coordinator, an aggregator in every data centre, and edges
// named by its first letter (d1, d2, n1, n2), all with the production cores; the
// clocks of the data centres drift in alternating directions, in parts per million.
// Then
//
//	advance 3s [clicking=10s]      time passes; from now on, the interval of page requests of admitted visitors
//	arrive d1 ann bob [room=…]     newcomers; arrive d1 n=20 for a crowd
//	click ann [at=d2]              a visitor asks for a page, perhaps elsewhere
//	leave [inside]                 all visitors, or all admitted ones, go; their sessions stay until they expire
//	cut X [up|down], mend X        messages from (up) or to (down) an edge or data centre are lost
//	catch X up|down                they are held for a later deliver instead
//	deliver X up|down [reversed] [times=2] [newest] [keep] [later=5s]
//	                               caught messages arrive, in this order, this often; catching ends unless keep
//	drop X up|down                 caught messages are lost; catching ends
//	crash d1|dublin|root, start …  a process ends for good; another begins, with the stored state
//	start dublin|root beside       the next leader begins while the last one still believes that it leads
//	start root wall=4m             … on a machine whose clock is ahead
//	start d1 [empty|copy=d2|as=d2] … an edge, with an empty folder, a copy of another's, or another's own
//	twin d1 name=d1x [copy=d1|as=d1]  another process of d1's name begins, in a folder of its own or as above
//	start dublin blank             … and the store has lost its memory
//	disk dublin stops|goes         writes of an aggregator block
//	limits total=5 rate=10         room settings change
//	remove sale, add extra total=… rate=…
//	forget d1 [all]                an operator says that the process has ended, or all of its name
//	waits dublin                   the pending waits of its aggregator
//	excuse                         from here on sessions beyond T are allowed, as the prose explains
//	ledger [root|dublin|d1 …]      the ledgers: T/R throughout
//	time                           offset and uncertainty of the clocks
//	status                         leaders and followers, and the known instance IDs
//	truth                          the true state, independent of the ledgers
//
// After every step of every story the judge checks the invariants.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &script{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.out.Reset()
			s.do(t, d)
			if s.w != nil && s.w.oracle.broken != "" {
				t.Errorf("%s: broken: %s", d.Pos, s.w.oracle.broken)
				s.w.oracle.broken = ""
			}
			if s.out.Len() == 0 {
				return "ok\n"
			}
			return s.out.String()
		})
	})
}

type script struct {
	w      *world
	out    strings.Builder
	crowd  int
	events []event
}

// event is an event of one visitor.
type event struct {
	at        int64
	who, what string
}

// tellMet reports the events of visitors: one by one if they are few.
func (s *script) tellMet() {
	for _, what := range []string{"is let in", "is out"} {
		var all []event
		for _, e := range s.events {
			if e.what == what {
				all = append(all, e)
			}
		}
		if len(all) > 6 {
			first, last := all[0], all[len(all)-1]
			s.printf("%8.2fs  %s", time.Duration(first.at).Seconds(), first.who)
			s.printf("   …        and %d more", len(all)-2)
			s.printf("%8.2fs  %s", time.Duration(last.at).Seconds(), last.who)
			continue
		}
		for _, e := range all {
			s.printf("%8.2fs  %s", time.Duration(e.at).Seconds(), e.who)
		}
	}
	s.events = nil
}

func (s *script) printf(format string, args ...any) { fmt.Fprintf(&s.out, format+"\n", args...) }

func (s *script) do(t *testing.T, d *datadriven.TestData) {
	w := s.w
	c := command.Read(t, d)
	words, arg, is, length := c.Words, c.Value, c.Is, c.Length
	number := func(key string, def int) int { return c.Number(arg(key, strconv.Itoa(def))) }
	theRoom := func() *roomTruth {
		name := arg("room", w.rooms.all[0].name)
		for _, r := range w.rooms.all {
			if r.name == name {
				return r
			}
		}
		d.Fatalf(t, "no room %q", name)
		return nil
	}

	switch d.Cmd {
	case "fleet":
		centres := strings.Split(arg("centres", "dublin"), ",")
		s.w = newWorld(wire.DefaultParams(), centres, number("edges", 1))
		w = s.w
		w.rooms.cap = arg("policy", "serve") == "cap"
		w.rooms.lost = length(arg("lost_after", "15m"))
		w.rooms.probation = length(arg("probation", "0s"))
		for i, s := range w.centres {
			s.drift = float64(number("drift", 0)*(1-2*(i%2))) / 1e6
		}
		for _, e := range w.edges {
			e.drift = e.dc.drift
		}
		w.rooms.add("sale", uint64(number("total", 10)), uint64(number("rate", 60)), length(arg("session", "1m")))
		w.begin(arg("bootstrap", "true") == "true")
		w.tell = func(format string, args ...any) {
			s.printf("%8.2fs  %s", time.Duration(w.now).Seconds(), fmt.Sprintf(format, args...))
		}
		w.people.observe = func(p *person, what string) {
			s.events = append(s.events, event{w.now, p.name + " " + what, what})
		}
	case "advance":
		if c, ok := d.Arg("clicking"); ok {
			w.people.clicking = length(c.Vals[0])
			for _, p := range w.people.all {
				if p.in {
					w.people.click(p)
				}
			}
		}
		w.run(length(words[0]))
		s.tellMet()
	case "arrive":
		e := s.edge(t, d, words[0])
		names := words[1:]
		for range number("n", 0) {
			s.crowd++
			names = append(names, fmt.Sprintf("v%d", s.crowd))
		}
		var what []string
		for _, name := range names {
			p := w.people.arrive(name, theRoom(), e)
			state := "waits"
			if p.in {
				state = "is let in"
			} else if p.visit != nil {
				state = "is held"
			}
			what = append(what, state)
		}
		s.events = nil
		if number("n", 0) == 0 {
			for i, name := range names {
				s.printf("%s %s", name, what[i])
			}
			return
		}
		for _, state := range []string{"is let in", "is held", "waits"} {
			n := 0
			for _, x := range what {
				if x == state {
					n++
				}
			}
			if n > 0 {
				s.printf("%d: %s", n, state)
			}
		}
	case "click":
		for _, p := range w.people.all {
			if is(p.name) {
				if at := arg("at", ""); at != "" {
					p.edge = s.edge(t, d, at)
				}
				until := p.ticket.Until
				w.people.ask(p)
				s.events = nil
				switch {
				case p.in && p.ticket.Until > until:
					s.printf("%s is served, ticket renewed", p.name)
				case p.in:
					s.printf("%s is served, same ticket", p.name)
				}
			}
		}
	case "quit", "copy":
		for _, p := range slices.Clone(w.people.all) {
			switch {
			case !is(p.name):
			case d.Cmd == "copy":
				w.people.copyOf(p, s.edge(t, d, arg("at", "")))
			case !w.people.quit(p):
				s.printf("%s has nothing to leave", p.name)
			}
		}
	case "leave":
		w.people.leave(is("inside"))
		w.people.clicking = 0
	case "cut", "mend":
		up, down, _ := s.links(t, d, words[0])
		if !is("down") {
			up.cut = d.Cmd == "cut"
		}
		if !is("up") {
			down.cut = d.Cmd == "cut"
		}
	case "catch", "deliver", "drop":
		up, down, _ := s.links(t, d, words[0])
		l := up
		if is("down") {
			l = down
		}
		if d.Cmd == "catch" {
			l.caught = true
			return
		}
		pile := l.pile
		l.pile = nil
		l.caught = is("keep")
		n := len(pile)
		if d.Cmd == "drop" {
			if n == 0 {
				d.Fatalf(t, "nothing was caught")
			}
			return
		}
		if is("reversed") {
			slices.Reverse(pile)
		}
		if is("newest") {
			pile = pile[len(pile)-1:]
		}
		for range number("times", 1) {
			for _, take := range pile {
				if later := length(arg("later", "0s")); later > 0 {
					w.net.post(int64(later), take)
				} else {
					take()
				}
			}
		}
		if is("keep") {
			l.pile = pile
		}
		if n == 0 {
			d.Fatalf(t, "nothing was caught")
		}
	case "crash", "start":
		s.process(t, d, words, is)
	case "twin":
		e := w.twin(s.edge(t, d, words[0]), arg("name", ""))
		s.folder(t, d, e, is)
		e.start(w)
	case "forget":
		e := s.edge(t, d, words[0])
		n := e.dc.newest()
		instance := e.core.Status(e.read(w.now)).Instance
		if is("all") {
			instance = 0
		}
		switch f, err := n.core.Forget(n.read(w.now), e.bears, instance, false); {
		case err != nil:
			s.printf("%v", err)
		default:
			s.printf("%d ended, %d sessions count for %v at most", len(f.Instances), f.Sessions, f.Within)
		}
	case "waits":
		_, _, dc := s.links(t, d, words[0])
		n := dc.newest()
		for _, x := range n.core.Waits(n.read(w.now)) {
			text := "until it is heard"
			if x.Until != 0 {
				text = fmt.Sprintf("for %.0fs", x.Until.Sub(w.fleetTime()).Seconds())
			}
			if x.Why == region.WaitRate {
				s.printf("%s %d permits of R", text, x.Rate)
				continue
			}
			s.printf("%s %s: closed %v, %d sessions, known to have ended %v", text, x.Edge, x.Closed, x.Sessions, x.Ended)
		}
	case "disk":
		_, _, dc := s.links(t, d, words[0])
		dc.diskless = is("stops")
		for _, n := range dc.procs {
			n.store(w)
		}
	case "limits":
		r := theRoom()
		w.setLimits(r, uint64(number("total", int(r.total))), uint64(number("rate", int(r.rate))))
	case "session": // session_duration changes
		theRoom().session = length(words[0])
		w.setRooms()
	case "remove":
		for _, r := range w.rooms.all {
			r.gone = r.gone || is(r.name)
		}
		w.setRooms()
	case "add":
		for _, r := range w.rooms.all {
			if r.name == words[0] {
				r.gone = false
				w.setLimits(r, uint64(number("total", int(r.total))), uint64(number("rate", int(r.rate))))
				return
			}
		}
		w.rooms.add(words[0], uint64(number("total", 10)), uint64(number("rate", 60)), length(arg("session", "1m")))
		w.setRooms()
	case "excuse":
		w.oracle.excuse = true
	case "ledger":
		r := theRoom()
		all := len(words) == 0
		if all || is("root") {
			s.rootLedger(r)
		}
		for _, dc := range w.centres {
			if all || is(dc.name) {
				s.centreLedger(dc, r)
			}
		}
		for _, e := range w.edges {
			if is("edges") || is(e.name) {
				s.edgeLedger(e, r)
			}
		}
	case "status":
		s.status()
	case "time":
		s.time()
	case "truth":
		r := theRoom()
		s.printf("%d sessions valid of %d, %d admitted in the last minute of %d", w.oracle.active(r, nil), r.total,
			w.oracle.used(r, nil), r.rate)
	default:
		d.Fatalf(t, "unknown command")
	}
}

func (s *script) edge(t *testing.T, d *datadriven.TestData, name string) *edgeProc {
	for _, e := range s.w.edges {
		if e.name == name {
			return e
		}
	}
	d.Fatalf(t, "no edge %q", name)
	return nil
}

func (s *script) links(t *testing.T, d *datadriven.TestData, name string) (up, down *link, c *dataCentre) {
	for _, c := range s.w.centres {
		if c.name == name {
			return &c.up, &c.down, c
		}
	}
	e := s.edge(t, d, name)
	return &e.up, &e.down, e.dc
}

func (s *script) process(t *testing.T, d *datadriven.TestData, words []string, is func(string) bool) {
	w := s.w
	start := d.Cmd == "start"
	if words[0] == "root" {
		if !is("beside") {
			w.root().gone = true
		}
		if start {
			w.startRoot(false)
			if a, ok := d.Arg("wall"); ok {
				wall, err := time.ParseDuration(a.Vals[0])
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				w.root().wall = wall
			}
		}
		return
	}
	for _, c := range w.centres {
		if c.name == words[0] {
			if !is("beside") {
				c.newest().gone = true
			}
			if start {
				if is("blank") {
					c.stored = wire.Durable{}
				}
				w.startAgg(c, false)
			}
			return
		}
	}
	e := s.edge(t, d, words[0])
	if start {
		s.folder(t, d, e, is)
		e.start(w)
	} else {
		e.stop(w)
	}
}

// folder gives the next process of an edge the data folder that the script names.
func (s *script) folder(t *testing.T, d *datadriven.TestData, e *edgeProc, is func(string) bool) {
	if is("empty") {
		e.folder, e.place = fleettime.Lives{}, s.w.folder()
	}
	if a, ok := d.Arg("copy"); ok {
		e.folder, e.place = s.edge(t, d, a.Vals[0]).folder, s.w.folder()
	}
	if a, ok := d.Arg("as"); ok { // the machine was cloned: the two folders are indistinguishable
		e.folder, e.place = s.edge(t, d, a.Vals[0]).folder, s.edge(t, d, a.Vals[0]).place
	}
}

func (s *script) rootLedger(r *roomTruth) {
	l := s.w.root().core.Ledger(r.id)
	state := "complete"
	if !l.Complete {
		state = "lends only what comes back"
	}
	queue := ""
	if l.View != nil && l.View.Cutoff != estimate.Open {
		queue = fmt.Sprintf(", %.0f wait", l.View.Line.Total())
	}
	if l.Overcommit > 0 {
		queue += fmt.Sprintf(", %d may be valid beyond", l.Overcommit)
	}
	s.printf("root: limit %d/%d free %d/%d, %s%s", l.Total, l.Rate, l.Free, l.RateFree, state, queue)
	for _, c := range l.Centres {
		gen := ""
		if c.Gen > 0 {
			gen = fmt.Sprintf(" generation %x", c.Gen)
		}
		if !c.Adopted {
			gen += " not adopted"
		}
		s.printf("  %s: lent %d/%d idle %d/%d keep %d/%d%s", c.Name, c.Held, c.RateHeld, c.Idle, c.RateIdle, c.Keep,
			c.RateKeep, gen)
	}
}

func (s *script) centreLedger(c *dataCentre, r *roomTruth) {
	n := c.newest()
	l := n.core.Ledger(r.id)
	state := ""
	if !l.Settled {
		state = ", recovering"
	}
	if n.gone {
		state = ", stopped"
	}
	if l.Overcommit > 0 {
		state += fmt.Sprintf(", %d may be valid beyond", l.Overcommit)
	}
	wm := n.core.Status(n.read(s.w.now)).Watermark
	ago := "none"
	if wm > 0 {
		ago = fmt.Sprintf("%.1fs ago", max(0, s.w.fleetTime().Sub(wm)).Seconds())
	}
	s.printf("%s: granted %d/%d returned %d/%d held %d/%d free %d/%d credit %d active %d reserved %d, watermark %s%s",
		c.name,
		l.Granted, l.RateGranted, l.Returned, l.RateReturned, int64(l.Granted)-int64(l.Returned),
		int64(l.RateGranted)-int64(l.RateReturned),
		l.Free, l.RateFree, l.Credit, l.Active, l.Reserved, ago, state)
}

func (s *script) edgeLedger(e *edgeProc, r *roomTruth) {
	if e.gone {
		s.printf("%s: down", e.name)
		return
	}
	now := e.read(s.w.now)
	l, st := e.core.Ledger(now, r.id), e.core.Status(now)
	lease := "leased"
	if !st.Leased {
		lease = "no lease"
	}
	s.printf("%s: granted %d/%d returned %d/%d spent %d credit %d/%d renewed %d of %d, held %d, lease epoch %d, %s",
		e.name,
		l.Granted, l.RateGranted, l.Returned, l.RateReturned, l.Spent, l.Credit(), l.RateIdle, l.Renewed, l.RenewCeil, l.Held,
		st.LeaseEpoch, lease)
}

func (s *script) time() {
	w := s.w
	say := func(name string, t fleettime.Time, err time.Duration) {
		switch {
		case err == fleettime.Unsynced:
			s.printf("%s does not know", name)
		case err > fleettime.MaxError:
			s.printf("%s is unsure, by %v", name, err.Round(10*time.Millisecond))
		case max(t.Sub(w.fleetTime()), w.fleetTime().Sub(t)) > err:
			s.printf("%s is wrong by %v", name, t.Sub(w.fleetTime()))
		default:
			s.printf("%s is sure", name)
		}
	}
	for _, c := range w.centres {
		n := c.newest()
		st := n.core.Status(n.read(w.now))
		say(c.name, st.Time, st.TimeBound)
	}
	for _, e := range w.edges {
		if !e.gone {
			now := e.read(w.now)
			say(e.name, e.core.Clock.Time(now), e.core.Clock.Bound(now))
		}
	}
}

func (s *script) status() {
	w := s.w
	for _, n := range w.roots {
		if !n.gone {
			s.printf("root/%d leads", n.term)
		}
	}
	for _, c := range w.centres {
		for _, n := range c.procs {
			if n.gone {
				continue
			}
			st := n.core.Status(n.read(w.now))
			what := "follows nobody"
			if st.Joined {
				what = fmt.Sprintf("follows root/%d", st.Follows.N)
			} else if st.Follows.N > 0 {
				what = fmt.Sprintf("has promised root/%d", st.Follows.N)
			}
			if !st.Leased {
				what += ", no lease"
			}
			if st.Isolated {
				what += ", isolated"
			}
			var edges []string
			for _, e := range st.Edges {
				is := e.Name + " " + e.State
				if e.Twin {
					is += " (twin)"
				}
				edges = append(edges, is)
			}
			slices.Sort(edges)
			if e := n.core.Edges(); e.Unknown > 0 {
				what += fmt.Sprintf(", %d unknown edges, the last %s", e.Unknown, e.LastUnknown)
			}
			s.printf("%s/%d %s; edges: %s", c.name, n.term, what, strings.Join(edges, ", "))
		}
	}
	for _, e := range w.edges {
		if e.gone {
			continue
		}
		st := e.core.Status(e.read(w.now))
		lease := "leased"
		if !st.Leased {
			lease = "no lease"
		}
		if st.Twin {
			lease += ", told of a twin"
		}
		s.printf("%s follows %s/%d, lease epoch %d, %s", e.name, e.dc.name, st.Follows.N, st.LeaseEpoch, lease)
	}
}
