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

// take takes one, and reports whether there was one.
func (s *supply) take(now time.Time) bool {
	if s.left == 0 {
		s.left = min(s.most, s.earned.Swap(0)+int64(now.Sub(s.at))*s.perSecond/int64(time.Second))
		if s.left == 0 {
			return false
		}
		s.at = now
	}
	s.left--
	return true
}

// errFlood ends the connection of a client that uses up a supply.
var errFlood = http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)

// spend takes one of a supply. The error is errFlood.
func (x *h2) spend(s *supply) error {
	if s.take(x.now) {
		return nil
	}
	return errFlood
}

// read reads the frame in the buffer and obeys it. It returns the stream of a request whose head is complete. The error
// is a [http2.StreamError] or ends the connection.
func (x *h2) read() (*stream, error) {
	kind := http2.FrameType(x.in.buf[x.in.r+3])
	frame, err := x.in.frame.ReadFrame()
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
		if err := x.spend(&x.calm.control); err != nil {
			return nil, err
		}
		return x.block(f.HeaderBlockFragment(), f.HeadersEnded())
	case *http2.DataFrame:
		return nil, x.data(f)
	}
	if err := x.spend(&x.calm.control); err != nil {
		return nil, err
	}
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		return nil, x.settings(f)
	case *http2.WindowUpdateFrame:
		return nil, x.widen(f.StreamID, int64(f.Increment))
	case *http2.RSTStreamFrame:
		if x.isNew(f.StreamID) {
			return nil, http2.ConnectionError(http2.ErrCodeProtocol)
		}
		if s := x.stream(f.StreamID); s != nil && s.leave() {
			return nil, x.spend(&x.calm.resets)
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
			return x.resize(int64(s.Val))
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

// maxWindow is the largest window.
const maxWindow = 1<<31 - 1

// resize sets the window of new streams, and changes that of all others as much.
func (x *h2) resize(initial int64) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	more := initial - x.initial
	x.initial = initial
	for _, s := range x.streams {
		if s.window += more; s.window > maxWindow {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		s.wake()
	}
	return nil
}

// widen adds to the window of a stream, 0 for that of the connection.
func (x *h2) widen(stream uint32, n int64) error {
	if stream != 0 && x.isNew(stream) {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if stream != 0 {
		if s := x.streams[stream]; s != nil {
			if s.window += n; s.window > maxWindow {
				return http2.StreamError{StreamID: stream, Code: http2.ErrCodeFlowControl}
			}
			s.wake()
		}
		return nil
	}
	if x.window += n; x.window > maxWindow {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	for _, s := range x.streams {
		s.wake()
	}
	return nil
}

// headers reads the beginning of a header block.
func (x *h2) headers(f *http2.HeadersFrame) (*stream, error) {
	id := f.StreamID
	if id%2 == 0 {
		return nil, http2.ConnectionError(http2.ErrCodeProtocol)
	}
	open := x.stream(id)
	switch {
	case open == nil && id == x.last:
		return nil, http2.ConnectionError(http2.ErrCodeStreamClosed)
	case open == nil && id < x.last:
		return nil, http2.ConnectionError(http2.ErrCodeProtocol)
	case open == nil:
		x.last = id
		x.requests++
	}
	x.head.begin(x.f.buffers.get(), id, f.StreamEnded(), open != nil)
	if f.HasPriority() && f.Priority.StreamDep == id {
		x.head.fail("the stream depends on itself")
	}
	x.inHead = true
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
	x.inHead = false
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
	if h.trails {
		return nil, x.endBody(h, fault)
	}
	x.mu.Lock()
	full, initial := len(x.streams) >= maxStreams, x.initial
	x.mu.Unlock()
	switch {
	case x.refused > 0 && h.stream >= x.refused:
		return nil, x.spend(&x.calm.control)
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

// endBody ends a body by trailers.
func (x *h2) endBody(h *head2, fault func(http2.ErrCode) error) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.streams[h.stream]
	switch {
	case s == nil || s.cut:
		return nil
	case s.left || s.body == nil || s.body.over:
		return fault(http2.ErrCodeStreamClosed)
	case !h.ends || !h.complete():
		return fault(http2.ErrCodeProtocol)
	}
	return s.endBodyLocked()
}

// data takes a part of a body.
func (x *h2) data(f *http2.DataFrame) error {
	id, n := f.StreamID, int64(f.Length)
	if x.isNew(id) {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if len(f.Data()) == 0 && !f.StreamEnded() {
		if err := x.spend(&x.calm.control); err != nil {
			return err
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.recv -= n; x.recv < 0 {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	s := x.streams[id]
	if s == nil || s.left || s.body == nil || s.body.over {
		x.creditLocked(n)
		if s != nil && s.cut {
			return nil
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
		return s.endBodyLocked()
	}
	return nil
}

// creditLocked notes that the client may send n more bytes, and reports whether the next frames tell it.
func (x *h2) creditLocked(n int64) (told bool) {
	if x.owed += n; x.owed < connWindow/4 {
		return false
	}
	x.recv += x.owed
	x.add(append32(nil, http2.FrameWindowUpdate, 0, uint32(x.owed)))
	x.owed = 0
	return true
}
