package region

import (
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// This file bounds the sessions that only an edge can report. The leader stores ceilings of the sessions and permits of R
// of its edges, and lends beyond them once higher ones are stored. A successor reserves them for an edge that it does not
// hear, once the lease of the edge has ended.
//
// Invariant: an edge listed in a Durable that may be stored has no more than its ceilings there, also while it renews
// sessions without a lease.

// ceilingsFor is how long stored ceilings are relied on, in seconds: a store that comes back older has none.
const ceilingsFor = 20

// maxCeilings bounds the stored ceilings, one per room and edge: they are measured and written at once. With more, none
// are stored.
const maxCeilings = 1 << 13

// ceiling bounds what a reporting edge may have in a room.
type ceiling struct {
	stored, next wire.PermitCounts // in the stored Durable, and in the newest one
	used         int64             // sessions that the edge may have: see measure. What is lent since is added
	wanted       wire.PermitCounts // what was to be lent, if it exceeded a ceiling; written by belowCeiling
}

// belowCeiling returns how many of t more sessions and rate more permits of R the edge may have. The rest waits for a
// higher ceiling.
func (a *account) belowCeiling(t, rate int64) (int64, int64) {
	c, e := &a.ceiling, a.edge
	most := c.next
	switch {
	case !e.listed && !e.listedNext:
		return t, rate
	case !e.listedNext:
		most = c.stored
	case e.listed:
		most = wire.PermitCounts{Sessions: min(c.stored.Sessions, c.next.Sessions), Rate: min(c.stored.Rate, c.next.Rate)}
	}
	if c.used+t > most.Sessions && c.wanted.Sessions == 0 {
		a.ledger.measure()
	}
	if want := c.used + t; want > most.Sessions {
		c.wanted.Sessions = max(c.wanted.Sessions, want)
		t = max(0, most.Sessions-c.used)
	}
	used := a.ratePermits()
	if want := used + rate; want > most.Rate {
		c.wanted.Rate = max(c.wanted.Rate, want)
		rate = max(0, most.Rate-used)
	}
	c.used += t
	return t, rate
}

// ratePermits returns the permits of R that the edge holds, or may have used under an earlier lease.
func (a *account) ratePermits() int64 { return a.permits.Rate.Held() + a.ledger.rates.of(a.edge.num) }

// waits reports whether the edge waits for a higher ceiling.
func (c *ceiling) waits() bool { return c.wanted != wire.PermitCounts{} }

// measure counts the sessions that each reporting edge may have: those whose newest ticket it stamped, which it may
// renew; those that count by its older tickets, at any second; those without a known move; and the sessions that it may
// admit or take over.
func (b *roomLedger) measure() {
	tickets := map[edgeNum]*ticketCounts{}
	for _, acc := range b.accounts {
		if !acc.edge.reporting() {
			continue
		}
		acc.ceiling.used = max(0, acc.credit()) + max(0, int64(acc.renewCeil)-int64(acc.renewed)) +
			acc.sessions.unreported(&b.counts, acc.edge.earliest) + acc.reserved.count(&b.counts)
		tickets[acc.edge.num] = newTicketCounts(acc.sessions.expiries)
	}
	num, t := edgeNum(0), (*ticketCounts)(nil) // of the last entry
	for i := range b.ids.slots {
		ent := &b.ids.slots[i]
		if ent.id == 0 || ent.pinned() || int64(ent.until) < b.counts.freed {
			continue
		}
		if n := ent.edge(); n != num {
			num, t = n, tickets[n]
		}
		if t != nil {
			t.renewable++
			if at := int(ent.until) - t.first; at >= 0 && at < len(t.rest) {
				t.rest[at]--
			}
		}
	}
	for _, acc := range b.accounts {
		if t := tickets[acc.edge.num]; t != nil {
			acc.ceiling.used += t.renewable + t.mostRest()
		}
	}
}

// ticketCounts are the tickets of an edge in a room that may be valid.
type ticketCounts struct {
	first     int     // second of rest[0]
	rest      []int64 // by expiry second: tickets that count and are not the newest of a session
	renewable int64   // tickets that are
}

func newTicketCounts(expiries []wire.Expiry) *ticketCounts {
	if len(expiries) == 0 {
		return &ticketCounts{}
	}
	t := &ticketCounts{first: int(expiries[0].Until)}
	t.rest = make([]int64, min(int(expiries[len(expiries)-1].Until)-t.first+1, ringSpan))
	for _, x := range expiries {
		t.rest[min(int(x.Until)-t.first, ringSpan-1)] += int64(x.Stamped) - int64(x.Consumed)
	}
	return t
}

// mostRest returns the largest number of them from any second on.
func (t *ticketCounts) mostRest() (most int64) {
	sum := int64(0)
	for _, n := range slices.Backward(t.rest) {
		sum += n
		most = max(most, sum)
	}
	return most
}

// raise sets the next ceiling: with a part above the wanted sessions and permits of R, or above the used ones by the free
// permits. It falls slowly, so that it is rarely in the way.
func (c *ceiling) raise(rate int64, free wire.PermitCounts) {
	next := func(old, used, wanted, free int64) int64 {
		if wanted > 0 {
			return max(wanted, used) + max(wanted, used)/4 + 8
		}
		return max(used+used/32+4+max(0, free), old-max(1, (old-used)/4))
	}
	c.next.Sessions = next(c.next.Sessions, c.used, c.wanted.Sessions, free.Sessions)
	c.next.Rate = next(c.next.Rate, rate, c.wanted.Rate, free.Rate)
}

// waitsForCeiling reports whether an edge waits for a higher ceiling in the room. None does while none are stored.
func (r *registry) waitsForCeiling(b *roomLedger) bool {
	return r.fitCeilings() && slices.ContainsFunc(b.accounts, func(acc *account) bool { return acc.ceiling.waits() })
}

// raiseCeilings sets the next ceilings of the room.
func (b *roomLedger) raiseCeilings() {
	b.measure()
	var free wire.PermitCounts
	if free.Sessions, free.Rate = b.unallocated(); b.view != nil {
		free.Sessions = max(free.Sessions, b.view.Free) // may be lent here at once, as at the start of an event
	}
	for _, acc := range b.accounts {
		if acc.edge.reporting() {
			acc.ceiling.raise(acc.ratePermits(), free)
		}
	}
}

// listCeilings returns the next ceilings of listed edges, or those of a predecessor.
func (b *roomLedger) listCeilings(listed []*edge) []wire.PermitCounts {
	if len(listed) == 0 {
		return nil
	}
	out := make([]wire.PermitCounts, len(listed))
	for i, e := range listed {
		if acc := e.account(b.ID); e.missing() {
			out[i] = e.ceilings[b.ID]
		} else if acc != nil {
			out[i] = acc.ceiling.next
		}
	}
	return out
}

// ceilingsEnd returns the Unix second until which ceilings that are stored now are relied on; 0 if fleet time is unknown.
func (r *registry) ceilingsEnd(now fleettime.Mono) int64 {
	ft, ok := r.clock.earliest(now)
	if !ok || r.clock.guessed {
		return 0
	}
	return ft.Second() + ceilingsFor
}

// listCeilings returns the edges to list, by name and instance: those whose sessions are known, and those that a
// successor still has to count by the ceilings of a predecessor. Without fleet time there are none.
func (r *registry) listCeilings(timed bool) (out []*edge) {
	for _, e := range r.roster.edges {
		switch {
		case !timed:
		case e.missing() && e.ceilings != nil && r.ceilingsChecked, r.boundable(e):
			out = append(out, e)
		}
	}
	if !r.fitCeilings() {
		out = nil
	}
	for _, e := range r.roster.edges {
		e.listedNext = slices.Contains(out, e)
	}
	return out
}

// misses reports whether a reporting edge is to be listed and is not, or the reverse.
func (r *registry) misses() bool {
	fit := r.fitCeilings()
	return slices.ContainsFunc(r.roster.edges,
		func(e *edge) bool { return e.reporting() && e.listedNext != (fit && r.boundable(e)) })
}

// fitCeilings reports whether the ceilings of all rooms and edges are few enough to be stored.
func (r *registry) fitCeilings() bool { return len(r.roster.edges)*len(r.rooms.list) <= maxCeilings }

// boundable reports whether the sessions of a reporting edge are known: it also renews those of other processes of its
// name, whose visitors come to it.
func (r *registry) boundable(e *edge) bool {
	if e.state != alive || e.unconfirmed || r.roster.mayHavePredecessor(e, r.rooms.watermark.Second()) {
		return false
	}
	return !slices.ContainsFunc(r.roster.named(e.name), func(o *edge) bool {
		return o != e && (!o.over() || o.counted())
	})
}

// storedCeilings makes the newest ceilings the stored ones. Rooms that waited for them are divided anew.
func (r *registry) storedCeilings() {
	for _, e := range r.roster.edges {
		e.listed = e.listedNext
	}
	for _, b := range r.rooms.list {
		for _, acc := range b.accounts {
			acc.ceiling.stored = acc.ceiling.next
			if acc.ceiling.waits() {
				acc.ceiling.wanted, b.stale = wire.PermitCounts{}, true
			}
		}
	}
}

// recallCeilings restores the ceilings of the edges of a predecessor.
func (r *registry) recallCeilings(old *wire.Durable) {
	r.ceilingsUntil = old.CeilingsUntil
	for i, x := range old.Ceilings {
		e := r.roster.find(x.Edge, x.Instance)
		if e == nil || e.state != awaiting {
			continue
		}
		e.ceilings = map[room.ID]wire.PermitCounts{}
		for _, b := range old.Rooms {
			if c := b.Ceilings[i]; c != (wire.PermitCounts{}) {
				e.ceilings[b.Room] = c
			}
		}
	}
}

// checkCeilings drops the ceilings of a predecessor unless they are relied on at this time, once it is known.
func (r *registry) checkCeilings(now fleettime.Mono) {
	if r.ceilingsChecked || !r.clock.synced(now) {
		return
	}
	r.ceilingsChecked = true
	if !r.clock.guessed && r.latest(now).Second() < r.ceilingsUntil {
		return
	}
	for _, e := range r.roster.edges {
		e.ceilings = nil
	}
}

// reserveCeilings reserves the ceilings of a lost edge: its lease has ended. Under partition_policy serve it may renew its
// sessions without one.
func (s *silence) reserveCeilings(now fleettime.Mono, e *edge) {
	e.reservedLost = true
	life := int64(s.rooms.longestLife(now) / time.Second)
	for _, b := range s.rooms.list {
		c, ok := e.ceilings[b.ID]
		if !ok {
			continue
		}
		acc := b.account(e)
		acc.reserved = reserved{spent: c.Sessions, until: e.until, silent: !b.Cap, stampLife: max(life, int64(s.rooms.pastLife))}
		b.rates.add(e.num, c.Rate, now, rateOver(e.leased))
		b.dirty, b.stale = true, true
		acc.markChanged()
	}
}

// tightenCeilings lowers the sessions that are reserved for a lost edge to the permits that would be free without it, once
// all other sessions are counted: see reserveLost.
func (s *silence) tightenCeilings(ft fleettime.Time, e *edge) {
	known := ft.Second() > rateOver(e.leased) &&
		s.rooms.watermark.Add(-fleettime.Guard).Second() > e.until
	if !known || slices.ContainsFunc(s.roster.edges, func(o *edge) bool { return o != e && o.missing() }) {
		return
	}
	for _, acc := range e.accounts {
		b := acc.ledger
		p := &acc.reserved
		free, _ := b.unallocated()
		if n := max(0, p.spent+free); p.silent && n < p.spent {
			p.spent = n
			b.dirty, b.stale = true, true
		}
	}
}
