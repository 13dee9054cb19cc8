package front

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"vestibule/internal/core/rules"
	"vestibule/internal/edge/clientaddr"
	"vestibule/internal/edge/gate"
	"vestibule/internal/edge/http1"
)

// serve serves a connection until it ends or is handed over. It owns the connection until then.
func (c *conn) serve() {
	defer func() {
		if p := recover(); p != nil { // outside of a request: handle answers those
			c.f.opts.panicked("connection", p)
		}
		if !c.given {
			c.f.close(c.conn)
		}
		if c.two == nil {
			c.forget()
		}
	}()
	peer := c.conn.RemoteAddr() // reads the PROXY header if one is expected
	if c.cfg != nil && !c.handshake() {
		return
	}
	c.visit.conn, c.output.conn = c.conn, c.conn
	if p, ok := c.conn.(Prefaced); ok && p.Prefaced() {
		c.from.Of(struct{ net.Conn }{c.conn})
	} else {
		c.from.Of(c.conn)
	}
	c.peer = clientaddr.Conn(peer.String())
	c.takeWork()
	defer c.freeWork()
	defer func() {
		if up := c.tied.take(); up != nil {
			up.Close() // nothing is in progress on it
		}
	}()
	if c.f.opts.HandsOver {
		c.handOver()
		return
	}
	for first := true; ; first = false {
		n, v := c.readHead(first)
		if v == http1.Odd {
			c.handOver()
			return
		}
		if v == http1.More {
			return
		}
		length := int(max(c.req.Length, 0))
		if gate.Answers(c.req.Target) || c.req.Method == http.MethodOptions || length > maxBody {
			c.handOver()
			return
		}
		c.in.r += n
		if c.blanks = 0; c.req.Method == http.MethodPost {
			c.blanks = 4
		}
		if !c.handle(length) {
			c.end()
			return
		}
	}
}

// handshake performs the TLS handshake, and reports whether serve goes on: not with HTTP/2. Failed handshakes go to
// net/http.
func (c *conn) handshake() bool {
	t := tls.Server(c.conn, c.cfg)
	c.conn = t
	if t.SetDeadline(time.Now().Add(c.f.opts.Timeouts.Header)) != nil {
		return false
	}
	if err := t.HandshakeContext(context.Background()); err != nil { // the deadline ends it
		c.f.opts.Log.Debug("TLS handshake", slog.Any("error", err))
		c.give(t) // net/http answers a client without TLS
		return false
	}
	if t.SetDeadline(time.Time{}) != nil {
		return false
	}
	state := t.ConnectionState()
	if c.secure = &state; state.NegotiatedProtocol == "h2" {
		if c.f.opts.HandsOver {
			c.give(t)
			return false
		}
		c.peer = clientaddr.Conn(t.RemoteAddr().String())
		if x := newH2(c, t); c.phase.CompareAndSwap(phaseIdle, phaseTwo) {
			x.run()
		} else {
			x.end() // Shutdown closed it just now
		}
		return false
	}
	return true
}

// handle has one request decided, and acts on the outcome. It reports whether the connection stays open.
func (c *conn) handle(length int) (goesOn bool) {
	c.output.begun, c.output.pace, c.unread = false, Pace{}, length
	c.output.progress.Begin()
	defer c.output.progress.End()
	o := c.f.opts.Gate.Begin()
	defer o.End()
	c.visit.next()
	defer func() {
		if p := recover(); p != nil {
			goesOn = false
			c.endVisit()
			c.answerPanic(o, p)
		}
	}()
	c.fillAsk("HTTP/1.1", length > 0, c.f.opts.Proxies, c.peer, c.secure)
	if c.auth != nil {
		if !c.auth.Authorize(&c.visit, &c.ask, o, c.peer.Addr(), c.lines) {
			c.endVisit()
			return false
		}
	} else {
		c.f.opts.Metrics.Requests.Inc()
		c.f.opts.Gate.Decide(&c.visit, &c.ask, o)
	}
	if c.auth == nil {
		c.output.progress.Identify(o.Client, o.Session())
	}
	switch o.Kind {
	case gate.Enters:
		if c.auth == nil {
			goesOn = c.forward(o, length)
			break
		}
		c.endVisit()
		c.fields = c.auth.AppendPermit(c.fields[:0], o)
		goesOn = c.reply(http.StatusOK, c.fields, nil, false, length)
	case gate.Answered:
		c.endVisit()
		if c.auth != nil {
			o.Header = withDecision(o.Header)
		}
		goesOn = c.reply(o.Status, o.Header, o.Body, o.Close, length)
	default:
		panic(fmt.Sprintf("fast front: an outcome of kind %d", o.Kind))
	}
	c.endVisit()
	return goesOn
}

// fillAsk fills ask from the head of the request.
func (w *work) fillAsk(
	version string, body bool, proxies clientaddr.Proxies, peer netip.AddrPort, secure *tls.ConnectionState,
) {
	w.ask = gate.Request{
		Host: w.req.Host, Target: w.req.Target, Method: w.req.Method, Body: body, Version: version,
		Lines: (*requestLines)(&w.req),
	}
	w.values, w.lengths = w.values[:0], 0
	for i := range w.req.Fields {
		w.lengths |= 1 << (len(w.req.Fields[i].Name) % 64)
	}
	w.ask.ReadHeader(proxies, peer, secure, w.lines)
}

// requestLines are the header fields of a request for rules.
type requestLines http1.Request

func (r *requestLines) AppendTo(out []rules.Header) []rules.Header {
	for i := range r.Fields {
		out = append(out, rules.Header(r.Fields[i]))
	}
	return out
}

// handOver gives the connection to net/http, with the bytes that were read and not used.
func (c *conn) handOver() {
	if !c.f.opts.HandsOver {
		c.f.opts.Metrics.HandedOver.Inc()
	}
	if c.conn.SetDeadline(time.Time{}) != nil {
		return
	}
	h := &handed{Conn: c.conn, rest: append([]byte(nil), c.in.b[c.in.r:c.in.w]...)}
	if up := c.tied.take(); up != nil {
		h.tied = up.Conn
	}
	if t, ok := c.conn.(*tls.Conn); ok {
		c.give(&handedTLS{h, t})
		return
	}
	c.give(h)
}

// give gives the connection to net/http, which owns it from then on.
func (c *conn) give(to net.Conn) {
	c.given = true
	c.to.put(to)
}
