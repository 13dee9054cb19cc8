package root

import (
	"math"
	"time"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/ledger/share"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// reserve is the part of the permits without demand that stays at the root, for data centres without recent visitors.
const reserve = 0.2

// lending is how far permits may be lent to a data centre.
type lending uint8

const (
	lendAll     lending = iota
	lendMovers          // it drains: permits of T for sessions that move there, while anything is out
	lendInPlace         // it keeps its permits
	lendNone            // its idle permits are to come back
)

// lendingTo returns how far permits of a room may be lent to a data centre that has l of it. A data
// centre that drains and has returned everything is lent nothing more: a coordinator with a list without
// it need not know it.
func (c *centres) lendingTo(now fleettime.Mono, d *centre, l *loan) lending {
	switch {
	case c.outdated() && !d.draining:
		return lendInPlace
	case c.outdated() || !d.listed:
		return lendNone
	case d.draining && !l.outstanding():
		return lendNone
	case d.draining:
		return lendMovers
	case !c.isEntered(now, d), c.awaitsClusterID(d):
		return lendInPlace
	}
	return lendAll
}

// lendingRound is the lending of one room at one moment.
type lendingRound struct {
	homes  []*centre // data centres whose permits can be moved now
	loans  []*loan
	how    []lending
	open   []int                // indexes of those that are lent to
	lines  []estimate.Histogram // their waiting visitors that may be admitted; see share.Prospect
	shares []float64            // of all visitors
	moving []int                // permits of T for sessions that move there

	free, rateFree   int64 // at the root
	supply, rate     int64 // the same with idle permits, without debt
	kept, rateKept   int64 // of those, permits that stay in their data centre
	debt             bool  // more is lent than the limits allow
	waitingElsewhere bool  // a visitor waits for a permit that lies in another data centre

	active     uint64
	wanted     float64
	held       float64 // called visitors at the edges
	overdue    float64 // called visitors that do not ask
	pending    []estimate.Histogram
	absent     []estimate.Histogram // waiting visitors of data centres that are silent
	heldJoined [][]fleettime.Time
}

// lend lends the free permits of the room and sets the idle targets of the data centres. It computes the view, with
// the join time up to which visitors may enter. s is reused memory.
func (p *pool) lend(now fleettime.Mono, ft fleettime.Time, s *lendingRound) {
	p.sendOn(now, ft)
	free, rfree, complete := p.free()
	p.raiseBound(free, rfree, complete)
	if complete {
		p.cover(now, free, rfree)
	}
	if complete { // when a ledger is missing again, permits beyond a lowered limit must not be lent
		t, r := p.limits()
		p.spare, p.rateSpare = min(p.spare, p.bound.Sessions-t+free), min(p.rateSpare, p.bound.Rate-r+rfree)
	}
	p.collect(now, ft, s, free, rfree, complete)
	called, callable := p.callable(s)
	view := p.updateView(now, ft, share.Prospect{
		Lines: s.lines, Absent: s.absent,
		Supply: s.supply, Rate: s.rate, Total: int64(p.Total), Limit: int64(p.Rate),
		Tally:  p.progress.Tally(time.Duration(wire.Life(p.Session))*time.Second, s.active),
		Wanted: s.wanted, Pending: s.pending, HeldJoined: share.MergeTimes(s.heldJoined, math.MaxInt), Debt: s.debt, Paused: p.Shut,
		Called: calledUpTo(called, callable, ft), Random: p.Random, Lot: share.Lot{Term: p.cfg.Term, Room: p.ID},
		Held: s.held, Overdue: s.overdue, Coming: p.Coming,
	})
	p.lendPasses(s)
	if len(s.loans) == 0 {
		return
	}
	for i, line := range s.lines { // what follows divides among data centres by the visitors of each
		s.lines[i] = line.Clamp()
	}
	keeps, rkeeps := s.keeps(s.supply-s.kept, view), s.keeps(s.rate-s.rateKept, view)
	for i, l := range s.loans {
		l.dirty = l.dirty || l.reconstructed // it waits for confirmation
		idle, ridle := l.idleNow(), l.rateIdleNow()
		give, rgive, keep, rkeep := s.target(p, view, i, int64(keeps[i]+s.moving[i]), int64(rkeeps[i]))
		p.spare, p.rateSpare = p.spare-give, p.rateSpare-rgive
		push := keep < idle && (s.waitingElsewhere || view.Queues())
		if give > 0 || rgive > 0 {
			l.permits.Sessions.Granted += uint64(give)
			l.permits.Rate.Granted += uint64(rgive)
			l.dirty = true
			push = push || l.demand.HeldPeople+l.demand.Movers > 0 || int64(l.demand.Want) > min(idle, ridle) || view.Queues()
			p.centres.counted = p.centres.counted || complete
		}
		s.homes[i].push = s.homes[i].push || push
		l.dirty = l.permits.SetKeep(uint64(keep), uint64(rkeep)) || l.dirty
	}
}

// collect collects the loans and visitors of all data centres, with the free permits of the room.
func (p *pool) collect(now fleettime.Mono, ft fleettime.Time, s *lendingRound, free, rateFree int64, complete bool) {
	s.reset(free, rateFree)
	for _, d := range p.centres.all {
		l := p.loans[d]
		if !d.adopted || d.blank || d.recovering || d.readmitted() || now.Sub(d.recv) > SilentAfter || l != nil && l.drops {
			if l != nil {
				s.addSilent(now, l, p.centres.lendingTo(now, d, l))
			}
			continue // its permits cannot be moved, and it cannot use more
		}
		if l != nil {
			s.active += l.active
		}
		if l == nil {
			if p.gone { // it has dropped the room, or never had it
				continue
			}
			l = p.loan(d)
		}
		how := p.centres.lendingTo(now, d, l)
		if l.reconstructed && !complete {
			how = max(how, lendInPlace) // what it returns may never have been lent
		}
		s.add(d, l, how, l.share(ft))
	}
	floorShares(s.shares)
	// Sessions that move come before all waiting visitors.
	movers := int64(0)
	moving := make([]int, len(s.loans))
	for i, l := range s.loans {
		if s.how[i] <= lendMovers {
			moving[i] = int(l.demand.Movers)
			movers += int64(l.demand.Movers)
		}
		s.waitingElsewhere = s.waitingElsewhere || s.how[i] <= lendMovers && int64(l.demand.Movers) > l.idleNow() ||
			s.how[i] == lendAll && int64(l.demand.HeldPeople) > min(l.idleNow(), l.rateIdleNow())
	}
	// Idle permits pay a debt once they are returned. Until then an edge might use them.
	s.debt = min(free, rateFree) < 0
	if p.Unbound && !p.gone && !p.centres.outdated() {
		s.addUnlimited(p)
		s.debt = false
	}
	s.moving = share.Fill(int(max(0, s.supply)), moving, s.shares)
	s.supply -= movers
	s.debt = s.debt || min(s.supply, s.rate) < 0
	s.supply, s.rate = max(0, s.supply), max(0, s.rate)
}

// reset clears the data of the previous room and keeps the memory.
func (s *lendingRound) reset(free, rateFree int64) {
	*s = lendingRound{
		free: free, rateFree: rateFree, supply: free, rate: rateFree,
		homes: s.homes[:0], loans: s.loans[:0], how: s.how[:0], open: s.open[:0], lines: s.lines[:0], shares: s.shares[:0],
		pending: s.pending[:0], absent: s.absent[:0], heldJoined: s.heldJoined[:0],
	}
}

// keeps returns the idle targets of the data centres, which sum to at most n.
func (s *lendingRound) keeps(n int64, view *wire.View) []int {
	keeps := make([]int, len(s.loans))
	if n <= 0 {
		return keeps
	}
	if len(s.open) == len(s.loans) {
		return spread(int(n), view, s.loans, s.lines, s.shares)
	}
	for k, part := range spread(int(n), view, pick(s.loans, s.open), pick(s.lines, s.open), pick(s.shares, s.open)) {
		keeps[s.open[k]] = part
	}
	return keeps
}

// target returns the idle targets of data centre i, for which keep and rkeep were computed, and the permits to lend
// to it.
func (s *lendingRound) target(p *pool, view *wire.View, i int, keep, rkeep int64) (give, rgive, k, rk int64) {
	l := s.loans[i]
	idle, ridle := l.idleNow(), l.rateIdleNow()
	switch {
	case p.gone:
		keep, rkeep = 0, 0
	case s.how[i] == lendInPlace:
		keep = inPlace(&l.permits.Sessions, idle, s.kept, s.free) // it admits as sessions end
		rkeep = inPlace(&l.permits.Rate, ridle, s.rateKept, s.rateFree)
	case s.how[i] == lendAll && !s.waitingElsewhere && !view.Queues() && !tooFew(int(min(s.supply, s.rate)), len(s.open)):
		// Small deviations do no harm while no visitor waits.
		keep, rkeep = keepIfClose(keep, idle), keepIfClose(rkeep, ridle)
	}
	if s.how[i] < lendInPlace {
		give, rgive = min(max(0, keep-idle), max(0, s.free)), min(max(0, rkeep-ridle), max(0, s.rateFree))
	}
	s.free, s.rateFree = s.free-give, s.rateFree-rgive
	return give, rgive, keep, rkeep
}

// inPlace returns the idle target of a data centre that keeps its permits: all, without its part of a debt. Of kept
// permits, which are idle in such data centres, idle are in this one; free is negative by the debt.
func inPlace(held *wire.Allocation, idle, kept, free int64) int64 {
	if free >= 0 {
		return max(0, held.Held())
	}
	if idle <= 0 || kept <= -free {
		return 0
	}
	return idle - (idle*-free+kept-1)/kept
}

// addUnlimited adds permits to a room without a binding limit, until permits of T and R exceed the demand of all
// visitors that wait, join or move. They are lent and counted like others, so that every session holds a permit when
// a limit binds again.
func (s *lendingRound) addUnlimited(p *pool) {
	need := 0.0
	for i, l := range s.loans {
		need += float64(l.demand.Want+l.demand.HeldPeople+l.demand.Movers) + max(0, s.lines[i].Total())
	}
	n := int64(min(need, room.MaxRate))
	s.free += max(0, int64(p.Total)+n-s.supply)
	s.supply = max(s.supply, int64(p.Total)+n)
	s.rateFree += max(0, int64(p.Rate)+n-s.rate)
	s.rate = max(s.rate, int64(p.Rate)+n)
}

// addSilent adds the last known visitors of a data centre that is silent, or recovering. They still wait: a line
// without them would promise too much to the others.
func (s *lendingRound) addSilent(now fleettime.Mono, l *loan, how lending) {
	silence := now.Sub(l.lastWhole.at)
	if l.lastWhole.at == 0 || silence > ledger.CrowdKept {
		s.active += l.active
		return
	}
	s.active += max(l.active, l.lastWhole.active)
	if how == lendAll || (how == lendInPlace && l.permits.Sessions.Held() > 0) {
		s.absent = append(s.absent, ledger.Remaining(l.lastWhole.waiting, silence))
		s.pending = append(s.pending, ledger.Remaining(l.lastWhole.pending, silence))
	}
}

// add adds a data centre.
func (s *lendingRound) add(d *centre, l *loan, how lending, share float64) {
	if how == lendAll {
		s.open = append(s.open, len(s.loans))
	}
	// Visitors of a data centre that admits none do not delay others.
	var waiting estimate.Histogram
	if how == lendAll || (how == lendInPlace && l.permits.Sessions.Held() > 0) { // the data centre admits visitors
		waiting = l.waiting
		s.wanted += float64(l.demand.Want + l.demand.HeldPeople)
		s.pending = append(s.pending, l.pending)
		s.heldJoined = append(s.heldJoined, l.demand.HeldJoined)
		s.held += float64(l.demand.HeldPeople)
		s.overdue += float64(l.demand.Overdue)
	}
	s.how = append(s.how, how)
	s.homes = append(s.homes, d)
	s.loans = append(s.loans, l)
	s.lines = append(s.lines, waiting)
	s.shares = append(s.shares, share)
	s.supply += max(0, l.idleNow())
	s.rate += max(0, l.rateIdleNow())
	if how == lendInPlace {
		s.kept, s.rateKept = s.kept+max(0, l.idleNow()), s.rateKept+max(0, l.rateIdleNow())
	}
}

// grant returns the grant of the room for a data centre, and whether anything changed.
func (p *pool) grant(d *centre) (g wire.RoomGrant, news bool) {
	l := p.loans[d]
	if l == nil {
		if p.gone {
			return g, false
		}
		l = p.loan(d)
	}
	if l.dirty {
		l.dirty, l.changedAt = false, d.grantSeq
	}
	if l.drops && l.dropAt == 0 {
		l.dropAt = d.grantSeq
	}
	if l.viewDirty && !p.partial {
		l.viewDirty, l.viewAt = false, d.grantSeq
	}
	l.ends.Acked(d.acked)
	if l.moving.stays.Acked(d.acked); l.moving.stays.Len() > 0 {
		l.changedAt = max(l.changedAt, d.grantSeq)
	}
	if !d.blank && l.changedAt <= d.acked && l.viewAt <= d.acked {
		return g, false
	}
	g = wire.RoomGrant{
		Room: p.ID, Gen: l.gen, Permits: l.permits, Confirmed: p.confirms(d, l),
		Ends: l.ends.Take(d.grantSeq, d.acked), Passes: l.passes.Grant(&p.passes), Bound: p.bound, Drop: l.drops,
	}
	p.addMoves(d, l, &g)
	if (d.blank || l.viewAt > d.acked) && !p.partial {
		g.View = p.view
	}
	return g, true
}

// pick returns the elements of all with these indexes.
func pick[T any](all []T, numbers []int) []T {
	out := make([]T, len(numbers))
	for k, i := range numbers {
		out[k] = all[i]
	}
	return out
}

// updateView computes the view of the room if it is due, and queues it for the data centres.
func (p *pool) updateView(now fleettime.Mono, ft fleettime.Time, x share.Prospect) *wire.View {
	x.Flow, x.Rounds = &p.flow, &p.rounds
	old := p.view
	partial := p.partial
	p.partial = p.centres.awaitsWaiting(now)
	if old != nil && partial == p.partial && !old.Queues() == x.Open(x.People()) && now.Sub(p.viewed) < share.ViewGap {
		p.stale = true
		return old
	}
	p.looked = now
	v := x.View(now, ft)
	v.Since = p.centres.countsSince()
	if old != nil {
		v.Version = old.Version + 1
		if share.SameView(old, v) {
			return old
		}
	}
	p.view, p.viewed = v, now
	for _, d := range p.centres.all {
		if p.gone && p.loans[d] == nil {
			continue
		}
		p.loan(d).viewDirty = true
		d.push = d.push || old == nil || old.Cutoff != v.Cutoff || old.Called != v.Called
	}
	return v
}

// SilentAfter is the silence after which a data centre is called silent, and its idle permits no longer count as
// supply.
const SilentAfter = 10 * time.Second

// spread returns the idle targets of the data centres, which sum to at most n. Without a queue, the demand until the
// next report comes first, and the rest, except for the reserve, is divided by share. With a queue, permits go to
// data centres with held visitors, which use them immediately, then to those with the oldest waiting visitors.
func spread(n int, view *wire.View, loans []*loan, lines []estimate.Histogram, shares []float64) []int {
	if view.Queues() {
		var few struct {
			held [8][]fleettime.Time
			n    [8]uint64
		}
		held, heldN := few.held[:0], few.n[:0]
		for _, l := range loans {
			held, heldN = append(held, l.demand.HeldJoined), append(heldN, l.demand.HeldPeople)
		}
		return share.PlaceHeld(n, held, heldN, lines, shares)
	}
	wants := make([]int, len(loans))
	for i, l := range loans {
		wants[i] = int(l.demand.Want + l.demand.HeldPeople)
	}
	parts := share.Fill(n, wants, shares)
	for _, part := range parts {
		n -= part
	}
	if tooFew(n, len(loans)) {
		return parts
	}
	for i, part := range share.Split(n-int(float64(n)*reserve), shares) {
		parts[i] += part
	}
	return parts
}

// tooFew reports whether n idle permits are so few that all of them stay at the root: a request to the root is faster
// than a permit in another data centre.
func tooFew(n, centres int) bool { return n < 4*centres }

// keepIfClose returns idle as the target if it is close to keep.
func keepIfClose(keep, idle int64) int64 {
	if d := keep - idle; d < 0 && -d <= max(1, keep/8) {
		return idle
	}
	return keep
}

// share returns the number of visitors of the data centre in the minute before the last full one, which no longer
// changes.
func (l *loan) share(ft fleettime.Time) float64 {
	minute := ft.Minute().Add(-2 * time.Minute)
	for _, m := range l.arrivals {
		if m.Start == minute {
			return float64(m.N)
		}
	}
	return 0
}

// floorShares raises every share to at least one per cent of the sum.
func floorShares(shares []float64) {
	sum := 0.0
	for _, s := range shares {
		sum += s
	}
	for i := range shares {
		shares[i] = max(shares[i], sum/100)
	}
}
