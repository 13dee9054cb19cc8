package global

import (
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
	"vestibule/internal/node"
)

// copies is what nodes handed to this leader, who asked for what it lacks: the newest
// of each document. It is safe for concurrent use.
type copies struct {
	log *slog.Logger

	mu      sync.Mutex
	news    bool      // since it was looked last
	heard   time.Time // when the first keys came
	ring    ticket.Keyring
	members *node.Members
	rooms   uint64 // version
}

// maxVersion bounds what is believed of a version, so that the next ones can be
// counted on from it.
const maxVersion = 1 << 53

var errVersion = errors.New("version: too large")

// take takes in a document that was handed over.
func (c *copies) take(subject string, data []byte) {
	doc, dc, _ := wire.CopyOf(subject)
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	switch doc {
	case node.KeysDocument:
		err = c.takeKeys(dc, data)
	case node.MembersDocument:
		err = c.takeMembers(dc, data)
	case node.RoomsDocument:
		var r wire.RoomsCopy
		if err = json.Unmarshal(data, &r); err == nil && r.Version > maxVersion {
			err = errVersion
		}
		if err == nil && r.Version > c.rooms {
			c.rooms, c.news = r.Version, true
		}
	default:
		err = errors.New("unknown document")
	}
	if err != nil {
		c.log.Warn("what a node handed over is refused", slog.String("document", doc), slog.String("dc", dc), slog.Any("error", err))
	}
}

func (c *copies) takeKeys(dc string, data []byte) error {
	ring, err := ticket.DecodeKeyring(data)
	switch {
	case err != nil:
		return err
	case ring.Version > maxVersion:
		return errVersion
	}
	joined := c.ring.Join(ring, fleettime.TimeOf(time.Now()))
	if joined.Version == c.ring.Version {
		return nil
	}
	if c.heard.IsZero() {
		c.heard = time.Now()
	}
	c.ring, c.news = joined, true
	c.log.Info("keys were handed over", slog.String("dc", dc), slog.Uint64("version", ring.Version))
	return nil
}

func (c *copies) takeMembers(dc string, data []byte) error {
	m, err := node.DecodeMembers(data)
	switch {
	case err != nil:
		return err
	case m.Version > maxVersion:
		return errVersion
	}
	if c.members == nil || m.Version > c.members.Version {
		c.members, c.news = m, true
		c.log.Info("a list of data centres was handed over", slog.String("dc", dc), slog.Uint64("version", m.Version))
	}
	return nil
}

// fresh reports whether something came since it was asked last.
func (c *copies) fresh() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	news := c.news
	c.news = false
	return news
}

// keys returns the ring that was handed over, empty for none, and when the first was.
func (c *copies) keys() (ticket.Keyring, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ring, c.heard
}

// newest returns the newer of two lists of data centres: own, and the one that was
// handed over; nil for none.
func (c *copies) newest(own *node.Members) *node.Members {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.members != nil && (own == nil || c.members.Version > own.Version) {
		return c.members
	}
	return own
}

// roomsVersion returns the newest version of the rooms that a node knows.
func (c *copies) roomsVersion() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rooms
}

const (
	// askSoon is how often nodes are asked while this leader has no keys, or knows that
	// something newer exists; otherwise every storeEvery.
	askSoon = time.Second

	// askFor is how long a leader without keys asks before it makes the first ones. Nodes
	// that live have connected again by then, also to a server that was started anew.
	askFor = 10 * time.Second

	// gatherFor is how long others may still answer once keys were handed over.
	gatherFor = time.Second
)

// ask lets nodes know what this leader knows, so that they hand over what it lacks.
func (p *publisher) ask(wall time.Time, c *census) {
	every := storeEvery
	if len(p.fleet.Ring().Keys) == 0 || c.outdated() || len(p.fleet.Alarms()) > 0 {
		every = askSoon
	}
	if wall.Sub(p.askedAt) < every {
		return
	}
	p.askedAt = wall
	q := wire.CopyAsk{Rooms: p.fleet.Set().Version()}
	if m := p.fleet.Members(); m != nil {
		q.Members = m.Version
	}
	var err error
	if q.Keys, err = p.fleet.Ring().Sum(); err == nil {
		var data []byte
		if data, err = json.Marshal(q); err == nil {
			err = p.bus.Publish(wire.AskSubject, data)
		}
	}
	switch {
	case err != nil:
		p.asking = time.Time{} // who hears nobody does not know that nobody has any
		p.log.Debug("nodes not asked", slog.Any("error", err))
	case p.asking.IsZero():
		p.asking = wall
	}
}

// errAsking says that nodes may have keys.
var errAsking = errors.New("every node that can be heard is asked for the fleet's keys first")

// known returns the keys that the fleet has, as far as this node, the store (what it
// holds may be empty) and the nodes that answered know them.
func (p *publisher) known(stored ticket.Keyring, now fleettime.Time) (ticket.Keyring, error) {
	heard, since := p.copies.keys()
	own := p.fleet.Ring().Join(stored, now)
	switch {
	case len(own.Keys) > 0 || p.fresh:
	case len(heard.Keys) == 0 && (p.asking.IsZero() || time.Since(p.asking) < askFor), len(heard.Keys) > 0 && time.Since(since) < gatherFor:
		return own, errAsking
	case len(heard.Keys) == 0:
		p.log.Warn("no keys in the store, in data_dir or at any node that can be heard: making the first ones", slog.Duration("asked", askFor))
	}
	ring := own.Join(heard, now)
	if v := ring.Version; v >= max(p.fleet.Ring().Version, stored.Version, heard.Version)+ticket.MaxKeys && v != p.joined {
		p.joined = v
		p.log.Error("two key rings were in use: the older one goes on, the other one's tickets can be opened", slog.Uint64("version", v))
	}
	return ring, nil
}
