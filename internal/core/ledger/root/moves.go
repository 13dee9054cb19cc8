package root

import (
	"cmp"
	"slices"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// This file passes on sessions that change data centres with their permits (package region). The home of a session
// returns its permit and lists it as a transfer in one report. The coordinator lends that permit to the new home in one
// grant with the transfer. In between the permit is neither free nor held.
//
// Invariant: what is on its way follows from the newest reports alone: transfers that a home lists and that were neither
// taken, as the new home reports with its permits, nor sent on in this term.

// lastMoment is the time before the end of a session from which on it is not sent on any more: leaders may disagree by
// the uncertainty of fleet time about whether it has ended.
const lastMoment = 2

// moving is what a data centre reported of sessions that change data centres, and what was sent to it.
type moving struct {
	asks  []wire.Ask
	sent  []wire.Transfer // from it
	taken []wire.Taken    // by it
	given []wire.Taken    // to it: the newest transfers that were lent with a permit
	gen   uint64          // generation of the permits that were returned with sent

	stays wire.Outbox[wire.Stay] // for it: sessions that went to another data centre
}

// home returns the data centre with a number, or nil.
func (c *centres) home(n uint32) (best *centre) {
	for _, d := range c.all {
		if wire.HomeOf(d.name) == n && (best == nil || d.listed) {
			best = d
		}
	}
	return best
}

// newest returns the transfer up to which a list says that a stream was taken.
func newest(list []wire.Taken, from, to uint32) (t wire.Taken) {
	for _, x := range list {
		if x.From == from && x.To == to && (x.Tag > t.Tag || x.Tag == t.Tag && x.N > t.N) {
			t = x
		}
	}
	return t
}

// covers reports whether t says that a transfer was taken.
func covers(t wire.Taken, x *wire.Transfer) bool {
	return t.Tag > x.Tag || t.Tag == x.Tag && t.N >= x.N
}

// pending reports whether a transfer is on its way: its permit is not lent.
func (p *holdings) pending(x *wire.Transfer) bool {
	to := p.centres.home(x.To)
	if to == nil {
		return true
	}
	l := p.loans[to]
	return l == nil || !covers(newest(l.moving.given, x.From, x.To), x)
}

// onTheWay returns the number of permits that are on their way at ft.
func (p *holdings) onTheWay() (n int64) {
	for _, l := range p.loans {
		for i := range l.moving.sent {
			if x := &l.moving.sent[i]; p.pending(x) {
				n++
			}
		}
	}
	return n
}

// applyMoves takes what a report of data centre d says of sessions that move. It returns how many permits were returned
// with new transfers.
func (p *pool) applyMoves(d *centre, l *loan, r *wire.RoomReport) (fresh int64) {
	m := &l.moving
	if !slices.Equal(m.asks, r.Asks) {
		p.askAnew(m.asks)
		m.asks = r.Asks
		p.askAnew(m.asks)
	}
	if d.blank {
		return 0
	}
	m.gen = r.Gen
	self := wire.HomeOf(d.name)
	for _, x := range r.Transfers {
		if x.From == self && !slices.ContainsFunc(m.sent, func(o wire.Transfer) bool {
			return o.To == x.To && o.Tag == x.Tag && o.N == x.N
		}) {
			if r.Gen == l.gen {
				fresh++
			}
		}
	}
	// A regional of an older release lists none: they are on their way until they are over.
	if d.reads.Names(wire.Moves) && !slices.Equal(m.sent, r.Transfers) {
		m.sent = r.Transfers
		p.stale = true
	}
	if !slices.Equal(m.taken, r.Taken) {
		was := m.taken
		m.taken = r.Taken
		for _, t := range r.Taken {
			p.tellStays(newest(was, t.From, t.To), t)
			if t.To == self && !covers(newest(m.given, t.From, t.To), &wire.Transfer{Tag: t.Tag, N: t.N}) {
				m.give(t) // lent by a predecessor
			}
			if from := p.centres.home(t.From); from != nil && p.loans[from] != nil {
				p.loans[from].dirty, from.push = true, true
			}
		}
	}
	return fresh
}

// tellStays tells where the sessions are that a data centre has taken since was.
func (p *pool) tellStays(was, is wire.Taken) {
	from := p.centres.home(is.From)
	if from == nil || p.loans[from] == nil {
		return
	}
	for _, x := range p.loans[from].moving.sent {
		if x.To == is.To && covers(is, &x) && !covers(was, &x) {
			p.tellStay(from, x)
		}
	}
}

// tellStay tells the data centres that a session neither left nor came to where it is: its visitor may come there with an
// older ticket.
func (p *pool) tellStay(from *centre, x wire.Transfer) {
	for _, d := range p.centres.all {
		if l := p.loans[d]; l != nil && d != from && wire.HomeOf(d.name) != x.To && d.reads.Names(wire.Moves) {
			l.moving.stays.Add(wire.Stay{ID: x.ID, Home: x.To, Until: x.Until}, 0)
			l.dirty, d.push = true, true
		}
	}
}

// expireMoves drops the transfers whose sessions have ended: a data centre that is silent does not say so.
func (p *pool) expireMoves(ft fleettime.Time) {
	over := func(x wire.Transfer) bool { return fleettime.Time(int64(x.Until)*1000).Add(wire.EndMargin) < ft }
	for _, l := range p.loans {
		if n := len(l.moving.sent); n > 0 {
			l.moving.sent = slices.DeleteFunc(slices.Clone(l.moving.sent), over)
			p.stale = p.stale || len(l.moving.sent) < n
		}
	}
}

// give records the newest transfer of a stream.
func (m *moving) give(t wire.Taken) {
	m.given = slices.DeleteFunc(m.given, func(o wire.Taken) bool { return o.From == t.From && o.To == t.To })
	m.given = append(m.given, t)
}

// askAnew queues changed asks for the homes.
func (p *pool) askAnew(asks []wire.Ask) {
	last := uint32(0)
	for _, k := range asks {
		if k.Home == last {
			continue
		}
		last = k.Home
		if d := p.centres.home(k.Home); d != nil && p.loans[d] != nil {
			p.loans[d].dirty, d.push = true, true
		}
	}
}

// admitsMovers reports whether sessions may move to data centre d with their permits: by the rules of every permit that
// is lent.
func (p *pool) admitsMovers(now fleettime.Mono, d *centre) bool {
	l := p.loans[d]
	return l != nil && l.heard && !l.drops && d.reported() && !d.readmitted() && d.reads.Names(wire.Moves) &&
		p.centres.lendingTo(now, d, l) <= lendMovers
}

// sendOn lends the permits of transfers to the data centres where their sessions go.
func (p *pool) sendOn(now fleettime.Mono, ft fleettime.Time) {
	for _, from := range p.centres.all {
		l := p.loans[from]
		// Void permits came with the sessions of another generation: their home counts them again once it knows.
		if l == nil || len(l.moving.sent) == 0 || !from.adopted || l.moving.gen != l.gen || from.removed || from.readmitted() {
			continue
		}
		list := slices.Clone(l.moving.sent)
		slices.SortFunc(list, func(x, y wire.Transfer) int {
			return cmp.Or(cmp.Compare(x.To, y.To), cmp.Compare(x.Tag, y.Tag), cmp.Compare(x.N, y.N))
		})
		stalled := uint32(0)
		for i := range list {
			x := &list[i]
			to := p.centres.home(x.To)
			switch {
			case x.To == stalled, to == nil, !p.pending(x), fleettime.Time(int64(x.Until)*1000).Add(wire.EndMargin) < ft:
				continue
			case int64(x.Until)-lastMoment <= ft.Second():
				stalled = x.To // a later one would say that this one was taken, and it counts until its end
				continue
			}
			if !p.admitsMovers(now, to) {
				continue
			}
			t := p.loans[to]
			t.moving.give(wire.Taken{From: x.From, To: x.To, Tag: x.Tag, N: x.N})
			t.permits.Sessions.Granted++
			t.dirty, to.push = true, true
		}
	}
}

// addMoves adds to the grant of data centre d what concerns its sessions that move.
func (p *pool) addMoves(d *centre, l *loan, g *wire.RoomGrant) {
	if !d.reads.Names(wire.Moves) {
		return
	}
	self := wire.HomeOf(d.name)
	for _, o := range p.centres.all {
		from := p.loans[o]
		if o == d || from == nil {
			continue
		}
		m := &from.moving
		if o.listed {
			for _, k := range m.asks {
				if k.Home == self && len(g.Asks) < wire.MaxAsks {
					g.Asks = append(g.Asks, k)
				}
			}
		}
		for _, x := range m.sent {
			if x.To == self && covers(newest(l.moving.given, x.From, x.To), &x) &&
				!covers(newest(l.moving.taken, x.From, x.To), &x) && len(g.Transfers) < wire.MaxAsks {
				g.Transfers = append(g.Transfers, x)
			}
		}
		for _, t := range m.taken {
			if t.From == self && len(g.Taken) < wire.MaxTaken {
				g.Taken = append(g.Taken, t)
			}
		}
	}
	g.Stays = l.moving.stays.TakeUpTo(wire.MaxAsks, d.grantSeq, d.acked)
	if d.blank {
		g.Transfers = append(g.Transfers, l.moving.sent...)
		g.Taken = append(g.Taken, l.moving.taken...)
	}
}
