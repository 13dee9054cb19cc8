package region

import (
	"cmp"
	"slices"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/wire"
)

// GrantsDue returns when the next call of Grants is due: at once after most messages.
func (a *Aggregator) GrantsDue() fleettime.Mono { return a.due }

// Grants divides the free permits among the edges and returns the grants that are due. They are valid
// only while the aggregator leads.
func (a *Aggregator) Grants(now fleettime.Mono) []wire.Grant {
	a.due = now.Add(ledger.Tick)
	if !a.leads(now) {
		return nil
	}
	a.advance(now)
	at, ft := a.snapshot(now), a.clock.Now(now)
	for _, b := range a.rooms.list {
		if lapsed := b.Cap && !b.stopped && !at.leased; b.stale || lapsed {
			b.stale, b.divided = false, true
			if at.divide(now, ft, b, a.roster.edges) {
				a.up.hurry(now, 1)
			}
		}
	}
	var out []wire.Grant
	for _, s := range a.roster.unadopted {
		seq := a.roster.ask(now, &a.clock)
		if e := a.roster.find(s.name, s.instance); e != nil {
			e.endsAgain()
		}
		out = append(out, wire.Grant{
			To: s.name, Instance: s.instance, LeaseEpoch: s.leaseEpoch, From: a.cfg.Term, Seq: seq, Parts: 1,
			Echo: s.echo, Dwell: now.Sub(s.recv), At: a.clock.Now(now), AtBound: a.clock.Bound(now), Guess: !a.Known(now).OK(),
			Handshake: s.handshake, Watermark: a.rooms.watermark,
		})
	}
	a.roster.unadopted = a.roster.unadopted[:0]
	for _, e := range a.roster.edges {
		if e.state == alive || (e.over() && e.due) {
			out = ledger.Join(out, a.grant(now, e))
		}
	}
	return out
}

// grant returns the grant of edge e, if one is due: an answer that is owed, or news that cannot wait for
// its next report.
func (a *Aggregator) grant(now fleettime.Mono, e *edge) []wire.Grant {
	if !e.due && !e.push {
		return nil
	}
	e.due = false
	head := wire.Grant{
		To: e.name, Instance: e.instance, LeaseEpoch: e.leaseEpoch, From: a.cfg.Term, Seq: a.roster.ask(now, &a.clock),
		Acked: e.parts.Done(), Echo: e.echo, Dwell: now.Sub(e.recv),
		At: a.clock.Now(now), AtBound: a.clock.Bound(now), Guess: !a.Known(now).OK(), Lease: a.cfg.Params.EdgeLease,
		Watermark: a.rooms.watermark, Twin: e.twin, Standing: a.member.standing(&a.up), Site: a.stored.site, Copied: a.member.mayBeCopy(&a.up),
	}
	if e.state != alive {
		e.endsAgain()
		head.Handshake, head.Lease = wire.Fenced, 0
		return wire.NewGrantPacker(head).Grants()
	}
	pack := wire.NewGrantPacker(head)
	e.push = false
	if e.rooms < len(a.rooms.list) { // rooms that it has not heard of
		for _, b := range a.rooms.list {
			b.account(e)
		}
	}
	e.tell(pack, head.Seq)
	return pack.Grants()
}

// tell adds the news of the edge's rooms to a grant with the number seq.
func (e *edge) tell(pack *wire.GrantPacker, seq uint64) {
	slices.SortFunc(e.open, func(x, y *account) int { return cmp.Compare(x.books.ID, y.books.ID) })
	e.open = slices.DeleteFunc(e.open, func(acc *account) bool {
		b := acc.books
		acc.ends.Acked(e.told)
		acc.lines.Acked(e.told)
		if acc.unsaid {
			acc.unsaid, acc.changedAt = false, seq
		}
		if acc.unshown {
			acc.unshown, acc.viewAt = false, seq
		}
		if acc.changedAt <= e.acked && acc.viewAt <= e.acked {
			acc.open = acc.ends.Len()+acc.lines.Len() > 0
			return !acc.open
		}
		g := wire.RoomGrant{
			Room: b.ID, Permits: acc.permits.Offered(), RenewCeil: acc.renewCeil, Life: acc.life,
			Ends: acc.ends.Take(seq, e.told), Lines: acc.lines.Take(seq, e.told),
			Passes: acc.passes.Grant(&b.passes.lent),
		}
		if acc.viewAt > e.acked {
			g.View = b.view
		}
		pack.Add(g)
		return false
	})
}
