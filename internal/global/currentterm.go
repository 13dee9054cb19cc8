package global

import (
	"slices"
	"sync"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger/root"
	"vestibule/internal/core/room"
	"vestibule/internal/core/stop"
	"vestibule/internal/node"
)

// currentTerm is the term in which this process leads, if it does. The goroutine of the term shares it with readers.
type currentTerm struct {
	mono  *node.Clock // this machine's
	fleet *node.Fleet

	mu      sync.Mutex
	leading *leadership // nil for none
}

// setLeading sets the current leadership, nil for none.
func (cur *currentTerm) setLeading(l *leadership) {
	cur.mu.Lock()
	defer cur.mu.Unlock()
	cur.leading = l
}

// whileLeading returns what read finds in the current leadership, under its lock; the zero value if there is none.
func whileLeading[T any](cur *currentTerm, read func(l *leadership) T) (out T) {
	cur.mu.Lock()
	defer cur.mu.Unlock()
	if cur.leading != nil {
		out = read(cur.leading)
	}
	return out
}

// time returns fleet time if this process leads and knows it, else the machine's estimate of it.
func (cur *currentTerm) time() fleettime.Time {
	t, _ := cur.clock()
	return t
}

// clock returns time and its uncertainty: that close to a phase change of an event, a coordinator uses the smaller
// limits.
func (cur *currentTerm) clock() (fleettime.Time, time.Duration) {
	cur.mu.Lock()
	defer cur.mu.Unlock()
	var alloc *root.Allocator
	if cur.leading != nil {
		alloc = cur.leading.alloc
	}
	return alloc.Clock(cur.mono.Now(), fleettime.TimeOf(time.Now()))
}

// known returns fleet time for the data folder; the zero value if this process does not lead or know it.
func (cur *currentTerm) known(now fleettime.Mono) fleettime.Known {
	return whileLeading(cur, func(l *leadership) fleettime.Known { return l.alloc.Known(now) })
}

// Leaving reports whether a regional has announced its shutdown; false if this global does not lead. It is safe for
// concurrent use.
func (cur *currentTerm) Leaving() bool {
	return whileLeading(cur, func(l *leadership) bool { return l.alloc.Leaving(cur.mono.Now()) })
}

// waiting returns how many visitors wait in a room, as far as this leader knows.
func (cur *currentTerm) waiting(public string) uint64 {
	return whileLeading(cur, func(l *leadership) uint64 {
		for _, r := range cur.fleet.Set().Rooms() {
			if room.PublicID(r.TicketName()) == public {
				return uint64(max(0, numbersOf(l.alloc.Totals(r.ID)).Waiting))
			}
		}
		return 0
	})
}

// stops returns why nobody enters anywhere, also by operators; none if this candidate does not lead.
func (cur *currentTerm) stops() []stop.Stop {
	rooms := cur.fleet.Set().Rooms()
	return whileLeading(cur, func(l *leadership) []stop.Stop {
		now := l.alloc.Time(cur.mono.Now())
		out := slices.Clone(l.stopped[""])
		for _, r := range rooms {
			if why := stop.Of(&r.Settings, r.Control, r.Phase, now); !why.OK() {
				out = append(out, why)
			}
			out = append(out, l.stopped[r.Name]...)
		}
		return out
	})
}
