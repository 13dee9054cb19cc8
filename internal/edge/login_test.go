package edge

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/lab/testkit"
)

// newLoginSite returns a site that logs a connection in, as NTLM does: it answers with the name that was told to the
// connection, and with how many requests came on it.
func newLoginSite(t *testing.T) (addr string) {
	return testkit.Listen(t, func(c net.Conn) {
		br, who := bufio.NewReader(c), "nobody"
		for n := 1; ; n++ {
			r, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
			if _, name, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok {
				who = name
			}
			head, body := "HTTP/1.1 200 OK\r\n", fmt.Sprintf("%s %d", who, n)
			if r.URL.Path == "/login" && who == "nobody" {
				head = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"a, b\"\r\n" +
					"WWW-Authenticate: Negotiate, NTLM\r\n"
			}
			if _, err := fmt.Fprintf(c, "%sContent-Length: %d\r\n\r\n%s", head, len(body), body); err != nil {
				return
			}
		}
	})
}

// on sends one request on a connection of a visitor.
func on(t *testing.T, c net.Conn, br *bufio.Reader, line string, body string, header ...string) (status int,
	answer string,
) {
	t.Helper()
	if body != "" {
		header = append(header, fmt.Sprintf("Content-Length: %d", len(body)))
	}
	testkit.Must(io.WriteString(c, line+" HTTP/1.1\r\nHost: shop.example\r\n"+strings.Join(append(header, "", ""),
		"\r\n")+body))(t)
	res := testkit.Must(http.ReadResponse(br, nil))(t)
	got := testkit.Must(io.ReadAll(res.Body))(t)
	return res.StatusCode, string(got)
}

// A login that the site binds to a connection is that of the visitor's connection: it lasts as long, also when
// net/http takes the connection over, and no other visitor has it.
func TestALoginOfAConnectionIsNobodyElses(t *testing.T) {
	eachFront(t, func(t *testing.T, front string) {
		for _, scheme := range []string{"NTLM", "Negotiate", "negotiate"} {
			st := openAt(t, "http://"+newLoginSite(t), reads(front))
			others := func(when string) {
				t.Helper()
				for range 4 {
					if codes, body := st.door.raw(request("GET /about HTTP/1.1", "shop.example")); len(codes) != 1 ||
						!strings.HasPrefix(body, "nobody ") {
						t.Errorf("%s %s: a stranger gets %v %q", scheme, when, codes, body)
					}
				}
			}
			others("before")
			c := st.door.dial()
			testkit.NoError(t, c.SetDeadline(time.Now().Add(testkit.Patience)))
			br := bufio.NewReader(c)
			if status, body := on(t, c, br, "GET /login", ""); status != http.StatusUnauthorized {
				t.Errorf("at first %d %q", status, body)
			}
			others("after the offer")
			for i, tc := range []struct {
				line, body string
				header     []string
			}{
				{"GET /login", "", []string{"Authorization: " + scheme + " alice"}},
				{"GET /about", "", nil},
				{"POST /about", "a=b", nil},
				{"POST /about", strings.Repeat("x", maxFastBody+1), nil}, // by net/http from here on
				{"GET /login", "", nil},
				{"GET /about", "", nil},
			} {
				if status, body := on(t, c, br, tc.line, tc.body, tc.header...); status != http.StatusOK ||
					!strings.HasPrefix(body, "alice ") {
					t.Errorf("%s, %d: %d %q", scheme, i, status, body)
				}
				others("during")
			}
			testkit.NoError(t, c.Close())
			others("after")
		}
	})
}

// Where one connection carries many visitors the login is refused, with an alarm, before the site has heard of it; so
// is an offer.
func TestALoginOfAConnectionThroughAProxy(t *testing.T) {
	eachFront(t, func(t *testing.T, front string) {
		st := openAt(t, "http://"+newLoginSite(t),
			func(st *stage) { st.cfg.Reader, st.cfg.Proxies = front, []string{"127.0.0.1", "::1"} })
		if alarms := st.server.Ready().Alarms; len(alarms) > 0 {
			t.Errorf("alarms before: %q", alarms)
		}
		for i, header := range [][]string{{"Authorization: NTLM alice"}, nil} {
			if codes, body := st.door.raw(request("GET /login HTTP/1.1", "shop.example", header...)); len(codes) != 1 ||
				codes[0] != http.StatusBadGateway || !strings.Contains(body, "login") {
				t.Errorf("%q: %v %q", header, codes, body)
			}
			st.counts(float64(i+1), "vestibule_edge_shared_logins_total")
		}
		if alarms := st.server.Ready().Alarms; len(alarms) != 1 || !strings.Contains(alarms[0], "trusted_proxies") {
			t.Errorf("alarms: %q", alarms)
		}
		for range 3 {
			if _, body := st.door.raw(request("GET /about HTTP/1.1", "shop.example",
				"Authorization: Basic YTpi")); !strings.HasPrefix(body, "YTpi ") && !strings.HasPrefix(body, "nobody") {
				t.Errorf("a login without a connection: %q", body)
			}
		}
	})
}

// HTTP/2 has no connection for a login: the client is told to use HTTP/1.1, by a reset or, where net/http reads, by an
// answer. Nobody else gets the login.
func TestALoginOfAConnectionOverHTTP2(t *testing.T) {
	eachFront(t, func(t *testing.T, front string) {
		st := openAt(t, "http://"+newLoginSite(t), readsTLS(front))
		v := st.door.secure(true)
		for _, header := range [][]string{{"Authorization", "Negotiate alice"}, nil} {
			if front == frontFast {
				if err := v.fails("https://shop.example/login", header...); !strings.Contains(err.Error(), "HTTP_1_1_REQUIRED") {
					t.Errorf("%q: %v", header, err)
				}
			} else if a := v.get("https://shop.example/login", header...); a.StatusCode != http.StatusMisdirectedRequest {
				t.Errorf("%q: %d %q", header, a.StatusCode, a.body)
			}
			for range 3 {
				if a := v.get("https://shop.example/about"); !strings.HasPrefix(a.body, "nobody ") {
					t.Errorf("then %d %q", a.StatusCode, a.body)
				}
			}
		}
	})
}

// With origin_reuse: never each request has a connection of its own.
func TestOriginReuseNever(t *testing.T) {
	eachFront(t, func(t *testing.T, front string) {
		for _, reuse := range []string{room.ReuseAuto, room.ReuseNever} {
			st := newStage(t, reads(front))
			st.unaudited()
			d := document("http://" + newLoginSite(t))
			d.Rooms[0].OriginReuse = reuse
			st.serve(d)
			reused := false
			for range 4 {
				for _, method := range []string{"GET", "PROPFIND"} { // by each front
					_, body := st.door.raw(request(method+" / HTTP/1.1", "sale.example", "Cookie: "+st.keys.seal("sale", session(7))))
					if !strings.HasPrefix(body, "nobody ") {
						t.Fatalf("%q", body)
					}
					reused = reused || body != "nobody 1"
				}
			}
			if reused != (reuse == room.ReuseAuto) {
				t.Errorf("%s: reused %v", reuse, reused)
			}
		}
	})
}
