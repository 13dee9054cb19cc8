package front

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// calm bounds the frames of a client beside requests: each kind has a supply that refills with time, and with the
// responses that the client gets. A client without supply gets ENHANCE_YOUR_CALM, and the connection ends.
type calm struct {
	control supply // frames without a request or a byte of a body
	resets  supply // of requests in progress
}

func newCalm(now time.Time) calm {
	return calm{
		control: supply{left: 1000, most: 1000, perSecond: 20, at: now},
		resets:  supply{left: maxStreams, most: maxStreams, perSecond: 5, at: now},
	}
}

// supply is a number of things that a client may do.
type supply struct {
	left, most, perSecond int64
	at                    time.Time
	earned                atomic.Int64 // by other goroutines
}

// take takes one. The error is errFlood.
func (s *supply) take(now time.Time) error {
	if s.left == 0 {
		s.left = min(s.most, s.earned.Swap(0)+int64(now.Sub(s.at))*s.perSecond/int64(time.Second))
		if s.left == 0 {
			return errFlood
		}
		s.at = now
	}
	s.left--
	return nil
}

// errFlood ends the connection of a client that uses up a supply.
var errFlood = http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)

// read reads the frame in the buffer and obeys it. It returns the stream of a request whose head is complete. The error
// is a [http2.StreamError] or ends the connection.
func (x *h2) read() (*stream, error) {
	kind := http2.FrameType(x.frames.in.buf[x.frames.in.r+3])
	frame, err := x.frames.in.frame.ReadFrame()
	if s, ok := errors.AsType[http2.StreamError](err); ok &&
		(kind == http2.FrameHeaders || kind == http2.FrameContinuation) {
		err = http2.ConnectionError(s.Code) // its block is not in the table
	}
	if err != nil {
		return nil, err
	}
	if _, ok := frame.(*http2.SettingsFrame); !ok && !x.settled {
		return nil, http2.ConnectionError(http2.ErrCodeProtocol)
	}
	switch f := frame.(type) {
	case *http2.HeadersFrame:
		return x.headers(f)
	case *http2.ContinuationFrame:
		if err := x.calm.control.take(x.now); err != nil {
			return nil, err
		}
		return x.block(f.HeaderBlockFragment(), f.HeadersEnded())
	case *http2.DataFrame:
		return nil, x.data(f)
	}
	if err := x.calm.control.take(x.now); err != nil {
		return nil, err
	}
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		return nil, x.settings(f)
	case *http2.WindowUpdateFrame:
		if f.StreamID != 0 && x.isNew(f.StreamID) {
			return nil, http2.ConnectionError(http2.ErrCodeProtocol)
		}
		return nil, x.open.widen(f.StreamID, int64(f.Increment))
	case *http2.RSTStreamFrame:
		if x.isNew(f.StreamID) {
			return nil, http2.ConnectionError(http2.ErrCodeProtocol)
		}
		s := x.open.get(f.StreamID)
		x.open.forget(f.StreamID)
		if s != nil && s.leave() {
			return nil, x.calm.resets.take(x.now)
		}
	case *http2.PingFrame:
		switch {
		case !f.IsAck():
			x.put(append(appendFrame(nil, len(f.Data), http2.FramePing, http2.FlagPingAck, 0), f.Data[:]...))
		case !x.away.IsZero() && x.refused == 0:
			x.refuse()
		}
	case *http2.PriorityFrame:
		if f.StreamDep == f.StreamID {
			return nil, http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeProtocol}
		}
	case *http2.GoAwayFrame:
		x.shutDown()
	case *http2.PushPromiseFrame:
		return nil, http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return nil, nil
}

// isNew reports whether the client has not used a stream yet.
func (x *h2) isNew(stream uint32) bool { return stream > x.last || stream%2 == 0 }

// isLate reports whether the client may not know yet that a stream is not served.
func (x *h2) isLate(stream uint32) bool {
	return !x.isNew(stream) && (x.open.isCut(stream) || x.refused > 0 && stream >= x.refused)
}

// settings obeys the client's settings.
func (x *h2) settings(f *http2.SettingsFrame) error {
	if x.settled = true; f.IsAck() {
		if x.unacked--; x.unacked < 0 {
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
		return nil
	}
	if f.NumSettings() > 100 {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	err := f.ForeachSetting(func(s http2.Setting) error {
		if err := s.Valid(); err != nil {
			return err
		}
		if s.ID == http2.SettingInitialWindowSize {
			return x.open.resize(int64(s.Val))
		}
		if s.ID == http2.SettingHeaderTableSize && s.Val < maxTable {
			x.shrunk.Store(true)
		}
		return nil
	})
	if err == nil {
		x.put(appendFrame(nil, 0, http2.FrameSettings, http2.FlagSettingsAck, 0))
	}
	return err
}

// headers reads the beginning of a header block.
func (x *h2) headers(f *http2.HeadersFrame) (*stream, error) {
	id := f.StreamID
	if id%2 == 0 {
		return nil, http2.ConnectionError(http2.ErrCodeProtocol)
	}
	open, late := x.open.get(id), x.isLate(id)
	switch {
	case late:
		if err := x.calm.control.take(x.now); err != nil {
			return nil, err
		}
	case open == nil && id == x.last:
		return nil, http2.ConnectionError(http2.ErrCodeStreamClosed)
	case open == nil && id < x.last:
		return nil, http2.ConnectionError(http2.ErrCodeProtocol)
	case open == nil:
		x.last = id
		x.requests++
	}
	x.head.begin(x.f.buffers.get(), id, f.StreamEnded(), open != nil || late)
	if f.HasPriority() && f.Priority.StreamDep == id {
		x.head.fail("the stream depends on itself")
	}
	x.frames.inHead = true
	return x.block(f.HeaderBlockFragment(), f.HeadersEnded())
}

// block reads a part of a header block.
func (x *h2) block(b []byte, last bool) (*stream, error) {
	h := &x.head
	if h.bytes += len(b); h.bytes > maxBlock {
		return nil, errFlood
	}
	if _, err := x.unpack.Write(b); err != nil {
		return nil, http2.ConnectionError(http2.ErrCodeCompression)
	}
	if !last {
		return nil, nil
	}
	if err := x.unpack.Close(); err != nil {
		return nil, http2.ConnectionError(http2.ErrCodeCompression)
	}
	x.frames.inHead = false
	w := h.work
	h.work = nil
	s, err := x.request(h, w)
	if s == nil {
		x.f.buffers.put(w)
	}
	return s, err
}

// request handles a complete header block: it begins a request and returns its stream, or ends a body.
func (x *h2) request(h *head2, w *work) (*stream, error) {
	h.work = w
	defer func() { h.work = nil }()
	fault := func(code http2.ErrCode) error { return http2.StreamError{StreamID: h.stream, Code: code} }
	x.open.mu.Lock()
	open, full, initial := x.open.byID[h.stream], len(x.open.byID) >= maxStreams, x.open.initial
	if h.trails { // they end a body
		defer x.open.mu.Unlock()
		switch {
		case open == nil || open.cut:
			return nil, nil
		case open.left:
			return nil, fault(http2.ErrCodeStreamClosed)
		case open.body == nil || open.body.over:
			// The client has ended the stream before. Whether the edge has too is a matter of microseconds: the error of a
			// closed stream serves both (RFC 9113, 5.1 and 5.4.1).
			return nil, http2.ConnectionError(http2.ErrCodeStreamClosed)
		case !h.ends || !h.complete():
			return nil, fault(http2.ErrCodeProtocol)
		}
		return nil, open.body.endLocked()
	}
	x.open.mu.Unlock()
	switch {
	case x.refused > 0 && h.stream >= x.refused:
		return nil, x.calm.control.take(x.now)
	case full:
		return nil, fault(http2.ErrCodeRefusedStream)
	case !h.complete() && h.fault != errTooLong: //nolint:errorlint // it is as it was set
		x.f.opts.Log.Debug("HTTP/2 request refused", slog.Any("error", h.fault))
		return nil, fault(http2.ErrCodeProtocol)
	}
	if x.requests >= maxRequests || x.now.Sub(x.begun) >= maxLife || x.f.opts.Draining() {
		x.shutDown()
	}
	s := x.spare
	if x.spare = nil; s == nil {
		s = &stream{x: x}
	}
	s.begin(w, h, initial)
	return s, nil
}

// data takes a part of a body.
func (x *h2) data(f *http2.DataFrame) error {
	id, n := f.StreamID, int64(f.Length)
	if x.isNew(id) {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if len(f.Data()) == 0 && !f.StreamEnded() {
		if err := x.calm.control.take(x.now); err != nil {
			return err
		}
	}
	x.open.mu.Lock()
	defer x.open.mu.Unlock()
	if x.open.recv -= n; x.open.recv < 0 {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	s := x.open.byID[id]
	if s == nil || s.left || s.body == nil || s.body.over {
		x.open.creditLocked(n)
		if s != nil && s.cut {
			return nil
		}
		if c := x.open.cutOfLocked(id); c != nil && n <= c.recv {
			c.recv -= n
			return nil
		}
		if x.refused > 0 && id >= x.refused {
			return x.calm.control.take(x.now)
		}
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeStreamClosed}
	}
	b := s.body
	if b.recv -= n; b.recv < 0 {
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeFlowControl}
	}
	b.addLocked(f.Data(), n)
	if b.length >= 0 && b.got > b.length {
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeProtocol}
	}
	if f.StreamEnded() {
		return b.endLocked()
	}
	return nil
}
