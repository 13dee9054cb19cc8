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
	cur.mu.Lock()
	defer cur.mu.Unlock()
	if cur.leading == nil {
		return fleettime.Known{}
	}
	return cur.leading.alloc.Known(now)
}

// Leaving reports whether a regional has announced its shutdown; false if this global does not lead. It is safe for
// concurrent use.
func (cur *currentTerm) Leaving() bool {
	cur.mu.Lock()
	defer cur.mu.Unlock()
	return cur.leading != nil && cur.leading.alloc.Leaving(cur.mono.Now())
}

// waiting returns how many visitors wait in a room, as far as this leader knows.
func (cur *currentTerm) waiting(public string) uint64 {
	cur.mu.Lock()
	defer cur.mu.Unlock()
	for _, r := range cur.fleet.Set().Rooms() {
		if cur.leading != nil && room.PublicID(r.TicketName()) == public {
			return uint64(max(0, numbersOf(cur.leading.alloc.Totals(r.ID)).Waiting))
		}
	}
	return 0
}

// stops returns why nobody enters anywhere, also by operators; none if this candidate does not lead.
func (cur *currentTerm) stops() (out []stop.Stop) {
	rooms := cur.fleet.Set().Rooms()
	cur.mu.Lock()
	defer cur.mu.Unlock()
	if cur.leading == nil {
		return nil
	}
	now := cur.leading.alloc.Time(cur.mono.Now())
	out = slices.Clone(cur.leading.stopped[""])
	for _, r := range rooms {
		if why := stop.Of(&r.Settings, r.Control, r.Phase, now); !why.OK() {
			out = append(out, why)
		}
		out = append(out, cur.leading.stopped[r.Name]...)
	}
	return out
}
