package front

import (
	"errors"
	"io"
	"strconv"
	"time"

	"vestibule/internal/edge/http1"
)

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

// smallBody is up to which length an answer is sent as one.
const smallBody = 16 << 10

// copyBody passes on so many bytes that were not read yet, through one buffer: so much is held of an
// answer that a visitor takes slowly.
func (w *work) copyBody(up *http1.Conn, left int64, write func(b []byte) bool) bool {
	buf := w.trip.opts.Buffers.Get()
	defer w.trip.opts.Buffers.Put(buf)
	for left > 0 {
		n, err := up.Read(buf[:min(int64(len(buf)), left)])
		if n > 0 {
			if !write(buf[:n]) {
				return false
			}
			left -= int64(n)
			continue
		}
		if !isTimeout(err) {
			return false
		}
		w.trip.by.watch()
		up.By = time.Time{}
		if up.SetReadDeadline(up.By) != nil {
			return false
		}
	}
	return true
}
