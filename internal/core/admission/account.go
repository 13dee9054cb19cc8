package admission

import (
	"time"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/history"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// account is the sessions of a room at one edge, and its permits. Each part keeps its own counts.
//
// Invariant: every admission is in permits.spent, permits.rate, sessions and moves, or in none of them.
type account struct {
	edge     *edge
	settings *Room
	arrivals *arrivals // of the room
	life     life      // full is from roomState.applyGrant, the rest from roomState.set

	// The counts of this instance for the regional. charge, moveIn and renew add to them in one step; restart clears
	// them.
	permits  permits
	passes   wire.Hand // of a paused room; charge spends them
	sessions sessions  // stamped and superseded tickets, until the watermark passes them
	moves    moveLog   // stamped tickets, until the regional acknowledges them

	ceiling ceiling               // of tickets that may be stamped; stamped counts them, snapshots raise it
	tickets tickets               // of sessions; bounded memory
	ended   ended                 // sessions revoked before their tickets expire: from grants, quit and moveIn
	ends    wire.Outbox[wire.End] // those revoked here, until the regional acknowledges them
	movers  movers                // written by moveIn, ask and prepare, and by grants
	stays   stays                 // from grants
	alone   isolation             // of an edge without a lease
	tally   tally
	changed bool // changes to report
}

// isolation is the state of a room at an edge without a lease: sessions that no ledger counts.
type isolation struct {
	letIn    uint64 // admitted without a permit, in total
	letInNow int    // of those, in this isolation
	guests   int    // foreign sessions renewed without a lease, since the last one
}

// charge takes an unspent permit of T, one of R and, in a paused room, a pass, for a ticket that is stamped now. All
// counts of the session change in this one step.
func (a *account) charge(m moment, t *ticket.Ticket) bool {
	if a.settings.gone || a.permits.credit() <= uint64(a.movers.long) || a.permits.rate.idle(m.now) == 0 {
		return false
	}
	if a.settings.queuedAll() && a.passes.Unused() == 0 {
		return false
	}
	until := m.stampTime() + 1 + a.life.first()
	if a.life.full == 0 || !a.ceiling.may(&a.edge.snapshots, m, a.life.full) || !a.sessions.issue(until) {
		return false
	}
	a.permits.spent++
	a.permits.rate.use(m.now)
	if a.settings.queuedAll() {
		a.passes.Spent++
	}
	a.ceiling.stamp(&a.edge.snapshots)
	a.moves.add(wire.Move{ID: t.ID, Until: until})
	t.Admitted, t.Until, t.Home, t.Seen = m.second(), until, a.edge.home, m.second()
	t.BindSession()
	a.tickets.remember(m.second(), t, until)
	descend(a.edge.cfg.Rand, t)
	a.changed = true
	if a.permits.low() || a.settings.queuedAll() {
		a.edge.reportSoon(m.now) // refill before empty
	}
	return true
}

// likely returns how many tickets the room may stamp before the next snapshot, beyond those that it stamped since the
// one before: a part of its unspent permits, for a burst, and one for every held visitor.
func (a *account) likely(held int) uint64 {
	credit := a.permits.credit()
	return ceilingLeast + credit/4 + min(uint64(held), credit)
}

// applyTicketFacts applies the facts about tickets in a grant. They hold whether or not the lease is extended.
func (a *account) applyTicketFacts(now fleettime.Mono, g *wire.RoomGrant) {
	for _, end := range g.Ends {
		a.ended.note(end)
	}
	for _, s := range g.Stays {
		a.stay(s)
	}
	if len(g.Stays) > 0 {
		a.edge.reportSoon(now) // the regional waits for the acknowledgement
	}
	for _, o := range g.Lines {
		m := a.edge.clock.at(now)
		a.tickets.lines.Decide(m.second(), o.ID, o.Stamp, g.Life)
	}
}

// forget drops sessions and marks that the regional has taken and every live edge has reported past.
func (a *account) forget(watermark fleettime.Time) {
	acked := a.edge.up.acked
	a.sessions.forget(watermark)
	a.moves.acked(acked)
	a.ends.Acked(acked)
	a.tickets.found.Acked(acked)
	a.ended.forget(watermark)
	a.stays.forget(watermark)
}

// restart clears the counts of an instance that the regional has forgotten.
func (a *account) restart(now fleettime.Mono) {
	a.permits.reset(now)
	a.passes = wire.Hand{}
	a.sessions, a.moves = sessions{}, moveLog{first: 1}
	a.ends.Again()
	a.tickets.found.Again()
}

// empty reports whether nothing of the sessions and permits of a removed room is left.
func (a *account) empty(now fleettime.Mono) bool {
	p := &a.permits
	return len(a.movers.byID) == 0 && p.credit() == 0 && p.rate.Held() == 0 && p.past.owed(now) == 0 &&
		a.passes.Unused() == 0 && a.sessions.ring == nil && len(a.moves.list) == 0 &&
		a.ends.Len()+a.tickets.found.Len() == 0 && len(a.ended.marks)+len(a.stays.byID) == 0 && a.alone.letInNow == 0
}

// prepare advances the account to now and returns the permits above the idle target of the regional, or all with
// none.
func (a *account) prepare(now fleettime.Mono, ft fleettime.Time, leased, none bool) {
	a.changed = a.movers.prune(now, ft, a.askWait()) || a.changed
	a.changed = a.permits.wants(now, &a.edge.cfg.Params) || a.changed
	if (none || leased) && a.permits.giveBack(now, none) { // without any lease there is nothing to return
		a.changed = true
	}
	if n := a.passes.Surplus(none || a.settings.Shut != QueuedAll); n > 0 && (none || leased) {
		a.passes.Returned += n
		a.changed = true
	}
	if !leased {
		a.ceiling.stale = a.sessions.fold(ft.Second()-keptAlone) || a.ceiling.stale
	}
}

// keptAlone is how many seconds after its end an edge without a lease keeps a second apart. Older sessions have
// expired by every clock, and are freed as soon as the edge reports again.
const keptAlone = 60

// addToReport adds the sessions and the permits to a report.
func (a *account) addToReport(now fleettime.Mono, out *wire.RoomReport) {
	l := &a.edge.up
	a.permits.addToReport(now, out)
	out.Sessions = a.sessions.report(nil)
	out.Ends = a.ends.Take(l.seq, l.acked)
	out.Copied = a.tickets.found.Take(l.seq, l.acked)
	out.Movers, out.Active = uint64(a.movers.long), uint64(max(0, a.sessions.live))
	out.Admitted, out.Entered, out.Outcomes = a.tally.admitted, a.tally.entered, a.tally.outcomes.Outcomes()
	out.Counts = a.tally.all(&a.edge.cfg, a.settings.ID, nil)
	out.FirstMove, out.Moves = a.moves.unacknowledged(l.seq)
	out.Passes = a.passes.Tell(l.seen)
	out.Asks = a.movers.asks(a.edge.home)
	if !l.joined { // a new regional learns them only from its edges
		out.Ends = a.ended.list(out.Ends, wire.MaxEnds)
		m := a.edge.clock.at(now)
		out.Copied = a.tickets.decided(m.second(), out.Copied)
		out.Stays = a.stays.list(nil)
		out.RateUsed = a.permits.rate.ages(now, nil)
	}
}

// snapshot takes the account of a room with that many held visitors into the memory of p. It returns false if it has
// not changed since the newest snapshot.
func (a *account) snapshot(now fleettime.Mono, held int, p *wire.RoomPast) bool {
	c := &a.ceiling
	more := a.likely(held) + 2*(c.stamped-c.at)
	if a.edge.snapshots.last {
		more = 0
	}
	if c.known && !c.stale && c.most-c.stamped == more && c.life == a.life.full {
		return false
	}
	c.nextMost, c.nextLife, c.pending = c.stamped+more, a.life.full, true
	c.most, c.life = min(c.most, c.nextMost), min(c.life, c.nextLife)
	c.at, c.known, c.stale = c.stamped, true, false
	was, k := &p.Report, &a.permits
	*p = wire.RoomPast{More: more, Life: a.life.full, Report: wire.RoomReport{
		Room: a.settings.ID, Permits: wire.Permits{Sessions: k.sessions.Reported(), Rate: k.rate.Reported()},
		Spent: k.spent, RateIdle: k.rate.idle(now), RateOwed: k.past.owed(now),
		RateUsed: k.rate.ages(now, was.RateUsed[:0]), Renewed: k.renewed, RenewCeil: k.renewCeil,
		Sessions: a.sessions.report(was.Sessions[:0]), FirstMove: a.moves.first + uint64(len(a.moves.list)),
		Ends: a.ended.list(was.Ends[:0], wire.MaxEnds), Stays: a.stays.list(was.Stays[:0]), Passes: a.passes.Tell(a.edge.up.seen),
		Admitted: a.tally.admitted, Entered: a.tally.entered, Outcomes: a.tally.outcomes.Outcomes(),
		Counts: a.tally.all(&a.edge.cfg, a.settings.ID, was.Counts[:0]),
	}}
	return true
}

// tally counts visitors over the life of the process.
type tally struct {
	outcomes estimate.OutcomeCounter
	admitted uint64
	entered  uint64 // of those, visitors that waited
	counts   [history.NumCounts]uint64
}

// admit counts the visitor of d, which has just been admitted.
func (c *tally) admit(d *Decision) {
	c.admitted++
	counts := history.Counts(c.counts[:])
	forecast, actual, ok := d.Outcome()
	if ok {
		c.outcomes.Add(forecast, actual)
	}
	if t := &d.Ticket; t.Waited() {
		c.entered++
		counts.AddWait(max(0, (fleettime.Time(t.Admitted)*1000).Sub(t.Joined)), forecast)
	}
	counts.AddStay(-1, 0)
}

// stay counts the age of a session that is renewed. Its ticket was last stamped a ticket's life before its end, or at
// the admission.
func (c *tally) stay(t *ticket.Ticket, from, until, life uint32) {
	age := func(until uint32) time.Duration {
		return time.Duration(max(0, int64(until)-int64(life)-1-int64(t.Admitted))) * time.Second
	}
	history.Counts(c.counts[:]).AddStay(age(from), age(until))
}

// all returns the counts of a room with those of the shell.
func (c *tally) all(cfg *Config, id room.ID, to history.Counts) history.Counts {
	to = append(to, c.counts[:]...)
	if cfg.Traffic != nil {
		cfg.Traffic(id, to)
	}
	return to.Trim()
}
