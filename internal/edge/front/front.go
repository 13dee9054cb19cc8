// Package front is the fast HTTP front of an edge: it reads HTTP/1.1 itself, has each request decided by the gate, and
// answers it or passes it on to its site.
//
// One request, in the goroutine that owns its connection: conn.go reads the head, the gate decides, and answer.go
// writes the edge's answer, or trip.go asks the site and body.go passes the site's answer on. A request that it does not
// plainly know goes to net/http before anything is decided, with its connection (handover.go). A request that net/http
// read over HTTP/2 reaches its site by http2.go.
package front

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/edge/clientaddr"
	"vestibule/internal/edge/gate"
	"vestibule/internal/edge/http1"
	"vestibule/internal/edge/origin"
	"vestibule/internal/edge/sse"
)

// Connections keeps account of the connections of visitors. It is safe for concurrent use.
type Connections interface {
	// Close closes a connection or a listener, once or again.
	Close(c io.Closer)

	// State is [http.Server.ConnState]. The connection is one that a listener accepted, under TLS or handed over: see
	// [Socket].
	State(c net.Conn, s http.ConnState)
}

// Authorizer decides requests that a server in front of the site asks about.
type Authorizer interface {
	// Authorize decides the request that q asks about. The outcome enters or is answered, and never a stream. peer is the
	// server that asks; lines returns the lines of a header of its question.
	Authorize(ctx context.Context, q *gate.Request, o *gate.Outcome, peer netip.Addr, lines func(name string) []string)

	// AppendPermit appends the header of the answer to a request that enters.
	AppendPermit(dst []gate.Field, o *gate.Outcome) []gate.Field
}

// Prefaced is a connection whose Read may return bytes that were read from the socket before.
type Prefaced interface{ Prefaced() bool }

// Options are what a front is made of.
type Options struct {
	Gate        *gate.Gate
	Proxies     clientaddr.Proxies // whose X-Forwarded-For and X-Forwarded-Proto are believed
	Connections Connections
	Timeouts    Timeouts
	Draining    func() bool // the edge drains: each answer ends its connection
	Metrics     Metrics
	Log         *slog.Logger

	Pool    *http1.Pool // of connections to origins; closed by Shutdown
	Headers *origin.HeaderRules
	Monitor *origin.Monitor
	Buffers httputil.BufferPool

	// Patient returns a writer that bounds the time in which the visitor takes nothing of an answer of net/http.
	Patient func(w http.ResponseWriter, r *http.Request) http.ResponseWriter
}

// Timeouts bound how long a front waits.
type Timeouts struct {
	Header   time.Duration // for the head of a request, and for the visitor to take an answer of the edge
	Idle     time.Duration // for the next request, and for a body to make progress
	Response time.Duration // for an origin to begin its answer
}

// Metrics are what a front counts.
type Metrics struct {
	Requests   prometheus.Counter // of visitors, read here
	HandedOver prometheus.Counter // connections
	Panics     prometheus.Counter
}

// Front reads HTTP/1.1 itself. A goroutine owns a connection from the
// moment it is accepted. It reads a request, has it decided, and answers it or passes it
// on, all in that goroutine. What it does not plainly know it hands over to net/http
// before anything was decided, with the bytes that were read; the connection is
// net/http's from then on. So no request is decided twice, and none by two readers.
type Front struct {
	opts  Options
	works sync.Pool       // of *work
	base  context.Context // ends when everybody is cut off
	end   context.CancelFunc

	mu      sync.Mutex
	conns   map[*conn]struct{}
	ends    []net.Listener
	stopped bool
	open    sync.WaitGroup // connections, and what accepts them
}

// New returns a front that serves nothing yet.
func New(o Options) *Front {
	base, end := context.WithCancel(context.Background())
	return &Front{opts: o, base: base, end: end, conns: map[*conn]struct{}{}, works: sync.Pool{New: func() any { return &work{in: make([]byte, firstBuffer)} }}}
}

// Run closes connections to origins that are idle for too long, until ctx ends.
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

// Serve begins to serve what comes in at a listener, with TLS where cfg is not nil, and returns the listener of the
// connections that net/http is to serve. auth is nil where visitors come in, and not servers that ask about them.
func (f *Front) Serve(l net.Listener, cfg *tls.Config, auth Authorizer) net.Listener {
	to := newHandover(l.Addr(), f.opts.Connections)
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
			if err != nil { // no files are left, for a moment
				pause = min(max(2*pause, 5*time.Millisecond), time.Second)
				f.opts.Log.Warn("no connection is accepted for a moment", slog.Any("error", err))
				time.Sleep(pause)
				continue
			}
			pause = 0
			c := newConn(f, accepted, cfg, to, auth)
			f.mu.Lock()
			f.conns[c] = struct{}{}
			f.mu.Unlock()
			f.open.Go(func() {
				defer func() {
					f.mu.Lock()
					delete(f.conns, c)
					f.mu.Unlock()
				}()
				c.serve()
			})
		}
	})
	return to
}

// Shutdown closes the listeners and what is idle, and waits for the answers that are
// under way until ctx ends; then it cuts them off.
func (f *Front) Shutdown(ctx context.Context) {
	f.mu.Lock()
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
				c.cut()
			}
			f.mu.Unlock()
		case <-tick.C: // one may have been accepted just now
		}
	}
}

func (f *Front) closeIdle() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		if c.phase.CompareAndSwap(phaseIdle, phaseClosed) {
			f.close(c.conn)
		}
	}
}

func (f *Front) close(c io.Closer) { f.opts.Connections.Close(c) }
