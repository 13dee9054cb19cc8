package sse

import (
	"bytes"
	"crypto/tls"
	"net"
	"sync/atomic"
	"syscall"
)

// nonBlocking writes to a socket without blocking, and keeps the rest. So one goroutine can serve all clients.
type nonBlocking struct {
	raw  syscall.RawConn
	rest []byte // unwritten rest of a message
}

func newNonBlocking(conn net.Conn) (*nonBlocking, error) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return nil, syscall.EINVAL
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &nonBlocking{raw: raw}, nil
}

// send writes a message, which must not change afterwards. No rest of an earlier message may be left.
func (d *nonBlocking) send(msg []byte) error {
	n, err := writeNow(d.raw, msg)
	if d.rest = nil; n < len(msg) {
		d.rest = msg[n:]
	}
	return err
}

// flush writes the rest.
func (d *nonBlocking) flush() error {
	if len(d.rest) == 0 {
		return nil
	}
	return d.send(d.rest)
}

// Write is send for a TLS connection, which reuses its memory.
func (d *nonBlocking) Write(p []byte) (int, error) {
	if len(d.rest) > 0 {
		d.rest = append(d.rest, p...)
		return len(p), nil
	}
	if err := d.send(p); err != nil {
		return 0, err
	}
	d.rest = bytes.Clone(d.rest)
	return len(p), nil
}

// Listener accepts connections whose writes below TLS can become non-blocking.
type Listener struct{ net.Listener }

// Accept implements [net.Listener].
func (l Listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil || !CanTakeOver {
		return conn, err
	}
	return &rawConn{Conn: conn}, nil
}

// rawConn is the connection below TLS. Its writes block until made non-blocking.
type rawConn struct {
	net.Conn
	writer atomic.Pointer[nonBlocking]
}

func (c *rawConn) Write(p []byte) (int, error) {
	if w := c.writer.Load(); w != nil {
		return w.Write(p)
	}
	return c.Conn.Write(p)
}

// Socket returns the raw connection below conn if a [Listener] accepted it, or else conn.
func Socket(conn net.Conn) net.Conn {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	if c, ok := conn.(*rawConn); ok {
		conn = c.Conn
	}
	return conn
}

// Conn is a subscriber with a hijacked connection. It needs no goroutine.
type Conn struct {
	conn   net.Conn
	writer *nonBlocking
	tls    bool // messages go through conn, with non-blocking writes below
}

// TakeOver makes the writes of a connection non-blocking. A TLS connection must come from a [Listener].
func TakeOver(conn net.Conn) (*Conn, error) {
	p := &Conn{conn: conn}
	socket := conn
	var below *rawConn
	if t, ok := conn.(*tls.Conn); ok {
		if below, p.tls = t.NetConn().(*rawConn); !p.tls {
			return nil, syscall.EINVAL
		}
		socket = below.Conn
	}
	var err error
	if p.writer, err = newNonBlocking(socket); err != nil {
		return nil, err
	}
	if b, ok := socket.(interface{ SetWriteBuffer(bytes int) error }); ok {
		// A client that vanished silently is detected once this is full.
		if err := b.SetWriteBuffer(sendBuffer); err != nil {
			return nil, err
		}
	}
	if below != nil {
		below.writer.Store(p.writer)
	}
	return p, nil
}

// sendBuffer is the size of the socket buffer for a client that does not read.
const sendBuffer = 16 << 10

// Send implements [Subscriber].
func (p *Conn) Send(msg []byte) (skipped bool, err error) {
	if err := p.writer.flush(); err != nil {
		return false, err
	}
	switch {
	case len(p.writer.rest) > 0:
		return true, nil
	case p.tls:
		_, err := p.conn.Write(msg)
		return false, err
	}
	return false, p.writer.send(msg)
}

// Alive implements [Subscriber].
func (p *Conn) Alive() bool { return silent(p.writer.raw) }

// Close implements [Subscriber].
func (p *Conn) Close() { p.conn.Close() }
