package admission

import (
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// inside serves a visitor with the ticket of a session. Otherwise the decision is empty but for Fresh, which is Kept
// for a place.
func (a *account) inside(m moment, t *ticket.Ticket) Decision {
	end := a.ended.of(t)
	home := t.Home
	if end == wire.Moved || t.Home == a.edge.home && a.stays.marks(t.ID, t.Until) {
		home = ticket.Nobody // its permit is elsewhere: nobody waits for us to forget it
	}
	switch {
	case t.ID == 0:
		return Decision{Fresh: Newcomer}
	case t.Epoch != a.settings.Epoch:
		return Decision{Fresh: Void}
	case end == wire.Left:
		return Decision{Fresh: Gone}
	case a.away(m, t):
		d := a.serve(m, *t)
		if d.Enters() && !d.Reseal { // so that every data centre serves it
			d.Ticket.Seen, d.Reseal = m.second(), true
			descend(a.edge.cfg.Rand, &d.Ticket)
		}
		return d
	case t.Valid(a.edge.expiryTime(m, home)):
		return a.serve(m, *t)
	case a.sessionExpiry(m, t.ID) != 0 && a.tickets.kept(m.time, t, a.life.full):
		return a.again(m, *t)
	case t.IsAdmitted() || a.tickets.used(t.ID): // also a place that became a session
		return Decision{Fresh: Expired}
	}
	return Decision{}
}

// sessionExpiry returns the expiry second of the newest stamp of the ticket at this edge if the session is valid, or 0.
func (a *account) sessionExpiry(m moment, id uint64) uint32 {
	until := a.tickets.recent.Get(id).until
	if int64(until)*1000 <= int64(a.edge.expiryTime(m, a.edge.home)) {
		return 0
	}
	return until
}

// again answers an expired ticket, or a place, of a visitor with a session. The decision is empty but for Fresh like
// that of serve, and for a place that is to ask again.
func (a *account) again(m moment, t ticket.Ticket) Decision {
	if !t.IsAdmitted() && !elsewhere(&t, a.tickets.recent.Get(t.ID).net) {
		if fresh := a.tickets.enters(m.second(), &t); fresh != Kept {
			return Decision{Fresh: fresh}
		}
	}
	return a.repeat(m, t)
}

// repeat answers a waiting ticket whose visitor has a session: the response with the session was lost, or this is
// another request of the same page. It is charged once, and can be renewed like any session. The decision is empty
// but for Fresh like that of serve.
func (a *account) repeat(m moment, t ticket.Ticket) Decision {
	s := a.tickets.recent.Get(t.ID)
	if t.IsAdmitted() && s.since == 0 { // it came from another data centre
		s.net = t.Net
	}
	if elsewhere(&t, s.net) {
		return Decision{Fresh: Elsewhere}
	}
	t.Until, t.Home, t.Net = s.until, a.edge.home, s.net
	if t.Admitted != 0 {
		t.Until = a.life.bound(&t, t.Until)
	} else {
		t.Admitted = m.second()
		if a.life.fixed > 0 {
			t.Admitted = s.until - 1 - a.life.fixed // the place can be presented again and again
		}
	}
	if a.copyOf(m, &t) {
		return Decision{Fresh: Copied}
	}
	d := a.renew(m, t)
	if d.Reason = Repeated; !d.Reseal {
		d.Reseal = true
		d.Ticket.Seen = m.second() // of this version
		descend(a.edge.cfg.Rand, &d.Ticket)
	}
	return d
}

// serve answers a visitor with a valid session, and renews it if due and allowed. The decision is empty but for
// Fresh if the ticket is a copy that must not be renewed, or is presented in another network than that of its
// session.
func (a *account) serve(m moment, t ticket.Ticket) Decision {
	if elsewhere(&t, t.Net) {
		return Decision{Fresh: Elsewhere}
	}
	if t.Home != ticket.Nobody {
		if t.Parent == 0 {
			a.tickets.receive(m.second(), t.ID)
		}
		if a.life.due(m, &t) {
			if a.copyOf(m, &t) {
				return Decision{Fresh: Copied}
			}
		} else if !a.tickets.continues(m.second(), &t) {
			return Decision{Fresh: Copied}
		}
	}
	return a.renew(m, t)
}

// copyOf reports whether t, a version of a session due for renewal, is a copy while another client continues.
func (a *account) copyOf(m moment, t *ticket.Ticket) bool {
	isCopy, found := a.tickets.show(m.second(), t, a.life.full)
	if found {
		a.changed = true
		a.edge.reportSoon(m.now)
	}
	return isCopy
}

// renew serves a session, and renews it if due and allowed.
func (a *account) renew(m moment, t ticket.Ticket) Decision {
	d := Decision{Verdict: Serve, Reason: Session, Ticket: t}
	if t.Home == ticket.Nobody {
		a.prolong(m, &d)
		return d
	}
	if !a.life.due(m, &t) {
		d.Brief = a.life.full == 0 && a.brief(m, &t)
		return d
	}
	until := a.life.until(m, &t)
	came := false
	if !a.edge.owns(t.Home) {
		if t.Home == a.edge.home || !a.life.firm(m) {
			return d
		}
		known := a.sessionExpiry(m, t.ID)
		if came = known >= t.Until; !came {
			a.moveIn(m, until, &d)
			return d
		}
		t.Home, t.Until = a.edge.home, a.life.bound(&t, known)
		d.Ticket = t
	}
	if a.ended.of(&t) == wire.Moved {
		a.ask(m, &d, until)
		return d
	}
	from, known := t.Until, a.tickets.recent.Get(t.ID).until
	if a.stays.marks(t.ID, max(from, known)) {
		a.ask(m, &d, until)
		return d
	}
	if known > from {
		// The same old ticket again: its newest stamp is already counted.
		from = known
	}
	due := until >= from+wire.RenewAfter(a.life.full)
	d.Unrenewed = due && (!a.permits.mayRenew(a.edge.up.check(m.now), a.settings.Cap) ||
		!a.ceiling.may(&a.edge.snapshots, m, a.life.full))
	d.Brief = d.Unrenewed && a.edge.up.check(m.now) && from == t.Until && a.brief(m, &t)
	if due && !d.Unrenewed {
		if a.sessions.at(int64(from)) == nil || a.sessions.at(int64(until)) == nil {
			return d
		}
		if known < from && !a.edge.up.check(m.now) {
			a.alone.guests++
		}
		a.permits.renewed++
		a.ceiling.stamp(&a.edge.snapshots)
		a.tally.stay(&t, from, until, a.life.full)
		a.sessions.consume(from)
		a.sessions.issue(until)
		a.moves.add(wire.Move{ID: t.ID, From: from, Until: until, Shown: version(&t)})
		a.tickets.remember(m.second(), &t, until)
		if int64(t.Seen)/60 != m.time.Second()/60 {
			a.arrivals.add(m.time)
		}
		a.changed = true
		from = until
		if a.permits.nearCeiling() {
			a.edge.reportSoon(m.now)
		}
	}
	if from == t.Until && !came {
		return d
	}
	d.Ticket.Until = from
	d.Ticket.Seen = m.second()
	d.Reseal = true
	descend(a.edge.cfg.Rand, &d.Ticket)
	return d
}

// brief reports whether a session of this edge's data centre ends before its duration unless it is renewed.
func (a *account) brief(m moment, t *ticket.Ticket) bool {
	return t.Home == a.edge.home && !a.settings.NoRenewal && (fleettime.Time(t.Until)*1000).Sub(m.time) < a.settings.Session
}

// moveIn asks for the session of another data centre, which is to get a ticket until second until. If its home does not
// answer, the session takes a free permit: it is then counted here, and there until
// the old ticket expires or its edges know not to renew it. So it is counted twice for a while and never zero times.
func (a *account) moveIn(m moment, until uint32, d *Decision) {
	t := &d.Ticket
	home := a.edge.home
	if !a.edge.up.check(m.now) || a.settings.gone || a.ended.covers(t.ID, home, until) != 0 {
		return
	}
	until = max(until, t.Until) // otherwise the old ticket would outlive the count
	if !a.movers.mayTake(m.now, t.ID, a.askWait()) || a.permits.credit() == 0 || !a.ceiling.may(&a.edge.snapshots, m, a.life.full) || !a.sessions.issue(until) {
		a.ask(m, d, until)
		return
	}
	a.permits.spent++
	a.ceiling.stamp(&a.edge.snapshots)
	a.movers.remove(t.ID)
	a.stays.remove(t.ID)
	a.moves.add(wire.Move{ID: t.ID, Until: until})
	a.tickets.remember(m.second(), t, until)
	end := wire.End{ID: t.ID, Home: uint32(t.Home), Until: t.Until, Kind: wire.Moved}
	a.ended.note(end) // for the next regional: it matters if the visitor leaves soon
	a.ends.Add(end, 0)
	t.Home, t.Until, t.Seen = home, until, m.second()
	a.changed = true
	d.Reseal = true
	descend(a.edge.cfg.Rand, t)
	if a.permits.low() {
		a.edge.reportSoon(m.now)
	}
}

// ask records that the visitor of a session that is counted elsewhere is here: the session is to come here, and to last
// until second until.
func (a *account) ask(m moment, d *Decision, until uint32) {
	t, wait := &d.Ticket, a.askWait()
	fresh, ok := a.movers.add(t.ID, mover{seen: m.now, home: t.Home, shown: t.Until, until: max(until, t.Until)}, wait)
	a.changed = a.changed || ok
	d.Moving = ok && wait > 0
	if fresh {
		a.edge.reportSoon(m.now)
	}
}

// arrived reports whether the session of a ticket, which was asked for, is here.
func (a *account) arrived(m moment, t *ticket.Ticket) bool {
	return a.sessionExpiry(m, t.ID) >= t.Until && !a.stays.marks(t.ID, t.Until)
}

// away reports whether the session of a ticket left this data centre and is counted elsewhere beyond the expiry of the
// ticket: another page, or a copy, is served there. It then sets the home and the end of the session.
func (a *account) away(m moment, t *ticket.Ticket) bool {
	home, until := a.stays.elsewhere(t.ID)
	if until <= t.Until || !t.IsAdmitted() || m.time.Second() >= int64(t.Until+a.life.full) {
		return false
	}
	moved := *t
	moved.Home, moved.Until = home, a.life.bound(t, until)
	if a.ended.of(&moved) == wire.Left || !moved.Valid(a.edge.expiryTime(m, ticket.Nobody)) {
		return false
	}
	*t = moved
	return true
}

// stay applies what the regional says of a session.
func (a *account) stay(s wire.Stay) {
	if ticket.DC(s.Home) != a.edge.home || s.Marked != 0 {
		a.stays.put(s)
		return
	}
	if a.stays.marks(s.ID, s.Until) {
		return // it has left since
	}
	a.stays.remove(s.ID)
	a.movers.remove(s.ID)
	a.changed = true
	if r := a.tickets.recent.Get(s.ID); r.until != over && r.until < s.Until {
		r.until = s.Until
		a.tickets.recent.Put(s.ID, r)
	}
}

// live renews the session of a visitor that is active on a connection; see Engine.Live. No version of the ticket is
// shown for it: the visitor keeps the one from before, and may present it as long as the session is valid here.
func (a *account) live(m moment, t ticket.Ticket) ticket.Ticket {
	was := t
	if t.Epoch != a.settings.Epoch || a.ended.of(&t) == wire.Left || !a.tickets.continues(m.second(), &was) {
		return t
	}
	if known := a.sessionExpiry(m, t.ID); known > t.Until {
		t.Until, t.Home = known, a.edge.home // by another request of the visitor
	}
	if !t.Valid(a.edge.expiryTime(m, t.Home)) {
		return t
	}
	t.Stamp = 0
	t = a.renew(m, t).Ticket
	t.Stamp, t.Parent, t.Root = was.Stamp, was.Parent, was.Root // of the visitor
	if s := a.tickets.recent.Get(t.ID); s.until > over {
		s.live = true
		a.tickets.recent.Put(t.ID, s)
	}
	return t
}

// quit revokes the session of ticket t. It returns false if it is revoked already, or cannot be.
func (a *account) quit(m moment, t *ticket.Ticket) bool {
	if a.ended.of(t) == wire.Left || a.ends.Len() == wire.MaxEnds {
		return false
	}
	end := wire.End{ID: t.ID, Home: uint32(t.Home), Until: t.Until, Shown: t.Until, Kind: wire.Left}
	if t.Home == ticket.Nobody {
		// No ledger counts it, so nobody needs a report. Rejecting it here is enough.
		a.ended.reject(end)
		return true
	}
	a.ended.note(end)
	a.ends.Add(end, 0)
	a.ceiling.stale = true
	a.tickets.recent.Put(t.ID, stamped{until: over})
	a.changed = true
	a.edge.reportSoon(m.now)
	return true
}
