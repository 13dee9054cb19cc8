package node

import (
	"maps"
	"time"

	"vestibule/internal/core/fleettime"
)

// Steady finds states that begin and end, for the log. A state that comes back within [SteadyFor] has not ended: a
// flapping one is reported once. The zero value is empty. One goroutine at a time uses it.
type Steady[K comparable] struct {
	seen map[K]fleettime.Mono
}

// SteadyFor is how long a state must be absent to end.
const SteadyFor = 30 * time.Second

// Note records the current states. It returns the new ones, and whether the last one has ended.
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
	maps.DeleteFunc(s.seen, func(_ K, at fleettime.Mono) bool { return now.Sub(at) >= SteadyFor })
	return begin, had > 0 && len(s.seen) == 0
}
