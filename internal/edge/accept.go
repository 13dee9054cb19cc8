package edge

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"vestibule/internal/edge/clientaddr"
	"vestibule/internal/edge/front"
)

type listener struct {
	*net.TCPListener
	passed  bool // by a supervisor, which keeps the socket open
	tls     bool
	handler http.Handler
	headers *proxyHeaders    // nil if connections have no PROXY header
	auth    front.Authorizer // nil for a listener of visitors, else that of authorization requests
	grpc    bool             // also serve HTTP/2 without TLS
}

// cappedListener accepts connections while the cap allows.
type cappedListener struct {
	listener
	all     *connections
	proxies clientaddr.Proxies
	last    *queued
}

// queued returns the connections left in the backlog of a stopped listener. It is safe for concurrent use.
type queued struct {
	mu      sync.Mutex
	conns   []*net.TCPConn // the backlog
	stopped bool           // the backlog is complete
	closed  chan struct{}
}

// Stop ends listening. Accept still returns the connections of the backlog, then waits until the listener is closed.
// At a socket of a supervisor the backlog waits for the next process.
func (l cappedListener) Stop() {
	l.last.mu.Lock()
	defer l.last.mu.Unlock()
	if l.passed {
		l.last.stopped = true
		if err := l.SetDeadline(time.Unix(1, 0)); err != nil { // ends a pending Accept
			l.all.log.Debug("the listener accepts connections until it is closed", slog.Any("error", err))
		}
		return
	}
	var err error
	if l.last.conns, l.last.stopped, err = stopListening(l.TCPListener); err != nil {
		l.all.log.Debug("connections that wait to be accepted are reset", slog.Any("error", err))
	}
}

// Close ends the listener. It is called once.
func (l cappedListener) Close() error {
	close(l.last.closed)
	return l.listener.Close()
}

// next returns a connection from the backlog of a stopped listener, or the error that ends it. For a stopped listener
// err says that the socket is invalid, which is the normal end.
func (q *queued) next(err error) (*net.TCPConn, error) {
	q.mu.Lock()
	if len(q.conns) > 0 {
		defer q.mu.Unlock()
		c := q.conns[0]
		q.conns = q.conns[1:]
		return c, nil
	}
	stopped := q.stopped
	q.mu.Unlock()
	if stopped {
		<-q.closed
		return nil, net.ErrClosed
	}
	return nil, err
}

// direct reports whether the peer of a connection is the visitor.
func (l cappedListener) direct(c *net.TCPConn) bool {
	peer := clientaddr.Peer(c.RemoteAddr().String())
	return l.auth == nil && !l.proxies.Trusts(peer) && (l.headers == nil || !l.headers.trusted.Trusts(peer))
}

// Accept returns the next connection within the limits. After an error other than [net.ErrClosed] the caller pauses and
// tries again.
func (l cappedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptTCP()
		if err != nil {
			c, err = l.last.next(err)
		}
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				l.all.noteUnaccepted(time.Now(), err)
			}
			return nil, err
		}
		if a, ok := l.auth.(*authServer); ok && !l.proxies.Trusts(clientaddr.Peer(c.RemoteAddr().String())) {
			a.gate.Count("refused_front")
			l.all.refuse(c, unlisted) // it takes no place of a visitor
			continue
		}
		if v := l.all.acquire(c, l.direct(c)); v != nil {
			if l.headers != nil {
				v.preface = &preface{rules: l.headers}
			}
			return v, nil
		}
		l.all.metrics.connectionsRefused.Inc()
		if l.tls {
			l.all.Close(c)
		} else {
			l.all.refuse(c, refused)
		}
	}
}
