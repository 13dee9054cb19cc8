package http1

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Pool keeps connections to sites that are idle, the one that was used last in front. It
// is safe for concurrent use.
type Pool struct {
	// Dial opens a connection without TLS. It bounds how many there are.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	TLS       *tls.Config   // for https, without name and protocols; nil for that of the standard library
	Handshake time.Duration // how long TLS may take

	MaxIdle        int           // connections in all
	MaxIdlePerSite int           //
	IdleFor        time.Duration // then they are closed

	mu     sync.Mutex
	idle   map[site][]*Conn // each from the oldest to the newest
	n      int
	closed bool
}

// site is whom a connection leads to.
type site struct{ scheme, host string }

// Conn is a connection to a site. It is used by one goroutine at a time, but for Close.
type Conn struct {
	net.Conn
	to     site
	buf    []byte
	r, w   int // what was read and not used is buf[r:w]
	since  time.Time
	Reused bool // it was used before

	// By is the deadline that is set, the zero time where whoever uses the connection does
	// not know; it is for them.
	By time.Time

	kept  bool            // nobody has looked yet whether it is silent
	raw   syscall.RawConn // nil where the system cannot tell whether it is silent
	peek  func(fd uintptr)
	quiet bool
	step  func(fd uintptr) bool // nil where there is TLS
	asked asked
}

// asked is a request on its way.
type asked struct {
	text []byte
	n    int  // of those were sent
	out  bool // it was begun
	err  error
}

// ErrStale says that a site has ended a connection that was kept, or has said something on it
// that nobody asked for.
var ErrStale = errors.New("the connection has ended, or the site said something unasked")

const firstBuffer = 8 << 10

// Get returns a connection to the site at host, with or without a port. It may be one
// that was used before, unless fresh: see [Conn.Ask]. Errors are those of Dial and of TLS.
func (p *Pool) Get(ctx context.Context, scheme, host string, fresh bool) (*Conn, error) {
	to := site{scheme, host}
	if !fresh {
		if c := p.take(to); c != nil {
			c.Reused, c.kept = true, true
			return c, nil
		}
	}
	addr := host
	if _, _, err := net.SplitHostPort(host); err != nil {
		port := "80"
		if scheme == "https" {
			port = "443"
		}
		addr = net.JoinHostPort(trimBrackets(host), port)
	}
	conn, err := p.Dial(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: conn, to: to, buf: make([]byte, firstBuffer)}
	c.watch(conn)
	if scheme == "https" {
		if err := p.secure(ctx, c, addr); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return c, nil
}

func trimBrackets(host string) string {
	if len(host) > 1 && host[0] == '[' && host[len(host)-1] == ']' {
		return host[1 : len(host)-1]
	}
	return host
}

// secure speaks TLS on a connection. The site must speak HTTP/1.1 over it.
func (p *Pool) secure(ctx context.Context, c *Conn, addr string) error {
	cfg := &tls.Config{}
	if p.TLS != nil {
		cfg = p.TLS.Clone()
	}
	name, _, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	cfg.ServerName, cfg.NextProtos = name, []string{"http/1.1"}
	ctx, cancel := context.WithTimeout(ctx, p.Handshake)
	defer cancel()
	t := tls.Client(c.Conn, cfg)
	if err := t.HandshakeContext(ctx); err != nil {
		return err
	}
	c.Conn, c.step = t, nil
	return nil
}

// take takes the newest idle connection to a site, nil for none.
func (p *Pool) take(to site) *Conn {
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
	return c
}

// Put gives a connection back whose last answer was read to its end. Where the site has
// said more, or there is no place, it is closed.
func (p *Pool) Put(c *Conn) {
	if c.w > c.r || !p.keep(c) {
		c.Close() // nobody waits for anything from it
	}
}

func (p *Pool) keep(c *Conn) bool {
	c.r, c.w, c.since = 0, 0, time.Now()
	if len(c.buf) > firstBuffer {
		c.buf = make([]byte, firstBuffer)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || c.raw == nil || p.n >= p.MaxIdle || len(p.idle[c.to]) >= p.MaxIdlePerSite {
		return false
	}
	if p.idle == nil {
		p.idle = map[site][]*Conn{}
	}
	p.idle[c.to] = append(p.idle[c.to], c)
	p.n++
	return true
}

// Expire closes the connections that have been idle for too long. It is to be called from
// time to time.
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
		c.Close() // nobody waits for anything from it
	}
}

// Close closes what is idle, and whatever is given back from now on.
func (p *Pool) Close() {
	p.mu.Lock()
	all := p.idle
	p.idle, p.n, p.closed = nil, 0, true
	p.mu.Unlock()
	for _, conns := range all {
		for _, c := range conns {
			c.Close() // nobody waits for anything from it
		}
	}
}

// Idle returns how many connections are idle.
func (p *Pool) Idle() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

// Ask sends a request, and returns how much of it was sent. Without TLS it also waits for the first
// bytes that follow, and reads them. Errors are those of the connection, and [ErrStale]: nothing was
// sent on a connection that was kept.
func (c *Conn) Ask(b []byte) (int, error) {
	if c.step == nil {
		if c.kept && !c.silent() {
			return 0, ErrStale
		}
		c.kept = false
		return c.Write(b)
	}
	// The system is asked to tell of what comes before it is looked whether there is something,
	// and that before the request is sent. So nothing that comes is missed, and what there is
	// before the request is no answer to it.
	c.asked = asked{text: b}
	err := c.raw.Read(c.step)
	n := c.asked.n
	if err == nil {
		err = c.asked.err
	}
	c.asked = asked{}
	return n, err
}

// send is called with the file descriptor, and again when something may have come.
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

// Fill reads once more from the site, behind what is there. Errors are those of the
// connection, and [ErrAnswer] where a head does not end.
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
		return nil // the error comes again
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// Buffered returns what was read and not used. It is valid until the next Fill.
func (c *Conn) Buffered() []byte { return c.buf[c.r:c.w] }

// Use takes n bytes of what is buffered.
func (c *Conn) Use(n int) { c.r += n }

// silent reports whether the site has said nothing since its last answer, and has not
// ended the connection: what it says unasked would be taken for the next answer.
func (c *Conn) silent() bool {
	if c.quiet = false; c.raw.Control(c.peek) != nil || !c.quiet {
		return false
	}
	if t, ok := c.Conn.(*tls.Conn); ok { // it may have read more than it gave
		var b [1]byte
		if t.SetReadDeadline(time.Unix(1, 0)) != nil {
			return false
		}
		n, err := t.Read(b[:])
		return n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && t.SetReadDeadline(time.Time{}) == nil
	}
	return true
}
