package region

import (
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// This file is about edges that are gone for good. Each leaves its sessions behind, by room and
// second of expiry, until they expire. A fleet whose edges come and go under ever new names would
// fill its roster with them: so beyond a bound they are summed under one entry, wire.Gone, and
// struck.
//
// Invariant: the head-count stays the same, second by second.

// compactAbove is the number of seconds of sessions of edges that left which stand on the roster one
// by one.
const compactAbove = 1000

// maxSummarySeconds is how many seconds of sessions of all rooms are stored of the sum;
// where there are more, they are stored on a coarser grid.
const maxSummarySeconds = 1 << 18

// compactEvery is how often it is looked whether there is something to sum up.
const compactEvery = 5 * time.Second

// compactor are the edges that left and have only sessions that end by themselves. It decides which of them
// are summed, and when.
type compactor struct {
	threshold  int // this number of seconds of sessions stands on the roster one by one
	rooms  *rooms
	roster *roster

	checkedAt fleettime.Mono // when it was last looked for them
}

// compact sums up the sessions of edges that left, where there are many. It returns the entry in
// which they are now, nil where nothing was to be done, and the edges that are in it and in no
// books any more.
func (g *compactor) compact(now fleettime.Mono) (sum *edge, folded []*edge) {
	if now.Sub(g.checkedAt) < compactEvery && g.checkedAt != 0 {
		return nil, nil
	}
	g.checkedAt = now
	n := 0
	for _, e := range g.roster.edges {
		if e.state != left || e.name == wire.Gone {
			continue
		}
		for _, acc := range g.rooms.accounts(e) {
			n += len(acc.sessions.expiries)
		}
		if g.canCompact(now, e) {
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
		g.rooms.close(e)
	}
	sum.summary = slices.DeleteFunc(sum.summary, func(s wire.GoneEdge) bool { return s.Until < g.rooms.watermark.Second() })
	return sum, folded
}

// canCompact reports whether nothing more will be heard of an edge that left, and nothing
// is reserved for it. Of one that was given up without a goodbye more may be heard.
func (g *compactor) canCompact(now fleettime.Mono, e *edge) bool {
	if e.reservedLost || e.replyDue || now.Sub(e.receivedAt) < compactEvery {
		return false // the answer to its goodbye is owed, or its last words are under way
	}
	for b, acc := range g.rooms.accounts(e) {
		if acc.reserved.silent || b.counts.freed == 0 {
			return false // or counting has not begun
		}
	}
	return true
}

// merge adds the sessions of an edge to the sum.
func (g *compactor) merge(sum, e *edge) {
	last := int64(0)
	for b, acc := range g.rooms.accounts(e) {
		to := b.account(sum)
		if n := acc.reserved.count(&b.counts); n > 0 { // counted until then, like sessions that end then
			until := acc.reserved.until
			b.counts.add(until, n)
			to.sessions.expiries = addSessions(to.sessions.expiries, []wire.Expiry{{Until: uint32(until), Stamped: uint64(n)}}, b.counts.freed)
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

// summaryRooms returns the sum as it is stored: by the second, or on a coarser grid where it has too many
// seconds.
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

// coarsen returns sessions on a grid of seconds: fewer entries that never count less. A session that ends
// later counts for longer; a ticket that was renewed away stops being subtracted sooner. Moved the other
// way, either would count as over while it is valid (docs/GUARANTEES.md).
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
