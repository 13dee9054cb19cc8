package http1

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Pool holds idle connections to sites, most recently used first. It is safe for concurrent use.
type Pool struct {
	// Dial opens a connection without TLS. It bounds their number.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	TLS       *tls.Config   // for https, without name and protocols; nil for the default
	Handshake time.Duration // TLS handshake timeout

	MaxIdle        int           // connections in total
	MaxIdlePerSite int           //
	IdleFor        time.Duration // idle timeout

	mu     sync.Mutex
	idle   map[site][]*Conn // each from the oldest to the newest
	n      int
	tied   int // connections that are tied
	closed bool
}

// site is the destination of a connection.
type site struct{ scheme, host string }

// Conn is a connection to a site. One goroutine at a time uses it, but for Close.
type Conn struct {
	net.Conn
	to     site
	buf    []byte
	r, w   int // buf[r:w] is read and unused
	since  time.Time
	Reused bool // it was used before

	// By is the current deadline, or zero if unknown to the user of the connection, for whom it is.
	By time.Time

	once  bool            // it is not kept: see Reserved
	kept  bool            // not yet checked for silence
	raw   syscall.RawConn // nil if the system cannot check for silence
	peek  func(fd uintptr)
	quiet bool
	step  func(fd uintptr) bool // nil with TLS
	asked asked
}

// Reserved is a connection that only the request may use for which it was dialed, if Reserved reports so.
type Reserved interface{ Reserved() bool }

// asked is a request in progress.
type asked struct {
	text []byte
	n    int  // bytes sent
	out  bool // sending has begun
	err  error
}

// ErrStale is returned if the site closed an idle connection, or sent unsolicited bytes on it.
var ErrStale = errors.New("the connection has ended, or the site said something unasked")

const firstBuffer = 8 << 10

// New returns a new connection to the site at host, with or without a port. Errors are those of Dial and of TLS.
func (p *Pool) New(ctx context.Context, scheme, host string) (*Conn, error) {
	to := site{scheme, host}
	addr := host
	if _, _, err := net.SplitHostPort(host); err != nil {
		port := "80"
		if scheme == "https" {
			port = "443"
		}
		addr = net.JoinHostPort(strings.Trim(host, "[]"), port)
	}
	conn, err := p.Dial(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: conn, to: to, buf: make([]byte, firstBuffer)}
	if r, ok := conn.(Reserved); ok {
		c.once = r.Reserved()
	}
	c.watch(conn)
	if scheme == "https" {
		if err := p.secure(ctx, c, addr); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return c, nil
}

// Kept removes the newest idle connection to the site at host from the pool, and returns it for reuse: see [Conn.Ask].
// It returns nil for none.
func (p *Pool) Kept(scheme, host string) *Conn {
	to := site{scheme, host}
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.idle[to]
	if len(all) == 0 {
		return nil
	}
	c := all[len(all)-1]
	all[len(all)-1] = nil
	p.idle[to] = all[:len(all)-1]
	p.n--
	c.Reused, c.kept = true, true
	return c
}

// Tie keeps a connection for one user alone, after its last response was read completely, and reports whether it may:
// tied connections count among the idle ones. [Pool.Untie] ends it; [Conn.Again] comes before each further request.
func (p *Pool) Tie(c *Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || c.once || c.raw == nil || p.n+p.tied >= p.MaxIdle {
		return false
	}
	p.tied++
	return true
}

// Untie releases what Tie has counted. The caller closes the connection, or has given it away.
func (p *Pool) Untie() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tied--
}

// Again prepares a connection that was not in the pool for another request to the site at host, and reports whether it
// may carry it: it leads there, and nothing of the last response is left.
func (c *Conn) Again(scheme, host string) bool {
	if c.to != (site{scheme, host}) || c.w > c.r {
		return false
	}
	c.r, c.w, c.Reused, c.kept = 0, 0, true, true
	return true
}

// secure starts TLS on a connection. The site must speak HTTP/1.1 over it.
func (p *Pool) secure(ctx context.Context, c *Conn, addr string) error {
	t, err := StartTLS(ctx, c.Conn, p.TLS, addr, p.Handshake, "http/1.1")
	if err != nil {
		return err
	}
	c.Conn, c.step = t, nil
	return nil
}

// StartTLS starts TLS on a connection to addr, with a copy of base, nil for none, and one of the protocols. The
// handshake takes at most limit. After an error the caller closes conn.
func StartTLS(
	ctx context.Context, conn net.Conn, base *tls.Config, addr string, limit time.Duration, protocols ...string,
) (*tls.Conn, error) {
	cfg := &tls.Config{}
	if base != nil {
		cfg = base.Clone()
	}
	name, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	cfg.ServerName, cfg.NextProtos = name, protocols
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	t := tls.Client(conn, cfg)
	return t, t.HandshakeContext(ctx)
}

// Put returns a connection to the pool after its last response was read completely. It closes the connection if the
// site has sent more, or if the pool is full.
func (p *Pool) Put(c *Conn) {
	if c.w > c.r || !p.keep(c) {
		c.Close() // no pending data
	}
}

func (p *Pool) keep(c *Conn) bool {
	c.r, c.w, c.since = 0, 0, time.Now()
	if len(c.buf) > firstBuffer {
		c.buf = make([]byte, firstBuffer)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || c.once || c.raw == nil || p.n+p.tied >= p.MaxIdle || len(p.idle[c.to]) >= p.MaxIdlePerSite {
		return false
	}
	if p.idle == nil {
		p.idle = map[site][]*Conn{}
	}
	p.idle[c.to] = append(p.idle[c.to], c)
	p.n++
	return true
}

// Expire closes connections past the idle timeout. Call it periodically.
func (p *Pool) Expire(now time.Time) {
	var over []*Conn
	p.mu.Lock()
	for to, all := range p.idle {
		n := 0
		for n < len(all) && now.Sub(all[n].since) >= p.IdleFor {
			n++
		}
		over = append(over, all[:n]...)
		p.n -= n
		if p.idle[to] = append([]*Conn(nil), all[n:]...); len(p.idle[to]) == 0 {
			delete(p.idle, to)
		}
	}
	p.mu.Unlock()
	for _, c := range over {
		c.Close() // no pending data
	}
}

// Close closes idle connections, and all returned later.
func (p *Pool) Close() {
	p.mu.Lock()
	all := p.idle
	p.idle, p.n, p.closed = nil, 0, true
	p.mu.Unlock()
	for _, conns := range all {
		for _, c := range conns {
			c.Close() // no pending data
		}
	}
}

// Idle returns the number of idle connections.
func (p *Pool) Idle() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

// Ask sends a request and returns the bytes sent. Without TLS it also waits for the first response bytes and reads
// them. Errors are those of the connection, and [ErrStale]: nothing was sent on a reused connection.
func (c *Conn) Ask(b []byte) (int, error) {
	if c.step == nil {
		if c.kept && !c.silent() {
			return 0, ErrStale
		}
		c.kept = false
		return c.Write(b)
	}
	// Polling for bytes begins before the check for silence, and that before sending. So no byte is missed, and
	// bytes from before the request are not taken for its response.
	c.asked = asked{text: b}
	err := c.raw.Read(c.step)
	n := c.asked.n
	if err == nil {
		err = c.asked.err
	}
	c.asked = asked{}
	return n, err
}

// send is called with the file descriptor, and again when bytes may be available.
func (c *Conn) send(fd uintptr) bool {
	a := &c.asked
	n, none, err := try(fd, c.buf[c.w:])
	switch {
	case none && a.out:
		return false
	case none:
	case c.kept:
		a.err = ErrStale
		return true
	case err != nil:
		a.err = os.NewSyscallError("read", err)
		return true
	case n == 0:
		a.err = io.EOF
		return true
	}
	c.w += n
	if a.out {
		return true
	}
	c.kept, a.out = false, true
	a.n, a.err = c.Write(a.text)
	return a.err != nil || c.w > c.r
}

// Fill reads once more from the site, appending to the buffer. Errors are those of the connection, and [ErrAnswer]
// for a head that is too long.
func (c *Conn) Fill() error {
	if c.r > 0 && c.r == c.w {
		c.r, c.w = 0, 0
	}
	if c.w == len(c.buf) {
		if c.r > 0 {
			c.w = copy(c.buf, c.buf[c.r:c.w])
			c.r = 0
		} else if len(c.buf) >= MaxAnswerHead {
			return odd("the head is too long")
		} else {
			c.buf = append(c.buf, make([]byte, len(c.buf))...)
		}
	}
	n, err := c.Read(c.buf[c.w:])
	c.w += n
	if n > 0 {
		return nil // the error will come again
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// Buffered returns the read and unused bytes, valid until the next Fill.
func (c *Conn) Buffered() []byte { return c.buf[c.r:c.w] }

// Use consumes n buffered bytes.
func (c *Conn) Use(n int) { c.r += n }

// silent reports whether the site has sent nothing since its last response, and not closed the connection:
// unsolicited bytes would be taken for the next response.
func (c *Conn) silent() bool {
	if c.quiet = false; c.raw.Control(c.peek) != nil || !c.quiet {
		return false
	}
	if t, ok := c.Conn.(*tls.Conn); ok { // it may have read ahead
		var b [1]byte
		if t.SetReadDeadline(time.Unix(1, 0)) != nil {
			return false
		}
		n, err := t.Read(b[:])
		return n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && t.SetReadDeadline(time.Time{}) == nil
	}
	return true
}
