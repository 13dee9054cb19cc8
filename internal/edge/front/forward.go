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
	if c.in.w-c.in.r < length {
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
	own := c.tied.take()
	c.trip = trip{
		opts: &c.f.opts, outcome: o, client: c.clientText, base: c.f.baseOf(o), visitor: &c.visit, own: own,
		tie: own != nil,
	}
	if c.f.opts.Proxies.Trusts(c.peer.Addr()) {
		c.trip.cannotTie = origin.ErrSharedLogin
	}
	defer c.endTrip()
	err := c.exchange(c.in.b[c.in.r : c.in.r+length])
	c.in.r += length
	switch {
	case err == nil:
		return c.forwardAnswer(&c.trip)
	case errors.Is(err, errVisitorLeft):
		return false
	}
	c.endVisit()
	o.Forwarded(0, 0)
	f := c.f.opts.Monitor.Failed(o.Origin, c.req.Host, err)
	ends := c.ends()
	return c.writeAnswer(f.Status, o.FailureHeader(c.req.Method, &f), []byte(f.Text), ends, c.f.opts.Timeouts.Idle) && !ends
}

// forwardAnswer sends the origin's answer to the visitor; its head is in res.
func (c *conn) forwardAnswer(x *trip) bool {
	x.opts.Monitor.Answered(x.outcome.Origin)
	x.outcome.Forwarded(c.res.Status, time.Since(x.asked))
	framing := c.res.Body(c.req.Method)
	ends := c.ends()
	c.out = c.answerHead(c.out[:0], framing, ends)
	var body bodyWriter = plainBody{c}
	if framing == http1.Chunked || framing == http1.ToTheEnd {
		body = chunkedBody{plainBody{c}}
	}
	whole, err := c.pass(framing, body)
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
		c.tied.up, x.up = x.up, nil
	}
	return !ends
}

// answerHead appends the head of the visitor's answer.
func (w *work) answerHead(b []byte, framing http1.Framing, ends bool) []byte {
	b = appendStatus(b, w.res.Status)
	if dated := w.eachField(func(name, value string) { b = appendField(b, name, value) }); !dated {
		b = appendDate(b)
	}
	if ends {
		b = append(b, "Connection: close\r\n"...)
	}
	switch {
	case framing == http1.Chunked || framing == http1.ToTheEnd:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	case w.res.Length >= 0 && w.res.Status != http.StatusNoContent:
		b = appendLength(b, w.res.Length)
	}
	return append(b, "\r\n"...)
}

// plainBody writes the body of an answer as it is.
type plainBody struct{ *conn }

func (c plainBody) add(b []byte, _ bool) error {
	c.out = append(c.out, b...)
	if len(c.out) >= smallBody {
		return c.flush()
	}
	return nil
}

func (c plainBody) flush() error {
	if len(c.out) > 0 && !c.output.write(c.trip.up != nil, c.f.opts.Timeouts.Idle, c.out) {
		return errVisitorLeft
	}
	c.out = c.out[:0]
	return nil
}

func (c plainBody) through(b []byte, _ bool) error {
	if !c.output.write(c.trip.up != nil, c.f.opts.Timeouts.Idle, b) {
		return errVisitorLeft
	}
	return nil
}

// chunkedBody writes the body of an answer in chunks of its own, without the extensions and trailers of the site.
type chunkedBody struct{ plainBody }

func (c chunkedBody) add(b []byte, last bool) error {
	if c.out = appendChunk(c.out, b); last {
		c.out = append(c.out, lastChunk...)
	}
	return nil
}
