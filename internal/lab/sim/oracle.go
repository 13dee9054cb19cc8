package sim

import (
	"fmt"
	"maps"
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

// oracle knows the truth and checks the promises of the nodes.
//
// A ticket may have valid cookies of several homes, because its visitor moved or it was copied. T limits tickets, so
// each counts once. The data centre of its longest valid cookie accounts for it: the others may have dropped it.
type oracle struct {
	*fleet

	centres truths
	tickets map[uint64]*held // that have a valid cookie
	peak    int              // most of them

	first struct { // initial settings
		total, rate int
		session     time.Duration
	}
	longest, life time.Duration // longest session_duration of the run, and life of a ticket
	limits        limits        // that bind

	ledgers lent // for the sums of the ledgers alone

	peakRate int

	waiting int // true number of waiting visitors

	// Under partition_policy serve: tickets that an edge without a lease renews although another edge stamped them too.
	// They cannot be counted, and T may be exceeded by their number.
	moved int

	releases    releases
	lots        int                                // admissions by a call of a round
	seeDrawn    func(*draw.Notice, *ticket.Ticket) // called for admissions after a draw; may be nil
	seeAdmitted func(*ticket.Ticket)               // called for admissions; may be nil

	going map[uint64]*wire.Transfer // sessions on their way
	sent  map[wire.Transfer]int64   // when each transfer was listed first

	lines []deed // per data centre, as of the last check
	root  root.Ledger
}

// lent is the limits without permits that the newest coordinator still awaits.
type lent struct {
	total, rate int
	rateSince   int64 // true time since which it has awaited no permit of R
}

// truth holds the tickets issued by one data centre.
type truth struct {
	home   ticket.DC
	bucket map[int64][]uint64 // tickets with a cookie until a second
	ended  int64              // last second with expired tickets
	here   int                // tickets with a latest cookie of this home
	moved  int                // of those, the uncountable ones
	minute window

	// The data centre was removed by force, and may live on. It is not counted until the coordinator could reach it for
	// long enough (see readmit).
	forsaken  bool
	reachable int64 // start of the coordinator's reach

	// Its sessions and admissions by edges that know that it is back, which count: it must not use permits of before.
	fresh       int
	freshMinute window
}

// truths are those of all data centres.
type truths []truth

// of returns the index of the data centre that accounts for a session with this home, as served by an edge of centre:
// that one if it has this name, since a copy can be the listed one. It returns -1 for no data centre.
func (ts truths) of(home ticket.DC, centre int32) int {
	if ts[centre].home == home {
		return int(centre)
	}
	return slices.IndexFunc(ts, func(c truth) bool { return c.home == home })
}

// held is a ticket, with its valid cookies and their origin.
type held struct {
	until []uint32       // newest expiry second by data centre, 0 for none
	home  int            // data centre that accounts for the ticket: the home of its longest cookie; -1 before the first
	edge  *edgeNode      // that stamped the first cookie
	away  bool           // one was stamped by an edge without a lease
	moved bool           // they were stamped by more than one edge
	fresh bool           // it was admitted in a data centre that is back
	going *wire.Transfer // on its way to another data centre: none accounts for it
}

// uncountable reports whether the ticket cannot be counted.
func (t *held) uncountable() bool { return t.away && t.moved }

// deed is the ledger's view of a data centre's permits.
type deed struct {
	known      bool
	shut       bool // it is not listed, and its edges have no permits: it allocates none
	held, rate int64
}

func newOracle(fl *fleet) *oracle {
	j := &oracle{
		fleet: fl, tickets: map[uint64]*held{}, releases: map[uint64]*releasing{}, going: map[uint64]*wire.Transfer{},
		sent: map[wire.Transfer]int64{},
	}
	for i := range j.cfg.Centres {
		j.add(centreName(i))
	}
	j.first.total, j.first.rate, j.first.session = j.cfg.Total, j.cfg.Rate, j.cfg.Session
	if j.longest = j.cfg.Session; j.cfg.Faults.Session {
		j.longest *= 2
	}
	j.life = time.Duration(wire.Life(j.longest)) * time.Second
	j.limits.set = limit{j.cfg.Total, j.cfg.Rate}
	j.limits.highest = j.limits.set
	j.ledgers.total, j.ledgers.rate = j.cfg.Total, j.cfg.Rate
	return j
}

// add adds a data centre.
func (j *oracle) add(name string) {
	j.centres = append(j.centres, truth{home: ticket.DCOf(name), bucket: map[int64][]uint64{}})
	j.lines = append(j.lines, deed{})
}

// setWaiting records that a visitor begins to wait or stops.
func (j *oracle) setWaiting(v *visitor, yes bool) {
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

// issued records the admission of a visitor with the ticket of d.
func (j *oracle) issued(v *visitor, d admission.Decision) {
	j.setWaiting(v, false)
	id, until := d.Ticket.ID, d.Ticket.Until
	// Under faults an edge may be off by more, within the time that others wait for it.
	if !j.cfg.Faults.any() && int64(until)*1000 <= int64(j.fleetTime())-250 {
		j.fail("a ticket that expired at %d was served at %d", until, j.fleetTime()/1000)
	}
	e := v.edge
	if d.Verdict == admission.Admit {
		j.admit(e)
		j.checkDraw(e, &d.Ticket)
		j.checkRounds(e, &d)
		if j.seeAdmitted != nil {
			j.seeAdmitted(&d.Ticket)
		}
		if e.told.Shut != admission.None {
			j.checkPause(e)
		}
		for _, s := range e.told.Gather { // tolerance of fleet time; a manual release precedes an event
			if now := j.fleetTime(); e.told.Shut != admission.QueuedAll && now >= s.From.Add(fleettime.MaxError) &&
				now < s.Until.Add(-fleettime.MaxError) {
				j.fail("%s admits a visitor %v before the start of an event that it knows", e, s.Until.Sub(now))
			}
		}
	}
	home := j.centres.of(d.Ticket.Home, e.centre.id)
	if home < 0 {
		j.fail("a ticket of no data centre was served")
		return
	}
	c, t := &j.centres[home], j.tickets[id]
	if t == nil {
		t = &held{until: make([]uint32, len(j.centres)), home: -1, edge: e, going: j.going[id]}
		own := &j.centres[e.centre.id]
		t.fresh = d.Verdict == admission.Admit && own.forsaken && e.back
	}
	if until <= j.longestOf(t, c.home) || int64(until) <= c.ended {
		return
	}
	t.until = append(t.until, make([]uint32, len(j.centres)-len(t.until))...) // copies came since
	if last := d.Ticket.Admitted + 1 + uint32((e.told.Session+time.Second-1)/time.Second); e.told.NoRenewal && d.Reseal &&
		until > last {
		j.fail("%s renews a session until second %d that must end in second %d: renewal is switched off", e, until, last)
	}
	j.tickets[id] = t
	c.bucket[int64(until)] = append(c.bucket[int64(until)], id)
	if t.going != nil {
		if until > t.going.Until {
			j.account(t, home)
		}
	} else if t.home < 0 || until > t.until[t.home] {
		j.account(t, home)
	}
	t.until[home] = until
	if t.going != nil && t.going.Until < until {
		t.going = nil
	}
	j.follow(t, e)
	total := j.limits.highest.total
	if d.Verdict == admission.Admit {
		total = j.limits.of(j, e).total
	}
	if n := len(j.tickets); n > j.peak || n > total-j.cfg.below {
		j.tick()
		active := len(j.tickets)
		j.peak = max(j.peak, active)
		uncounted := j.moved
		for i := range j.centres {
			if c := &j.centres[i]; c.forsaken {
				uncounted += c.here - c.moved - c.fresh
			}
		}
		if active > total+uncounted-j.cfg.below {
			j.fail("%d sessions are valid, the limit is %d%s", active, total, beside(uncounted))
		}
	}
}

// transfer records the sessions that an aggregator sends to other data centres in a report.
func (j *oracle) transfer(n *regionProc, reports []wire.Report) {
	if n != j.fleet.centres.all[n.centre.id].newest() {
		return
	}
	j.arrive()
	for i := range reports {
		for k := range reports[i].Rooms {
			for _, x := range reports[i].Rooms[k].Transfers {
				t, to := j.tickets[x.ID], slices.IndexFunc(j.centres, func(c truth) bool { return uint32(c.home) == x.To })
				if j.sent[x] != 0 || to < 0 || int64(x.Until) <= j.centres[to].ended {
					continue
				}
				j.sent[x] = j.now
				if old := j.going[x.ID]; old != nil && old.Until > x.Until || t != nil && slices.Max(t.until) > x.Until {
					continue // it went on
				}
				if j.going[x.ID] = &x; t != nil { // otherwise an expired ticket may get it in
					j.account(t, -1)
					t.going = &x
				}
			}
			j.comeBack(n, &reports[i], &reports[i].Rooms[k])
		}
	}
}

// comeBack makes a data centre account again for the sessions that a predecessor of its aggregator sent, if the coordinator
// does not know of that.
func (j *oracle) comeBack(n *regionProc, m *wire.Report, r *wire.RoomReport) {
	home := int(n.centre.id)
	if m.Blank || m.Join {
		return
	}
	maps.DeleteFunc(j.going, func(id uint64, x *wire.Transfer) bool {
		t := j.tickets[id]
		if x.From != uint32(j.centres[home].home) || t == nil || t.going != x || home >= len(t.until) || t.until[home] == 0 ||
			slices.ContainsFunc(r.Transfers, func(o wire.Transfer) bool { return o == *x }) {
			return false
		}
		j.account(t, home)
		t.going = nil
		delete(j.sent, *x) // a successor may list it again
		return true
	})
}

// arrive makes the data centres account for the sessions that have come.
func (j *oracle) arrive() {
	maps.DeleteFunc(j.going, func(id uint64, x *wire.Transfer) bool {
		to := slices.IndexFunc(j.centres, func(c truth) bool { return uint32(c.home) == x.To })
		t := j.tickets[id]
		if t != nil && t.going == nil || int64(x.Until) <= j.centres[to].ended {
			return true
		}
		if !j.fleet.centres.all[to].newest().core.Took(j.room, *x) {
			return false
		}
		if t == nil { // its tickets have expired, and get it in there
			t = &held{home: -1}
			j.tickets[id] = t
		}
		j.account(t, to)
		t.until = append(t.until, make([]uint32, len(j.centres)-len(t.until))...)
		t.until[to], t.going = x.Until, nil
		j.centres[to].bucket[int64(x.Until)] = append(j.centres[to].bucket[int64(x.Until)], id)
		return true
	})
}

// account makes a data centre account for a ticket, in place of another; -1 for none.
func (j *oracle) account(t *held, home int) {
	add := func(centre, n int) {
		if centre < 0 {
			return
		}
		c := &j.centres[centre]
		if c.here += n; t.uncountable() {
			c.moved += n
		} else if t.fresh {
			c.fresh += n
		}
	}
	add(t.home, -1)
	add(home, 1)
	t.home = home
}

// dropTicket records that a visitor left and keeps no cookie.
func (j *oracle) dropTicket(id uint64) {
	if t := j.tickets[id]; t != nil {
		for home, until := range t.until {
			if until != 0 {
				j.end(id, home)
			}
		}
	}
}

// beside describes the sessions not counted against a limit.
func beside(moved int) string {
	if moved == 0 {
		return ""
	}
	return fmt.Sprintf(", beside %d who moved away from a silent edge", moved)
}

// follow records the edge that stamped a ticket, and whether the ticket can be counted.
func (j *oracle) follow(t *held, n *edgeNode) {
	if j.cfg.Cap {
		return // no stamps without a lease
	}
	was := t.uncountable()
	leased := n.core.Status(n.clock.read(j.now)).Leased
	n.forgotten = n.forgotten && !leased
	t.moved = t.moved || t.edge != n || n.forgotten // a forgotten edge
	t.away = t.away || !leased
	if !was && t.uncountable() {
		j.moved++
		j.centres[t.home].moved++
		if t.fresh {
			j.centres[t.home].fresh--
		}
	}
}

// window holds the times of events in the last 60 s.
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

// count returns the number of events in the 60 s before now.
func (m *window) count(now int64) int {
	for m.head < len(m.at) && now-m.at[m.head] >= int64(time.Minute) {
		m.head++
	}
	return len(m.at) - m.head
}

// admit records an admission and checks the window that ends with it.
func (j *oracle) admit(e *edgeNode) {
	own := &j.centres[e.centre.id]
	if own.minute.add(j.now); own.forsaken && e.back {
		own.freshMinute.add(j.now)
	}
	n := j.rate(j.now)
	j.peakRate = max(j.peakRate, n)
	if limit := j.limits.of(j, e).rate; n > limit {
		j.fail("%d admissions in 60 s, the limit is %d", n, limit)
	}
}

// rate returns the admissions of the last 60 s.
func (j *oracle) rate(now int64) int {
	n := 0
	for i := range j.centres {
		if c := &j.centres[i]; !c.forsaken {
			n += c.minute.count(now)
		} else {
			n += c.freshMinute.count(now)
		}
	}
	return n
}

// tick expires tickets. A session ends once no reachable edge accepts its ticket. tick runs only if a count seems too
// high, and before every figure: in between, ended sessions are still counted.
func (j *oracle) tick() {
	for i := range j.centres {
		c := &j.centres[i]
		t, some := fleettime.Time(math.MaxInt64), false
		for _, e := range j.edges.all {
			if !e.down && e.synced {
				t, some = min(t, e.core.ExpiryTime(e.clock.read(j.now), c.home)), true
			}
		}
		if !some {
			t = j.fleetTime()
		}
		j.expire(i, t.Second())
	}
}

// expire ends the sessions of a data centre with tickets valid until second s or earlier.
func (j *oracle) expire(home int, s int64) {
	c := &j.centres[home]
	if c.ended == 0 {
		c.ended = s
	}
	for ; c.ended < s; c.ended++ {
		second := c.ended + 1
		for _, id := range c.bucket[second] {
			if t := j.tickets[id]; t != nil && int64(t.until[home]) == second {
				j.end(id, home)
			}
		}
		delete(c.bucket, second)
	}
}

// end removes the cookie of one home from the count. If it was the latest, another home accounts for the ticket: a copy
// was renewed there before all its edges knew that the session had moved.
func (j *oracle) end(id uint64, home int) {
	t := j.tickets[id]
	if t.until[home] = 0; t.home != home && t.going == nil {
		return
	}
	next, longest := -1, uint32(0)
	for i, until := range t.until {
		if until > longest {
			next, longest = i, until
		}
	}
	if t.going == nil {
		j.account(t, next)
	}
	switch {
	case next < 0:
		delete(j.tickets, id)
		if t.uncountable() {
			j.moved--
		}
	case !j.edges.accepted(id, j.centres[next].home, longest):
		j.end(id, next)
	}
}

// longestOf returns the newest expiry second of the cookies with this home, 0 for none.
func (j *oracle) longestOf(t *held, home ticket.DC) (longest uint32) {
	for i, until := range t.until {
		if j.centres[i].home == home {
			longest = max(longest, until)
		}
	}
	return longest
}

// raise records an edit of the limits.
func (l *lent) raise(j *oracle) {
	j.limits.observe(j)
	l.total, l.rate, l.rateSince = max(l.total, j.limits.set.total), max(l.rate, j.limits.set.rate), 0
}

// settle determines the limits of the ledgers: a lowered one once the newest coordinator awaits no permit beyond it.
// The limits of sessions and admissions do not depend on it.
func (l *lent) settle(j *oracle, root *root.Ledger) {
	total, rate, unbound := j.doc.limits()
	if root.Unbound && j.doc.unboundSoon() {
		l.total, l.rate = math.MaxInt32, math.MaxInt32
	}
	if !root.Complete || root.Unbound || unbound || root.Total != uint64(total) || root.Rate != uint64(rate) {
		l.rateSince = 0
		return
	}
	if root.Free >= 0 {
		l.total = total
	}
	if root.RateFree >= 0 {
		if l.rateSince == 0 {
			l.rateSince = j.now
		}
		if j.now-l.rateSince > int64(time.Minute) {
			l.rate = rate
		}
	} else {
		l.rateSince = 0
	}
}

// forsake excludes a data centre, with the sessions and admissions that it has.
func (j *oracle) forsake(i int) {
	c := &j.centres[i]
	c.forsaken, c.reachable, c.fresh, c.freshMinute = true, j.now, 0, window{}
	for _, t := range j.tickets {
		if t.home == i {
			t.fresh = false
		}
	}
}

// readmit includes data centres again that the coordinator could reach for long enough to void their ledgers, and for
// all old sessions to end.
func (j *oracle) readmit() {
	for i := range j.centres {
		c, r := &j.centres[i], j.fleet.centres.all[i]
		if !c.forsaken {
			continue
		}
		if g := j.globals.newest(); g.gone || g.asleep > j.now || r.cutUp > j.now || r.cutDown > j.now || r.newest().gone ||
			slices.ContainsFunc(j.net.pairs, func(p pairCut) bool { return p.until > j.now }) {
			c.reachable = j.now
		}
		if j.now-c.reachable > int64(j.life+wire.RateWindow+30*time.Second) {
			c.forsaken = false
		}
	}
}

// checkLedgers checks all ledgers.
func (j *oracle) checkLedgers() {
	j.readmit()
	j.arrive()
	for i := range j.fleet.centres.all {
		j.checkCentre(i)
	}
	j.checkTotals()
}

// checkCentre checks the invariants beyond the count (docs/GUARANTEES.md, invariants): in every data centre true
// sessions, unspent permits and free permits fit into its allocation. Ledgers under reconstruction after a takeover are
// checked once complete.
func (j *oracle) checkCentre(i int) {
	j.arrive()
	r := j.fleet.centres.all[i]
	n := r.newest()
	line := &j.lines[i]
	*line = deed{}
	if n.gone {
		return
	}
	l := n.core.Ledger(j.room)
	if !l.Settled || j.centres[i].forsaken {
		return
	}
	line.held = int64(l.Granted) - int64(l.Returned)
	line.rate = int64(l.RateGranted) - int64(l.RateReturned)
	line.known = !l.Reconstructed
	if j.cfg.Cap && !n.core.Status(n.clock.read(j.now)).Leased {
		line.known = false // global may have granted its permits to others
	}
	credit, rcredit := int64(0), int64(0)
	for _, e := range r.edges {
		now := e.clock.read(j.now)
		if e.down {
			continue
		}
		c, rc := e.core.Ledger(now, j.room).Spendable()
		credit += int64(c)
		rcredit += int64(rc)
	}
	line.shut = credit+rcredit == 0 && n.core.Status(n.clock.read(j.now)).Standing != wire.Listed
	c := &j.centres[i]
	sum := credit + max(0, l.Free)
	if int64(c.here-c.moved)+sum > line.held {
		j.tick()
	}
	total, most := int64(c.here-c.moved)+sum, line.held+l.Uncovered.Sessions
	if total > most {
		j.fail("%s: %d sessions + %d unspent + %d free > %d allocated (counted %d, of which reserved %d)%s",
			r.name, c.here, credit, l.Free, most, l.Active, l.Reserved, beside(c.moved))
	}
	used := int64(c.minute.count(j.now))
	rtotal, rmost := used+rcredit+max(0, l.RateFree), line.rate+l.Uncovered.Rate
	if rtotal > rmost {
		j.fail("%s: %d permits of R used in 60 s + %d idle at edges + %d free > %d allocated", r.name, used, rcredit,
			l.RateFree, rmost)
	}
	// What was voided with an earlier membership and is truly in use counts as allocated: checkTotals finds out whether the
	// coordinator keeps it back from the others. What is reserved beside may exceed the limits.
	line.held, line.rate = max(line.held, total), max(line.rate, rtotal)
}

// checkTotals checks that all allocated and free permits fit into the limits (I4).
func (j *oracle) checkTotals() {
	j.limits.observe(j)
	g := j.globals.newest()
	if g.gone {
		return
	}
	j.root = g.core.Totals(j.room)
	j.ledgers.settle(j, &j.root)
	j.checkPasses()
	sum, rsum := max(0, j.root.Free), max(0, j.root.RateFree)
	for i, l := range j.lines {
		if j.centres[i].forsaken {
			continue
		}
		if l.shut || (!l.known && j.fleet.centres.all[i].copied) {
			continue // it has no permits, and allocates none
		}
		if !l.known {
			return
		}
		sum += l.held
		rsum += l.rate
	}
	if sum > int64(j.ledgers.total) || rsum > int64(j.ledgers.rate) {
		j.fail("allocated and free permits sum to %d of %d and %d of %d", sum, j.ledgers.total, rsum, j.ledgers.rate)
	}
}

// use returns the used parts of T and R.
func (j *oracle) use() (total, rate float64) {
	return float64(len(j.tickets)) / float64(j.cfg.Total), float64(j.rate(j.now)) / float64(j.cfg.Rate)
}
