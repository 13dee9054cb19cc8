package fleettime

import "time"

// Minutely decides about a log line that is written at most once a minute, by readings T of one clock. The zero value
// has written none.
type Minutely[T interface{ Sub(past T) time.Duration }] struct {
	at      T // the last line
	written bool
	n       int // events since
}

// Count counts n events. It reports whether a line is due, and how many events it is for.
func (m *Minutely[T]) Count(now T, n int) (all int, due bool) {
	m.n += n
	if m.written && now.Sub(m.at) < time.Minute {
		return 0, false
	}
	all = m.n
	m.at, m.written, m.n = now, true, 0
	return all, true
}
