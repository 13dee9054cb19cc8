package slots

import (
	"cmp"
	"math"
	"slices"
	"time"

	"vestibule/internal/fleet"
	"vestibule/internal/line"
	"vestibule/internal/mutant"
	"vestibule/internal/wire"
)

// tick is how often the aggregator and the allocator look at their books when
// nothing arrives: leases lapse and seconds are freed by time alone.
const tick = 100 * time.Millisecond

// GrantsDue returns when Grants is to be called: at once after most messages.
func (a *Aggregator) GrantsDue() fleet.Mono { return a.due }

// Grants divides the free rights among the edges and returns what they are to
// be told. The messages are valid only while the aggregator leads.
func (a *Aggregator) Grants(now fleet.Mono) []wire.Grant {
	a.due = now.Add(tick)
	if !a.leads(now) {
		return nil
	}
	a.advance(now)
	for _, b := range a.order {
		if lapsed := b.Cap && !b.stopped && !a.up.leased(now); b.stale || lapsed {
			b.stale, b.divided = false, true
			a.divide(now, b)
		}
	}
	var out []wire.Grant
	for _, s := range a.strays {
		a.askTime(now)
		if e := a.find(s.name, s.inc); e != nil {
			e.endsAgain()
		}
		out = append(out, wire.Grant{
			To: s.name, Inc: s.inc, Tenure: s.tenure, From: a.cfg.Term, Seq: a.said, Parts: 1,
			Echo: s.echo, Dwell: now.Sub(s.recv), At: a.clock.Now(now), AtErr: a.atErr(now),
			Verdict: s.verdict, Watermark: a.watermark,
		})
	}
	a.strays = a.strays[:0]
	for _, e := range a.edges {
		if e.state == alive || ((e.state == dead || e.state == left) && e.due) {
			out = append(out, a.grant(now, e)...)
		}
	}
	return out
}

// askTime numbers the next grant, and remembers it where its answer may tell
// fleet time.
func (a *Aggregator) askTime(now fleet.Mono) {
	a.said++
	if a.clock.Err(now) == fleet.Unsynced {
		a.probes = remember(a.probes, probe{seq: a.said, at: now})
	}
}

// atErr returns the error bound of the aggregator's own clock, for its edges.
func (a *Aggregator) atErr(now fleet.Mono) time.Duration { return a.clock.Err(now) }

// grant returns what edge e is to be told, if anything: an answer that is owed,
// or news that cannot wait for its next report.
func (a *Aggregator) grant(now fleet.Mono, e *edge) []wire.Grant {
	if !e.due && !e.push {
		return nil
	}
	e.due = false
	a.askTime(now)
	head := wire.Grant{
		To: e.name, Inc: e.inc, Tenure: e.tenure, From: a.cfg.Term, Seq: a.said,
		Acked: e.parts.Done(), Echo: e.echo, Dwell: now.Sub(e.recv),
		At: a.clock.Now(now), AtErr: a.atErr(now), Lease: a.cfg.Params.EdgeLease,
		Watermark: a.watermark, Twin: e.twin, Standing: a.standing(), Site: a.siteSaved, Copied: a.mayBeCopy(),
	}
	if e.state != alive {
		e.endsAgain()
		head.Verdict, head.Lease = wire.Fenced, 0
		return wire.NewGrantPacker(head).Grants()
	}
	pack := wire.NewGrantPacker(head)
	e.push = false
	if len(e.accounts) < len(a.order) { // rooms that it has not heard of
		for _, b := range a.order {
			e.account(b.ID)
		}
	}
	slices.SortFunc(e.open, func(x, y *account) int { return cmp.Compare(x.room, y.room) })
	e.open = slices.DeleteFunc(e.open, func(acc *account) bool {
		b := a.rooms[acc.room]
		acc.ends.Acked(e.told)
		acc.lines.Acked(e.told)
		if acc.unsaid {
			acc.unsaid, acc.changedAt = false, a.said
		}
		if acc.unshown {
			acc.unshown, acc.viewAt = false, a.said
		}
		if acc.changedAt <= e.acked && acc.viewAt <= e.acked {
			acc.open = acc.ends.Len()+acc.lines.Len() > 0
			return !acc.open
		}
		g := wire.RoomGrant{
			Room: b.ID, Granted: acc.granted, RateGranted: acc.rateGranted, RenewCeil: acc.renewCeil,
			Keep: acc.keep, RateKeep: acc.rateKeep, Life: acc.life,
			Ends: acc.ends.Take(a.said, e.told), Lines: acc.lines.Take(a.said, e.told),
		}
		if acc.viewAt > e.acked {
			g.View = b.view
		}
		pack.Add(g)
		return false
	})
	return pack.Grants()
}

// divide decides what every edge may hold in room b. It raises granted and
// renewCeil, and states through keep what is to come back; it never takes.
func (a *Aggregator) divide(now fleet.Mono, b *books) {
	var to []*account
	for _, e := range a.edges {
		if e.state == alive {
			to = append(to, e.account(b.ID))
		}
	}
	if len(to) == 0 {
		return
	}
	if a.stop(now, b); b.stopped || b.gone {
		life := a.stamps(b)
		if b.stopped {
			life = 0
		}
		for _, acc := range to {
			acc.set(0, 0, life)
		}
		return
	}
	if a.up.blank || a.recovering() {
		// Renewals add no session. But an edge that is new may not know yet which
		// sessions ended: those that were there before tell.
		if awaited := slices.ContainsFunc(a.edges, func(e *edge) bool { return e.state == awaiting }); awaited {
			to = slices.DeleteFunc(to, func(acc *account) bool { return !acc.edge.heir })
		}
		a.allowRenewals(b, to)
		return
	}
	d := division{free: a.free(b), rateFree: a.rateFree(b), declared: b.declared, closed: a.standing() != wire.Listed}
	d.keep, d.rateKeep = a.keep(b, now)
	d.horizon = a.localView(now, b).Horizon
	for _, acc := range to {
		d.claims = append(d.claims, claim{
			idle: acc.idle(), rateIdle: acc.rateIdleNow(),
			want: acc.want, parked: acc.parked, parkedN: acc.parkedN, movers: acc.movers,
		})
	}
	push := d.divide()
	b.starved = d.starved
	for i, acc := range to {
		t, r := d.claims[i].gifts[ofT], d.claims[i].gifts[ofR]
		acc.raise(&acc.granted, uint64(t.give))
		acc.raise(&acc.rateGranted, uint64(r.give))
		acc.set(uint64(t.keep), uint64(r.keep), acc.life)
		acc.edge.push = acc.edge.push || push[i]
	}
	a.allowRenewals(b, to)
	if d.knock {
		a.up.hurry(now, a.cfg.Params.SyncGap) // knock at global, or bring what it waits for
		b.dirty = true
	}
}

// stop sees to it that nothing is stamped under partition_policy cap once the
// lease of global has ended, because it will give these rights to others. What
// lies at the edges comes back meanwhile. When the lease begins anew, stamping
// goes on as soon as no edge holds more than the books cover: they may have been
// voided.
func (a *Aggregator) stop(now fleet.Mono, b *books) {
	switch {
	case b.Cap && !a.up.leased(now) && !mutant.On(mutant.NoRegionalLease):
		b.stopped = true
	case b.stopped && (a.covered(b) || mutant.On(mutant.ResumeUncovered)):
		b.stopped = false
	}
}

// covered reports whether what edges may still spend is in the books.
func (a *Aggregator) covered(b *books) bool {
	if a.up.blank {
		return false
	}
	credit, rate := int64(0), int64(0)
	for _, e := range a.edges {
		if acc := e.accounts[b.ID]; acc != nil && (e.state == alive || e.state == joining) {
			credit += max(0, acc.credit())
			rate += max(0, acc.rateHeld())
		}
	}
	return (credit == 0 || a.reckoned(b) >= 0) && (rate == 0 || a.rateReckoned(b) >= 0)
}

// set states what the edge is to keep; it marks the account where that is news.
func (a *account) set(keep, rateKeep uint64, life uint32) {
	if a.keep != keep || a.rateKeep != rateKeep || a.life != life {
		a.keep, a.rateKeep, a.life = keep, rateKeep, life
		a.news()
	}
}

func (a *account) raise(counter *uint64, n uint64) {
	if n > 0 {
		*counter += n
		a.news()
	}
}

// allowRenewals raises the ceilings of renewals: to twice what an edge made since
// its last report, and at least to what comes due there until the next one is
// answered. A session can be renewed once in [wire.RenewAfter] and no more, so the
// ceilings together are bounded by what all can need in that time, or by a fiftieth of
// the rights where that is more: it is what has to be presumed if edges fall silent.
// The bound is shared evenly, so that no edge is left without.
func (a *Aggregator) allowRenewals(b *books, to []*account) {
	life := a.stamps(b)
	sessions := max(1, b.counts.sum)
	due := int(float64(sessions) * renewAnswer.Seconds() / float64(wire.RenewAfter(life)))
	wants := make([]int, len(to))
	for i, acc := range to {
		wants[i] = int(min(int64(max(2*int(acc.renewed-acc.renewedBefore), due/len(to))+4), sessions))
	}
	bound := max(len(to)+due, int(b.held()/50))
	for i, part := range Fill(bound, wants, ones(len(to))) {
		// An edge that went on renewing while it was isolated begins where it is now.
		acc := to[i]
		if ceil := acc.renewed + uint64(part); ceil > acc.renewCeil {
			acc.raise(&acc.renewCeil, ceil-acc.renewCeil)
		}
		acc.set(acc.keep, acc.rateKeep, life)
	}
}

// renewAnswer is how long it takes, where nothing is lost, until an edge whose ceiling
// comes near has a higher one.
const renewAnswer = 100 * time.Millisecond

// localView returns the view that rights are divided by: global's, or the data
// centre's own where global has not been heard for long.
func (a *Aggregator) localView(now fleet.Mono, b *books) *wire.View {
	if b.view == nil {
		return &openView
	}
	if !a.isolated(now) || now.Sub(b.viewed) < viewGap {
		return b.view
	}
	x := prospect{
		flow: &b.flow, pace: &b.pace, lines: []line.Histogram{b.waiting},
		supply: max(0, a.free(b)) + a.edgeIdle(b), rate: max(0, a.rateFree(b)) + a.edgeRateIdle(b),
		total: b.held(), limit: b.rateHeld(), tally: a.tally(b),
	}
	var parked [][]fleet.Time
	for _, e := range a.edges {
		if acc := e.accounts[b.ID]; acc != nil && e.state == alive {
			x.wanted += float64(acc.want + acc.parkedN)
			x.young = append(x.young, acc.young(e.asOf))
			parked = append(parked, acc.parked)
		}
	}
	x.parked = mergeTimes(parked, math.MaxInt)
	v := x.view(now, a.clock.Now(now))
	v.Version = b.view.Version + 1
	b.viewed = now
	if !sameView(b.view, v) {
		a.show(b, v)
	}
	return b.view
}

// show makes v the view of the room and owes it to the edges.
func (a *Aggregator) show(b *books, v *wire.View) {
	b.view = v
	for _, e := range a.edges {
		if acc := e.accounts[b.ID]; acc != nil {
			acc.viewNews()
			e.push = e.push || acc.parkedN > 0
		}
	}
}

var openView = wire.View{Horizon: line.Open, Park: line.Open}
