package ledger_test

import (
	"fmt"
	"math"
	"slices"
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger/region"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// judge checks the invariants of the ledger (docs/GUARANTEES.md, invariants)
// after every step:
//
//	HC1  no more sessions are valid than T; HC2 no more admissions in 60 s than R
//	I1   an edge spends and renews no more than its grants
//	I3   true sessions, live unspent permits and free permits fit into a data centre's allocation
//	I4   allocations and free permits fit into the limits
//	I6   nobody follows a lower term; promises and rosters are stored before they are relied on
//	I7   watermarks, fleet clocks and cumulative counters never go back
func (o *oracle) judge() {
	for _, e := range o.w.edges {
		o.judgeEdge(e)
	}
	for _, s := range o.w.centres {
		for _, n := range s.procs {
			if !n.gone {
				o.judgeAgg(n)
			}
		}
	}
	o.listen()
	o.followTransfers()
	for _, r := range o.w.rooms.all {
		o.judgeLimits(r)
		o.judgeRoom(r)
	}
}

func (o *oracle) fail(format string, args ...any) {
	if o.broken == "" {
		o.broken = fmt.Sprintf("at %v: ", time.Duration(o.w.now)) + fmt.Sprintf(format, args...)
	}
}

func (o *oracle) judgeEdge(e *edgeProc) {
	if e.gone {
		return
	}
	now := e.read(o.w.now)
	st := e.core.Status(now)
	if st.Follows.N < e.follows {
		o.fail("%s follows term %d after %d", e.name, st.Follows.N, e.follows)
	}
	e.follows = st.Follows.N
	o.noteGivenUp(e, st)
	if st.Synced { // before, it is the machine's guess
		if st.Time < e.time {
			o.fail("fleet time of %s goes back", e.name)
		}
		e.time = st.Time
	}
	for _, r := range o.w.rooms.all {
		l := e.core.Ledger(now, r.id)
		if l.Spent+l.Returned > l.Granted {
			o.fail("%s: %d spent + %d returned > %d granted", e.name, l.Spent, l.Returned, l.Granted)
		}
		if o.w.rooms.cap && l.Renewed > l.RenewCeil {
			o.fail("%s: %d renewals of %d", e.name, l.Renewed, l.RenewCeil)
		}
		if l.RateReturned > l.RateGranted {
			o.fail("%s: %d permits of R returned of %d", e.name, l.RateReturned, l.RateGranted)
		}
	}
}

func (o *oracle) judgeAgg(n *aggProc) {
	st := n.core.Status(n.read(o.w.now))
	if st.Watermark < n.wm {
		o.fail("the watermark of %s/%d goes back", n.dc.name, n.term)
	}
	n.wm = st.Watermark
	if n == n.dc.newest() {
		// A promise has to outlive the process that made it.
		if st.Joined && st.Follows.N < n.dc.follows {
			o.fail("%s/%d follows term %d after %d", n.dc.name, n.term, st.Follows.N, n.dc.follows)
		}
		if st.Joined {
			n.dc.follows = st.Follows.N
		}
	}
	for _, r := range o.w.rooms.all {
		l, old := n.core.Ledger(r.id), n.ledgers[r.id]
		if l == (region.Ledger{Settled: true}) { // dropped
			old = l
		}
		same := l.Gen == old.Gen && old.Settled && l.Settled
		if same && (l.Granted < old.Granted || l.Returned < old.Returned || l.RateGranted < old.RateGranted ||
			l.RateReturned < old.RateReturned) {
			o.fail("the ledgers of %s/%d go back", n.dc.name, n.term)
		}
		if l.Freed < old.Freed {
			o.fail("%s/%d counts a freed second again", n.dc.name, n.term)
		}
		n.ledgers[r.id] = l
	}
}

// watchGrant is called with everything an aggregator says to an edge: a lease
// is given only to an instance that the store knows to be alive.
func (o *oracle) watchGrant(n *aggProc, g wire.Grant) {
	if g.Lease == 0 {
		return
	}
	if n.dc.owner != n.term {
		return // a zombie that does not know yet: its edges' promises bound it
	}
	i := slices.IndexFunc(n.dc.stored.Roster,
		func(r wire.RosterEntry) bool { return r.Edge == g.To && r.Instance == g.Instance })
	if i < 0 || n.dc.stored.Roster[i].Dead {
		o.fail("%s/%d gives %s a lease that its successor would not know of", n.dc.name, n.term, g.To)
	}
}

// watchReport is called with every report of an aggregator to global: its promises must be stored.
func (o *oracle) watchReport(n *aggProc, m wire.Report) {
	if n.dc.owner == n.term && n.dc.stored.Promise.N < m.Seen.N {
		o.fail("%s/%d follows term %d, and the store says %d", n.dc.name, n.term, m.Seen.N, n.dc.stored.Promise.N)
	}
	if n.dc.owner != n.term {
		return
	}
	for i := range m.Rooms {
		r := o.roomOf(m.Rooms[i].Room)
		for _, t := range m.Rooms[i].Transfers {
			if r == nil || r.quit[t.ID] != 0 || t.Until <= r.until[t.ID] {
				continue
			}
			r.until[t.ID], r.home[t.ID] = t.Until, nil // on its way
			if r.going == nil {
				r.going = map[uint64]wire.Transfer{}
			}
			r.going[t.ID] = t
		}
	}
}

// roomOf returns the truth of a room, or nil.
func (o *oracle) roomOf(id room.ID) *roomTruth {
	for _, r := range o.w.rooms.all {
		if r.id == id {
			return r
		}
	}
	return nil
}

// followTransfers finds the sessions that have arrived: their new home counts them.
func (o *oracle) followTransfers() {
	for _, r := range o.w.rooms.all {
		for id, t := range r.going {
			if r.until[id] > t.Until {
				delete(r.going, id)
				continue
			}
			if s := o.centreOf(ticket.DC(t.To)); s != nil && s.newest().core.Took(r.id, t) {
				r.home[id] = s
				delete(r.going, id)
			}
		}
	}
}

// issued records that a visitor got a ticket with a session.
func (o *oracle) issued(p *person, d admission.Decision) {
	r := p.room
	id := d.Ticket.ID
	if int64(d.Ticket.Until)*1000 <= int64(o.w.fleetTime())-1000 {
		o.fail("a ticket that expired at %d is served", d.Ticket.Until)
	}
	if r.stamped[id] == nil {
		r.stamped[id] = map[ticket.DC]uint32{}
	}
	r.stamped[id][d.Ticket.Home] = max(r.stamped[id][d.Ticket.Home], d.Ticket.Until)
	if d.Ticket.Until > r.until[id] { // the last edge to stamp counts the session to its end
		r.until[id] = d.Ticket.Until
		r.home[id] = o.centreOf(d.Ticket.Home)
	}
	if d.Verdict == admission.Admit {
		r.admitted = append(r.admitted, o.w.now)
		r.where = append(r.where, p.edge.dc)
		o.judgeNewcomer(r, p.edge)
	}
}

// hearing is the way from an edge to the coordinator, and since when it has been whole.
type hearing struct {
	edge  *admission.Engine
	agg   *aggProc
	root  *rootProc
	since int64
	knows int64 // every change before this time was obeyed
}

// settling is the time in which an edge that can hear of a change obeys it.
func (o *oracle) settling() int64 { return int64(10*time.Second + 2*o.w.net.chaos.most) }

// listen updates since when every edge can hear of a change, by the processes and links alone.
func (o *oracle) listen() {
	whole := func(l *link) bool { return !l.cut && !l.caught }
	for _, e := range o.w.edges {
		s, n, g := e.dc, e.dc.newest(), o.w.root()
		h := hearing{e.core, n, g, e.hears.since, e.hears.knows}
		if h != e.hears || e.gone || n.gone || g.gone || s.diskless || !whole(&e.up) || !whole(&e.down) || !whole(&s.up) ||
			!whole(&s.down) {
			h.since = o.w.now
		}
		if o.w.now-h.since > o.settling() {
			h.knows = o.w.now - o.settling()
		}
		e.hears = h
	}
}

// heard reports whether an edge could hear of a change at a time long enough ago to obey it.
func (o *oracle) heard(e *edgeProc, change int64) bool {
	return o.w.now-max(change, e.hears.since) > o.settling()
}

// judgeNewcomer checks an admission: a lowered limit binds every edge that could hear of it.
func (o *oracle) judgeNewcomer(r *roomTruth, e *edgeProc) {
	if o.excuse || r.gone {
		return
	}
	if active := o.active(r, nil); active > int(r.total) && o.heard(e, r.loweredT) {
		o.fail("%s: %s, which could hear of it, makes %d sessions of %d", r.name, e.name, active, r.total)
	}
	if used := o.used(r, nil); used > int(r.rate) && o.heard(e, r.loweredR) {
		o.fail("%s: %s, which could hear of it, makes %d admissions in 60 s of %d", r.name, e.name, used, r.rate)
	}
}

// judgeLimits determines the limits that bind everywhere: a lowered one once every edge has heard of it, even if it is
// cut off since, and no more is left than it allows.
func (o *oracle) judgeLimits(r *roomTruth) {
	all := func(change int64) bool {
		return !slices.ContainsFunc(o.w.edges, func(e *edgeProc) bool { return !e.gone && e.hears.knows <= change })
	}
	if r.bindT > r.total && all(r.loweredT) && o.active(r, nil) <= int(r.total) {
		r.bindT = r.total
	}
	if r.bindR > r.rate && all(r.loweredR) && o.used(r, nil) <= int(r.rate) {
		r.bindR = r.rate
	}
}

// centreOf returns the data centre that a ticket names as its home.
func (o *oracle) centreOf(home ticket.DC) *dataCentre {
	for _, s := range o.w.centres {
		if ticket.DCOf(s.name) == home {
			return s
		}
	}
	return nil
}

// active returns how many sessions of the room are valid somewhere, in all or
// in one data centre: the slowest clock of an edge says.
func (o *oracle) active(r *roomTruth, s *dataCentre) int {
	ends := map[*dataCentre]fleettime.Time{} // per home, the slowest clock of an edge
	for _, home := range o.w.centres {
		ends[home] = math.MaxInt64
		for _, e := range o.w.edges {
			if now := e.read(o.w.now); !e.gone && e.core.Status(now).Synced {
				ends[home] = min(ends[home], e.core.ExpiryTime(now, ticket.DCOf(home.name)))
			}
		}
		if ends[home] == math.MaxInt64 {
			ends[home] = o.w.fleetTime()
		}
	}
	n := 0
	for id, until := range r.until {
		home := r.home[id]
		if _, quit := r.quit[id]; quit {
			if home = o.accepted(r, id); home == nil {
				continue
			}
			if s != nil && len(r.stamped[id]) > 1 {
				continue // the count of one data centre may cover a ticket of the other: see marks.older
			}
		} else if int64(until)*1000 <= int64(ends[home]) {
			continue
		}
		if s == nil || home == s {
			n++
		}
	}
	return n
}

// accepted returns the home of the newest ticket that any edge would accept of a visitor that left, or nil: a copy of
// it may exist.
func (o *oracle) accepted(r *roomTruth, id uint64) *dataCentre {
	newest := uint32(0)
	var at *dataCentre
	for home, until := range r.stamped[id] {
		t := ticket.Ticket{ID: id, Home: home, Until: until}
		for _, e := range o.w.edges {
			now := e.read(o.w.now)
			if e.gone || !o.inLedger(e) || r.quit[id] < e.dc.forgot {
				continue // it has been cut off for longer than a session, or its data centre lost its memory
			}
			judge, end := home, e.core.Rooms.Ended(r.id, t)
			if end == wire.Moved {
				judge = ticket.Nobody
			}
			if end != wire.Left && t.Valid(e.core.ExpiryTime(now, judge)) && until > newest {
				newest, at = until, o.centreOf(home)
			}
		}
	}
	return at
}

// inLedger reports whether an edge's regional counts it, and has sent it all revocations once.
func (o *oracle) inLedger(e *edgeProc) bool {
	st := e.core.Status(e.read(o.w.now))
	return st.Leased || (st.LeaseEnd != 0 || st.LeaseEpoch > 1) && !e.givenUp
}

// noteGivenUp remembers that no aggregator counts an edge any more, until its next lease: a
// successor may list it once more, from an older store.
func (o *oracle) noteGivenUp(e *edgeProc, st admission.Status) {
	n := e.dc.newest()
	listed := slices.ContainsFunc(n.core.Status(n.read(o.w.now)).Edges, func(o region.EdgeStatus) bool {
		return o.Name == e.name && o.Instance == st.Instance
	})
	e.known = e.known || listed
	if e.knows && st.Leased && st.Follows.N == n.term {
		e.dc.forgot = 0
	}
	e.givenUp = !st.Leased && (e.givenUp || e.known && !listed)
}

// used returns how many were admitted in the last 60 s.
func (o *oracle) used(r *roomTruth, s *dataCentre) int {
	n := 0
	for i := len(r.admitted) - 1; i >= 0 && o.w.now-r.admitted[i] < int64(time.Minute); i-- {
		if s == nil || r.where[i] == s {
			n++
		}
	}
	return n
}

func (o *oracle) judgeRoom(r *roomTruth) {
	root := o.w.root()
	rl := root.core.Ledger(r.id)
	known := !root.gone
	if known && rl.Complete {
		want := r.total
		if r.gone {
			want = 0
		}
		if rl.Free >= 0 {
			r.lentT = want
		}
		if rl.RateFree < 0 {
			r.drained = 0
		} else if r.drained == 0 {
			r.drained = o.w.now
		}
		if r.drained != 0 && o.w.now-r.drained > int64(time.Minute) {
			r.lentR = r.rate
		}
	}
	active := o.active(r, nil)
	r.peak = max(r.peak, active)
	if active > int(r.bindT) && !o.excuse && !r.gone {
		o.fail("%s: %d sessions are valid, the limit is %d", r.name, active, r.bindT)
	}
	if used := o.used(r, nil); used > int(r.bindR) && !o.excuse {
		o.fail("%s: %d admissions in 60 s, the limit is %d", r.name, used, r.bindR)
	}
	sum, rsum := max(0, rl.Free), max(0, rl.RateFree)
	for _, s := range o.w.centres {
		n := s.newest()
		l := n.core.Ledger(r.id)
		if n.gone || !l.Settled {
			known = false
			continue
		}
		if l.Reconstructed || (o.w.rooms.cap && !n.core.Status(n.read(o.w.now)).Leased) {
			known = false // they may be more than was lent, or lent to others again
		}
		held, rheld := int64(l.Granted)-int64(l.Returned), int64(l.RateGranted)-int64(l.RateReturned)
		held, rheld = held+l.Uncovered.Sessions, rheld+l.Uncovered.Rate
		sum, rsum = sum+held, rsum+rheld
		credit, idle := int64(0), int64(0)
		for _, e := range o.w.edges {
			now := e.read(o.w.now)
			if e.dc != s || e.gone || !e.core.Status(now).Leased {
				continue
			}
			el := e.core.Ledger(now, r.id)
			if el.Life == 0 {
				continue // it may stamp no ticket
			}
			credit += int64(el.Credit())
			idle += int64(el.RateIdle)
		}
		if o.excuse {
			continue
		}
		if here := int64(o.active(r, s)); here+credit+max(0, l.Free) > held {
			o.fail("%s: %d sessions + %d credit + %d free > %d held (counted %d, of which reserved %d)", s.name, here, credit,
				l.Free, held, l.Active, l.Reserved)
		}
		if used := int64(o.used(r, s)); used+idle+max(0, l.RateFree) > rheld {
			o.fail("%s: %d used in 60 s + %d idle + %d free > %d permits of R held", s.name, used, idle, l.RateFree, rheld)
		}
	}
	if known && !o.excuse && (sum > int64(r.lentT) || rsum > int64(r.lentR)) {
		o.fail("%s: held and free sum to %d of %d and %d of %d", r.name, sum, r.lentT, rsum, r.lentR)
	}
}
