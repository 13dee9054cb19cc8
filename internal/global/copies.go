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

// copies holds the newest version of each document that nodes returned when this leader asked. It is safe for
// concurrent use.
type copies struct {
	log *slog.Logger

	mu      sync.Mutex
	news    bool      // since the last call of takeNews
	heard   time.Time // when the first keys came
	ring    ticket.Keyring
	members *node.Members
	offers  map[string]offer // the newest announcement, by document
	fetch   *fetch           // the document that is fetched now, nil for none
}

// maxVersion bounds an accepted version, so that the next versions do not overflow.
const maxVersion = 1 << 53

var errVersion = errors.New("version: too large")

// receive stores a document that a node handed over.
func (c *copies) receive(subject string, data []byte) {
	doc, dc, _ := wire.CopyOf(subject)
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	switch doc {
	case node.KeysDocument:
		err = c.receiveKeys(dc, data)
	case node.MembersDocument:
		err = c.receiveMembers(dc, data)
	default:
		err = c.receiveCopy(doc, dc, data)
	}
	if err != nil {
		c.log.Warn("invalid document of a node", slog.String("document", doc), slog.String("dc", dc), slog.Any("error", err))
	}
}

func (c *copies) receiveKeys(dc string, data []byte) error {
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
	c.log.Info("keys received from a node", slog.String("dc", dc), slog.Uint64("version", ring.Version))
	return nil
}

func (c *copies) receiveMembers(dc string, data []byte) error {
	m, err := node.DecodeMembers(data)
	switch {
	case err != nil:
		return err
	case m.Version > maxVersion:
		return errVersion
	}
	if c.members == nil || m.Version > c.members.Version {
		c.members, c.news = m, true
		c.log.Info("list of data centres received from a node", slog.String("dc", dc), slog.Uint64("version", m.Version))
	}
	return nil
}

// takeNews reports whether anything came since the last call.
func (c *copies) takeNews() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	news := c.news
	c.news = false
	return news
}

// keys returns the received ring, empty for none, and when the first one came.
func (c *copies) keys() (ticket.Keyring, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ring, c.heard
}

// newest returns the newer list of data centres: own or the received one; nil for none.
func (c *copies) newest(own *node.Members) *node.Members {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.members != nil && (own == nil || c.members.Version > own.Version) {
		return c.members
	}
	return own
}

const (
	// askSoon is how often nodes are asked while this leader has no keys, or knows of a newer version; otherwise it
	// asks every storeEvery.
	askSoon = time.Second

	// askFor is how long a leader without keys asks before it makes the first ones. Live nodes have reconnected by
	// then, even to a restarted server.
	askFor = 10 * time.Second

	// gatherFor is how long other nodes may still answer after the first keys came.
	gatherFor = time.Second
)

// requestCopies publishes this leader's versions, so that nodes hand over newer documents.
func (r *refill) requestCopies(wall time.Time, c *census) {
	every := storeEvery
	have := r.have()
	if len(r.fleet.Ring().Keys) == 0 || c.outdated() || len(r.fleet.Alarms()) > 0 || have.rooms == 0 {
		every = askSoon
	}
	send := r.nextFetch(wall, have)
	if wall.Sub(r.askedAt) < every && send == nil {
		return
	}
	r.askedAt = wall
	q := wire.CopyAsk{Rooms: have.rooms, Controls: have.controls, Draws: have.draws, Send: send}
	if m := r.fleet.Members(); m != nil {
		q.Members = m.Version
	}
	var err error
	if q.Keys, err = r.fleet.Ring().Sum(); err == nil {
		var data []byte
		if data, err = json.Marshal(q); err == nil {
			err = r.bus.Publish(wire.AskSubject, data)
		}
	}
	switch {
	case err != nil:
		r.asking = time.Time{} // silence while disconnected does not prove that there are no keys
		r.log.Debug("nodes not asked", slog.Any("error", err))
	case r.asking.IsZero():
		r.asking = wall
	}
}

// asked reports whether this leader has asked the nodes for d, while connected.
func (r *refill) asked(wall time.Time, d time.Duration) bool {
	return !r.asking.IsZero() && wall.Sub(r.asking) >= d
}

// errAsking means that nodes may still have keys.
var errAsking = errors.New("waiting for the fleet's keys from the nodes")

// known returns the keys of the fleet: those of this node, of the store (possibly none) and of the nodes that
// answered. A fleet that may never have admitted anybody gets its first ones once it is initialized.
func (p *publisher) known(stored ticket.Keyring, now fleettime.Time, c *census) (ticket.Keyring, error) {
	heard, since := p.copies.keys()
	own := p.fleet.Ring().Join(stored, now)
	switch {
	case len(own.Keys) > 0 || p.fresh:
	case len(heard.Keys) == 0 && !p.asked(time.Now(), askFor), len(heard.Keys) > 0 && time.Since(since) < gatherFor:
		return own, errAsking
	case len(heard.Keys) == 0 && p.new(c):
		return own, errUninitialized
	case len(heard.Keys) == 0:
		p.log.Warn("no keys in the store, in data_dir or at any reporting node: making the first ones", slog.Duration("asked", askFor))
	}
	ring := own.Join(heard, now)
	if v := ring.Version; v >= max(p.fleet.Ring().Version, stored.Version, heard.Version)+ticket.MaxKeys && v != p.joined {
		p.joined = v
		p.log.Error("two key rings were in use: the older one stays in use, tickets of the other one stay valid", slog.Uint64("version", v))
	}
	return ring, nil
}
