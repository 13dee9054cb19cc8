package region

import (
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// lapse notes that an edge's lease is over by every clock: everything that the edge may have done since
// its last report is counted as done.
func (l *lifecycle) lapse(now fleettime.Mono, e *edge) {
	e.become(dead)
	for _, acc := range l.rooms.accounts(e) {
		acc.lapse(e.receivedAt.Add(l.lapseAfter()))
	}
	l.reserve(now, e)
	l.storeEnded(e)
}

// endLeaseEpoch looks at a report of an edge whose lease epoch is over, or that ends it.
func (l *lifecycle) endLeaseEpoch(now fleettime.Mono, e *edge, m *report, complete bool) {
	if m.LeaseEpoch == e.leaseEpoch && !m.Final {
		e.unconfirmed = false
	}
	over := e.over()
	switch {
	case m.Final && complete && (m.LeaseEpoch == e.leaseEpoch || m.Bye) && l.rooms.isExact(e, m.AsOf):
		// Not of an older lease epoch, although the edge had not heard of the one that
		// lapsed since: it may have by now, and has to end that one too.
		l.settleExact(now, e)
		if m.Bye {
			l.leave(e)
		} else {
			l.revive(e)
		}
	case over:
		// It does not know yet that its lease epoch is over. Its newer counters
		// lessen the reserved sessions.
		l.reserve(now, e)
	}
}

// reserve counts the permits and renewals that a lapsed edge may have used without a report.
func (l *lifecycle) reserve(now fleettime.Mono, e *edge) {
	since := e.latest
	if !e.timed { // our answer told it the time, and its uses since then were not reported
		since = l.latest(now)
	}
	breath := l.rooms.maxExpiry(now, since, l.params.EdgeLease)
	var gone *edge
	if l.roster.mayHavePredecessor(e, l.rooms.watermark.Second()) {
		gone = l.roster.find(wire.Gone, 0)
	}
	renews := !l.roster.hasEnded(e) || e.unconfirmed
	for b, acc := range l.rooms.accounts(e) {
		acc.reserve(now, breath)
		if !b.Cap && renews {
			acc.pinAll(gone)
		}
	}
}

// settleExact takes the exact numbers of an edge whose lease epoch is over: nothing is reserved any more.
func (l *lifecycle) settleExact(now fleettime.Mono, e *edge) {
	l.rooms.removeOvercommit([]uint64{e.instance})
	for _, acc := range l.rooms.accounts(e) {
		acc.settle(now)
	}
}

// leave records that an edge said goodbye.
func (l *lifecycle) leave(e *edge) {
	e.become(left)
	for _, acc := range l.rooms.accounts(e) {
		t := &acc.permits.Sessions
		t.Returned = max(t.Returned, t.Granted-acc.spent)
		acc.clearDemand()
	}
	l.storeEnded(e)
}

// revive begins another lease epoch of an edge. The roster must not call it dead before it gets a
// lease again.
func (l *lifecycle) revive(e *edge) {
	e.leaseEpoch++
	e.unconfirmed = true
	e.become(joining)
	l.storeEdge(e)
}

// isExact reports whether a final report still is the truth when it arrives. Under
// partition_policy serve its edge may go on renewing; as long as no second is
// freed that was not over for it, everything that it renews is counted.
func (r *rooms) isExact(e *edge, asOf fleettime.Time) bool {
	for b := range r.accounts(e) {
		if !b.Cap && asOf.Second() < b.counts.freed-1 {
			return false
		}
	}
	return true
}
