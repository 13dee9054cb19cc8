package node

import (
	"time"

	"vestibule/internal/core/fleettime"
)

// Steady finds the states of a process that begin and end, for its log. A state that comes back within
// [SteadyFor] has not ended: one that flaps is told once. The zero value has none. It is used by one goroutine at a time.
type Steady[K comparable] struct {
	seen map[K]fleettime.Mono
}

// SteadyFor is for how long a state has to be away before it is over.
const SteadyFor = 30 * time.Second

// Note takes which states there are now. It returns those that begin, and whether the last one is over.
func (s *Steady[K]) Note(now fleettime.Mono, states []K) (begin []K, over bool) {
	if s.seen == nil {
		s.seen = map[K]fleettime.Mono{}
	}
	for _, k := range states {
		if _, known := s.seen[k]; !known {
			begin = append(begin, k)
		}
		s.seen[k] = now
	}
	had := len(s.seen)
	for k, at := range s.seen {
		if now.Sub(at) >= SteadyFor {
			delete(s.seen, k)
		}
	}
	return begin, had > 0 && len(s.seen) == 0
}
