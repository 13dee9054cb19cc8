package slots

import (
	"time"

	"vestibule/internal/fleet"
	"vestibule/internal/mutant"
	"vestibule/internal/wire"
)

// Observe takes one report of an edge.
func (a *Aggregator) Observe(now fleet.Mono, m wire.Report) {
	if a.fencedBy != 0 {
		return
	}
	if m.Seen.Fences(a.cfg.Term) && !mutant.On(mutant.NoFencing) {
		// The edge follows a successor. Whatever we hold belongs to it now.
		a.fencedBy = m.Seen.N
		return
	}
	if a.member.learn(m.Site) {
		a.up.hurry(now, 0)
	}
	if m.Seen != a.cfg.Term {
		a.roster.witness(now, &m, &a.stored)
	}
	if m.Seen != a.cfg.Term && !mutant.On(mutant.NoAdoptionHandshake) {
		// Adopting an edge that a predecessor can still grant to would count
		// what that one grants nowhere: first the promise, then the books.
		a.roster.answer(now, m, wire.Promise)
		a.due = now
		return
	}
	e := a.lives.meet(now, &m)
	if e == nil || m.Tenure > e.tenure {
		// Its books are gone. Or we gave it this tenure, forgot it since, and adopted it again
		// by a report of long before.
		a.roster.forgotten(now, m)
		a.due = now
		return
	}
	fresh, complete := e.parts.Take(m.Seq, m.Part, m.Parts)
	if !fresh {
		return
	}
	e.recv, e.echo, e.leaving = now, m.Sent, m.Leaving
	e.acked = max(e.acked, m.Acked)
	a.clock.learn(now, &m)
	e.due = true
	a.due = now

	if m.Tenure == e.tenure && !m.Final {
		e.unheard = false
	}
	over := e.over()
	a.take(now, e, m, complete)
	switch {
	case m.Final && complete && (m.Tenure == e.tenure || m.Bye || (over && mutant.On(mutant.EndOfOldTenure))) && a.rooms.exact(e, &m):
		// Not of an older tenure, although the edge had not heard of the one that
		// lapsed since: it may have by now. It is told to end that one too.
		a.lives.settle(now, e, m.Bye)
	case over:
		// It does not know yet that its tenure is over. Its newer counters
		// lessen what is presumed of it.
		a.lives.presume(now, e)
	}
}

// take brings the numbers of a report into the books.
func (a *Aggregator) take(now fleet.Mono, e *edge, m wire.Report, complete bool) {
	wrote := a.clock.wrote(now, &m)
	for i := range m.Rooms {
		r := &m.Rooms[i]
		b := a.rooms.open(r.Room)
		b.counts.begin(max(earliest(&m), a.rooms.watermark))
		b.take(now, wrote, e, &m, r)
		a.up.tellEnds(now, b)
	}
	if complete {
		e.asOf, e.earliest = max(e.asOf, m.AsOf), max(e.earliest, earliest(&m))
		e.latest, e.timed = max(e.latest, latest(&m)), isSynced(&m)
		e.told = e.acked
	}
}

// advance moves the books to now: leases that lapse, the watermark, and the
// seconds that it frees.
func (a *Aggregator) advance(now fleet.Mono) {
	wm, lapsed := a.lives.advance(now, a.up.blank)
	if lapsed {
		a.due = now
	}
	a.rooms.free(wm, a.lives.hold)
	ft, synced := a.clock.earliest(now)
	held := !synced || a.stored.durable.HoldUntil != 0
	for _, b := range a.rooms.list {
		b.expire(now, a.up.leaseEnd, a.cfg.Params.EdgeLease)
		if len(b.terminations.order) > 0 {
			known := uint64(0)
			if !a.up.blank {
				known = a.roster.marked(b)
			}
			b.closeTerminations(known, a.up.acked, a.rooms.watermark)
		}
		a.up.tellEnds(now, b)
		b.stale = b.rates.expire(now, ft, held) || b.stale
	}
}

// gatherWait is how long after a silence of all, which was the regional's own,
// the rest is waited for.
const gatherWait = 5 * time.Second

const (
	// lapseMargin lets the last answer of a report arrive before its edge is
	// taken for silent.
	lapseMargin = 200 * time.Millisecond

	// ownerLease is how long a predecessor may have gone on leading after
	// this term was won.
	ownerLease = 4 * time.Second
)
