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
	if m.Seen != a.cfg.Term && !mutant.On(mutant.NoAdoptionHandshake) {
		// Adopting an edge that a predecessor can still grant to would count
		// what that one grants nowhere: first the promise, then the books.
		a.answer(now, m, wire.Promise)
		return
	}
	e := a.find(m.From, m.Inc)
	if e == nil || e.state == awaiting || e.state == lost {
		if !m.Join {
			a.forgotten(now, m)
			return
		}
		if e == nil {
			a.surprised(&m)
			e = a.newEdge(m.From, m.Inc)
		}
		a.adopt(now, e, m)
	}
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
		if e.accounts[b.ID] != nil && !b.Cap && m.AsOf.Second() < b.counts.freed-1 && !mutant.On(mutant.LateFinalWord) {
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

// learnTime learns fleet time from the edges where global has not told it yet,
// in the same way as a new leader of global does (see Allocator.learnTime).
func (a *Aggregator) learnTime(now fleet.Mono, m *wire.Report) {
	if a.clock.Err(now) != fleet.Unsynced {
		a.probes = nil
		return
	}
	trip, ok := answered(a.probes, now, m)
	if ok && (max(trip, m.AsOfErr) <= fleet.MaxError || (m.AsOfErr <= fleet.Rough && now.Sub(a.started) > time.Second)) {
		a.clock.Set(now, m.AsOf.Add(trip/2), trip/2+m.AsOfErr)
	}
}

// answered returns how long ago the grant was sent that m answers, where m tells
// the time and that was not long ago.
func answered(probes []probe, now fleet.Mono, m *wire.Report) (trip time.Duration, ok bool) {
	if m.AsOf <= 0 {
		return 0, false
	}
	for _, p := range probes {
		if trip = now.Sub(p.at); p.seq == m.Acked && trip <= longTrip {
			return trip, true
		}
	}
	return 0, false
}

// longTrip is the longest round trip that the time is learned from.
const longTrip = time.Second

// least returns the time that a report was written at, at the earliest, but for the
// error that everybody allows for.
func least(m *wire.Report) fleet.Time {
	if m.AsOfErr > fleet.MaxError {
		return max(0, m.AsOf.Add(-min(m.AsOfErr, 24*time.Hour)))
	}
	return m.AsOf
}

// upTo returns the time that a report was written at, at the latest; of one who did not
// know the time, what it took for it.
func upTo(m *wire.Report) fleet.Time {
	if m.AsOfErr > fleet.MaxError && knows(m) {
		return m.AsOf.Add(m.AsOfErr)
	}
	return m.AsOf
}

// knows reports whether a report was written by somebody who knew the time.
func knows(m *wire.Report) bool { return m.AsOf > 0 && m.AsOfErr <= fleet.Rough }

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
	e.parts = wire.Parts{}
	e.recv = now
	// A new edge has touched nothing, and is told the watermark before it may.
	e.asOf, e.least = max(m.AsOf, a.watermark), max(least(&m), a.watermark)
	e.upTo, e.timed = upTo(&m), knows(&m)
	a.enrol(e)
	for _, b := range a.order {
		b.found(e)
	}
}

// succeeded reports whether a newer incarnation of the edge's name is known.
func (a *Aggregator) succeeded(e *edge) bool {
	return slices.ContainsFunc(a.edges, func(o *edge) bool {
		return o.name == e.name && o.num > e.num && o.state != awaiting && o.state != lost
	})
}

// take brings the numbers of a report into the books.
func (a *Aggregator) take(now fleet.Mono, e *edge, m wire.Report, complete bool) {
	for i := range m.Rooms {
		r := &m.Rooms[i]
		b := a.books(r.Room)
		b.counts.begin(max(least(&m), a.watermark))
		acc := e.account(r.Room)
		acc.takeSessions(&b.counts, r.Sessions)
		acc.granted = max(acc.granted, r.Granted) // after a takeover: what the predecessor granted
		acc.renewCeil = max(acc.renewCeil, r.RenewCeil)
		if m.Tenure == e.tenure && e.state != dead && e.state != left { // rights of R stay behind with their tenure
			acc.rateGranted = max(acc.rateGranted, r.RateGranted)
			acc.rateReturned = max(acc.rateReturned, r.RateReturned)
			acc.rateIdle, acc.rateSeen = r.RateIdle, r.RateGranted
		}
		acc.spent = max(acc.spent, r.Spent)
		acc.returned = max(acc.returned, r.Returned)
		acc.renewedBefore = acc.renewed
		acc.renewed = max(acc.renewed, r.Renewed)
		acc.want, acc.parked, acc.parkedN, acc.movers = r.Want, r.Parked, r.ParkedN, r.Movers
		if acc.report == nil {
			b.marks.tell(acc) // before it may act in the room
		}
		acc.report = r
		if !acc.told { // what an edge did under a predecessor is not counted again
			acc.told = true
			acc.admitted, acc.joined, acc.entered, acc.outcomes = r.Admitted, r.Joined, r.Entered, r.Outcomes
			b.phantomRate(e, int64(r.RateOwed), now)
		}
		b.admitted += gain(&acc.admitted, r.Admitted)
		b.joined += gain(&acc.joined, r.Joined)
		b.entered += gain(&acc.entered, r.Entered)
		b.outcomes.Gain(acc.outcomes, r.Outcomes)
		acc.outcomes = r.Outcomes
		a.takeMoves(e, b, acc, r, least(&m), upTo(&m))
		for _, end := range r.Ends {
			a.end(b, end, true)
		}
		a.tellEnds(now, b)
		b.dirty, b.stale = true, true
	}
	if complete {
		e.asOf, e.least = max(e.asOf, m.AsOf), max(e.least, least(&m))
		e.upTo, e.timed = max(e.upTo, upTo(&m)), knows(&m)
		e.told = e.acked
	}
}

// gain raises a cumulative counter and returns by how much.
func gain(have *uint64, now uint64) uint64 {
	if now <= *have {
		return 0
	}
	d := now - *have
	*have = now
	return d
}

// takeMoves follows the tickets that were stamped, and cancels doubles. The report was
// written between least and upTo.
func (a *Aggregator) takeMoves(e *edge, b *books, acc *account, r *wire.RoomReport, least, upTo fleet.Time) {
	if r.FirstMove > acc.moves+1 {
		acc.missed += r.FirstMove - acc.moves - 1
		acc.missedUntil = max(e.upTo, upTo).Second() + 2 + int64(b.life)
		acc.moves = r.FirstMove - 1
	}
	limit := 2*int(b.granted-b.returned) + 1024
	for i, m := range r.Moves {
		n := r.FirstMove + uint64(i)
		if n <= acc.moves {
			continue
		}
		acc.moves = n
		ent := b.ids.find(m.ID)
		silent := ent != nil && ent.frozen
		if silent {
			if ent.edge != e.num && m.Until <= ent.until {
				continue // told late: it went on to the silent edge
			}
			// The session of a silent edge turned up here: no need to guess.
			a.unfreeze(b, ent, e)
		}
		if b.ids.take(&b.counts, m, e.num, limit) {
			b.copied++
		}
		if !acc.silent {
			continue
		}
		// It is the silent edge that tells, of long ago. It may have renewed since what
		// was valid then, also where that second is freed by now.
		if ent = b.ids.find(m.ID); ent != nil && !ent.frozen && ent.edge == e.num && (silent || int64(ent.until) >= least.Second()) {
			acc.freeze(&b.counts, ent)
		}
	}
}

// unfreeze puts a session back into the ageing: edge by told of it.
func (a *Aggregator) unfreeze(b *books, ent *idEntry, by *edge) {
	ent.frozen = false
	b.counts.add(int64(ent.until), 1)
	for _, e := range a.edges {
		if e.num == ent.edge {
			e.account(b.ID).frozen--
			if e != by {
				b.strays(e, 1) // it may go back there, and nobody would tell
			}
		}
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
	// Where nobody knew the time any more, what there was before is waited out by
	// our own clock.
	a.hold = a.guessed && now.Sub(a.started) < fleet.Stretch(fleet.Stretch(a.longestLife(now)+2*time.Second))+a.patience()
	for _, e := range a.edges {
		switch e.state {
		case awaiting:
			a.hold = !mutant.On(mutant.NoHold)
			if synced && now.Sub(e.recv) > a.patience() {
				e.state, e.lostAt = lost, now
				a.holdUntil = max(a.holdUntil, a.lastBreath(now, a.latest(now)))
			}
		case lost:
			if e.ended == 0 && a.succeeded(e) {
				e.ended = now
			}
			switch over := synced && ft.Add(-fleet.Guard).Second() > a.holdUntil; {
			case !over || now.Sub(e.lostAt) <= fleet.Stretch(fleet.Stretch(wire.RateWindow)):
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
	a.gather(now)
	a.edges = slices.DeleteFunc(a.edges, func(e *edge) bool {
		if e.state != left && e.state != dead {
			return false
		}
		for _, b := range a.order {
			if acc := e.accounts[b.ID]; acc != nil && b.countsOn(e, acc) {
				return false
			}
		}
		a.strike(e)
		return true
	})
	if !a.hold && wm > a.watermark && wm != math.MaxInt64 {
		a.watermark = wm
		for _, b := range a.order {
			before := b.counts.sum
			b.counts.free(wm)
			if b.counts.sum != before {
				b.dirty, b.stale = true, true
			}
		}
	}
	for _, b := range a.order {
		a.expire(now, b)
		a.closeMarks(b)
		a.tellEnds(now, b)
		if n := len(b.ratePhantoms); n > 0 {
			b.ratePhantoms = slices.DeleteFunc(b.ratePhantoms, func(p ratePhantom) bool { return now >= p.until })
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
		for _, acc := range e.accounts {
			silent = silent || (e.state == dead && acc.silent)
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

// earliest returns what fleet time is at least, by a clock that may be wrong as
// far as it knows; ok is false for one that does not know at all.
func (a *Aggregator) earliest(now fleet.Mono) (t fleet.Time, ok bool) {
	err := a.clock.Err(now)
	if err == fleet.Unsynced {
		return 0, false
	}
	return a.clock.Now(now).Add(-err), true
}

// latest returns what fleet time is at most, by a clock that may be wrong as far as
// it knows. Where that does not know at all, it is by the newest that any edge has
// told, which may have been under way for long.
func (a *Aggregator) latest(now fleet.Mono) fleet.Time {
	if err := a.clock.Err(now); err != fleet.Unsynced {
		return a.clock.Now(now).Add(err)
	}
	t := a.watermark
	for _, e := range a.edges {
		if e.asOf > 0 {
			t = max(t, e.upTo.Add(fleet.Stretch(now.Sub(e.recv))))
		}
	}
	return t.Add(fleet.MaxError)
}

// expire voids the books of a room under partition_policy cap once the data
// centre has been without its lease for so long that none of its sessions can
// be valid: global reclaims the rights a little later, and a new leader of it
// may not know.
func (a *Aggregator) expire(now fleet.Mono, b *books) {
	if !b.Cap || a.up.leaseEnd == 0 || b.held() <= 0 {
		return
	}
	life := max(time.Duration(b.longest(now))*time.Second, wire.RateWindow)
	// Its edges stopped one edge lease after ours ended; two seconds are for
	// the rounding of expiry and for clocks that are wrong as far as they may.
	if now.Sub(a.up.leaseEnd) < fleet.Stretch(a.cfg.Params.EdgeLease+life+2*time.Second) {
		return
	}
	b.returned, b.rateReturned = b.granted, b.rateGranted
	b.dirty, b.stale = true, true
}

const (
	// lapseMargin lets the last answer of a report arrive before its edge is
	// taken for silent.
	lapseMargin = 200 * time.Millisecond

	// ownerLease is how long a predecessor may have gone on leading after
	// this term was won (rights.md La).
	ownerLease = 4 * time.Second
)

// recovering reports whether edges of a predecessor are still awaited.
func (a *Aggregator) recovering() bool {
	return !mutant.On(mutant.NoHold) && slices.ContainsFunc(a.edges, func(e *edge) bool {
		return e.state == awaiting || (e.state == lost && !e.vigil && !mutant.On(mutant.LostIsFree))
	})
}

// lastBreath returns the last expiry second of a ticket that somebody silent
// since asOf may have stamped: one lease later, by a clock as wrong as a clock
// may be.
func (a *Aggregator) lastBreath(now fleet.Mono, asOf fleet.Time) int64 {
	life := int64(a.longestLife(now) / time.Second)
	return asOf.Add(fleet.Stretch(a.cfg.Params.EdgeLease)+2*fleet.MaxError).Second() + 2 + life
}

// unknownLife returns how long tickets may live of a room that is gone, and was
// before we began: nobody has told us.
func (b *books) unknownLife() int64 {
	if b.life != 0 {
		return 0
	}
	return int64(wire.Life(room.MaxSession))
}

// longestLife returns the longest that any ticket of the data centre may be valid.
func (a *Aggregator) longestLife(now fleet.Mono) time.Duration {
	life := int64(0)
	for _, b := range a.order {
		life = max(life, b.longest(now))
		for _, e := range a.edges {
			if acc := e.accounts[b.ID]; acc != nil && acc.silent {
				life = max(life, acc.stampLife)
			}
		}
	}
	return time.Duration(life) * time.Second
}

// lapse takes note that an edge's lease is over by every clock: what it may
// have done since its last report is presumed done.
func (a *Aggregator) lapse(now fleet.Mono, e *edge) {
	e.state = dead
	for _, b := range a.order {
		acc := e.accounts[b.ID]
		if acc == nil {
			continue
		}
		b.phantomRate(e, acc.rateHeld(), e.recv.Add(fleet.Stretch(fleet.Stretch(a.cfg.Params.EdgeLease))+lapseMargin))
		acc.rateGranted, acc.rateReturned, acc.rateIdle, acc.rateSeen = 0, 0, 0, 0
		acc.want, acc.parked, acc.parkedN, acc.movers = 0, nil, 0, 0
		b.dirty = true
	}
	a.presume(now, e)
	a.enrol(e)
}

// presume counts what a lapsed edge may have spent and renewed without a word.
func (a *Aggregator) presume(now fleet.Mono, e *edge) {
	since := e.upTo
	if !e.timed { // our answer told it the time, and nobody has told us what it did with it
		since = a.latest(now)
	}
	breath := a.lastBreath(now, since)
	for _, b := range a.order {
		acc := e.accounts[b.ID]
		if acc == nil {
			continue
		}
		renewals := int64(acc.renewCeil) - int64(acc.renewed)
		acc.drop(&b.counts)
		if acc.phantom = max(0, acc.credit()) + max(0, renewals); mutant.On(mutant.NoPhantoms) {
			acc.phantom = 0
		}
		acc.phantomUntil = max(acc.phantomUntil, breath+b.unknownLife())
		acc.stampLife = max(acc.stampLife, b.longest(now))
		if !b.Cap && (!a.succeeded(e) || e.unheard) && !mutant.On(mutant.NoFreeze) {
			a.freeze(b, e, acc)
		}
		acc.dirty, b.dirty, b.stale = true, true, true
	}
	a.due = now
}

// freeze takes the sessions that were last seen at a silent edge out of the
// ageing: under partition_policy serve it goes on renewing them. So it does those of
// the processes that it has succeeded, whose visitors come to it.
func (a *Aggregator) freeze(b *books, e *edge, acc *account) {
	acc.silent = true
	here := []uint16{e.num}
	blind := int64(0)
	if acc.missedUntil >= min(b.counts.freed, e.least.Second()) {
		// Of the tickets it stamped, those that we can follow are frozen
		// already; each of the others was stamped once at least.
		blind = min(int64(acc.missed), acc.stamped(&b.counts))
	}
	for _, old := range a.edges {
		if old.name != e.name || old.num >= e.num || mutant.On(mutant.PredecessorsAge) {
			continue
		}
		here = append(here, old.num)
		if was := old.accounts[b.ID]; was != nil && !was.silent {
			blind += was.presumed(&b.counts)
			switch {
			case was.report == nil: // nobody has told us of its sessions one by one
				blind += was.stamped(&b.counts)
			case was.missedUntil >= min(b.counts.freed, old.least.Second()):
				blind += min(int64(was.missed), was.stamped(&b.counts))
			}
		}
	}
	acc.frozenBlind = max(acc.frozenBlind, blind)
	for i := range b.ids.slots {
		ent := &b.ids.slots[i]
		if ent.id != 0 && !ent.frozen && int64(ent.until) >= b.counts.freed && slices.Contains(here, ent.edge) {
			ent.edge = e.num
			acc.freeze(&b.counts, ent)
		}
	}
}

// drop forgets what was kept once it has expired.
func (a *account) drop(c *counts) {
	if a.phantomUntil < c.freed {
		a.kept = 0
	}
}

// freeze takes one session out of the ageing.
func (a *account) freeze(c *counts, ent *idEntry) {
	ent.frozen = true
	c.add(int64(ent.until), -1)
	a.frozen++
}

// thaw ends the freezing: the silent edge is known to have stopped. Its
// sessions end no later than if they had been renewed a moment ago.
func (a *Aggregator) thaw(now fleet.Mono, e *edge, b *books, acc *account) {
	acc.drop(&b.counts)
	acc.kept += acc.phantom + acc.frozen + acc.frozenBlind
	acc.phantom, acc.frozen, acc.frozenBlind, acc.silent = 0, 0, 0, false
	acc.phantomUntil = max(acc.phantomUntil, a.latest(now).Second()+2+max(b.longest(now), acc.stampLife)+b.unknownLife())
	acc.stampLife = 0
	for i := range b.ids.slots {
		if ent := &b.ids.slots[i]; ent.frozen && ent.edge == e.num {
			*ent = idEntry{id: ent.id} // still occupies its slot, means nothing
		}
	}
	b.dirty = true
}

// heardElse returns for how long since the last look edges were heard.
func (a *Aggregator) heardElse(now fleet.Mono) time.Duration {
	if mutant.On(mutant.IsolationIsDeath) || slices.ContainsFunc(a.edges, func(o *edge) bool { return o.state == alive }) {
		return now.Sub(a.advanced)
	}
	return 0
}

// mourn declares a silent edge lost once lost_after has passed in which other
// edges were heard. Silence of all is our own isolation and starts no clock. One
// that a newer process of its name has succeeded has ended: what it might have gone
// on renewing has stopped, and ages from here. When here is nobody can say who does
// not know the time.
func (a *Aggregator) mourn(now fleet.Mono, e *edge) {
	e.silent += a.heardElse(now)
	if a.clock.Err(now) == fleet.Unsynced && !mutant.On(mutant.TimelessThaw) {
		return
	}
	ended := a.succeeded(e)
	for _, b := range a.order {
		if acc := e.accounts[b.ID]; acc != nil && acc.silent && (ended || e.silent > b.lostWait()) {
			if !ended {
				b.strays(e, acc.phantom+acc.frozen+acc.frozenBlind) // it may be alive all the same
			}
			a.thaw(now, e, b, acc)
		}
	}
}

// keepVigil goes on reckoning with an edge that nobody has heard since the
// aggregator began, although all that it stamped under a lease has expired: under
// partition_policy serve it may be renewing sessions alone. How many nobody can
// tell. But everybody else's are counted by now, so it cannot be more than what
// would be free without it.
func (a *Aggregator) keepVigil(now fleet.Mono, e *edge) {
	switch {
	case mutant.On(mutant.LostIsStill), e.ended != 0 && now.Sub(e.ended) > fleet.Stretch(fleet.Stretch(a.longestLife(now)+2*time.Second)):
		e.state = left
		return
	case a.up.blank: // nor is it known what there is to be free
		e.silent += a.heardElse(now)
		if wait := a.longestLostWait(); wait == 0 || e.silent > wait {
			e.state = left
		}
		return
	}
	e.vigil = true
	life := int64(a.longestLife(now) / time.Second)
	for _, b := range a.order {
		free := a.reckoned(b)
		if b.Cap || free <= 0 {
			continue
		}
		acc := e.account(b.ID)
		acc.phantom, acc.silent, acc.stampLife = free, true, life
		acc.dirty, b.dirty, b.stale = true, true, true
	}
	e.state = a.graveOf(e)
}

// graveOf returns the state of an edge that is reckoned with as long as anything
// is presumed of it.
func (a *Aggregator) graveOf(e *edge) edgeState {
	for _, b := range a.order {
		if acc := e.accounts[b.ID]; acc != nil && acc.silent {
			return lost
		}
	}
	return left
}

// endVigil takes note that an edge is heard after all. What was presumed may
// have been another's, who is not.
func (a *Aggregator) endVigil(e *edge) {
	if !e.vigil {
		return
	}
	e.vigil = false
	var other *edge
	for _, o := range a.edges {
		if o != e && o.state == lost && o.vigil {
			other = o
		}
	}
	for _, b := range a.order {
		acc := e.accounts[b.ID]
		if acc == nil || !acc.silent {
			continue
		}
		if other != nil {
			to := other.account(b.ID)
			to.phantom += acc.phantom
			to.silent, to.stampLife = true, max(to.stampLife, acc.stampLife)
		}
		acc.phantom, acc.silent, acc.stampLife = 0, false, 0
		b.dirty, b.stale = true, true
	}
}

// longestLostWait returns the longest lost_after of any room under serve, 0 where
// there is none.
func (a *Aggregator) longestLostWait() time.Duration {
	wait := time.Duration(0)
	for _, b := range a.order {
		if !b.Cap {
			wait = max(wait, b.lostWait())
		}
	}
	return wait
}

// lostWait returns lost_after; the default of a room that went before anybody
// told us.
func (b *books) lostWait() time.Duration {
	switch {
	case b.LostWait > 0:
		return b.LostWait
	case b.gone:
		return room.DefaultLost
	}
	return math.MaxInt64
}

// settle takes the exact numbers of an edge whose tenure is over: nothing is
// presumed any more, and it may begin a new tenure.
func (a *Aggregator) settle(now fleet.Mono, e *edge, bye bool) {
	for _, b := range a.order {
		b.found(e)
		acc := e.accounts[b.ID]
		if acc == nil {
			continue
		}
		b.phantomRate(e, acc.rateHeld(), now) // used before the end of the tenure, which is past
		acc.rateGranted, acc.rateReturned, acc.rateIdle, acc.rateSeen = 0, 0, 0, 0
		if acc.silent {
			for i := range b.ids.slots {
				if ent := &b.ids.slots[i]; ent.frozen && ent.edge == e.num {
					ent.frozen = false
					b.counts.add(int64(ent.until), 1)
				}
			}
		}
		acc.phantom, acc.frozen, acc.frozenBlind, acc.silent, acc.stampLife = 0, 0, 0, false, 0
		// What was granted and never reached the edge belongs to the tenure that is
		// over, and may have been presumed spent, forgotten and lent again since.
		seen := acc.spent + acc.returned
		if acc.report != nil {
			seen = max(seen, acc.report.Granted)
		}
		acc.granted = min(acc.granted, seen)
		acc.dirty, b.dirty, b.stale = true, true, true
	}
	if bye {
		e.state = left
		for _, acc := range e.accounts {
			acc.returned = max(acc.returned, acc.granted-acc.spent)
			acc.want, acc.parked, acc.parkedN, acc.movers = 0, nil, 0, 0
		}
		a.enrol(e)
		return
	}
	e.tenure++
	e.unheard = true
	e.state = joining
	if mutant.On(mutant.NoRosterOnRevival) || mutant.On(mutant.LeaseBeforeRoster) {
		e.state = alive
	}
	if mutant.On(mutant.NoRosterOnRevival) {
		return
	}
	a.enrol(e) // before it gets a lease again: the roster must not call it dead
}
