// Package sse tells everybody who waits in a room the same, about once a second.
// A stream counts nobody and admits nobody: both are done by the requests that the
// page makes meanwhile, whose answers carry a ticket (decision 21).
package sse

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/core/room"
	"vestibule/internal/edge/clientaddr"
	"vestibule/internal/page"
)

const (
	broadcastEvery = time.Second
	repeatAfter    = 5 * time.Second // what has not changed is said again: the stream is alive
	peekEvery      = 4               // seconds without news, after which every client was looked at
)

// StuckAfter is how long a stream may take no message before it is ended.
const StuckAfter = 20 * time.Second

// Why a stream ends.
const (
	Gone     = "gone"     // the client
	Slow     = "slow"     // the client did not read
	Replaced = "replaced" // by a newer stream of the same ticket
	Over     = "over"     // the visitor waits no more, or the room is gone
	Stopped  = "stopped"  // the edge
)

// Subscriber is the way to one client. Only the goroutine of [Hub.Run] uses it,
// and none of its methods waits.
type Subscriber interface {
	// Send takes a message, or skips it where the client has not taken the one
	// before.
	Send(msg []byte) (skipped bool, err error)
	// Alive reports false once it is known that the client is gone.
	Alive() bool
	Close()
}

// Place is a place in a line.
type Place struct {
	Room   room.ID
	Ticket uint64 // its ID
}

// Stream is one event stream. Place, Subscriber and From are set before it begins.
// Hub.mu guards the rest; but stuck belongs to Hub.Run.
type Stream struct {
	Place
	Subscriber Subscriber
	From       netip.Prefix

	at    int // in the members of its channel, -1 once it is to end
	why   string
	last  []byte    // to be said before it ends
	stuck time.Time // since when it took nothing, zero if it did
}

// channel is the streams of one room.
type channel struct {
	epoch   uint32
	members []*Stream
	msg     []byte // the newest message
	said    time.Time
}

// Hub has the event streams of an edge. It is safe for concurrent use.
//
// Invariants: a stream is in the members of its room's channel and in places,
// or in ending, or has ended; open counts the first two kinds.
type Hub struct {
	max     int
	every   time.Duration // between messages
	quota   *clientaddr.Quota
	metrics *metrics
	kick    chan struct{} // there is something in ending

	mu      sync.Mutex
	rooms   map[room.ID]*channel
	places  map[Place]*Stream
	ending  []*Stream
	open    int
	stopped bool

	// Of run alone.
	round   int
	scratch []*Stream
}

// Options are what a hub is made of.
type Options struct {
	Max       int           // streams that may be open
	PerPrefix int           // of those, by clients of one neighbourhood of addresses
	Every     time.Duration // between two messages, 0 for a second
	Reg       prometheus.Registerer
}

// New returns a hub without streams; it writes once it Runs.
func New(o Options) (*Hub, error) {
	q, err := clientaddr.NewQuota(o.PerPrefix)
	if err != nil {
		return nil, err
	}
	every := o.Every
	if every == 0 {
		every = broadcastEvery
	}
	return &Hub{
		max: o.Max, every: every, quota: q, metrics: newMetrics(o.Reg), kick: make(chan struct{}, 1),
		rooms: map[room.ID]*channel{}, places: map[Place]*Stream{},
	}, nil
}

var (
	errCapped  = errors.New("as many event streams as may be are open")
	errStopped = errors.New("the edge stops")
)

// Reserve takes a place for a stream. It is given back when a stream that was added
// ends, or else by Release.
func (h *Hub) Reserve(from netip.Prefix) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped || h.open >= h.max || !h.quota.Take(from) {
		return errCapped
	}
	h.open++
	h.metrics.streams.Inc()
	return nil
}

// Release gives a place back.
func (h *Hub) Release(from netip.Prefix) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open--
	h.metrics.streams.Dec()
	h.quota.Give(from)
}

// Add begins a stream for which there is a place. The newest of a ticket's
// streams stays. begin says the first words, where the subscriber is to say them: it
// must not wait, and nobody else says anything before.
func (h *Hub) Add(s *Stream, epoch uint32, msg []byte, begin func() error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return errStopped
	}
	if err := begin(); err != nil {
		return err
	}
	if old := h.places[s.Place]; old != nil {
		h.end(old, Replaced, page.AppendOver(nil, page.OverPoll))
	}
	c := h.rooms[s.Room]
	if c == nil {
		c = &channel{epoch: epoch, msg: msg, said: time.Now()}
		h.rooms[s.Room] = c
	}
	s.at = len(c.members)
	c.members = append(c.members, s)
	h.places[s.Place] = s
	return nil
}

// end has Run close a stream, with a last word or without. It may be called
// again.
func (h *Hub) end(s *Stream, why string, last []byte) {
	if s.at < 0 {
		return
	}
	c := h.rooms[s.Room]
	n := len(c.members) - 1
	moved := c.members[n]
	c.members[s.at], moved.at = moved, s.at
	c.members[n] = nil
	if c.members = c.members[:n]; n == 0 {
		delete(h.rooms, s.Room)
	}
	delete(h.places, s.Place)
	s.at, s.why, s.last = -1, why, last
	h.ending = append(h.ending, s)
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

// Finish ends the stream of a ticket, if it has one, and has the page ask.
func (h *Hub) Finish(p Place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.places[p]; s != nil {
		h.end(s, Over, page.AppendOver(nil, page.OverAsk))
	}
}

// Drop ends a stream whose client is not there.
func (h *Hub) Drop(s *Stream, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end(s, why, nil)
}

// Run writes to all streams until ctx ends. tell returns what everybody in a
// room is to be told; ok is false where there is no such line any more.
func (h *Hub) Run(ctx context.Context, tell func(id room.ID, epoch uint32) (msg []byte, ok bool)) {
	tick := time.NewTicker(h.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			h.stop()
			return
		case <-tick.C:
			h.Broadcast(tell)
		case <-h.kick:
		}
		h.reap()
	}
}

// stop ends all streams: pages come back by themselves, not all at once.
func (h *Hub) stop() {
	h.mu.Lock()
	h.stopped = true
	for _, c := range h.rooms {
		for len(c.members) > 0 {
			h.end(c.members[len(c.members)-1], Stopped, nil)
		}
	}
	h.mu.Unlock()
	h.reap()
}

// reap closes what is to end.
func (h *Hub) reap() {
	h.mu.Lock()
	list := h.ending
	h.ending = nil
	h.mu.Unlock()
	for _, s := range list {
		if len(s.last) > 0 {
			s.Subscriber.Send(s.last) //nolint:errcheck // a client that is gone needs no last word
		}
		s.Subscriber.Close()
		h.metrics.ended.WithLabelValues(s.why).Inc()
		h.Release(s.From)
	}
}

// Broadcast tells everybody the newest, room by room. [Hub.Run] does it; nobody else
// may meanwhile.
func (h *Hub) Broadcast(tell func(room.ID, uint32) ([]byte, bool)) {
	h.mu.Lock()
	ids := make([]room.ID, 0, len(h.rooms))
	for id := range h.rooms {
		ids = append(ids, id)
	}
	h.mu.Unlock()
	h.round++
	for _, id := range ids {
		h.broadcastRoom(id, tell)
	}
}

func (h *Hub) broadcastRoom(id room.ID, tell func(room.ID, uint32) ([]byte, bool)) {
	h.mu.Lock()
	c := h.rooms[id]
	if c == nil {
		h.mu.Unlock()
		return
	}
	epoch := c.epoch
	h.mu.Unlock()

	msg, ok := tell(id, epoch)
	now := time.Now()

	h.mu.Lock()
	if !ok {
		last := page.AppendOver(nil, page.OverAsk)
		for len(c.members) > 0 {
			h.end(c.members[len(c.members)-1], Over, last)
		}
		h.mu.Unlock()
		return
	}
	say := now.Sub(c.said) >= repeatAfter || !sameNews(c.msg, msg)
	if say {
		c.msg, c.said = msg, now
	}
	h.scratch = append(h.scratch[:0], c.members...)
	h.mu.Unlock()

	skips := 0
	for i, s := range h.scratch {
		if !say { // what is written tells by itself, with the message after
			if i%peekEvery == h.round%peekEvery && !s.Subscriber.Alive() {
				h.Drop(s, Gone)
			}
			continue
		}
		skipped, err := s.Subscriber.Send(msg)
		switch {
		case err != nil:
			h.Drop(s, Gone)
		case !skipped:
			s.stuck = time.Time{}
		default:
			skips++
			if s.stuck.IsZero() {
				s.stuck = now
			} else if now.Sub(s.stuck) >= StuckAfter {
				h.Drop(s, Slow)
			}
		}
	}
	if say {
		h.metrics.events.WithLabelValues("sent").Add(float64(len(h.scratch) - skips))
		h.metrics.events.WithLabelValues("skipped").Add(float64(skips))
		h.metrics.broadcasts.Observe(time.Since(now).Seconds())
	}
	clear(h.scratch)
}

// sameNews reports whether two messages differ in their time alone.
func sameNews(a, b []byte) bool {
	i, j := bytes.IndexByte(a, ','), bytes.IndexByte(b, ',')
	return i >= 0 && j >= 0 && bytes.Equal(a[i:], b[j:])
}

// Latest returns the newest message of a room, nil where nobody listens there.
func (h *Hub) Latest(id room.ID) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.rooms[id]; c != nil {
		return c.msg
	}
	return nil
}

// Open returns how many streams are open or reserved.
func (h *Hub) Open() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open
}

// Slot is a subscriber whose connection carries other requests too: a place for one
// message, which the newest takes. It has a capacity of one.
type Slot chan []byte

// Send implements [Subscriber].
func (m Slot) Send(msg []byte) (skipped bool, err error) {
	select {
	case m <- msg:
		return false, nil
	default:
	}
	select {
	case <-m:
		skipped = true
	default: // it was taken this very moment
	}
	m <- msg // nobody else sends
	return skipped, nil
}

// Alive implements [Subscriber]; the request of the stream tells.
func (m Slot) Alive() bool { return true }

// Close implements [Subscriber].
func (m Slot) Close() { close(m) }
