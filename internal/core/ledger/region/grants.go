package region

import (
	"cmp"
	"slices"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/wire"
)

// GrantsDue returns when the next call of Grants is due: immediately after most messages.
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
	a.rooms.dropRemoved(at)
	for _, b := range a.rooms.list {
		if lapsed := b.Cap && !b.stopped && !at.leased; b.stale || lapsed {
			b.stale, b.divided = false, true
			if at.divide(now, ft, b, a.roster.edges) {
				a.up.reportSoon(now, 1)
			}
		}
	}
	var out []wire.Grant
	for _, s := range a.roster.replies {
		seq := a.roster.nextSeq(now, &a.clock)
		if e := a.roster.find(s.name, s.instance); e != nil {
			e.resendEnds()
		}
		out = append(out, wire.Grant{
			To: s.name, Instance: s.instance, LeaseEpoch: s.leaseEpoch, From: a.cfg.Term, Seq: seq, Parts: 1,
			Echo: s.echo, Dwell: now.Sub(s.recv), At: a.clock.Now(now), AtBound: a.clock.Bound(now), Guess: !a.Known(now).OK(),
			Handshake: s.handshake, Watermark: a.rooms.watermark, Folder: wire.FolderSettles,
			Reads: wire.Read,
		})
	}
	a.roster.replies = a.roster.replies[:0]
	for _, e := range a.roster.edges {
		if e.state == alive || (e.over() && e.replyDue) {
			out = ledger.Join(out, a.grant(now, e))
		}
	}
	return out
}

// grant returns the grant of edge e if one is due: a reply to its report, or an urgent change.
func (a *Aggregator) grant(now fleettime.Mono, e *edge) []wire.Grant {
	if !e.replyDue && !e.urgent {
		return nil
	}
	e.replyDue = false
	if a.up.joined && !a.up.unanswered(now, unansweredWait) { // otherwise a successor may have to tell it
		e.forwarded = e.parts.Done()
	}
	head := wire.Grant{
		To: e.name, Instance: e.instance, LeaseEpoch: e.leaseEpoch, From: a.cfg.Term, Seq: a.roster.nextSeq(now, &a.clock),
		Acked: e.parts.Done(), Forwarded: e.forwarded, Echo: e.echo, Dwell: now.Sub(e.receivedAt),
		At: a.clock.Now(now), AtBound: a.clock.Bound(now), Guess: !a.Known(now).OK(), Lease: a.cfg.Params.EdgeLease,
		Watermark: a.rooms.watermark, Twin: a.roster.hasTwin(e), Standing: a.member.standing(&a.up),
		ClusterID: a.stored.clusterID, Folder: a.stored.folderUse(e), Reads: wire.Read,
	}
	if e.state != alive {
		e.resendEnds()
		head.Handshake, head.Lease = wire.Fenced, 0
		return wire.NewGrantPacker(head).Grants()
	}
	pack := wire.NewGrantPacker(head)
	e.urgent = false
	e.packChanges(pack, head.Seq)
	return pack.Grants()
}

// packChanges adds the changes of the edge's rooms to the grant with number seq.
func (e *edge) packChanges(pack *wire.GrantPacker, seq uint64) {
	slices.SortFunc(e.changed, func(x, y *account) int { return cmp.Compare(x.ledger.ID, y.ledger.ID) })
	e.changed = slices.DeleteFunc(e.changed, func(acc *account) bool {
		b := acc.ledger
		acc.ends.Acked(e.ackedReported)
		acc.lines.Acked(e.ackedReported)
		acc.stays.Acked(e.ackedReported)
		if acc.changed {
			acc.changed, acc.changedAt = false, seq
		}
		if acc.viewChanged {
			acc.viewChanged, acc.viewAt = false, seq
		}
		if acc.drops && acc.dropAt == 0 {
			acc.dropAt = seq
		}
		if acc.stays.Unsent() {
			acc.changedAt = seq
		}
		if acc.changedAt <= e.acked && acc.viewAt <= e.acked {
			acc.queued = acc.ends.Len()+acc.lines.Len()+acc.stays.Len() > 0
			return !acc.queued
		}
		ceil := acc.renewCeil
		if first, ok := acc.stays.First(); ok && first <= acc.marked && acc.stays.Len() > wire.MaxAsks {
			ceil = acc.report.RenewCeil // until the edge knows all marks from before
		}
		g := wire.RoomGrant{
			Room: b.ID, Permits: acc.permits.Offered(), RenewCeil: ceil, Life: acc.life,
			Ends: acc.ends.Take(seq, e.ackedReported), Lines: acc.lines.Take(seq, e.ackedReported),
			Stays:  acc.stays.TakeUpTo(wire.MaxAsks, seq, e.ackedReported),
			Passes: acc.passes.Grant(&b.passes.toEdges), Drop: acc.drops,
		}
		if acc.viewAt > e.acked {
			g.View = b.view
		}
		pack.Add(g)
		return false
	})
}
