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

	"vestibule/internal/edge/gate"
	"vestibule/internal/edge/http1"
)

// The phases of a connection.
const (
	phaseIdle   = iota // between two requests
	phaseBusy          // the first byte of a request was read
	phaseTwo           // HTTP/2
	phaseClosed        // by Shutdown
)

// maxBody is the longest body of a request, in bytes, that the front reads; net/http reads longer ones.
const maxBody = 16 << 10

// shared is what all connections of a front have in common.
type shared struct {
	opts    Options
	buffers buffers
	base    context.Context // ends when Shutdown cuts requests off

	sessions context.Context // base for requests with a session

	open    sync.WaitGroup // connections and accept loops
	readers readers
}

// baseOf returns the context of a request to a site.
func (s *shared) baseOf(o *gate.Outcome) context.Context {
	if o.Session() != 0 {
		return s.sessions
	}
	return s.base
}

func (s *shared) close(c io.Closer) { s.opts.Connections.Close(c) }

// conn is one connection of a visitor, or of a server that asks about visitors. Its goroutine owns all fields except
// phase, visit and accepted.
type conn struct {
	f    *shared
	conn net.Conn // a *tls.Conn if cfg is not nil

	accepted net.Conn // below conn; never changes

	cfg    *tls.Config
	secure *tls.ConnectionState // nil without TLS
	to     *handover
	auth   Authorizer // nil if the peer is a visitor
	peer   netip.AddrPort
	phase  atomic.Int32
	forget func() // is called at the end
	two    *h2    // nil for HTTP/1.1; set before phase says so
	visit  visit
	from   http1.Source

	*work         // may be nil between two requests
	output output // to the visitor
	rests  bool   // no byte of the next request was read
	blanks int    // CR and LF that may still be skipped before the next request
	given  bool   // net/http or two has the connection
	unread int    // bytes of the body still to read
	tied   tied

	client     netip.Addr // of the last request; clientText is its text
	clientText string
}

// takeWork takes the memory for a request, and returns the buffer to read into.
func (c *conn) takeWork() []byte {
	c.work = c.f.buffers.get()
	c.req.Reset()
	return c.in.b
}

// freeWork returns the memory of a request to the pool.
func (c *conn) freeWork() {
	if c.work != nil {
		c.f.buffers.put(c.work)
		c.work = nil
	}
}

func newConn(f *shared, accepted net.Conn, cfg *tls.Config, to *handover, auth Authorizer) *conn {
	c := &conn{
		f: f, forget: func() {}, conn: accepted, accepted: accepted, cfg: cfg, to: to, auth: auth,
		tied: tied{pool: f.opts.Pool},
	}
	c.output = output{progress: ProgressOf(accepted), timeouts: &f.opts.Timeouts, log: f.opts.Log}
	c.visit.all, c.visit.log, c.visit.output = &f.open, f.opts.Log, &c.output
	c.from.Waits, c.from.Room = c.onWait, c.takeWork
	return c
}

// abort closes the connection in any phase. Any goroutine may call it.
func (c *conn) abort() {
	c.phase.Store(phaseClosed)
	c.f.close(c.accepted)
	c.visit.setGone()
}

// readHead reads the head of the next request into req. It returns the length of the head; More means that the
// connection has ended.
func (c *conn) readHead(first bool) (int, http1.Verdict) {
	c.req.Reset()
	patience := c.f.opts.Timeouts.Header
	var limit time.Time // for the head; the zero time before its first byte
	if c.blanks = c.in.skip(c.blanks); c.in.r == c.in.w {
		c.in.r, c.in.w = 0, 0
	}
	switch {
	case c.in.w > c.in.r: // it was read with the last request
		if n, v := c.req.Parse(c.in.b[c.in.r:c.in.w]); v != http1.More {
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
				return 0, http1.More // Shutdown closed it just now
			}
			c.f.opts.Connections.State(c.conn, http.StateActive)
		}
		c.blanks = c.in.skip(c.blanks)
		if n, v := c.req.Parse(c.in.b[c.in.r:c.in.w]); v != http1.More {
			return n, v
		}
		if limit.IsZero() {
			limit = time.Now().Add(patience)
		}
	}
}

// onWait is called when a read would block. It reports whether the connection has released its buffer.
func (c *conn) onWait() bool {
	if !c.rests {
		return false
	}
	if c.phase.CompareAndSwap(phaseBusy, phaseIdle) {
		c.f.opts.Connections.State(c.conn, http.StateIdle)
	}
	if !c.from.Direct() {
		return false
	}
	c.freeWork()
	return true
}

// read appends the bytes of one read to the buffer, which is another one if the connection has released it.
func (c *conn) read() bool {
	n, err := c.from.Read(c.in.room())
	if c.work == nil { // it ended while it rested
		return false
	}
	c.in.w += n
	return n > 0 || err == nil
}

// endVisit stops watching the visitor. A byte that was read meanwhile is the first of the next bytes.
func (c *conn) endVisit() {
	if b, ok := c.visit.end(); ok {
		c.in.put(b)
	}
}

// lingerFor is how long a connection waits for the visitor to take the last bytes, if the visitor has sent more than was
// read: a close would reset the connection and drop them.
const lingerFor = 500 * time.Millisecond

// end closes a connection after an answer; it lingers if the visitor has sent more than was read.
func (c *conn) end() {
	if e, ok := c.conn.(interface{ CloseWrite() error }); ok && (c.unread > 0 || c.in.w > c.in.r) && c.output.begun &&
		e.CloseWrite() == nil {
		over := time.Now().Add(lingerFor)
		for c.visit.readUntil(over, 0) && c.read() {
			c.in.r, c.in.w = 0, 0
		}
	}
	c.f.close(c.conn)
}

// body reads the rest of the request. All of it must come within patience or, if wanted, each piece.
func (c *conn) body(length int, patience time.Duration, wanted bool) bool {
	if c.in.w-c.in.r >= length {
		c.unread = 0
		return true
	}
	for limit := time.Now().Add(patience); c.in.w-c.in.r < length; {
		begun, had := time.Now(), c.in.w-c.in.r
		if wanted {
			limit = begun.Add(c.output.pace.Left(patience))
		}
		since := begun.Add(-c.output.pace.Lag())
		c.output.progress.Await(false, since)
		ok := c.visit.readUntil(limit, patience/8) && c.read()
		c.output.progress.Resume(false, since)
		if !ok {
			return false
		}
		c.output.pace.Add(c.in.w-c.in.r-had, time.Since(begun))
	}
	c.unread = 0
	return true
}

// tied is a connection to a site for a visitor's connection alone.
type tied struct {
	pool *http1.Pool
	up   *http1.Conn // nil for none
}

// take returns the connection, nil for none.
func (t *tied) take() *http1.Conn {
	up := t.up
	if up != nil {
		t.pool.Untie()
		t.up = nil
	}
	return up
}

// output is the way to the visitor.
type output struct {
	conn     net.Conn
	progress Progress // of the accepted connection
	timeouts *Timeouts
	log      *slog.Logger
	pace     Pace // of the request
	by       time.Time
	begun    bool // a part of the answer was written
	pieces   [][]byte
	rest     net.Buffers // of pieces
}

// write sends one or two pieces to the visitor, within patience. With atSite the request holds a connection to a site.
func (c *output) write(atSite bool, patience time.Duration, b ...[]byte) bool {
	patience = c.pace.Left(patience)
	begun := time.Now()
	since := begun.Add(-c.pace.Lag())
	c.progress.Await(atSite, since)
	defer func() {
		c.progress.Resume(atSite, since)
		n := 0
		for _, piece := range b {
			n += len(piece)
		}
		c.pace.Add(n, time.Since(begun))
	}()
	if left := c.by.Sub(begun); left > patience || left < patience*7/8 {
		c.by = begun.Add(patience)
		if c.conn.SetWriteDeadline(c.by) != nil {
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
		c.log.Debug("answer to a visitor not written", slog.Any("error", err))
	}
	return err == nil
}
