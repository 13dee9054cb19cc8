package edge

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"vestibule/internal/core/room"
	"vestibule/internal/edge/gate"
	"vestibule/internal/lab/testkit"
)

// raw sends bytes unchanged over a connection of its own. It returns the status of every answer until the edge
// closes, and the last answer.
func (d *door) raw(text string) (codes []int, last string) {
	d.Helper()
	d.sent++
	c := testkit.Must(net.Dial("tcp", d.entrance()))(d)
	return d.rawOn(c, text)
}

// rawOn is raw on a connection, which it closes.
func (d *door) rawOn(c net.Conn, text string) (codes []int, last string) {
	d.Helper()
	defer c.Close()
	testkit.NoError(d, c.SetDeadline(time.Now().Add(testkit.Patience)))
	testkit.Must(io.WriteString(c, text))(d)
	br := bufio.NewReader(c)
	for {
		res, err := http.ReadResponse(br, nil)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && len(codes) == 0 && d.instead == "" {
				d.Errorf("no answer to %.80q: %v", text, err)
			}
			return codes, last
		}
		body, err := io.ReadAll(res.Body)
		if err != nil {
			d.Errorf("answer to %.80q: %v", text, err)
			return codes, last
		}
		codes, last = append(codes, res.StatusCode), string(body)
	}
}

// request is a request line and headers; the edge closes after its answer.
func request(line, host string, more ...string) string {
	return line + "\r\nHost: " + host + "\r\nConnection: close\r\n" + strings.Join(append(more, ""), "\r\n") + "\r\n"
}

// vipSpellings may each be read as the path of the room vip.
var vipSpellings = []string{
	"/vip", "/vip/", "/vip/a", "/vip?x=1", "//vip", "///vip", "/./vip", "/x/../vip", "/../vip", "/%76ip", "/%2576ip",
	"/%252576ip",
	"/vip%2f", "/vip%2Fa", "/x%2f..%2fvip", "/..%2fvip", "/%2e/vip", "/.%2e/vip", "/%5cvip", `/\vip`, `/x\..\vip`,
	"/x/..%5cvip",
	"/VIP", "/Vip/a", "/vip;x", "/vip;x/a", "/;a/vip", "/x/..;/vip", "/vip%00", "/vip%00/a", "/vip%3fa", "/vip%23a",
	"/vip#a",
	"/%ef%bd%96ip", "/%EF%BD%B6ip%2f..%2f..%2fvip", "//shop.example/vip", "//127.0.0.1/vip", "http://shop.example/vip",
	"HTTP://SHOP.EXAMPLE./vip",
	"http://shop.example:80//vip", "/%c0%afvip", "/vip%c0%af", "/vip%20", "/vip.", "/x/%2e%2e/vip", "/%u0076ip",
}

// Every target that some origin may read as the room's path is gated by the room.
func TestNoSpellingOfThePathPassesTheRoom(t *testing.T) {
	st := open(t, nil)
	st.up.queue(vip, 10, 1)
	for _, path := range vipSpellings {
		codes, body := st.door.raw(request("GET "+path+" HTTP/1.1", "shop.example"))
		if len(codes) != 1 || codes[0] != http.StatusTooManyRequests && codes[0] != http.StatusBadRequest {
			t.Errorf("%s: %v %.60q", path, codes, body)
		}
	}
	if n := st.origin.requests(); n > 0 {
		t.Errorf("%d spellings reached the origin, the last %s", n, st.origin.last().RequestURI)
	}
}

// oddTargets lie outside of all rooms, and servers may rewrite them.
var oddTargets = []string{
	"/", "/about", "/a%2fb", "/a%2Fb?x=%zz&y;z", "//a//b", "///", "/a/./b", "/a/../b", "/a;b=1", "/a%20b", "/%C3%A9",
	"/%c3%a9", "/a?", "/a??b", "/a?b?c",
	"/a!$&'()*+,;=:@", "/a{b}|c^`", `/a"<b>`, "/é", "//a%2fb?c", "/vips", "/a:80/b", "/?http://x/", "/a#b",
}

// Targets are forwarded byte for byte: the origin may tell spellings apart.
func TestTargetsAreForwardedUnchanged(t *testing.T) {
	st := open(t, nil)
	for _, target := range oddTargets {
		codes, body := st.door.raw(request("GET "+target+" HTTP/1.1", "shop.example"))
		if !slices.Equal(codes, []int{200}) {
			t.Errorf("%s: %v %.60q", target, codes, body)
			continue
		}
		if got := st.origin.last().RequestURI; got != target {
			t.Errorf("%s reached the origin as %s", target, got)
		}
	}
	// Behind two slashes net/http escapes bytes that are invalid in a target.
	for target, want := range map[string]string{"//a{b}é": "//a%7Bb%7D%C3%A9", "//a#b": "//a%23b"} {
		if codes, _ := st.door.raw(request("GET "+target+" HTTP/1.1", "shop.example")); !slices.Equal(codes, []int{200}) ||
			st.origin.last().RequestURI != want {
			t.Errorf("%s: %v, reached the origin as %s", target, codes, st.origin.last().RequestURI)
		}
	}
	// Absolute form: the origin is asked in its own form, for the same.
	for target, want := range map[string]string{
		"http://shop.example/a%2fb?c": "/a%2fb?c", "http://shop.example": "/", "http://shop.example?x": "/?x",
		"http://Shop.Example:81/a": "/a",
	} {
		if codes, _ := st.door.raw(request("GET "+target+" HTTP/1.1", "other.example")); !slices.Equal(codes, []int{200}) ||
			st.origin.last().RequestURI != want {
			t.Errorf("%s: %v, reached the origin as %s", target, codes, st.origin.last().RequestURI)
		}
	}
}

func TestHosts(t *testing.T) {
	st := open(t, nil)
	st.up.queue(sale, 10, 1)
	for _, tc := range []struct {
		host string
		code int
	}{
		{"sale.example", 200},
		{"SALE.Example", 200},
		{"sale.example.", 200},
		{"sale.example:80", 200},
		{"Sale.Example.:8443", 200},
		{"sale.example:", 200},
		{"evil.example", 421},
		{"", 421},
		{"sale.example,shop.example", 421},
		{"shop.example..", 421},
		{".shop.example", 421},
		{"127.0.0.1", 421},
		{"[::1]", 421},
		{"shop.example:http", 421},
		{"x@shop.example", 400},
		{"shop.example/", 400},
		{"shop example", 400},
		{"shop.example\x00", 400},
		{"shöp.example", 400},
	} {
		codes, body := st.door.raw(request("GET / HTTP/1.1", tc.host))
		if len(codes) != 1 || codes[0] != tc.code && (tc.code != 400 || codes[0] != 421) {
			t.Errorf("host %q: %v, want %d", tc.host, codes, tc.code)
		}
		if tc.code == 200 && !strings.Contains(body, "You are in line") {
			t.Errorf("host %q passes the room", tc.host)
		}
	}
	for name, text := range map[string]string{
		"two hosts":            request("GET / HTTP/1.1", "shop.example", "Host: sale.example"),
		"twice the same":       request("GET / HTTP/1.1", "shop.example", "Host: shop.example"),
		"none":                 "GET / HTTP/1.1\r\nConnection: close\r\n\r\n",
		"none in HTTP/1.0":     "GET / HTTP/1.0\r\n\r\n",
		"an asterisk":          request("GET * HTTP/1.1", "shop.example"),
		"a target elsewhere":   request("GET http://evil.example/ HTTP/1.1", "shop.example"),
		"a forwarded host":     request("GET / HTTP/1.1", "evil.example", "X-Forwarded-Host: shop.example"),
		"a space before colon": "GET / HTTP/1.1\r\nHost : shop.example\r\nConnection: close\r\n\r\n",
		"an opaque target":     request("GET shop.example:80 HTTP/1.1", "evil.example"),
	} {
		if codes, _ := st.door.raw(text); len(codes) != 1 || codes[0] != 400 && codes[0] != 421 {
			t.Errorf("%s: %v", name, codes)
		}
	}
	if n := st.origin.requests(); n > 0 {
		t.Errorf("%d requests reached the origin, the last for %s", n, st.origin.last().Host)
	}
}

func TestMethodsThatAreRefused(t *testing.T) {
	st := open(t, nil)
	for _, method := range []string{"CONNECT", "TRACE", "PRI", "get", "propfind", "PURGE", "Connect"} {
		if codes, _ := st.door.raw(request(method+" / HTTP/1.1", "shop.example")); !slices.Equal(codes, []int{405}) {
			t.Errorf("%s: %v, want 405", method, codes)
		}
	}
	if a := st.door.visitor().ask("PURGE", "http://shop.example/", ""); a.StatusCode != 405 ||
		!strings.Contains(a.Header.Get("Allow"), "GET, HEAD, POST") {
		t.Errorf("%d, Allow %q: want 405 and the methods that pass", a.StatusCode, a.Header.Get("Allow"))
	}
	for _, line := range []string{"CONNECT shop.example:443 HTTP/1.1", "CONNECT 127.0.0.1:22 HTTP/1.1"} {
		if codes, _ := st.door.raw(line + "\r\nHost: shop.example\r\n\r\n"); !slices.Equal(codes, []int{405}) {
			t.Errorf("%s: %v, want 405", line, codes)
		}
	}
	st.origin.untouched()
	// Exempt methods do not exist: a preflight waits like everything else.
	st.up.queue(sale, 10, 1)
	for _, method := range []string{"OPTIONS", "HEAD", "DELETE", "PROPFIND", "QUERY"} {
		if a := st.door.visitor().ask(method, "http://sale.example/", ""); a.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %d, not the waiting page", method, a.StatusCode)
		}
	}
	st.origin.untouched()
}

// Methods of IANA's registry and QUERY reach the site with their bodies, and those that all rooms of a request name.
func TestMethodsThatPass(t *testing.T) {
	eachFront(t, func(t *testing.T, front string) {
		st := openWith(t, 10, func(r *room.Settings) { r.Methods = "PURGE X-1" }, reads(front))
		in := "Cookie: " + st.keys.seal("sale", session(7)) + "; " + st.keys.seal("vip", session(8))
		for method, want := range map[string]int{
			"PROPFIND": 200, "REPORT": 200, "MKCOL": 200, "QUERY": 200, "VERSION-CONTROL": 200, "PURGE": 200, "X-1": 200,
			"purge": 405, "BAN": 405, "CONNECT": 405, "TRACE": 405, "PRI": 405,
		} {
			codes, _ := st.door.raw(request(method+" /a HTTP/1.1", "sale.example", in, "Content-Length: 3") + "a=b")
			if !slices.Equal(codes, []int{want}) {
				t.Errorf("%s: %v, want %d", method, codes, want)
			} else if want == 200 && st.origin.last().Method != method {
				t.Errorf("%s reached the site as %s", method, st.origin.last().Method)
			}
		}
		for target, want := range map[string]int{"/about": 405, "/vip": 405} { // outside of all rooms, and in another one
			codes, _ := st.door.raw(request("PURGE "+target+" HTTP/1.1", "shop.example", in))
			if !slices.Equal(codes, []int{want}) {
				t.Errorf("PURGE %s: %v, want %d", target, codes, want)
			}
		}
		// The second path of COPY and MOVE is in no room that the request is not in.
		for destination, want := range map[string]int{
			"/about2": 200, "http://shop.example/about2": 200, "/vip/a": 403, "http://shop.example/vip": 403,
			"//elsewhere/vip": 403, "http://shop.example/x/../vip": 403,
			"/%76ip": 403, "vip": 403, "http://sale.example/": 403, "mailto:a": 403, "%zz": 403,
		} {
			for _, method := range []string{"MOVE", "COPY"} {
				codes, body := st.door.raw(request(method+" /about HTTP/1.1", "shop.example", "Destination: "+destination))
				if !slices.Equal(codes, []int{want}) {
					t.Errorf("%s to %s: %v %q, want %d", method, destination, codes, body, want)
				}
			}
		}
		two := request("MOVE /about HTTP/1.1", "shop.example", "Destination: /a", "Destination: /vip")
		if codes, _ := st.door.raw(two); !slices.Equal(codes, []int{403}) {
			t.Errorf("two destinations: %v", codes)
		}
	})
}

// Offers that a server may ignore are ignored, and do not reach the site (RFC 9110, 7.8 and 10.1.4). An expectation
// must not be.
func TestOptionalHeadersAreIgnored(t *testing.T) {
	eachFront(t, func(t *testing.T, front string) {
		st := open(t, reads(front))
		offered := http.Header{} // to the site
		st.origin.serves(func(w http.ResponseWriter, r *http.Request) {
			for _, name := range []string{"Upgrade", "Http2-Settings", "Te", "Connection"} {
				if v, ok := r.Header[name]; ok {
					offered[name] = v
				}
			}
			io.WriteString(w, "the site") //nolint:errcheck // the client checks the answer
		})
		for _, lines := range [][]string{
			{"Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"},
			{"Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"},
			{"Connection: Upgrade", "Upgrade: TLS/1.0"},
			{"Connection: Upgrade", "Upgrade:"},
			{"Connection: Upgrade", "Upgrade: h2c", "Upgrade: TLS/1.3"},
			{"Upgrade: websocket"},
			{"TE: trailers"},
			{"Connection: TE", "TE: trailers, deflate;q=0.5"},
			{"Connection: Upgrade"},
		} {
			codes, body := st.door.raw("GET /about HTTP/1.1\r\nHost: shop.example\r\n" + strings.Join(lines, "\r\n") +
				"\r\n\r\n" + last)
			if !slices.Equal(codes, []int{200, 200}) || body != "the site" {
				t.Errorf("%q: %v %q", lines, codes, body)
			}
			for name, v := range offered {
				t.Errorf("%q: %s: %q reached the site", lines, name, v)
			}
		}
		codes, _ := st.door.raw("GET /about HTTP/1.0\r\nHost: shop.example\r\n" +
			"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		if r := st.origin.last(); !slices.Equal(codes, []int{200}) || r.Header["Upgrade"] != nil {
			t.Errorf("an upgrade of HTTP/1.0: %v, %v", codes, r.Header)
		}
		codes, _ = st.door.raw(request("POST /about HTTP/1.1", "shop.example", "Connection: Upgrade", "Upgrade: websocket",
			"Content-Length: 0"))
		if !slices.Equal(codes, []int{200}) || st.origin.last().Header["Upgrade"] != nil {
			t.Errorf("POST with an upgrade: %v", codes)
		}
		before := st.origin.requests()
		for _, e := range [][]string{
			{"Expect: the-unexpected"}, {"Expect: 100-continue, x"}, {"Expect: 100-continue", "Expect: x"},
		} {
			if codes, _ := st.door.raw(request("GET /about HTTP/1.1", "shop.example", e...)); !slices.Equal(codes, []int{417}) {
				t.Errorf("%q: %v, want 417", e, codes)
			}
		}
		if n := st.origin.requests(); n > before {
			t.Errorf("%d of them reached the site", n-before)
		}
	})
}

// smuggled are requests outside of all rooms that hide one for the room vip.
func smuggled() map[string]string {
	hidden := request("GET /vip HTTP/1.1", "shop.example")
	post := func(headers ...string) string {
		return "POST /about HTTP/1.1\r\nHost: shop.example\r\n" + strings.Join(headers, "\r\n") + "\r\n\r\n"
	}
	chunk := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(hidden), hidden)
	return map[string]string{
		"CL.TE": post(fmt.Sprintf("Content-Length: %d", 5+len(hidden)), "Transfer-Encoding: chunked") +
			"0\r\n\r\n" + hidden,
		"TE.CL": post("Content-Length: 4", "Transfer-Encoding: chunked", "Connection: close") + chunk,
		"TE.TE": post("Transfer-Encoding: chunked", "Transfer-Encoding: identity", "Connection: close") +
			"0\r\n\r\n" + hidden,
		"unknown coding": post("Transfer-Encoding: xchunked", "Content-Length: 5", "Connection: close") + "0\r\n\r\n" +
			hidden,
		"coding with a tab":    post("Transfer-Encoding:\tchunked", "Content-Length: 5") + "0\r\n\r\n" + hidden,
		"space before colon":   post("Transfer-Encoding : chunked", "Content-Length: 5") + "0\r\n\r\n" + hidden,
		"folded line":          post("Transfer-Encoding:\r\n chunked", "Content-Length: 5") + "0\r\n\r\n" + hidden,
		"bare LF":              "POST /about HTTP/1.1\nHost: shop.example\nTransfer-Encoding: chunked\n\n0\r\n\r\n" + hidden,
		"two lengths":          post("Content-Length: 0", fmt.Sprintf("Content-Length: %d", len(hidden))) + hidden,
		"a length with a sign": post(fmt.Sprintf("Content-Length: +%d", len(hidden))) + hidden,
		"a body of GET":        "GET /about HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 0\r\n\r\n" + hidden,
		"chunk extension":      post("Transfer-Encoding: chunked", "Connection: close") + "0;\nx\r\n\r\n" + hidden,
		"CR in the target":     "GET /about\rX: y HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n" + hidden,
		"CRLF in the target":   request("GET /about%0d%0aX:%20y%0d%0a%0d%0aGET%20/vip HTTP/1.1", "shop.example"),
		"LF in a header":       request("GET /about HTTP/1.1", "shop.example", "X-A: b%0aContent-Length: 5"),
		"pipelined":            "GET /about HTTP/1.1\r\nHost: shop.example\r\n\r\n" + hidden,
		"underscores": request("POST /about HTTP/1.1", "shop.example", "Content_Length: 5",
			"Transfer_Encoding: chunked", "Content-Length: 0"),
		"named in Connection": request("POST /about HTTP/1.1", "shop.example", "Connection: Content-Length, Host",
			"Content-Length: 0"),
		"trailer": post("Transfer-Encoding: chunked", "Trailer: X-Forwarded-For", "Connection: close") +
			"0\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n",
		"HTTP/1.0 chunked": "POST /about HTTP/1.0\r\nHost: shop.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" +
			hidden,
		"HTTP/0.9": "GET /vip\r\n" + hidden,
	}
}

// A request hidden in another is either refused with it or decided by itself, also on a connection that goes on with a
// poisoned request behind; the origin's audit sees to it that none arrives undecided. FuzzFronts checks that both
// fronts let the same ones through.
func TestSmuggling(t *testing.T) {
	eachFront(t, func(t *testing.T, front string) {
		st := open(t, func(st *stage) { st.cfg.Reader, st.cfg.Timeouts.Header = front, 300*time.Millisecond })
		st.up.queue(vip, 10, 1)
		behind := request("GET /about?behind HTTP/1.1", "shop.example", "X-Poison: GET /vip HTTP/1.1")
		for name, text := range smuggled() {
			st.door.raw(text)
			st.door.raw(goingOn(text) + behind)
			for _, r := range st.origin.requestsSeen() {
				if !strings.HasPrefix(r.RequestURI, "/about") {
					t.Errorf("%s: %s reached the origin", name, r.RequestURI)
				}
				if len(r.Header.Values("Transfer_encoding")) > 0 || len(r.Trailer) > 0 ||
					r.ContentLength > 0 && len(r.TransferEncoding) > 0 {
					t.Errorf("%s: the origin got %v, trailer %v, %v", name, r.Header, r.Trailer, r.TransferEncoding)
				}
			}
		}
	})
}

// requestsSeen returns the requests that the site saw, and forgets them.
func (o *auditor) requestsSeen() []*http.Request {
	o.mu.Lock()
	defer o.mu.Unlock()
	seen := o.seen
	o.seen = nil
	return seen
}

func TestHugeHeadersAreRefused(t *testing.T) {
	st := open(t, nil)
	codes, _ := st.door.raw(request("GET / HTTP/1.1", "sale.example",
		"Cookie: vestibule-sale="+strings.Repeat("A", 64<<10)))
	if !slices.Equal(codes, []int{http.StatusRequestHeaderFieldsTooLarge}) {
		t.Errorf("64 KiB of headers: %v", codes)
	}
	many := strings.Repeat("vestibule-sale=AAAA; ", 600)
	codes, _ = st.door.raw(request("GET / HTTP/1.1", "sale.example", "Cookie: "+many+"theirs=1"))
	if !slices.Equal(codes, []int{200}) {
		t.Errorf("600 cookies: %v", codes)
	}
	if got := st.origin.last().Header.Get("Cookie"); got != "theirs=1" {
		t.Errorf("the origin got the cookie %.40q", got)
	}
}

// A visitor that is slow with headers, or with a body that is not read, is cut.
func TestSlowVisitorsAreCut(t *testing.T) {
	t.Parallel()
	st := open(t, func(st *stage) {
		st.cfg.Timeouts.Header, st.cfg.Timeouts.Idle = 100*time.Millisecond, 100*time.Millisecond
	})
	st.up.queue(vip, 10, 1)
	for name, text := range map[string]string{
		"headers":                     "GET / HTTP/1.1\r\nHost: shop.example\r\nX-A: ",
		"nothing at all":              "",
		"a body while waiting":        "POST /vip HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 100\r\n\r\nx",
		"a body of a refused request": "POST / HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 100\r\n\r\nx",
		"a body for the origin":       "POST /about HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 100\r\n\r\nx",
		"after an answer":             "GET /about HTTP/1.1\r\nHost: shop.example\r\n\r\n",
	} {
		c := testkit.Must(net.Dial("tcp", st.door.addr(0)))(t)
		testkit.Must(io.WriteString(c, text))(t)
		testkit.NoError(t, c.SetDeadline(time.Now().Add(testkit.Patience)))
		if _, err := io.Copy(io.Discard, c); err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: the edge goes on waiting", name)
		}
		testkit.NoError(t, c.Close())
	}
}

// A visitor that sends a head, or a body that is not read, byte by byte is cut too.
func TestVisitorsWhoDripAreCut(t *testing.T) {
	t.Parallel()
	eachFront(t, func(t *testing.T, front string) {
		st := open(t, func(st *stage) { st.cfg.Reader, st.cfg.Timeouts.Header = front, 100*time.Millisecond })
		st.up.queue(vip, 10, 1)
		for name, text := range map[string]string{
			"headers":                     "GET / HTTP/1.1\r\nHost: shop.example\r\nX-A: ",
			"headers after an answer":     "GET /about HTTP/1.1\r\nHost: shop.example\r\n\r\nGET / HTTP/1.1\r\nX-A: ",
			"a body while waiting":        "POST /vip HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 16000\r\n\r\n",
			"a body of a refused request": "POST / HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 16000\r\n\r\n",
			"chunks while waiting": "POST /vip HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: chunked\r\n" +
				"\r\nffff\r\n",
		} {
			c := st.door.dial()
			testkit.Must(io.WriteString(c, text))(t)
			testkit.NoError(t, c.SetDeadline(time.Now().Add(testkit.Patience)))
			ended := make(chan error, 1)
			go func() {
				_, err := io.Copy(io.Discard, c)
				ended <- err
			}()
			drops := time.NewTicker(10 * time.Millisecond)
			for over := false; !over; {
				select {
				case err := <-ended:
					if over = true; errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("%s: the edge goes on reading", name)
					}
				case <-drops.C:
					c.Write([]byte("x")) //nolint:errcheck // the edge ends it
				}
			}
			drops.Stop()
		}
	})
}

// A visitor that reads an answer too slowly is cut, and so is the origin's connection; a quiet stream is not.
func TestSlowReadersAreCut(t *testing.T) {
	t.Parallel()
	st := open(t, func(st *stage) { st.cfg.Timeouts.Idle = 500 * time.Millisecond })
	ended := make(chan struct{})
	st.origin.serves(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	})
	c := testkit.Must(net.Dial("tcp", st.door.addr(0)))(t)
	defer c.Close()
	testkit.Must(io.WriteString(c, request("GET /about HTTP/1.1", "shop.example")))(t)
	<-ended

	st.origin.serves(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		select { // longer than the time allowed without progress
		case <-time.After(1200 * time.Millisecond):
		case <-r.Context().Done():
			t.Error("a quiet stream was cut")
		}
		io.WriteString(w, "still here") //nolint:errcheck // the client checks the answer
	})
	st.door.visitor().get("http://shop.example/about").says(t, "still here", "a quiet stream")
}

// A visitor that cancels requests over HTTP/2 keeps no connection to the site, whenever the cancel arrives.
func TestCanceledRequestsKeepNoConnectionToTheSite(t *testing.T) {
	eachFront(t, func(t *testing.T, front string) {
		st := open(t, func(st *stage) {
			st.maxFiles = 64 // 11 connections to origins
			st.cfg.Reader = front
			st.withTLS()
		})
		for range 5 {
			x := dialHTTP2(t, st.door.addr(0))
			for range 20 {
				stream := testkit.Must(x.ask(http.MethodGet, "shop.example", "/about"))(t)
				if status, _, err := x.hear(stream); err != nil || status != "200" {
					t.Fatalf("a request between canceled ones: %q %v", status, err)
				}
				for range 3 {
					stream, err := x.ask(http.MethodGet, "shop.example", "/about")
					if err == nil {
						err = x.WriteRSTStream(stream, http2.ErrCodeCancel)
					}
					testkit.NoError(t, err)
				}
			}
			x.Close() // its error changes nothing
		}
		a := st.door.secure(true).get("https://shop.example/about")
		if a.StatusCode != http.StatusOK {
			t.Errorf("after 300 canceled requests: %d %.60q", a.StatusCode, a.body)
		}
		eventually(t, "no connection is taken", func() bool {
			if front == frontFast {
				return metric(t, st, "vestibule_edge_origin_connections") == float64(st.server.pool.Idle())
			}
			return metric(t, st, "vestibule_edge_origin_connections") <= 2
		})
	})
}

// A site answers before the body, which the client sends only if asked: the client gets the answer, and the connection
// does not wait for the body for long.
func TestAnAnswerBeforeTheBody(t *testing.T) {
	t.Parallel()
	eachFront(t, func(t *testing.T, front string) {
		plain := open(t, func(st *stage) { st.cfg.Reader, st.cfg.Timeouts.Header = front, time.Second })
		secure := open(t, readsTLS(front))
		for _, st := range []*stage{plain, secure} {
			st.origin.serves(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
			for _, length := range []int{1, 100 << 10, 1 << 20} {
				c := st.door.dial()
				if st == secure {
					c = tls.Client(c, trusting("shop.example"))
				}
				text := fmt.Sprintf("POST /about HTTP/1.1\r\nHost: shop.example\r\n"+
					"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n", length)
				testkit.NoError(t, c.SetDeadline(time.Now().Add(testkit.Patience)))
				testkit.Must(io.WriteString(c, text))(t)
				b := make([]byte, len("HTTP/1.1 401 "))
				if _, err := io.ReadFull(c, b); err != nil || string(b) != "HTTP/1.1 401 " {
					t.Errorf("a body of %d bytes, TLS %v: %v %q", length, st == secure, err, b)
				}
				if begun := time.Now(); st == plain && length == 1 {
					if _, err := io.Copy(io.Discard, c); err != nil || time.Since(begun) > st.cfg.Timeouts.Idle/2 {
						t.Errorf("the connection ends after %v: %v", time.Since(begun), err)
					}
				}
				c.Close() // as in dial
			}
		}
	})
}

// A request for an event stream with more bytes behind it is refused, and its connection closed, whatever part of the
// bytes each reader has in its buffer.
func TestBytesBehindAStreamsRequest(t *testing.T) {
	eachFront(t, func(t *testing.T, front string) {
		st := open(t, reads(front))
		st.up.queue(sale, 10, 1)
		for _, size := range [][2]int{
			{8000, 7000}, {8000, 3000}, {3000, 12000}, {12000, 7000}, {100, 16000}, {8000, 60000}, {100, 1}, {4000, 4096},
		} {
			c := st.door.dial()
			text := "GET " + gate.EventsPath + "?room=sale HTTP/1.1\r\nHost: sale.example\r\nCookie: " +
				st.keys.seal("sale", inLine(7)) + "\r\nX-Pad: " + strings.Repeat("a", size[0]) + "\r\n\r\n"
			testkit.NoError(t, c.SetDeadline(time.Now().Add(testkit.Patience)))
			if _, err := io.WriteString(c, text+strings.Repeat("x", size[1])); err != nil {
				t.Logf("%v: %v", size, err) // the edge has closed
			}
			if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%v: %v", size, err)
			}
			c.Close() // as in dial
		}
		eventually(t, "no connection and no stream is left", func() bool {
			return metric(t, st, "vestibule_edge_connections") == 0 && metric(t, st, "vestibule_edge_event_streams") == 0
		})
		st.counts(0, "vestibule_edge_panics_total")
	})
}

// What servers read in more than one way is refused by either front, with or without TLS, also behind other requests
// on the connection, and never reaches the site.
func TestRequestsWithTwoReadings(t *testing.T) {
	post := func(lines string) string {
		return "POST /about HTTP/1.1\r\nHost: shop.example\r\n" + lines + "\r\n\r\n"
	}
	// net/http reads it.
	const odd = "POST /about HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"
	bad := map[string]string{
		"a fold":                post("X-A: b\r\n c"),
		"a fold of a length":    post("Content-Length:\r\n 1") + "a",
		"both framings":         post("Content-Length: 5\r\nTransfer-Encoding: chunked") + "0\r\n\r\n",
		"both, the other first": post("Transfer-Encoding: chunked\r\nContent-Length: 5") + "0\r\n\r\n",
		"a length twice":        post("Content-Length: 1\r\nContent-Length: 1") + "a",
		"a coding twice":        post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked") + "0\r\n\r\n",
		"chunked in HTTP/1.0":   "POST /about HTTP/1.0\r\nHost: shop.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"an asterisk":           "GET * HTTP/1.1\r\nHost: shop.example\r\n\r\n",
	}
	eachFront(t, func(t *testing.T, front string) {
		plain := open(t, reads(front))
		secure := open(t, readsTLS(front))
		for name, text := range bad {
			for _, before := range []string{"", odd} {
				for _, st := range []*stage{plain, secure} {
					seen := st.origin.requests()
					c := st.door.dial()
					if st == secure {
						c = tls.Client(c, trusting("shop.example"))
					}
					want, n := []int{400}, 0
					if before != "" {
						want, n = []int{200, 400}, 1
					}
					codes, _ := st.door.rawOn(c, before+text+request("GET /about?behind HTTP/1.1", "shop.example"))
					if reached := st.origin.requests() - seen; !slices.Equal(codes, want) || reached != n {
						t.Errorf("%s behind %d bytes, TLS %v: %v, and %d reached the site", name, len(before), st == secure, codes,
							reached)
					}
				}
			}
		}
	})
}
