package edge

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/edge/gate"
	"vestibule/internal/lab/testkit"
)

// openFront starts an edge with a decision service of the given form. No request may reach the site behind the edge's
// own proxy.
func openFront(t testing.TB, form string, change func(*stage)) *stage {
	t.Helper()
	st := open(t, func(st *stage) {
		st.cfg.Listen, st.cfg.Front.Listen, st.cfg.Front.Form, st.cfg.Proxies = "", "127.0.0.1:0", form, []string{"127.0.0.1"}
		if change != nil {
			change(st)
		}
	})
	t.Cleanup(func() {
		st.origin.untouched()
	})
	return st
}

// question asks like a front of a form, about a GET over http by a visitor at 203.0.113.9. A pair in header replaces
// the header of that name, or removes it if the value is "-"; a name with a leading + is added.
func (st *stage) question(form, method, host, target string, header ...string) answer {
	st.t.Helper()
	if form == formGRPC && !slices.Contains(header, "line") {
		return asEnvoy(st, method, host, target, header...)
	}
	lines := map[string][]string{"X-Forwarded-For": {"203.0.113.9"}, "X-Forwarded-Proto": {"http"}}
	line := method + " " + target
	switch form {
	case formHeaders:
		line = "GET /decide?x=/vip"
		lines["X-Forwarded-Method"], lines["X-Forwarded-Host"], lines["X-Forwarded-Uri"], host = []string{method},
			[]string{host}, []string{target}, "edge.internal"
	case formPrefix:
		line = method + " /decide" + target
	}
	for i := 0; i < len(header); i += 2 {
		name, value := header[i], header[i+1]
		switch {
		case strings.HasPrefix(name, "+"):
			lines[name[1:]] = append(lines[name[1:]], value)
		case value == "-":
			delete(lines, name)
		case name == "line":
			line = value
		default:
			lines[name] = []string{value}
		}
	}
	text := line + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n"
	for name, values := range lines {
		for _, v := range values {
			text += name + ": " + v + "\r\n"
		}
	}
	c := testkit.Must(net.Dial("tcp", st.door.addr(0)))(st.t)
	defer c.Close()
	testkit.Must(io.WriteString(c, text+"\r\n"))(st.t)
	res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: strings.SplitN(line, " ", 2)[0]})
	if err != nil {
		st.t.Fatalf("%q: %v", text, err)
	}
	body := testkit.Must(io.ReadAll(res.Body))(st.t)
	return answer{res, string(body)}
}

// admitted reports whether a front of a form admits the request, and fails if its criteria contradict each other.
func admitted(t testing.TB, form string, a answer) bool {
	t.Helper()
	decision := a.Header.Get(gate.DecisionHeader)
	says := decision == gate.SaysAdmit
	// which net/http says by itself
	if !slices.Contains([]string{gate.SaysAdmit, gate.SaysWait, gate.SaysAnswer}, decision) &&
		!strings.HasPrefix(a.body, "400 Bad Request") {
		t.Errorf("the decision is %q", a.Header["Vestibule-Decision"])
	}
	if redirect := a.Header.Get("X-Accel-Redirect"); form == formAccel && (redirect == "@site") != says ||
		form != formAccel && redirect != "" {
		t.Errorf("%s: %v is redirected to %q", form, says, redirect)
	}
	if ok := a.StatusCode < 300; form != formAccel && ok != says || says && a.StatusCode != http.StatusOK {
		t.Errorf("%s: status %d, decision %v", form, a.StatusCode, says)
	}
	return says
}

// forms are the forms under test. Envoy's is added with its types: see envoy_test.go.
var (
	forms   = []string{formHeaders, formAccel, formPrefix}
	asEnvoy func(st *stage, method, host, target string, header ...string) answer
)

// eachForm runs a test with every form, beside each other.
func eachForm(t *testing.T, test func(t *testing.T, form string)) {
	for _, form := range forms {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			test(t, form)
		})
	}
}

// A visitor waits, is admitted, is renewed and leaves, in every form.
func TestAFrontAsksAboutEachRequest(t *testing.T) {
	eachForm(t, func(t *testing.T, form string) {
		st := openFront(t, form, nil)
		st.up.queue(sale, 10, 1)
		a := st.question(form, "GET", "sale.example", "/tickets?show=1", "Accept", "text/html")
		if admitted(t, form, a) || !strings.Contains(a.body, "You are in line") || a.Header.Get("Retry-After") == "" ||
			len(a.Header["Set-Cookie"]) != 1 {
			t.Fatalf("%d %v %.80q", a.StatusCode, a.Header, a.body)
		}
		if want := map[bool]int{
			true:  http.StatusOK,
			false: http.StatusTooManyRequests,
		}[form == formAccel]; a.StatusCode != want {
			t.Errorf("who waits is answered by %d, want %d", a.StatusCode, want)
		}
		in := st.keys.seal("sale", session(7))
		for range 2 {
			a = st.question(form, "POST", "sale.example", "/buy", "Cookie", "theirs=1; "+in)
			if !admitted(t, form, a) || a.body != "" || a.Header.Get("Content-Type") != "" {
				t.Fatalf("who is inside: %d %v %.80q", a.StatusCode, a.Header, a.body)
			}
			if form == formAccel && a.Header.Get("Cache-Control") != "" {
				t.Errorf("the site's Cache-Control would be %v", a.Header["Cache-Control"])
			}
		}
		// A poll of an admitted visitor gets news for the page, not an admission.
		a = st.question(form, "GET", "sale.example", "/", "Cookie", in, gate.PollHeader, "1", "Accept", "application/json")
		if admitted(t, form, a) || !strings.Contains(a.body, `"entering"`) {
			t.Errorf("a poll: %d %v %.80q", a.StatusCode, a.Header, a.body)
		}
		a = st.question(form, "GET", "sale.example", "/", gate.PollHeader, "1", "Accept", "application/json")
		if admitted(t, form, a) || !strings.Contains(a.body, `"reload"`) {
			t.Errorf("a poll without a ticket: %d %v %.80q", a.StatusCode, a.Header, a.body)
		}
		if a = st.question(form, "GET", "shop.example", "/about"); !admitted(t, form, a) {
			t.Errorf("outside of all rooms: %d", a.StatusCode)
		}
		if a = st.question(form, "GET", "sale.example", "/", gate.TicketHeader,
			"sale"); a.Header.Get(gate.TicketHeader) == "" {
			t.Errorf("a client without cookies gets no ticket: %v", a.Header)
		}
		for range 2 {
			a = st.question(formAccel, "POST", "sale.example", gate.LeavePath, "Cookie", in)
			if a.StatusCode != http.StatusNoContent || a.Header.Get("Vestibule-Decision") == "admit" {
				t.Fatalf("leaving: %d %.80q", a.StatusCode, a.body)
			}
		}
		if a = st.question(form, "GET", "sale.example", "/", "Cookie", in); admitted(t, form, a) {
			t.Error("who has left is let in")
		}
	})
}

// A newcomer that finds a permit is admitted with one cookie, which opens the next request. A renewal reaches the
// visitor too.
func TestAFrontIsGivenTheTicket(t *testing.T) {
	eachForm(t, func(t *testing.T, form string) {
		st := openFront(t, form, nil)
		var a answer
		eventually(t, "a newcomer is let in", func() bool {
			a = st.question(form, "GET", "sale.example", "/")
			return admitted(t, form, a)
		})
		for range 2 {
			cookie := cookieOf(a, ticket.CookieName("sale", false))
			if cookie == nil || len(a.Header["Set-Cookie"]) != 1 {
				t.Fatalf("cookies: %v", a.Header["Set-Cookie"])
			}
			caching := map[bool]string{true: "Cache-Control", false: cachingHeader}[form == formGRPC]
			if a.Header.Get(caching) != "private" {
				t.Errorf("a shared cache may keep the site's answer: %v", a.Header)
			}
			old := session(7)
			old.Seen -= 200
			old.Admitted -= 200
			old.Until -= 200
			a = st.question(form, "GET", "sale.example", "/", "Cookie", st.keys.seal("sale", old))
			if !admitted(t, form, a) {
				t.Fatalf("not renewed: %d", a.StatusCode)
			}
		}
		a = st.question(form, "GET", "sale.example", "/", "X-Forwarded-Proto", "https")
		if c := a.Header.Get("Set-Cookie"); !strings.HasPrefix(c, "__Host-") || !strings.Contains(c, "Secure") {
			t.Errorf("over TLS the cookie is %q", c)
		}
	})
}

// An edge that cannot decide yet hangs up, so that the front asks another.
func TestAFrontAsksAnotherEdgeUntilThisOneDecides(t *testing.T) {
	for _, reader := range []string{frontFast, frontNetHTTP} {
		st := newStage(t, func(st *stage) {
			st.cfg.Listen, st.cfg.Front.Listen, st.cfg.Proxies, st.cfg.Reader = "", "127.0.0.1:0", []string{"127.0.0.1"}, reader
		}).start()
		c := testkit.Must(net.Dial("tcp", st.door.addr(0)))(t)
		defer c.Close()
		text := request("GET /decide HTTP/1.1", "edge.internal", "X-Forwarded-For: 203.0.113.9", "X-Forwarded-Proto: http",
			"X-Forwarded-Method: GET", "X-Forwarded-Host: sale.example", "X-Forwarded-Uri: /")
		testkit.Must(io.WriteString(c, text))(t)
		if got, err := io.ReadAll(c); err != nil || len(got) > 0 {
			t.Errorf("%s: %q, %v", reader, got, err)
		}
	}
}

// An unlisted peer, and a question that does not name one request unambiguously, is refused and never admitted (rule
// 10 of the hard limit). A waiting page is no admission either, whatever its status in the room's settings.
func TestRule10AFrontGetsOnlyTheDecision(t *testing.T) {
	eachForm(t, func(t *testing.T, form string) {
		st := openFront(t, form, nil)
		in := st.keys.seal("sale", session(7))
		st.up.queue(sale, 10, 1)
		for what, header := range map[string][]string{
			"two addresses":               {"+X-Forwarded-For", "198.51.100.1"},
			"no address":                  {"X-Forwarded-For", "-"},
			"an empty address":            {"X-Forwarded-For", ""},
			"no address at the end":       {"X-Forwarded-For", "203.0.113.9, unknown"},
			"two schemes":                 {"+X-Forwarded-Proto", "https"},
			"no scheme":                   {"X-Forwarded-Proto", "-"},
			"a list of schemes":           {"X-Forwarded-Proto", "https,http"},
			"a scheme that is none":       {"X-Forwarded-Proto", "gopher"},
			"another path":                {"+X-Forwarded-Uri", "/about"},
			"another host":                {"+X-Forwarded-Host", "shop.example"},
			"another method":              {"+X-Forwarded-Method", "PUT"},
			"a path of another host":      {"X-Forwarded-Uri", "http://shop.example/about"},
			"the edge's own path":         {"X-Forwarded-Uri", gate.LeavePath},
			"the edge's own path, asking": {"X-Forwarded-Uri", gate.EventsPath + "?room=sale"},
		} {
			a := st.question(form, "GET", "sale.example", "/tickets", append(header, "Cookie", in)...)
			if admitted(t, form, a) || a.StatusCode != http.StatusBadRequest {
				t.Errorf("%s: %d %.80q", what, a.StatusCode, a.body)
			}
		}
		left := [][]string{}
		switch form {
		case formHeaders:
			for _, name := range []string{"X-Forwarded-Uri", "X-Forwarded-Host", "X-Forwarded-Method"} {
				left = append(left, []string{name, "-"})
			}
			left = append(left, []string{"line", "POST " + gate.LeavePath})
		case formGRPC:
			for _, line := range []string{"GET /tickets", "POST " + checkPath, "GET " + checkPath, "POST " + checkPath + "/"} {
				left = append(left, []string{"line", line})
			}
			left = append(left, []string{":path", "/about"}, []string{":authority", "shop.example"}, []string{":method", "PUT"})
		case formPrefix:
			left = append(left, []string{"line", "GET /tickets"}, []string{"line", "GET /decide"},
				[]string{"line", "GET /decidetickets"}, []string{"line", "GET /decide" + gate.LeavePath})
		}
		for _, header := range left {
			a := st.question(form, "GET", "sale.example", "/tickets", append(header, "Cookie", in)...)
			if admitted(t, form, a) || a.StatusCode != http.StatusBadRequest {
				t.Errorf("%v: %d %.80q", header, a.StatusCode, a.body)
			}
		}
		if n := metric(t, st, "vestibule_edge_requests_total", "result", "refused_front"); n < 14 {
			t.Errorf("%v questions are counted as refused", n)
		}
		// The second line of a doubled header decides nothing either.
		for _, name := range []string{"X-Forwarded-Host", "X-Forwarded-Uri"} {
			a := st.question(form, "GET", "shop.example", "/about", "+"+name,
				map[string]string{"X-Forwarded-Host": "sale.example", "X-Forwarded-Uri": "/vip"}[name])
			if admitted(t, form, a) {
				t.Errorf("doubled %s: let in", name)
			}
		}
		for _, method := range []string{"GET", "HEAD", "POST", "OPTIONS"} {
			if a := st.question(form, method, "sale.example", "/"); admitted(t, form, a) || a.Header.Get("Retry-After") == "" {
				t.Errorf("%s of who waits: %d %v", method, a.StatusCode, a.Header)
			}
		}
		if a := st.question(form, "GET", "sale.example", "/tickets", "Cookie", in); !admitted(t, form, a) {
			t.Errorf("who is inside, asked about properly: %d %.80q", a.StatusCode, a.body)
		}
	})
}

func TestAFrontThatIsNotListedIsRefused(t *testing.T) {
	st := openFront(t, formHeaders, func(st *stage) { st.cfg.Proxies = []string{"10.0.0.0/8"} })
	in := st.keys.seal("sale", session(7))
	answers := []answer{
		st.question(formHeaders, "GET", "sale.example", "/", "Cookie", in),
		st.question(formAccel, "POST", "sale.example", gate.LeavePath, "Cookie", in),
	}
	if asEnvoy != nil {
		st := openFront(t, formGRPC, func(st *stage) { st.cfg.Proxies = []string{"10.0.0.0/8"} })
		answers = append(answers, st.question(formAccel, "GET", "sale.example", "/")) // before anything is read
	}
	for _, a := range answers {
		if a.StatusCode != http.StatusForbidden || !strings.Contains(a.body, "trusted_proxies") ||
			admitted(t, formHeaders, a) {
			t.Errorf("%d %.80q", a.StatusCode, a.body)
		}
	}
}

// In every form the raw target decides, with all spellings of an attacker.
func TestNoSpellingOfThePathPassesAFront(t *testing.T) {
	eachForm(t, func(t *testing.T, form string) {
		st := openFront(t, form, nil)
		st.up.queue(vip, 10, 1)
		for _, path := range vipSpellings {
			if form == formPrefix && !strings.HasPrefix(path, "/") {
				continue // Envoy sends the path alone
			}
			a := st.question(form, "GET", "shop.example", path)
			if admitted(t, form, a) || a.StatusCode != http.StatusTooManyRequests && a.StatusCode != http.StatusBadRequest {
				t.Errorf("%s: %d %.60q", path, a.StatusCode, a.body)
			}
		}
		for _, host := range []string{
			"evil.example", "sale.example,shop.example", "shop.example..", "127.0.0.1",
			"shop.example:http", "x@shop.example", "shop.example/",
		} {
			if a := st.question(form, "GET", host, "/about"); admitted(t, form, a) {
				t.Errorf("host %q: let in", host)
			}
		}
		for _, method := range []string{"TRACE", "get", "propfind", "PURGE"} {
			if a := st.question(form, method, "shop.example", "/about"); admitted(t, form, a) {
				t.Errorf("method %s: let in", method)
			}
		}
		for _, upgrade := range []string{"h2c", "websocket, h2c", "TLS/1.0"} {
			if a := st.question(form, "GET", "shop.example", "/about", "Upgrade", upgrade); admitted(t, form, a) {
				t.Errorf("upgrade to %s: let in", upgrade)
			}
		}
	})
}

// TestAFrontIsNotKeptWaiting: fronts have short timeouts, so no request is held longer.
func TestAFrontIsNotKeptWaiting(t *testing.T) {
	st := openFront(t, formHeaders, func(st *stage) {
		st.cfg.Front.Hold = 10 * time.Millisecond
		st.params.Knock, st.params.Hold = time.Hour, time.Hour
	})
	st.fill(sale, 1000)
	a := st.question(formHeaders, "GET", "sale.example", "/") // within an hour
	if admitted(t, formHeaders, a) || len(a.Header["Set-Cookie"]) != 1 {
		t.Errorf("%d %v", a.StatusCode, a.Header)
	}
}

// TestAFrontHandsOnOneCookie: if two rooms gate a request, the second ticket follows with the next one.
func TestAFrontHandsOnOneCookie(t *testing.T) {
	st := openRooms(t, func(st *stage) {
		st.cfg.Listen, st.cfg.Front.Listen, st.cfg.Proxies = "", "127.0.0.1:0", []string{"127.0.0.1"}
	}, func(d *room.Document) { d.Rooms[0].Host, d.Rooms[0].Path = "shop.example", "/sale" })
	st.up.grant(sale, 100, 100)
	st.up.grant(vip, 100, 100)
	st.covered(20, sale, vip)
	const both = "/sale/..%2fvip"
	var jar []string
	for range 2 {
		a := st.question(formHeaders, "GET", "shop.example", both, "Cookie", strings.Join(jar, "; "))
		if !admitted(t, formHeaders, a) || len(a.Header["Set-Cookie"]) != 1 {
			t.Fatalf("%d %v", a.StatusCode, a.Header)
		}
		cookie, _, _ := strings.Cut(a.Header.Get("Set-Cookie"), ";")
		jar = append(jar, cookie)
	}
	names := map[string]bool{}
	for _, c := range jar {
		name, _, _ := strings.Cut(c, "=")
		names[name] = true
	}
	if len(names) != 2 {
		t.Errorf("after two requests there are tickets of %v", names)
	}
}

// Event streams of pages that were shown through a front come through it as well.
func TestAFrontPassesStreamsOn(t *testing.T) {
	eachForm(t, func(t *testing.T, form string) {
		st := openFront(t, form, func(st *stage) { st.castEvery = 10 * time.Millisecond })
		st.up.queue(sale, 10, 1)
		a := st.question(form, "GET", "sale.example", "/")
		place, _, _ := strings.Cut(a.Header.Get("Set-Cookie"), ";")
		r := httptest.NewRequest(http.MethodGet, gate.EventsPath+"?room=sale", nil)
		r.Header = http.Header{"X-Forwarded-For": {"203.0.113.9"}, "X-Forwarded-Proto": {"http"}, "Cookie": {place}}
		r.RequestURI, r.Host = "", "sale.example"
		r.URL = &url.URL{Scheme: "http", Host: st.door.addr(0), Path: gate.EventsPath, RawQuery: "room=sale"}
		ctx := r.WithContext(t.Context())
		res := testkit.Must(http.DefaultTransport.RoundTrip(ctx))(t)
		defer res.Body.Close()
		text := bufio.NewScanner(res.Body)
		for text.Scan() && !strings.HasPrefix(text.Text(), "data:") {
		}
		if !strings.Contains(text.Text(), `"line"`) || res.StatusCode != http.StatusOK {
			t.Errorf("%d %q", res.StatusCode, text.Text())
		}
	})
}

// ledger is the site behind a front, which knows every admission of the edge: each request that it sees must have
// been decided once, with the same method, host and target.
type ledger struct {
	t    testing.TB
	form string

	mu    sync.Mutex
	let   map[string]int
	seen  []*http.Request
	serve http.HandlerFunc
	asked string // the last question

	undecided int // requests that were not admitted
}

// tap returns an address through which a front asks the edge at addr, so that the ledger sees each admission. Bytes
// pass unchanged. A front sends no question before the answer to the last one.
func (l *ledger) tap(addr string) string {
	return testkit.Listen(l.t, func(c net.Conn) {
		if up, err := net.Dial("tcp", addr); err == nil { // else the listener is closed
			l.pass(c, up)
		}
	})
}

// pass copies both ways between two connections until one ends.
func (l *ledger) pass(front, edge net.Conn) {
	var mu sync.Mutex
	var asked []byte // since the last answer
	way := func(to, from net.Conn, note func(b []byte)) {
		defer to.Close()
		for buf := make([]byte, 64<<10); ; {
			n, err := from.Read(buf)
			if n > 0 {
				mu.Lock()
				note(buf[:n])
				mu.Unlock()
				if _, err := to.Write(buf[:n]); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
	var back sync.WaitGroup
	back.Go(func() {
		way(front, edge, func(b []byte) {
			if bytes.HasPrefix(b, []byte("HTTP/1.1 ")) {
				l.note(asked, b)
				asked = nil
			}
		})
	})
	way(edge, front, func(b []byte) { asked = append(asked, b...) })
	back.Wait()
}

// note records a question, and an answer that admits the request in it.
func (l *ledger) note(asked, answer []byte) {
	l.mu.Lock()
	l.asked = string(asked)
	l.mu.Unlock()
	a, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(answer)), nil)
	if err != nil {
		l.t.Errorf("an answer of the edge: %v", err)
		return
	}
	admits := a.StatusCode == http.StatusOK && a.Header.Get(decisionHeader) == "admit"
	if l.form == formAccel {
		admits = a.Header.Get("X-Accel-Redirect") != ""
	}
	if !admits {
		return
	}
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(asked)))
	if err != nil {
		l.t.Errorf("the edge lets in what is no request: %q", asked)
		return
	}
	about := r.Method + " " + r.Host + " " + r.RequestURI
	if l.form == formHeaders {
		about = r.Header.Get("X-Forwarded-Method") + " " + r.Header.Get("X-Forwarded-Host") + " " +
			r.Header.Get("X-Forwarded-Uri")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.let[about]++
}

func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	about := r.Method + " " + r.Host + " " + rawTarget(r)
	l.mu.Lock()
	if l.let[about] == 0 {
		l.undecided++
		l.t.Errorf("%s reached the site undecided", about)
	}
	l.let[about]--
	l.seen = append(l.seen, r)
	serve := l.serve
	l.mu.Unlock()
	if serve != nil {
		serve(w, r)
		return
	}
	io.WriteString(w, "the site") //nolint:errcheck // the client checks the answer
}

// took returns the requests that the site saw, and forgets them.
func (l *ledger) took() []*http.Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := l.seen
	l.seen = nil
	return seen
}

// question returns the last question.
func (l *ledger) question() *http.Request {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(l.asked)))
	if err != nil {
		l.t.Fatalf("%v: %q", err, l.asked)
	}
	return r
}

func (l *ledger) serves(h http.HandlerFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.serve = h
}

// A question is answered within the time that the caller gives it.
func TestACallersTimeIsKept(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": time.Hour, "200m": 100 * time.Millisecond, "1S": 500 * time.Millisecond, "1u": time.Millisecond,
		"99999999H": time.Hour, "x": time.Hour, "5": time.Hour, "-5S": time.Hour,
	} {
		h := http.Header{}
		if text != "" {
			h.Set("Grpc-Timeout", text)
		}
		if got := patienceOf(h); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
