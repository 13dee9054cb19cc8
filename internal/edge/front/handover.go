package front

import (
	"crypto/tls"
	"net"
	"sync"

	"vestibule/internal/edge/sse"
)

// handover is the listener from which net/http accepts the connections that are handed over.
type handover struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	over   Connections
}

func newHandover(addr net.Addr, all Connections) *handover {
	return &handover{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{}), over: all}
}

func (h *handover) put(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.closed:
		h.over.Close(c)
	}
}

// Accept implements [net.Listener].
func (h *handover) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (h *handover) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

// Addr implements [net.Listener].
func (h *handover) Addr() net.Addr { return h.addr }

// handed is a connection that was handed over, with the bytes that were read and not used.
type handed struct {
	net.Conn
	rest []byte
	tied net.Conn // to a site, for this connection alone; nil for none
}

// TakeTied returns the connection to a site that is for this one alone, once; nil for none.
func (h *handed) TakeTied() net.Conn {
	up := h.tied
	h.tied = nil
	return up
}

// Read implements [net.Conn].
func (h *handed) Read(b []byte) (int, error) {
	if len(h.rest) == 0 {
		return h.Conn.Read(b)
	}
	n := copy(b, h.rest)
	h.rest = h.rest[n:]
	return n, nil
}

// CloseWrite closes the writing side.
func (h *handed) CloseWrite() error {
	if c, ok := h.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

// Handed is a connection that the front gave to net/http, with bytes that the front had read.
type Handed interface {
	// Bare returns the connection without those bytes.
	Bare() net.Conn
	// Unread returns the number of those bytes that nobody has read again.
	Unread() int
}

// Bare implements [Handed].
func (h *handed) Bare() net.Conn { return h.Conn }

// Unread implements [Handed].
func (h *handed) Unread() int { return len(h.rest) }

// handedTLS is a handed connection with TLS.
type handedTLS struct {
	handed
	tls *tls.Conn
}

// ConnectionState returns the TLS state; net/http puts it into its requests.
func (h *handedTLS) ConnectionState() tls.ConnectionState { return h.tls.ConnectionState() }

// Socket returns the connection that the listener accepted: it removes TLS and the handover.
func Socket(c net.Conn) net.Conn {
	switch h := c.(type) {
	case *handed:
		c = h.Conn
	case *handedTLS:
		c = h.Conn
	}
	return sse.Socket(c)
}
