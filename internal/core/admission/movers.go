package admission

import (
	"time"

	"vestibule/internal/core/fleettime"
)

// movers are the visitors with a session of another data centre that wait for a permit here, by ticket ID. Free
// permits go to them before the queue. The map is bounded: without space the visitor keeps the old ticket.
type movers map[uint64]mover

// mover is a migrating session: its last request here and its expiry elsewhere.
type mover struct {
	seen  fleettime.Mono
	until uint32
}

const (
	maxMovers = 1 << 12
	// moverWait is how long a permit is reserved for an absent visitor.
	moverWait = 30 * time.Second
)

// prune removes absent visitors, and sessions that have expired and cannot migrate any more. It reports whether it
// removed any.
func (m movers) prune(now fleettime.Mono, ft fleettime.Time) bool {
	n := len(m)
	for id, v := range m {
		if now.Sub(v.seen) > moverWait || int64(v.until) < ft.Second() {
			delete(m, id)
		}
	}
	return len(m) != n
}
