package ledger_test

import (
	"fmt"
	"math"
	"slices"
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger/region"
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
func (w *world) judge() {
	for _, e := range w.edges {
		w.judgeEdge(e)
	}
	for _, s := range w.centres {
		for _, n := range s.procs {
			if !n.gone {
				w.judgeAgg(n)
			}
		}
	}
	w.listen()
	for _, r := range w.rooms {
		w.judgeLimits(r)
		w.judgeRoom(r)
	}
}

func (w *world) fail(format string, args ...any) {
	if w.broken == "" {
		w.broken = fmt.Sprintf("at %v: ", time.Duration(w.now)) + fmt.Sprintf(format, args...)
	}
}

func (w *world) judgeEdge(e *edgeProc) {
	if e.gone {
		return
	}
	now := e.read(w.now)
	st := e.core.Status(now)
	if st.Follows.N < e.follows {
		w.fail("%s follows term %d after %d", e.name, st.Follows.N, e.follows)
	}
	e.follows = st.Follows.N
	w.noteGivenUp(e, st)
	if st.Synced { // before, it is the machine's guess
		if st.Time < e.time {
			w.fail("fleet time of %s goes back", e.name)
		}
		e.time = st.Time
	}
	for _, r := range w.rooms {
		l := e.core.Ledger(now, r.id)
		if l.Spent+l.Returned > l.Granted {
			w.fail("%s: %d spent + %d returned > %d granted", e.name, l.Spent, l.Returned, l.Granted)
		}
		if w.cap && l.Renewed > l.RenewCeil {
			w.fail("%s: %d renewals of %d", e.name, l.Renewed, l.RenewCeil)
		}
		if l.RateReturned > l.RateGranted {
			w.fail("%s: %d permits of R returned of %d", e.name, l.RateReturned, l.RateGranted)
		}
	}
}

func (w *world) judgeAgg(n *aggProc) {
	st := n.core.Status(n.read(w.now))
	if st.Watermark < n.wm {
		w.fail("the watermark of %s/%d goes back", n.dc.name, n.term)
	}
	n.wm = st.Watermark
	if n == n.dc.newest() {
		// A promise has to outlive the process that made it.
		if st.Joined && st.Follows.N < n.dc.follows {
			w.fail("%s/%d follows term %d after %d", n.dc.name, n.term, st.Follows.N, n.dc.follows)
		}
		if st.Joined {
			n.dc.follows = st.Follows.N
		}
	}
	for _, r := range w.rooms {
		l, old := n.core.Ledger(r.id), n.books[r.id]
		if l == (region.Ledger{Settled: true}) { // dropped
			old = l
		}
		same := l.Gen == old.Gen && old.Settled && l.Settled
		if same && (l.Granted < old.Granted || l.Returned < old.Returned || l.RateGranted < old.RateGranted || l.RateReturned < old.RateReturned) {
			w.fail("the books of %s/%d go back", n.dc.name, n.term)
		}
		if l.Freed < old.Freed {
			w.fail("%s/%d counts a freed second again", n.dc.name, n.term)
		}
		n.books[r.id] = l
	}
}

// watchGrant is called with everything an aggregator says to an edge: a lease
// is given only to an instance that the store knows to be alive.
func (w *world) watchGrant(n *aggProc, g wire.Grant) {
	if g.Lease == 0 {
		return
	}
	if n.dc.owner != n.term {
		return // a zombie that does not know yet: its edges' promises bound it
	}
	i := slices.IndexFunc(n.dc.stored.Roster, func(r wire.RosterEntry) bool { return r.Edge == g.To && r.Instance == g.Instance })
	if i < 0 || n.dc.stored.Roster[i].Dead {
		w.fail("%s/%d gives %s a lease that its successor would not know of", n.dc.name, n.term, g.To)
	}
}

// watchReport is called with every report of an aggregator to global: its promises must be stored.
func (w *world) watchReport(n *aggProc, m wire.Report) {
	if n.dc.owner == n.term && n.dc.stored.Promise.N < m.Seen.N {
		w.fail("%s/%d follows term %d, and the store says %d", n.dc.name, n.term, m.Seen.N, n.dc.stored.Promise.N)
	}
}

// issued records that a visitor got a ticket with a session.
func (w *world) issued(p *person, d admission.Decision) {
	r := p.room
	id := d.Ticket.ID
	if int64(d.Ticket.Until)*1000 <= int64(w.fleetTime())-1000 {
		w.fail("a ticket that expired at %d is served", d.Ticket.Until)
	}
	if r.stamped[id] == nil {
		r.stamped[id] = map[ticket.DC]uint32{}
	}
	r.stamped[id][d.Ticket.Home] = max(r.stamped[id][d.Ticket.Home], d.Ticket.Until)
	if d.Ticket.Until > r.until[id] { // the last edge to stamp counts the session to its end
		r.until[id] = d.Ticket.Until
		r.home[id] = w.centreOf(d.Ticket.Home)
	}
	if d.Verdict == admission.Admit {
		r.admitted = append(r.admitted, w.now)
		r.where = append(r.where, p.edge.dc)
		w.judgeNewcomer(r, p.edge)
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
func (w *world) settling() int64 { return int64(10*time.Second + 2*w.chaos.most) }

// listen updates since when every edge can hear of a change, by the processes and links alone.
func (w *world) listen() {
	whole := func(l *link) bool { return !l.cut && !l.caught }
	for _, e := range w.edges {
		s, n, g := e.dc, e.dc.newest(), w.root()
		h := hearing{e.core, n, g, e.hears.since, e.hears.knows}
		if h != e.hears || e.gone || n.gone || g.gone || s.diskless || !whole(&e.up) || !whole(&e.down) || !whole(&s.up) || !whole(&s.down) {
			h.since = w.now
		}
		if w.now-h.since > w.settling() {
			h.knows = w.now - w.settling()
		}
		e.hears = h
	}
}

// heard reports whether an edge could hear of a change at a time long enough ago to obey it.
func (w *world) heard(e *edgeProc, change int64) bool {
	return w.now-max(change, e.hears.since) > w.settling()
}

// judgeNewcomer checks an admission: a lowered limit binds every edge that could hear of it.
func (w *world) judgeNewcomer(r *roomTruth, e *edgeProc) {
	if w.excuse || r.gone {
		return
	}
	if active := w.active(r, nil); active > int(r.total) && w.heard(e, r.loweredT) {
		w.fail("%s: %s, which could hear of it, makes %d sessions of %d", r.name, e.name, active, r.total)
	}
	if used := w.used(r, nil); used > int(r.rate) && w.heard(e, r.loweredR) {
		w.fail("%s: %s, which could hear of it, makes %d admissions in 60 s of %d", r.name, e.name, used, r.rate)
	}
}

// judgeLimits determines the limits that bind everywhere: a lowered one once every edge has heard of it, even if it is
// cut off since, and no more is left than it allows.
func (w *world) judgeLimits(r *roomTruth) {
	all := func(change int64) bool {
		return !slices.ContainsFunc(w.edges, func(e *edgeProc) bool { return !e.gone && e.hears.knows <= change })
	}
	if r.bindT > r.total && all(r.loweredT) && w.active(r, nil) <= int(r.total) {
		r.bindT = r.total
	}
	if r.bindR > r.rate && all(r.loweredR) && w.used(r, nil) <= int(r.rate) {
		r.bindR = r.rate
	}
}

// centreOf returns the data centre that a ticket names as its home.
func (w *world) centreOf(home ticket.DC) *dataCentre {
	for _, s := range w.centres {
		if ticket.DCOf(s.name) == home {
			return s
		}
	}
	return nil
}

// active returns how many sessions of the room are valid somewhere, in all or
// in one data centre: the slowest clock of an edge says.
func (w *world) active(r *roomTruth, s *dataCentre) int {
	ends := map[*dataCentre]fleettime.Time{} // per home, the slowest clock of an edge
	for _, home := range w.centres {
		ends[home] = math.MaxInt64
		for _, e := range w.edges {
			if now := e.read(w.now); !e.gone && e.core.Status(now).Synced {
				ends[home] = min(ends[home], e.core.ExpiryTime(now, ticket.DCOf(home.name)))
			}
		}
		if ends[home] == math.MaxInt64 {
			ends[home] = w.fleetTime()
		}
	}
	n := 0
	for id, until := range r.until {
		home := r.home[id]
		if _, quit := r.quit[id]; quit {
			if home = w.accepted(r, id); home == nil {
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
func (w *world) accepted(r *roomTruth, id uint64) *dataCentre {
	newest := uint32(0)
	var at *dataCentre
	for home, until := range r.stamped[id] {
		t := ticket.Ticket{ID: id, Home: home, Until: until}
		for _, e := range w.edges {
			now := e.read(w.now)
			if e.gone || !w.inBooks(e) || r.quit[id] < e.dc.forgot {
				continue // it has been cut off for longer than a session, or its data centre lost its memory
			}
			judge, end := home, e.core.Rooms.Ended(r.id, t)
			if end == wire.Moved {
				judge = ticket.Nobody
			}
			if end != wire.Left && t.Valid(e.core.ExpiryTime(now, judge)) && until > newest {
				newest, at = until, w.centreOf(home)
			}
		}
	}
	return at
}

// inBooks reports whether an edge's regional counts it, and has sent it all revocations once.
func (w *world) inBooks(e *edgeProc) bool {
	st := e.core.Status(e.read(w.now))
	return st.Leased || (st.LeaseEnd != 0 || st.LeaseEpoch > 1) && !e.givenUp
}

// noteGivenUp remembers that no aggregator counts an edge any more, until its next lease: a
// successor may list it once more, from an older store.
func (w *world) noteGivenUp(e *edgeProc, st admission.Status) {
	n := e.dc.newest()
	listed := slices.ContainsFunc(n.core.Status(n.read(w.now)).Edges, func(o region.EdgeStatus) bool {
		return o.Name == e.name && o.Instance == st.Instance
	})
	e.known = e.known || listed
	if e.knows && st.Leased && st.Follows.N == n.term {
		e.dc.forgot = 0
	}
	e.givenUp = !st.Leased && (e.givenUp || e.known && !listed)
}

// used returns how many were admitted in the last 60 s.
func (w *world) used(r *roomTruth, s *dataCentre) int {
	n := 0
	for i := len(r.admitted) - 1; i >= 0 && w.now-r.admitted[i] < int64(time.Minute); i-- {
		if s == nil || r.where[i] == s {
			n++
		}
	}
	return n
}

func (w *world) judgeRoom(r *roomTruth) {
	root := w.root()
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
			r.drained = w.now
		}
		if r.drained != 0 && w.now-r.drained > int64(time.Minute) {
			r.lentR = r.rate
		}
	}
	active := w.active(r, nil)
	r.peak = max(r.peak, active)
	if active > int(r.bindT) && !w.excuse && !r.gone {
		w.fail("%s: %d sessions are valid, the limit is %d", r.name, active, r.bindT)
	}
	if used := w.used(r, nil); used > int(r.bindR) && !w.excuse {
		w.fail("%s: %d admissions in 60 s, the limit is %d", r.name, used, r.bindR)
	}
	sum, rsum := max(0, rl.Free), max(0, rl.RateFree)
	for _, s := range w.centres {
		n := s.newest()
		l := n.core.Ledger(r.id)
		if n.gone || !l.Settled {
			known = false
			continue
		}
		if l.Reconstructed || (w.cap && !n.core.Status(n.read(w.now)).Leased) {
			known = false // they may be more than was lent, or lent to others again
		}
		held, rheld := int64(l.Granted)-int64(l.Returned), int64(l.RateGranted)-int64(l.RateReturned)
		sum, rsum = sum+held, rsum+rheld
		credit, idle := int64(0), int64(0)
		for _, e := range w.edges {
			now := e.read(w.now)
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
		if w.excuse {
			continue
		}
		if here := int64(w.active(r, s)); here+credit+max(0, l.Free) > held {
			w.fail("%s: %d sessions + %d credit + %d free > %d held (counted %d, of which reserved %d)", s.name, here, credit, l.Free, held, l.Active, l.Reserved)
		}
		if used := int64(w.used(r, s)); used+idle+max(0, l.RateFree) > rheld {
			w.fail("%s: %d used in 60 s + %d idle + %d free > %d permits of R held", s.name, used, idle, l.RateFree, rheld)
		}
	}
	if known && !w.excuse && (sum > int64(r.lentT) || rsum > int64(r.lentR)) {
		w.fail("%s: held and free sum to %d of %d and %d of %d", r.name, sum, r.lentT, rsum, r.lentR)
	}
}
