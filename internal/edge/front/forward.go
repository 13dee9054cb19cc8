package front

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"vestibule/internal/edge/clientaddr"
	"vestibule/internal/edge/gate"
	"vestibule/internal/edge/http1"
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
	c.trip = trip{opts: &c.f.opts, outcome: o, client: c.clientText, base: c.f.base, visitor: c}
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
	whole, ok := answerBody{c, x.up}.pass(framing)
	if !ok {
		return false
	}
	c.endVisit()
	if whole && !c.res.Close {
		x.opts.Pool.Put(x.up)
		x.up = nil
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
// of the answer.
func (c answerBody) pass(framing http1.Framing) (whole, ok bool) {
	switch framing {
	case http1.NoBody:
		return true, c.writeOut()
	case http1.Counted:
		ok = c.counted(c.res.Length)
		return ok, ok
	case http1.Chunked:
		ok = c.chunked()
		return ok, ok
	default:
		return false, c.untilClose()
	}
}

// writeOut sends out.
func (c answerBody) writeOut() bool { return c.write(c.f.opts.Timeouts.Idle, c.out) }

// counted copies a body of left bytes.
func (c answerBody) counted(left int64) bool {
	for {
		if len(c.up.Buffered()) == 0 {
			if left > smallBody {
				return c.writeOut() && c.copyBody(c.up, left, func(b []byte) bool { return c.write(c.f.opts.Timeouts.Idle, b) })
			}
			if c.fill(c.up, time.Time{}) != nil {
				return false
			}
		}
		b := c.up.Buffered()
		b = b[:min(int64(len(b)), left)]
		c.out = append(c.out, b...)
		c.up.Use(len(b))
		left -= int64(len(b))
		if left == 0 || len(c.out) >= smallBody {
			if !c.writeOut() {
				return false
			}
			c.out = c.out[:0]
		}
		if left == 0 {
			return true
		}
	}
}

// chunked copies a body in its chunks, without trailers.
func (c answerBody) chunked() bool {
	c.chunks = http1.Chunks{}
	for {
		if b := c.up.Buffered(); len(b) > 0 {
			pass, n, err := c.chunks.Scan(b)
			if err != nil {
				return false
			}
			c.out = append(c.out, b[:pass]...)
			c.up.Use(n)
			if c.chunks.Done && c.chunks.Cut() {
				c.out = append(c.out, "\r\n"...)
			}
		}
		if len(c.out) > 0 && !c.writeOut() {
			return false
		}
		if c.chunks.Done {
			return true
		}
		c.out = c.out[:0]
		if c.fill(c.up, time.Time{}) != nil {
			return false
		}
	}
}

// untilClose copies, in chunks, a body that ends with the origin's connection.
func (c answerBody) untilClose() bool {
	for {
		if b := c.up.Buffered(); len(b) > 0 {
			c.out = strconv.AppendInt(c.out, int64(len(b)), 16)
			c.out = append(append(append(c.out, "\r\n"...), b...), "\r\n"...)
			c.up.Use(len(b))
		}
		if len(c.out) > 0 && !c.writeOut() {
			return false
		}
		c.out = c.out[:0]
		if err := c.fill(c.up, time.Time{}); errors.Is(err, io.EOF) {
			return c.write(c.f.opts.Timeouts.Idle, []byte("0\r\n\r\n"))
		} else if err != nil {
			return false
		}
	}
}
