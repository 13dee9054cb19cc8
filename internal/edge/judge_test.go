package edge

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"vestibule/internal/lab/testkit"
)

// judge is a site with a strict parser that checks each request against its label: its client connection and index,
// its expected fate, and the checksum of its body.
type judge struct {
	t       *testing.T
	addr    string
	seen    []atomic.Uint64 // of each connection of clients, the requests that came
	reached atomic.Int64
}

// Fates of labelled requests. One that may reach the site must then arrive with the labelled target.
const (
	reaches    = "in"
	stays      = "no"
	mayReach   = "may"
	neverWhole = "cut"
)

func newJudge(t *testing.T, requests int) *judge {
	t.Helper()
	s := &judge{t: t, seen: make([]atomic.Uint64, requests/least+100)}
	s.addr = testkit.Listen(t, s.serve)
	return s
}

func (s *judge) serve(c net.Conn) {
	br, out := bufio.NewReaderSize(c, 32<<10), []byte(nil)
	for m := (heard{}); ; {
		if err := m.readHead(br); err != nil {
			if errors.Is(err, errLoose) {
				s.t.Errorf("the site got %v: %+v", err, m)
			}
			return
		}
		method, rest, _ := strings.Cut(m.first, " ")
		target, version, _ := strings.Cut(rest, " ")
		if method == "HEAD" && m.agent == "vestibule" && m.label == "" { // the edge itself asks whether there is life
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") //nolint:errcheck // it asks again
			continue
		}
		s.reached.Add(1)
		fate, sum, fault := s.judge(&m, target)
		if version != "HTTP/1.1" || m.hosts != 1 || m.labels != 1 || m.ours {
			fault = "a head of its own"
		}
		if fault == "" {
			if err := m.readBody(br); err != nil {
				if errors.Is(err, errLoose) {
					s.t.Errorf("the site got %v: %+v", err, m)
				}
				return // the edge gave up in the middle
			}
			if got := summed(method, m.host, target, m.body); fate == neverWhole || fate == reaches && sum != got {
				fault = "something else than was sent, with the sum " + got
			}
		}
		if fault != "" {
			s.t.Errorf("the site got %s: %.3000s", fault, fmt.Sprintf("%+v", m))
			const broken = "HTTP/1.1 500 Internal Server Error\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
			io.WriteString(c, broken) //nolint:errcheck // the test has failed
			return
		}
		if strings.Contains(m.label, "77.1 ") {
			<-time.After(300 * time.Millisecond) // the front watches whether the visitor leaves from 200 ms on
		}
		out = appendEcho(out[:0], m.label, method == "HEAD")
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}

// judge returns the content of a label, and the fault if its request must not arrive.
func (s *judge) judge(m *heard, target string) (fate, sum, fault string) {
	id, rest, _ := strings.Cut(m.label, " ")
	fate, sum, _ = strings.Cut(rest, " ")
	connection, number, _ := strings.Cut(id, ".")
	k, err := strconv.Atoi(connection)
	i, err2 := strconv.Atoi(number)
	switch {
	case err != nil || err2 != nil || k >= len(s.seen) || i >= 64:
		return fate, sum, "what nobody has sent"
	case s.seen[k].Or(1<<i)>>i&1 == 1:
		return fate, sum, "the same twice"
	case fate == mayReach && (m.host != "shop.example" || servesVIP(target)):
		return fate, sum, "something of a room"
	case fate == reaches || fate == mayReach || fate == neverWhole:
		return fate, sum, ""
	}
	return fate, sum, "what must not enter"
}

// appendEcho appends the site's answer: the label, in one of two framings.
func appendEcho(b []byte, label string, head bool) []byte {
	b = append(append(b, "HTTP/1.1 200 OK\r\nX-Expect: "...), label...)
	if label[len(label)-1] == '7' && !head {
		return append(append(append(b, "\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nthe\r\n5\r\n sit"...), 'e'),
			"\r\n0\r\n\r\n"...)
	}
	b = append(b, "\r\nContent-Length: 8\r\n\r\n"...)
	if head {
		return b
	}
	return append(b, "the site"...)
}

// summed is the sum of a request.
func summed(method, host, target string, body []byte) string {
	var b [256]byte
	sum := crc32.ChecksumIEEE(append(append(append(append(append(b[:0], method...), ' '), host...), ' '), target...))
	return strconv.FormatUint(uint64(crc32.Update(sum, crc32.IEEETable, body)), 16)
}

// heard is a request as the site reads it, or an answer as a client does: strictly, by a reader of their own.
type heard struct {
	first, host, label, agent string
	hosts, labels             int
	length                    int  // -1 for none
	chunked                   bool // length is -1
	ours                      bool // it has a header that only the edge may set
	body                      []byte
}

var errLoose = errors.New("what may be read in more than one way")

func (m *heard) readHead(br *bufio.Reader) error {
	*m = heard{length: -1, body: m.body[:0]}
	for n := 0; ; n++ {
		line, err := br.ReadSlice('\n')
		if err != nil {
			return err
		}
		line, ok := bytes.CutSuffix(line, []byte("\r\n"))
		switch {
		case !ok || bytes.IndexByte(line, '\r') >= 0:
			return errLoose
		case n == 0:
			m.first = string(line)
			continue
		case len(line) == 0:
			return nil
		}
		if err := m.field(line); err != nil {
			return err
		}
	}
}

// field records a header line.
func (m *heard) field(line []byte) error {
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok || len(name) == 0 || bytes.ContainsAny(name, " \t") {
		return errLoose
	}
	value = bytes.TrimSpace(value)
	is := func(s string) bool { return len(s) == len(name) && strings.EqualFold(s, string(name)) }
	switch {
	case is("Host"):
		m.host = string(value)
		m.hosts++
	case is("X-Expect"):
		m.label = string(value)
		m.labels++
	case is("User-Agent"):
		m.agent = string(value)
	case is("Cookie"):
		m.ours = m.ours || bytes.Contains(value, []byte("vestibule-sale=")) || bytes.Contains(value, []byte("vestibule-vip="))
	case is("Vestibule-Ticket"):
		m.ours = true
	case is("Content-Length"):
		n, err := strconv.ParseUint(string(value), 10, 31)
		if err != nil || m.length >= 0 || m.chunked {
			return errLoose
		}
		m.length = int(n)
	case is("Transfer-Encoding"):
		if string(value) != "chunked" || m.length >= 0 || m.chunked {
			return errLoose
		}
		m.chunked = true
	}
	return nil
}

// readBody reads the body behind a head, if the head announces one.
func (m *heard) readBody(br *bufio.Reader) error {
	if !m.chunked {
		return m.take(br, max(0, m.length))
	}
	for {
		line, err := br.ReadSlice('\n')
		if err != nil {
			return err
		}
		n, err := strconv.ParseUint(strings.TrimSuffix(string(line), "\r\n"), 16, 31)
		if err != nil {
			return errLoose
		}
		if err := m.take(br, int(n)); err != nil {
			return err
		}
		var end [2]byte
		if _, err := io.ReadFull(br, end[:]); err != nil {
			return err
		}
		if end != [2]byte{'\r', '\n'} {
			return errLoose
		}
		if n == 0 {
			return nil
		}
	}
}

func (m *heard) take(br *bufio.Reader, n int) error {
	from := len(m.body)
	m.body = slices.Grow(m.body, n)[:from+n]
	_, err := io.ReadFull(br, m.body[from:])
	return err
}
