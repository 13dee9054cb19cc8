package front

import (
	"crypto/tls"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"vestibule/internal/edge/http1"
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

func (h *handover) put(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.closed:
		h.over.Close(c)
	}
}

func (h *handover) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

func (h *handover) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

func (h *handover) Addr() net.Addr { return h.addr }

// handed is a connection that was handed over, with the bytes that were read and not used. A guard checks what net/http
// reads from it.
type handed struct {
	net.Conn
	rest   []byte
	tied   net.Conn // to a site, for this connection alone; nil for none
	guard  http1.Guard
	faulty bool        // the guard has found a fault: what the client sends from then on is dropped
	wrote  atomic.Bool // since the last read that brought something
	tunnel atomic.Bool // the connection is upgraded
}

// Guarded is a listener whose connections net/http may read.
type Guarded struct{ net.Listener }

// Accept implements [net.Listener].
func (l Guarded) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &handed{Conn: c}, nil
}

// Upgraded notes that what follows on the connection is not HTTP.
func (h *handed) Upgraded() { h.tunnel.Store(true) }

// TakeTied returns the connection to a site that is for this one alone, once; nil for none.
func (h *handed) TakeTied() net.Conn {
	up := h.tied
	h.tied = nil
	return up
}

func (h *handed) Read(b []byte) (int, error) {
	n, err := h.read(b)
	if n > 0 {
		h.wrote.Store(false)
	}
	if n == 0 || h.faulty || h.tunnel.Load() {
		return n, err
	}
	good, fault := h.guard.Next(b[:n])
	if fault == nil {
		return n, err
	}
	// An error would end the request before, which may be in progress.
	h.faulty, h.rest = true, unreadable
	if good == 0 {
		return h.read(b)
	}
	return good, nil
}

// unreadable is refused by net/http in any part of a head and between chunks. It ends no line that may be empty.
var unreadable = []byte("\x00\n\x00\n\x00\r\n\r\n")

func (h *handed) read(b []byte) (n int, err error) {
	if len(h.rest) > 0 {
		n = copy(b, h.rest)
		h.rest = h.rest[n:]
		return n, nil
	}
	for n, err = h.Conn.Read(b); h.faulty && err == nil; {
		n, err = h.Conn.Read(b)
	}
	if h.faulty {
		n = 0
	}
	return n, err
}

// CloseWrite closes the writing side.
func (h *handed) CloseWrite() error {
	if c, ok := h.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

func (h *handed) Write(b []byte) (int, error) {
	h.wrote.Store(true)
	return h.Conn.Write(b)
}

// Close closes the connection. Where an answer was written before the request was read, it waits for the visitor to
// take the answer: see [lingerFor].
func (h *handed) Close() error {
	if h.wrote.Swap(false) && !h.tunnel.Load() && (h.faulty || !h.guard.Between()) && h.CloseWrite() == nil &&
		h.SetReadDeadline(time.Now().Add(lingerFor)) == nil {
		io.Copy(io.Discard, h.Conn) //nolint:errcheck // the connection ends either way
	}
	return h.Conn.Close()
}

// Handed is a connection that the front gave to net/http, with bytes that the front had read.
type Handed interface {
	Upgraded()
	// Bare returns the connection without those bytes.
	Bare() net.Conn
	// Unread returns the number of those bytes that nobody has read again.
	Unread() int
}

func (h *handed) Bare() net.Conn { return h.Conn }

func (h *handed) Unread() int { return len(h.rest) }

// handedTLS is a handed connection with TLS.
type handedTLS struct {
	*handed
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
