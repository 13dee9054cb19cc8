package edge

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"vestibule/internal/lab/testkit"
)

// nowhere takes an answer and keeps nothing of it.
type nowhere struct {
	h    http.Header
	code int
}

func (w *nowhere) Header() http.Header         { return w.h }
func (w *nowhere) WriteHeader(code int)        { w.code = code }
func (w *nowhere) Write(p []byte) (int, error) { return len(p), nil }

// instantly is an origin without a network, so that only the edge is measured.
type instantly struct{}

func (instantly) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"text/plain"}},
		Body: io.NopCloser(strings.NewReader("the site")), ContentLength: 8, Request: r,
	}, nil
}

func benchmark(b *testing.B, st *stage, host, path, cookie string, code int) {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host = host
	r.Header.Set("User-Agent", "bench")
	r.Header.Set("Cookie", "theirs=1; "+cookie)
	w := &nowhere{h: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		clear(w.h)
		st.server.ServeHTTP(w, r)
	}
	if w.code != code {
		b.Fatalf("answered %d, want %d", w.code, code)
	}
}

// BenchmarkServeAdmitted measures a request of an admitted visitor, from cookie to origin's answer, without a
// network.
func BenchmarkServeAdmitted(b *testing.B) {
	st := open(b, nil)
	st.server.proxy.trip = instantly{}
	benchmark(b, st, "sale.example", "/tickets?show=1", st.keys.seal("sale", session(7)), http.StatusOK)
}

// BenchmarkServeQueued measures a poll of a waiting visitor, from cookie to page and new cookie.
func BenchmarkServeQueued(b *testing.B) {
	st := open(b, nil)
	st.up.queue(vip, 1234, 2)
	place := session(7)
	place.Admitted, place.Until = 0, 0
	benchmark(b, st, "shop.example", "/vip", st.keys.seal("vip", place), http.StatusTooManyRequests)
}

// BenchmarkFast measures one request in the fast front, without the system calls of the visitor's connection: to a
// site over a real connection, outside of all rooms and of an admitted visitor, a page, and a poll.
func BenchmarkFast(b *testing.B) {
	site := echoSite(b, 1024)
	for _, tc := range []struct {
		name   string
		queued bool
		lines  string
	}{
		{"outside", false, "Host: shop.example\r\nAccept: text/html\r\n"},
		{"proxied", false, "Host: sale.example\r\nAccept: text/html\r\n"},
		{"page", true, "Host: sale.example\r\nAccept: text/html\r\nAccept-Encoding: gzip\r\n"},
		{"poll", true, "Host: sale.example\r\nAccept: application/json\r\nVestibule-Poll: 1\r\n"},
	} {
		b.Run(tc.name, func(b *testing.B) {
			st := openAt(b, "http://"+site, func(st *stage) { st.cfg.Reader, st.params.Refresh = frontFast, time.Hour })
			cookie := st.keys.seal("sale", session(7))
			if tc.queued {
				st.up.queue(sale, 1234, 2)
				place := inLine(7)
				place.Joined = st.server.Status().Time
				cookie = st.keys.seal("sale", place)
			}
			c := &tapeConn{text: []byte("GET /tickets?show=1 HTTP/1.1\r\nUser-Agent: bench\r\n" + tc.lines +
				"Cookie: theirs=1; " + cookie + "\r\n\r\n"), left: b.N, done: make(chan struct{})}
			serve := st.inMemory()
			b.ReportAllocs()
			b.ResetTimer()
			serve(c)
			<-c.done
			b.StopTimer()
			for _, answer := range [][]byte{c.first, c.last} {
				if !bytes.HasPrefix(answer, []byte("HTTP/1.1 200 OK\r\n")) ||
					bytes.Contains(answer, []byte("Retry-After")) != tc.queued {
					b.Fatalf("%.300q", answer)
				}
			}
			b.ReportMetric(float64(c.wrote)/float64(b.N), "B/answer")
		})
	}
}

// tapeConn is a visitor that sends the same request left times.
type tapeConn struct {
	peer
	text  []byte
	left  int
	first []byte
	last  []byte
	wrote int
	done  chan struct{} // closed by Close, which is called once
}

func (c *tapeConn) Read(b []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	c.left--
	return copy(b, c.text), nil
}

func (c *tapeConn) Write(b []byte) (int, error) {
	if c.first == nil {
		c.first = bytes.Clone(b)
	}
	if c.left == 0 {
		c.last = bytes.Clone(b)
	}
	c.wrote += len(b)
	return len(b), nil
}

func (c *tapeConn) Close() error                  { close(c.done); return nil }
func (*tapeConn) SetDeadline(time.Time) error     { return nil }
func (*tapeConn) SetReadDeadline(time.Time) error { return nil }

// echoSite is a site that answers every request with size bytes, without allocations.
func echoSite(b *testing.B, size int) (addr string) {
	b.Helper()
	answer := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", size,
		strings.Repeat("x", size))
	return testkit.Listen(b, func(c net.Conn) {
		for buf := make([]byte, 16<<10); ; {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			if bytes.HasSuffix(buf[:n], []byte("\r\n\r\n")) {
				if _, err := c.Write(answer); err != nil {
					return
				}
			}
		}
	})
}
