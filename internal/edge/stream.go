package edge

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"time"

	"vestibule/internal/edge/clientaddr"
	"vestibule/internal/edge/front"
	"vestibule/internal/edge/gate"
	"vestibule/internal/edge/sse"
)

// streams opens event streams. It is safe for concurrent use.
type streams struct {
	hub  *sse.Hub
	gate *gate.Gate
	log  *slog.Logger
}

// open opens an event stream for a waiting visitor and serves it. It reports false if o holds an answer instead.
func (s *streams) open(w http.ResponseWriter, r *http.Request, o *gate.Outcome) bool {
	st := &sse.Stream{Place: o.Stay.Place(), Turn: o.Stay.Ticket.Place(), From: clientaddr.Prefix(o.Client)}
	if err := s.hub.Reserve(st.From); err != nil {
		o.Header = append(o.Header, gate.Field{Name: "Retry-After", Value: "60"})
		o.Refuse("stream_capped", "No event stream is free. Please poll.", http.StatusServiceUnavailable)
		return false
	}
	b := &beginning{stay: o.Stay, guest: o.Guest, epoch: o.Epoch}
	defer func() {
		if !b.added { // the hub releases the place of an added stream
			s.hub.Release(st.From)
		}
	}()
	s.gate.Count("stream")
	if b.msg = s.hub.Latest(o.Stay.Room); b.msg == nil {
		m, _ := s.gate.Message(o.Stay.Room, o.Epoch) // empty if the room is gone
		b.msg = m.Text
	}
	// Browsers reconnect by themselves after a loss; spread the moments.
	b.head = append(strconv.AppendInt([]byte("retry: "), 2000+rand.Int64N(4000), 10), "\n\n"...)
	b.head = append(b.head, b.msg...)
	if r.ProtoMajor == 1 && sse.CanTakeOver {
		s.takeOver(w, st, b)
		return true
	}
	box := make(sse.Slot, 1)
	st.Subscriber = box
	if err := s.subscribe(st, b, func() error { return nil }); err != nil {
		o.Refuse("not_ready", "This edge stops.", http.StatusServiceUnavailable)
		return false
	}
	s.post(r.Context(), w, st, b.head, box)
	return true
}

// beginning is the start of a stream.
type beginning struct {
	stay  gate.Stay
	guest bool // stay has no place in the line
	epoch uint32
	msg   []byte // the newest message of the room
	head  []byte // the same, with the header before it
	added bool   // the hub has the stream
}

// subscribe gives a stream to the hub.
func (s *streams) subscribe(st *sse.Stream, b *beginning, begin func() error) error {
	if err := s.hub.Add(st, b.epoch, b.msg, begin); err != nil {
		return err
	}
	b.added = true
	if !b.guest && !s.gate.Engine.Waits(&b.stay) { // it ended before there was a stream to end
		s.hub.Finish(st.Place)
	}
	return nil
}

// takeOver begins a stream on a connection of its own. It takes no goroutine.
func (s *streams) takeOver(w http.ResponseWriter, st *sse.Stream, b *beginning) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		s.log.Error("connection not taken over", slog.Any("error", err))
		http.Error(w, "No event stream is possible here.", http.StatusInternalServerError)
		return
	}
	defer func() {
		if b.added { // the hub closes it
			return
		}
		if err := conn.Close(); err != nil {
			s.log.Debug("close", slog.Any("error", err))
		}
	}()
	if err := s.begin(conn, buffered.Reader.Buffered() > 0, st, b); err != nil {
		s.log.Debug("event stream not begun", slog.Any("error", err))
	}
}

var errPipelined = errors.New("the client sent another request before the response")

// begin sends the head of a stream on its own connection, which the hub then owns. more reports that net/http has read
// bytes behind the request.
func (s *streams) begin(conn net.Conn, more bool, st *sse.Stream, b *beginning) error {
	if h, ok := conn.(front.Handed); ok {
		conn, more = h.Bare(), more || h.Unread() > 0
	}
	if more {
		return errPipelined
	}
	p, err := sse.TakeOver(conn)
	if err != nil {
		return err
	}
	st.Subscriber = p
	return s.subscribe(st, b, func() error {
		answer := "HTTP/1.1 200 OK\r\nDate: " + time.Now().UTC().Format(http.TimeFormat) + "\r\nContent-Type: text/event-stream\r\n" +
			"Cache-Control: private, no-store\r\nVary: *\r\nX-Accel-Buffering: no\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
		_, err := p.Send(append([]byte(answer), b.head...))
		return err
	})
}

// post serves a stream with an ordinary answer, until either side ends it.
func (s *streams) post(ctx context.Context, w http.ResponseWriter, st *sse.Stream, head []byte, box sse.Slot) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "private, no-store")
	h.Set("Vary", "*") // as other waiting answers, in the way of a service worker's cache
	h.Set("X-Accel-Buffering", "no")
	h.Set("X-Content-Type-Options", "nosniff")
	rc := http.NewResponseController(w)
	write := func(msg []byte) bool {
		rc.SetWriteDeadline(time.Now().Add(sse.StuckAfter)) //nolint:errcheck // as in hurryBody
		_, err := w.Write(msg)
		if err == nil {
			err = rc.Flush()
		}
		rc.SetWriteDeadline(time.Time{}) //nolint:errcheck // as in hurryBody
		if err != nil {
			s.log.Debug("event stream cut off", slog.Any("error", err))
			s.hub.Drop(st, sse.Slow)
		}
		return err == nil
	}
	if !write(head) {
		return
	}
	for {
		select {
		case <-ctx.Done():
			s.hub.Drop(st, sse.Gone)
			return
		case msg, ok := <-box:
			if !ok || !write(msg) {
				return
			}
		}
	}
}
