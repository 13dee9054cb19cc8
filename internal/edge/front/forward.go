package front

import (
	"errors"
	"io"
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
	c.trip = trip{opts: &c.f.opts, outcome: o, client: c.clientText, base: c.f.baseOf(o), visitor: c, own: c.tied, tie: c.tied != nil}
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
	whole, err := answerBody{c, x.up}.pass(framing)
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

// answerBody copies the body of a site's answer from up to the visitor.
type answerBody struct {
	*conn
	up *http1.Conn
}

// pass sends out and then the body of the answer. whole reports whether the origin's connection holds nothing more
// of the answer. The error is errVisitorLeft, or a fault of the answer: the visitor has what came before it.
func (c answerBody) pass(framing http1.Framing) (whole bool, err error) {
	switch framing {
	case http1.NoBody:
		return true, c.writeOut()
	case http1.Counted:
		return true, c.counted(c.res.Length)
	case http1.Chunked:
		return true, c.chunked()
	default:
		return false, c.untilClose()
	}
}

// writeOut sends out and empties it. The error is errVisitorLeft.
func (c answerBody) writeOut() error {
	if len(c.out) > 0 && !c.write(c.f.opts.Timeouts.Idle, c.out) {
		return errVisitorLeft
	}
	c.out = c.out[:0]
	return nil
}

// fault sends what came before a fault of the answer, which it returns.
func (c answerBody) fault(err error) error {
	if lost := c.writeOut(); lost != nil {
		return lost
	}
	return err
}

// counted copies a body of left bytes.
func (c answerBody) counted(left int64) error {
	for {
		if len(c.up.Buffered()) == 0 {
			if left > smallBody {
				if err := c.writeOut(); err != nil {
					return err
				}
				return c.copyBody(c.up, left, func(b []byte) bool { return c.write(c.f.opts.Timeouts.Idle, b) })
			}
			if err := c.fill(c.up, time.Time{}); err != nil {
				return c.fault(err)
			}
		}
		b := c.up.Buffered()
		b = b[:min(int64(len(b)), left)]
		c.out = append(c.out, b...)
		c.up.Use(len(b))
		left -= int64(len(b))
		if left == 0 || len(c.out) >= smallBody {
			if err := c.writeOut(); err != nil || left == 0 {
				return err
			}
		}
	}
}

// chunked copies a body in chunks of its own, without the extensions and trailers of the site.
func (c answerBody) chunked() error {
	c.chunks = http1.Chunks{}
	for {
		for b := c.up.Buffered(); len(b) > 0 && !c.chunks.Done; b = c.up.Buffered() {
			data, n, err := c.chunks.Next(b)
			if err != nil {
				return c.fault(err)
			}
			c.out = appendChunk(c.out, data)
			c.up.Use(n)
		}
		if c.chunks.Done {
			c.out = append(c.out, lastChunk...)
			return c.writeOut()
		}
		if err := c.writeOut(); err != nil {
			return err
		}
		if err := c.fill(c.up, time.Time{}); err != nil {
			return err
		}
	}
}

// untilClose copies, in chunks, a body that ends with the origin's connection.
func (c answerBody) untilClose() error {
	for {
		b := c.up.Buffered()
		c.out = appendChunk(c.out, b)
		c.up.Use(len(b))
		if err := c.writeOut(); err != nil {
			return err
		}
		if err := c.fill(c.up, time.Time{}); errors.Is(err, io.EOF) {
			c.out = append(c.out, lastChunk...)
			return c.writeOut()
		} else if err != nil {
			return err
		}
	}
}
