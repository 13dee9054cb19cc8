package front

import (
	"errors"
	"net/http"
	"time"

	"vestibule/internal/edge/clientaddr"
	"vestibule/internal/edge/gate"
	"vestibule/internal/edge/http1"
	"vestibule/internal/edge/origin"
)

// forward sends an admitted request to its site, once its body was read.
func (c *conn) forward(o *gate.Outcome, length int) bool {
	o.MustGo(gate.Enters, c.req.Target)
	if c.w-c.r < length {
		c.endVisit() // the next bytes are the body
		if !c.body(length, c.f.opts.Timeouts.Idle, true) {
			return false
		}
	}
	c.unread = 0
	c.visit.resume()
	if o.Client != c.client {
		c.client, c.clientText = o.Client, clientaddr.Text(o.Client)
	}
	c.trip = trip{
		opts: &c.f.opts, outcome: o, client: c.clientText, base: c.f.baseOf(o), visitor: c, own: c.tied, tie: c.tied != nil,
	}
	if c.tied != nil {
		c.f.opts.Pool.Untie()
		c.tied = nil
	}
	if c.f.opts.Proxies.Trusts(c.peer) {
		c.trip.cannotTie = origin.ErrSharedLogin
	}
	defer c.endTrip()
	err := c.exchange(c.in[c.r : c.r+length])
	c.r += length
	if err != nil {
		return c.failed(&c.trip, err)
	}
	return c.forwardAnswer(&c.trip)
}

// failed answers in place of an origin that did not.
func (c *conn) failed(x *trip, err error) bool {
	if errors.Is(err, errVisitorLeft) {
		return false
	}
	c.endVisit()
	x.outcome.Forwarded(0, 0)
	f := x.opts.Monitor.Failed(x.outcome.Origin, c.req.Host, err)
	ends := c.ends()
	return c.writeAnswer(f.Status, x.outcome.FailureHeader(&f), []byte(f.Text), ends, c.f.opts.Timeouts.Idle) && !ends
}

// forwardAnswer sends the origin's answer to the visitor; its head is in res.
func (c *conn) forwardAnswer(x *trip) bool {
	x.opts.Monitor.Answered(x.outcome.Origin)
	x.outcome.Forwarded(c.res.Status, time.Since(x.asked))
	framing := c.res.Body(c.req.Method)
	ends := c.ends()
	c.out = c.answerHead(c.out[:0], framing, ends)
	whole, err := c.pass(framing, c.bodyOf(framing))
	if err != nil {
		c.brokeOff(err)
		return false
	}
	there := c.visit.bind(nil) // otherwise the connection to the origin is closed
	c.endVisit()
	switch {
	case !whole || !there || c.res.Close || x.outcome.Alone:
	case !x.tie:
		x.opts.Pool.Put(x.up)
		x.up = nil
	case !ends && x.opts.Pool.Tie(x.up):
		c.tied, x.up = x.up, nil
	}
	return !ends
}

// answerHead appends the head of the visitor's answer.
func (c *conn) answerHead(b []byte, framing http1.Framing, ends bool) []byte {
	b = appendStatus(b, c.res.Status)
	if dated := c.eachField(func(name, value string) { b = appendField(b, name, value) }); !dated {
		b = appendDate(b)
	}
	if ends {
		b = append(b, "Connection: close\r\n"...)
	}
	switch {
	case framing == http1.Chunked || framing == http1.ToTheEnd:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	case c.res.Length >= 0 && c.res.Status != http.StatusNoContent:
		b = appendLength(b, c.res.Length)
	}
	return append(b, "\r\n"...)
}

// bind implements [visitor].
func (c *conn) bind(up *http1.Conn) bool { return c.visit.bind(up) }

// watch implements [visitor].
func (c *conn) watch() { c.visit.watch() }

// plainBody writes the body of an answer as it is.
type plainBody struct{ *conn }

// add implements [bodyWriter].
func (c plainBody) add(b []byte, _ bool) error {
	c.out = append(c.out, b...)
	if len(c.out) >= smallBody {
		return c.flush()
	}
	return nil
}

// flush implements [bodyWriter].
func (c plainBody) flush() error {
	if len(c.out) > 0 && !c.write(c.f.opts.Timeouts.Idle, c.out) {
		return errVisitorLeft
	}
	c.out = c.out[:0]
	return nil
}

// through implements [bodyWriter].
func (c plainBody) through(b []byte, _ bool) error {
	if !c.write(c.f.opts.Timeouts.Idle, b) {
		return errVisitorLeft
	}
	return nil
}

// chunkedBody writes the body of an answer in chunks of its own, without the extensions and trailers of the site.
type chunkedBody struct{ plainBody }

// add implements [bodyWriter].
func (c chunkedBody) add(b []byte, last bool) error {
	if c.out = appendChunk(c.out, b); last {
		c.out = append(c.out, lastChunk...)
	}
	return nil
}

// bodyOf returns the writer of the body of an answer.
func (c *conn) bodyOf(framing http1.Framing) bodyWriter {
	if framing == http1.Chunked || framing == http1.ToTheEnd {
		return chunkedBody{plainBody{c}}
	}
	return plainBody{c}
}
