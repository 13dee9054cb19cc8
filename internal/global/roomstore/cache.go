package roomstore

import (
	"errors"
	"sync"
	"time"
)

// cache is the known contents of a store. It is safe for concurrent use.
type cache struct {
	now  func() time.Time
	kept chan struct{} // signals that known was replaced

	mu    sync.Mutex
	known *State    // the newest state seen, nil for none
	seen  time.Time // when the store last answered
	last  *view     // last write of this process, until another writer is known
	alarm string    // why the contents of the store are not used
}

// Known returns the newest state that this candidate has seen, nil for none.
func (c *cache) Known() *State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known
}

// Seen returns when the store last confirmed the known state: the time of its version, if not since the start of this
// process.
func (c *cache) Seen() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.seen
	if c.known != nil && at.IsZero() {
		at = time.UnixMilli(int64(c.known.Version))
	}
	return at
}

// Alarm returns why the store's rooms.owned is not used, "" if it is.
func (c *cache) Alarm() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.alarm
}

// setState records a state that this process wrote, or that the store holds.
func (c *cache) setState(state *State, v *view, published bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last = nil; published {
		v.rooms, v.fresh = nil, false
		c.last = v
	}
	c.know(state)
}

// know records a readable state, and reports whether it is the newest. The caller holds the lock.
func (c *cache) know(state *State) bool {
	c.alarm, c.seen = "", c.now()
	if c.known != nil && c.known.Version >= state.Version {
		return false
	}
	c.known = state
	select {
	case c.kept <- struct{}{}:
	default:
	}
	return true
}

// KnownVersion returns the version of the known state, 0 for none.
func (c *cache) KnownVersion() uint64 {
	if known := c.Known(); known != nil {
		return known.Version
	}
	return 0
}

// EncodeKnown returns the known state as another candidate can adopt it.
func (c *cache) EncodeKnown() ([]byte, error) {
	known := c.Known()
	if known == nil {
		return nil, errors.New("no rooms are known")
	}
	return encodeCopy(known)
}

func (c *cache) adopt(state *State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := c.seen
	if c.know(state) {
		c.last = nil
	}
	c.seen = seen // the store did not answer
}
