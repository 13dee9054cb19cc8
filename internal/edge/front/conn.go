package front

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"vestibule/internal/core/rules"
	"vestibule/internal/edge/clientaddr"
	"vestibule/internal/edge/gate"
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

// conn is one connection of a visitor, or of a server that asks about visitors. Its goroutine owns all but what is said
// otherwise.
type conn struct {
	f     *Front
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
	readBy  time.Time
	writeBy time.Time
	begun   bool // something of the answer was written
	unread  int  // bytes of the body that were not read

	client     netip.Addr // of the request before, and as text
	clientText string
}

// work is the memory that a request takes. It is used by one connection at a time.
type work struct {
	in      []byte
	out     []byte // an answer, or a request for an origin
	pieces  [][]byte
	rest    net.Buffers // of pieces
	req     http1.Request
	res     http1.Response
	ask     gate.Request
	values  []string // of the lines that ask has
	lengths uint64   // of the names that there are, as bits
	told    []gate.Field
	chunks  http1.Chunks
	trip    trip
}

// The buffers that are kept for the next request.
const (
	firstBuffer = 4 << 10
	keptBuffer  = 16 << 10
)

// begin has the connection take what a request takes, and returns where to read to.
func (c *conn) begin() []byte {
	c.work = c.f.works.Get().(*work)
	c.req.Reset()
	return c.in
}

// free gives back what a request takes.
func (c *conn) free() {
	if c.work != nil {
		c.f.takeBack(c.work)
		c.work = nil
	}
}

// takeBack takes the memory of a request for the next.
func (f *Front) takeBack(w *work) {
	if len(w.in) > firstBuffer {
		w.in = make([]byte, firstBuffer)
	}
	if cap(w.out) > keptBuffer {
		w.out = nil
	}
	f.works.Put(w)
}

func newConn(f *Front, accepted net.Conn, cfg *tls.Config, to *handover, auth Authorizer) *conn {
	c := &conn{f: f, conn: accepted, cfg: cfg, to: to, auth: auth}
	c.visit.c = c
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

// serve serves a connection until it ends or is handed over.
func (c *conn) serve() {
	peer := c.conn.RemoteAddr() // reads a PROXY header, where one is due
	if c.cfg != nil && !c.greet() {
		return
	}
	if p, ok := c.conn.(Prefaced); ok && p.Prefaced() {
		c.from.Of(struct{ net.Conn }{c.conn})
	} else {
		c.from.Of(c.conn)
	}
	c.peer = clientaddr.Peer(peer.String())
	c.begin()
	defer c.free()
	for first := true; ; first = false {
		n, v := c.next(first)
		if v == http1.Odd {
			c.handOver()
			return
		}
		if v == http1.More {
			c.f.close(c.conn)
			return
		}
		length := int(max(c.req.Length, 0))
		if gate.Answers(c.req.Target) || c.req.Method == http.MethodOptions || length > maxBody {
			c.handOver()
			return
		}
		c.r += n
		if c.blanks = 0; c.req.Method == http.MethodPost {
			c.blanks = 4
		}
		if !c.handle(length) {
			c.end()
			return
		}
	}
}

// greet shakes hands over TLS, and reports whether the connection is to be served here.
// One that speaks HTTP/2, or does not get that far, is net/http's.
func (c *conn) greet() bool {
	t := tls.Server(c.conn, c.cfg)
	c.conn = t
	if t.SetDeadline(time.Now().Add(c.f.opts.Timeouts.Header)) != nil {
		c.f.close(t)
		return false
	}
	if err := t.HandshakeContext(context.Background()); err != nil { // the deadline ends it
		c.f.opts.Log.Debug("TLS handshake", slog.Any("error", err))
		c.to.take(t) // it knows what to say to that
		return false
	}
	if t.SetDeadline(time.Time{}) != nil {
		c.f.close(t)
		return false
	}
	if t.ConnectionState().NegotiatedProtocol == "h2" {
		c.to.take(t)
		return false
	}
	return true
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
		if !c.readUntil(by, slack) || !c.read() {
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

// readUntil bounds the next read. What is set already is left where it is earlier by
// slack at most: setting it takes time.
func (c *conn) readUntil(limit time.Time, slack time.Duration) bool {
	if early := limit.Sub(c.readBy); early >= 0 && early < slack {
		return true
	}
	c.readBy = limit
	return c.conn.SetReadDeadline(limit) == nil
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

// handOver gives the connection to net/http, with what was read and not used.
func (c *conn) handOver() {
	c.f.opts.Metrics.HandedOver.Inc()
	if c.conn.SetDeadline(time.Time{}) != nil {
		c.f.close(c.conn)
		return
	}
	h := handed{Conn: c.conn, rest: append([]byte(nil), c.in[c.r:c.w]...)}
	if t, ok := c.conn.(*tls.Conn); ok {
		c.to.take(&handedTLS{h, t})
		return
	}
	c.to.take(&h)
}

// end ends a connection after an answer. Where the visitor has sent more than was read,
// it is waited for the visitor to take the answer: closing would take it away.
func (c *conn) end() {
	if e, ok := c.conn.(interface{ CloseWrite() error }); ok && (c.unread > 0 || c.w > c.r) && c.begun && e.CloseWrite() == nil {
		over := time.Now().Add(500 * time.Millisecond)
		for c.readUntil(over, 0) && c.read() {
			c.r, c.w = 0, 0
		}
	}
	c.f.close(c.conn)
}

// handle has one request decided, and does what the outcome says. It reports whether the
// connection goes on.
func (c *conn) handle(length int) (goesOn bool) {
	c.begun, c.unread = false, length
	o := c.f.opts.Gate.Begin()
	defer o.End()
	c.visit.begin()
	defer func() {
		if p := recover(); p != nil {
			goesOn = false
			c.visit.end()
			c.broken(o, p)
		}
	}()
	c.question(length > 0)
	if c.auth != nil {
		c.auth.Authorize(&c.visit, &c.ask, o, c.peer, c.lines)
	} else {
		c.f.opts.Metrics.Requests.Inc()
		c.f.opts.Gate.Decide(&c.visit, &c.ask, o)
	}
	switch o.Kind {
	case gate.Enters:
		if c.auth == nil {
			goesOn = c.enter(o, length)
			break
		}
		c.visit.end()
		c.told = c.auth.AppendPermit(c.told[:0], o)
		goesOn = c.reply(http.StatusOK, c.told, nil, false, length)
	case gate.Answered:
		c.visit.end()
		goesOn = c.answer(o, length)
	default:
		panic(fmt.Sprintf("fast front: an outcome of kind %d", o.Kind))
	}
	c.visit.end()
	return goesOn
}

// question fills in what the request is decided by.
func (c *conn) question(body bool) {
	c.values, c.lengths = c.values[:0], 0
	for i := range c.req.Fields {
		c.lengths |= 1 << (len(c.req.Fields[i].Name) % 64)
	}
	c.ask = gate.Request{Host: c.req.Host, Target: c.req.Target, Method: c.req.Method, Body: body, Version: "HTTP/1.1", Lines: (*requestLines)(&c.req)}
	c.ask.ReadHeader(c.f.opts.Proxies, c.peer, c.cfg != nil, c.lines)
}

// requestLines are the lines of a request as rules ask for them.
type requestLines http1.Request

// AppendTo implements [gate.HeaderLines].
func (r *requestLines) AppendTo(out []rules.Header) []rules.Header {
	for i := range r.Fields {
		out = append(out, rules.Header(r.Fields[i]))
	}
	return out
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
		if !c.readUntil(limit, patience/8) || !c.read() {
			return false
		}
	}
	c.unread = 0
	return true
}
