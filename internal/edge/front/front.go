package edge

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"vestibule/internal/edge/http1"
	"vestibule/internal/edge/sse"
)

// Fronts that read the requests of visitors.
const (
	frontFast    = "fast"
	frontNetHTTP = "nethttp"
)

// fast is the front that reads HTTP/1.1 itself. A goroutine owns a connection from the
// moment it is accepted. It reads a request, has it decided, and answers it or passes it
// on, all in that goroutine. What it does not plainly know it hands over to net/http
// before anything was decided, with the bytes that were read; the connection is
// net/http's from then on. So no request is decided twice, and none by two readers.
type fast struct {
	*Server
	pool  *http1.Pool
	works sync.Pool       // of *work
	base  context.Context // ends when everybody is cut off
	end   context.CancelFunc

	mu      sync.Mutex
	conns   map[*fastConn]struct{}
	ends    []net.Listener
	stopped bool
	open    sync.WaitGroup // connections, and what accepts them
}

func newFast(s *Server, dials *originDials) *fast {
	n := cap(dials.places)
	base, end := context.WithCancel(context.Background())
	return &fast{
		Server: s, base: base, end: end, conns: map[*fastConn]struct{}{}, works: sync.Pool{New: func() any { return &work{in: make([]byte, firstBuffer)} }},
		pool: &http1.Pool{
			Dial: dials.DialContext, Handshake: originHandshake, MaxIdle: max(1, min(4096, n/2)), MaxIdlePerSite: min(512, n), IdleFor: originIdle,
		},
	}
}

// run closes connections to origins that are idle for too long, until ctx ends.
func (f *fast) run(ctx context.Context) {
	tick := time.NewTicker(originIdle / 6)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			f.pool.Expire(now)
		}
	}
}

// serve begins to serve what comes in at a listener; to serves what is handed over. asks is nil
// where visitors come in, and not servers that ask about them.
func (f *fast) serve(l net.Listener, cfg *tls.Config, to *handover, asks *front) {
	if cfg != nil {
		l = sse.Listener{Listener: l}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped {
		f.Server.conns.close(l)
		return
	}
	f.ends = append(f.ends, l)
	f.open.Go(func() {
		pause := time.Duration(0)
		for {
			conn, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // no files are left, for a moment
				pause = min(max(2*pause, 5*time.Millisecond), time.Second)
				f.log.Warn("no connection is accepted for a moment", slog.Any("error", err))
				time.Sleep(pause)
				continue
			}
			pause = 0
			c := newFastConn(f, conn, cfg, to, asks)
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
}

// shutDown closes the listeners and what is idle, and waits for the answers that are
// under way until ctx ends; then it cuts them off.
func (f *fast) shutDown(ctx context.Context) {
	f.mu.Lock()
	f.stopped = true
	for _, l := range f.ends {
		f.Server.conns.close(l)
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
			f.pool.Close()
			return
		case <-cut:
			cut = nil
			f.end()
			f.log.Warn("requests were cut off", slog.Any("error", ctx.Err()))
			f.mu.Lock()
			for c := range f.conns {
				c.cut()
			}
			f.mu.Unlock()
		case <-tick.C: // one may have been accepted just now
		}
	}
}

func (f *fast) closeIdle() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		if c.phase.CompareAndSwap(phaseIdle, phaseClosed) {
			f.Server.conns.close(c.conn)
		}
	}
}
