package gate

import (
	"sync"
	"sync/atomic"
	"time"

	"vestibule/internal/core/history"
	"vestibule/internal/core/room"
)

// traffic counts the requests of a room that passed to its site. It is safe for concurrent use.
type traffic struct {
	bypassed, requests, errors atomic.Uint64
	latency                    [history.NumCounts - history.Latency]atomic.Uint64
}

// traffics has the traffic of each room. It is safe for concurrent use.
type traffics struct {
	mu    sync.Mutex
	rooms map[room.ID]*traffic
}

// of returns the traffic of a room, the same while the room exists.
func (t *traffics) of(id room.ID) *traffic {
	t.mu.Lock()
	defer t.mu.Unlock()
	x := t.rooms[id]
	if x == nil {
		x = &traffic{}
		t.rooms[id] = x
	}
	return x
}

// keep drops the traffic of rooms that are not in set.
func (t *traffics) keep(set *room.Set) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id := range t.rooms {
		if set.ByID(id) == nil {
			delete(t.rooms, id)
		}
	}
}

// addTo adds the counts of a room to those of the engine, for a report.
func (t *traffics) addTo(id room.ID, c history.Counts) {
	t.mu.Lock()
	x := t.rooms[id]
	t.mu.Unlock()
	if x == nil {
		return
	}
	c[history.Bypassed] += x.bypassed.Load()
	c[history.OriginRequests] += x.requests.Load()
	c[history.OriginErrors] += x.errors.Load()
	for i := range x.latency {
		c[history.Latency+i] += x.latency[i].Load()
	}
}

// Forwarded counts that the site answered an admitted request with a status, or 0 for no answer, after a time.
func (o *Outcome) Forwarded(status int, after time.Duration) {
	for _, x := range o.traffic {
		x.requests.Add(1)
		if status == 0 || status >= 500 {
			x.errors.Add(1)
		}
		if status != 0 {
			x.latency[history.LatencyBin(after)-history.Latency].Add(1)
		}
	}
}
