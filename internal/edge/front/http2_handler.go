package front

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
)

// A request over HTTP/2 that the front does not serve by itself goes to the handler of net/http's requests.

// handle has the handler serve the request.
func (s *stream) handle() {
	x, r := s.x, s.head.r
	r.RemoteAddr, r.TLS = x.remote, x.accepted.secure
	if s.body != nil {
		r.Body = s.body
	}
	w := &writer2{s: s, head: r.Method == http.MethodHead, h: http.Header{}, length: -1}
	defer func() {
		p := recover()
		if p == nil {
			w.finish()
			return
		}
		if err, ok := p.(error); !ok || !errors.Is(err, http.ErrAbortHandler) { // the handler's way to end a stream
			x.f.opts.panicked("request", p)
		}
	}()
	x.f.opts.Handler.ServeHTTP(w, r.WithContext(x.f.opts.Context(&s.visit, x.conn)))
}

// writer2 is the answer of a handler. One goroutine at a time uses it.
type writer2 struct {
	s      *stream
	head   bool // HEAD: the answer has no body
	h      http.Header
	status int      // 0 before WriteHeader
	trails []string // names of trailers
	begun  bool     // the head is complete
	buf    []byte   // the body before
	length int64    // Content-Length; -1 for none
	wrote  int64
}

func (w *writer2) Header() http.Header { return w.h }

func (w *writer2) WriteHeader(status int) {
	if w.status != 0 {
		return
	}
	shrunk := w.s.x.shrunk.Load()
	if status < http.StatusOK { // the transport may have this said
		b := w.fields(appendStatus2(beginHead(nil, shrunk), status))
		w.s.x.send(endHead(b, w.s.id, false), w.s.x.f.opts.Timeouts.Idle) // the answer tells whether it could
		return
	}
	w.status = status
	for _, line := range w.h["Trailer"] {
		for name := range strings.SplitSeq(line, ",") {
			w.trails = append(w.trails, http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
	if n, err := strconv.ParseUint(w.h.Get("Content-Length"), 10, 63); err == nil {
		w.length = int64(n)
	}
	b := w.fields(appendStatus2(beginHead(w.s.out[:0], shrunk), status))
	if w.h["Date"] == nil {
		b = appendField2(b, "Date", dateNow().value)
	}
	if w.h.Get("Connection") == "close" {
		w.s.x.shutDown()
	}
	w.s.out = b
}

// fields appends the header.
func (w *writer2) fields(b []byte) []byte {
	for name, lines := range w.h {
		if name == "Content-Length" || strings.HasPrefix(name, http.TrailerPrefix) {
			continue
		}
		for _, line := range lines {
			b = appendField2(b, name, line)
		}
	}
	return b
}

// bodyless reports whether the answer has no body.
func (w *writer2) bodyless() bool {
	return w.head || w.status == http.StatusNoContent || w.status == http.StatusNotModified
}

// begin completes the head, and writes the body so far.
func (w *writer2) begin(ends bool) bool {
	w.begun = true
	if w.length >= 0 && w.status != http.StatusNoContent {
		w.s.out = appendLength2(w.s.out, w.length)
	}
	ends = ends || w.bodyless()
	w.s.ended = ends && len(w.buf) == 0
	w.s.out = endHead(w.s.out, w.s.id, w.s.ended)
	ok := w.s.ended || w.s.write(w.buf, ends, w.patience())
	w.buf = nil
	return ok
}

func (w *writer2) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	switch w.wrote += int64(len(b)); {
	case w.bodyless():
		return len(b), nil
	case w.length >= 0 && w.wrote > w.length:
		return 0, http.ErrContentLength
	case !w.begun && len(w.buf)+len(b) <= wholeBody:
		w.buf = append(w.buf, b...)
		return len(b), nil
	}
	if !w.begun && !w.begin(false) || !w.s.write(b, false, w.patience()) {
		return 0, w.fault()
	}
	return len(b), nil
}

// FlushError sends what was written. [http.ResponseController] calls it.
func (w *writer2) FlushError() error {
	w.WriteHeader(http.StatusOK)
	if !w.begun && !w.begin(false) || !w.s.sendOut(w.patience()) {
		return w.fault()
	}
	return nil
}

// fault returns why nothing more can be written.
func (w *writer2) fault() error {
	if w.s.visit.Err() != nil {
		return context.Canceled
	}
	return os.ErrDeadlineExceeded
}

// finish ends the answer.
func (w *writer2) finish() {
	w.WriteHeader(http.StatusOK)
	if !w.bodyless() && w.length >= 0 && w.wrote != w.length {
		return // the stream is reset
	}
	trailers := beginHead(nil, w.s.x.shrunk.Load())
	none := len(trailers)
	for name, lines := range w.h {
		after, ok := strings.CutPrefix(name, http.TrailerPrefix)
		for _, t := range w.trails {
			ok = ok || t == name
		}
		for _, line := range lines {
			if ok {
				trailers = appendField2(trailers, after, line)
			}
		}
	}
	last := len(trailers) == none || w.bodyless()
	if !w.begun && w.length < 0 && !w.bodyless() && last {
		w.length = int64(len(w.buf))
	}
	if !w.begun && !w.begin(last) || last && !w.s.write(nil, true, w.patience()) {
		return
	}
	if !last {
		w.s.out, w.s.ended = append(w.s.out, endHead(trailers, w.s.id, true)...), true
	}
	w.s.sendOut(w.patience()) // nobody hears of an error
}

// patience returns how long a write may take.
func (w *writer2) patience() time.Duration {
	if w.s.by.IsZero() {
		return w.s.x.f.opts.Timeouts.Idle
	}
	return max(0, time.Until(w.s.by))
}

// SetWriteDeadline bounds the next writes. [http.ResponseController] calls it.
func (w *writer2) SetWriteDeadline(t time.Time) error {
	w.s.by = t
	return nil
}

// SetReadDeadline bounds reads of the request's body. [http.ResponseController] calls it.
func (w *writer2) SetReadDeadline(t time.Time) error {
	if b := w.s.body; b != nil {
		b.s.x.open.mu.Lock()
		defer b.s.x.open.mu.Unlock()
		b.by = t
		b.wake()
	}
	return nil
}

// body2 is the body of a request. The handler reads it; x.open.mu guards it.
type body2 struct {
	s      *stream
	length int64 // Content-Length; -1 for none
	got    int64
	recv   int64 // bytes that the client may send
	owed   int64 // of those, read and not yet credited
	buf    []byte
	over   bool // the client has sent all of it
	closed bool
	by     time.Time     // for reads; the zero time for none
	came   chan struct{} // there is something new; nil before the first wait
}

// wake wakes a pending read. The caller holds x.open.mu.
func (b *body2) wake() {
	if b.came != nil {
		select {
		case b.came <- struct{}{}:
		default:
		}
	}
}

// addLocked adds the data of a frame that counts for n bytes.
func (b *body2) addLocked(data []byte, n int64) {
	b.got += int64(len(data))
	if b.closed {
		b.s.x.open.creditLocked(n)
		return
	}
	b.buf = append(b.buf, data...)
	b.usedLocked(n - int64(len(data)))
	b.wake()
}

// usedLocked notes that n bytes need no memory any more, and reports whether the client gets a window update.
func (b *body2) usedLocked(n int64) (credited bool) {
	credited = b.s.x.open.creditLocked(n)
	if b.owed += n; b.owed >= streamWindow/4 && !b.over {
		b.recv += b.owed
		b.s.x.add(append32(nil, http2.FrameWindowUpdate, b.s.id, uint32(b.owed)))
		b.owed, credited = 0, true
	}
	return credited
}

// dropLocked drops the unread part. It reports whether the client gets a window update for it.
func (b *body2) dropLocked() (credited bool) {
	b.closed = true
	credited = b.s.x.open.creditLocked(int64(len(b.buf)))
	b.buf = nil
	return credited
}

// endLocked notes that the client has sent all of the body. The error is that it is not as long as it said.
func (b *body2) endLocked() error {
	b.over = true
	b.wake()
	if b.length >= 0 && b.length != b.got {
		return http2.StreamError{StreamID: b.s.id, Code: http2.ErrCodeProtocol}
	}
	return nil
}

func (b *body2) Read(p []byte) (int, error) {
	x := b.s.x
	for {
		x.open.mu.Lock()
		if len(b.buf) > 0 && !b.closed {
			n := copy(p, b.buf)
			if b.buf = b.buf[n:]; len(b.buf) == 0 {
				b.buf = nil
			}
			credited := b.usedLocked(int64(n))
			x.open.mu.Unlock()
			if credited {
				x.flush(x.f.opts.Timeouts.Header) // the reader hears of an error
			}
			return n, nil
		}
		if b.came == nil {
			b.came = make(chan struct{}, 1)
		}
		closed, left, over, by := b.closed, b.s.left, b.over, b.by
		waits := b.s.head.waits
		b.s.head.waits = false
		x.open.mu.Unlock()
		switch {
		case closed:
			return 0, http.ErrBodyReadAfterClose
		case left:
			return 0, context.Canceled
		case over:
			return 0, io.EOF
		case waits:
			x.send(endHead(appendStatus2(beginHead(nil, x.shrunk.Load()), http.StatusContinue), b.s.id, false),
				x.f.opts.Timeouts.Header)
		}
		if !b.await(by) {
			return 0, os.ErrDeadlineExceeded
		}
	}
}

// await waits for something new until a time, the zero time for no limit.
func (b *body2) await(by time.Time) bool {
	if by.IsZero() {
		<-b.came
		return true
	}
	timer := time.NewTimer(time.Until(by))
	defer timer.Stop()
	select {
	case <-b.came:
		return true
	case <-timer.C:
		return false
	}
}

func (b *body2) Close() error {
	x := b.s.x
	x.open.mu.Lock()
	credited := b.dropLocked()
	b.wake()
	x.open.mu.Unlock()
	if credited {
		x.flush(x.f.opts.Timeouts.Header) // as in Read
	}
	return nil
}
