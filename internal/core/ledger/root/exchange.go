package root

import (
	"slices"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/ledger/share"
	"vestibule/internal/core/wire"
)

// GrantsDue returns when the next call of Grants is due.
func (a *Allocator) GrantsDue() fleettime.Mono { return a.due }

// Grants lends free permits and returns the grants that are due.
func (a *Allocator) Grants(now fleettime.Mono) []wire.Grant {
	a.due = now.Add(ledger.Tick)
	if !a.Leads(now) {
		return nil
	}
	a.reclaim(now)
	ft := a.clock.Now(now)
	for _, p := range a.pools.list {
		p.expireMoves(ft)
		if p.relays.expire(ft); p.stale || (p.view != nil && p.view.Queues() && now.Sub(p.looked) >= share.ViewAge) {
			p.stale = false
			p.lend(now, ft, &a.round)
		}
	}
	a.pools.dropRemoved()
	var out []wire.Grant
	for _, d := range a.centres.all {
		out = ledger.Join(out, a.grant(now, ft, d))
	}
	return out
}

// grant returns the grant of a data centre, if one is due.
func (a *Allocator) grant(now fleettime.Mono, ft fleettime.Time, d *centre) []wire.Grant {
	if !d.heard || (!d.due && (!d.push || !d.adopted)) {
		return nil
	}
	d.due, d.push = false, false
	d.grantSeq++
	atBound := a.clock.Bound(now)
	if atBound == fleettime.Unsynced || a.clock.guessed {
		d.time.probes = ledger.Remember(d.time.probes, ledger.Probe{Seq: d.grantSeq, At: now})
	}
	if d.time.other {
		atBound = fleettime.Unsynced
	}
	head := wire.Grant{
		To: d.name, Instance: d.instance, From: a.cfg.Term, Seq: d.grantSeq,
		Acked: d.parts.Done(), Echo: d.echo, Dwell: now.Sub(d.recv),
		At: ft, AtBound: atBound, Guess: a.clock.guessed, Lease: a.cfg.Params.RegionalLease,
		Members: a.centres.members, Membership: d.named(), Standing: d.standing(), ClusterID: d.clusterID,
		Reads: wire.Read,
	}
	if d.promise || !d.adopted {
		for _, l := range a.pools.loans(d) {
			l.moving.stays.Again()
			l.ends.Again() // the grant that is acknowledged now carries none
		}
		head.Handshake, head.Lease = wire.Promise, 0
		return wire.NewGrantPacker(head).Grants()
	}
	head.Baseline = d.blank
	pack := wire.NewGrantPacker(head)
	for _, p := range a.pools.list {
		if g, news := p.grant(d); news {
			pack.Add(g)
		}
	}
	return pack.Grants()
}

// Observe applies one report of a data centre. It reports whether the data centre follows this term, and the rooms of
// the report are its newest.
func (a *Allocator) Observe(now fleettime.Mono, m wire.Report) bool {
	if _, fenced := a.Fenced(); fenced {
		return false
	}
	if m.Seen.Fences(a.cfg.Term) {
		a.Fence(m.Seen.N)
		return false
	}
	d := a.centres.of(m.From, m.ClusterID)
	if d == nil {
		d = a.addUnlisted(now, m.From, m.ClusterID)
	}
	if d == nil || m.Instance < d.instance {
		return false // too many unlisted data centres, or an old aggregator
	}
	if m.Instance != d.instance { // a new aggregator
		d.instance = m.Instance
		d.parts, d.acked = wire.Parts{}, 0
		for _, l := range a.pools.loans(d) {
			l.progress.Restart()
			l.passes.Clear()
			l.dirty, l.viewDirty = true, true
			l.removed, l.drops, l.dropAt = false, false, 0 // it starts from the loans of this coordinator
		}
		d.dropping = 0
	}
	fresh, complete := d.parts.Take(m.Seq, m.Part, m.Parts)
	if !fresh {
		return false
	}
	d.recv, d.before, d.echo, d.heard, d.due, d.leaving = now, 0, m.Sent, true, true, m.Leaving
	d.reads.Said(now, m.Reads)
	if d.counting != m.CountsSince {
		d.counting = m.CountsSince
		a.pools.markAllStale()
	}
	if d.clusterID == 0 && m.ClusterID != 0 {
		d.clusterID = m.ClusterID
		a.pools.markAllStale()
	}
	a.clock.syncFromReport(now, d, &m, &a.centres)
	if d.stored != m.Members {
		d.stored = m.Members
		a.pools.markAllStale()
	}
	a.due = now
	d.promise = m.Seen != a.cfg.Term
	if d.promise {
		return false
	}
	d.acked = max(d.acked, m.Acked)
	d.blank = m.Blank
	d.membership = m.Membership
	a.renew(d)
	if d.recovering != m.Recovering {
		d.recovering = m.Recovering
		a.pools.markAllStale()
	}
	defer func() { d.uses = d.uses && !d.reported() }()
	if !d.adopted {
		return a.adopt(d, &m, complete)
	}
	for i := range m.Rooms {
		r := &m.Rooms[i]
		a.pools.open(r.Room).applyReport(d, r)
	}
	if complete {
		a.pools.closeDropped(d)
	}
	return true
}

// adopt takes over the ledger of a data centre that has promised to follow this term, unless it has none.
func (a *Allocator) adopt(d *centre, m *wire.Report, complete bool) bool {
	if m.Blank || !m.Join {
		return false
	}
	if a.centres.bootstrap && a.centres.hasBegun(m) {
		a.centres.bootstrap = false
		a.pools.markAllStale()
	}
	for i := range m.Rooms {
		r := &m.Rooms[i]
		p := a.pools.open(r.Room)
		p.adopt(d, r)
		p.applyReport(d, r)
	}
	if complete {
		d.adopted = true
		a.pools.markAllStale()
	}
	return true
}

// reclaim takes back the permits of silent data centres.
func (a *Allocator) reclaim(now fleettime.Mono) {
	for _, d := range a.centres.all {
		if now.Sub(d.recv) <= a.cfg.Params.RegionalLease {
			continue
		}
		for _, p := range a.pools.list {
			p.reclaim(now, d)
		}
	}
}

// Leaving reports whether a live aggregator is shutting down.
func (f *fleet) Leaving(now fleettime.Mono) bool {
	return slices.ContainsFunc(f.centres.all, func(d *centre) bool { return d.leaving && now.Sub(d.recv) < SilentAfter })
}
