package edge

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"vestibule/internal/room"
	"vestibule/internal/waiting"
)

// eventsPath is where a waiting page hears of its place: GET, with ?room=NAME.
// Every second everybody in a room is told the same; see waiting.Broadcast.
// A stream counts nobody and admits nobody: both are done by the requests that
// the page makes meanwhile, whose answers carry a ticket (decision 25).
const eventsPath = "/.well-known/vestibule/events"

const (
	castEvery  = time.Second
	castAnyway = 5 * time.Second  // what has not changed is said again: the stream is alive
	stuckFor   = 20 * time.Second // a stream that takes no message for so long is ended
	peekEvery  = 4                // seconds without news, after which every client was looked at
)

// Why a stream ended.
const (
	endGone     = "gone"     // the client
	endSlow     = "slow"     // the client did not read
	endReplaced = "replaced" // by a newer stream of the same ticket
	endOver     = "over"     // the visitor waits no more, or the room is gone
	endStopped  = "stopped"  // the edge
)

// outlet is the way to one client. Only the goroutine of streams.run uses it,
// and none of its methods waits.
type outlet interface {
	// send takes a message, or skips it where the client has not taken the one
	// before.
	send(msg []byte) (skipped bool, err error)
	// alive reports false once it is known that the client is gone.
	alive() bool
	end()
}

// place is a place in a line.
type place struct {
	room room.ID
	id   uint64 // of the ticket
}

// stream is one event stream. streams.mu guards it; but out and stuck belong
// to streams.run.
type stream struct {
	place
	out   outlet
	from  netip.Prefix
	at    int // in the members of its channel, -1 once it is to end
	why   string
	last  []byte    // to be said before it ends
	stuck time.Time // since when it took nothing, zero if it did
}

// channel is the streams of one room.
type channel struct {
	epoch   uint32
	members []*stream
	msg     []byte // the newest message
	said    time.Time
}

// streams are the event streams of an edge.
//
// Invariants: a stream is in the members of its room's channel and in places,
// or in ending, or has ended; open counts the first two kinds.
type streams struct {
	max     int
	every   time.Duration // between messages
	quota   *quota
	metrics *metrics
	kick    chan struct{} // there is something in ending

	mu      sync.Mutex
	rooms   map[room.ID]*channel
	places  map[place]*stream
	ending  []*stream
	open    int
	stopped bool

	// Of run alone.
	round   int
	scratch []*stream
}

func newStreams(limit int, q *quota, m *metrics) *streams {
	return &streams{
		max: limit, every: castEvery, quota: q, metrics: m, kick: make(chan struct{}, 1),
		rooms: map[room.ID]*channel{}, places: map[place]*stream{},
	}
}

var (
	errCapped  = errors.New("as many event streams as may be are open")
	errStopped = errors.New("the edge stops")
)

// reserve takes a place for a stream; it is given back by release.
func (e *streams) reserve(from netip.Prefix) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped || e.open >= e.max || !e.quota.take(from) {
		return errCapped
	}
	e.open++
	e.metrics.streams.Inc()
	return nil
}

func (e *streams) release(from netip.Prefix) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open--
	e.metrics.streams.Dec()
	e.quota.give(from)
}

// add begins a stream for which there is a place. The newest of a ticket's
// streams stays. begin says the first words, where the outlet is to say them: it
// must not wait, and nobody else says anything before.
func (e *streams) add(s *stream, epoch uint32, msg []byte, begin func() error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		return errStopped
	}
	if err := begin(); err != nil {
		return err
	}
	if old := e.places[s.place]; old != nil {
		e.finish(old, endReplaced, waiting.AppendOver(nil, waiting.OverPoll))
	}
	c := e.rooms[s.room]
	if c == nil {
		c = &channel{epoch: epoch, msg: msg, said: time.Now()}
		e.rooms[s.room] = c
	}
	s.at = len(c.members)
	c.members = append(c.members, s)
	e.places[s.place] = s
	return nil
}

// finish has run end a stream, with a last word or without. It may be called
// again.
func (e *streams) finish(s *stream, why string, last []byte) {
	if s.at < 0 {
		return
	}
	c := e.rooms[s.room]
	n := len(c.members) - 1
	moved := c.members[n]
	c.members[s.at], moved.at = moved, s.at
	c.members[n] = nil
	if c.members = c.members[:n]; n == 0 {
		delete(e.rooms, s.room)
	}
	delete(e.places, s.place)
	s.at, s.why, s.last = -1, why, last
	e.ending = append(e.ending, s)
	select {
	case e.kick <- struct{}{}:
	default:
	}
}

// over ends the stream of a ticket, if it has one, and has the page ask.
func (e *streams) over(p place) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.places[p]; s != nil {
		e.finish(s, endOver, waiting.AppendOver(nil, waiting.OverAsk))
	}
}

// gone ends a stream whose client is not there.
func (e *streams) gone(s *stream, why string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.finish(s, why, nil)
}

// run writes to all streams until ctx ends. tell returns what everybody in a
// room is to be told; ok is false where there is no such line any more.
func (e *streams) run(ctx context.Context, tell func(id room.ID, epoch uint32) (msg []byte, ok bool)) {
	tick := time.NewTicker(e.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			e.stop()
			return
		case <-tick.C:
			e.cast(tell)
		case <-e.kick:
		}
		e.bury()
	}
}

// stop ends all streams: pages come back by themselves, not all at once.
func (e *streams) stop() {
	e.mu.Lock()
	e.stopped = true
	for _, c := range e.rooms {
		for len(c.members) > 0 {
			e.finish(c.members[len(c.members)-1], endStopped, nil)
		}
	}
	e.mu.Unlock()
	e.bury()
}

// bury closes what is to end.
func (e *streams) bury() {
	e.mu.Lock()
	list := e.ending
	e.ending = nil
	e.mu.Unlock()
	for _, s := range list {
		if len(s.last) > 0 {
			s.out.send(s.last) //nolint:errcheck // a client that is gone needs no last word
		}
		s.out.end()
		e.metrics.streamEnds.WithLabelValues(s.why).Inc()
		e.release(s.from)
	}
}

// cast tells everybody the newest, room by room.
func (e *streams) cast(tell func(room.ID, uint32) ([]byte, bool)) {
	e.mu.Lock()
	ids := make([]room.ID, 0, len(e.rooms))
	for id := range e.rooms {
		ids = append(ids, id)
	}
	e.mu.Unlock()
	e.round++
	for _, id := range ids {
		e.castRoom(id, tell)
	}
}

func (e *streams) castRoom(id room.ID, tell func(room.ID, uint32) ([]byte, bool)) {
	e.mu.Lock()
	c := e.rooms[id]
	if c == nil {
		e.mu.Unlock()
		return
	}
	epoch := c.epoch
	e.mu.Unlock()

	msg, ok := tell(id, epoch)
	now := time.Now()

	e.mu.Lock()
	if !ok {
		last := waiting.AppendOver(nil, waiting.OverAsk)
		for len(c.members) > 0 {
			e.finish(c.members[len(c.members)-1], endOver, last)
		}
		e.mu.Unlock()
		return
	}
	say := now.Sub(c.said) >= castAnyway || !sameNews(c.msg, msg)
	if say {
		c.msg, c.said = msg, now
	}
	e.scratch = append(e.scratch[:0], c.members...)
	e.mu.Unlock()

	skips := 0
	for i, s := range e.scratch {
		if !say { // what is written tells by itself, with the message after
			if i%peekEvery == e.round%peekEvery && !s.out.alive() {
				e.gone(s, endGone)
			}
			continue
		}
		skipped, err := s.out.send(msg)
		switch {
		case err != nil:
			e.gone(s, endGone)
		case !skipped:
			s.stuck = time.Time{}
		default:
			skips++
			if s.stuck.IsZero() {
				s.stuck = now
			} else if now.Sub(s.stuck) >= stuckFor {
				e.gone(s, endSlow)
			}
		}
	}
	if say {
		e.metrics.events.WithLabelValues("sent").Add(float64(len(e.scratch) - skips))
		e.metrics.events.WithLabelValues("skipped").Add(float64(skips))
		e.metrics.broadcasts.Observe(time.Since(now).Seconds())
	}
	clear(e.scratch)
}

// sameNews reports whether two messages differ in their time alone.
func sameNews(a, b []byte) bool {
	i, j := bytes.IndexByte(a, ','), bytes.IndexByte(b, ',')
	return i >= 0 && j >= 0 && bytes.Equal(a[i:], b[j:])
}

// tell returns what everybody in a room is to be told now; ok is false once the
// room is gone, or all places in its line are void.
func (s *Server) tell(id room.ID, epoch uint32) (msg []byte, ok bool) {
	for _, r := range s.site.Load().rooms {
		if r.ID == id && r.Epoch == epoch {
			return s.message(id), true
		}
	}
	return nil, false
}

func (s *Server) message(id room.ID) []byte {
	now := s.lock()
	st, l := s.eng.Status(now), s.eng.Ledger(now, id)
	view, paused := l.View, l.Paused
	s.mu.Unlock()
	b := &waiting.Broadcast{Now: st.Time, View: view}
	switch {
	case paused:
		b.PausedBy = waiting.PausedBySite
	case !st.Leased || !st.Sure:
		b.PausedBy = waiting.PausedBySystem
	}
	return waiting.AppendBroadcast(nil, b)
}

// current returns the newest message of a room, for who comes between two.
func (s *Server) current(id room.ID) []byte {
	s.streams.mu.Lock()
	c := s.streams.rooms[id]
	var msg []byte
	if c != nil {
		msg = c.msg
	}
	s.streams.mu.Unlock()
	if msg == nil {
		msg = s.message(id)
	}
	return msg
}

// waits reports whether the engine knows t as a place in the line.
func (s *Server) waits(v *stay) bool {
	now := s.lock()
	defer s.mu.Unlock()
	return s.eng.Waits(now, v.room, v.ticket)
}

// events opens an event stream for a visitor who waits. 204 tells a browser that
// there is nothing to wait for.
func (s *Server) events(w http.ResponseWriter, r *http.Request, site *site, query string) {
	values, ok := s.ownPage(w, r, site, query, http.MethodGet)
	if !ok {
		return
	}
	h := w.Header()
	rs := site.rooms[site.set.ByName(values.Get("room")).Index]
	addr, secure := s.clients.origin(r)
	sc := s.scratch.Get().(*scratch)
	t, _, unread := s.openBest(r.Header, rs, index(secure), sc)
	s.scratch.Put(sc)
	if unread {
		h.Set("Retry-After", "2")
		s.refuse(w, r, "ticket_unread", "The ticket cannot be read at the moment. Please poll.", http.StatusServiceUnavailable)
		return
	}
	if !s.waits(&stay{rs.ID, t}) {
		s.metrics.requests.WithLabelValues("stream_nobody").Inc()
		h.Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusNoContent)
		return
	}
	st := &stream{place: place{rs.ID, t.ID}, from: neighbourhood(addr)}
	if err := s.streams.reserve(st.from); err != nil {
		h.Set("Retry-After", "60")
		s.refuse(w, r, "stream_capped", "No event stream is free. Please poll.", http.StatusServiceUnavailable)
		return
	}
	s.metrics.requests.WithLabelValues("stream").Inc()
	// Who loses the stream comes back by itself, not at the same moment as all
	// others.
	begin := &beginning{stay: stay{rs.ID, t}, epoch: rs.Epoch, msg: s.current(rs.ID)}
	begin.head = append(strconv.AppendInt([]byte("retry: "), 2000+rand.Int64N(4000), 10), "\n\n"...)
	begin.head = append(begin.head, begin.msg...)
	if r.ProtoMajor == 1 && canDrip {
		s.takeOver(w, st, begin)
		return
	}
	s.post(w, r, st, begin)
}

// beginning is what a stream begins with.
type beginning struct {
	stay
	epoch uint32
	msg   []byte // the newest message of the room
	head  []byte // the same, and what comes before it
}

// enlist begins a stream, or gives its place back.
func (s *Server) enlist(st *stream, b *beginning, begin func() error) error {
	if err := s.streams.add(st, b.epoch, b.msg, begin); err != nil {
		s.streams.release(st.from)
		return err
	}
	if !s.waits(&b.stay) { // since a moment ago: whoever ended it found no stream
		s.streams.over(st.place)
	}
	return nil
}

// takeOver begins a stream on a connection that carries nothing else. It costs
// no goroutine.
func (s *Server) takeOver(w http.ResponseWriter, st *stream, b *beginning) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		s.streams.release(st.from)
		s.log.Error("connection not taken over", slog.Any("error", err))
		http.Error(w, "No event stream is possible here.", http.StatusInternalServerError)
		return
	}
	p, err := newPipe(conn)
	if err == nil && buffered.Reader.Buffered() > 0 {
		err = errors.New("the client goes on before it is answered")
	}
	if err != nil {
		s.streams.release(st.from)
	} else {
		st.out = p
		err = s.enlist(st, b, func() error {
			answer := "HTTP/1.1 200 OK\r\nDate: " + time.Now().UTC().Format(http.TimeFormat) + "\r\nContent-Type: text/event-stream\r\n" +
				"Cache-Control: private, no-store\r\nX-Accel-Buffering: no\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
			_, err := p.send(append([]byte(answer), b.head...))
			return err
		})
	}
	if err == nil {
		return
	}
	s.log.Debug("event stream not begun", slog.Any("error", err))
	if err := conn.Close(); err != nil {
		s.log.Debug("close", slog.Any("error", err))
	}
}

// mailbox is the way out to a client whose connection carries other requests
// too: a place for one message, which the newest takes.
type mailbox chan []byte

func (m mailbox) send(msg []byte) (skipped bool, err error) {
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

func (m mailbox) alive() bool { return true } // its request tells
func (m mailbox) end()        { close(m) }

// post serves a stream by an ordinary answer, until either side ends it.
func (s *Server) post(w http.ResponseWriter, r *http.Request, st *stream, b *beginning) {
	box := make(mailbox, 1)
	st.out = box
	if err := s.enlist(st, b, func() error { return nil }); err != nil {
		s.refuse(w, r, "not_ready", "This edge stops.", http.StatusServiceUnavailable)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "private, no-store")
	h.Set("X-Accel-Buffering", "no")
	h.Set("X-Content-Type-Options", "nosniff")
	rc := http.NewResponseController(w)
	write := func(msg []byte) bool {
		rc.SetWriteDeadline(time.Now().Add(stuckFor)) //nolint:errcheck // as in hurryBody
		_, err := w.Write(msg)
		if err == nil {
			err = rc.Flush()
		}
		rc.SetWriteDeadline(time.Time{}) //nolint:errcheck // as in hurryBody
		if err != nil {
			s.log.Debug("event stream cut off", slog.Any("error", err))
			s.streams.gone(st, endSlow)
		}
		return err == nil
	}
	if !write(b.head) {
		return
	}
	for {
		select {
		case <-r.Context().Done():
			s.streams.gone(st, endGone)
			return
		case msg, ok := <-box:
			if !ok || !write(msg) {
				return
			}
		}
	}
}
