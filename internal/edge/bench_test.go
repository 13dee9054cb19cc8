package edge

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// nowhere takes an answer and keeps nothing of it.
type nowhere struct {
	h    http.Header
	code int
}

func (w *nowhere) Header() http.Header         { return w.h }
func (w *nowhere) WriteHeader(code int)        { w.code = code }
func (w *nowhere) Write(p []byte) (int, error) { return len(p), nil }

// instantly is an origin without a network: what is measured is the edge.
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

// BenchmarkServeAdmitted is a request of who is in: cookie to origin's answer,
// without any network.
func BenchmarkServeAdmitted(b *testing.B) {
	st := open(b, nil)
	st.server.proxy.trip = instantly{}
	benchmark(b, st, "sale.example", "/tickets?show=1", st.seal("sale", session(7)), http.StatusOK)
}

// BenchmarkServeQueued is a poll of who waits: cookie to page and new cookie.
func BenchmarkServeQueued(b *testing.B) {
	st := open(b, nil)
	st.up.queue(vip, 1234, 2)
	place := session(7)
	place.Admitted, place.Until = 0, 0
	benchmark(b, st, "shop.example", "/vip", st.seal("vip", place), http.StatusTooManyRequests)
}
