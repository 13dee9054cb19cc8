package edge

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"vestibule/internal/gate"
	"vestibule/internal/http1"
	"vestibule/internal/live"
)

// Fronts that read the requests of visitors.
const (
	frontFast    = "fast"
	frontNetHTTP = "nethttp"
)

// fast is the front that reads HTTP/1.1 itself. A goroutine owns a connection from the
// moment it is accepted. It reads a request, has it decided, and answers it or passes it
// on, all in that goroutine. What it does not plainly know it hands over to net/http
// before anything was decided, with the bytes that were read; the connection is
// net/http's from then on. So no request is decided twice, and none by two readers.
type fast struct {
	*Server
	pool *http1.Pool
	base context.Context // ends when everybody is cut off
	end  context.CancelFunc

	mu      sync.Mutex
	conns   map[*fastConn]struct{}
	ends    []net.Listener
	stopped bool
	open    sync.WaitGroup // connections, and what accepts them
}

func newFast(s *Server, dials *originDials) *fast {
	n := cap(dials.places)
	base, end := context.WithCancel(context.Background())
	return &fast{
		Server: s, base: base, end: end, conns: map[*fastConn]struct{}{},
		pool: &http1.Pool{
			Dial: dials.DialContext, Handshake: originHandshake, MaxIdle: max(1, min(4096, n/2)), MaxIdlePerSite: min(512, n), IdleFor: originIdle,
		},
	}
}

// run closes connections to origins that are idle for too long, until ctx ends.
func (f *fast) run(ctx context.Context) {
	tick := time.NewTicker(originIdle / 6)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			f.pool.Expire(now)
		}
	}
}

// serve begins to serve what comes in at a listener; to serves what is handed over.
func (f *fast) serve(l net.Listener, cfg *tls.Config, to *handover) {
	if cfg != nil {
		l = live.Listener{Listener: l}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped {
		f.Server.conns.close(l)
		return
	}
	f.ends = append(f.ends, l)
	f.open.Go(func() {
		pause := time.Duration(0)
		for {
			conn, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // no files are left, for a moment
				pause = min(max(2*pause, 5*time.Millisecond), time.Second)
				f.log.Warn("no connection is accepted for a moment", slog.Any("error", err))
				time.Sleep(pause)
				continue
			}
			pause = 0
			c := newFastConn(f, conn, cfg, to)
			f.mu.Lock()
			f.conns[c] = struct{}{}
			f.mu.Unlock()
			f.open.Go(func() {
				defer func() {
					f.mu.Lock()
					delete(f.conns, c)
					f.mu.Unlock()
				}()
				c.serve()
			})
		}
	})
}

// shutDown closes the listeners and what is idle, and waits for the answers that are
// under way until ctx ends; then it cuts them off.
func (f *fast) shutDown(ctx context.Context) {
	f.mu.Lock()
	f.stopped = true
	for _, l := range f.ends {
		f.Server.conns.close(l)
	}
	f.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.open.Wait()
	}()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for cut := ctx.Done(); ; {
		f.closeIdle()
		select {
		case <-done:
			f.end()
			f.pool.Close()
			return
		case <-cut:
			cut = nil
			f.end()
			f.log.Warn("requests were cut off", slog.Any("error", ctx.Err()))
			f.mu.Lock()
			for c := range f.conns {
				c.cut()
			}
			f.mu.Unlock()
		case <-tick.C: // one may have been accepted just now
		}
	}
}

func (f *fast) closeIdle() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		if c.phase.CompareAndSwap(phaseIdle, phaseClosed) {
			f.Server.conns.close(c.conn)
		}
	}
}

// What a connection is about.
const (
	phaseIdle   = iota // nothing was read of a request
	phaseBusy          // a request was begun
	phaseClosed        // because the edge stops
)

// The longest body of a request that is read here; others are net/http's.
const maxFastBody = 16 << 10

// fastConn is one connection of a visitor. Its goroutine owns all but what is said
// otherwise.
type fastConn struct {
	f     *fast
	conn  net.Conn // with TLS where there is
	cfg   *tls.Config
	to    *handover
	peer  string
	phase atomic.Int32
	visit visit

	in      []byte
	r, w    int // what was read and not used is in[r:w]
	blanks  int // that may be skipped before the next request
	readBy  time.Time
	writeBy time.Time

	out    []byte // an answer, or a request for an origin
	begun  bool   // something of the answer was written
	req    http1.Request
	res    http1.Response
	ask    gate.Request
	values []string // of the lines that ask has
	lines  func(name string) []string
	told   []gate.Field
	chunks http1.Chunks
	unread int // bytes of the body that were not read
	trip   trip
}

func newFastConn(f *fast, conn net.Conn, cfg *tls.Config, to *handover) *fastConn {
	c := &fastConn{f: f, conn: conn, cfg: cfg, to: to, in: make([]byte, 4<<10)}
	c.visit.c = c
	c.lines = c.linesOf
	return c
}

// cut ends the connection whatever it is about. It may be called by anybody.
func (c *fastConn) cut() {
	c.phase.Store(phaseClosed)
	c.f.Server.conns.close(c.conn)
	c.visit.leave()
}

// serve serves a connection until it ends or is handed over.
func (c *fastConn) serve() {
	peer := c.conn.RemoteAddr() // reads a PROXY header, where one is due
	if c.cfg != nil && !c.greet() {
		return
	}
	c.peer = peer.String()
	for first := true; ; first = false {
		n, v := c.next(first)
		if v == http1.Odd {
			c.handOver()
			return
		}
		if v == http1.More {
			c.f.Server.conns.close(c.conn)
			return
		}
		length := int(max(c.req.Length, 0))
		if gate.Answers(c.req.Target) || c.req.Method == http.MethodOptions || length > maxFastBody {
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
		if c.r == c.w {
			c.r, c.w = 0, 0
		}
	}
}

// greet shakes hands over TLS, and reports whether the connection is to be served here.
// One that speaks HTTP/2, or does not get that far, is net/http's.
func (c *fastConn) greet() bool {
	t := tls.Server(c.conn, c.cfg)
	c.conn = t
	if t.SetDeadline(time.Now().Add(c.f.cfg.Timeouts.Header)) != nil {
		c.f.Server.conns.close(t)
		return false
	}
	if err := t.HandshakeContext(context.Background()); err != nil { // the deadline ends it
		c.f.log.Debug("TLS handshake", slog.Any("error", err))
		c.to.take(t) // it knows what to say to that
		return false
	}
	if t.SetDeadline(time.Time{}) != nil {
		c.f.Server.conns.close(t)
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
func (c *fastConn) next(first bool) (int, http1.Verdict) {
	c.req.Reset()
	patience := c.f.cfg.Timeouts.Header
	var limit time.Time // until when the head is to be there; none before its first byte
	c.skip()
	switch {
	case c.w > c.r: // it came with the request before
		if n, v := c.req.Parse(c.in[c.r:c.w]); v != http1.More {
			return n, v
		}
		limit = time.Now().Add(patience)
	case first:
		limit = time.Now().Add(patience)
	case !c.phase.CompareAndSwap(phaseBusy, phaseIdle):
		return 0, http1.More // it was cut off
	default:
		c.f.Server.conns.state(c.conn, http.StateIdle)
	}
	for {
		by, slack := limit, time.Duration(0)
		if by.IsZero() {
			idle := c.f.cfg.Timeouts.Idle
			by, slack = time.Now().Add(idle), idle/8
		}
		if !c.readUntil(by, slack) || !c.read() {
			return 0, http1.More
		}
		if c.phase.Load() != phaseBusy {
			if !c.phase.CompareAndSwap(phaseIdle, phaseBusy) {
				return 0, http1.More // it was closed in this moment
			}
			c.f.Server.conns.state(c.conn, http.StateActive)
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

// skip skips what some browsers of old send behind a form, as net/http does: up to four
// CR and LF.
func (c *fastConn) skip() {
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
func (c *fastConn) readUntil(limit time.Time, slack time.Duration) bool {
	if early := limit.Sub(c.readBy); early >= 0 && early < slack {
		return true
	}
	c.readBy = limit
	return c.conn.SetReadDeadline(limit) == nil
}

// read reads once more, behind what is there.
func (c *fastConn) read() bool {
	if c.w == len(c.in) {
		if c.r > 0 {
			c.w = copy(c.in, c.in[c.r:c.w])
			c.r = 0
		} else {
			c.in = append(c.in, make([]byte, len(c.in))...)
		}
	}
	n, err := c.conn.Read(c.in[c.w:])
	c.w += n
	return n > 0 || err == nil
}

// write sends to the visitor, who is to take it with so much patience.
func (c *fastConn) write(b []byte, patience time.Duration) bool {
	if left := time.Until(c.writeBy); left > patience || left < patience*7/8 {
		c.writeBy = time.Now().Add(patience)
		if c.conn.SetWriteDeadline(c.writeBy) != nil {
			return false
		}
	}
	c.begun = true
	_, err := c.conn.Write(b)
	if err != nil {
		c.f.log.Debug("answer to a visitor not written", slog.Any("error", err))
	}
	return err == nil
}

// handOver gives the connection to net/http, with what was read and not used.
func (c *fastConn) handOver() {
	c.f.metrics.handedOver.Inc()
	if c.conn.SetDeadline(time.Time{}) != nil {
		c.f.Server.conns.close(c.conn)
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
func (c *fastConn) end() {
	if e, ok := c.conn.(interface{ CloseWrite() error }); ok && (c.unread > 0 || c.w > c.r) && c.begun && e.CloseWrite() == nil {
		over := time.Now().Add(500 * time.Millisecond)
		for c.readUntil(over, 0) && c.read() {
			c.r, c.w = 0, 0
		}
	}
	c.f.Server.conns.close(c.conn)
}

// handle has one request decided, and does what the outcome says. It reports whether the
// connection goes on.
func (c *fastConn) handle(length int) (goesOn bool) {
	c.f.metrics.byFast.Inc()
	c.begun, c.unread = false, length
	o := c.f.gate.Begin()
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
	c.f.gate.Decide(&c.visit, &c.ask, o)
	switch o.Kind {
	case gate.Enters:
		goesOn = c.enter(o, length)
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
func (c *fastConn) question(body bool) {
	c.values = c.values[:0]
	c.ask = gate.Request{Host: c.req.Host, Target: c.req.Target, Method: c.req.Method, Body: body}
	c.f.fill(&c.ask, c.peer, c.cfg != nil, c.lines)
}

// linesOf returns the lines of a header, nil for none.
func (c *fastConn) linesOf(name string) []string {
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

// body reads the rest of the request, each piece of which is to come within patience.
func (c *fastConn) body(length int, patience time.Duration) bool {
	for c.w-c.r < length {
		if !c.readUntil(time.Now().Add(patience), patience/8) || !c.read() {
			return false
		}
	}
	c.unread = 0
	return true
}

// answer writes what the edge itself has to say. The body of the request is read over.
func (c *fastConn) answer(o *gate.Outcome, length int) bool {
	patience := c.f.cfg.Timeouts.Header
	ends := c.ends() || o.Close
	if c.body(length, patience) {
		c.r += length
	} else {
		ends = true
	}
	return c.say(o.Status, o.Header, o.Body, ends, patience) && !ends
}

// say writes an answer of the edge.
func (c *fastConn) say(status int, header []gate.Field, body []byte, ends bool, patience time.Duration) bool {
	b := appendStatus(c.out[:0], status)
	b = appendFields(b, header)
	b = appendDate(b)
	if ends {
		b = append(b, "Connection: close\r\n"...)
	}
	if status != http.StatusNoContent {
		b = appendLength(b, int64(len(body)))
	}
	b = append(b, "\r\n"...)
	if c.req.Method != http.MethodHead {
		b = append(b, body...)
	}
	c.out = b
	return c.write(b, patience)
}

// ends reports whether the connection ends with the answer.
func (c *fastConn) ends() bool { return c.req.Close || c.f.draining.Load() }

// broken answers a request that ended in a panic.
func (c *fastConn) broken(o *gate.Outcome, p any) {
	c.f.metrics.panics.Inc()
	c.f.log.Error("panic in a request", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
	if c.begun {
		return
	}
	header := append(o.Tickets(), gate.Field{Name: "Cache-Control", Value: "no-store"}, // a slot may have been charged: the visitor is to have it
		gate.Field{Name: "Content-Type", Value: "text/plain; charset=utf-8"}, gate.Field{Name: "X-Content-Type-Options", Value: "nosniff"})
	c.say(http.StatusInternalServerError, header, []byte("Something went wrong. Please try again.\n"), true, c.f.cfg.Timeouts.Header)
}

// visit is one request as a context: it ends when the visitor goes away. Nobody looks
// out for that before somebody asks: most are answered at once.
type visit struct {
	c *fastConn

	mu      sync.Mutex
	gone    chan struct{}
	left    bool
	open    bool        // somebody may begin to look out
	origin  *http1.Conn // is closed when the visitor goes away
	watched chan struct{}

	// Of who watches until watched is closed, then of the connection's goroutine.
	b [1]byte
	n int
}

var _ context.Context = (*visit)(nil)

// begin begins the next request.
func (v *visit) begin() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.gone == nil || v.left {
		v.gone = make(chan struct{})
	}
	v.left, v.open, v.origin = false, true, nil
}

// goOn lets somebody look out again, after end.
func (v *visit) goOn() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open = true
}

// leave notes that the visitor has gone away. It may be called by anybody.
func (v *visit) leave() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.left || v.gone == nil {
		return
	}
	v.left = true
	close(v.gone)
	if v.origin != nil {
		v.origin.Close() // whoever waits for it is told
	}
}

// hold has a connection to an origin closed when the visitor goes away; nil for none any
// more. It reports whether the visitor is there.
func (v *visit) hold(origin *http1.Conn) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.origin = origin
	return !v.left
}

// watch begins to look out, between begin and end. It is called by the connection's
// goroutine, and by whom it waits for.
func (v *visit) watch() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.open || v.watched != nil || v.left {
		return
	}
	v.c.readBy = time.Time{}
	if v.c.conn.SetReadDeadline(v.c.readBy) != nil {
		return
	}
	done := make(chan struct{})
	v.watched = done
	v.c.f.open.Go(func() {
		defer close(done)
		n, err := v.c.conn.Read(v.b[:])
		if v.n = n; err != nil && n == 0 && !isTimeout(err) {
			v.leave()
		}
	})
}

// end ends looking out. What the visitor has said meanwhile belongs to what follows.
func (v *visit) end() {
	v.mu.Lock()
	done := v.watched
	v.watched, v.origin, v.open = nil, nil, false
	v.mu.Unlock()
	if done == nil {
		return
	}
	c := v.c
	c.readBy = time.Unix(1, 0)
	if err := c.conn.SetReadDeadline(c.readBy); err != nil {
		c.f.log.Debug("deadline", slog.Any("error", err)) // it is closed, and so the read ends
	}
	<-done
	if v.n > 0 {
		c.in = append(c.in[:c.w], v.b[0])
		c.in = c.in[:cap(c.in)]
		c.w++
		v.n = 0
	}
}

func isTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

// Deadline implements [context.Context].
func (*visit) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value implements [context.Context].
func (*visit) Value(any) any { return nil }

// Done implements [context.Context].
func (v *visit) Done() <-chan struct{} {
	v.watch()
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.gone
}

// Err implements [context.Context].
func (v *visit) Err() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.left {
		return context.Canceled
	}
	return nil
}

// handover is where net/http finds the connections that are handed over to it.
type handover struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	over   *connections
}

func newHandover(addr net.Addr, all *connections) *handover {
	return &handover{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{}), over: all}
}

func (h *handover) take(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.closed:
		h.over.close(c)
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

// handed is a connection that was handed over, with what was read of it.
type handed struct {
	net.Conn
	rest []byte
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

// CloseWrite ends what is said to the visitor, who may go on.
func (h *handed) CloseWrite() error {
	if c, ok := h.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

// bare returns the connection as it was before, once all that was read of it is used.
func (h *handed) bare() (net.Conn, error) {
	if len(h.rest) > 0 {
		return nil, errors.New("the client goes on before it is answered")
	}
	return h.Conn, nil
}

// handedTLS is one with TLS, of which net/http is to know.
type handedTLS struct {
	handed
	tls *tls.Conn
}

// ConnectionState is what net/http tells of a request's TLS.
func (h *handedTLS) ConnectionState() tls.ConnectionState { return h.tls.ConnectionState() }

// unhanded returns the connection that was handed over, or conn itself.
func unhanded(conn net.Conn) net.Conn {
	switch h := conn.(type) {
	case *handed:
		return h.Conn
	case *handedTLS:
		return h.Conn
	}
	return conn
}

// appendStatus begins an answer.
func appendStatus(b []byte, status int) []byte {
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, ' ')
	b = append(b, http.StatusText(status)...)
	return append(b, "\r\n"...)
}

func appendFields(b []byte, fields []gate.Field) []byte {
	for i := range fields {
		b = appendField(b, fields[i].Name, fields[i].Value)
	}
	return b
}

// appendField appends a line of a header, and never two.
func appendField(b []byte, name, value string) []byte {
	b = append(b, name...)
	b = append(b, ": "...)
	if strings.ContainsAny(value, "\r\n") {
		value = strings.NewReplacer("\r", " ", "\n", " ").Replace(value)
	}
	b = append(b, value...)
	return append(b, "\r\n"...)
}

func appendLength(b []byte, n int64) []byte {
	b = append(b, "Content-Length: "...)
	b = strconv.AppendInt(b, n, 10)
	return append(b, "\r\n"...)
}

// date is the Date line of one second.
type date struct {
	second int64
	line   string
}

var lastDate atomic.Pointer[date]

func appendDate(b []byte) []byte {
	now := time.Now()
	d := lastDate.Load()
	if d == nil || d.second != now.Unix() {
		d = &date{now.Unix(), "Date: " + now.UTC().Format(http.TimeFormat) + "\r\n"}
		lastDate.Store(d)
	}
	return append(b, d.line...)
}
