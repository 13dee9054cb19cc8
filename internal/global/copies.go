package global

import (
	"encoding/json"
	"errors"
	"fmt"
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

// ownedCopy is the name in subjects of the state of the rooms, which only globals have.
const ownedCopy = "owned"

// offer is the announcement of a document by a node.
type offer struct {
	document string // as in the subject
	dc, from string
	version  uint64
}

// fetch is a document on its way from a node.
type fetch struct {
	offer
	begun time.Time
	sum   string
	parts [][]byte
	left  int // missing parts
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

// receiveCopy handles an announcement or a part of a document. The caller holds the lock.
func (c *copies) receiveCopy(doc, dc string, data []byte) error {
	switch name, edge := wire.IsEdgeCopy(doc); name {
	case node.RoomsDocument, node.ControlsDocument, node.DrawsDocument:
	case ownedCopy:
		if edge || dc != wire.Root {
			return errors.New("only globals have it")
		}
	default:
		return errors.New("unknown document")
	}
	var m wire.Copy
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	if m.Version > maxVersion {
		return errVersion
	}
	o := offer{doc, dc, m.From, m.Version}
	if m.Parts > 0 {
		return c.receivePart(o, &m)
	}
	if m.Version > c.offers[doc].version {
		c.offers[doc], c.news = o, true
	}
	return nil
}

// receivePart keeps a part of the document that is fetched.
func (c *copies) receivePart(o offer, m *wire.Copy) error {
	f := c.fetch
	switch {
	case f == nil || f.document != o.document || f.dc != o.dc || f.from != o.from || o.version < f.version:
		return nil // late, or unasked
	case m.Parts > node.MaxCopyParts || m.Part < 0 || m.Part >= m.Parts:
		return fmt.Errorf("part %d of %d", m.Part, m.Parts)
	case f.parts == nil || f.sum != m.Sum || len(f.parts) != m.Parts: // the first, or the document has changed
		f.version, f.sum, f.parts, f.left = o.version, m.Sum, make([][]byte, m.Parts), m.Parts
	}
	if f.parts[m.Part] == nil {
		f.parts[m.Part] = m.Data
		f.left--
	}
	return nil
}

// roomsVersion returns the newest announced version of the rooms.
func (c *copies) roomsVersion() (newest uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, doc := range []string{node.RoomsDocument, ownedCopy} {
		newest = max(newest, c.offers[doc].version)
	}
	return newest
}

// best returns the newest announcement of one of some documents, the first of several; the zero value for none newer
// than have. Nodes of earlier releases announce without being able to send.
func (c *copies) best(have uint64, documents ...string) (best offer) {
	for _, doc := range documents {
		if o := c.offers[doc]; o.from != "" && o.version > max(have, best.version) {
			best = o
		}
	}
	return best
}

// drop ends a fetch: the document must be announced again.
func (c *copies) drop() {
	if f := c.fetch; f != nil && c.offers[f.document].from == f.from {
		delete(c.offers, f.document)
	}
	c.fetch = nil
}
