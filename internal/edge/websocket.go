package edge

import (
	"bufio"
	"context"
	"encoding/binary"
	"net"
	"net/http"
	"time"

	"vestibule/internal/edge/gate"
)

// whileInside returns a context that ends with the sessions of a connection, and counts that.
func (s *Server) whileInside(ctx context.Context, c *gate.Connection) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		end := time.NewTimer(c.Left())
		defer end.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-end.C:
			}
			left := c.Left()
			if left <= 0 {
				s.metrics.connectionsCut.Inc()
				cancel()
				return
			}
			end.Reset(left) // it was renewed
		}
	}()
	return ctx, cancel
}

// activeWriter tells a connection of the data that its client sends once it is upgraded.
type activeWriter struct {
	http.ResponseWriter
	of *gate.Connection
}

func (w activeWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w activeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	return &activeConn{Conn: c, of: w.of}, rw, nil
}

type activeConn struct {
	net.Conn
	of     *gate.Connection
	frames clientFrames
}

func (c *activeConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.frames.next(b[:n]) {
		c.of.Active()
	}
	return n, err
}

// CloseWrite closes the writing side.
func (c *activeConn) CloseWrite() error {
	if h, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return nil
}

// clientFrames parses the websocket frames of a client (RFC 6455, 5.2). The zero value is at the start.
type clientFrames struct {
	head [14]byte
	n    int // bytes of head
	left uint64
	data bool // the frame is one of data, not a ping, pong or close
}

// next parses the next bytes, and reports whether some are of a data frame.
func (f *clientFrames) next(b []byte) (data bool) {
	for len(b) > 0 {
		if f.left > 0 {
			take := min(uint64(len(b)), f.left)
			b, f.left, data = b[take:], f.left-take, data || f.data
			continue
		}
		f.head[f.n] = b[0]
		b = b[1:]
		if f.n++; f.n < 2 {
			continue
		}
		length, need := uint64(f.head[1]&0x7f), 2
		switch length {
		case 126:
			need += 2
			length = uint64(binary.BigEndian.Uint16(f.head[2:]))
		case 127:
			need += 8
			length = binary.BigEndian.Uint64(f.head[2:])
		}
		if f.head[1]&0x80 != 0 {
			need += 4 // the mask
		}
		if f.n < need {
			continue
		}
		f.data = f.head[0]&0x0f <= 2
		f.left, f.n, data = length, 0, data || f.data
	}
	return data
}
