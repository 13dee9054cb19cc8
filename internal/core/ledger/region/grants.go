package slots

import (
	"time"

	"vestibule/internal/fleet"
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
	at, ft := a.bearings(now), a.clock.Now(now)
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
		if e := a.roster.find(s.name, s.inc); e != nil {
			e.endsAgain()
		}
		out = append(out, wire.Grant{
			To: s.name, Inc: s.inc, Tenure: s.tenure, From: a.cfg.Term, Seq: seq, Parts: 1,
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
	head := wire.Grant{
		To: e.name, Inc: e.inc, Tenure: e.tenure, From: a.cfg.Term, Seq: a.roster.ask(now, &a.clock),
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
	e.tell(pack, head.Seq)
	return pack.Grants()
}
