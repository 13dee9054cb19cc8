package slots

import (
	"math"
	"slices"
	"time"

	"vestibule/internal/fleet"
	"vestibule/internal/mutant"
	"vestibule/internal/room"
	"vestibule/internal/wire"
)

// lives are what becomes of edges: who is awaited, heard, silent, given up or gone, what is
// presumed of whom, and what of it a successor is to know.
type lives struct {
	params wire.Params
	rooms  *rooms
	roster *roster
	stored *stored
	clock  *clock
	gone   gone

	advanced  fleet.Mono // when they were last moved to the present
	alone     bool       // no edge is heard
	together  fleet.Mono // when those are supposed to be back who fell silent together
	gathering bool       // until then some of them are waited for
	hold      bool       // an edge may have counted what nobody has told us
	holdUntil int64      // Unix second after which nothing of lost edges can be valid
}

// advance moves the lives of all edges to now; blank says that it is not known what the data
// centre holds. It returns the watermark that they allow, and whether a lease lapsed.
func (l *lives) advance(now fleet.Mono, blank bool) (watermark fleet.Time, lapsed bool) {
	// Without fleet time of its own the aggregator goes by that of its edges.
	ft, synced := l.clock.earliest(now)
	wm := fleet.Time(math.MaxInt64)
	if synced {
		wm = ft.Add(-fleet.Guard)
	}
	lease := l.lapseAfter()
	l.hold = l.holdsGuess(now, ft, synced)
	l.roster.forgetPast(now.Sub(l.clock.started) > l.patience())
	for _, e := range l.roster.edges {
		switch e.state {
		case awaiting:
			l.hold = !mutant.On(mutant.NoHold)
			if synced && l.awaitedInVain(now, ft, e) {
				e.become(lost)
				l.holdUntil = max(l.holdUntil, e.until)
			}
		case lost:
			l.stillLost(now, ft, synced, e, blank)
		case alive, joining:
			if now.Sub(e.recv) > lease {
				l.lapse(now, e)
				lapsed = true
				continue
			}
			if !mutant.On(mutant.AgeByClock) {
				wm = min(wm, e.asOf)
				if !synced {
					wm = min(wm, e.earliest)
				}
			}
		case dead:
			l.expireLost(now, e)
		case left:
		}
	}
	l.advanced = now
	l.roster.meetTwins()
	l.gather(now)
	if sum, folded := l.gone.fold(now); sum != nil {
		l.enrol(sum)
		for _, e := range folded {
			l.stored.strike(e)
		}
	}
	l.roster.remove(func(e *edge) bool {
		if !e.over() || l.rooms.counted(e) {
			return false
		}
		l.stored.strike(e)
		l.rooms.close(e)
		return true
	})
	if l.rooms.passed == math.MaxInt64 && synced {
		l.rooms.passed = l.latest(now).Add(fleet.MaxError).Second() + 1
	}
	return wm, lapsed
}

// meet returns the edge that a report is from, which it adopts if need be; nil for one whose
// books are gone. The edge has promised to follow us.
func (l *lives) meet(now fleet.Mono, m *wire.Report) *edge {
	e := l.roster.find(m.From, m.Inc)
	if e == nil || e.missing() {
		if gone := e == nil && l.roster.summed(m.From, m.Inc); gone || !m.Join {
			if e == nil && !gone {
				l.lateWord(m)
			}
			return nil
		}
		if e == nil {
			l.roster.unknownEdge(m, l.rooms.watermark)
			e = l.roster.add(m.From, m.Inc)
		}
		l.adopt(now, e, m)
	}
	l.roster.belie(e, m)
	l.claim(now, e, m)
	return e
}

// adopt opens the books of an edge that has promised to follow us.
func (l *lives) adopt(now fleet.Mono, e *edge, m *wire.Report) {
	l.endLostHold(e)
	e.become(joining)
	if mutant.On(mutant.LeaseBeforeRoster) {
		e.become(alive)
	}
	e.tenure = m.Tenure
	if !mutant.On(mutant.WaitKept) {
		e.leased, e.until, e.ended = 0, 0, 0 // it may have a lease again
	}
	e.waited, e.silent = 0, 0
	e.parts = wire.Parts{}
	e.recv, e.first = now, l.roster.said
	for _, o := range l.roster.edges {
		if o.name == e.name && o.proves(e) {
			l.roster.claimed(e, l.latest(now))
		}
	}
	// A new edge has touched nothing, and is told the watermark before it may.
	e.asOf, e.earliest = max(m.AsOf, l.rooms.watermark), max(earliest(m), l.rooms.watermark)
	e.latest, e.timed = latest(m), isSynced(m)
	l.enrol(e)
	l.rooms.setPassed(math.MaxInt64) // up to now it may have been told another's watermark
	l.rooms.found(e.inc)
}

// enter lets edges begin whose place on the roster is stored.
func (l *lives) enter() {
	for _, e := range l.roster.edges {
		if e.state == joining && l.stored.saved >= e.needs {
			e.become(alive)
			e.due = true
		}
	}
}

// settle takes the exact numbers of an edge whose tenure is over: nothing is
// presumed any more, and it may begin a new tenure.
func (l *lives) settle(now fleet.Mono, e *edge, bye bool) {
	l.rooms.found(e.inc)
	for _, acc := range l.rooms.accounts(e) {
		acc.settle(now)
	}
	if bye {
		l.leave(e)
	} else {
		l.revive(e)
	}
}

// leave takes note that an edge said goodbye.
func (l *lives) leave(e *edge) {
	e.become(left)
	for _, acc := range l.rooms.accounts(e) {
		acc.returned = max(acc.returned, acc.granted-acc.spent)
		acc.noAsk()
	}
	l.enrol(e)
}

// revive begins another tenure of an edge. The roster must not call it dead before it gets a
// lease again.
func (l *lives) revive(e *edge) {
	e.tenure++
	e.unheard = true
	e.become(joining)
	if mutant.On(mutant.NoRosterOnRevival) || mutant.On(mutant.LeaseBeforeRoster) {
		e.become(alive)
	}
	if !mutant.On(mutant.NoRosterOnRevival) {
		l.enrol(e)
	}
}

// enrol writes an incarnation's place on the roster; the edge waits for it.
func (l *lives) enrol(e *edge) {
	entry := wire.RosterEntry{Edge: e.name, Inc: e.inc, Tenure: e.tenure, Dead: e.over(), Left: e.state == left, Gone: slices.Clone(e.gone), Waited: e.waited}
	if mutant.On(mutant.WaitKept) {
		entry.Leased, entry.Until = e.leased, e.until
	}
	if entry.Dead {
		latest := fleet.Time(0)
		if l.clock.synced(l.advanced) {
			latest = l.latest(l.advanced)
		}
		for _, acc := range l.rooms.accounts(e) {
			if acc.counts() && !mutant.On(mutant.RosterForgetsPresumed) {
				entry.Rooms = append(entry.Rooms, acc.entry(l.advanced, latest))
			}
		}
	}
	if e.name == wire.Gone {
		entry.Rooms = goneRooms(entry.Rooms)
	}
	e.needs = l.stored.enrol(entry, uint32(l.rooms.longestLife(l.advanced)/time.Second))
}

// gather notes whether edges that fell silent together are on their way back.
// Under partition_policy serve their visitors went on from one to the other, and
// who is counted nowhere yet was last renewed at one that has not come back.
func (l *lives) gather(now fleet.Mono) {
	heard, silent := false, false
	for _, e := range l.roster.edges {
		heard = heard || e.heard()
		silent = silent || (e.state == dead && l.rooms.silent(e))
	}
	switch {
	case !heard:
		l.alone = silent
	case l.alone:
		l.alone, l.together = false, now.Add(gatherWait)
	}
	was := l.gathering
	if l.gathering = silent && now < l.together; was && !l.gathering {
		l.rooms.restale()
	}
}

// lapseAfter is how long after its last report an edge's lease is over by every
// clock.
func (l *lives) lapseAfter() time.Duration {
	return fleet.Stretch(fleet.Stretch(l.params.EdgeLease)) + lapseMargin
}

// patience is how long after its start an aggregator waits for the edges of its
// predecessor: the predecessor may have gone on leasing to them meanwhile.
func (l *lives) patience() time.Duration { return l.lapseAfter() + ownerLease }

// latest returns what fleet time is at most, by a clock that may be wrong as far as
// it knows. Where that does not know at all, it is by the newest that any edge has
// told, which may have been under way for long.
func (l *lives) latest(now fleet.Mono) fleet.Time {
	if t, bound := l.clock.Read(now); bound != fleet.Unsynced {
		return t.Add(bound)
	}
	return max(l.rooms.watermark, l.roster.newest(now)).Add(fleet.MaxError)
}

// restore takes what a predecessor stored; own says that this process was it, and finds the
// store lost.
func (l *lives) restore(now fleet.Mono, old *wire.Durable, own bool) {
	for i := range old.Roster {
		r := &old.Roster[i]
		if own && !r.Dead && r.Edge != wire.UnknownPast {
			l.roster.witnesses = append(l.roster.witnesses, wire.GoneEdge{Edge: r.Edge, Inc: r.Inc})
			l.roster.recoveredEdges++
		}
		if !r.Dead && mutant.On(mutant.RosterForgotten) {
			continue
		}
		e := l.roster.add(r.Edge, r.Inc)
		e.tenure, e.recv, e.recovered = r.Tenure, now, true
		e.waited, e.silent = r.Waited, time.Duration(r.Waited)*time.Second
		if !mutant.On(mutant.WaitForgotten) {
			e.leased, e.until, e.ended = r.Leased, r.Until, r.Ended
		}
		switch e.gone = slices.Clone(r.Gone); {
		case !r.Dead:
			continue
		case r.Left || r.Edge == wire.Gone:
			e.become(left)
		default:
			e.become(dead)
		}
		for _, rr := range r.Rooms {
			b := l.rooms.open(rr.Room)
			// Counted from so early that no ticket which may be stamped from now on
			// expires before it: what is stored was stamped before now.
			if first, ok := oldest(old, rr.Room); ok {
				b.counts.begin(fleet.Time((int64(first) - int64(wire.Life(room.MaxSession))) * 1000))
			}
			b.restore(now, e, &rr, int64(l.rooms.pastLife))
		}
	}
}

// oldest returns the first expiry second that a roster tells of a room.
func oldest(d *wire.Durable, id room.ID) (first uint32, ok bool) {
	for i := range d.Roster {
		for _, rr := range d.Roster[i].Rooms {
			if rr.Room == id && len(rr.Sessions) > 0 && (!ok || rr.Sessions[0].Until < first) {
				first, ok = rr.Sessions[0].Until, true
			}
		}
	}
	return first, ok
}
