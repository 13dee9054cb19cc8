package region

import (
	"math"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// silence decides about edges that are not heard: the sessions that they may have admitted, and may be
// renewing still (rule 5).
type silence struct {
	*registry
	hold      bool  // an edge may have counted sessions that it did not report
	holdUntil int64 // Unix second after which no session of a lost edge can be valid
}

// waitedEvery is how often the length of an edge's silence is stored, while others are heard, in
// seconds.
const waitedEvery = 5

// advanceLost looks at an edge that was given up. Nothing is freed until every ticket that it stamped
// under a lease has expired.
func (s *silence) advanceLost(now fleettime.Mono, ft fleettime.Time, synced bool, e *edge, blank bool) {
	if e.ended == 0 && synced && s.roster.hasEnded(e) {
		s.endedNow(now, e)
	}
	switch over := synced && ft.Add(-fleettime.Guard).Second() > s.holdUntil; {
	case !over || ft.Second() <= e.leased+int64(wire.RateWindow/time.Second)+1:
		s.hold = true
	case e.reservedLost:
		s.expireLost(now, e)
		s.closeLost(e)
	case s.rooms.watermark.Add(-fleettime.Guard).Second() > s.holdUntil:
		// The seconds of it are freed as well: until then a session that it admitted and
		// others have renewed since is counted as -1 and +1, which is nothing.
		s.reserveLost(now, e, blank)
	}
}

// expireLost declares a silent edge lost once lost_after has passed in which other edges were heard.
// Silence of all is our own isolation and starts no clock. An edge that another process has succeeded
// has ended: the sessions that it might have gone on renewing age from here. Without the time nobody
// can say when that is.
func (s *silence) expireLost(now fleettime.Mono, e *edge) {
	s.countSilence(now, e)
	if !s.clock.synced(now) {
		return
	}
	ended, unpinned := s.roster.hasEnded(e), false
	end := s.latest(now).Second()
	if e.ended != 0 {
		end = e.ended // so it goes on across takeovers
	}
	for b, acc := range s.rooms.accounts(e) {
		if acc.reserved.silent && (ended || e.silent > b.lostWait()) {
			if !ended || e.declaredEnded {
				b.dirty = b.overcommit.add(e.instance, acc.reserved.sum()) || b.dirty // it may be alive all the same
			}
			acc.unpinAll(now, end)
			unpinned = true
		}
	}
	if unpinned && e.state == dead {
		s.storeEnded(e) // the next aggregator need not wait for an edge that has ended
	}
}

// reserveLost goes on presuming sessions of an edge that has not been heard since the aggregator began,
// although every ticket that it stamped under a lease has expired: under partition_policy serve it may
// be renewing sessions alone. Their number is not known. But all other sessions are counted by now, so
// they cannot be more than the permits that would be free without them.
func (s *silence) reserveLost(now fleettime.Mono, e *edge, blank bool) {
	switch {
	case e.ended != 0 && s.clock.past(now, e.ended+int64(s.rooms.longestLife(now)/time.Second)+2):
		e.become(left)
		s.countDeclared(e, blank)
		return
	case blank: // nor are the free permits known
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

// countSilence counts the time in which an edge has been silent while others were heard. Silence of all
// is our own isolation.
func (s *silence) countSilence(now fleettime.Mono, e *edge) {
	if s.roster.anyReporting() {
		e.silent += now.Sub(s.advanced)
	}
	if waited := uint32(min(e.silent/time.Second, math.MaxUint32)); waited >= e.waited+waitedEvery {
		e.waited = waited
		s.stored.patchEntry(e, func(r *wire.RosterEntry) { r.Waited = waited })
	}
}

// countDeclared counts the sessions of an edge that an operator declared ended, and whose number is not
// known, as overcommit: every permit that is in no other use.
func (s *silence) countDeclared(e *edge, blank bool) {
	if !e.declaredEnded {
		return
	}
	for _, b := range s.rooms.list {
		n, _ := b.unallocated()
		if blank {
			n = int64(b.Total) - b.active()
		}
		if !b.Cap {
			b.dirty = b.overcommit.add(e.instance, n) || b.dirty
		}
	}
}

// closeLost gives a lost edge up, unless it may go on renewing.
func (s *silence) closeLost(e *edge) {
	if !s.rooms.hasSilent(e) {
		e.become(left)
	}
}
