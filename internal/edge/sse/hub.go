// Package sse broadcasts the state of a room to its waiting visitors about once a second. A stream counts nobody
// and admits nobody: the page's polls do both, since their responses carry a ticket (decision 21).
package sse

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/edge/clientaddr"
	"vestibule/internal/page"
)

const (
	broadcastEvery = time.Second
	repeatAfter    = 5 * time.Second // an unchanged message is repeated: the stream is alive
	peekEvery      = 4               // seconds without a message after which every client was checked

	farAfter = 5 * time.Second // between messages to a stream far back in the line: its page counts on by itself
	allAfter = 3 * time.Second // after a change of the room's state every stream gets every message
)

// Message is the state of a room for its streams.
type Message struct {
	Text []byte
	Far  fleettime.Time // places after this one are far back in the line; [estimate.Open] if none is
}

// StuckAfter is how long a client may accept no message before its stream ends.
const StuckAfter = 20 * time.Second

// Reasons for the end of a stream.
const (
	Gone     = "gone"     // the client disconnected
	Slow     = "slow"     // the client did not read
	Replaced = "replaced" // by a newer stream of the same ticket
	Over     = "over"     // the visitor waits no longer, or the room is gone
	Stopped  = "stopped"  // the edge stops
)

// Subscriber writes to one client. Only the goroutine of [Hub.Run] uses it, and its methods do not block.
type Subscriber interface {
	// Send sends a message, or skips it if the previous one is still pending.
	Send(msg []byte) (skipped bool, err error)
	// Alive returns false once the client is known to be gone.
	Alive() bool
	Close()
}

// Place is a place in a queue.
type Place struct {
	Room   room.ID
	Ticket uint64 // its ID
}

// Stream is one event stream. The exported fields are set before Add. Hub.mu guards the rest, but for stuck, heard
// and missed, which belong to Hub.Run.
type Stream struct {
	Place
	Turn       fleettime.Time // the place in the line, 0 for none
	Subscriber Subscriber
	From       netip.Prefix

	at    int // index in the members of its channel, -1 while ending
	why   string
	last  []byte    // final message
	stuck time.Time // since when it accepts nothing, or zero

	heard  time.Time // since when it counts to the next message while it is far back
	missed bool      // there was one since the last that it got
}

// channel is the streams of one room.
type channel struct {
	epoch   uint32
	members []*Stream
	msg     []byte // the newest message
	sentAt  time.Time
	changed time.Time // when the state changed last
}

// Hub manages the event streams of an edge. It is safe for concurrent use.
//
// Invariants: a stream is in the members of its room's channel and in places, or in ending, or has ended; open
// counts the first two kinds.
type Hub struct {
	max     int
	every   time.Duration // between messages
	quota   *clientaddr.Quota
	metrics *metrics
	kick    chan struct{} // ending is not empty

	mu      sync.Mutex
	rooms   map[room.ID]*channel
	places  map[Place]*Stream
	ending  []*Stream
	open    int
	stopped bool

	// Used by Run only.
	round   int
	scratch []*Stream
}

// Options configure a hub.
type Options struct {
	Max       int           // maximum number of streams
	PerPrefix int           // of those, per address prefix
	Every     time.Duration // between two messages, 0 for a second
	Reg       prometheus.Registerer
}

// New returns a hub without streams. Run writes to them.
func New(o Options) *Hub {
	return &Hub{
		max: o.Max, every: cmp.Or(o.Every, broadcastEvery), quota: clientaddr.NewQuota(o.PerPrefix),
		metrics: newMetrics(o.Reg), kick: make(chan struct{}, 1), rooms: map[room.ID]*channel{},
		places: map[Place]*Stream{},
	}
}

var (
	errCapped  = errors.New("the limit of event streams is reached")
	errStopped = errors.New("the edge stops")
)

// Reserve reserves capacity for a stream. The end of an added stream releases it, otherwise Release does.
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

// Release releases a reservation.
func (h *Hub) Release(from netip.Prefix) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open--
	h.metrics.streams.Dec()
	h.quota.Give(from)
}

// Add starts a stream with a reservation. It replaces an older stream of the same ticket. begin sends the first
// message if the subscriber is to do so: it must not block, and nothing is sent before.
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
		c = &channel{epoch: epoch, msg: msg, sentAt: time.Now()}
		h.rooms[s.Room] = c
	}
	s.at = len(c.members)
	c.members = append(c.members, s)
	h.places[s.Place] = s
	return nil
}

// end makes Run close a stream, with or without a final message. It is idempotent.
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

// Finish ends the stream of a ticket, if there is one, and makes the page poll.
func (h *Hub) Finish(p Place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.places[p]; s != nil {
		h.end(s, Over, page.AppendOver(nil, page.OverAsk))
	}
}

// Drop ends a stream without a client.
func (h *Hub) Drop(s *Stream, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end(s, why, nil)
}

// Run writes to all streams until ctx ends. tell returns the current message of a room; ok is false if the room is
// gone.
func (h *Hub) Run(ctx context.Context, tell func(id room.ID, epoch uint32) (m Message, ok bool)) {
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

// stop ends all streams. Pages reconnect with jitter.
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

// reap closes the ending streams.
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

// Broadcast sends the newest messages, room by room. Only [Hub.Run] calls it.
func (h *Hub) Broadcast(tell func(room.ID, uint32) (Message, bool)) {
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

func (h *Hub) broadcastRoom(id room.ID, tell func(room.ID, uint32) (Message, bool)) {
	h.mu.Lock()
	c := h.rooms[id]
	if c == nil {
		h.mu.Unlock()
		return
	}
	epoch := c.epoch
	h.mu.Unlock()

	m, ok := tell(id, epoch)
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
	repeat := now.Sub(c.sentAt) >= repeatAfter
	if !bytes.Equal(stateOf(c.msg), stateOf(m.Text)) {
		c.changed = now
	}
	all := repeat || now.Sub(c.changed) < allAfter
	say := repeat || !bytes.Equal(newsOf(c.msg), newsOf(m.Text))
	if say {
		c.msg, c.sentAt = m.Text, now
	}
	h.scratch = append(h.scratch[:0], c.members...)
	h.mu.Unlock()

	sent, skips := 0, 0
	for i, s := range h.scratch {
		if !s.takes(now, say, !all && s.Turn > m.Far) {
			// A write detects the end of a client by itself, with the next message.
			if i%peekEvery == h.round%peekEvery && !s.Subscriber.Alive() {
				h.Drop(s, Gone)
			}
			continue
		}
		sent++
		skipped, err := s.Subscriber.Send(m.Text)
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
	if sent > 0 {
		h.metrics.events.WithLabelValues("sent").Add(float64(sent - skips))
		h.metrics.events.WithLabelValues("skipped").Add(float64(skips))
		h.metrics.broadcasts.Observe(time.Since(now).Seconds())
	}
	clear(h.scratch)
}

// takes reports whether a stream gets the newest message now. Only [Hub.Run] calls it.
func (s *Stream) takes(now time.Time, news, far bool) bool {
	wants := news || s.missed
	if s.missed = wants && far && now.Sub(s.heard) < farAfter-broadcastEvery/2; !wants || s.missed {
		return false
	}
	if s.heard = now; !far { // spread the next ones
		s.heard = now.Add(-time.Duration(s.Ticket % uint64(farAfter)))
	}
	return true
}

// newsOf returns a message without its time.
func newsOf(msg []byte) []byte {
	_, news, _ := bytes.Cut(msg, []byte(","))
	return news
}

// stateOf returns the part of a message that is the same for a room that stays as it is, however the line moves.
func stateOf(msg []byte) []byte {
	state, _, _ := bytes.Cut(newsOf(msg), []byte(page.LineFollows))
	return state
}

// Latest returns the newest message of a room, or nil without listeners.
func (h *Hub) Latest(id room.ID) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.rooms[id]; c != nil {
		return c.msg
	}
	return nil
}

// Open returns the number of open or reserved streams.
func (h *Hub) Open() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open
}

// Slot is a subscriber on a connection with other requests: a slot for the newest message. It has a capacity of
// one.
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
	default: // taken just now
	}
	m <- msg // there is no other sender
	return skipped, nil
}

// Alive implements [Subscriber]; the request of the stream detects the end.
func (m Slot) Alive() bool { return true }

// Close implements [Subscriber].
func (m Slot) Close() { close(m) }
