package region

import (
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// This file compacts the roster. The sessions of a departed edge stay in the roster, by room and expiry
// second, until they expire. A fleet whose edges always get new names would fill its roster. So beyond a
// threshold they are summed in one entry, wire.Gone, and removed.
//
// Invariant: the count of every second stays the same.

// compactAbove is the default of Config.CompactAbove.
const compactAbove = 1000

// maxSummarySeconds is the maximum number of stored expiry seconds of the summary, over all rooms. Beyond it they are
// stored on a coarser grid.
const maxSummarySeconds = 1 << 18

// compactEvery is the interval of compaction.
const compactEvery = 5 * time.Second

// compactor sums departed edges whose sessions only expire.
type compactor struct {
	threshold int // expiry seconds that the roster lists one by one
	rooms     *rooms
	roster    *roster

	checkedAt fleettime.Mono // time of the last check
}

// compact sums the sessions of departed edges if there are many. It returns the summary entry, nil if nothing was
// done, and the removed edges.
func (g *compactor) compact(now fleettime.Mono) (sum *edge, folded []*edge) {
	if now.Sub(g.checkedAt) < compactEvery && g.checkedAt != 0 {
		return nil, nil
	}
	g.checkedAt = now
	n := 0
	for _, e := range g.roster.edges {
		if e.state != left || e.name == wire.Gone || e.name == movesName {
			continue
		}
		for _, acc := range e.accounts {
			n += len(acc.sessions.expiries)
		}
		if e.canCompact(now) {
			folded = append(folded, e)
		}
	}
	if n <= g.threshold || len(folded) == 0 {
		return nil, nil
	}
	if sum = g.roster.find(wire.Gone, 0); sum == nil {
		sum = g.roster.add(wire.Gone, 0)
		sum.receivedAt, sum.recovered = now, true
		sum.become(left)
	}
	for _, e := range folded {
		g.merge(sum, e)
	}
	g.roster.remove(func(e *edge) bool { return slices.Contains(folded, e) })
	for _, e := range folded {
		e.close()
	}
	sum.summary = slices.DeleteFunc(sum.summary,
		func(s wire.GoneEdge) bool { return s.Until < g.rooms.watermark.Second() })
	return sum, folded
}

// canCompact reports whether an edge that left will not report again, and nothing is reserved for it. An edge that
// was declared lost may report again.
func (e *edge) canCompact(now fleettime.Mono) bool {
	if e.reservedLost || e.replyDue || now.Sub(e.receivedAt) < compactEvery {
		return false // the reply to its goodbye is due, or its last report is in flight
	}
	for _, acc := range e.accounts {
		if acc.reserved.silent || acc.ledger.counts.freed == 0 {
			return false // sessions are reserved, or counting has not begun
		}
	}
	return true
}

// merge adds the sessions of an edge to the summary.
func (g *compactor) merge(sum, e *edge) {
	last := int64(0)
	for _, acc := range e.accounts {
		b := acc.ledger
		to := b.account(sum)
		if n := acc.reserved.count(&b.counts); n > 0 { // reserved sessions count until then
			until := acc.reserved.until
			b.counts.add(until, n)
			to.sessions.expiries = addSessions(to.sessions.expiries, []wire.Expiry{{Until: uint32(until), Stamped: uint64(n)}},
				b.counts.freed)
			last = max(last, until)
		}
		net := make([]wire.Expiry, 0, len(acc.sessions.expiries))
		for _, s := range acc.sessions.expiries {
			if n := int64(s.Stamped) - int64(s.Consumed); n > 0 {
				net = append(net, wire.Expiry{Until: s.Until, Stamped: uint64(n)})
			} else if n < 0 {
				net = append(net, wire.Expiry{Until: s.Until, Consumed: uint64(-n)})
			}
			last = max(last, int64(s.Until))
		}
		to.sessions.expiries = addSessions(to.sessions.expiries, net, b.counts.freed)
		b.rates.pass(e.num, sum.num)
		b.dirty, b.stale = true, true
	}
	sum.summary = append(sum.summary, wire.GoneEdge{Edge: e.name, Instance: e.instance, Until: last})
}

// summaryRooms returns the summary as it is stored: by the second, or on a coarser grid if it has too many seconds.
func summaryRooms(rooms []wire.RosterRoom) []wire.RosterRoom {
	n := 0
	for i := range rooms {
		n += len(rooms[i].Sessions)
	}
	grid := uint32(1)
	for ; n/int(grid) > maxSummarySeconds; grid *= 2 {
	}
	if grid > 1 {
		for i := range rooms {
			rooms[i].Sessions = coarsen(rooms[i].Sessions, grid)
		}
	}
	return rooms
}

// coarsen returns sessions on a grid of seconds: fewer entries that never count less. A session that ends later
// counts for longer; a ticket that was renewed away is subtracted for a shorter time. The other direction would free
// a valid session (docs/GUARANTEES.md).
func coarsen(sessions []wire.Expiry, grid uint32) []wire.Expiry {
	var up, down []wire.Expiry
	add := func(list []wire.Expiry, s wire.Expiry) []wire.Expiry {
		if n := len(list); n > 0 && list[n-1].Until == s.Until {
			list[n-1].Stamped += s.Stamped
			list[n-1].Consumed += s.Consumed
			return list
		}
		return append(list, s)
	}
	for _, s := range sessions {
		if s.Stamped > 0 {
			up = add(up, wire.Expiry{Until: (s.Until + grid - 1) / grid * grid, Stamped: s.Stamped})
		}
		if s.Consumed > 0 {
			at := s.Until / grid * grid
			down = add(down, wire.Expiry{Until: at, Consumed: s.Consumed})
		}
	}
	return addSessions(up, down, 0)
}

// addSessions returns the sum of two lists by second, without freed seconds.
func addSessions(x, y []wire.Expiry, freed int64) []wire.Expiry {
	out := make([]wire.Expiry, 0, len(x)+len(y))
	for i, j := 0, 0; i < len(x) || j < len(y); {
		var s wire.Expiry
		switch {
		case j == len(y) || (i < len(x) && x[i].Until < y[j].Until):
			s, i = x[i], i+1
		case i == len(x) || y[j].Until < x[i].Until:
			s, j = y[j], j+1
		default:
			s = wire.Expiry{Until: x[i].Until, Stamped: x[i].Stamped + y[j].Stamped, Consumed: x[i].Consumed + y[j].Consumed}
			i, j = i+1, j+1
		}
		if int64(s.Until) >= freed {
			out = append(out, s)
		}
	}
	return out
}
