package region

import (
	"math"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// silence handles edges that do not report: it reserves the sessions that they may have admitted and may be renewing
// (rule 5).
type silence struct {
	*registry
	hold      bool  // an edge may have sessions that it did not report
	holdUntil int64 // Unix second after which no session of a lost edge can be valid
}

// waitedEvery is the interval, in seconds, at which the length of an edge's silence is stored.
const waitedEvery = 5

// advanceLost updates a lost edge. No second is freed until every ticket that it stamped under a lease has expired.
func (s *silence) advanceLost(now fleettime.Mono, ft fleettime.Time, synced bool, e *edge, blank bool) {
	if e.ended == 0 && synced && s.roster.hasEnded(e) {
		s.endedNow(now, e)
	}
	switch over := synced && ft.Add(-fleettime.Guard).Second() > s.holdUntil; {
	case e.reservedLost && e.ceilings != nil:
		if synced && !blank {
			s.tightenCeilings(ft, e)
		}
		s.expireLost(now, e)
		s.closeLost(e)
	case !over || ft.Second() <= rateOver(e.leased):
		s.hold = true
	case e.reservedLost:
		s.expireLost(now, e)
		s.closeLost(e)
	case s.rooms.watermark.Add(-fleettime.Guard).Second() > s.holdUntil:
		// Its seconds are freed now. Before, a session that it admitted and another edge renewed counted as -1
		// and +1, so not at all.
		s.reserveLost(now, e, blank)
	}
}

// expireLost declares a silent edge lost after lost_after of silence while other edges reported. If all are silent,
// the aggregator itself is isolated, and the time does not count. An edge that another process has succeeded has
// ended: its sessions can expire from here on. Without fleet time their end is unknown.
func (s *silence) expireLost(now fleettime.Mono, e *edge) {
	s.countSilence(now, e)
	if !s.clock.synced(now) {
		return
	}
	ended, unpinned := s.roster.hasEnded(e), false
	end := s.latest(now).Second()
	if e.ended != 0 {
		end = e.ended // unchanged by takeovers
	}
	for _, acc := range e.accounts {
		b := acc.ledger
		if acc.reserved.silent && (ended || e.silent > b.lostWait()) {
			if !ended {
				b.dirty = b.overcommit.add(e, acc.reserved.sum()) || b.dirty // it may be alive after all
			}
			acc.unpinAll(now, end)
			unpinned = true
		}
	}
	if unpinned && e.state == dead {
		s.storeEnded(e) // the successor need not wait for it
	}
}

// reserveLost continues to reserve sessions of an edge that has not reported in this term, although every ticket that
// it stamped under a lease has expired: under partition_policy serve it may be renewing sessions without a lease.
// Their number is unknown. But all other sessions are counted by now, so they cannot exceed the permits that would be
// free without them.
func (s *silence) reserveLost(now fleettime.Mono, e *edge, blank bool) {
	switch {
	case e.ended != 0 && s.clock.past(now, e.ended+int64(s.rooms.longestLife(now)/time.Second)+2):
		e.become(left)
		return
	case blank: // the free permits are unknown too
		s.countSilence(now, e)
		if wait := s.rooms.longestLostWait(); wait == 0 || e.silent > wait {
			e.become(left)
		}
		return
	}
	e.reservedLost = true
	life := int64(s.rooms.longestLife(now) / time.Second)
	for _, b := range s.rooms.list {
		free, _ := b.unallocated()
		if b.Cap || free <= 0 {
			continue
		}
		acc := b.account(e)
		p := &acc.reserved
		p.spent, p.silent, p.stampLife = free, true, life
		b.dirty, b.stale = true, true
		acc.markChanged()
	}
	s.closeLost(e)
}

// countSilence adds to the time for which an edge has been silent while others reported.
func (s *silence) countSilence(now fleettime.Mono, e *edge) {
	if s.roster.anyReporting() {
		e.silent += now.Sub(s.advanced)
	}
	if waited := uint32(min(e.silent/time.Second, math.MaxUint32)); waited >= e.waited+waitedEvery {
		e.waited = waited
		s.stored.patchEntry(e, func(r *wire.RosterEntry) { r.Waited = waited })
	}
}

// closeLost makes a lost edge left, unless it may be renewing sessions.
func (s *silence) closeLost(e *edge) {
	if !e.hasSilent() {
		e.become(left)
	}
}
