package slots

import (
	"math"
	"slices"
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
	if (m.Seen.N > a.cfg.Term.N || (m.Seen.N == a.cfg.Term.N && m.Seen != a.cfg.Term)) && !mutant.On(mutant.NoFencing) {
		// The edge follows a successor. Whatever we hold belongs to it now.
		a.fencedBy = m.Seen.N
		return
	}
	a.learnSite(now, m.Site)
	if m.Seen != a.cfg.Term {
		a.witness(now, &m)
	}
	if m.Seen != a.cfg.Term && !mutant.On(mutant.NoAdoptionHandshake) {
		// Adopting an edge that a predecessor can still grant to would count
		// what that one grants nowhere: first the promise, then the books.
		a.answer(now, m, wire.Promise)
		return
	}
	e := a.find(m.From, m.Inc)
	if e == nil || e.state == awaiting || e.state == lost {
		if gone := e == nil && a.summed(m.From, m.Inc); gone || !m.Join {
			if e == nil && !gone {
				a.lateWord(&m)
			}
			a.forgotten(now, m)
			return
		}
		if e == nil {
			a.surprised(&m)
			e = a.newEdge(m.From, m.Inc)
		}
		a.adopt(now, e, m)
	}
	a.belie(e, &m)
	a.claim(now, e, &m)
	if m.Tenure > e.tenure {
		// We gave it this tenure, forgot it since, and adopted it again by a
		// report of long before.
		a.forgotten(now, m)
		return
	}
	fresh, complete := e.parts.Take(m.Seq, m.Part, m.Parts)
	if !fresh {
		return
	}
	e.recv, e.echo = now, m.Sent
	e.acked = max(e.acked, m.Acked)
	a.learnTime(now, &m)
	e.due = true
	a.due = now

	if m.Tenure == e.tenure && !m.Final {
		e.unheard = false
	}
	over := e.state == dead || e.state == left
	a.take(now, e, m, complete)
	switch {
	case m.Final && complete && (m.Tenure == e.tenure || m.Bye || (over && mutant.On(mutant.EndOfOldTenure))) && a.exact(e, &m):
		// Not of an older tenure, although the edge had not heard of the one that
		// lapsed since: it may have by now. It is told to end that one too.
		a.settle(now, e, m.Bye)
	case over:
		// It does not know yet that its tenure is over. Its newer counters
		// lessen what is presumed of it.
		a.presume(now, e)
	}
}

// exact reports whether a final report still is the truth when it arrives. Under
// partition_policy serve its edge may go on renewing; as long as no second is
// freed that was not over for it, everything that it renews is counted.
func (a *Aggregator) exact(e *edge, m *wire.Report) bool {
	for _, b := range a.order {
		if b.of(e) != nil && !b.Cap && m.AsOf.Second() < b.counts.freed-1 && !mutant.On(mutant.LateFinalWord) {
			return false
		}
	}
	return true
}

// forgotten tells an edge whose books are gone to end its tenure, or when it has,
// to begin anew.
func (a *Aggregator) forgotten(now fleet.Mono, m wire.Report) {
	verdict := wire.Fenced
	if m.Final {
		verdict = wire.Dead
	}
	a.answer(now, m, verdict)
}

// answer owes a reply to somebody who is not in the books, or not yet.
func (a *Aggregator) answer(now fleet.Mono, m wire.Report, v wire.Verdict) {
	s := stray{name: m.From, inc: m.Inc, tenure: m.Tenure, echo: m.Sent, recv: now, verdict: v}
	if i := slices.IndexFunc(a.strays, func(o stray) bool { return o.name == m.From && o.inc == m.Inc }); i >= 0 {
		a.strays[i] = s
	} else if len(a.strays) < maxStrays {
		a.strays = append(a.strays, s)
	}
	a.due = now
}

func (a *Aggregator) find(name string, inc uint64) *edge {
	i, ok := slices.BinarySearchFunc(a.edges, &edge{name: name, inc: inc}, compareEdges)
	if !ok {
		return nil
	}
	return a.edges[i]
}

// adopt opens the books of an edge that has promised to follow us.
func (a *Aggregator) adopt(now fleet.Mono, e *edge, m wire.Report) {
	a.endVigil(e)
	e.state = joining
	if mutant.On(mutant.LeaseBeforeRoster) {
		e.state = alive
	}
	e.tenure = m.Tenure
	if !mutant.On(mutant.WaitKept) {
		e.leased, e.until, e.ended = 0, 0, 0 // it may have a lease again
	}
	e.waited, e.silent = 0, 0
	e.parts = wire.Parts{}
	e.recv, e.first = now, a.said
	for _, o := range a.edges {
		if o.name == e.name && o.proves(e) {
			a.claimed(now, e)
		}
	}
	// A new edge has touched nothing, and is told the watermark before it may.
	e.asOf, e.least = max(m.AsOf, a.watermark), max(least(&m), a.watermark)
	e.upTo, e.timed = upTo(&m), knows(&m)
	a.enrol(e)
	a.setPassed(math.MaxInt64) // up to now it may have been told another's watermark
	for _, b := range a.order {
		b.found(e.inc)
	}
}

// take brings the numbers of a report into the books.
func (a *Aggregator) take(now fleet.Mono, e *edge, m wire.Report, complete bool) {
	for i := range m.Rooms {
		r := &m.Rooms[i]
		b := a.books(r.Room)
		b.counts.begin(max(least(&m), a.watermark))
		b.take(now, e, &m, r)
		a.up.tellEnds(now, b, a.cfg.Params.SyncGap)
	}
	if complete {
		e.asOf, e.least = max(e.asOf, m.AsOf), max(e.least, least(&m))
		e.upTo, e.timed = max(e.upTo, upTo(&m)), knows(&m)
		e.told = e.acked
	}
}

// advance moves the books to now: leases that lapse, the watermark, and the
// seconds that it frees.
func (a *Aggregator) advance(now fleet.Mono) {
	// Without fleet time of its own the aggregator goes by that of its edges.
	ft, synced := a.earliest(now)
	wm := fleet.Time(math.MaxInt64)
	if synced {
		wm = ft.Add(-fleet.Guard)
	}
	lease := a.lapseAfter()
	a.hold = a.holdsGuess(now, ft, synced)
	a.forgetPast(now)
	for _, e := range a.edges {
		switch e.state {
		case awaiting:
			a.hold = !mutant.On(mutant.NoHold)
			if synced && a.awaitedInVain(now, ft, e) {
				e.state = lost
				a.holdUntil = max(a.holdUntil, e.until)
			}
		case lost:
			if e.ended == 0 && synced && a.hasEnded(e) {
				a.endedNow(now, e)
			}
			switch over := synced && ft.Add(-fleet.Guard).Second() > a.holdUntil; {
			case !over || ft.Second() <= e.leased+int64(wire.RateWindow/time.Second)+1:
				a.hold = !mutant.On(mutant.NoHold)
			case e.vigil:
				a.mourn(now, e)
				e.state = a.graveOf(e)
			case a.watermark.Add(-fleet.Guard).Second() > a.holdUntil:
				// Whatever it stamped under a lease has expired, and the seconds of it are
				// freed: until then a session that it admitted and others have renewed
				// since is counted as -1 and +1, which is nothing.
				a.keepVigil(now, e)
			}
		case alive, joining:
			if now.Sub(e.recv) > lease {
				a.lapse(now, e)
				continue
			}
			if !mutant.On(mutant.AgeByClock) {
				wm = min(wm, e.asOf)
				if !synced {
					wm = min(wm, e.least)
				}
			}
		case dead:
			a.mourn(now, e)
		case left:
		}
	}
	a.advanced = now
	a.meetTwins()
	a.gather(now)
	a.foldGone(now)
	a.edges = slices.DeleteFunc(a.edges, func(e *edge) bool {
		if e.state != left && e.state != dead {
			return false
		}
		for _, b := range a.order {
			if acc := b.of(e); acc != nil && b.countsOn(e, acc) {
				return false
			}
		}
		a.strike(e)
		a.close(e)
		return true
	})
	if a.passed == math.MaxInt64 && synced {
		a.passed = a.latest(now).Add(fleet.MaxError).Second() + 1
	}
	frees := !a.hold && wm > a.watermark && wm != math.MaxInt64
	if frees {
		a.watermark = wm
	}
	for _, b := range a.order {
		before := b.counts.head()
		b.counts.passed = a.passed
		if frees {
			b.counts.free(wm)
		}
		if b.counts.head() != before {
			b.dirty, b.stale = true, true
		}
	}
	for _, b := range a.order {
		b.expire(now, a.up.leaseEnd, a.cfg.Params.EdgeLease)
		if len(b.marks.order) > 0 {
			b.closeMarks(a.markedUpTo(b), a.up.acked, a.watermark)
		}
		a.up.tellEnds(now, b, a.cfg.Params.SyncGap)
		if n := len(b.ratePhantoms); n > 0 {
			b.ratePhantoms = slices.DeleteFunc(b.ratePhantoms, func(p ratePhantom) bool {
				return now >= p.until || (p.end != 0 && synced && a.durable.HoldUntil == 0 && ft.Second() > p.end)
			})
			b.stale = b.stale || len(b.ratePhantoms) != n
		}
	}
}

// lapseAfter is how long after its last report an edge's lease is over by every
// clock.
func (a *Aggregator) lapseAfter() time.Duration {
	return fleet.Stretch(fleet.Stretch(a.cfg.Params.EdgeLease)) + lapseMargin
}

// patience is how long after its start an aggregator waits for the edges of its
// predecessor: the predecessor may have gone on leasing to them meanwhile.
func (a *Aggregator) patience() time.Duration { return a.lapseAfter() + ownerLease }

// gatherWait is how long after a silence of all, which was the regional's own,
// the rest is waited for.
const gatherWait = 5 * time.Second

// gather notes whether edges that fell silent together are on their way back.
// Under partition_policy serve their visitors went on from one to the other, and
// who is counted nowhere yet was last renewed at one that has not come back.
func (a *Aggregator) gather(now fleet.Mono) {
	heard, silent := false, false
	for _, e := range a.edges {
		heard = heard || e.state == alive || e.state == joining
		if e.state != dead || silent {
			continue
		}
		for _, b := range a.order {
			acc := b.of(e)
			silent = silent || (acc != nil && acc.silent)
		}
	}
	switch {
	case !heard:
		a.alone = silent
	case a.alone:
		a.alone, a.together = false, now.Add(gatherWait)
	}
	was := a.gathering
	if a.gathering = silent && now < a.together; was && !a.gathering {
		a.restale()
	}
}

const (
	// lapseMargin lets the last answer of a report arrive before its edge is
	// taken for silent.
	lapseMargin = 200 * time.Millisecond

	// ownerLease is how long a predecessor may have gone on leading after
	// this term was won.
	ownerLease = 4 * time.Second
)

// recovering reports whether edges of a predecessor are still awaited.
func (a *Aggregator) recovering() bool {
	return !mutant.On(mutant.NoHold) && slices.ContainsFunc(a.edges, func(e *edge) bool {
		return e.state == awaiting || (e.state == lost && !e.vigil && !mutant.On(mutant.LostIsFree))
	})
}

// setPassed tells all rooms before which second somebody else may have freed any.
func (a *Aggregator) setPassed(second int64) {
	a.passed = second
	for _, b := range a.order {
		b.counts.passed = second
	}
}

// free returns the rights of T and of R that neither a session nor an edge holds. Below 0
// more is reckoned with than is held: a debt, which drains.
func (a *Aggregator) free(b *books) (t, rate int64) {
	if a.up.blank || a.recovering() {
		return 0, 0 // sessions may exist that nobody has told us of yet
	}
	if t, rate = b.reckoned(); a.gathering {
		t = 0
	}
	return t, rate
}
