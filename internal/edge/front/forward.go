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

// enter passes a request on that enters, whose body is to come still.
func (c *conn) enter(o *gate.Outcome, length int) bool {
	if o.Kind != gate.Enters {
		panic("fast front: the request may not enter") // nothing may reach the origin this way
	}
	if c.w-c.r < length {
		c.endVisit() // what is read is the body's
		if !c.body(length, c.f.opts.Timeouts.Idle, true) {
			return false
		}
	}
	c.unread = 0
	c.visit.goOn()
	if o.Client != c.client {
		c.client, c.clientText = o.Client, clientaddr.Text(o.Client)
	}
	c.trip = trip{opts: &c.f.opts, outcome: o, client: c.clientText, base: c.f.base, by: c}
	defer c.arrive()
	err := c.exchange(c.in[c.r : c.r+length])
	c.r += length
	if err != nil {
		return c.failed(&c.trip, err)
	}
	return c.passOn(&c.trip)
}

// failed answers in place of an origin that does not.
func (c *conn) failed(x *trip, err error) bool {
	if errors.Is(err, errVisitorLeft) {
		return false
	}
	c.endVisit()
	f := x.opts.Monitor.Failed(x.outcome.Origin, c.req.Host, err)
	ends := c.ends()
	return c.say(f.Status, x.outcome.FailureHeader(&f), []byte(f.Text), ends, c.f.opts.Timeouts.Idle) && !ends
}

// passOn makes the visitor's answer out of the origin's, whose head is in res.
func (c *conn) passOn(x *trip) bool {
	x.opts.Monitor.Answered(x.outcome.Origin)
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
	if dated := c.tell(func(name, value string) { b = appendField(b, name, value) }); !dated {
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

// hold implements [asker].
func (c *conn) hold(up *http1.Conn) bool { return c.visit.hold(up) }

// watch implements [asker].
func (c *conn) watch() { c.visit.watch() }

// answerBody is the body of a site's answer, on its way from up to the visitor.
type answerBody struct {
	*conn
	up *http1.Conn
}

// pass sends what is in out, and the body of the answer behind it. whole tells that
// nothing of the answer is left on the origin's connection.
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
		return false, c.toTheEnd()
	}
}

// writeOut sends what is in out.
func (c answerBody) writeOut() bool { return c.write(c.f.opts.Timeouts.Idle, c.out) }

// counted passes on a body of so many bytes.
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

// chunked passes on a body in chunks, as they are, without trailers.
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

// toTheEnd passes on a body that ends with the origin's connection, in chunks.
func (c answerBody) toTheEnd() bool {
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
