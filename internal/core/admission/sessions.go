package admission

import (
	"slices"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// sessions counts stamped and superseded tickets per expiry second: the vectors P and N of the ledger, cumulative
// since the start of the instance. A second is dropped once the watermark has passed it, because no edge can touch
// its tickets any more.
type sessions struct {
	base int64 // first second held
	end  int64 // first second after those held; all cells outside [base, end) are zero
	ring []sessionCount
	live int64 // sum of stamped-consumed over the held seconds
}

type sessionCount struct{ stamped, consumed uint32 }

// maxExpirySpan bounds the ring, in seconds: twice the maximum ticket life.
const maxExpirySpan = 1 << 13

// at returns the counters of second until, or nil if it is out of range. Second b lies at index b mod length, so
// that seconds may be added at either end.
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

// grow doubles the ring until it has space for span seconds.
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

// fold moves the counts before second base to base: an isolated edge receives no watermark, and neither its memory
// nor its reports may grow with the isolation. A ticket may be counted for longer than it was valid, never for
// less. So superseded counts move along only up to the stamped ones of the same second; the overcommit is dropped. For
// the folded seconds the parent continues with the last reported counts. It reports whether any second was before base.
func (s *sessions) fold(base int64) (moved bool) {
	base = min(base, s.end-1)
	if s.ring == nil || base <= s.base {
		return false
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
	return true
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

// consume counts one ticket with expiry second until as superseded.
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
	if s.base == s.end { // empty; begin at the next ticket
		s.ring = nil
	}
}

// report appends the non-zero counters.
func (s *sessions) report(out []wire.Expiry) []wire.Expiry {
	mask, n := int64(len(s.ring)-1), 0
	for b := s.base; b < s.end; b++ {
		if s.ring[b&mask] != (sessionCount{}) {
			n++
		}
	}
	out = slices.Grow(out, n)
	for b := s.base; b < s.end; b++ {
		if c := s.ring[b&mask]; c != (sessionCount{}) {
			out = append(out, wire.Expiry{Until: uint32(b), Stamped: uint64(c.stamped), Consumed: uint64(c.consumed)})
		}
	}
	return out
}
