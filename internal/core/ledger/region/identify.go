package region

import (
	"math"
	"slices"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// identify returns the edge of a report. A new edge joins. If the edge cannot be used, identify returns nil and the
// handshake to answer.
func (l *lifecycle) identify(now fleettime.Mono, term wire.Term, m *report) (e *edge, answer wire.Handshake) {
	if m.Seen != term {
		l.roster.recordWitness(now, m, l.stored)
		// Grants that a predecessor still sends to the edge would be counted nowhere, so the edge has to promise
		// to follow this term first.
		return nil, wire.Promise
	}
	e = l.roster.find(m.From, m.Instance)
	joins := e == nil || e.missing()
	switch {
	case e == nil && l.roster.inSummary(m.From, m.Instance), e != nil && joins && !m.Join, m.Settles && !l.roster.maySettle(e, m):
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
		// It rejoined by an old report, from before this lease epoch.
		return nil, m.rejection()
	}
	return e, wire.Adopted
}

// openEdge initializes an edge that has promised to follow this term.
func (l *lifecycle) openEdge(now fleettime.Mono, e *edge, m *report) {
	e.leaseEpoch = m.LeaseEpoch
	e.clearSilence()
	e.parts = wire.Parts{}
	e.receivedAt, e.first = now, l.roster.lastSeq
	for _, o := range l.roster.named(e.name) {
		if o.proves(e) {
			l.roster.markEnded(e, l.latest(now))
		}
	}
	// A new edge has stamped no ticket, and learns the watermark before it can.
	e.asOf, e.earliest = max(m.AsOf, l.rooms.watermark), max(m.earliest, l.rooms.watermark)
	e.latest, e.timed = m.latest, m.timed
	if !m.Settles {
		e.folder = m.Stored
	}
}

// join stores the roster entry of an initialized edge.
func (l *lifecycle) join(e *edge) {
	l.endLostReservation(e)
	e.ceilings = nil
	e.become(joining)
	l.storeEdge(e)
	l.rooms.setPassed(math.MaxInt64) // another aggregator may have sent it a later watermark
}

// rejection returns the answer to an edge without a ledger: it has to end the lease epoch or, after its final report,
// begin anew.
func (m *report) rejection() wire.Handshake {
	if m.Final {
		return wire.Dead
	}
	return wire.Fenced
}

// recordSuccession records the instances that an edge reports as ended, and returns them if they are new. An instance
// always reports the same ones. A later report of an ended instance contradicts it.
func (l *lifecycle) recordSuccession(now fleettime.Mono, by *edge, m *report) (ended []uint64) {
	if len(m.Succeeds) == len(by.succeeds) || len(m.Succeeds) == 0 {
		return nil
	}
	by.succeeds = m.Succeeds
	for _, e := range l.roster.named(by.name) {
		if by.proves(e) {
			l.roster.markEnded(e, l.latest(now))
		}
	}
	return slices.Clone(m.Succeeds)
}

// checkContradiction records that an edge wrote a report after another process reported its end: it answers a later
// grant, or was written later by every clock. Its data folder was then copied while it ran, and its sessions since
// were counted nowhere.
func (r *roster) checkContradiction(e *edge, m *report) {
	if e.endedAtGrant == 0 || e.contradicted || (m.Acked < e.endedAtGrant && (!m.timed || m.earliest <= e.endedAtTime)) {
		return
	}
	e.contradicted = true
	r.unknownEdges++
	r.lastUnknown = e.name
}

// lateReportName is the roster name of removed instances that report again. No edge can have this name.
const lateReportName = "(late word)"

// countLateReport counts the sessions of an instance that was removed as ended and is alive. It has to begin anew.
// Its ledger was closed when its last second was freed, so its sessions since were counted nowhere.
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

// recordUnknown records an edge with an unknown instance that has permits or sessions that may be valid. Every edge
// is on the roster before its first lease. So the store has lost data, or the edge was declared lost while it was
// alive.
func (r *roster) recordUnknown(m *report, watermark fleettime.Time) bool {
	past := max(m.earliest, watermark)
	for i := range m.Rooms {
		rr := &m.Rooms[i]
		// The permits of an old report have ended.
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

// recordWitness records which leader an edge followed.
//
// If the store is empty, the process that led last knows all stored data unless a rival led since. A rival must have
// had the promise of every edge to which it lent permits, and edges report their promises. So there is no unknown
// past once every edge with a possible lease reports that it followed this process last, and none followed a newer
// leader. If the operator declares the data centre as new, there is no unknown past either, until an edge reports
// that it followed a leader.
func (r *roster) recordWitness(now fleettime.Mono, m *report, s *stored) {
	switch {
	case r.rival || (r.ownTerm == 0 && !r.bootstrap):
	case m.Seen.N > r.ownTerm:
		if r.rival = true; r.find(wire.UnknownPast, 0) == nil && (r.recoveredEdges > 0 || r.bootstrap) {
			// The unknown past was closed already.
			r.add(wire.UnknownPast, 0).receivedAt = now
			s.change(func(d *wire.Durable) { d.LoseTrack() })
			r.unknownEdges++
			r.lastUnknown = m.From
		}
	case m.Seen.N == r.ownTerm && !m.Settles: // it may have followed another leader after its snapshot
		r.witnesses = slices.DeleteFunc(r.witnesses,
			func(w wire.GoneEdge) bool { return w.Edge == m.From && w.Instance == m.Instance })
	}
}

// endLostReservation handles a report of an edge that was lost. The sessions reserved for it may be those of another
// lost edge, so they move to it.
func (l *lifecycle) endLostReservation(e *edge) {
	if !e.reservedLost {
		return
	}
	e.reservedLost = false
	var other *edge
	for _, o := range l.roster.edges {
		if o != e && o.state == lost && o.reservedLost && o.ceilings == nil {
			other = o
		}
	}
	for _, acc := range e.accounts {
		b := acc.ledger
		p := &acc.reserved
		if e.ceilings != nil {
			b.rates.remove(e.num) // its report has them
		} else if !p.silent {
			continue
		}
		if other != nil && p.silent {
			to := &b.account(other).reserved
			to.spent += p.spent
			to.silent, to.stampLife = true, max(to.stampLife, p.stampLife)
		}
		p.spent, p.silent, p.stampLife = 0, false, 0
		b.dirty, b.stale = true, true
	}
}
