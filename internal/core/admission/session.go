package admission

import (
	"time"

	"vestibule/internal/core/history"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// sessionExpiry returns the expiry second of the newest stamp of the ticket at this edge if the session is valid, or 0.
func (r *roomState) sessionExpiry(m moment, id uint64) uint32 {
	until := r.tickets.recent.Get(id).until
	if int64(until)*1000 <= int64(r.edge.expiryTime(m, r.edge.home)) {
		return 0
	}
	return until
}

// repeat answers a waiting ticket whose visitor has a session: the response with the session was lost, or this is
// another request of the same page. It is charged once, and can be renewed like any session. The decision is empty
// but for Fresh like that of serve.
func (r *roomState) repeat(m moment, t ticket.Ticket) Decision {
	s := r.tickets.recent.Get(t.ID)
	if elsewhere(&t, s.net) {
		return Decision{Fresh: Elsewhere}
	}
	t.Until, t.Home, t.Net = s.until, r.edge.home, s.net
	if t.Admitted == 0 {
		t.Admitted = m.second()
		if r.life.fixed > 0 {
			t.Admitted = s.until - 1 - r.life.fixed // the place can be presented again and again
		}
	}
	if r.copyOf(m, &t) {
		return Decision{Fresh: Copied}
	}
	d := r.renew(m, t)
	if d.Reason = Repeated; !d.Reseal {
		d.Reseal = true
		d.Ticket.Seen = m.second() // of this version
		descend(r.edge.cfg.Rand, &d.Ticket)
	}
	return d
}

// derive returns a new place for a client that presents t in another network than that of its session, or admits a
// client that was admitted by that place. The place is the same at every edge, however often t is presented, so
// that many requests are one visitor. Once used or left, it changes.
func (r *roomState) derive(m moment, t *ticket.Ticket) (own ticket.Ticket, inside Decision) {
	anew := r.newTicket(m, t.Network)
	own = anew
	own.ID = ticket.Derive(t.ID, t.Network)
	if r.sessionExpiry(m, own.ID) != 0 && r.tickets.kept(m.time, &own, r.life.full) {
		inside = r.repeat(m, own)
	}
	if r.tickets.used(own.ID) || r.ended.of(&own) == wire.Left {
		return anew, inside
	}
	return own, inside
}

// serve answers a visitor with a valid session, and renews it if due and allowed. The decision is empty but for
// Fresh if the ticket is a copy that must not be renewed, or is presented in another network than that of its
// session.
func (r *roomState) serve(m moment, t ticket.Ticket) Decision {
	if elsewhere(&t, t.Net) {
		return Decision{Fresh: Elsewhere}
	}
	if t.Home != ticket.Nobody && r.life.due(m, &t) && r.copyOf(m, &t) {
		return Decision{Fresh: Copied}
	}
	return r.renew(m, t)
}

// copyOf reports whether t, a version of a session due for renewal, is a copy while another client continues.
func (r *roomState) copyOf(m moment, t *ticket.Ticket) bool {
	isCopy, found := r.tickets.show(m.second(), t, r.life.full)
	if found {
		r.dirty = true
		r.edge.reportSoon(m.now)
	}
	return isCopy
}

// renew serves a session, and renews it if due and allowed.
func (r *roomState) renew(m moment, t ticket.Ticket) Decision {
	d := Decision{Verdict: Serve, Reason: Session, Ticket: t}
	if t.Home == ticket.Nobody {
		r.prolong(m, &d)
		return d
	}
	if !r.life.due(m, &t) {
		return d
	}
	until := r.life.until(m, &t)
	if !r.edge.owns(t.Home) {
		if t.Home != r.edge.home && r.life.firm(m) {
			r.moveIn(m, until, &d)
		}
		return d
	}
	if r.ended.of(&t) == wire.Moved {
		return d
	}
	from := t.Until
	known := r.tickets.recent.Get(t.ID).until
	if known > from {
		// The same old ticket again: its newest stamp is already counted.
		from = known
	}
	due := until >= from+wire.RenewAfter(r.life.full)
	d.Unrenewed = due && !r.mayRenew(m)
	if due && !d.Unrenewed {
		if r.sessions.at(int64(from)) == nil || r.sessions.at(int64(until)) == nil {
			return d
		}
		if known < from && !r.edge.up.check(m.now) {
			r.alone.guests++
		}
		r.permits.renewed++
		r.stamped()
		r.countStay(&t, from, until)
		r.sessions.consume(from)
		r.sessions.issue(until)
		r.moves.add(wire.Move{ID: t.ID, From: from, Until: until, Shown: version(&t)})
		r.tickets.remember(m.second(), &t, until)
		if int64(t.Seen)/60 != m.time.Second()/60 {
			r.queue.arrive(m.time)
		}
		r.dirty = true
		from = until
		if r.permits.nearCeiling() {
			r.edge.reportSoon(m.now)
		}
	}
	if from == t.Until {
		return d
	}
	d.Ticket.Until = from
	d.Ticket.Seen = m.second()
	d.Reseal = true
	descend(r.edge.cfg.Rand, &d.Ticket)
	return d
}

// moveIn migrates the session of another data centre, as soon as a permit is free, with a ticket until second
// until. The session is then counted here, and there until the old ticket expires or its edges know not to renew
// it. So it is counted twice for a while and never zero times: migration cannot exceed the limit in any place.
func (r *roomState) moveIn(m moment, until uint32, d *Decision) {
	t := &d.Ticket
	home := r.edge.home
	if known := r.sessionExpiry(m, t.ID); known >= t.Until {
		// A repeated request: it migrated just before, and the response was lost or is on its way.
		t.Home, t.Until, t.Seen = home, known, m.second()
		d.Reseal = true
		descend(r.edge.cfg.Rand, t)
		return
	}
	if !r.edge.up.check(m.now) || r.gone || r.ended.covers(t.ID, home, until) != 0 {
		return
	}
	if r.permits.credit() == 0 || !r.mayStamp(m) || !r.sessions.issue(until) {
		if _, ok := r.movers[t.ID]; !ok && len(r.movers) < maxMovers {
			if r.movers == nil {
				r.movers = movers{}
			}
			r.dirty = true
			r.edge.reportSoon(m.now)
		} else if !ok {
			return
		}
		r.movers[t.ID] = mover{m.now, t.Until}
		return
	}
	r.permits.spent++
	r.stamped()
	delete(r.movers, t.ID)
	r.moves.add(wire.Move{ID: t.ID, Until: until})
	r.tickets.remember(m.second(), t, until)
	end := wire.End{ID: t.ID, Home: uint32(t.Home), Until: t.Until, Kind: wire.Moved}
	r.ended.note(end) // for the next regional: it matters if the visitor leaves soon
	r.ends.Add(end, 0)
	t.Home, t.Until, t.Seen = home, until, m.second()
	r.dirty = true
	d.Reseal = true
	descend(r.edge.cfg.Rand, t)
	if r.permits.low() {
		r.edge.reportSoon(m.now)
	}
}

// mayRenew reports whether one more renewal may be stamped.
func (r *roomState) mayRenew(m moment) bool {
	return r.permits.mayRenew(r.edge.up.check(m.now), r.Cap) && r.mayStamp(m)
}

// live renews the session of a visitor that is active on a connection; see Engine.Live. No version of the ticket is
// shown for it: the visitor keeps the one from before, and may present it as long as the session is valid here.
func (r *roomState) live(m moment, t ticket.Ticket) ticket.Ticket {
	if t.Epoch != r.Epoch || r.ended.of(&t) == wire.Left {
		return t
	}
	if known := r.sessionExpiry(m, t.ID); known > t.Until {
		t.Until, t.Home = known, r.edge.home // by another request of the visitor
	}
	if !t.Valid(r.edge.expiryTime(m, t.Home)) {
		return t
	}
	t.Stamp = 0
	t = r.renew(m, t).Ticket
	if s := r.tickets.recent.Get(t.ID); s.until > over {
		s.live = true
		r.tickets.recent.Put(t.ID, s)
	}
	return t
}

// countStay counts the age of a session that is renewed. Its ticket was last stamped a ticket's life before its end,
// or at the admission.
func (r *roomState) countStay(t *ticket.Ticket, from, until uint32) {
	age := func(until uint32) time.Duration {
		return time.Duration(max(0, int64(until)-int64(r.life.full)-1-int64(t.Admitted))) * time.Second
	}
	history.Counts(r.counts[:]).AddStay(age(from), age(until))
}

// quit revokes the session or place of ticket t; see Engine.Quit.
func (r *roomState) quit(m moment, t ticket.Ticket) bool {
	if known := r.sessionExpiry(m, t.ID); known > t.Until && (t.Until == 0 || t.Home == r.edge.home) {
		t.Until, t.Home = known, r.edge.home
	}
	if !t.Valid(m.time) {
		return r.quitLine(m, &t)
	}
	if r.ended.of(&t) == wire.Left || r.ends.Len() == wire.MaxEnds {
		return false
	}
	end := wire.End{ID: t.ID, Home: uint32(t.Home), Until: t.Until, Shown: t.Until, Kind: wire.Left}
	if t.Home == ticket.Nobody {
		// No ledger counts it, so nobody needs a report. Rejecting it here is enough.
		if len(r.ended.marks) < 2*wire.MaxEnds {
			r.ended.note(end)
		}
		return true
	}
	r.ended.note(end)
	r.ends.Add(end, 0)
	r.ceiling.stale = true
	r.tickets.recent.Put(t.ID, stamped{until: over})
	r.dirty = true
	r.edge.reportSoon(m.now)
	return true
}

// quitLine removes a place from the queue.
func (r *roomState) quitLine(m moment, t *ticket.Ticket) bool {
	r.queue.advanceBooks(m.time)
	r.queue.newest(t)
	r.dirty = r.asleep.drop(t.ID) || r.dirty
	if t.IsAdmitted() || t.Flags&ticket.Returned == 0 || r.ended.covers(t.ID, ticket.Nobody, t.Seen) != 0 {
		return false // not counted, or not any more
	}
	r.queue.uncount(t)
	if len(r.ended.marks) < 2*wire.MaxEnds {
		r.ended.note(wire.End{
			ID: t.ID, Home: uint32(ticket.Nobody), Until: m.second() + windowsKept*windowLen, Kind: wire.Left,
		})
	}
	r.dirty = true
	return true
}
