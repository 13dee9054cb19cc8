package edge

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// memoryListener accepts connections that are in memory.
type memoryListener struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *memoryListener) dial(c net.Conn) { l.conns <- c }

// Accept implements [net.Listener].
func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (l *memoryListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements [net.Listener].
func (l *memoryListener) Addr() net.Addr { return l.addr }

// quietConn is the connection of a visitor that sends everything at the beginning and takes every answer. Its bytes
// arrive in pieces, then end.
type quietConn struct {
	peer
	mu     sync.Mutex
	change *sync.Cond
	pieces [][]byte
	out    bytes.Buffer
	over   bool // pending reads end
	late   bool // so are those of one byte, for they have waited for long
	tired  *time.Timer
	closed bool
	once   sync.Once
	done   chan struct{}
}

func newQuietConn(pieces ...[]byte) *quietConn {
	c := &quietConn{done: make(chan struct{})}
	c.change = sync.NewCond(&c.mu)
	for _, p := range pieces {
		if len(p) > 0 {
			c.pieces = append(c.pieces, p)
		}
	}
	return c
}

func (c *quietConn) Read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// A read of one byte watches for the visitor's departure while a request is answered. The visitor stays. It may
	// also be the end of a reader's buffer.
	for len(b) == 1 && len(c.pieces) == 0 && !c.over && !c.closed && !c.late {
		if c.tired == nil {
			c.tired = time.AfterFunc(5*time.Second, c.tire)
		}
		c.change.Wait()
	}
	switch {
	case c.closed:
		return 0, net.ErrClosed
	case c.over:
		return 0, os.ErrDeadlineExceeded
	case len(c.pieces) == 0:
		return 0, io.EOF
	}
	n := copy(b, c.pieces[0])
	if c.pieces[0] = c.pieces[0][n:]; len(c.pieces[0]) == 0 {
		c.pieces = c.pieces[1:]
	}
	return n, nil
}

func (c *quietConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, net.ErrClosed
	}
	return c.out.Write(b)
}

// CloseWrite ends the visitor's answers; net/http then waits half a second before it closes.
func (c *quietConn) CloseWrite() error {
	c.once.Do(func() { close(c.done) })
	return nil
}

func (c *quietConn) tire() {
	c.mu.Lock()
	c.late = true
	c.mu.Unlock()
	c.change.Broadcast()
}

func (c *quietConn) Close() error {
	c.mu.Lock()
	if c.closed = true; c.tired != nil {
		c.tired.Stop()
	}
	c.mu.Unlock()
	c.change.Broadcast()
	return c.CloseWrite()
}

func (c *quietConn) SetReadDeadline(at time.Time) error {
	c.mu.Lock()
	c.over = !at.IsZero() && !time.Now().Before(at)
	c.mu.Unlock()
	c.change.Broadcast()
	return nil
}

func (c *quietConn) SetDeadline(at time.Time) error { return c.SetReadDeadline(at) }

// answers returns the status and the front's headers of each answer, except answers to a visitor that left within a
// request.
func (c *quietConn) answers() (codes []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for rest := c.out.Bytes(); ; {
		var word []byte
		if word, rest = nextSaid(rest); word == nil {
			return codes
		}
		if string(word) != "499" {
			codes = append(codes, string(word))
		}
	}
}

// whole returns status and body of the answer, with "cut" behind it if it breaks off; without the body of an error.
func (c *quietConn) whole() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	res, err := http.ReadResponse(bufio.NewReader(&c.out), nil)
	if err != nil {
		return "no answer: " + err.Error()
	}
	body, err := io.ReadAll(res.Body)
	switch {
	case res.StatusCode != http.StatusOK:
		return fmt.Sprint(res.StatusCode)
	case err != nil:
		return fmt.Sprintf("200 %s cut", body)
	}
	return fmt.Sprintf("200 %s", body)
}

// said are the prefixes of a status and of headers for fronts; no body here contains one.
var said = [...]string{"HTTP/1.1 ", "HTTP/1.0 ", "\r\nVestibule-Decision: ", "\r\nX-Accel-Redirect: "}

// nextSaid returns the next status or header for fronts, nil for none, and the rest. A regular expression would take
// more time than the edges.
func nextSaid(b []byte) (word, rest []byte) {
	at, end := len(b), byte(' ')
	for i, s := range said {
		if n := bytes.Index(b[:at], []byte(s)); n >= 0 {
			word, at = b[n+len(s):], n+len(s)
			if end = ' '; i > 1 {
				end = '\r'
			}
		}
	}
	word, rest, _ = bytes.Cut(word, []byte{end})
	return word, rest
}

// peer is the address of all connections in memory.
type peer struct{}

func (peer) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

func (peer) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4711} }

func (peer) SetWriteDeadline(time.Time) error { return nil }

// quietSite is a site in memory that records its requests.
type quietSite struct {
	mu     sync.Mutex
	asked  []string
	answer string // of every request; empty for a good one. With <end> at its end the connection ends.
}

func (s *quietSite) dial(context.Context, string, string) (net.Conn, error) {
	c := &siteConn{of: s}
	c.change = sync.NewCond(&c.mu)
	return c, nil
}

// forget returns the requests since the last call.
func (s *quietSite) forget() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	return asked
}

// siteConn is a connection to it: after the end of a request the answer is readable at once.
type siteConn struct {
	peer
	of     *quietSite
	mu     sync.Mutex
	change *sync.Cond
	in     []byte
	out    []byte
	ended  bool // by the site: no bytes follow out
	closed bool
}

func (c *siteConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, net.ErrClosed
	}
	c.in = append(c.in, b...)
	for bytes.Contains(c.in, []byte("\r\n\r\n")) { // a line that was cut in two would be no line
		raw := bytes.NewReader(c.in)
		br := bufio.NewReader(raw)
		r, err := http.ReadRequest(br)
		var body []byte
		if err == nil {
			body, err = io.ReadAll(r.Body)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break // incomplete
		}
		if err != nil {
			c.of.note(fmt.Sprintf("no request: %v: %q", err, c.in))
			c.closed = true
			c.change.Broadcast()
			break
		}
		c.in = slices.Clone(c.in[len(c.in)-raw.Len()-br.Buffered():])
		var head bytes.Buffer
		r.Header.Write(&head) //nolint:errcheck // memory
		c.of.note(fmt.Sprintf("%s %s\nHost: %s\n%s%v %d %v\n%q", r.Method, r.RequestURI, r.Host, head.String(),
			r.TransferEncoding, r.ContentLength, r.Trailer, body))
		answer := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/plain\r\n\r\nok"
		if r.Method == http.MethodHead {
			answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
		}
		if c.of.answer != "" {
			answer = strings.TrimSuffix(c.of.answer, "<end>")
			c.ended = c.ended || answer != c.of.answer
		}
		c.out = append(c.out, answer...)
		c.change.Broadcast()
	}
	return len(b), nil
}

func (s *quietSite) note(asked string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, asked)
}

func (c *siteConn) Read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.out) == 0 && !c.closed && !c.ended {
		c.change.Wait()
	}
	n := copy(b, c.out)
	c.out = c.out[n:]
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (c *siteConn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.change.Broadcast()
	return nil
}

func (c *siteConn) SetDeadline(time.Time) error { return nil }

func (c *siteConn) SetReadDeadline(time.Time) error { return nil }
