package ledger

import "vestibule/internal/core/fleettime"

// Leadership is that of one process: it ends with its lease, by its own clock, or once a successor is known. The zero
// value does not lead.
type Leadership struct {
	until  fleettime.Mono
	fenced uint64 // term of the successor; 0 for none
}

// SetLease sets the end of the leadership. Nothing is sent afterwards.
func (l *Leadership) SetLease(until fleettime.Mono) { l.until = until }

// Fence records the term of a successor.
func (l *Leadership) Fence(by uint64) { l.fenced = by }

// Fenced reports whether a successor is known, and its term: the shell must stop, and campaign with a higher one.
func (l *Leadership) Fenced() (by uint64, fenced bool) { return l.fenced, l.fenced != 0 }

// Leads reports whether the process leads at now.
func (l *Leadership) Leads(now fleettime.Mono) bool { return l.fenced == 0 && now < l.until }
