package admission

import (
	"vestibule/internal/fleet"
	"vestibule/internal/wire"
)

// sessions counts stamped and consumed tickets per expiry second: the vectors
// P and N of the ledger, cumulative since the incarnation began. A second is
// forgotten once the watermark has passed it, because no edge can touch its
// tickets again.
type sessions struct {
	base int64 // first second held
	ring []sessionCount
	live int64 // sum of stamped-consumed over what is held
}

type sessionCount struct{ stamped, consumed uint32 }

// maxSpan bounds the ring, in seconds: twice the longest life of a ticket.
const maxSpan = 1 << 13

// at returns the counters of second until, or nil if it lies outside what can
// still be counted.
func (s *sessions) at(until int64) *sessionCount {
	if s.ring == nil {
		s.base = until - 1
		s.ring = make([]sessionCount, 64)
	}
	for until < s.base { // a ticket older than any before: rare, and bounded by the watermark
		if s.base-until >= maxSpan || !s.grow(s.base-until) {
			return nil
		}
		s.base = until
	}
	for until >= s.base+int64(len(s.ring)) {
		if !s.grow(1) {
			return nil
		}
	}
	return &s.ring[until&int64(len(s.ring)-1)]
}

// grow doubles the ring until it has room for more seconds; the second b lies
// at index b mod length, before and after.
func (s *sessions) grow(more int64) bool {
	n := len(s.ring)
	size := n * 2
	for int64(size) < int64(n)+more {
		size *= 2
	}
	if size > maxSpan {
		return false
	}
	ring := make([]sessionCount, size)
	for b := s.base; b < s.base+int64(n); b++ {
		ring[b&int64(size-1)] = s.ring[b&int64(n-1)]
	}
	// Seconds below base that the larger ring can now hold are empty.
	s.ring = ring
	return true
}

// stamp counts one ticket issued with expiry second until.
func (s *sessions) stamp(until uint32) bool {
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
func (s *sessions) forget(watermark fleet.Time) {
	if s.ring == nil {
		return
	}
	mask := int64(len(s.ring) - 1)
	end := s.base + int64(len(s.ring))
	for s.base < end && fleet.Time(s.base*1000).Add(fleet.Guard) <= watermark {
		c := &s.ring[s.base&mask]
		s.live -= int64(c.stamped) - int64(c.consumed)
		*c = sessionCount{}
		s.base++
	}
	if s.base == end { // nothing was held; follow the watermark in one step
		s.ring = nil
	}
}

// report appends the counters that are not zero.
func (s *sessions) report(out []wire.Expiry) []wire.Expiry {
	mask := int64(len(s.ring) - 1)
	for b := s.base; b < s.base+int64(len(s.ring)); b++ {
		if c := s.ring[b&mask]; c != (sessionCount{}) {
			out = append(out, wire.Expiry{Until: uint32(b), Stamped: uint64(c.stamped), Consumed: uint64(c.consumed)})
		}
	}
	return out
}
