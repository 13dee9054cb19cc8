package edge

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"vestibule/internal/edge/front"
)

// A visitor that sends a body or reads an answer byte by byte holds a connection here and one at the origin. A total
// deadline would cut honest uploads and event streams, so the time without progress is bounded instead.

// patience bounds how long visitors may take.
type patience struct {
	header   time.Duration // for the rest of a request, and for an answer of the edge
	idle     time.Duration // for progress of a body or an answer
	draining *atomic.Bool
}

// patient returns w and r for the proxy: each read of the body and each write of the answer must make progress within
// the idle timeout. r is not the request of net/http, which looks at the body of that: it may expect 100-continue.
func (p *patience) patient(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, *http.Request) {
	if hasBody(r) {
		b := &patientBody{ReadCloser: r.Body, rc: http.NewResponseController(w), patience: p.idle, progress: progressOf(r)}
		b.until(time.Now().Add(b.patience)) // also if the origin answers without reading it
		r.Body = b
	}
	return &patientWriter{
		ResponseWriter: w, rc: http.NewResponseController(w), patience: p.idle, clear: r.ProtoMajor >= 2,
		draining: p.draining, progress: progressOf(r),
	}, r
}

// hurryRest bounds what is left of the request when the site has answered: net/http reads it before the next one.
func (p *patience) hurryRest(r *http.Request) {
	if b, ok := r.Body.(*patientBody); ok && !b.whole.Load() {
		b.rc.SetReadDeadline(time.Now().Add(p.header)) //nolint:errcheck // as in hurryBody
	}
}

// hurryBody bounds an answer of the edge itself: the rest of the request, which net/http reads before it answers, and
// the visitor's reading of the answer.
func (p *patience) hurryBody(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	end := time.Now().Add(p.header)
	if hasBody(r) {
		rc.SetReadDeadline(end) //nolint:errcheck // a writer without deadlines has no connection to tie up
	}
	rc.SetWriteDeadline(end) //nolint:errcheck // as above
}

// patientBody is the body of a request that net/http forwards. It is safe for concurrent use.
type patientBody struct {
	io.ReadCloser
	rc       *http.ResponseController
	patience time.Duration
	progress front.Progress
	pace     front.Pace
	whole    atomic.Bool // all of it was read
	broken   atomic.Bool // the visitor did not send all of it, which is no fault of the site

	mu     sync.Mutex
	closed bool // the connection may carry the next request already
}

func (b *patientBody) until(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.rc.SetReadDeadline(t) //nolint:errcheck // as in hurryBody
	}
}

func (b *patientBody) Read(p []byte) (int, error) {
	begun := time.Now()
	b.until(begun.Add(b.pace.Left(b.patience)))
	since := begun.Add(-b.pace.Lag())
	b.progress.Await(true, since)
	n, err := b.ReadCloser.Read(p)
	b.progress.Resume(true, since)
	b.pace.Add(n, time.Since(begun))
	switch {
	case err == io.EOF: // Read returns io.EOF itself
		// From here on net/http reads to notice the visitor's departure; a deadline would look like one.
		b.until(time.Time{})
		b.whole.Store(true)
	case err != nil && !errors.Is(err, http.ErrBodyReadAfterClose):
		b.broken.Store(true) // before the transport hears of it
	}
	return n, err
}

func (b *patientBody) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	return b.ReadCloser.Close()
}

type patientWriter struct {
	http.ResponseWriter
	rc       *http.ResponseController
	patience time.Duration
	progress front.Progress
	pace     front.Pace
	clear    bool // HTTP/2: the deadline ends the stream even without a write
	draining *atomic.Bool
}

func (w *patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader closes the connection after the answer while the edge drains; over HTTP/2, after its other streams.
func (w *patientWriter) WriteHeader(code int) {
	if code < http.StatusOK && code > http.StatusSwitchingProtocols && len(w.Header()) == 0 {
		return // a hint of nothing
	}
	if code >= http.StatusOK && w.draining.Load() {
		w.Header().Set("Connection", "close")
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *patientWriter) Write(p []byte) (n int, err error) {
	w.await(func() int {
		n, err = w.ResponseWriter.Write(p)
		return n
	})
	return n, err
}

func (w *patientWriter) FlushError() (err error) {
	w.await(func() int {
		err = w.rc.Flush()
		return 0
	})
	return err
}

// await calls write, which returns the bytes that the visitor took, within the visitor's patience.
func (w *patientWriter) await(write func() int) {
	begun := time.Now()
	w.rc.SetWriteDeadline(begun.Add(w.pace.Left(w.patience))) //nolint:errcheck // as in hurryBody
	since := begun.Add(-w.pace.Lag())
	w.progress.Await(true, since)
	n := write()
	w.progress.Resume(true, since)
	w.pace.Add(n, time.Since(begun))
	if w.clear { // net/http clears it after a request of HTTP/1.1
		w.rc.SetWriteDeadline(time.Time{}) //nolint:errcheck // as in hurryBody
	}
}
