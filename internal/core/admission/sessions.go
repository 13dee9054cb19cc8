package admission

import (
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// sessions counts stamped and consumed tickets per expiry second: the vectors
// P and N of the ledger, cumulative since the incarnation began. A second is
// forgotten once the watermark has passed it, because no edge can touch its
// tickets again.
type sessions struct {
	base int64 // first second held
	end  int64 // first second after those held; all cells outside [base, end) are zero
	ring []sessionCount
	live int64 // sum of stamped-consumed over what is held
}

type sessionCount struct{ stamped, consumed uint32 }

// maxExpirySpan bounds the ring, in seconds: twice the longest life of a ticket.
const maxExpirySpan = 1 << 13

// at returns the counters of second until, or nil if it lies outside what can
// still be counted. The second b lies at index b mod length, so that seconds
// may be added at either end.
func (s *sessions) at(until int64) *sessionCount {
	if s.ring == nil {
		s.base, s.end = until, until+1
		s.ring = make([]sessionCount, 64)
	}
	base, end := min(s.base, until), max(s.end, until+1)
	if end-base > int64(len(s.ring)) && !s.grow(end-base) {
		return nil
	}
	s.base, s.end = base, end
	return &s.ring[until&int64(len(s.ring)-1)]
}

// grow doubles the ring until it has room for span seconds.
func (s *sessions) grow(span int64) bool {
	if span > maxExpirySpan {
		return false
	}
	size := int64(len(s.ring))
	for size < span {
		size *= 2
	}
	ring := make([]sessionCount, size)
	for b := s.base; b < s.end; b++ {
		ring[b&(size-1)] = s.ring[b&int64(len(s.ring)-1)]
	}
	s.ring = ring
	return true
}

// fold counts what lies before second base as if it lay there: an edge that is
// cut off hears no watermark, and neither its memory nor its reports may grow
// for as long as that lasts. A ticket that was stamped may be counted for
// longer than it was valid, and never for less long: so what was consumed stays
// behind where it cancels what was stamped for the same second, and where it
// would cancel more it is forgotten. The parent knows of the seconds that
// disappear what it was told, and goes on counting that.
func (s *sessions) fold(base int64) {
	base = min(base, s.end-1)
	if s.ring == nil || base <= s.base {
		return
	}
	mask := int64(len(s.ring) - 1)
	left := uint32(0)
	for ; s.base < base; s.base++ {
		c := &s.ring[s.base&mask]
		if c.stamped >= c.consumed {
			left += c.stamped - c.consumed
		} else {
			s.live += int64(c.consumed - c.stamped)
		}
		*c = sessionCount{}
	}
	s.ring[base&mask].stamped += left
}

// issue counts one ticket issued with expiry second until.
func (s *sessions) issue(until uint32) bool {
	c := s.at(int64(until))
	if c == nil {
		return false
	}
	c.stamped++
	s.live++
	return true
}

// consume counts one ticket of expiry second until renewed away.
func (s *sessions) consume(until uint32) bool {
	c := s.at(int64(until))
	if c == nil {
		return false
	}
	c.consumed++
	s.live--
	return true
}

// forget drops the seconds that every live edge has reported past.
func (s *sessions) forget(watermark fleettime.Time) {
	if s.ring == nil {
		return
	}
	mask := int64(len(s.ring) - 1)
	for s.base < s.end && fleettime.Time(s.base*1000).Add(fleettime.Guard) <= watermark {
		c := &s.ring[s.base&mask]
		s.live -= int64(c.stamped) - int64(c.consumed)
		*c = sessionCount{}
		s.base++
	}
	if s.base == s.end { // nothing is held; begin where the next ticket lies
		s.ring = nil
	}
}

// report appends the counters that are not zero.
func (s *sessions) report() []wire.Expiry {
	mask, n := int64(len(s.ring)-1), 0
	for b := s.base; b < s.end; b++ {
		if s.ring[b&mask] != (sessionCount{}) {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	out := make([]wire.Expiry, 0, n)
	for b := s.base; b < s.end; b++ {
		if c := s.ring[b&mask]; c != (sessionCount{}) {
			out = append(out, wire.Expiry{Until: uint32(b), Stamped: uint64(c.stamped), Consumed: uint64(c.consumed)})
		}
	}
	return out
}
