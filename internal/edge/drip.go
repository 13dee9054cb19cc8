package edge

import (
	"bytes"
	"crypto/tls"
	"net"
	"sync/atomic"
	"syscall"
)

// drip writes to a socket what that takes without waiting, and keeps the rest.
// So one goroutine can write to everybody, and nobody makes it wait.
type drip struct {
	raw  syscall.RawConn
	rest []byte // of one message, not written yet
}

func newDrip(conn net.Conn) (*drip, error) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return nil, syscall.EINVAL
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &drip{raw: raw}, nil
}

// send writes a message, which must not change any more. It is to be called
// where nothing is left of the one before.
func (d *drip) send(msg []byte) error {
	n, err := writeNow(d.raw, msg)
	if d.rest = nil; n < len(msg) {
		d.rest = msg[n:]
	}
	return err
}

// flush writes what is left.
func (d *drip) flush() error {
	if len(d.rest) == 0 {
		return nil
	}
	return d.send(d.rest)
}

// Write is send for a TLS connection, which uses its memory again.
func (d *drip) Write(p []byte) (int, error) {
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

// patientListener accepts connections that can be made to drip below their TLS.
type patientListener struct{ net.Listener }

func (l patientListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil || !canDrip {
		return conn, err
	}
	return &drippingConn{Conn: conn}, nil
}

// drippingConn is a connection whose writes wait, until it is told to drip.
type drippingConn struct {
	net.Conn
	drip atomic.Pointer[drip]
}

func (c *drippingConn) Write(p []byte) (int, error) {
	if d := c.drip.Load(); d != nil {
		return d.Write(p)
	}
	return c.Conn.Write(p)
}

// pipe is the way out to a client whose connection the edge took over.
type pipe struct {
	conn net.Conn
	drip *drip
	tls  bool // messages go through conn, which drips below
}

// newPipe makes a connection drip.
func newPipe(conn net.Conn) (*pipe, error) {
	p := &pipe{conn: conn}
	socket := conn
	var below *drippingConn
	if t, ok := conn.(*tls.Conn); ok {
		if below, p.tls = t.NetConn().(*drippingConn); !p.tls {
			return nil, syscall.EINVAL
		}
		socket = below.Conn
	}
	var err error
	if p.drip, err = newDrip(socket); err != nil {
		return nil, err
	}
	if tcp, ok := socket.(*net.TCPConn); ok {
		// A reader that went away without a word is noticed once this is full.
		if err := tcp.SetWriteBuffer(sendBuffer); err != nil {
			return nil, err
		}
	}
	if below != nil {
		below.drip.Store(p.drip)
	}
	return p, nil
}

// sendBuffer is what the system keeps for a client that does not read.
const sendBuffer = 16 << 10

// send implements [outlet].
func (p *pipe) send(msg []byte) (skipped bool, err error) {
	if err := p.drip.flush(); err != nil {
		return false, err
	}
	switch {
	case len(p.drip.rest) > 0:
		return true, nil
	case p.tls:
		_, err := p.conn.Write(msg)
		return false, err
	}
	return false, p.drip.send(msg)
}

// alive implements [outlet].
func (p *pipe) alive() bool { return silent(p.drip.raw) }

// end implements [outlet].
func (p *pipe) end() { p.conn.Close() }
