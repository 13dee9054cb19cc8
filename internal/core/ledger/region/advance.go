package region

import (
	"math"
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// advance updates the state to now: it ends lapsed leases, moves the watermark and frees the seconds before it.
func (a *Aggregator) advance(now fleettime.Mono) {
	wm, lapsed := a.lifecycle.advance(now, a.up.blank)
	if lapsed {
		a.due = now
	}
	a.rooms.free(wm, a.lifecycle.silence.hold)
	ft, synced := a.clock.earliest(now)
	held := !synced || a.stored.durable.HoldUntil != 0
	over, looked := uint32(0), false
	for _, b := range a.rooms.list {
		b.expire(now, a.up.leaseEnd, a.cfg.Params.EdgeLease)
		if b.moves.any() {
			if !looked {
				ready := synced && !a.up.blank && a.member.standing(&a.up) != wire.Unlisted
				over, looked = a.lifecycle.allExpired(now, ready), true
			}
			b.mark(now, ft, over)
			known := a.roster.acknowledgedStays(b)
			b.expireMoves(now, a.rooms.watermark, known)
			if b.canDepart(known, a.stored.saved) {
				a.up.reportSoon(now, 1)
			}
		}
		if len(b.terminations.order) > 0 {
			if !looked { // computed on demand: it visits all rooms
				ready := synced && !a.up.blank && a.member.standing(&a.up) != wire.Unlisted
				over, looked = a.lifecycle.allExpired(now, ready), true
			}
			known := uint64(0)
			if !a.up.blank {
				known = a.roster.acknowledgedEnds(b)
			}
			b.closeTerminations(closeConditions{known, a.up.acked, a.rooms.watermark, over, a.lifecycle.movedIn})
		}
		a.up.reportEnds(now, b)
		b.stale = b.rates.expire(now, ft, held) || b.stale
	}
	a.storeMoves()
}

// advance updates the states of all edges to now; blank says that the permits of the data centre are unknown. It
// returns the watermark that the edges allow, and whether a lease lapsed.
func (l *lifecycle) advance(now fleettime.Mono, blank bool) (watermark fleettime.Time, lapsed bool) {
	// Without fleet time, the aggregator uses the reported times of its edges.
	ft, synced := l.clock.earliest(now)
	wm := fleettime.Time(math.MaxInt64)
	if synced {
		wm = ft.Add(-fleettime.Guard)
	}
	lease := l.lapseAfter()
	l.silence.hold = l.silence.holdsForGuess(now, ft, synced)
	l.checkCeilings(now)
	l.roster.closeUnknownPast(now.Sub(l.clock.started) > l.takeoverWait())
	for _, e := range l.roster.edges {
		switch e.state {
		case awaiting:
			switch over := synced && l.silence.waitIsOver(now, ft, e); {
			case over && e.ceilings != nil:
				e.become(lost)
				l.silence.reserveCeilings(now, e)
				continue
			case over:
				e.become(lost)
				l.silence.holdUntil = max(l.silence.holdUntil, e.until)
			}
			l.silence.hold = true
		case lost:
			l.silence.advanceLost(now, ft, synced, e, blank)
		case alive, joining:
			if now.Sub(e.receivedAt) > lease {
				l.lapse(now, e)
				lapsed = true
				continue
			}
			wm = min(wm, e.asOf)
			if !synced {
				wm = min(wm, e.earliest)
			}
		case dead:
			l.silence.expireLost(now, e)
		case left:
		}
	}
	l.advanced = now
	l.trackReturn(now)
	if sum, folded := l.compactor.compact(now); sum != nil {
		l.storeEnded(sum)
		for _, e := range folded {
			l.stored.removeEntry(e)
		}
	}
	l.roster.remove(func(e *edge) bool {
		if !e.over() || e.counted() {
			return false
		}
		l.stored.removeEntry(e)
		e.close()
		return true
	})
	if l.rooms.passed == math.MaxInt64 && synced {
		l.rooms.passed = l.latest(now).Add(fleettime.MaxError).Second() + 1
	}
	return wm, lapsed
}

// allExpired returns the Unix second at which all tickets stamped so far have expired; 0 if it is unknown or an edge is
// not heard. ready says that fleet time and the permits are known, and that this is no copy of another data centre.
func (l *lifecycle) allExpired(now fleettime.Mono, ready bool) uint32 {
	silent := slices.ContainsFunc(l.roster.edges, func(e *edge) bool { return e.state != alive && e.state != left })
	if !ready || silent || l.stored.durable.HoldUntil != 0 {
		return 0
	}
	latest := l.latest(now)
	if l.movedIn == movedInUnknown {
		l.movedIn = l.rooms.maxExpiry(now, latest, l.params.EdgeLease)
		l.stored.raiseMovedIn(l.movedIn)
	}
	return uint32(l.rooms.maxExpiry(now, latest, l.params.EdgeLease))
}

// activateStored makes edges alive once their roster entry is stored.
func (l *lifecycle) activateStored() {
	for _, e := range l.roster.edges {
		if e.state == joining && l.stored.saved >= e.storeVersion {
			e.become(alive)
			l.rooms.openAll(e)
			e.replyDue = true
		}
	}
}

// trackReturn detects edges that fell silent together and are returning. Under partition_policy serve, their visitors
// moved between them, so an uncounted session was last renewed at an edge that has not returned yet.
func (l *lifecycle) trackReturn(now fleettime.Mono) {
	heard, silent := false, false
	for _, e := range l.roster.edges {
		heard = heard || e.reporting()
		silent = silent || (e.state == dead && e.hasSilent())
	}
	switch {
	case !heard:
		l.noneReporting = silent
	case l.noneReporting:
		l.noneReporting, l.returnBy = false, now.Add(returnWait)
	}
	was := l.returning
	if l.returning = silent && now < l.returnBy; was && !l.returning {
		l.rooms.markAllStale()
	}
}

// returnWait is how long the aggregator waits for the other edges after a silence of all, which is caused by its own
// isolation.
const returnWait = 5 * time.Second
