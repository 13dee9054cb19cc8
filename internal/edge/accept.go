package edge

import (
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"vestibule/internal/edge/front"
)

type listener struct {
	*net.TCPListener
	passed  bool // by a supervisor, which keeps it open
	tls     bool
	handler http.Handler
	headers *proxyHeaders    // nil where connections begin with none
	auth    front.Authorizer // nil where visitors come in, and not servers in front of the site that ask about them
	grpc    bool             // HTTP/2 without TLS is spoken too
}

// cappedListener accepts connections as long as there are places.
type cappedListener struct {
	listener
	all  *connections
	last *queued
}

// queued returns the connections left in the backlog of a stopped listener. It is safe for concurrent use.
type queued struct {
	mu      sync.Mutex
	conns   []*net.TCPConn // were waiting to be accepted
	stopped bool           // nobody else comes
	closed  chan struct{}
}

// Stop ends listening. Accept still returns the connections of the backlog, then waits until the listener is closed.
// At a socket of a supervisor the backlog waits for the next process.
func (l cappedListener) Stop() {
	l.last.mu.Lock()
	defer l.last.mu.Unlock()
	if l.passed {
		l.last.stopped = true
		if err := l.SetDeadline(time.Unix(1, 0)); err != nil { // ends an Accept that waits
			l.all.log.Debug("the listener goes on until it is closed", slog.Any("error", err))
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

func (l cappedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptTCP()
		if err != nil {
			c, err = l.last.next(err)
		}
		if err != nil {
			return nil, err
		}
		if v := l.all.take(c); v != nil {
			if l.headers != nil {
				v.preface = &preface{rules: l.headers}
			}
			return v, nil
		}
		l.all.refuse(c, l.tls)
	}
}
