package front

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"vestibule/internal/lab/testkit"
)

// halfPipe is an end of a pipe that can close its writing side.
type halfPipe struct {
	net.Conn
	half bool
}

func (p *halfPipe) CloseWrite() error {
	p.half = true
	return nil
}

// A close waits for the client to take an answer that came before the end of the request, up to a limit. Other closes
// take no time.
func TestAHandedConnectionLingers(t *testing.T) {
	const head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n"
	for name, c := range map[string]struct {
		text            string
		answer, upgrade bool
		leaves, takes   time.Duration // the client leaves after this time, 0 for never
	}{
		"a body that comes":         {head, true, false, lingerFor / 2, lingerFor / 2},
		"a client that stays":       {head, true, false, 0, lingerFor},
		"a fault":                   {"GET / HTTP/1.1\r\n folded\r\n", true, false, 0, lingerFor},
		"another request":           {"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET", true, false, 0, lingerFor},
		"a whole request":           {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", true, false, 0, 0},
		"no answer":                 {head, false, false, 0, 0},
		"bytes behind an upgrade":   {head, true, true, 0, 0},
		"nothing on the connection": {"", false, false, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, client := net.Pipe()
				socket := &halfPipe{Conn: server}
				h := &handed{Conn: socket, rest: []byte(c.text)}
				defer client.Close()           // it may be closed already
				go io.Copy(io.Discard, client) //nolint:errcheck // it ends with the pipe
				if buf := make([]byte, 1<<10); c.text != "" {
					testkit.Must(h.Read(buf))(t)
				}
				if c.answer {
					testkit.Must(io.WriteString(h, "HTTP/1.1 401 Unauthorized\r\n\r\n"))(t)
				}
				if c.upgrade {
					h.Upgraded()
				}
				if c.leaves > 0 {
					time.AfterFunc(c.leaves/2, func() {
						io.WriteString(client, "more") //nolint:errcheck // the close shows whether it was read
					})
					time.AfterFunc(c.leaves, func() { client.Close() })
				}
				begun := time.Now()
				if err := h.Close(); err != nil {
					t.Error(err)
				}
				if took := time.Since(begun); took != c.takes || socket.half != (took > 0) {
					t.Errorf("the close takes %v, and has closed the writing side before: %v", took, socket.half)
				}
			})
		})
	}
}
