package slots

import (
	"math"
	"time"

	"vestibule/internal/fleet"
	"vestibule/internal/line"
	"vestibule/internal/mutant"
	"vestibule/internal/wire"
)

// GrantsDue returns when Grants is to be called.
func (a *Allocator) GrantsDue() fleet.Mono { return a.due }

// reserve is the part of the slots that nobody wants now which stays at the
// root, for data centres whose visitors come without a history.
const reserve = 0.2

// Grants lends what is free and returns what the data centres are to be told.
func (a *Allocator) Grants(now fleet.Mono) []wire.Grant {
	a.due = now.Add(tick)
	if !a.leads(now) {
		return nil
	}
	a.reclaim(now)
	ft := a.clock.Now(now)
	a.forgetRelays(ft)
	for _, p := range a.order {
		if p.stale || (p.queues() && p.pace.due(now)) {
			p.stale = false
			a.lend(now, ft, p)
		}
	}
	var out []wire.Grant
	for _, d := range a.centres {
		out = append(out, a.grant(now, ft, d)...)
	}
	return out
}

func (a *Allocator) grant(now fleet.Mono, ft fleet.Time, d *centre) []wire.Grant {
	if !d.heard || (!d.due && (!d.push || !d.adopted)) {
		return nil
	}
	d.due, d.push = false, false
	d.grantSeq++
	atErr := a.clock.Err(now)
	if atErr == fleet.Unsynced || a.guessed {
		d.probes = remember(d.probes, probe{seq: d.grantSeq, at: now})
	}
	if d.other {
		atErr = fleet.Unsynced
	}
	head := wire.Grant{
		To: d.name, Inc: d.inc, From: a.cfg.Term, Seq: d.grantSeq,
		Acked: d.parts.Done(), Echo: d.echo, Dwell: now.Sub(d.recv),
		At: ft, AtErr: atErr, Guess: a.guessed, Lease: a.cfg.Params.RegionalLease,
		Members: a.members, Standing: d.standing(), Site: d.site,
	}
	if d.promise || !d.adopted {
		for _, l := range d.loans {
			l.ends.Again() // what is acknowledged now carries none of it
		}
		head.Verdict, head.Lease = wire.Promise, 0
		return wire.NewGrantPacker(head).Grants()
	}
	head.Basis = d.blank
	pack := wire.NewGrantPacker(head)
	for _, p := range a.order {
		l := a.loan(d, p.ID)
		if l.dirty {
			l.dirty, l.changedAt = false, d.grantSeq
		}
		if l.viewDirty {
			l.viewDirty, l.viewAt = false, d.grantSeq
		}
		l.ends.Acked(d.acked)
		if !d.blank && l.changedAt <= d.acked && l.viewAt <= d.acked {
			continue
		}
		g := wire.RoomGrant{
			Room: p.ID, Gen: l.gen, Granted: l.granted, RateGranted: l.rateGranted,
			Keep: l.keep, RateKeep: l.rateKeep,
			Returned: l.returned, RateReturned: l.rateReturned, Confirmed: a.confirms(p, l),
			Ends: l.ends.Take(d.grantSeq, d.acked),
		}
		if d.blank || l.viewAt > d.acked {
			g.View = p.view
		}
		pack.Add(g)
	}
	return pack.Grants()
}

// lend looks at one room: who may enter up to when, and how many idle rights
// each data centre is to have. It lends what is free and states what is to
// come back.
func (a *Allocator) lend(now fleet.Mono, ft fleet.Time, p *pool) {
	free, rfree := a.free(p)
	if a.complete(p) { // what a lowered limit took is not to be lent when books are missing again
		p.spare, p.rateSpare = min(p.spare, free), min(p.rateSpare, rfree)
		p.debt, p.rateDebt = min(0, free), min(0, rfree)
	}
	var (
		homes  []*centre
		how    []lending
		open   []int // those that are lent to
		loans  []*loan
		lines  []line.Histogram
		shares = make([]float64, 0, len(a.centres))
		supply = free // a debt is paid with what lies idle
		rate   = rfree
		kept   = int64(0) // of that, what stays where it is
		rkept  = int64(0)
		active = uint64(0)
		young  []line.Histogram
		wanted = 0.0
		parked [][]fleet.Time
	)
	for _, d := range a.centres {
		l := d.loans[p.ID]
		if l != nil {
			active += l.active
		}
		if !d.adopted || d.blank || d.recovering || now.Sub(d.recv) > quiet {
			continue // what it holds cannot be moved now, nor could it use more
		}
		if l == nil {
			l = a.loan(d, p.ID)
		}
		to := a.lendingTo(now, d)
		if to == lendAll {
			open = append(open, len(loans))
		}
		// Who waits where nobody is let in holds nobody up, and is early elsewhere.
		var waiting line.Histogram
		if to == lendAll || (to == lendKept && l.held() > 0) { // there people are let in
			waiting = l.waiting
			wanted += float64(l.want + l.parkedN)
			young = append(young, l.young)
			parked = append(parked, l.parked)
		}
		how = append(how, to)
		homes = append(homes, d)
		loans = append(loans, l)
		lines = append(lines, waiting)
		shares = append(shares, l.share(ft))
		supply += max(0, l.idleNow())
		rate += max(0, l.rateIdleNow())
		if to == lendKept {
			kept, rkept = kept+max(0, l.idleNow()), rkept+max(0, l.rateIdleNow())
		}
	}
	floorShares(shares)
	// Who is inside already and moves comes before everybody outside.
	moving, movers := make([]int, len(loans)), int64(0)
	for i, l := range loans {
		if how[i] <= lendMovers {
			moving[i] = int(l.movers)
			movers += int64(l.movers)
		}
	}
	moving = Fill(int(max(0, supply)), moving, shares)
	supply -= movers
	debt := min(supply, rate) < 0
	supply, rate = max(0, supply), max(0, rate)
	view := a.look(now, ft, p, prospect{
		lines:  lines,
		supply: supply, rate: rate, total: int64(p.Total), limit: int64(p.Rate),
		tally:  tally{life: time.Duration(wire.Life(p.Session)) * time.Second, active: active},
		wanted: wanted, young: young, parked: mergeTimes(parked, math.MaxInt), debt: debt,
	})
	if len(loans) == 0 {
		return
	}
	starved := false
	for i, l := range loans {
		l.dirty = l.dirty || l.declared // it waits to be confirmed
		starved = starved || how[i] <= lendMovers && int64(l.movers) > l.idleNow() ||
			how[i] == lendAll && int64(l.parkedN) > min(l.idleNow(), l.rateIdleNow())
	}
	keeps, rkeeps := make([]int, len(loans)), make([]int, len(loans))
	for _, side := range []struct {
		n     int64
		keeps []int
	}{{supply - kept, keeps}, {rate - rkept, rkeeps}} {
		for k, part := range spread(int(side.n), view, pick(loans, open), pick(lines, open), pick(shares, open)) {
			side.keeps[open[k]] = part
		}
	}
	for i, l := range loans {
		keep, rkeep := int64(keeps[i]+moving[i]), int64(rkeeps[i])
		idle, ridle := l.idleNow(), l.rateIdleNow()
		switch {
		case p.gone:
			keep, rkeep = 0, 0
		case how[i] == lendKept:
			keep, rkeep = max(0, l.held()), max(0, l.rateHeld()) // one in as one goes
		case how[i] == lendAll && !starved && view.Horizon == line.Open && !few(int(min(supply, rate)), len(open)):
			// Rights that lie a little off do no harm while nobody misses them.
			keep, rkeep = settle(keep, idle), settle(rkeep, ridle)
		}
		give, rgive := min(max(0, keep-idle), max(0, free)), min(max(0, rkeep-ridle), max(0, rfree))
		if how[i] >= lendKept {
			give, rgive = 0, 0
		}
		free, rfree = free-give, rfree-rgive
		if !mutant.On(mutant.SpareTwice) {
			p.spare, p.rateSpare = p.spare-give, p.rateSpare-rgive
		}
		if give > 0 || rgive > 0 {
			l.granted += uint64(give)
			l.rateGranted += uint64(rgive)
			l.dirty = true
			homes[i].push = homes[i].push || l.parkedN+l.movers > 0 || int64(l.want) > min(idle, ridle) || view.Horizon != line.Open
			a.counted = a.counted || a.complete(p)
		}
		homes[i].push = homes[i].push || (keep < idle && (starved || view.Horizon != line.Open))
		l.set(uint64(keep), uint64(rkeep))
	}
}

// pick returns the elements of all that have these numbers.
func pick[T any](all []T, numbers []int) []T {
	out := make([]T, len(numbers))
	for k, i := range numbers {
		out[k] = all[i]
	}
	return out
}

// queues reports whether somebody waits behind others.
func (p *pool) queues() bool { return p.view != nil && p.view.Horizon != line.Open }

// look remakes the view of the room where it is time to, and sees to it that
// the data centres are told.
func (a *Allocator) look(now fleet.Mono, ft fleet.Time, p *pool, x prospect) *wire.View {
	x.flow, x.pace = &p.flow, &p.pace
	x.tally.admitted, x.tally.joined, x.tally.entered, x.tally.outcomes = p.admitted, p.joined, p.entered, p.outcomes.Outcomes()
	old := p.view
	if old != nil && (old.Horizon == line.Open) == x.open(x.people()) && now.Sub(p.viewed) < viewGap {
		p.stale = true
		return old
	}
	v := x.view(now, ft)
	if old != nil {
		v.Version = old.Version + 1
		if sameView(old, v) {
			return old
		}
	}
	p.view, p.viewed = v, now
	for _, d := range a.centres {
		l := a.loan(d, p.ID)
		l.viewDirty = true
		d.push = d.push || old == nil || old.Horizon != v.Horizon
	}
	return v
}

// quiet is after how long without a report the idle rights of a data centre
// are not reckoned with any more.
const quiet = 10 * time.Second

// spread returns how many of n idle rights each data centre is to have. When
// nobody queues, what visitors want by the next report comes first, the rest is
// divided by share but for the reserve; when somebody does, rights go to where
// people are held who use them at once, then to where the oldest wait.
func spread(n int, view *wire.View, loans []*loan, lines []line.Histogram, shares []float64) []int {
	if view.Horizon != line.Open {
		held, heldN := make([][]fleet.Time, len(loans)), make([]uint64, len(loans))
		for i, l := range loans {
			held[i], heldN[i] = l.parked, l.parkedN
		}
		return PlaceHeld(n, held, heldN, lines, shares)
	}
	wants := make([]int, len(loans))
	for i, l := range loans {
		wants[i] = int(l.want + l.parkedN)
	}
	parts := Fill(n, wants, shares)
	for _, part := range parts {
		n -= part
	}
	if few(n, len(loans)) {
		return parts
	}
	for i, part := range Split(n-int(float64(n)*reserve), shares) {
		parts[i] += part
	}
	return parts
}

// few reports whether n idle rights are so few that all of them are to lie at
// the root: one question there is nearer than a slot in another data centre.
func few(n, centres int) bool { return n < 4*centres }

// settle keeps what is idle where it differs little from what is wanted.
func settle(keep, idle int64) int64 {
	if d := keep - idle; d < 0 && -d <= max(1, keep/8) {
		return idle
	}
	return keep
}

// share returns how many visitors the data centre had in the minute before the
// last full one: history that cannot change any more.
func (l *loan) share(ft fleet.Time) float64 {
	minute := ft.Minute().Add(-2 * time.Minute)
	for _, m := range l.arrivals {
		if m.Start == minute {
			return float64(m.N)
		}
	}
	return 0
}

// floorShares gives everybody at least one per cent of the whole.
func floorShares(shares []float64) {
	sum := 0.0
	for _, s := range shares {
		sum += s
	}
	for i := range shares {
		shares[i] = max(shares[i], sum/100)
	}
}
