package admission

import (
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/history"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

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

// inside serves a visitor with the ticket of a session; see account.inside.
func (r *roomState) inside(m moment, t *ticket.Ticket) Decision {
	d := r.account.inside(m, t)
	if d.Fresh == Kept && !d.Enters() && r.line.lapsed(m.time, t) {
		d.Fresh = Lost
	}
	return d
}

// arrive decides about one request. It admits a new visitor only with may; see Engine.Arrive, Engine.Return and
// Engine.Join.
func (r *roomState) arrive(m moment, t, place ticket.Ticket, may bool) Decision {
	inside := r.inside(m, &t)
	if inside.Enters() {
		return inside
	}
	fresh := inside.Fresh
	if fresh == Underway {
		return r.underway(t)
	}
	if fresh != Kept && place.ID != 0 {
		return r.arrive(m, place, ticket.Ticket{}, may)
	}
	if r.settings.Shut == Rejected && fresh != Kept && r.settings.shut(m) == Rejected {
		d := Decision{Reason: Rejected, Fresh: fresh, Ticket: t} // no place is given or taken
		r.line.position(m.time, &d)
		d.Ticket = t
		return d
	}
	// Before fleet time is known there is nothing to stamp a place with, and nothing to count a check-in by.
	d := Decision{Fresh: fresh, Reseal: m.synced()}
	brought := versionOfPlace(&t)
	switch {
	case fresh == Elsewhere:
		own, admitted := r.derive(m, &t)
		if admitted.Enters() {
			return admitted
		}
		t = own
	case fresh != Kept:
		t = r.line.newTicket(m, t.Network)
	case m.synced():
		r.line.updateSince(&t)
		r.dirty = r.line.wakes(m, &t) || r.dirty
		d.Counted = r.line.queue.checkIn(r.edge.clock.countAt(m.time), &t, placeIn(r.line.draw, &t))
	}
	if fresh == Expired || fresh == Lost {
		r.account.tally.counts[history.Returning]++
	}
	d.Ticket, d.brought = t, brought
	r.decide(m, &d, may)
	if d.Verdict == Queue && fresh != Kept && m.synced() {
		r.line.queue.enqueued(m.time, d.Ticket.Joined, fresh == Newcomer && may) // robots are not expected to return
	}
	return d
}

// underway answers a place whose session is on its way to the visitor, or to another browser with a copy of the place.
func (r *roomState) underway(t ticket.Ticket) Decision {
	return Decision{Reason: Repeated, Fresh: Underway, Ticket: t, Retry: r.edge.cfg.Params.Nearest}
}

// derive returns a new place for a client that presents t in another network than that of its session, or admits a
// client that was admitted by that place. The place is the same at every edge, however often t is presented, so
// that many requests are one visitor. Once used or left, it changes.
func (r *roomState) derive(m moment, t *ticket.Ticket) (own ticket.Ticket, inside Decision) {
	anew := r.line.newTicket(m, t.Network)
	own = anew
	own.ID = ticket.Derive(t.ID, t.Network)
	a := &r.account
	if a.sessionExpiry(m, own.ID) != 0 && a.tickets.kept(m.time, &own, a.life.full) {
		inside = a.repeat(m, own)
	}
	if a.tickets.used(own.ID) || a.ended.of(&own) == wire.Left {
		return anew, inside
	}
	return own, inside
}

// waits reports whether t is a place in the queue; see Engine.Waits.
func (r *roomState) waits(now fleettime.Mono, t *ticket.Ticket) bool {
	if r.settings.gone || t.ID == 0 || t.Epoch != r.settings.Epoch || t.IsAdmitted() {
		return false
	}
	m := r.edge.clock.at(now)
	r.line.updateSince(t)
	return r.account.ended.of(t) != wire.Left && !r.account.tickets.used(t.ID) && !r.line.lapsed(m.time, t)
}

// stopped returns why the edge admits nobody to the room, or None: first by operators and events, except for a release,
// then by the edge itself.
func (r *roomState) stopped(m moment) Reason {
	if shut := r.settings.shut(m); shut != None &&
		(shut != QueuedAll || r.account.passes.Unused() == 0 || !r.edge.up.check(m.now)) {
		return shut
	}
	return r.outage(m, r.edge.up.check(m.now))
}

// outage returns why the edge admits nobody to the room even if its operators would, or None.
func (r *roomState) outage(m moment, leased bool) Reason {
	switch {
	case r.paused:
		return OriginDown
	case !r.account.life.firm(m):
		return Unsure
	case !leased:
		return Isolated
	case r.edge.up.standing != wire.Listed:
		return Drains
	}
	return None
}

// decide sets the verdict for a visitor without a session. It admits or holds only with may.
func (r *roomState) decide(m moment, d *Decision, may bool) {
	t := &d.Ticket
	p := &r.edge.cfg.Params
	soon, turn := false, r.settings.turn(r.line.view, t)
	why := r.stopped(m)
	switch {
	case (why == Unsure || why == Isolated) && r.edge.isolated(m.now) && r.decideAlone(m, d, may):
		if d.Verdict == Admit {
			return
		}
	case why != None:
		if d.Reason = why; why == QueuedAll && r.edge.up.check(m.now) {
			// hold from then on
			view := r.line.view
			soon = holdNearTurn(view, turn, d) || t.Flags&ticket.Returned == 0 && view != nil && turn <= view.Park
		}
	case turn > r.settings.upTo(r.line.view):
		d.Reason = Behind
		soon = holdNearTurn(r.line.view, turn, d)
	case !may:
		d.Reason = FirstTouch
	default:
		r.account.permits.demand.tries++
		if !r.line.held.before(turn, t.ID) && r.charge(m, d) {
			return
		}
		d.Verdict, d.Reason = Hold, Full
	}
	if d.Verdict == Hold && r.line.held.full(t.ID, r.edge.cfg.Limits.Held) {
		d.Verdict, d.Reason = Queue, Crowded
	}
	shown := *t
	r.line.position(m.time, d)
	if soon {
		d.Retry = p.Nearest / 2
	}
	if d.Verdict == Hold {
		*t = shown // the new numbers are not shown, so the ticket keeps the old ones
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

// charge admits the visitor of d if there is an unspent permit of T and one of R.
func (r *roomState) charge(m moment, d *Decision) bool {
	t, was := &d.Ticket, d.Ticket
	if !r.account.charge(m, t) {
		return false
	}
	r.account.tickets.admitted(m.second(), t.ID, d.brought)
	r.line.queue.enters(m.time, &was)
	r.line.asleep.drop(t.ID)
	if _, _, lots := was.Quartiles(); lots || was.Rank() != 0 || r.line.view != nil && r.line.view.Changed > t.Joined {
		t.Forecast = 0 // no forecast of a single time, or one under other limits
	}
	d.Verdict, d.Reason, d.Reseal = Admit, Permit, true
	r.account.tally.admit(d)
	return true
}

// hold keeps a request; see Rooms.Hold.
func (r *roomState) hold(now fleettime.Mono, v *Visit) {
	v.turn = r.settings.turn(r.line.view, &v.Ticket)
	r.line.held.add(v)
	r.dirty = true
	r.edge.reportSoon(now)
}

// unhold ends the hold of v. It returns false if v is not held.
func (r *roomState) unhold(v *Visit) bool {
	if r == nil || !r.line.held.remove(v) {
		return false
	}
	r.dirty = true
	return true
}

// release decides about called visitors that are held; see Rooms.Release.
func (r *roomState) release(m moment, out []*Visit) []*Visit {
	for len(r.line.held.visits) > 0 && r.stopped(m) == None {
		v := r.line.held.visits[0]
		if v.turn > r.settings.upTo(r.line.view) {
			break
		}
		d := Decision{Ticket: v.Ticket, brought: versionOfPlace(&v.Brought)}
		if r.account.sessionExpiry(m, v.Ticket.ID) != 0 {
			// Another request with this ticket was admitted during the hold.
			was := v.Ticket
			was.Seen, was.Answer = v.Brought.Seen, v.Brought.Answer
			if d = r.account.again(m, was); d.Fresh == Underway {
				d = r.underway(v.Brought)
			} else if d.Fresh != Kept {
				d.Reason, d.Reseal, d.Ticket = GaveUp, true, r.line.newTicket(m, v.Ticket.Network)
				r.line.position(m.time, &d)
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
		r.line.queue.checkIn(r.edge.clock.countAt(m.time), &d.Ticket, placeIn(r.line.draw, &d.Ticket))
	}
	r.line.position(m.time, &d)
	if !back {
		r.line.queue.enqueued(m.time, d.Ticket.Joined, v.Brought.ID == 0)
	}
	view := r.line.view
	if turn := r.settings.turn(view, &d.Ticket); turn <= r.settings.upTo(view) || view != nil && view.Park >= turn {
		d.Retry = r.edge.cfg.Params.Nearest / 2 // the turn is near: ask again at once
	}
	v.Decision = d
}

// abandon counts the visitor of v, which is no longer held and has disconnected, by the ticket that it brought.
func (r *roomState) abandon(now fleettime.Mono, v *Visit) {
	was, t := &v.Brought, &v.Ticket
	v.Decision = Decision{Verdict: Queue, Reason: GaveUp, Ticket: *was}
	if r.line.queue.moved(was, t) {
		m := r.edge.clock.at(now)
		r.line.queue.undo(m.time, was, t)
	}
}

// quit revokes the session or place of ticket t; see Engine.Quit.
func (r *roomState) quit(m moment, t ticket.Ticket) bool {
	home := r.edge.home
	if known := r.account.sessionExpiry(m, t.ID); known > t.Until && (t.Until == 0 || t.Home == home) {
		t.Until, t.Home = known, home
	}
	if t.Valid(m.time) {
		return r.account.quit(m, &t)
	}
	q := &r.line.queue
	q.advanceBooks(m.time)
	q.newest(&t)
	r.dirty = r.line.asleep.drop(t.ID) || r.dirty
	if t.IsAdmitted() || t.Flags&ticket.Returned == 0 ||
		r.account.ended.covers(t.ID, ticket.Nobody, t.Seen) != 0 {
		return false // not counted, or not any more
	}
	q.uncount(&t)
	r.account.ended.reject(wire.End{
		ID: t.ID, Home: uint32(ticket.Nobody), Until: m.second() + windowsKept*windowLen, Kind: wire.Left,
	})
	r.dirty = true
	return true
}
