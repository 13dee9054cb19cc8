package front

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"vestibule/internal/edge/http1"
)

// What a connection is about.
const (
	phaseIdle   = iota // nothing was read of a request
	phaseBusy          // a request was begun
	phaseClosed        // because the edge stops
)

// The longest body of a request that is read here; others are net/http's.
const maxBody = 16 << 10

// shared is what all connections of a front have in common.
type shared struct {
	opts  Options
	works works
	base  context.Context // ends when everybody is cut off
	open  sync.WaitGroup  // connections, and what accepts them
}

func (s *shared) close(c io.Closer) { s.opts.Connections.Close(c) }

// conn is one connection of a visitor, or of a server that asks about visitors. Its goroutine owns all but what is said
// otherwise.
type conn struct {
	f     *shared
	conn  net.Conn // with TLS where there is
	cfg   *tls.Config
	to    *handover
	auth  Authorizer // nil where a visitor is at the other end
	peer  netip.Addr
	phase atomic.Int32
	visit visit
	from  http1.Source
	lines func(name string) []string

	*work        // nil while nothing was read of a request
	rests   bool // nothing was
	r, w    int  // what was read and not used is in[r:w]
	blanks  int  // that may be skipped before the next request
	writeBy time.Time
	begun   bool // something of the answer was written
	unread  int  // bytes of the body that were not read

	client     netip.Addr // of the request before, and as text
	clientText string
}

// begin has the connection take what a request takes, and returns where to read to.
func (c *conn) begin() []byte {
	c.work = c.f.works.get()
	c.req.Reset()
	return c.in
}

// free gives back what a request takes.
func (c *conn) free() {
	if c.work != nil {
		c.f.works.put(c.work)
		c.work = nil
	}
}

func newConn(f *shared, accepted net.Conn, cfg *tls.Config, to *handover, auth Authorizer) *conn {
	c := &conn{f: f, conn: accepted, cfg: cfg, to: to, auth: auth}
	c.visit.all, c.visit.log = &f.open, f.opts.Log
	c.lines = c.linesOf
	c.from.Waits, c.from.Room = c.waits, c.begin
	return c
}

// cut ends the connection whatever it is about. It may be called by anybody.
func (c *conn) cut() {
	c.phase.Store(phaseClosed)
	c.f.close(c.conn)
	c.visit.leave()
}

// next reads the head of the next request into req. It returns the head's length; More
// tells that the connection has ended.
func (c *conn) next(first bool) (int, http1.Verdict) {
	c.req.Reset()
	patience := c.f.opts.Timeouts.Header
	var limit time.Time // until when the head is to be there; none before its first byte
	if c.skip(); c.r == c.w {
		c.r, c.w = 0, 0
	}
	switch {
	case c.w > c.r: // it came with the request before
		if n, v := c.req.Parse(c.in[c.r:c.w]); v != http1.More {
			return n, v
		}
		limit = time.Now().Add(patience)
	case first:
		limit, c.rests = time.Now().Add(patience), true
	default:
		c.rests = true
	}
	for {
		by, slack := limit, time.Duration(0)
		if by.IsZero() {
			idle := c.f.opts.Timeouts.Idle
			by, slack = time.Now().Add(idle), idle/8
		}
		if !c.visit.readUntil(by, slack) || !c.read() {
			return 0, http1.More
		}
		c.rests = false
		if c.phase.Load() != phaseBusy {
			if !c.phase.CompareAndSwap(phaseIdle, phaseBusy) {
				return 0, http1.More // it was closed in this moment
			}
			c.f.opts.Connections.State(c.conn, http.StateActive)
		}
		c.skip()
		if n, v := c.req.Parse(c.in[c.r:c.w]); v != http1.More {
			return n, v
		}
		if limit.IsZero() {
			limit = time.Now().Add(patience)
		}
	}
}

// waits is called where nothing has come yet of what is read. It reports whether the
// connection needs no memory meanwhile.
func (c *conn) waits() bool {
	if !c.rests {
		return false
	}
	if c.phase.CompareAndSwap(phaseBusy, phaseIdle) {
		c.f.opts.Connections.State(c.conn, http.StateIdle)
	}
	if !c.from.Direct() {
		return false
	}
	c.free()
	return true
}

// skip skips what some browsers of old send behind a form, as net/http does: up to four
// CR and LF.
func (c *conn) skip() {
	for c.blanks > 0 && c.r < c.w {
		if b := c.in[c.r]; b != '\r' && b != '\n' {
			c.blanks = 0
			return
		}
		c.r++
		c.blanks--
	}
}

// read reads once more, behind what is there.
func (c *conn) read() bool {
	if c.w == len(c.in) {
		if c.r > 0 {
			c.w = copy(c.in, c.in[c.r:c.w])
			c.r = 0
		} else {
			c.in = append(c.in, make([]byte, len(c.in))...)
		}
	}
	n, err := c.from.Read(c.in[c.w:])
	c.w += n
	return n > 0 || err == nil
}

// write sends one or two pieces to the visitor, who is to take them with so much patience.
func (c *conn) write(patience time.Duration, b ...[]byte) bool {
	if left := time.Until(c.writeBy); left > patience || left < patience*7/8 {
		c.writeBy = time.Now().Add(patience)
		if c.conn.SetWriteDeadline(c.writeBy) != nil {
			return false
		}
	}
	c.begun = true
	var err error
	if len(b) == 1 {
		_, err = c.conn.Write(b[0])
	} else {
		c.pieces = append(c.pieces[:0], b...)
		rest := &c.rest
		*rest = c.pieces
		_, err = rest.WriteTo(c.conn)
	}
	if err != nil {
		c.f.opts.Log.Debug("answer to a visitor not written", slog.Any("error", err))
	}
	return err == nil
}

// endVisit ends looking out for the visitor. A byte that was read meanwhile belongs to what follows.
func (c *conn) endVisit() {
	if b, ok := c.visit.end(); ok {
		c.in = append(c.in[:c.w], b)
		c.in = c.in[:cap(c.in)]
		c.w++
	}
}

// end ends a connection after an answer. Where the visitor has sent more than was read,
// it is waited for the visitor to take the answer: closing would take it away.
func (c *conn) end() {
	if e, ok := c.conn.(interface{ CloseWrite() error }); ok && (c.unread > 0 || c.w > c.r) && c.begun && e.CloseWrite() == nil {
		over := time.Now().Add(500 * time.Millisecond)
		for c.visit.readUntil(over, 0) && c.read() {
			c.r, c.w = 0, 0
		}
	}
	c.f.close(c.conn)
}

// linesOf returns the lines of a header, nil for none.
func (c *conn) linesOf(name string) []string {
	if c.lengths>>(len(name)%64)&1 == 0 {
		return nil
	}
	from := len(c.values)
	for i := range c.req.Fields {
		if f := &c.req.Fields[i]; f.Name == name {
			c.values = append(c.values, f.Value)
		}
	}
	if len(c.values) == from {
		return nil
	}
	return c.values[from:len(c.values):len(c.values)]
}

// body reads the rest of the request: all of it is to come within patience or, where a site waits for
// it, each piece.
func (c *conn) body(length int, patience time.Duration, wanted bool) bool {
	for limit := time.Now().Add(patience); c.w-c.r < length; {
		if wanted {
			limit = time.Now().Add(patience)
		}
		if !c.visit.readUntil(limit, patience/8) || !c.read() {
			return false
		}
	}
	c.unread = 0
	return true
}
