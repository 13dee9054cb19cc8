package admission

import (
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/history"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// releases reports whether unused passes of an operator are here.
func (r *roomState) releases(now fleettime.Mono) bool {
	return r.queuedAll() && r.passes.Unused() > 0 && r.edge.up.check(now)
}

// holdNearTurn decides about a place behind the cutoff: it is held if its turn may be near. It returns soon for a
// visitor that was shown nothing yet: it is answered first, and held next time.
func holdNearTurn(view *wire.View, turn fleettime.Time, d *Decision) (soon bool) {
	t := &d.Ticket
	if near := view != nil && t.Flags&ticket.Returned != 0 && turn <= view.Park; !near || t.Ahead|t.High == 0 {
		return near
	}
	d.Verdict = Hold
	return false
}

// inside serves a visitor with the ticket of a session. Otherwise the decision is empty but for Fresh, which is Kept
// for a place.
func (r *roomState) inside(m moment, t *ticket.Ticket) Decision {
	end := r.ended.of(t)
	home := t.Home
	if end == wire.Moved {
		home = ticket.Nobody // its permit is elsewhere: nobody waits for us to forget it
	}
	switch {
	case t.ID == 0:
		return Decision{Fresh: Newcomer}
	case t.Epoch != r.Epoch:
		return Decision{Fresh: Void}
	case end == wire.Left:
		return Decision{Fresh: Gone}
	case t.Valid(r.edge.expiryTime(m, home)):
		return r.serve(m, *t)
	case r.sessionExpiry(m, t.ID) != 0 && r.tickets.kept(m.time, t, r.life.full):
		return r.repeat(m, *t)
	case t.IsAdmitted() || r.tickets.used(t.ID): // also a place that became a session
		return Decision{Fresh: Expired}
	case r.lapsed(m.time, t):
		return Decision{Fresh: Lost}
	}
	return Decision{}
}

// arrive decides about one request. It admits a new visitor only with may; see Engine.Arrive, Engine.Return and
// Engine.Join.
func (r *roomState) arrive(m moment, t, place ticket.Ticket, may bool) Decision {
	inside := r.inside(m, &t)
	if inside.Enters() {
		return inside
	}
	fresh := inside.Fresh
	if fresh != Kept && place.ID != 0 {
		return r.arrive(m, place, ticket.Ticket{}, may)
	}
	if r.Shut == Rejected && fresh != Kept && r.shut(m) == Rejected {
		d := Decision{Reason: Rejected, Fresh: fresh, Ticket: t} // no place is given or taken
		r.position(m.time, &d)
		d.Ticket = t
		return d
	}
	// Before fleet time is known there is nothing to stamp a place with, and nothing to count a check-in by.
	d := Decision{Fresh: fresh, Reseal: m.synced()}
	switch {
	case fresh == Elsewhere:
		own, admitted := r.derive(m, &t)
		if admitted.Enters() {
			return admitted
		}
		t = own
	case fresh != Kept:
		t = r.newTicket(m, t.Network)
	case m.synced():
		r.updateSince(&t)
		r.dirty = r.wakes(m, &t) || r.dirty
		d.Counted = r.queue.checkIn(r.edge.countAt(m.time), &t, placeIn(r.draw, &t))
	}
	if fresh == Expired || fresh == Lost {
		r.counts[history.Returning]++
	}
	d.Ticket = t
	r.decide(m, &d, may)
	if d.Verdict == Queue && fresh != Kept && m.synced() {
		r.queue.enqueued(m.time, d.Ticket.Joined, fresh == Newcomer && may) // robots are not expected to return
	}
	return d
}

// waits reports whether t is a place in the queue; see Engine.Waits.
func (r *roomState) waits(now fleettime.Mono, t *ticket.Ticket) bool {
	if r.gone || t.ID == 0 || t.Epoch != r.Epoch || t.IsAdmitted() {
		return false
	}
	m := r.edge.at(now)
	r.updateSince(t)
	return r.ended.of(t) != wire.Left && !r.tickets.used(t.ID) && !r.lapsed(m.time, t)
}

// stopped returns why the edge admits nobody to the room, or None: first by operators and events, except for a release,
// then by the edge itself.
func (r *roomState) stopped(m moment) Reason {
	if shut := r.shut(m); shut != None && !r.releases(m.now) {
		return shut
	}
	if r.paused {
		return OriginDown
	}
	return r.edge.outage(m, r.life, r.edge.up.check(m.now))
}

// decide sets the verdict for a visitor without a session. It admits or holds only with may.
func (r *roomState) decide(m moment, d *Decision, may bool) {
	t := &d.Ticket
	p := &r.edge.cfg.Params
	soon, turn := false, r.turn(r.view, t)
	why := r.stopped(m)
	switch {
	case (why == Unsure || why == Isolated) && r.edge.Isolated(m.now) && r.decideAlone(m, d, may):
		if d.Verdict == Admit {
			return
		}
	case why != None:
		if d.Reason = why; why == QueuedAll && r.edge.up.check(m.now) {
			// hold from then on
			soon = holdNearTurn(r.view, turn, d) || t.Flags&ticket.Returned == 0 && r.view != nil && turn <= r.view.Park
		}
	case turn > r.upTo(r.view):
		d.Reason = Behind
		soon = holdNearTurn(r.view, turn, d)
	case !may:
		d.Reason = FirstTouch
	default:
		r.permits.demand.tries++
		if !r.held.before(turn, t.ID) && r.charge(m, d) {
			return
		}
		d.Verdict, d.Reason = Hold, Full
	}
	if d.Verdict == Hold && r.held.full(t.ID, r.edge.cfg.Limits.Held) {
		d.Verdict, d.Reason = Queue, Crowded
	}
	shown := *t
	r.position(m.time, d)
	if soon {
		d.Retry = p.Nearest / 2
	}
	if d.Verdict == Hold {
		*t = shown // nobody sees the numbers of now: the ticket keeps those that were shown
		switch {
		case t.Flags&ticket.Returned == 0:
			d.Retry = p.Knock
		case !d.Known || d.Wait <= p.Hold/2:
			d.Retry = p.Hold
		default: // the visitor is to see newer numbers as soon as without a hold
			d.Retry = min(d.Retry, p.Hold)
		}
	}
}

// charge admits the visitor of d if there is an unspent permit of T and one of R. All counts of the session change
// in this one step.
func (r *roomState) charge(m moment, d *Decision) bool {
	if r.gone || r.permits.credit() <= uint64(len(r.movers)) || r.permits.rate.idle(m.now) == 0 {
		return false
	}
	if r.queuedAll() && r.passes.Unused() == 0 {
		return false
	}
	t := &d.Ticket
	second := m.second()
	until := m.stampTime() + 1 + r.life.first()
	if r.life.full == 0 || !r.mayStamp(m) || !r.sessions.issue(until) {
		return false
	}
	r.permits.spent++
	r.permits.rate.use(m.now)
	if r.queuedAll() {
		r.passes.Spent++
	}
	r.stamped()
	r.admitted++
	if t.Waited() {
		r.entered++
	}
	r.queue.enters(m.time, t)
	r.asleep.drop(t.ID)
	if _, _, lots := t.Quartiles(); lots || t.Rank() != 0 || (r.view != nil && r.view.Changed > t.Joined) {
		t.Forecast = 0 // no forecast of a single time, or one under other limits
	}
	t.Admitted, t.Until, t.Home, t.Seen = second, until, r.edge.home, second
	t.BindSession()
	descend(r.edge.cfg.Rand, t)
	r.moves.add(wire.Move{ID: t.ID, Until: until})
	r.tickets.remember(second, t, until)
	r.dirty = true
	d.Verdict, d.Reason, d.Reseal = Admit, Slot, true
	counts := history.Counts(r.counts[:])
	forecast, actual, ok := d.Outcome()
	if ok {
		r.outcomes.Add(forecast, actual)
	}
	if t.Waited() {
		counts.AddWait(max(0, (fleettime.Time(second)*1000).Sub(t.Joined)), forecast)
	}
	counts.AddStay(-1, 0)
	if r.permits.low() || r.queuedAll() {
		r.edge.reportSoon(m.now) // refill before empty
	}
	return true
}

// hold keeps a request; see Engine.Hold.
func (r *roomState) hold(now fleettime.Mono, v *Visit) {
	v.turn = r.turn(r.view, &v.Ticket)
	r.held.add(v)
	r.dirty = true
	r.edge.reportSoon(now)
}

// unhold ends the hold of v. It returns false if v is not held.
func (r *roomState) unhold(v *Visit) bool {
	if r == nil || !r.held.remove(v) {
		return false
	}
	r.dirty = true
	return true
}

// release decides about called visitors that are held; see Engine.Release.
func (r *roomState) release(m moment, out []*Visit) []*Visit {
	for len(r.held.visits) > 0 && r.stopped(m) == None {
		v := r.held.visits[0]
		if v.turn > r.upTo(r.view) {
			break
		}
		d := Decision{Ticket: v.Ticket}
		if r.sessionExpiry(m, v.Ticket.ID) != 0 {
			// Another request with this ticket was admitted during the hold.
			if d = r.repeat(m, v.Ticket); d.Fresh != Kept {
				d.Reason, d.Reseal, d.Ticket = GaveUp, true, r.newTicket(m, v.Ticket.Network)
				r.position(m.time, &d)
			}
		} else if !r.charge(m, &d) {
			break
		}
		r.unhold(v)
		v.Decision = d
		out = append(out, v)
	}
	return out
}

// giveUp makes the visitor of v, which is no longer held, wait on.
func (r *roomState) giveUp(m moment, v *Visit) {
	d := Decision{Verdict: Queue, Reason: GaveUp, Reseal: true, Ticket: v.Ticket}
	back := d.Ticket.Flags&ticket.Returned != 0
	if back {
		r.queue.checkIn(r.edge.countAt(m.time), &d.Ticket, placeIn(r.draw, &d.Ticket))
	}
	r.position(m.time, &d)
	if !back {
		r.queue.enqueued(m.time, d.Ticket.Joined, v.Brought.ID == 0)
	}
	if turn := r.turn(r.view, &d.Ticket); turn <= r.upTo(r.view) || r.view != nil && r.view.Park >= turn {
		d.Retry = r.edge.cfg.Params.Nearest / 2 // the turn is near: ask again at once
	}
	v.Decision = d
}

// abandon counts the visitor of v, which is no longer held and has disconnected, by the ticket that it brought.
func (r *roomState) abandon(now fleettime.Mono, v *Visit) {
	was, t := &v.Brought, &v.Ticket
	v.Decision = Decision{Verdict: Queue, Reason: GaveUp, Ticket: *was}
	if r.queue.moved(was, t) {
		m := r.edge.at(now)
		r.queue.undo(m.time, was, t)
	}
}
