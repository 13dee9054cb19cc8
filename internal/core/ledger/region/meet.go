package region

import (
	"math"
	"slices"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// identify returns the edge that a report is from, which it adopts if need be. Where it returns
// none, the edge is owed an answer.
func (l *lifecycle) identify(now fleettime.Mono, term wire.Term, m *report) (e *edge, answer wire.Handshake) {
	if m.Seen != term {
		l.roster.recordWitness(now, m, l.stored)
		// A predecessor can still grant to the edge, and its grants would count nowhere:
		// first the promise, then the books.
		return nil, wire.Promise
	}
	e = l.roster.find(m.From, m.Instance)
	joins := e == nil || e.missing()
	switch {
	case e == nil && l.roster.inSummary(m.From, m.Instance), e != nil && joins && !m.Join:
		return nil, m.rejection()
	case e == nil && !m.Join:
		l.countLateReport(m)
		return nil, m.rejection()
	case e == nil:
		l.roster.recordUnknown(m, l.rooms.watermark)
		e = l.roster.add(m.From, m.Instance)
	}
	if joins {
		l.openEdge(now, e, m)
	}
	l.roster.checkContradiction(e, m)
	found := l.recordSuccession(now, e, m)
	if joins {
		found = append(found, e.instance)
		l.join(e)
	}
	l.rooms.removeOvercommit(found)
	if m.LeaseEpoch > e.leaseEpoch {
		// We gave it this lease epoch, forgot it since, and adopted it again by a report of long before.
		return nil, m.rejection()
	}
	return e, wire.Adopted
}

// openEdge opens the books of an edge that has promised to follow us.
func (l *lifecycle) openEdge(now fleettime.Mono, e *edge, m *report) {
	e.leaseEpoch = m.LeaseEpoch
	e.leased, e.until, e.ended = 0, 0, 0 // it may have a lease again
	e.waited, e.silent = 0, 0
	e.parts = wire.Parts{}
	e.receivedAt, e.first = now, l.roster.lastSeq
	for _, o := range l.roster.edges {
		if o.name == e.name && o.proves(e) {
			l.roster.markEnded(e, l.latest(now))
		}
	}
	// A new edge has touched nothing, and hears of the watermark before it may.
	e.asOf, e.earliest = max(m.AsOf, l.rooms.watermark), max(m.earliest, l.rooms.watermark)
	e.latest, e.timed = m.latest, m.timed
}

// join writes an edge with open books on the roster.
func (l *lifecycle) join(e *edge) {
	l.endLostReservation(e)
	e.become(joining)
	l.storeEdge(e)
	l.rooms.setPassed(math.MaxInt64) // up to now it may have been told another's watermark
}

// rejection returns the answer to an edge whose books are gone: end the lease epoch, or when it has ended,
// begin anew.
func (m *report) rejection() wire.Handshake {
	if m.Final {
		return wire.Dead
	}
	return wire.Fenced
}

// recordSuccession records the instances that an edge reports as ended, and returns them where they are new. An
// instance always reports the same. From here on a report of an ended one that was written later
// belies it.
func (l *lifecycle) recordSuccession(now fleettime.Mono, by *edge, m *report) (ended []uint64) {
	if len(m.Succeeds) == len(by.succeeds) || len(m.Succeeds) == 0 {
		return nil
	}
	by.succeeds = m.Succeeds
	for _, e := range l.roster.edges {
		if e.name == by.name && by.proves(e) {
			l.roster.markEnded(e, l.latest(now))
		}
	}
	return slices.Clone(m.Succeeds)
}

// checkContradiction records a report that an edge wrote after another one reported its end: it answers a grant that
// was sent later, or was written later by every clock. So the folder is wrong, as that of a machine that
// was cloned while it ran. Sessions of the edge since then were counted nowhere.
func (r *roster) checkContradiction(e *edge, m *report) {
	if e.endedAtGrant == 0 || e.contradicted || (m.Acked < e.endedAtGrant && (!m.timed || m.earliest <= e.endedAtTime)) {
		return
	}
	e.contradicted = true
	r.unknownEdges++
	r.lastUnknown = e.name
}

// markEnded records that an instance has ended, by the word of another one or an operator; latest is
// the latest time that fleet time can be.
func (r *roster) markEnded(e *edge, latest fleettime.Time) {
	if e.endedAtGrant == 0 {
		e.endedAtGrant, e.endedAtTime = r.lastSeq+1, latest
	}
}

// lateReportName stands for instances that were forgotten and are heard. No edge can be
// called so.
const lateReportName = "(late word)"

// countLateReport counts the sessions of an instance that was forgotten as ended, and is alive. It is
// answered to begin anew. Its books were closed when their last second was freed: sessions since then
// were counted nowhere.
func (l *lifecycle) countLateReport(m *report) {
	e := l.roster.find(lateReportName, m.Instance)
	if e == nil {
		if !l.roster.recordUnknown(m, l.rooms.watermark) {
			return
		}
		e = l.roster.add(lateReportName, m.Instance)
		e.become(left)
	}
	news := false
	for i := range m.Rooms {
		b := l.rooms.openReported(m.Rooms[i].Room, m)
		b.overcommit.remove(m.Instance)
		acc := b.account(e)
		before := acc.sessions.expiries
		acc.sessions.applyReport(&b.counts, m.Rooms[i].Sessions)
		news = news || !slices.Equal(before, acc.sessions.expiries)
		b.dirty, b.stale = true, true
	}
	if news {
		l.storeEnded(e)
	}
}

// recordUnknown records an edge whose instance is not known, and that has permits or sessions that may
// still be valid. The roster has every edge before its first lease: so either the store has lost data,
// or the edge was declared lost and was alive. Its permits and sessions were counted nowhere until now.
func (r *roster) recordUnknown(m *report, watermark fleettime.Time) bool {
	past := max(m.earliest, watermark)
	for i := range m.Rooms {
		rr := &m.Rooms[i]
		// The permits of a report that was under way for long are gone.
		held := rr.Permits.Sessions.Unused(rr.Spent) > 0 && past == m.earliest
		for _, s := range rr.Sessions {
			held = held || (s.Stamped > s.Consumed && int64(s.Until)*1000 > int64(past))
		}
		if held {
			r.unknownEdges++
			r.lastUnknown = m.From
			return true
		}
	}
	return false
}

// recordWitness records which leader an edge followed. Where the store is empty, the process that led last
// knows everything that was stored, unless a rival led since: in a store that is lost now, where it
// adopted edges and lent to them. It cannot have without their promise, which they report. So where each
// edge that may have had a lease reports that it followed us last, and no edge turns up that followed a
// newer leader, there is no unknown past. Nor is there one where the operator says that the data centre
// is new, until an edge turns up that followed a leader.
func (r *roster) recordWitness(now fleettime.Mono, m *report, s *stored) {
	switch {
	case r.rival || (r.ownTerm == 0 && !r.bootstrap):
	case m.Seen.N > r.ownTerm:
		if r.rival = true; r.find(wire.UnknownPast, 0) == nil && (r.recoveredEdges > 0 || r.bootstrap) {
			// Taken for none already.
			r.add(wire.UnknownPast, 0).receivedAt = now
			s.change(func(d *wire.Durable) { d.LoseTrack() })
			r.unknownEdges++
			r.lastUnknown = m.From
		}
	case m.Seen.N == r.ownTerm:
		r.witnesses = slices.DeleteFunc(r.witnesses, func(w wire.GoneEdge) bool { return w.Edge == m.From && w.Instance == m.Instance })
	}
}

// endLostReservation records that an edge is heard after all. Its reserved sessions may have been those of
// another edge, which is not heard.
func (l *lifecycle) endLostReservation(e *edge) {
	if !e.reservedLost {
		return
	}
	e.reservedLost = false
	var other *edge
	for _, o := range l.roster.edges {
		if o != e && o.state == lost && o.reservedLost {
			other = o
		}
	}
	for b, acc := range l.rooms.accounts(e) {
		p := &acc.reserved
		if !p.silent {
			continue
		}
		if other != nil {
			to := &b.account(other).reserved
			to.spent += p.spent
			to.silent, to.stampLife = true, max(to.stampLife, p.stampLife)
		}
		p.spent, p.silent, p.stampLife = 0, false, 0
		b.dirty, b.stale = true, true
	}
}

// add opens the books of an instance.
func (r *roster) add(name string, instance uint64) *edge {
	r.nums++
	e := &edge{name: name, instance: instance, num: r.nums, strict: r.strict}
	i, _ := slices.BinarySearchFunc(r.edges, e, compareEdges)
	r.edges = slices.Insert(r.edges, i, e)
	return e
}

// inSummary reports whether an instance's sessions are in the sum: its reports are old.
func (r *roster) inSummary(name string, instance uint64) bool {
	sum := r.find(wire.Gone, 0)
	return sum != nil && slices.ContainsFunc(sum.summary, func(g wire.GoneEdge) bool { return g.Edge == name && g.Instance == instance })
}

// find returns an instance, nil where it is not in the books.
func (r *roster) find(name string, instance uint64) *edge {
	i, ok := slices.BinarySearchFunc(r.edges, instance, func(e *edge, instance uint64) int { return e.compare(name, instance) })
	if !ok {
		return nil
	}
	return r.edges[i]
}
