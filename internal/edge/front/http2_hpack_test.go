package front

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"vestibule/internal/edge/http1"
)

// FuzzHeads2 writes a header block, and reads it again with net's own decoder: what HTTP/2 can carry is the same, in
// any number of frames.
func FuzzHeads2(f *testing.F) {
	f.Add(200, "Content-Type", "text/html", int64(5), false)
	f.Add(503, "Set-Cookie", strings.Repeat("a", 40<<10), int64(0), true)
	f.Add(599, "X-A", "a\r\nb", int64(1<<40), false)
	f.Add(304, "Transfer-Encoding", "chunked", int64(-1), true)
	f.Fuzz(func(t *testing.T, status int, name, value string, length int64, shrunk bool) {
		if status < 100 || status > 999 || length < 0 {
			return
		}
		name = http.CanonicalHeaderKey(name)
		b := appendStatus2(beginHead(nil, shrunk), status)
		b = appendLength2(appendField2(b, name, value), length)
		b = endHead(b, 7, true)
		r := http2.NewFramer(nil, bytes.NewReader(b))
		r.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		r.MaxHeaderListSize = 1 << 30
		frame, err := r.ReadFrame()
		if err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		h := frame.(*http2.MetaHeadersFrame)
		n := 2
		if httpguts.ValidHeaderFieldName(name) && httpguts.ValidHeaderFieldValue(value) && !ofConnection[name] {
			n = 3
			if got := h.Fields[1]; got.Name != strings.ToLower(name) || got.Value != value ||
				got.Sensitive != (name == "Set-Cookie") {
				t.Errorf("%q: %q became %v", name, value, got)
			}
		}
		if len(h.Fields) != n || len(h.PseudoValue("status")) != 3 || h.Fields[n-1].Name != "content-length" ||
			!h.StreamEnded() || h.StreamID != 7 {
			t.Errorf("%v", h.Fields)
		}
	})
}

// FuzzRequests2 gives the same header block to the front and to net's own reader: the front takes no more.
func FuzzRequests2(f *testing.F) {
	var b bytes.Buffer
	for _, fields := range [][]string{
		{
			":method", "GET", ":path", "/a?b", ":scheme", "https", ":authority", "shop.example", "cookie", "a=b", "cookie",
			"c=d", "x-a", "b",
		},
		{":method", "CONNECT", ":authority", "shop.example:443"},
		{
			":method", "POST", ":path", "/", ":scheme", "http", "host", "shop.example", "content-length", "0", "te", "trailers",
			"x-a", " b ",
		},
		{"a", "b", ":path", "/"},
		{":path", "/", ":path", "/", "X-A", "b\r\n"},
	} {
		pack := hpack.NewEncoder(&b)
		b.Reset()
		for i := 0; i < len(fields); i += 2 {
			pack.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}) //nolint:errcheck // memory
		}
		f.Add(bytes.Clone(b.Bytes()), true)
	}
	buffers := &buffers{}
	f.Fuzz(func(t *testing.T, block []byte, ends bool) {
		if len(block) > maxPayload {
			return
		}
		framed := endHead(append(beginHead(nil, false), block...), 1, ends)
		r := http2.NewFramer(nil, bytes.NewReader(framed))
		r.ReadMetaHeaders = hpack.NewDecoder(maxTable, nil)
		r.MaxHeaderListSize = http1.MaxHead
		frame, err := r.ReadFrame()
		h := head2{}
		h.begin(buffers.get(), 1, ends, false)
		d := hpack.NewDecoder(maxTable, h.add)
		d.SetMaxStringLength(http1.MaxHead)
		if _, bad := d.Write(block); bad != nil || d.Close() != nil || !h.complete() {
			return
		}
		if err != nil {
			t.Fatalf("the front takes %q %q: %v", h.path, h.req.Fields, err)
		}
		theirs := frame.(*http2.MetaHeadersFrame)
		if theirs.Truncated || h.method != theirs.PseudoValue("method") || h.path != theirs.PseudoValue("path") {
			t.Fatalf("%q %q of %v", h.method, h.path, theirs.Fields)
		}
		plain := h.plain()
		req, _, err := h.request()
		if err != nil {
			return
		}
		if plain {
			// Over HTTP/1.1 it is plain too, and means the same.
			text := "" + req.Method + " " + req.RequestURI + " HTTP/1.1\r\nHost: " + req.Host + "\r\n"
			fields := slices.Clone(h.req.Fields)
			for _, f := range fields {
				text += f.Name + ": " + f.Value + "\r\n"
			}
			if h.length >= 0 {
				text += "Content-Length: 0\r\n"
			}
			again := http1.Request{}
			if n, v := again.Parse([]byte(text + "\r\n")); v != http1.Ready && len(text) < http1.MaxHead-2 || v == http1.Ready &&
				(n != len(text)+2 || !slices.Equal(again.Fields, fields) || again.Target != h.path || again.Host != h.authority) {
				t.Errorf("%q is not plain over HTTP/1.1: %v", text, v)
			}
		}
	})
}

// A supply refills with time and with what was earned, up to its most.
func TestSupply(t *testing.T) {
	at := time.Unix(1000, 0)
	s := supply{left: 10, most: 10, perSecond: 2, at: at}
	take := func() (n int) {
		for s.take(at) == nil {
			n++
		}
		return n
	}
	if n := take(); n != 10 {
		t.Errorf("at first %d", n)
	}
	at = at.Add(3 * time.Second)
	if n := take(); n != 6 {
		t.Errorf("after three seconds %d", n)
	}
	s.earned.Add(4)
	if n := take(); n != 4 {
		t.Errorf("with four earned %d", n)
	}
	s.earned.Add(1000)
	at = at.Add(time.Hour)
	if n := take(); n != 10 {
		t.Errorf("after an hour %d", n)
	}
}
