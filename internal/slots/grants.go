package slots

import (
	"cmp"
	"slices"
	"time"

	"vestibule/internal/fleet"
	"vestibule/internal/line"
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
	for _, b := range a.rooms.list {
		if lapsed := b.Cap && !b.stopped && !a.up.leased(now); b.stale || lapsed {
			b.stale, b.divided = false, true
			a.divide(now, b)
		}
	}
	var out []wire.Grant
	for _, s := range a.roster.unadopted {
		a.ask(now)
		if e := a.roster.find(s.name, s.inc); e != nil {
			e.endsAgain()
		}
		out = append(out, wire.Grant{
			To: s.name, Inc: s.inc, Tenure: s.tenure, From: a.cfg.Term, Seq: a.roster.said, Parts: 1,
			Echo: s.echo, Dwell: now.Sub(s.recv), At: a.clock.Now(now), AtBound: a.clock.Bound(now),
			Adoption: s.adoption, Watermark: a.rooms.watermark,
		})
	}
	a.roster.unadopted = a.roster.unadopted[:0]
	for _, e := range a.roster.edges {
		if e.state == alive || (e.over() && e.due) {
			out = join(out, a.grant(now, e))
		}
	}
	return out
}

// grant returns what edge e is to be told, if anything: an answer that is owed,
// or news that cannot wait for its next report.
func (a *Aggregator) grant(now fleet.Mono, e *edge) []wire.Grant {
	if !e.due && !e.push {
		return nil
	}
	e.due = false
	a.ask(now)
	head := wire.Grant{
		To: e.name, Inc: e.inc, Tenure: e.tenure, From: a.cfg.Term, Seq: a.roster.said,
		Acked: e.parts.Done(), Echo: e.echo, Dwell: now.Sub(e.recv),
		At: a.clock.Now(now), AtBound: a.clock.Bound(now), Lease: a.cfg.Params.EdgeLease,
		Watermark: a.rooms.watermark, Twin: e.twin, Standing: a.member.standing(&a.up), Site: a.stored.site, Copied: a.member.mayBeCopy(&a.up),
	}
	if e.state != alive {
		e.endsAgain()
		head.Adoption, head.Lease = wire.Fenced, 0
		return wire.NewGrantPacker(head).Grants()
	}
	pack := wire.NewGrantPacker(head)
	e.push = false
	if e.rooms < len(a.rooms.list) { // rooms that it has not heard of
		for _, b := range a.rooms.list {
			b.account(e)
		}
	}
	slices.SortFunc(e.open, func(x, y *account) int { return cmp.Compare(x.books.ID, y.books.ID) })
	e.open = slices.DeleteFunc(e.open, func(acc *account) bool {
		b := acc.books
		acc.ends.Acked(e.told)
		acc.lines.Acked(e.told)
		if acc.unsaid {
			acc.unsaid, acc.changedAt = false, a.roster.said
		}
		if acc.unshown {
			acc.unshown, acc.viewAt = false, a.roster.said
		}
		if acc.changedAt <= e.acked && acc.viewAt <= e.acked {
			acc.open = acc.ends.Len()+acc.lines.Len() > 0
			return !acc.open
		}
		g := wire.RoomGrant{
			Room: b.ID, Granted: acc.granted, RateGranted: acc.rateGranted, RenewCeil: acc.renewCeil,
			Keep: acc.keep, RateKeep: acc.rateKeep, Life: acc.life,
			Ends: acc.ends.Take(a.roster.said, e.told), Lines: acc.lines.Take(a.roster.said, e.told),
			Passes: acc.passes.told(&b.passes),
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
	to := make([]*account, 0, len(a.roster.edges))
	for _, e := range a.roster.edges {
		if e.state == alive {
			to = append(to, b.account(e))
		}
	}
	if len(to) == 0 {
		return
	}
	if b.stop(a.up.leased(now), !a.up.blank); b.stopped || b.gone {
		life := a.stamps(b)
		if b.stopped {
			life = 0
		}
		for _, acc := range to {
			acc.set(0, 0, life)
		}
		return
	}
	if a.up.blank || a.roster.recovering() {
		// Renewals add no session. But an edge that is new may not know yet which
		// sessions ended: those that were there before tell.
		if awaited := slices.ContainsFunc(a.roster.edges, func(e *edge) bool { return e.state == awaiting }); awaited {
			to = slices.DeleteFunc(to, func(acc *account) bool { return !acc.edge.recovered })
		}
		b.allowRenewals(to, a.stamps(b))
		return
	}
	d := division{reconstructed: b.reconstructed, closed: a.member.standing(&a.up) != wire.Listed}
	d.free, d.rateFree = a.free(b)
	d.keep, d.rateKeep = a.up.keep(b, now)
	v := a.view(now, b, d.free, d.rateFree)
	if d.horizon = v.Horizon; b.Shut {
		d.horizon = v.Called
	}
	d.claims = make([]claim, 0, len(to))
	for _, acc := range to {
		d.claims = append(d.claims, claim{
			idle: acc.idle(), rateIdle: acc.rateIdleNow(),
			want: acc.want, heldJoined: acc.heldJoined, heldPeople: acc.heldPeople, movers: acc.movers,
		})
	}
	push := d.divide()
	b.starved, b.unrated = d.starved, d.unrated
	for i, acc := range to {
		t, r := d.claims[i].gifts[ofT], d.claims[i].gifts[ofR]
		acc.raise(&acc.granted, uint64(t.give))
		acc.raise(&acc.rateGranted, uint64(r.give))
		acc.set(uint64(t.keep), uint64(r.keep), acc.life)
		acc.edge.push = acc.edge.push || push[i]
	}
	a.lendPasses(now, b, to)
	b.allowRenewals(to, a.stamps(b))
	if d.knock {
		a.up.hurry(now, 1) // knock at global, or bring what it waits for
		b.dirty = true
	}
}

var openView = wire.View{Horizon: line.Open, Park: line.Open}

// view returns the view that rights are divided by: global's, or the data centre's own
// where global has not been heard for long.
func (a *Aggregator) view(now fleet.Mono, b *books, free, rateFree int64) *wire.View {
	if b.view == nil {
		return &openView
	}
	if a.up.isolated(now) {
		b.ownView(now, a.clock.Now(now), free, rateFree)
	}
	return b.view
}

// ask numbers the next grant, whose answer may tell fleet time.
func (a *Aggregator) ask(now fleet.Mono) {
	a.roster.said++
	a.clock.ask(now, a.roster.said)
}
