package region

import (
	"slices"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// lapse reserves the permits of R of an edge whose lease has ended by end, and clears its demand.
func (a *account) lapse(end fleettime.Mono) {
	a.reserveRateUses(end, false)
	a.clearRate()
	a.clearDemand()
	a.ledger.dirty = true
}

// reserve counts the permits and renewals that a lapsed edge may have used since its last report, until lastExpiry.
func (a *account) reserve(now fleettime.Mono, lastExpiry int64) {
	b := a.ledger
	renewals := int64(a.renewCeil) - int64(a.renewed)
	p := &a.reserved
	p.expire(&b.counts)
	p.spent = max(0, a.credit()) + max(0, renewals)
	p.until = max(p.until, lastExpiry+b.life.unknown())
	p.stampLife = max(p.stampLife, b.life.longest(now))
	b.dirty, b.stale = true, true
	a.markChanged()
}

// pinAll pins the sessions of a silent edge, so that they do not expire: under partition_policy serve the edge
// continues to renew them. It also renews the sessions of earlier silent processes of its name, whose visitors come
// to it. The name is enough for that: pinning too many is safe, and a live process reports its sessions itself. gone
// is the summary that may have sessions of an earlier process; nil for none.
func (a *account) pinAll(gone *edge) {
	b, e := a.ledger, a.edge
	a.reserved.silent = true
	here := []edgeNum{e.num}
	unreported := a.sessions.unreported(&b.counts, e.earliest)
	for _, was := range b.accounts {
		old := was.edge
		if old.name != e.name || old.num >= e.num || old.reporting() {
			continue
		}
		here = append(here, old.num)
		if !was.reserved.silent {
			if unreported += was.reserved.count(&b.counts); was.report == nil { // no report lists its sessions
				unreported += was.sessions.stamped(&b.counts)
			} else {
				unreported += was.sessions.unreported(&b.counts, old.earliest)
			}
		}
	}
	if gone != nil && gone.account(b.ID) != nil {
		unreported += gone.account(b.ID).sessions.stamped(&b.counts) // the summary does not tell the edges of its sessions
	}
	a.reserved.unreported = max(a.reserved.unreported, unreported)
	for i := range b.ids.slots {
		ent := &b.ids.slots[i]
		if ent.id != 0 && !ent.pinned() && int64(ent.until) >= b.counts.freed && slices.Contains(here, ent.edge()) {
			ent.at(e.num)
			a.pin(&b.counts, ent)
		}
	}
}

// unpin lets a session expire again; edge by reported it.
func (b *roomLedger) unpin(ent *idEntry, by *edge) {
	ent.pin(false)
	b.counts.add(int64(ent.until), 1)
	for _, acc := range b.accounts {
		if acc.edge.num == ent.edge() {
			acc.reserved.pinned--
			if acc.edge != by {
				b.dirty = b.overcommit.add(acc.edge, 1) || b.dirty // the session may return to the silent edge unnoticed
			}
		}
	}
}

// unpinAll ends the pinning because the silent edge has certainly stopped. Its sessions end no later than if they had
// been renewed a moment ago.
func (a *account) unpinAll(now fleettime.Mono, end int64) {
	b := a.ledger
	p := &a.reserved
	p.expire(&b.counts)
	life := max(b.life.longest(now), p.stampLife)
	if a.edge.ceilings == nil { // otherwise it stamped tickets under the predecessor, whose longest life is stored
		life += b.life.unknown()
	}
	*p = reserved{fromLost: p.fromLost + p.sum(), until: max(p.until, end+2+life)}
	for ent := range b.ids.pinned(a.edge.num) {
		*ent = idEntry{id: ent.id} // an empty entry that still occupies its slot
	}
	b.dirty = true
}

// settle applies the final numbers of an edge whose lease epoch has ended: nothing is reserved any more.
func (a *account) settle(now fleettime.Mono) {
	b := a.ledger
	a.reserveRateUses(now, true) // all uses precede the end of the lease epoch
	a.clearRate()
	if a.reserved.silent {
		for ent := range b.ids.pinned(a.edge.num) {
			ent.pin(false)
			b.counts.add(int64(ent.until), 1)
		}
	}
	a.reserved = reserved{until: min(a.reserved.until, a.lastExpiry()), fromLost: a.reserved.fromLost}
	// Granted permits that never reached the edge belong to the ended lease epoch. They may have been reserved
	// and lent again since.
	t := &a.permits.Sessions
	seen := a.spent + t.Returned
	if a.report != nil {
		seen = max(seen, a.report.Permits.Sessions.Granted)
	}
	t.Granted = min(t.Granted, seen)
	b.dirty, b.stale = true, true
	a.markChanged()
}

// lastExpiry returns the last Unix second in which a ticket of the edge, or of earlier processes of its name, is valid.
// The edge has reported all tickets that it stamped.
func (a *account) lastExpiry() (until int64) {
	for _, acc := range a.ledger.accounts {
		e := acc.edge
		if e.name != wire.Gone && (e.name != a.edge.name || e.num > a.edge.num) {
			continue
		}
		if n := len(acc.sessions.expiries); n > 0 {
			until = max(until, int64(acc.sessions.expiries[n-1].Until))
		}
		if acc != a && acc.reserved.count(&a.ledger.counts) > 0 {
			until = max(until, acc.reserved.until)
		}
	}
	return until
}

// reserveRateUses reserves the permits of R that an edge holds, each as late as it may have been used. Until the end
// of the lease the edge may have used its idle permits, and once more those that were freed, unless its report is
// exact. It used the others when it reported so.
//
// Invariant: every permit that it holds is reserved, and none for a shorter time than it may count.
func (a *account) reserveRateUses(end fleettime.Mono, exact bool) {
	rates := &a.ledger.rates
	held, reported := a.permits.Rate.Held(), max(0, a.rateIdleNow())
	late := reported
	again := func(u rateUse) bool {
		return !exact && u.from.Add(wire.RateWindow) <= end
	}
	for _, u := range a.rateUses.list {
		if reported += u.n; again(u) {
			late += u.n
		}
	}
	late += max(0, held-reported) // permits in no report
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

// entry returns the room's part of the roster entry of an edge that does not report.
func (a *account) entry(now fleettime.Mono, latest fleettime.Time) wire.RosterRoom {
	used := a.ledger.rates
	rates, until := used.stored(a.edge.num, now, latest)
	var left []wire.Stay
	if a.edge.name == movesName {
		left = a.ledger.moves.left(a.ledger.home)
	}
	return wire.RosterRoom{
		Room: a.ledger.ID, Sessions: slices.Clone(a.sessions.expiries), Left: left,
		Reserved: a.reserved.sum() + a.reserved.fromLost, ReservedUntil: a.reserved.until, Silent: a.reserved.silent,
		ReservedRate: used.of(a.edge.num), RateUntil: until, Rates: rates,
	}
}

// restore restores an edge from the predecessor's roster; tickets lived for at most life seconds.
func (b *roomLedger) restore(now fleettime.Mono, e *edge, r *wire.RosterRoom, life int64) {
	acc := b.account(e)
	acc.sessions.applyReport(&b.counts, r.Sessions)
	b.restoreLeft(r.Left)
	p := &acc.reserved
	p.spent, p.until, p.silent, p.stampLife = r.Reserved, r.ReservedUntil, r.Silent, life
	// The window begins anew by the monotonic clock of this node. By fleet time, if known, it ends as stored.
	rest := r.ReservedRate
	for _, x := range r.Rates {
		b.rates.add(e.num, x.N, now, x.Until)
		rest -= x.N
	}
	b.rates.add(e.num, rest, now, r.RateUntil)
}
