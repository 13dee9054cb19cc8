package edge

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/ticket"
	"vestibule/internal/lab/testkit"
)

// reads has a stage read requests by a front.
func reads(front string) func(*stage) { return func(st *stage) { st.cfg.Reader = front } }

// readsTLS has a stage read requests over TLS by a front.
func readsTLS(front string) func(*stage) {
	return func(st *stage) {
		st.cfg.Reader = front
		st.withTLS()
	}
}

// eachFront runs a test with both fronts.
func eachFront(t *testing.T, test func(t *testing.T, front string)) {
	for _, front := range []string{frontFast, frontNetHTTP} {
		t.Run(front, func(t *testing.T) { test(t, front) })
	}
}

// oneFront runs a long test with the front of -front, and with both by -thorough.
func oneFront(t *testing.T, test func(t *testing.T, front string)) {
	if *thorough {
		eachFront(t, test)
	} else {
		t.Run(*frontFlag, func(t *testing.T) { test(t, *frontFlag) })
	}
}

// maxFastBody is the longest body that the fast front reads itself.
const maxFastBody = 16 << 10

// byFront returns how many requests each front has read, and how many connections were
// handed over.
func byFront(t testing.TB, st *stage) (fast, netHTTP, handed float64) {
	t.Helper()
	const requests = "vestibule_edge_front_requests_total"
	return metric(t, st, requests, "front", frontFast), metric(t, st, requests, "front", frontNetHTTP), metric(t, st, "vestibule_edge_handovers_total")
}

// The fast front reads only requests that it fully understands. net/http reads any other, and the rest of that
// connection. Nothing is counted twice.
func TestWhichFrontReads(t *testing.T) {
	const more = "GET /about HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n"
	for _, tc := range []struct {
		name, text    string
		fast, netHTTP float64
		codes         []int
	}{
		{"a page", request("GET /about HTTP/1.1", "shop.example"), 1, 0, []int{200}},
		{"two behind each other", "GET /about HTTP/1.1\r\nHost: shop.example\r\n\r\n" + more, 2, 0, []int{200, 200}},
		{
			"a form", "POST /about HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 3\r\n\r\na=b" + more, 2, 0,
			[]int{200, 200},
		},
		{
			"somebody who waits", "POST /vip HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 3\r\n\r\na=b" + more, 2, 0,
			[]int{429, 200},
		},
		{"another host", "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n" + more, 2, 0, []int{421, 200}},
		{"chunks", "POST /about HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na=b\r\n0\r\n\r\n" +
			more, 0, 2, []int{200, 200}},
		{"a large body", fmt.Sprintf("POST /about HTTP/1.1\r\nHost: shop.example\r\nContent-Length: %d\r\n\r\n%s",
			maxFastBody+1, strings.Repeat("x", maxFastBody+1)) + more, 0, 2, []int{200, 200}},
		{"a preflight", "OPTIONS /about HTTP/1.1\r\nHost: shop.example\r\n\r\n" + more, 0, 2, []int{200, 200}},
		{
			"a path of the edge",
			"POST /.well-known/vestibule/leave?room=vip HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 0\r\n\r\n" + more,
			0, 2,
			[]int{204, 200},
		},
		{"an odd one at last", "GET /about HTTP/1.1\r\nHost: shop.example\r\n\r\n" +
			request("GET //about HTTP/1.1", "shop.example"), 1, 1, []int{200, 200}},
		{"absolute form", request("GET http://shop.example/about HTTP/1.1", "other.example"), 0, 1, []int{200}},
		{"HTTP/1.0", "GET /about HTTP/1.0\r\nHost: shop.example\r\n\r\n", 0, 1, []int{200}},
		{"bare LF", "GET /about HTTP/1.1\nHost: shop.example\nConnection: close\n\n", 0, 1, []int{200}},
		{"no request", "hello\r\n\r\n", 0, 0, []int{400}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			st := open(t, reads(frontFast))
			st.up.queue(vip, 10, 1)
			codes, _ := st.door.raw(tc.text)
			if !slices.Equal(codes, tc.codes) {
				t.Errorf("answered %v, want %v", codes, tc.codes)
			}
			fast, netHTTP, handed := byFront(t, st)
			if fast != tc.fast || netHTTP != tc.netHTTP || (handed > 0) != (tc.netHTTP > 0 || tc.name == "no request") {
				t.Errorf("%v read by the fast front and %v by net/http, %v handed over; want %v and %v", fast, netHTTP, handed,
					tc.fast, tc.netHTTP)
			}
		})
	}
}

// A connection with TLS that is handed over is one with TLS still.
func TestHandingOverKeepsTLS(t *testing.T) {
	st := open(t, readsTLS(frontFast))
	v := st.door.secure(false)
	for _, method := range []string{http.MethodGet, http.MethodOptions, http.MethodGet} {
		a := v.ask(method, "https://sale.example/", "")
		if a.ProtoMajor != 1 || a.body != "the site" {
			t.Errorf("%s: %s %d", method, a.Proto, a.StatusCode)
		}
		if got := st.origin.last().Header.Get("X-Forwarded-Proto"); got != "https" {
			t.Errorf("%s: the site gets %s", method, got)
		}
		for _, c := range a.Cookies() {
			if !c.Secure || c.Name != ticket.CookieName("sale", true) {
				t.Errorf("%s: %v", method, c)
			}
		}
	}
	fast, netHTTP, handed := byFront(t, st)
	if fast != 1 || netHTTP != 2 || handed != 1 {
		t.Errorf("read: %v, by net/http %v; %v handed over", fast, netHTTP, handed)
	}
}

// goingOn returns a request that keeps the connection open.
func goingOn(text string) string {
	text = strings.ReplaceAll(text, "Connection: close\r\n", "")
	return strings.ReplaceAll(text, "\r\nConnection: close", "")
}

// newRawSite returns the address of a site that answers with raw bytes. answer gets n, the index of the request on
// its connection; an empty answer closes the connection.
func newRawSite(t testing.TB, answer func(n int, r *http.Request) string) (addr string) {
	t.Helper()
	return testkit.Listen(t, func(c net.Conn) {
		br := bufio.NewReader(c)
		for n := 0; ; n++ {
			r, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
			text := answer(n, r)
			if _, err := io.WriteString(c, text); err != nil || text == "" {
				return
			}
			if strings.HasSuffix(text, "<end>") {
				return
			}
		}
	})
}

// openAt is open with another site.
func openAt(t testing.TB, site string, change func(*stage)) *stage {
	t.Helper()
	st := newStage(t, change)
	st.unaudited()
	st.serve(document(site))
	st.up.grant(sale, 1000, 1000)
	st.covered(100, sale)
	return st
}

const (
	goodAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood"
	poison     = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
)

// hostile are answers that are broken, or hide another.
var hostile = map[string]string{
	"another answer behind": goodAnswer + poison,
	"behind one without":    "HTTP/1.1 204 No Content\r\n\r\n" + poison,
	"behind a 304":          "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n" + poison,
	"behind chunks":         "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + poison,
	"both framings": "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" +
		poison,
	"two lengths":          "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 71\r\n\r\n" + poison,
	"a length with a sign": "HTTP/1.1 200 OK\r\nContent-Length: +0\r\n\r\n" + poison,
	"an unknown coding":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: x\r\n\r\n" + poison,
	"a broken chunk":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n" + poison,
	"a chunk extension":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;\na\r\n0\r\n\r\n" + poison,
	"an unasked upgrade":   "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n" + poison,
	"hints without end":    strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 50) + goodAnswer,
	"the status 000":       "HTTP/1.1 000 None\r\nContent-Length: 0\r\n\r\n" + poison,
	"the status 099":       "HTTP/1.1 099 Low\r\nContent-Length: 0\r\n\r\n" + poison,
	"the status 600":       "HTTP/1.1 600 High\r\nContent-Length: 0\r\n\r\n" + poison,
	"no answer":            "SSH-2.0-x\r\n",
	"half a head":          "HTTP/1.1 200 OK\r\nX: <end>",
	"half a body":          "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf<end>",
	"half a chunk":         "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nhalf<end>",
	"a CR in a value":      "HTTP/1.1 200 OK\r\nX-A: b\rSet-Cookie: c=d\r\nContent-Length: 0\r\n\r\n" + poison,
	"a NUL in a value":     "HTTP/1.1 200 OK\r\nX-A: \x00\r\nContent-Length: 0\r\n\r\n" + poison,
	"a cookie like a ticket": "HTTP/1.1 200 OK\r\nSet-Cookie: vestibule-sale=x\r\nVestibule-Ticket: sale=x\r\n" +
		"Content-Length: 0\r\n\r\n" + poison,
}

// hostileSite returns the address of a site that answers /about?evil with text. The first answer on a new connection
// differs from later ones, so that reuse shows.
func hostileSite(t testing.TB, text string) (addr string) {
	return newRawSite(t, func(n int, r *http.Request) string {
		if r.RequestURI == "/about?evil" {
			return text
		}
		if n == 0 {
			return goodAnswer
		}
		return strings.Replace(goodAnswer, "good", "fine", 1)
	})
}

// poisoned reports whether an answer holds bytes that no visitor may get.
func poisoned(answer string) bool {
	return slices.ContainsFunc([]string{"poison", "vestibule-sale=x", "Vestibule-Ticket", "\rSet-Cookie"},
		func(s string) bool { return strings.Contains(answer, s) })
}

// A site with broken answers, or answers that hide another, does not harm the next visitor.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	eachFront(t, func(t *testing.T, front string) {
		for name, text := range hostile {
			site := hostileSite(t, text)
			st := openAt(t, "http://"+site, reads(front))
			c := testkit.Must(net.Dial("tcp", st.door.addr(0)))(t)
			testkit.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
			testkit.Must(io.WriteString(c, request("GET /about?evil HTTP/1.1", "shop.example")))(t)
			out, err := io.ReadAll(c)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: no end", name)
			}
			c.Close() // it was read to its end
			if poisoned(string(out)) || strings.HasPrefix(name, "the status") &&
				!strings.HasPrefix(string(out), "HTTP/1.1 502 ") {
				t.Errorf("%s: the visitor gets %q", name, out)
			}
			if n := metric(t, st, "vestibule_edge_panics_total"); n > 0 {
				t.Errorf("%s: %v panics", name, n)
			}
			for range 3 {
				if codes, body := st.door.raw(request("GET /about HTTP/1.1", "shop.example")); !slices.Equal(codes, []int{200}) ||
					body != "good" && body != "fine" {
					t.Errorf("%s: who asks next gets %v %q", name, codes, body)
				}
			}
			testkit.NoError(t, st.stop())
		}
	})
}

// The same over HTTP/2, where a visitor has one connection for all requests.
func TestHostileAnswersOverHTTP2(t *testing.T) {
	t.Parallel()
	eachFront(t, func(t *testing.T, front string) {
		for name, text := range hostile {
			site := hostileSite(t, text)
			st := openAt(t, "http://"+site, readsTLS(front))
			v := st.door.secure(true)
			if res, err := v.Get("https://shop.example/about?evil"); err == nil {
				body, err := io.ReadAll(res.Body)
				if s := fmt.Sprint(res.StatusCode, res.Header, string(body)); poisoned(s) {
					t.Errorf("%s: the visitor gets %s", name, s)
				}
				if half := strings.HasPrefix(name, "half a"); half && err == nil && res.StatusCode == http.StatusOK {
					t.Errorf("%s: the visitor takes %q for the whole", name, body)
				}
				res.Body.Close() // it was read to its end
			}
			for range 3 {
				if a := v.get("https://shop.example/about"); a.StatusCode != http.StatusOK || a.body != "good" && a.body != "fine" {
					t.Errorf("%s: who asks next gets %d %q", name, a.StatusCode, a.body)
				}
			}
			v.CloseIdleConnections()
			testkit.NoError(t, st.stop())
		}
	})
}

// Answers of all framings pass either front, and so do the answers after them.
func TestAnswersOfAllFramings(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 20<<10) // more than any buffer
	site := newRawSite(t, func(_ int, r *http.Request) string {
		q, err := url.QueryUnescape(r.URL.RawQuery)
		if err != nil {
			return ""
		}
		return strings.ReplaceAll(q, "LONG", long)
	})
	eachFront(t, func(t *testing.T, front string) {
		overBoth(t, front, "http://"+site, func(t *testing.T, st *stage, v *visitor, scheme string) {
			for _, tc := range []struct {
				method, answer, body string
				status               int
				length               int64
			}{
				{"GET", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", "abc", 200, 3},
				{"GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "", 200, 0},
				{"GET", fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\nLONG", len(long)), long, 200, int64(len(long))},
				{"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n", "", 200, 77},
				{"GET", "HTTP/1.1 204 No Content\r\n\r\n", "", 204, 0},
				{"GET", "HTTP/1.1 304 Not Modified\r\nEtag: \"a\"\r\n\r\n", "", 304, -1},
				{
					"GET", "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", "abcde",
					404, -1,
				},
				{"GET", fmt.Sprintf("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\nLONG\r\n0\r\nX-T: a\r\n\r\n",
					len(long)), long, 200, -1},
				{
					"GET",
					"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n" +
						"Content-Length: 1\r\n\r\nx",
					"x", 200, 1,
				},
				{"GET", "HTTP/1.0 200 OK\r\n\r\nto the <end>", "to the <end>", 200, -1},
				{"GET", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nLONG<end>", long + "<end>", 200, -1},
				{"POST", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", "abc", 200, 3},
			} {
				a := v.ask(tc.method, scheme+"://shop.example/about?"+url.QueryEscape(tc.answer), "")
				if a.StatusCode != tc.status || a.body != tc.body || a.ContentLength != tc.length && tc.length >= 0 {
					t.Errorf("%s %.80q: %d, %d bytes, length %d", tc.method, tc.answer, a.StatusCode, len(a.body), a.ContentLength)
				}
			}
			if front == frontFast && scheme == "http" {
				if _, netHTTP, _ := byFront(t, st); netHTTP > 0 {
					t.Errorf("%v were read by net/http", netHTTP)
				}
			}
		})
	})
}

// No answer offers the visitor another address of the site, where no edge decides, in either front and over HTTP/2.
func TestNoAnswerLeadsPastTheEdge(t *testing.T) {
	const offers = "Alt-Svc: h3=\"direct.example:443\"\r\nalternate-protocol: 443:quic\r\nLink: </a>\r\n"
	site := newRawSite(t, func(int, *http.Request) string {
		return "HTTP/1.1 103 Early Hints\r\n" + offers + "Set-Cookie: a=b\r\n\r\nHTTP/1.1 200 OK\r\n" + offers +
			"Content-Length: 2\r\n\r\nok"
	})
	eachFront(t, func(t *testing.T, front string) {
		overBoth(t, front, "http://"+site, func(t *testing.T, _ *stage, v *visitor, scheme string) {
			hints := []textproto.MIMEHeader{}
			trace := &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
				hints = append(hints, maps.Clone(h))
				return nil
			}}
			r := testkit.Must(http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet,
				scheme+"://shop.example/about", nil))(t)
			a := v.do(r)
			if a.body != "ok" || a.Header["Alt-Svc"] != nil || a.Header["Alternate-Protocol"] != nil ||
				a.Header.Get("Link") != "</a>" {
				t.Errorf("%d %v %q", a.StatusCode, a.Header, a.body)
			}
			if len(hints) != 1 || len(hints[0]) != 1 || hints[0].Get("Link") != "</a>" {
				t.Errorf("hints: %v", hints)
			}
		})
	})
}

// A hint that a site sends behind its answer may be read with the next one on the connection: it reaches nobody.
func TestALateHintIsNobodyElses(t *testing.T) {
	site := newRawSite(t, func(n int, _ *http.Request) string {
		late := ""
		if n > 0 {
			late = "HTTP/1.1 103 Early Hints\r\nLink: </alice>\r\n\r\n"
		}
		return late + goodAnswer
	})
	eachFront(t, func(t *testing.T, front string) {
		overBoth(t, front, "http://"+site, func(t *testing.T, _ *stage, v *visitor, scheme string) {
			for i := range 3 {
				trace := &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
					t.Errorf("request %d gets %v", i, h)
					return nil
				}}
				r, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet,
					scheme+"://shop.example/about", nil)
				testkit.NoError(t, err)
				if a := v.do(r); a.body != "good" {
					t.Errorf("%d %q", a.StatusCode, a.body)
				}
			}
		})
	})
}

// A site that removes its visitors' cookies has removed the ticket: the header passes unchanged, no ticket comes with
// it, and the session has ended.
func TestClearSiteDataEndsTheSession(t *testing.T) {
	eachFront(t, func(t *testing.T, front string) {
		for value, ends := range map[string]bool{
			`"cookies"`: true, `"cache", "cookies"`: true, `"*"`: true, `"cache"`: false,
			"cookies": false,
		} {
			site := newRawSite(t, func(_ int, r *http.Request) string {
				more := ""
				if r.URL.Path == "/logout" {
					more = "Clear-Site-Data: " + value + "\r\nSet-Cookie: theirs=; Max-Age=0\r\n"
				}
				return "HTTP/1.1 200 OK\r\n" + more + "Content-Length: 8\r\n\r\nthe site"
			})
			st := openAt(t, "http://"+site, reads(front))
			v := st.door.visitor()
			v.Jar = nil
			c := cookieOf(v.get("http://sale.example/"), "vestibule-sale")
			if c == nil {
				t.Fatal("nobody is let in")
			}
			in := []string{"Cookie", c.Name + "=" + c.Value}
			for _, header := range [][]string{nil, in} { // a newcomer, who is admitted by this request, and a session
				a := v.get("http://sale.example/logout", header...)
				if a.Header.Get("Clear-Site-Data") != value || a.body != "the site" || ends &&
					cookieOf(a, "vestibule-sale") != nil || header == nil && !ends && cookieOf(a, "vestibule-sale") == nil ||
					cookieOf(a, "theirs") == nil {
					t.Errorf("%s: %d %v", value, a.StatusCode, a.Header)
				}
			}
			st.up.queue(sale, 10, 1)
			if b := v.get("http://sale.example/", in...); (b.body == "the site") == ends {
				t.Errorf("%s: then %d %.40q", value, b.StatusCode, b.body)
			}
		}
	})
}

// A header of a program with _ in its name is counted and named once, with the setting that lets it pass; one that a
// site would take for a header that the edge removes is counted only.
func TestHeadersWithAnUnderscoreAreNamed(t *testing.T) {
	eachFront(t, func(t *testing.T, front string) {
		var log testkit.Log
		st := open(t, func(st *stage) {
			st.cfg.Reader = front
			st.log = slog.New(slog.NewTextHandler(&log, nil))
		})
		for range 2 {
			for i := range 25 {
				st.door.raw(request("GET /about HTTP/1.1", "shop.example", fmt.Sprintf("api_key_%02d: secret", i),
					"X_Real_IP: 6.6.6.6"))
			}
		}
		st.counts(50, "vestibule_edge_removed_names_total")
		text := log.String()
		if n := strings.Count(text, "forward_headers: [api_key_"); n != 20 || strings.Contains(text, "secret") ||
			strings.Contains(strings.ToLower(text), "x_real_ip") || strings.Count(text, "[api_key_07]") != 1 {
			t.Errorf("%d are named: %.2000s", n, text)
		}
	})
}

// overBoth runs a test of an edge before a site with visitors by HTTP/1.1 without TLS, and by HTTP/2.
func overBoth(t *testing.T, front, site string, test func(t *testing.T, st *stage, v *visitor, scheme string)) {
	t.Run("HTTP/1.1", func(t *testing.T) {
		st := openAt(t, site, reads(front))
		test(t, st, st.door.visitor(), "http")
	})
	t.Run("HTTP/2", func(t *testing.T) {
		st := openAt(t, site, readsTLS(front))
		test(t, st, st.door.secure(true), "https")
	})
}

// The request of a visitor that goes away while the site thinks is cancelled, at the site too.
func TestWhoGoesAwayIsGivenUp(t *testing.T) {
	eachFront(t, func(t *testing.T, front string) {
		for _, http2 := range []bool{false, true} {
			st := open(t, func(st *stage) {
				if st.cfg.Reader = front; http2 {
					st.withTLS()
				}
			})
			begun, ended := make(chan struct{}), make(chan struct{})
			st.origin.serves(func(_ http.ResponseWriter, r *http.Request) {
				close(begun)
				<-r.Context().Done()
				close(ended)
			})
			v, url := st.door.visitor(), "http://shop.example/about"
			if http2 {
				v, url = st.door.secure(true), "https://shop.example/about"
			}
			ctx, leave := context.WithCancel(t.Context())
			r := testkit.Must(http.NewRequestWithContext(ctx, http.MethodGet, url, nil))(t)
			left := make(chan error, 1)
			go func() {
				res, err := v.Do(r)
				if err == nil {
					err = fmt.Errorf("answered by %d; %w", res.StatusCode, res.Body.Close())
				}
				left <- err
			}()
			<-begun
			leave()
			if err := <-left; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			<-ended
			st.counts(0, "vestibule_edge_origin_errors_total")
		}
	})
}

// A connection that rests has given its memory back; the next request is read as any, in
// pieces, behind the blank line that some browsers send after a form, and behind a long one.
func TestConnectionsThatRest(t *testing.T) {
	eachFront(t, func(t *testing.T, front string) {
		st := open(t, reads(front))
		c := st.door.dial()
		testkit.NoError(t, c.SetDeadline(time.Now().Add(testkit.Patience)))
		answers := bufio.NewReader(c)
		rests := func() {
			t.Helper()
			eventually(t, "the connection rests", func() bool {
				st.server.conns.mu.Lock()
				defer st.server.conns.mu.Unlock()
				return st.server.conns.idle.n == 1
			})
		}
		for i, request := range [][]string{
			{"POST /about HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 3\r\n\r\na=b"},
			{"\r\n", "GET /about?second HTTP/1.1\r\nHost: shop.example\r\n\r\n"},
			{"GET /about?", "third HTTP/1.1\r\nHost: shop.exa", "mple\r\n\r\n"},
			{"GET /about HTTP/1.1\r\nHost: shop.example\r\nX-Long: " + strings.Repeat("x", 10<<10) + "\r\n\r\n"},
			{"G", "ET /about HTTP/1.1\r\nHost: shop.example\r\n\r\n"},
		} {
			for _, piece := range request {
				testkit.Must(io.WriteString(c, piece))(t)
			}
			res, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatalf("%d: %v", i, err)
			}
			if body, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusOK || string(body) != "the site" {
				t.Errorf("%d: %d %q, %v", i, res.StatusCode, body, err)
			}
			rests()
		}
		if got := st.origin.requests(); got != 5 {
			t.Errorf("the site was asked %d times", got)
		}
	})
}
