// Package front is the fast HTTP front of an edge: it reads HTTP/1.1 itself, has each request decided by the gate,
// and answers it or passes it on to its site.
//
// One request, in the goroutine that owns its connection: conn.go reads the head, serve.go has it decided, and
// answer.go writes the edge's answer, or trip.go asks the site and forward.go passes the site's answer on. A
// request that is not plain HTTP/1.1 goes to net/http before anything is decided, with its connection (handover.go).
//
// HTTP/2: http2.go reads a connection, http2_frames.go obeys its frames, http2_head.go reads the head of a request, and
// http2_stream.go has it decided, and answers it or asks the site. A request that is not plain goes to net/http's
// handler (http2_handler.go).
package front

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"vestibule/internal/edge/origin"
	"vestibule/internal/edge/sse"
)

// Front reads HTTP/1.1 itself. A goroutine owns each connection: it reads a request, has it decided, and answers or
// forwards it. A connection whose next request is not plain goes to net/http with the bytes that were read, before
// that request is decided, and does not come back. So no request is decided twice, and none is read by two parsers.
type Front struct {
	shared
	end context.CancelFunc // of base

	mu      sync.Mutex
	conns   map[*conn]struct{}
	ends    []net.Listener
	stopped bool
}

// New returns a front that serves nothing yet.
func New(o Options) *Front {
	f := &Front{conns: map[*conn]struct{}{}}
	f.opts = o
	f.readers = readers{next: make(chan *h2), over: make(chan struct{})}
	f.base, f.end = context.WithCancel(context.Background())
	f.sessions = origin.WithSession(f.base)
	return f
}

// Run closes connections to origins that have been idle for too long, until ctx ends.
func (f *Front) Run(ctx context.Context) {
	tick := time.NewTicker(f.opts.Pool.IdleFor / 6)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			f.opts.Pool.Expire(now)
		}
	}
}

// Serve starts to serve the connections of a listener, with TLS if cfg is not nil, and returns the listener of the
// connections that net/http must serve. auth is nil if the peers are visitors, not servers that ask about them.
func (f *Front) Serve(l net.Listener, cfg *tls.Config, auth Authorizer) net.Listener {
	to := &handover{
		addr: l.Addr(), conns: make(chan net.Conn), closed: make(chan struct{}), over: f.opts.Connections,
	}
	if cfg != nil {
		l = sse.Listener{Listener: l}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped {
		f.close(l)
		return to
	}
	f.ends = append(f.ends, l)
	f.open.Go(func() {
		pause := time.Duration(0)
		for {
			accepted, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // no file descriptor is free: the listener logs it
				pause = min(max(2*pause, 5*time.Millisecond), time.Second)
				time.Sleep(pause)
				continue
			}
			pause = 0
			c := newConn(&f.shared, accepted, cfg, to, auth)
			c.forget = func() {
				f.mu.Lock()
				defer f.mu.Unlock()
				delete(f.conns, c)
			}
			f.mu.Lock()
			f.conns[c] = struct{}{}
			f.mu.Unlock()
			f.open.Go(c.serve)
		}
	})
	return to
}

// Shutdown closes the listeners and the idle connections, and waits until the answers in flight are written. When ctx
// ends it cuts those off.
func (f *Front) Shutdown(ctx context.Context) {
	f.mu.Lock()
	if !f.stopped {
		close(f.readers.over)
	}
	f.stopped = true
	for _, l := range f.ends {
		f.close(l)
	}
	f.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.open.Wait()
	}()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for cut := ctx.Done(); ; {
		f.closeIdle()
		select {
		case <-done:
			f.end()
			f.opts.Pool.Close()
			return
		case <-cut:
			cut = nil
			f.end()
			f.opts.Log.Warn("requests were cut off", slog.Any("error", ctx.Err()))
			f.mu.Lock()
			for c := range f.conns {
				c.abort()
			}
			f.mu.Unlock()
		case <-tick.C: // closes connections that were accepted or became idle meanwhile
		}
	}
}

func (f *Front) closeIdle() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		switch {
		case c.phase.CompareAndSwap(phaseIdle, phaseClosed):
			f.close(c.accepted)
		case c.phase.Load() == phaseTwo:
			c.two.shutDown()
		}
	}
}
