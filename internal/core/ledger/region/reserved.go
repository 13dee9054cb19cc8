package region

import (
	"slices"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// reserved are the sessions of an edge that is not heard, beyond those that it reported.
type reserved struct {
	spent     int64 // admitted or renewed without a report; counted until
	until     int64 // Unix second
	silent    bool  // it may go on renewing (partition_policy serve): nothing reserved for it ages
	pinned    int64 // sessions last seen at the silent edge
	unreported    int64 // more of them, whose moves were never reported
	stampLife int64 // life of the tickets that the silent edge may stamp, in seconds, as of its last grant
	fromLost      int64 // reserved when the silent edge was given up: no late report of it lessens that before until
}

// sum returns the sessions that a report of the edge would correct.
func (p *reserved) sum() int64 { return p.spent + p.pinned + p.unreported }

// none reports whether nothing is reserved.
func (p *reserved) none() bool {
	return p.spent == 0 && p.pinned == 0 && p.unreported == 0 && p.fromLost == 0
}

// lapse presumes the permits of R of an edge used, whose lease is over by end. The edge has no demand
// any more.
func (a *account) lapse(end fleettime.Mono) {
	a.reserveRateUses(end, false)
	a.clearRate()
	a.clearDemand()
	a.ledger.dirty = true
}

// reserve counts the permits and renewals that a lapsed edge may have used without a report, until breath.
func (a *account) reserve(now fleettime.Mono, breath int64) {
	b := a.ledger
	renewals := int64(a.renewCeil) - int64(a.renewed)
	p := &a.reserved
	p.expire(&b.counts)
	p.spent = max(0, a.credit()) + max(0, renewals)
	p.until = max(p.until, breath+b.life.unknown())
	p.stampLife = max(p.stampLife, b.life.longest(now))
	b.dirty, b.stale = true, true
	a.markChanged()
}

// pinAll takes the sessions that were last seen at a silent edge out of the ageing: under
// partition_policy serve it goes on renewing them. So it does those of earlier processes of its name
// that are silent, whose visitors come to it. For that the name is enough: to pin too many is safe,
// and a process that lives reports its sessions itself. gone is the sum that may have those of an
// earlier process, nil where it has none.
func (a *account) pinAll(gone *edge) {
	b, e := a.ledger, a.edge
	a.reserved.silent = true
	here := []edgeNum{e.num}
	untold := a.sessions.unreported(&b.counts, e.earliest)
	for _, was := range b.accounts {
		old := was.edge
		if old.name != e.name || old.num >= e.num || old.reporting() {
			continue
		}
		here = append(here, old.num)
		if !was.reserved.silent {
			if untold += was.reserved.count(&b.counts); was.report == nil { // its sessions were not reported one by one
				untold += was.sessions.stamped(&b.counts)
			} else {
				untold += was.sessions.unreported(&b.counts, old.earliest)
			}
		}
	}
	if gone != nil && b.accounts.of(gone) != nil {
		untold += b.accounts.of(gone).sessions.stamped(&b.counts) // which of them are its own nobody knows any more
	}
	a.reserved.unreported = max(a.reserved.unreported, untold)
	for i := range b.ids.slots {
		ent := &b.ids.slots[i]
		if ent.id != 0 && !ent.pinned() && int64(ent.until) >= b.counts.freed && slices.Contains(here, ent.edge()) {
			ent.at(e.num)
			a.pin(&b.counts, ent)
		}
	}
}

// count returns the sessions that count.
func (p *reserved) count(c *counts) int64 {
	if p.until < c.freed {
		if p.silent {
			return p.sum()
		}
		return 0
	}
	return p.sum() + p.fromLost
}

// unpin puts a session back into the ageing: edge by told of it.
func (b *roomLedger) unpin(ent *idEntry, by *edge) {
	ent.pin(false)
	b.counts.add(int64(ent.until), 1)
	for _, acc := range b.accounts {
		if acc.edge.num == ent.edge() {
			acc.reserved.pinned--
			if acc.edge != by {
				b.dirty = b.overcommit.add(acc.edge.instance, 1) || b.dirty // it may go back there, and nobody would tell
			}
		}
	}
}

// unpinAll ends the pinning: the silent edge is known to have stopped. Its
// sessions end no later than if they had been renewed a moment ago.
func (a *account) unpinAll(now fleettime.Mono, end int64) {
	b := a.ledger
	p := &a.reserved
	p.expire(&b.counts)
	*p = reserved{
		fromLost:  p.fromLost + p.sum(),
		until: max(p.until, end+2+max(b.life.longest(now), p.stampLife)+b.life.unknown()),
	}
	for ent := range b.ids.pinned(a.edge.num) {
		*ent = idEntry{id: ent.id} // still occupies its slot, means nothing
	}
	b.dirty = true
}

// expire drops the sessions of an edge that was given up once they have expired.
func (p *reserved) expire(c *counts) {
	if p.until < c.freed {
		p.fromLost = 0
	}
}

// settle takes the exact numbers of an edge whose lease epoch is over: nothing is reserved any
// more.
func (a *account) settle(now fleettime.Mono) {
	b := a.ledger
	a.reserveRateUses(now, true) // no later than the end of the lease epoch, which is past
	a.clearRate()
	if a.reserved.silent {
		for ent := range b.ids.pinned(a.edge.num) {
			ent.pin(false)
			b.counts.add(int64(ent.until), 1)
		}
	}
	a.reserved = reserved{until: a.reserved.until, fromLost: a.reserved.fromLost}
	// Permits that were granted and never reached the edge belong to the lease epoch that is over. They may
	// have been counted as spent, forgotten and lent again since.
	t := &a.permits.Sessions
	seen := a.spent + t.Returned
	if a.report != nil {
		seen = max(seen, a.report.Permits.Sessions.Granted)
	}
	t.Granted = min(t.Granted, seen)
	b.dirty, b.stale = true, true
	a.markChanged()
}

// reserveRateUses takes the rights of R that an edge holds for used, each as late as it may have
// been. Until the end of the lease the edge may have used those that lay idle, and once more
// those that came free, unless it is exact: its last report told all. The others it used when it
// said so.
//
// Invariant: every right that it holds is reserved, and none for a shorter time than it may
// count.
func (a *account) reserveRateUses(end fleettime.Mono, exact bool) {
	rates := &a.ledger.rates
	held, told := a.permits.Rate.Held(), max(0, a.rateIdleNow())
	late := told
	again := func(u rateUse) bool {
		return !exact && u.from.Add(wire.RateWindow) <= end
	}
	for _, u := range a.rateUses.list {
		if told += u.n; again(u) {
			late += u.n
		}
	}
	late += max(0, held-told) // permits that no report has
	n := min(held, late)
	rates.add(a.edge.num, n, end, 0)
	held -= n
	for _, u := range slices.Backward(a.rateUses.list) {
		if !again(u) {
			n = min(held, u.n)
			rates.add(a.edge.num, n, min(u.till, end), 0)
			held -= n
		}
	}
}

// entry returns the part of an edge that is not heard in the roster for a successor.
func (a *account) entry(now fleettime.Mono, latest fleettime.Time) wire.RosterRoom {
	used := a.ledger.rates
	rates, until := used.stored(a.edge.num, now, latest)
	return wire.RosterRoom{
		Room: a.ledger.ID, Sessions: slices.Clone(a.sessions.expiries),
		Reserved: a.reserved.sum() + a.reserved.fromLost, ReservedUntil: a.reserved.until, Silent: a.reserved.silent,
		ReservedRate: used.of(a.edge.num), RateUntil: until, Rates: rates,
	}
}

// restore restores an edge from the roster of a predecessor; tickets lived for life seconds at most.
func (b *roomLedger) restore(now fleettime.Mono, e *edge, r *wire.RosterRoom, life int64) {
	acc := b.account(e)
	acc.sessions.applyReport(&b.counts, r.Sessions)
	p := &acc.reserved
	p.spent, p.until, p.silent, p.stampLife = r.Reserved, r.ReservedUntil, r.Silent, life
	// By the time of this node the window begins anew; where fleet time is known it ends as the
	// predecessor knew.
	rest := r.ReservedRate
	for _, x := range r.Rates {
		b.rates.add(e.num, x.N, now, x.Until)
		rest -= x.N
	}
	b.rates.add(e.num, rest, now, r.RateUntil)
}
