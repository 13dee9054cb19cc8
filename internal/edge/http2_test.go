package edge

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"vestibule/internal/core/room"
	"vestibule/internal/lab/figures"
	"vestibule/internal/lab/testkit"
)

// openTLS opens an edge with TLS and the fast front.
func openTLS(t testing.TB, change func(*stage)) *stage {
	return open(t, func(st *stage) {
		st.cfg.Reader = frontFast
		st.withTLS()
		if change != nil {
			change(st)
		}
	})
}

// frameOf returns a frame of any kind.
func frameOf(kind http2.FrameType, flags http2.Flags, stream uint32, payload []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	return append(binary.BigEndian.AppendUint32(append(b, byte(flags)), stream), payload...)
}

// awayCode reads up to a GOAWAY that is no mere goodbye, and returns its code.
func (x *rawHTTP2) awayCode() (http2.ErrCode, error) {
	for {
		f, err := x.ReadFrame()
		if err != nil && !errors.As(err, new(http2.StreamError)) {
			return 0, err
		}
		if away, ok := f.(*http2.GoAwayFrame); ok && away.ErrCode != http2.ErrCodeNo {
			return away.ErrCode, nil
		}
	}
}

// fields sends a request of any fields, and hears the answer.
func (x *rawHTTP2) fields(all []string, body []byte) (status string, answer []byte, err error) {
	stream, err := x.begin(body, all)
	if err != nil {
		return "", nil, err
	}
	return x.hear(stream)
}

// A client that floods a connection, with whatever frames, is told to be calm, and its connection ends. Visitors beside
// it are served.
func TestFloodsOverHTTP2(t *testing.T) {
	st := openTLS(t, nil)
	asked, over := make(chan bool, 1000), make(chan bool)
	st.origin.serves(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery == "slow" {
			asked <- true
			select {
			case <-over:
			case <-r.Context().Done():
			}
		}
		io.WriteString(w, "the site") //nolint:errcheck // the client checks the answer
	})
	ask := func(x *rawHTTP2) []byte {
		x.head.Reset()
		for _, f := range [...][2]string{
			{":method", "GET"},
			{":scheme", "https"},
			{":authority", "shop.example"},
			{":path", "/about?slow"},
		} {
			x.pack.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) //nolint:errcheck // memory
		}
		x.next += 2
		return x.head.Bytes()
	}
	const post = "\x83\x87\x84\x01\x0cshop.example" // POST /
	for name, flood := range map[string]func(x *rawHTTP2) []byte{
		"SETTINGS":      func(*rawHTTP2) []byte { return frameOf(http2.FrameSettings, 0, 0, nil) },
		"PING":          func(*rawHTTP2) []byte { return frameOf(http2.FramePing, 0, 0, make([]byte, 8)) },
		"PRIORITY":      func(*rawHTTP2) []byte { return frameOf(http2.FramePriority, 0, 1, make([]byte, 5)) },
		"WINDOW_UPDATE": func(*rawHTTP2) []byte { return frameOf(http2.FrameWindowUpdate, 0, 0, []byte{0, 0, 0, 1}) },
		"unknown":       func(*rawHTTP2) []byte { return frameOf(77, 0, 0, nil) },
		"empty DATA": func(x *rawHTTP2) []byte {
			if x.next == 1 {
				x.next = 3
				return frameOf(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, []byte(post))
			}
			return frameOf(http2.FrameData, 0, 1, nil)
		},
		"CONTINUATION": func(x *rawHTTP2) []byte {
			if x.next == 1 {
				x.next = 3
				return frameOf(http2.FrameHeaders, 0, 1, nil)
			}
			return frameOf(http2.FrameContinuation, 0, 1, nil)
		},
		"a header without an end": func(x *rawHTTP2) []byte {
			if x.next == 1 {
				x.next = 3
				return frameOf(http2.FrameHeaders, 0, 1, []byte(post))
			}
			return frameOf(http2.FrameContinuation, 0, 1, bytes.Repeat([]byte("\x00\x01a\x01b"), 200))
		},
		"resets": func(x *rawHTTP2) []byte {
			b := frameOf(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, x.next, ask(x))
			return append(b, frameOf(http2.FrameRSTStream, 0, x.next-2, []byte{0, 0, 0, 8})...)
		},
		"empty requests": func(x *rawHTTP2) []byte {
			x.next += 2
			return frameOf(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, x.next-2, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := dialHTTP2(t, st.door.addr(0))
			stop, stopped := make(chan bool), make(chan bool)
			go func() {
				defer close(stopped)
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					if _, err := x.Write(flood(x)); err != nil {
						return // the edge has closed
					}
				}
			}()
			code, err := x.awayCode()
			if err != nil || code != http2.ErrCodeEnhanceYourCalm {
				t.Errorf("%v, %v", code, err)
			}
			st.door.secure(true).get("https://shop.example/about").enters(t, "a visitor beside it")
			close(stop)
			x.Close() // the edge has closed it
			<-stopped
		})
	}
	close(over)
	eventually(t, "no connection but those of visitors is left", func() bool {
		return metric(t, st, "vestibule_edge_origin_connections") == float64(st.server.pool.Idle())
	})
	st.counts(0, "vestibule_edge_panics_total")
}

// A browser that cancels what it asked for, updates windows and pings, at an ordinary rate, is no flood.
func TestAnOrdinaryClientIsCalm(t *testing.T) {
	st := openTLS(t, nil)
	x := dialHTTP2(t, st.door.addr(0))
	for n := range 600 {
		stream, err := x.ask(http.MethodGet, "shop.example", "/about")
		if err == nil && n%10 == 9 {
			if err = x.WriteRSTStream(stream, http2.ErrCodeCancel); err == nil {
				continue
			}
		}
		if err == nil {
			err = x.WritePing(false, [8]byte{})
		}
		status, body := "", []byte(nil)
		if err == nil {
			status, body, err = x.hear(stream)
		}
		if err != nil || status != "200" || string(body) != "the site" {
			t.Fatalf("request %d: %q %q %v", n, status, body, err)
		}
	}
}

// A client that takes no answer, by its window or its socket, loses it in time, and keeps no connection to the site.
func TestUnreadAnswersOverHTTP2(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0123456789abcdef", 1<<16)
	for _, window := range []uint32{0, 1000} {
		st := openTLS(t, func(st *stage) {
			st.cfg.Timeouts.Header, st.cfg.Timeouts.Idle = 300*time.Millisecond, 300*time.Millisecond
		})
		st.up.queue(vip, 10, 1)
		st.origin.serves(func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, long) //nolint:errcheck // the client reads nothing
		})
		x := dialHTTP2(t, st.door.addr(0))
		testkit.NoError(t, x.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}))
		for _, target := range []string{"/about", "/vip"} {
			stream := testkit.Must(x.ask(http.MethodGet, "shop.example", target))(t)
			if status, body, err := x.hear(stream); err != nil || status != "" {
				t.Errorf("%s, window %d: the stream ends with %q, %d bytes, %v", target, window, status, len(body), err)
			}
		}
		if stream, err := x.send([]byte("a=b"), http.MethodPost, "shop.example", "/about"); err != nil {
			t.Fatal(err)
		} else if status, _, err := x.hear(stream); err != nil || status != "" {
			t.Errorf("a form, window %d: %q %v", window, status, err)
		}
		eventually(t, "no connection to the site is taken", func() bool {
			return metric(t, st, "vestibule_edge_origin_connections") <= float64(st.server.pool.Idle())+1 // of net/http
		})
	}
}

// A connection that ends in the middle of a head spoils no other one.
func TestHalfAHeadSpoilsNoOther(t *testing.T) {
	t.Parallel()
	st := openTLS(t, nil)
	for _, b := range [][]byte{
		frameOf(http2.FrameHeaders, 0, 2, nil), frameOf(http2.FrameHeaders, http2.FlagHeadersPadded, 1, []byte{9}),
		frameOf(http2.FrameHeaders, 0, 1, []byte{0x80}),
	} {
		for range 20 {
			x := dialHTTP2(t, st.door.addr(0))
			testkit.Must(x.Write(b))(t)
			if code, err := x.awayCode(); err != nil {
				t.Errorf("%q: %v, %v", b, code, err)
			}
			y := dialHTTP2(t, st.door.addr(0))
			stream := testkit.Must(y.ask(http.MethodGet, "shop.example", "/about"))(t)
			if status, _, err := y.hear(stream); err != nil || status != "200" {
				t.Errorf("behind %q: %q, %v", b, status, err)
			}
		}
	}
}

// A connection that rests for too long ends with a goodbye; one with a half frame ends without, and sooner.
func TestIdleConnectionsOverHTTP2(t *testing.T) {
	st := openTLS(t, func(st *stage) {
		st.cfg.Timeouts.Header, st.cfg.Timeouts.Idle = 200*time.Millisecond, 400*time.Millisecond
	})
	for _, half := range [][]byte{
		nil, frameOf(http2.FrameHeaders, 0, 1, nil),
		frameOf(http2.FramePing, 0, 0, make([]byte, 8))[:12],
	} {
		x := dialHTTP2(t, st.door.addr(0))
		stream, err := x.ask(http.MethodGet, "shop.example", "/about")
		if err == nil {
			_, _, err = x.hear(stream)
		}
		if err == nil {
			_, err = x.Write(half)
		}
		goodbye := false
		for err == nil {
			var f http2.Frame
			if f, err = x.ReadFrame(); err == nil {
				switch f := f.(type) {
				case *http2.GoAwayFrame:
					goodbye = f.ErrCode == http2.ErrCodeNo
				case *http2.PingFrame:
					err = x.WritePing(true, f.Data)
				}
			}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) || goodbye != (half == nil) {
			t.Errorf("%q: a goodbye %v, %v", half, goodbye, err)
		}
	}
	eventually(t, "no connection is left", func() bool { return metric(t, st, "vestibule_edge_connections") == 0 })
}

// Requests and answers in any number of frames pass: bodies both ways, windows, trailers, a wait for 100 Continue.
func TestBodiesOverHTTP2(t *testing.T) {
	t.Parallel()
	st := openTLS(t, nil)
	st.origin.serves(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if len(body) == 0 {
			body = bytes.Repeat([]byte("x"), 3<<20)
		}
		w.Write(body) //nolint:errcheck // the client checks the answer
	})
	v := st.door.secure(true)
	v.Transport.(*http.Transport).ExpectContinueTimeout = testkit.Patience
	for _, size := range []int{1, 4 << 10, 16<<10 + 1, 300 << 10, 3 << 20} {
		for _, expect := range []string{"", "100-continue"} {
			text := strings.Repeat("y", size)
			r := testkit.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, "https://shop.example/about",
				io.MultiReader(strings.NewReader(text))))(t)
			if expect != "" {
				r.Header.Set("Expect", expect)
			}
			if a := v.do(r); a.body != text {
				t.Errorf("%d bytes with %q: %d, %d bytes", size, expect, a.StatusCode, len(a.body))
			}
		}
	}
	if a := v.get("https://shop.example/about"); len(a.body) != 3<<20 {
		t.Errorf("%d bytes", len(a.body))
	}
	if fast, _, _ := byFront(t, st); fast != 1 {
		t.Errorf("the fast front has read %v", fast)
	}
}

// What RFC 9113 calls malformed ends its stream, and reaches neither a room nor the site.
func TestMalformedRequestsOverHTTP2(t *testing.T) {
	st := openTLS(t, nil)
	x := dialHTTP2(t, st.door.addr(0))
	x.AllowIllegalWrites = true
	good := []string{":method", "GET", ":scheme", "https", ":authority", "shop.example", ":path", "/about"}
	if status, _, err := x.fields(append(good[:8:8], "cookie", "a=1", "x", "y", "cookie", "b=2", "te", "trailers", "host",
		"shop.example"), nil); err != nil || status != "200" {
		t.Errorf("a good one: %q %v", status, err)
	}
	if r := st.origin.last(); r.Header.Get("Cookie") != "a=1; b=2" || r.Header["Te"] != nil || r.Host != "shop.example" {
		t.Errorf("the site got %v", r.Header)
	}
	for name, fields := range map[string][]string{
		"no path":                    good[:6],
		"an empty path":              append(append([]string(nil), good[:6]...), ":path", ""),
		"no method":                  good[2:],
		"no scheme":                  append([]string{":method", "GET"}, good[4:]...),
		"another scheme":             append([]string{":method", "GET", ":scheme", "ftp"}, good[4:]...),
		"a path twice":               append(good[:8:8], ":path", "/vip"),
		"an unknown pseudo-header":   append(good[:8:8], ":x", "y"),
		"a pseudo-header of answers": append(good[:8:8], ":status", "200"),
		"extended CONNECT":           append(good[:8:8], ":protocol", "websocket"),
		"a pseudo-header at the end": append(append(good[:6:6], "x", "y"), ":path", "/about"),
		"an upper case name":         append(good[:8:8], "X-A", "b"),
		"a blank in a name":          append(good[:8:8], "x a", "b"),
		"a line break in a value":    append(good[:8:8], "x", "a\r\nb: c"),
		"a NUL in a value":           append(good[:8:8], "x", "a\x00"),
		"a connection field":         append(good[:8:8], "connection", "keep-alive"),
		"a keep-alive":               append(good[:8:8], "keep-alive", "5"),
		"an upgrade":                 append(good[:8:8], "upgrade", "websocket"),
		"a transfer coding":          append(good[:8:8], "transfer-encoding", "chunked"),
		"a TE":                       append(good[:8:8], "te", "gzip"),
		"a length without a body":    append(good[:8:8], "content-length", "5"),
		"two lengths":                append(good[:8:8], "content-length", "0", "content-length", "1"),
		"a length that is no number": append(good[:8:8], "content-length", "+1"),
		"another host":               append(good[:8:8], "host", "sale.example"),
		"two hosts":                  append(good[:8:8], "host", "shop.example", "host", "shop.example"),
		"a user": append([]string{
			":method", "GET", ":scheme", "https", ":authority",
			"a@shop.example",
		}, good[6:]...),
		"CONNECT with a path":           append([]string{":method", "CONNECT"}, good[2:]...),
		"a control character in a path": append(good[:6:6], ":path", "/a\x01"),
	} {
		if status, _, err := x.fields(fields, nil); err != nil || status != "" {
			t.Errorf("%s: %q %v", name, status, err)
		}
	}
	for _, c := range []struct {
		name, length, body string
	}{{"a longer body", "1", "ab"}, {"a shorter body", "3", "ab"}} {
		if status, _, err := x.fields(append([]string{":method", "POST"}, append(good[2:8:8], "content-length", c.length)...),
			[]byte(c.body)); err != nil || status != "" {
			t.Errorf("%s: %q %v", c.name, status, err)
		}
	}
	for _, target := range []string{"/a b", "*"} { // read by the gate
		if status, _, err := dialHTTP2(t, st.door.addr(0)).fields(append(good[:6:6], ":path", target), nil); err != nil ||
			status != "400" {
			t.Errorf("%q: %q %v", target, status, err)
		}
	}
	if n := st.origin.requests(); n > 3 { // with the good one, and bodies without their end
		t.Errorf("%d requests reached the site", n)
	}
}

// What a client sent of a body before it knew that its stream was reset is ignored, data and trailers (RFC 9113, 5.1):
// the connection goes on, for the other visitors of a server in front.
func TestWhatIsLateOverHTTP2(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		target string // /vip waits, of /about the site answers early
		others int    // requests between the reset and the rest
		bytes  int    // of data
	}{
		{"of the newest stream", "/vip", 0, 7},
		{"of an older stream", "/vip", 3, 7},
		{"of an old stream", "/vip", 100 - 1, 7},
		{"a window full", "/vip", 0, 200 << 10},
		{"the site answers early", "/about", 0, 7},
		{"the edge's own page answers", "/.well-known/vestibule/draw", 1, 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := openTLS(t, nil)
			st.up.queue(vip, 10, 1)
			st.origin.serves(func(w http.ResponseWriter, _ *http.Request) {
				http.NewResponseController(w).EnableFullDuplex() //nolint:errcheck // the client waits for the answer
				io.WriteString(w, "early")                       //nolint:errcheck // as above
			})
			x := dialHTTP2(t, st.door.addr(0))
			stream := testkit.Must(x.open(false, ":method", "POST", ":scheme", "https", ":authority", "shop.example", ":path",
				c.target))(t)
			testkit.NoError(t, x.WriteData(stream, false, []byte("a part")))
			if status, body, err := x.hear(stream); err != nil || status == "" || len(body) == 0 {
				t.Fatalf("the early answer: %q, %d bytes, %v", status, len(body), err)
			}
			get := func() {
				t.Helper()
				if status, _, err := x.hear(testkit.Must(x.ask(http.MethodGet, "shop.example", "/about"))(t)); err != nil ||
					status != "200" {
					t.Fatalf("the next request on the connection: %q %v", status, err)
				}
			}
			for range c.others {
				get()
			}
			for left := c.bytes; left > 0; left -= 7 << 10 {
				testkit.NoError(t, x.WriteData(stream, false, make([]byte, min(left, 7<<10))))
			}
			x.head.Reset()
			testkit.NoError(t, x.pack.WriteField(hpack.HeaderField{Name: "x-checksum", Value: "1"}))
			testkit.NoError(t, x.WriteHeaders(http2.HeadersFrameParam{
				StreamID: stream, BlockFragment: x.head.Bytes(), EndHeaders: true, EndStream: true,
			}))
			get()
		})
	}
}

// TestNothingIsLateAfterAReset: a client that has reset a stream knows of its end, whether the edge has reset it too.
func TestNothingIsLateAfterAReset(t *testing.T) {
	st := openTLS(t, nil)
	st.up.queue(vip, 10, 1)
	x := dialHTTP2(t, st.door.addr(0))
	stream := testkit.Must(x.open(false, ":method", "POST", ":scheme", "https", ":authority", "shop.example", ":path",
		"/vip"))(t)
	if status, _, err := x.hear(stream); err != nil || status == "" { // the edge resets it behind its answer
		t.Fatalf("the early answer: %q, %v", status, err)
	}
	for reset := false; !reset; { // what is on its way until then may be late
		f := testkit.Must(x.ReadFrame())(t)
		_, reset = f.(*http2.RSTStreamFrame)
		reset = reset && f.Header().StreamID == stream
	}
	if status, _, err := x.hear(testkit.Must(x.ask(http.MethodGet, "shop.example", "/about"))(t)); err != nil ||
		status != "200" {
		t.Fatalf("the next request: %q %v", status, err)
	}
	testkit.NoError(t, x.WriteRSTStream(stream, http2.ErrCodeCancel))
	x.head.Reset()
	testkit.NoError(t, x.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndHeaders: true, EndStream: true}))
	if status, _, err := x.hear(testkit.Must(x.ask(http.MethodGet, "shop.example", "/about"))(t)); err == nil {
		t.Errorf("after headers on a stream that it has reset itself, the client is answered %q", status)
	}
}

// A site that answers before it has read a long body, and then closes, is heard.
func TestAnswersToLongBodiesOverHTTP2(t *testing.T) {
	st := openTLS(t, nil)
	st.origin.serves(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 100<<10)
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			return
		}
		io.WriteString(w, "the site") //nolint:errcheck // as above
	})
	v := st.door.secure(true)
	for _, size := range []int{50 << 10, 120 << 10, 600 << 10, 8 << 20} {
		for _, known := range []bool{true, false} {
			body := io.Reader(bytes.NewReader(make([]byte, size)))
			if !known {
				body = io.MultiReader(body)
			}
			r := testkit.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, "https://shop.example/about", body))(t)
			want := http.StatusOK
			if size > 100<<10 {
				want = http.StatusRequestEntityTooLarge
			}
			if a := v.do(r); a.StatusCode != want {
				t.Errorf("%d bytes, of known length: %v: %d, want %d", size, known, a.StatusCode, want)
			}
		}
	}
}

// h2spec (make h2spec) finds no fault in the front.
func TestH2Spec(t *testing.T) {
	program := testkit.Program(t, "h2spec")
	st := openRooms(t, func(st *stage) {
		st.cfg.Reader = frontFast
		st.withTLS()
		writePair(t, st.cfg.TLS.Cert[0], st.cfg.TLS.Key[0], 1, "localhost")
	}, func(d *room.Document) { d.Rooms[1].Host = "localhost" })
	st.origin.serves(func(w http.ResponseWriter, r *http.Request) {
		// An answer before the end of the body, or before the next request, is right too, and too early for h2spec.
		io.Copy(io.Discard, r.Body) //nolint:errcheck // as above
		select {
		case <-time.After(50 * time.Millisecond):
		case <-r.Context().Done():
		}
		io.WriteString(w, "the site") //nolint:errcheck // h2spec checks the answer
	})
	_, port, err := net.SplitHostPort(st.door.addr(0))
	testkit.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), program, "-t", "-k", "-S", "-h", "localhost", "-p", port, "-P", "/about",
		"-o", "2").CombinedOutput()
	sum := regexp.MustCompile(`\d+ tests, \d+ passed, \d+ skipped, (\d+) failed`).FindSubmatch(out)
	if sum == nil {
		t.Fatalf("%v\n%s", err, out)
	}
	figures.Check(t, "h2spec: failed cases", "", testkit.Must(strconv.ParseFloat(string(sum[1]), 64))(t))
	if err != nil || t.Failed() {
		t.Fatalf("%v\n%s", err, out)
	}
}
