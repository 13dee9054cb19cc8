package region

import (
	"math"
	"slices"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// Observe takes one report of an edge.
func (a *Aggregator) Observe(now fleettime.Mono, m wire.Report) {
	if a.fencedBy != 0 {
		return
	}
	if m.Seen.Fences(a.cfg.Term) {
		// The edge follows a successor. Whatever we hold belongs to it now.
		a.fencedBy = m.Seen.N
		return
	}
	if a.member.learn(m.Site) {
		a.up.hurry(now, 0)
	}
	r := decode(&m)
	e, answer := a.lives.meet(now, a.cfg.Term, &r)
	if e == nil {
		a.roster.answer(now, &r, answer)
		a.due = now
		return
	}
	fresh, complete := e.parts.Take(r.Seq, r.Part, r.Parts)
	if !fresh {
		return
	}
	e.recv, e.echo, e.leaving, e.since = now, r.Sent, r.Leaving, r.CountsSince
	e.acked = max(e.acked, r.Acked)
	e.due = true
	a.due = now
	a.count(now, e, &r, complete)
	a.lives.endTenure(now, e, &r, complete)
}

// advance moves the books to now: leases that lapse, the watermark, and the
// seconds that it frees.
func (a *Aggregator) advance(now fleettime.Mono) {
	wm, lapsed := a.lives.advance(now, a.up.blank)
	if lapsed {
		a.due = now
	}
	a.rooms.free(wm, a.lives.silence.hold)
	ft, synced := a.clock.earliest(now)
	held := !synced || a.stored.durable.HoldUntil != 0
	over, looked := uint32(0), false
	for _, b := range a.rooms.list {
		b.expire(now, a.up.leaseEnd, a.cfg.Params.EdgeLease)
		if len(b.terminations.order) > 0 {
			if !looked { // only where it matters: it looks at all rooms
				over, looked = a.over(now, synced), true
			}
			known := uint64(0)
			if !a.up.blank {
				known = a.roster.marked(b)
			}
			b.closeTerminations(closing{known, a.up.acked, a.rooms.watermark, over, a.lives.movedIn})
		}
		a.up.tellEnds(now, b)
		b.stale = b.rates.expire(now, ft, held) || b.stale
	}
}

// over returns the Unix second by which every ticket has expired that edges may have stamped so far; 0 where
// that is not known, an edge is not heard, or the sessions may be another data centre's.
func (a *Aggregator) over(now fleettime.Mono, synced bool) uint32 {
	silent := slices.ContainsFunc(a.roster.edges, func(e *edge) bool { return e.state != alive && e.state != left })
	if !synced || silent || a.stored.durable.HoldUntil != 0 || a.up.blank || a.member.mayBeCopy(&a.up) {
		return 0
	}
	latest := a.lives.latest(now)
	if a.lives.movedIn == movedInUnknown {
		a.lives.movedIn = a.rooms.maxExpiry(now, latest, a.cfg.Params.EdgeLease)
		a.stored.promiseMovedIn(a.lives.movedIn)
	}
	return uint32(a.rooms.maxExpiry(now, latest, a.cfg.Params.EdgeLease))
}

// movedInUnknown says that nothing stored tells whether sessions moved in.
const movedInUnknown = math.MaxInt64

// count brings the numbers of a report into the books.
func (a *Aggregator) count(now fleettime.Mono, e *edge, m *report, complete bool) {
	wrote := a.clock.receive(now, m)
	for i := range m.Rooms {
		r := &m.Rooms[i]
		b := a.rooms.reported(r.Room, m)
		b.take(now, wrote, e, m, r)
		a.stored.promiseMovedIn(int64(b.terminations.movedIn))
		a.up.tellEnds(now, b)
	}
	if complete {
		e.asOf, e.earliest = max(e.asOf, m.AsOf), max(e.earliest, m.earliest)
		e.latest, e.timed = max(e.latest, m.latest), m.timed
		e.told = e.acked
	}
}
