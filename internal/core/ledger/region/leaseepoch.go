package region

import (
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// lapse handles the end of an edge's lease by every clock: everything that the edge may have done since its last
// report counts as done.
func (l *lifecycle) lapse(now fleettime.Mono, e *edge) {
	e.become(dead)
	for _, acc := range e.accounts {
		acc.lapse(e.receivedAt.Add(l.lapseAfter()))
	}
	l.reserve(now, e)
	l.storeEnded(e)
}

// endLeaseEpoch handles a report of an edge whose lease epoch has ended, or ends with this report.
func (l *lifecycle) endLeaseEpoch(now fleettime.Mono, e *edge, m *report, complete bool) {
	if m.LeaseEpoch == e.leaseEpoch && !m.Final {
		e.unconfirmed = false
	}
	over := e.over()
	switch {
	case m.Final && complete && (m.LeaseEpoch == e.leaseEpoch || m.Bye) && (m.Settles || e.isExact(m.AsOf)):
		// A final report of an older lease epoch is not enough: the edge may have received the grant of the
		// lapsed one since, and has to end that one too.
		l.settleExact(now, e)
		if m.Bye {
			l.leave(e)
		} else {
			l.revive(e)
		}
	case over:
		// The edge does not know yet that its lease epoch has ended. Its newer counters reduce the reserved
		// sessions.
		l.reserve(now, e)
	}
}

// reserve counts the permits and renewals that a lapsed edge may have used since its last report.
func (l *lifecycle) reserve(now fleettime.Mono, e *edge) {
	since := e.latest
	if !e.timed { // it got the time with the answer; later uses are not reported
		since = l.latest(now)
	}
	lastExpiry := l.rooms.maxExpiry(now, since, l.params.EdgeLease)
	var gone *edge
	if l.roster.mayHavePredecessor(e, l.rooms.watermark.Second()) {
		gone = l.roster.find(wire.Gone, 0)
	}
	renews := !l.roster.hasEnded(e) || e.unconfirmed
	for _, acc := range e.accounts {
		acc.reserve(now, lastExpiry)
		if !acc.ledger.Cap && renews {
			acc.pinAll(gone)
		}
	}
}

// settleExact applies the final numbers of an edge whose lease epoch has ended: nothing is reserved any more.
func (l *lifecycle) settleExact(now fleettime.Mono, e *edge) {
	l.rooms.removeOvercommit([]uint64{e.instance})
	for _, acc := range e.accounts {
		acc.settle(now)
	}
}

// leave handles the goodbye of an edge.
func (l *lifecycle) leave(e *edge) {
	e.become(left)
	for _, acc := range e.accounts {
		t := &acc.permits.Sessions
		t.Returned = max(t.Returned, t.Granted-acc.spent)
		acc.clearDemand()
	}
	l.storeEnded(e)
}

// revive begins another lease epoch of an edge. The roster entry must not be dead before the edge gets a lease.
func (l *lifecycle) revive(e *edge) {
	e.clearSilence()
	e.leaseEpoch++
	e.unconfirmed = true
	e.become(joining)
	l.storeEdge(e)
}

// isExact reports whether a final report is still true when it arrives. Under partition_policy serve the edge may
// continue to renew sessions. All renewals are counted as long as every freed second was over at the edge too.
func (e *edge) isExact(asOf fleettime.Time) bool {
	for _, acc := range e.accounts {
		if b := acc.ledger; !b.Cap && asOf.Second() < b.counts.freed-1 {
			return false
		}
	}
	return true
}
