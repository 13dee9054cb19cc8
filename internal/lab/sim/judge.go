package sim

import (
	"fmt"
	"math"
	"slices"
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/draw"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger/root"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// judge knows the truth and holds the nodes to their promises.
//
// A ticket may have valid cookies of several homes: its visitor moved, or it was
// copied. The limit is one of tickets, so T counts each of them once; and the
// data centre whose cookie of it is valid longest answers for it: the others may
// have let go.
type judge struct {
	fault string // the first broken promise

	// The same, in a world in which a coordinator heard nobody who knew the time and
	// went by a wrong clock: everybody who knew it may have ended since, and then the
	// promises are not given.
	excused string

	centres []truth
	homes   map[uint64]int16  // data centres of which the ticket has a valid cookie
	latest  map[uint64]latest // the cookie of each ticket that is valid longest
	active  int               // tickets with any valid cookie
	peak    int

	first struct { // settings at the beginning
		total, rate int
		session     time.Duration
	}
	total, limit int   // limits that bind now
	rateSince    int64 // true time since which nothing is lent beyond a lowered R

	peakRate int

	waiting int // people who wait, truly

	// Under partition_policy serve: tickets that an edge without a lease goes on
	// renewing although they were stamped elsewhere too. Nobody can count them,
	// and by so many T may be exceeded.
	follows bool
	stamps  map[uint64]stamps
	moved   int
	excess  int // most sessions beyond T at any moment

	releases    map[uint64]*releasing
	lots        int                                // people who entered by a call of a round
	seeDrawn    func(*draw.Notice, *ticket.Ticket) // whoever enters after a draw; nil where nobody looks
	seeAdmitted func(*ticket.Ticket)               // whoever enters; nil where nobody looks

	lines []deed // per data centre, as of the last look
	root  root.Ledger
}

// truth is what one data centre has given out.
type truth struct {
	home   ticket.DC
	until  map[uint64]uint32 // newest expiry second of every ticket with a valid cookie
	bucket map[int64][]uint64
	ended  int64 // last second whose tickets have expired
	here   int   // tickets whose latest cookie is of this home
	moved  int   // of them, those that nobody can count
	minute window

	// It was taken off the list by force, and may live on: until heardFor has passed
	// in which the coordinator could hear it, nothing of it counts.
	forsaken  bool
	reachable int64 // since when it could be
}

type latest struct {
	centre int
	until  uint32
}

// stamps is where the cookies of a ticket come from.
type stamps struct {
	edge  int32
	away  bool // an edge without a lease stamped it
	moved bool // more than one edge did
}

// deed is what the books of a data centre say it holds.
type deed struct {
	known      bool
	shut       bool // a copy that knows that it is one, and of whose rights none is at an edge: it lends none
	held, rate int64
}

func (j *judge) begin(w *World) {
	j.homes = map[uint64]int16{}
	j.latest = map[uint64]latest{}
	j.stamps = map[uint64]stamps{}
	j.releases = map[uint64]*releasing{}
	j.centres = make([]truth, w.cfg.Centres)
	for i := range j.centres {
		j.centres[i] = truth{home: ticket.DCOf(centreName(i)), until: map[uint64]uint32{}, bucket: map[int64][]uint64{}}
	}
	j.first.total, j.first.rate, j.first.session = w.cfg.Total, w.cfg.Rate, w.cfg.Session
	j.total, j.limit = w.cfg.Total, w.cfg.Rate
	j.lines = make([]deed, w.cfg.Centres)
	j.follows = !w.cfg.Cap || w.cfg.Faults.Policy
}

// copied makes room for a data centre that bears the name of another one. Whatever tickets
// of that home say, they are the other's.
func (j *judge) copied(name string) {
	j.centres = append(j.centres, truth{home: ticket.DCOf(name), until: map[uint64]uint32{}, bucket: map[int64][]uint64{}})
	j.lines = append(j.lines, deed{})
}

func (j *judge) broken() bool { return j.fault != "" || j.excused != "" }

func (j *judge) fail(w *World, format string, args ...any) {
	if j.broken() {
		return
	}
	text := fmt.Sprintf("%v: ", time.Duration(w.now)) + fmt.Sprintf(format, args...)
	w.tell("%s", text)
	w.books()
	if w.guess {
		j.excused = text
	} else {
		j.fault = text
	}
}

// waits notes that a visitor begins to wait or stops.
func (j *judge) waits(v *visitor, yes bool) {
	if yes == v.queued {
		return
	}
	v.queued = yes
	if yes {
		j.waiting++
	} else {
		j.waiting--
	}
}

// issued notes that a visitor was let in with the ticket of d.
func (j *judge) issued(w *World, v *visitor, d admission.Decision) {
	j.waits(v, false)
	id, until := d.Ticket.ID, d.Ticket.Until
	// Under faults an edge may be wrong by more, as long as it is waited for.
	if !w.cfg.Faults.any() && int64(until)*1000 <= int64(w.fleetTime())-250 {
		j.fail(w, "a ticket that expired at %d was served at %d", until, w.fleetTime()/1000)
	}
	e := w.edges[v.edge]
	if d.Verdict == admission.Admit {
		j.admit(w, e.region)
		j.drawn(w, e, &d.Ticket)
		j.byLot(w, e, &d)
		if j.seeAdmitted != nil {
			j.seeAdmitted(&d.Ticket)
		}
		if e.told.Shut != admission.None {
			j.released(w, e)
		}
		for _, s := range e.told.Gather { // what fleet time is, is known to so much; a release by hand goes before an event
			if now := w.fleetTime(); e.told.Shut != admission.QueuedAll && now >= s.From.Add(fleettime.MaxError) && now < s.Until.Add(-fleettime.MaxError) {
				j.fail(w, "%s admits somebody %v before the start of an event, and knows of it", w.name(e), s.Until.Sub(now))
			}
		}
	}
	home := j.homeOf(d.Ticket.Home)
	if home < 0 {
		j.fail(w, "a ticket of no data centre was served")
		return
	}
	c := &j.centres[home]
	old := c.until[id]
	if until <= old || int64(until) <= c.ended {
		return
	}
	if last := d.Ticket.Admitted + 1 + uint32((e.told.Session+time.Second-1)/time.Second); e.told.NoRenewal && d.Reseal && until > last {
		j.fail(w, "%s lets a session go on until second %d that is to end in second %d: renewal is switched off", w.name(e), until, last)
	}
	c.until[id] = until
	c.bucket[int64(until)] = append(c.bucket[int64(until)], id)
	if old == 0 {
		j.homes[id]++
		if j.homes[id] == 1 {
			j.active++
		}
	}
	if l, known := j.latest[id]; !known || until > l.until {
		lost := j.lost(id)
		if known {
			j.answers(l.centre, -1, lost)
		}
		j.answers(home, 1, lost)
		j.latest[id] = latest{home, until}
	}
	j.follow(w, id, v.edge)
	if j.active > j.peak || j.active > j.total-w.cfg.below {
		j.tick(w)
		j.peak = max(j.peak, j.active)
		j.excess = max(j.excess, j.active-j.total)
		uncounted := j.moved
		for i := range j.centres {
			if c := &j.centres[i]; c.forsaken {
				uncounted += c.here - c.moved
			}
		}
		if j.active > j.total+uncounted-w.cfg.below {
			j.fail(w, "%d sessions are valid, the limit is %d%s", j.active, j.total, beside(uncounted))
		}
	}
}

// lost reports whether nobody can count a ticket.
func (j *judge) lost(id uint64) bool {
	s := j.stamps[id]
	return s.away && s.moved
}

// answers changes how many tickets a data centre answers for.
func (j *judge) answers(centre, n int, lost bool) {
	c := &j.centres[centre]
	c.here += n
	if lost {
		c.moved += n
	}
}

// quits notes that a visitor left and keeps no cookie.
func (j *judge) quits(w *World, id uint64) {
	for i := range j.centres {
		if c := &j.centres[i]; c.until[id] != 0 {
			j.end(w, c, id)
		}
	}
}

// beside tells of those who are not counted against a limit.
func beside(moved int) string {
	if moved == 0 {
		return ""
	}
	return fmt.Sprintf(", beside %d who moved away from a silent edge", moved)
}

// homeOf returns the number of a data centre, -1 for none.
func (j *judge) homeOf(home ticket.DC) int {
	for i := range j.centres {
		if j.centres[i].home == home {
			return i
		}
	}
	return -1
}

// follow notes which edge stamped a ticket and whether anybody can know.
func (j *judge) follow(w *World, id uint64, edge int32) {
	if !j.follows {
		return // nobody stamps without a lease
	}
	n := w.edges[edge]
	s, known := j.stamps[id]
	was := s.away && s.moved
	if !known {
		s.edge = edge
	}
	leased := n.core.Leased(n.clock.read(w.now))
	n.forgotten = n.forgotten && !leased
	s.moved = s.moved || s.edge != edge || n.forgotten // whom nobody reckons with any more
	s.away = s.away || !leased
	j.stamps[id] = s
	if !was && s.away && s.moved {
		j.moved++
		j.centres[j.latest[id].centre].moved++
	}
}

// window holds the moments of the last 60 s at which something happened.
type window struct {
	at   []int64
	head int
}

func (m *window) add(now int64) {
	if m.head > 4096 && m.head > len(m.at)/2 {
		m.at = m.at[:copy(m.at, m.at[m.head:])]
		m.head = 0
	}
	m.at = append(m.at, now)
}

// count returns how often it happened in the 60 s before now.
func (m *window) count(now int64) int {
	for m.head < len(m.at) && now-m.at[m.head] >= int64(time.Minute) {
		m.head++
	}
	return len(m.at) - m.head
}

// admit notes an admission and checks the window that ends with it.
func (j *judge) admit(w *World, dc int32) {
	j.centres[dc].minute.add(w.now)
	n := j.rate(w.now)
	j.peakRate = max(j.peakRate, n)
	if n > j.limit {
		j.fail(w, "%d admissions in 60 s, the limit is %d", n, j.limit)
	}
}

// rate returns the admissions of the last 60 s.
func (j *judge) rate(now int64) int {
	n := 0
	for i := range j.centres {
		if c := &j.centres[i]; !c.forsaken {
			n += c.minute.count(now)
		}
	}
	return n
}

// tick lets tickets expire. A session is over once no edge that visitors are
// sent to would accept its ticket any more. It is called where it matters, which
// is when a count seems too high, and before every figure: until then a session
// that is over is counted on.
func (j *judge) tick(w *World) {
	for i := range j.centres {
		c := &j.centres[i]
		t, some := fleettime.Time(math.MaxInt64), false
		for _, e := range w.edges {
			if !e.down && e.synced {
				t, some = min(t, e.core.Judges(e.clock.read(w.now), c.home)), true
			}
		}
		if !some {
			t = w.fleetTime()
		}
		j.expire(w, c, t.Second())
	}
}

// expire ends the sessions of a data centre whose tickets are valid until
// second s, or before.
func (j *judge) expire(w *World, c *truth, s int64) {
	if c.ended == 0 {
		c.ended = s
	}
	for ; c.ended < s; c.ended++ {
		second := c.ended + 1
		for _, id := range c.bucket[second] {
			if int64(c.until[id]) == second {
				j.end(w, c, id)
			}
		}
		delete(c.bucket, second)
	}
}

// end takes the cookie of one home out of the count. Where it was the latest, another
// home answers for what is left: a copy was renewed there before all of its edges knew
// that the session had moved.
func (j *judge) end(w *World, c *truth, id uint64) {
	delete(c.until, id)
	if j.homes[id]--; j.homes[id] > 0 {
		if l := j.latest[id]; c == &j.centres[l.centre] {
			j.passOn(w, id, l.centre)
		}
		return
	}
	lost := j.lost(id)
	j.answers(j.latest[id].centre, -1, lost)
	delete(j.latest, id)
	delete(j.homes, id)
	delete(j.stamps, id)
	j.active--
	if lost {
		j.moved--
	}
}

// passOn finds the home that answers for a ticket whose latest cookie has expired.
func (j *judge) passOn(w *World, id uint64, from int) {
	next := latest{}
	for i := range j.centres {
		if until := j.centres[i].until[id]; until > next.until {
			next = latest{i, until}
		}
	}
	lost := j.lost(id)
	j.answers(from, -1, lost)
	j.answers(next.centre, 1, lost)
	j.latest[id] = next
	if c := &j.centres[next.centre]; !w.accepted(id, c.home, next.until) {
		j.end(w, c, id)
	}
}

// accepted reports whether any edge accepts a ticket.
func (w *World) accepted(id uint64, home ticket.DC, until uint32) bool {
	t := ticket.Ticket{ID: id, Home: home, Until: until}
	return slices.ContainsFunc(w.edges, func(e *edgeNode) bool {
		if e.down || !e.synced {
			return false
		}
		judge := home
		switch e.core.Ended(w.room, t) {
		case wire.Left:
			return false
		case wire.Moved:
			judge = ticket.Nobody
		case wire.Cleared: // no session's end
		}
		return t.Valid(e.core.Judges(e.clock.read(w.now), judge))
	})
}

// raise notes that the limits were edited: a raised one binds at once.
func (j *judge) raise(w *World) {
	total, rate, _ := w.operator.limits(w)
	j.total, j.limit, j.rateSince = max(j.total, total), max(j.limit, rate), 0
}

// settle finds out which limits bind: a lowered one does once what was lent
// beyond it has come back, a raised one at once.
func (j *judge) settle(w *World, root *root.Ledger) {
	total, rate, unbound := w.operator.limits(w)
	if !root.Complete || root.Unbound || unbound || root.Total != uint64(total) || root.Rate != uint64(rate) {
		j.rateSince = 0
		return
	}
	if root.Free >= 0 {
		j.total = total
	}
	if root.RateFree >= 0 {
		if j.rateSince == 0 {
			j.rateSince = w.now
		}
		if w.now-j.rateSince > int64(time.Minute) {
			j.limit = rate
		}
	} else {
		j.rateSince = 0
	}
}

// forsake leaves a data centre out that was taken off the list by force.
func (j *judge) forsake(w *World, i int) {
	j.centres[i].forsaken, j.centres[i].reachable = true, w.now
}

// heard takes those back whom the coordinator could hear for so long that it
// has voided their books and every session of before is over.
func (j *judge) heard(w *World) {
	for i := range j.centres {
		c, r := &j.centres[i], w.regions[i]
		if !c.forsaken {
			continue
		}
		if g := w.newest(); g.gone || g.legacy || g.asleep > w.now || r.cutUp > w.now || r.cutDown > w.now || r.newest().gone ||
			slices.ContainsFunc(w.pairs, func(p pairCut) bool { return p.until > w.now }) {
			c.reachable = w.now
		}
		if w.now-c.reachable > int64(w.longestLife()+wire.RateWindow+30*time.Second) {
			c.forsaken = false
		}
	}
}

// ledger checks all books.
func (j *judge) ledger(w *World) {
	j.heard(w)
	for i := range w.regions {
		j.centre(w, i)
	}
	j.whole(w)
}

// centre checks what the head-count alone does not show (docs/GUARANTEES.md, invariants): in
// every data centre true sessions, live credit and what is free fit into what
// it holds. Books that are being rebuilt after a takeover are judged when they
// are complete.
func (j *judge) centre(w *World, i int) {
	r := w.regions[i]
	n := r.newest()
	line := &j.lines[i]
	*line = deed{}
	if n.gone {
		return
	}
	l := n.core.Ledger(w.room)
	if !l.Settled || j.centres[i].forsaken {
		return
	}
	line.held = int64(l.Granted) - int64(l.Returned)
	line.rate = int64(l.RateGranted) - int64(l.RateReturned)
	line.known = !l.Reconstructed
	if (w.cfg.Cap || w.cfg.Faults.Policy) && !n.core.Leased(n.clock.read(w.now)) {
		line.known = false // global may have given its rights to others
	}
	credit, rcredit := int64(0), int64(0)
	for _, k := range r.edges {
		e := w.edges[k]
		now := e.clock.read(w.now)
		if e.down {
			continue
		}
		c, rc := e.core.Spendable(now, w.room)
		credit += int64(c)
		rcredit += int64(rc)
	}
	line.shut = r.copied && credit+rcredit == 0 && n.core.Status(n.clock.read(w.now)).Standing != wire.Listed
	c := &j.centres[i]
	sum := credit + max(0, l.Free)
	if int64(c.here-c.moved)+sum > line.held {
		j.tick(w)
	}
	if total := int64(c.here-c.moved) + sum; total > line.held {
		j.fail(w, "%s: %d sessions + %d credit + %d free > %d held (counted %d, of which presumed %d)%s",
			r.name, c.here, credit, l.Free, line.held, l.Active, l.Presumed, beside(c.moved))
	}
	used := int64(c.minute.count(w.now))
	if total := used + rcredit + max(0, l.RateFree); total > line.rate {
		j.fail(w, "%s: %d rights of R used in 60 s + %d idle at edges + %d free > %d held", r.name, used, rcredit, l.RateFree, line.rate)
	}
}

// whole checks that all that is held and free fits into the limits (I4).
func (j *judge) whole(w *World) {
	g := w.newest()
	if g.gone {
		return
	}
	j.root = g.core.Totals(w.room)
	j.settle(w, &j.root)
	j.passes(w)
	sum, rsum := max(0, j.root.Free), max(0, j.root.RateFree)
	for i, l := range j.lines {
		if j.centres[i].forsaken {
			continue
		}
		if l.shut || (!l.known && w.regions[i].copied) {
			continue // nothing is lent to it, or by it
		}
		if !l.known {
			return
		}
		sum += l.held
		rsum += l.rate
	}
	if sum > int64(j.total) || rsum > int64(j.limit) {
		j.fail(w, "held and free sum to %d of %d and %d of %d", sum, j.total, rsum, j.limit)
	}
}

// alive reports whether a ticket is valid anywhere.
func (j *judge) alive(id uint64) bool { return j.homes[id] > 0 }
