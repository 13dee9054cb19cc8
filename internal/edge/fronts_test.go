package edge

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"vestibule/internal/core/ticket"
	"vestibule/internal/edge/gate"
	"vestibule/internal/lab/testkit"
)

// These tests drive real servers with the files of deploy/fronts.

// throughFronts runs a test with each server that is installed, in front of a site of its own.
func throughFronts(t *testing.T, tls bool, test func(t *testing.T, st *stage, site *ledger)) {
	throughFrontsOf(t, tls, func(*stage) {}, test)
}

// throughFrontsOf is throughFronts with another edge.
func throughFrontsOf(t *testing.T, tls bool, change func(*stage), test func(t *testing.T, st *stage, site *ledger)) {
	for _, f := range testkit.Fronts {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			testkit.Program(t, f.Name)
			site := &ledger{t: t, form: f.Form, let: map[string]int{}}
			behind := httptest.NewServer(site)
			t.Cleanup(behind.Close)
			st := openFront(t, f.Form, func(st *stage) {
				st.castEvery = 10 * time.Millisecond
				change(st)
			})
			at := testkit.FrontPlaces{Edges: []string{site.tap(st.door.addr(0))}, Site: behind.Listener.Addr().String()}
			if tls {
				at.Cert = both(t)
			}
			st.door.instead = startFront(t, &f, at, 0)
			test(t, st, site)
			t.Logf("%s: %d raw requests; %d reached the site undecided", f.Name, st.door.sent, site.undecided)
		})
	}
}

// both writes a certificate and its key into one file.
func both(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	cfg := TLSConfig{Cert: []string{filepath.Join(dir, "cert.pem")}, Key: []string{filepath.Join(dir, "key.pem")}}
	pair(t, cfg, 1)
	text := ""
	for _, name := range []string{cfg.Cert[0], cfg.Key[0]} {
		data := testkit.Must(os.ReadFile(name))(t)
		text += string(data)
	}
	return testkit.WriteFile(t, dir, "both.pem", text)
}

// startFront starts a server, on one core from 1 or on all of them for 0, and returns its address.
func startFront(t testing.TB, f *testkit.Front, at testkit.FrontPlaces, core int) string {
	t.Helper()
	return startProgram(t, f.Name, func(addr, dir string) *exec.Cmd {
		at.Visitors = addr
		cmd := f.Command(t, dir, &at)
		if core > 0 {
			on := exec.Command("taskset", append([]string{"-c", fmt.Sprint(core - 1)}, cmd.Args...)...)
			on.Env = cmd.Env
			return on
		}
		return cmd
	})
}

// startProgram starts a program that listens at a free address, until the test ends, and returns
// that address.
func startProgram(t testing.TB, name string, command func(addr, dir string) *exec.Cmd) string {
	t.Helper()
	for range 5 {
		addr, dir := testkit.FreeAddr(t), t.TempDir()
		cmd := command(addr, dir)
		var said strings.Builder
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &said, &said
		testkit.NoError(t, cmd.Start())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			cmd.Wait() //nolint:errcheck // it was stopped, or logs its error
		}()
		up := false
		eventually(t, name+" listens or ends", func() bool {
			select {
			case <-ended:
				return true
			default:
			}
			c, err := net.Dial("tcp", addr)
			if err == nil {
				up = c.Close() == nil
			}
			return up
		})
		if up {
			t.Cleanup(func() {
				cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended
				select {
				case <-ended:
				case <-time.After(5 * time.Second):
					cmd.Process.Kill() //nolint:errcheck // as above
					<-ended
				}
				if t.Failed() {
					t.Log(said.String())
				}
			})
			return addr
		}
		if !strings.Contains(strings.ToLower(said.String()), "address already in use") &&
			!strings.Contains(said.String(), "cannot bind") {
			t.Fatalf("%s ends: %s", name, said.String())
		}
	}
	t.Fatalf("%s finds no port", name)
	return ""
}

// A visitor waits with the page and the cookie, hears the stream, is admitted, is renewed and leaves.
func TestAVisitOfASiteBehindAFront(t *testing.T) {
	throughFronts(t, false, func(t *testing.T, st *stage, site *ledger) {
		st.up.queue(sale, 10, 1)
		v := st.door.visitor()
		var a answer
		for range 2 {
			a = v.get("http://sale.example/tickets?show=1", "Accept", "text/html")
			if !strings.Contains(a.body, "You are in line") || a.Header.Get("Retry-After") == "" ||
				!strings.Contains(a.Header.Get("Cache-Control"), "no-store") {
				t.Fatalf("%d %v %.80q", a.StatusCode, a.Header, a.body)
			}
			if c := a.Header["Set-Cookie"]; len(c) != 1 || !strings.HasPrefix(c[0], "vestibule-sale.place=") {
				t.Fatalf("cookies: %v", c)
			}
		}
		if a = v.get("http://sale.example/", "Accept", "application/json", gate.PollHeader, "1"); !strings.Contains(a.body,
			`"queued"`) {
			t.Errorf("a poll: %d %.80q", a.StatusCode, a.body)
		}
		r := testkit.Must(http.NewRequest(http.MethodGet, "http://sale.example"+gate.EventsPath+"?room=sale", nil))(t)
		res := testkit.Must(v.Do(r))(t)
		text, messages := bufio.NewScanner(res.Body), 0
		for messages < 2 && text.Scan() {
			if strings.HasPrefix(text.Text(), "data:") && strings.Contains(text.Text(), `"line"`) {
				messages++
				st.up.queue(sale, 20, 1)
			}
		}
		if err := res.Body.Close(); err != nil || messages < 2 {
			t.Errorf("the stream: %d, %d messages, %v", res.StatusCode, messages, err)
		}
		if n := len(site.took()); n > 0 {
			t.Errorf("%d requests reached the site", n)
		}

		// The turn comes.
		st.up.view(sale, 10, 1, 1<<50, 0)
		eventually(t, "the visitor is let in", func() bool {
			a = v.get("http://sale.example/", "Accept", "application/json", gate.PollHeader, "1")
			return strings.Contains(a.body, `"entering"`)
		})
		site.serves(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			w.Header().Add("Set-Cookie", "theirs=1")
			w.Header().Set("Cache-Control", "public, max-age=60")
			w.Header().Set("Vestibule-Command", "keep")
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, "%s %s", r.Method, body)
		})
		a = v.ask(http.MethodPost, "http://sale.example/buy?x=%zz", "a=b", "Content-Type", "text/plain", "X-App", "1")
		if a.StatusCode != http.StatusCreated || a.body != "POST a=b" || a.Header.Get("Vestibule-Command") != "" {
			t.Fatalf("%d %v %q", a.StatusCode, a.Header, a.body)
		}
		seen := site.took()
		if len(seen) != 1 || seen[0].Header.Get("X-App") != "1" || seen[0].Header.Get("X-Forwarded-For") != "127.0.0.1" ||
			seen[0].Header[gate.ProofHeader] != nil || seen[0].Header.Get("X-Forwarded-Proto") != "http" ||
			seen[0].Header.Get("X-Forwarded-Host") != "sale.example" {
			t.Errorf("the site saw %v", seen)
		}

		// A renewal comes with the site's answer, beside the site's own cookie; the answer is not for shared caches then.
		old := session(7)
		old.Seen, old.Admitted, old.Until = old.Seen-200, old.Admitted-200, old.Until-200
		w := st.door.visitor()
		w.Jar = nil
		a = w.get("http://sale.example/", "Cookie", "a=b; "+st.keys.seal("sale", old)+"; c=d")
		if c := cookieOf(a, ticket.CookieName("sale", false)); c == nil || c.MaxAge < 250 || cookieOf(a, "theirs") == nil {
			t.Errorf("cookies of a renewal: %q", a.Header["Set-Cookie"])
		}
		if !strings.Contains(strings.Join(a.Header["Cache-Control"], ","), "private") {
			t.Errorf("a ticket may be cached: %q", a.Header["Cache-Control"])
		}
		if seen := site.took(); len(seen) == 1 && strings.Contains(seen[0].Header.Get("Cookie"), "vestibule-sale") &&
			p(t) != "caddy" {
			t.Errorf("the site gets the ticket: %q", seen[0].Header["Cookie"])
		} else if len(seen) != 1 || !strings.Contains(seen[0].Header.Get("Cookie"), "a=b") ||
			!strings.Contains(seen[0].Header.Get("Cookie"), "c=d") {
			t.Errorf("the site does not get its cookies: %v", seen)
		}
		if a = v.get("http://shop.example/about"); a.Header.Get("Cache-Control") != "public, max-age=60" {
			t.Errorf("outside of all rooms Cache-Control is %q", a.Header["Cache-Control"])
		}
		a = w.get("http://sale.example/", gate.TicketHeader, "sale")
		if a.StatusCode != http.StatusCreated || !strings.HasPrefix(a.Header.Get(gate.TicketHeader), "sale=") {
			t.Errorf("a client without cookies: %d %v", a.StatusCode, a.Header)
		}

		in := st.keys.seal("sale", session(9))
		if a = w.get("http://sale.example/", "Cookie", in); a.StatusCode != http.StatusCreated {
			t.Fatalf("who is inside: %d", a.StatusCode)
		}
		if a = w.ask(http.MethodPost, leaveURL, "", "Cookie", in, "Origin",
			"http://evil.example"); a.StatusCode != http.StatusForbidden {
			t.Errorf("another site makes a visitor leave: %d", a.StatusCode)
		}
		if a = w.ask(http.MethodPost, leaveURL, "", "Cookie", in, "Origin",
			"http://sale.example"); a.StatusCode != http.StatusNoContent ||
			cookieOf(a, ticket.CookieName("sale", false)) == nil {
			t.Errorf("leaving: %d %v", a.StatusCode, a.Header)
		}
		st.up.queue(sale, 10, 1)
		if a = w.get("http://sale.example/", "Cookie", in); a.StatusCode == http.StatusCreated {
			t.Error("who has left is inside")
		}
	})
}

// p returns the name of the server under test.
func p(t *testing.T) string { return t.Name()[strings.LastIndexByte(t.Name(), '/')+1:] }

// Attacks on the proxy fail through a front too: paths, hosts, methods, upgrades, tickets, requests within requests.
// The ledger checks that the site gets only requests that were decided in the same form.
func TestNothingUnadmittedPassesAFront(t *testing.T) {
	throughFronts(t, false, func(t *testing.T, st *stage, site *ledger) {
		st.up.queue(vip, 10, 1)
		st.up.queue(sale, 10, 1)
		nothing := func(what string) {
			t.Helper()
			for _, r := range site.took() {
				t.Errorf("%s: %s %s %s reached the site", what, r.Method, r.Host, r.RequestURI)
			}
		}
		for _, path := range vipSpellings {
			st.door.raw(request("GET "+path+" HTTP/1.1", "shop.example"))
			nothing(path)
			if strings.HasPrefix(path, "/") { // the edge's own paths are no way around
				st.door.raw(request("GET /.well-known/vestibule/../.."+path+" HTTP/1.1", "shop.example"))
				nothing("from the edge's own path to " + path)
			}
		}
		for _, path := range []string{
			"/.well-known/vestibule/events/../../../vip", "/.well-known/vestibule/leave/..%2f..%2f..%2fvip",
			"/vip/../.well-known/vestibule/events", "/%2ewell-known/vestibule/../../vip",
			"/vip?/.well-known/vestibule/events", "/.well-known/vestibule/events%2f..%2f..%2f..%2fvip",
			"/vip;/.well-known/vestibule/events", "@site", "/@site", "/decide", "*",
		} {
			for _, host := range []string{"shop.example", "sale.example"} {
				st.door.raw(request("GET "+path+" HTTP/1.1", host))
				for _, r := range site.took() {
					if host == "sale.example" || strings.Contains(path, "vip") {
						t.Errorf("%s of %s reached the site as %s", path, host, r.RequestURI)
					}
				}
			}
		}
		for _, host := range []string{
			"sale.example", "SALE.Example", "sale.example.", "sale.example:80", "Sale.Example.:8443", "sale.example:",
			"evil.example", "", "sale.example,shop.example",
			"shop.example..", ".shop.example", "127.0.0.1", "[::1]", "shop.example:http", "x@shop.example", "shop.example/",
			"shop example", "shop.example\x00", "shöp.example",
		} {
			st.door.raw(request("GET / HTTP/1.1", host))
			for _, r := range site.took() {
				if r.Host != "shop.example" || !strings.Contains(host, r.Host) { // which no room covers there
					t.Errorf("host %q reached the site as %q", host, r.Host)
				}
			}
		}
		for what, text := range map[string]string{
			"two hosts":            request("GET / HTTP/1.1", "shop.example", "Host: sale.example"),
			"none":                 "GET / HTTP/1.1\r\nConnection: close\r\n\r\n",
			"none in HTTP/1.0":     "GET / HTTP/1.0\r\n\r\n",
			"a target elsewhere":   request("GET http://evil.example/ HTTP/1.1", "shop.example"),
			"a target in a room":   request("GET http://sale.example/ HTTP/1.1", "shop.example"),
			"a forwarded host":     request("GET / HTTP/1.1", "evil.example", "X-Forwarded-Host: shop.example"),
			"a space before colon": "GET / HTTP/1.1\r\nHost : shop.example\r\nConnection: close\r\n\r\n",
			"an opaque target":     request("GET shop.example:80 HTTP/1.1", "evil.example"),
		} {
			st.door.raw(text)
			nothing(what)
		}
		for _, method := range []string{"CONNECT", "TRACE", "get", "FROB", "PURGE", "PRI", "Connect"} {
			st.door.raw(request(method+" / HTTP/1.1", "shop.example"))
			nothing(method)
		}
		for _, method := range []string{"OPTIONS", "HEAD", "DELETE", "PUT", "POST", "PATCH"} {
			st.door.visitor().ask(method, "http://sale.example/", "")
			nothing(method)
		}
		for _, upgrade := range []string{"h2c", "websocket, h2c", "TLS/1.0", "websocket"} {
			st.door.raw("GET / HTTP/1.1\r\nHost: sale.example\r\nConnection: Upgrade\r\nUpgrade: " + upgrade + "\r\n\r\n" +
				request("GET / HTTP/1.1", "sale.example"))
			nothing("upgrade to " + upgrade)
		}
		good := st.keys.value("sale", session(7))
		altered := []byte(good)
		altered[40] ^= 1
		for _, value := range []string{"admin", string(altered), st.keys.value("vip", session(7)), ""} {
			st.door.visitor().get("http://sale.example/", "Cookie", "vestibule-sale="+value)
			nothing("a ticket that is none")
		}
		for name, text := range smuggled() {
			st.door.raw(text)
			for _, r := range site.took() {
				if !strings.HasPrefix(rawTarget(r), "/about") {
					t.Errorf("%s: %s reached the site", name, r.RequestURI)
				}
			}
		}
		st.door.visitor().get("http://sale.example/", "Cookie", "vestibule-sale="+good).enters(t, "a good ticket")
		// The ledger checks that the admitted request is the decided one, in every spelling.
		site.took()
		inside := "Cookie: vestibule-vip=" + st.keys.value("vip", session(7))
		for _, target := range slices.Concat(oddTargets, vipSpellings) {
			st.door.raw(request("GET "+target+" HTTP/1.1", "shop.example", inside))
		}
		if n := len(site.took()); n < len(oddTargets) {
			t.Errorf("%d of %d odd targets reached the site", n, len(oddTargets)+len(vipSpellings))
		}
	})
}

// A visitor cannot speak for the front: none of its headers names another path, host, scheme or address to the edge
// or the site, and no header of the edge reaches the site from a visitor.
func TestAFrontBelievesNoHeaderOfAVisitor(t *testing.T) {
	throughFronts(t, false, func(t *testing.T, st *stage, site *ledger) {
		st.up.queue(sale, 10, 1)
		nothing := func(what string) {
			t.Helper()
			for _, r := range site.took() {
				t.Errorf("%s: %s %s reached the site", what, r.Host, r.RequestURI)
			}
		}
		for i, lines := range [][]string{
			{"X-Forwarded-Uri: /about", "X-Forwarded-Host: shop.example"},
			{
				"X-Forwarded-Host: shop.example", "X-Forwarded-Uri: /about",
				"Connection: X-Forwarded-Uri, X-Forwarded-Host, X-Forwarded-Method, X-Forwarded-For, X-Forwarded-Proto",
			},
			{"X_Forwarded_Uri: /about", "X_Forwarded_Host: shop.example"},
			{"x-forwarded-uri: /about", "x-forwarded-host: shop.example", "x-forwarded-method: OPTIONS"},
			{
				"X-Original-URL: http://shop.example/about", "X-Original-URI: /about", "X-Rewrite-URL: /about",
				"Forwarded: host=shop.example",
			},
			{"Vestibule-Decision: admit", "X-Accel-Redirect: @site", "X-Accel-Internal: /@site"},
			{"Vestibule-Decision: admit", "Connection: Vestibule-Decision"},
			{"Cookie: vestibule-sale=admit", "Vestibule-Ticket: sale=admit", "Vestibule-Proof: a.b.c"},
		} {
			st.door.raw(request("GET / HTTP/1.1", "sale.example", lines...))
			nothing(strings.Join(lines, ", "))
			st.door.raw(request("GET "+gate.EventsPath+"?room=sale HTTP/1.1", "sale.example", lines...))
			nothing(strings.Join(lines, ", "))
			st.door.raw(request("POST "+gate.LeavePath+" HTTP/1.1", "sale.example",
				append(slices.Clone(lines), "Content-Length: 0")...))
			nothing(strings.Join(lines, ", "))
			// Nor do they keep anybody out.
			in := "Cookie: " + st.keys.seal("sale", session(uint64(100+i)))
			if codes, body := st.door.raw(request("GET / HTTP/1.1", "sale.example",
				append(slices.Clone(lines), in)...)); !slices.Equal(codes, []int{200}) || body != "the site" {
				t.Errorf("inside, with %v: %v %.60q", lines, codes, body)
			}
			site.took()
		}
		// All visitors of this test have one address, whatever their headers say.
		st.up.grant(sale, 10, 10)
		for _, name := range movingHeaders {
			if strings.Contains(name, "Anything") && p(t) == "nginx" {
				continue // knows no families of headers, but those members that sites are known to read
			}
			if name == "Vestibule-Poll-Like" && p(t) == "nginx" {
				continue
			}
			for _, spelling := range []string{
				name, strings.ToLower(name), strings.ToUpper(name),
				strings.ReplaceAll(name, "-", "_"), strings.ReplaceAll(name, "-", "."), strings.Replace(name, "-", "_", 1),
				strings.ReplaceAll(name, "-", "!"),
			} {
				const value = "/vip-6.6.6.6-https"
				st.door.raw(request("GET /about HTTP/1.1", "shop.example", spelling+": "+value))
				for _, r := range site.took() {
					for got, values := range r.Header {
						if slices.Contains(values, value) {
							t.Errorf("%s reached the site as %s", spelling, got)
						}
					}
				}
			}
		}
		for _, name := range []string{"X-Requested-With", "Authorization", "Traceparent"} {
			st.door.raw(request("GET /about HTTP/1.1", "shop.example", name+": 1"))
			if seen := site.took(); len(seen) != 1 || seen[0].Header.Get(name) != "1" {
				t.Errorf("%s does not reach the site: %v", name, seen)
			}
		}
		// A visitor that claims another address is counted by the address that the front sees.
		st.door.raw(request("GET /about HTTP/1.1", "shop.example", "X-Forwarded-For: 6.6.6.6", "X-Forwarded-Proto: https"))
		seen := site.took()
		if len(seen) != 1 || seen[0].Header.Get("X-Forwarded-For") != "127.0.0.1" ||
			seen[0].Header.Get("X-Forwarded-Proto") != "http" {
			t.Errorf("the site gets %v", seen)
		}
	})
}

// The edge gets each header that it decides by.
func TestFrontsTellTheEdgeWhatDecides(t *testing.T) {
	throughFronts(t, false, func(t *testing.T, st *stage, site *ledger) {
		for _, name := range gate.Decisive {
			value := "value-of-" + strings.ToLower(name)
			lines := []string{name + ": " + value}
			if name == "Upgrade" {
				value = "websocket"
				lines = []string{
					name + ": " + value, "Connection: Upgrade", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
					"Sec-WebSocket-Version: 13",
				}
			}
			st.door.raw(request("GET /about HTTP/1.1", "shop.example", lines...))
			if got := site.question().Header[name]; !slices.Equal(got, []string{value}) {
				t.Errorf("%s: the edge gets %q", name, got)
			}
		}
	})
}

// A front answers as the edge itself: status, decision, compression.
func TestFrontsAnswerAsTheEdge(t *testing.T) {
	throughFronts(t, false, func(t *testing.T, st *stage, site *ledger) {
		st.up.queue(sale, 10, 1)
		v := st.door.bare()
		for _, encoding := range []string{"identity", "gzip"} {
			a := v.get(saleURL, append(slices.Clone(navigation), "Accept-Encoding", encoding)...)
			if a.StatusCode != http.StatusOK || a.Header.Get(gate.DecisionHeader) != gate.SaysWait ||
				a.Header.Get("Vary") != "*" || a.Header.Get(statusHeader) != "" {
				t.Errorf("a page: %d %v", a.StatusCode, a.Header)
			}
			if a.Header.Get("Content-Encoding") == "gzip" != (encoding == "gzip") ||
				strings.Contains(a.body, "You are in line") == (encoding == "gzip") {
				t.Errorf("%s: %v %.40q", encoding, a.Header, a.body)
			}
		}
		if a := v.ask(http.MethodPost, saleURL, "{}", "Content-Type",
			"application/json"); a.StatusCode != http.StatusTooManyRequests || a.Header.Get("Retry-After") == "" {
			t.Errorf("a webhook: %d %v", a.StatusCode, a.Header)
		}
		for path, want := range map[string]int{
			"/.well-known/vestibule/none": http.StatusNotFound,
			gate.ClientPath:               http.StatusOK,
		} {
			a := v.get("http://shop.example" + path)
			if p(t) == "nginx" && want == http.StatusNotFound {
				want = http.StatusOK // of the site, as at the edge itself
			}
			if a.StatusCode != want || a.Header.Get(gate.DecisionHeader) == gate.SaysWait {
				t.Errorf("%s: %d %v", path, a.StatusCode, a.Header)
			}
		}
		in := st.keys.seal("sale", session(7))
		for _, offer := range [][]string{
			{"Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"},
			{"Connection: Upgrade", "Upgrade: TLS/1.0"},
		} {
			site.took()
			codes, _ := st.door.raw("GET / HTTP/1.1\r\nHost: sale.example\r\nCookie: " + in + "\r\n" +
				strings.Join(offer, "\r\n") + "\r\n\r\n" + request("GET /about HTTP/1.1", "shop.example"))
			if seen := site.took(); !slices.Equal(codes, []int{200, 200}) || len(seen) != 2 ||
				seen[0].Header.Get("Upgrade") != "" {
				t.Errorf("%q: %v, the site saw %v", offer, codes, seen)
			}
		}
		if codes, _ := st.door.raw(request("GET / HTTP/1.1", "sale.example", "Cookie: "+in,
			"Authorization: NTLM TlRMTVNTUAADAAAA")); p(t) != "haproxy" && !slices.Equal(codes, []int{502}) {
			t.Errorf("a login that the site would bind to a shared connection: %v", codes)
		}
	})
}

// What the site answers to one visitor is not for shared caches.
func TestFrontsKeepAVisitorsAnswersPrivate(t *testing.T) {
	throughFronts(t, false, func(t *testing.T, st *stage, site *ledger) {
		vendors := []string{
			"Edge-Control", "Expires", "Surrogate-Control", "CDN-Cache-Control", "Fastly-CDN-Cache-Control",
			"X-LiteSpeed-Cache-Control",
		}
		site.serves(func(w http.ResponseWriter, _ *http.Request) {
			for _, name := range vendors {
				w.Header().Set(name, "public, max-age=120")
			}
			w.Header().Set("Cache-Control", "public, max-age=60, s-maxage=600")
			w.Header().Set("Alt-Svc", `h3="direct.example:443"`)
			io.WriteString(w, "the site") //nolint:errcheck // the client checks the answer
		})
		for _, tc := range []struct {
			url, has string
			header   []string
		}{
			{saleURL, "private", []string{"Cookie", st.keys.seal("sale", session(7))}},
			{saleURL, "private", nil}, // with a ticket
			{saleURL, "no-store", []string{gate.TicketHeader, "new"}},
			{"http://shop.example/about", "", nil},
		} {
			a := st.door.bare().get(tc.url, tc.header...)
			cache := strings.Join(a.Header["Cache-Control"], ", ")
			if a.body != "the site" || a.Header.Get("Alt-Svc") != "" || a.Header.Get(cachingHeader) != "" {
				t.Fatalf("%v: %d %v", tc, a.StatusCode, a.Header)
			}
			for _, name := range vendors {
				if (a.Header.Get(name) == "") != (tc.has != "") {
					t.Errorf("%v: %s: %q", tc, name, a.Header[name])
				}
			}
			if tc.has == "" && cache != "public, max-age=60, s-maxage=600" || !strings.Contains(cache, tc.has) ||
				!strings.Contains(cache, "max-age=60") {
				t.Errorf("%v: %q", tc, cache)
			}
			// nginx adds a line.
			if tc.has != "" && p(t) != "nginx" && (strings.Contains(cache, "public") || strings.Contains(cache, "s-maxage")) {
				t.Errorf("%v: %q", tc, cache)
			}
		}
	})
}

// A websocket of an admitted visitor reaches the site of the question; a waiting visitor gets none.
func TestWebsocketsPassFronts(t *testing.T) {
	throughFronts(t, false, func(t *testing.T, st *stage, site *ledger) {
		st.up.queue(sale, 10, 1)
		site.serves(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upgrade") != "websocket" {
				t.Errorf("the site is asked for %q", r.Header["Upgrade"])
				return
			}
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			io.WriteString(conn, //nolint:errcheck // the client checks the answer
				"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n")
			io.Copy(conn, conn) //nolint:errcheck // as above
		})
		upgrade := func(cookie string) (*http.Response, net.Conn, *bufio.Reader) {
			c := testkit.Must(net.Dial("tcp", st.door.instead))(t)
			testkit.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
			ask := "GET /live HTTP/1.1\r\nHost: sale.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
				"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nCookie: " + cookie + "\r\n\r\n"
			testkit.Must(io.WriteString(c, ask))(t)
			br := bufio.NewReader(c)
			res := testkit.Must(http.ReadResponse(br, nil))(t)
			return res, c, br
		}
		res, c, br := upgrade(st.keys.seal("sale", session(7)))
		defer c.Close()
		if res.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("who is inside: %d %v", res.StatusCode, res.Header)
		}
		testkit.Must(io.WriteString(c, "ping\n"))(t)
		if got, err := br.ReadString('\n'); got != "ping\n" {
			t.Errorf("got %q, %v", got, err)
		}
		res, c, _ = upgrade("a=b")
		defer c.Close()
		if res.StatusCode == http.StatusSwitchingProtocols {
			t.Error("who waits has a websocket")
		}
		if n := len(site.took()); n != 1 {
			t.Errorf("the site saw %d requests", n)
		}
	})
}

// Over TLS and HTTP/2 the cookie is one for TLS, and the raw target is judged as well.
func TestFrontsSpeakTLSAndHTTP2(t *testing.T) {
	throughFronts(t, true, func(t *testing.T, st *stage, site *ledger) {
		st.up.queue(sale, 10, 1)
		st.up.queue(vip, 10, 1)
		for _, http2 := range []bool{true, false} {
			v := st.door.secure(http2)
			a := v.get("https://sale.example/", "Accept", "text/html")
			if c := a.Header.Get("Set-Cookie"); a.ProtoMajor == 2 != http2 ||
				!strings.HasPrefix(c, "__Host-vestibule-sale.place=") || !strings.Contains(c, "; Secure") ||
				!strings.Contains(a.body, "You are in line") {
				t.Fatalf("HTTP/%d, %d, %q, %.80q", a.ProtoMajor, a.StatusCode, c, a.body)
			}
			v.Jar = nil
			if a = v.get("https://sale.example/", "Cookie", st.keys.seal("sale", session(7))); a.body != "the site" {
				t.Error("a visitor that was admitted without TLS waits again over TLS")
			}
			if n := len(site.took()); n != 1 {
				t.Errorf("%d requests reached the site", n)
			}
			in := st.keys.sealTLS("sale", session(map[bool]uint64{true: 8, false: 9}[http2]))
			if a = v.get("https://sale.example/", "Cookie", "a=b; "+in, "X-Forwarded-Proto", "http"); a.body != "the site" {
				t.Errorf("who is inside: %d %.80q", a.StatusCode, a.body)
			}
			if seen := site.took(); len(seen) != 1 || seen[0].Header.Get("X-Forwarded-Proto") != "https" {
				t.Errorf("the site saw %v", seen)
			}
			if a = v.ask(http.MethodPost, "https://sale.example"+gate.LeavePath, "", "Cookie", in, "Origin",
				"https://sale.example"); a.StatusCode != http.StatusNoContent {
				t.Errorf("leaving: %d %.80q", a.StatusCode, a.body)
			}
			for _, path := range vipSpellings {
				if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.Contains(path, "#") ||
					strings.Contains(path, "%u") {
					continue // net/http does not send these, or retries repeatedly if the stream is reset
				}
				r := testkit.Must(http.NewRequest(http.MethodGet, "https://shop.example/", nil))(t)
				path, r.URL.RawQuery, _ = strings.Cut(path, "?")
				r.URL.Opaque = path
				v.do(r)
				for _, r := range site.took() {
					t.Errorf("%s reached the site as %s", path, r.RequestURI)
				}
			}
		}
	})
}

// The site gets the edge's proof and no other, the visitor gets none, and the site may ask about it through the
// front.
func TestFrontsSendTheProofOn(t *testing.T) {
	throughFrontsOf(t, false, proving, func(t *testing.T, st *stage, site *ledger) {
		v := st.door.visitor()
		v.Jar = nil
		site.serves(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(gate.ProofHeader, r.Header.Get(gate.ProofHeader)) // a site that reveals everything
		})
		for _, url := range []string{"http://sale.example/", "http://shop.example/about"} {
			a := v.get(url, "Cookie", st.keys.seal("sale", session(7)), gate.ProofHeader, "mine", "Connection", gate.ProofHeader)
			seen := site.took()
			if len(seen) != 1 || len(a.Header.Values(gate.ProofHeader)) > 0 {
				t.Fatalf("%d %v, the site saw %v", a.StatusCode, a.Header, seen)
			}
			proofs := seen[0].Header.Values(gate.ProofHeader)
			if len(proofs) != 1 || strings.Count(proofs[0], ".") != 2 {
				t.Fatalf("%s: the site has the proofs %q", url, proofs)
			}
			if a = v.get(strings.TrimSuffix(url, "about")+gate.VerifyPath[1:], gate.ProofHeader,
				proofs[0]); a.StatusCode != http.StatusOK {
				t.Errorf("%s: the proof is answered by %d %.80q", url, a.StatusCode, a.body)
			}
		}
		if a := v.get("http://sale.example" + gate.KeysPath); a.StatusCode != http.StatusOK ||
			!strings.Contains(a.body, "keys") {
			t.Errorf("the keys: %d %.80q", a.StatusCode, a.body)
		}
		st.up.queue(sale, 10, 1)
		if a := v.get("http://sale.example/", gate.ProofHeader, "mine"); a.Header.Get(gate.ProofHeader) != "" {
			t.Errorf("who waits gets %q", a.Header.Get(gate.ProofHeader))
		}
		for _, path := range []string{"/.well-known/vestibule/../vestibule/none", "/.well-known/vestibule/none", "/decide"} {
			if a := v.get("http://shop.example"+path, "X-Forwarded-Uri", "/about", "X-Forwarded-Method", "GET",
				"X-Forwarded-Host", "shop.example"); a.Header.Get(gate.ProofHeader) != "" {
				t.Errorf("by %s a visitor gets %q", path, a.Header.Get(gate.ProofHeader))
			}
			site.took()
		}
	})
}

// Without an edge no visitor enters, admitted before or not.
func TestNobodyPassesAFrontWithoutAnEdge(t *testing.T) {
	throughFronts(t, false, func(t *testing.T, st *stage, site *ledger) {
		in := st.keys.seal("sale", session(7))
		if a := st.door.visitor().get("http://sale.example/", "Cookie", in); a.body != "the site" {
			t.Fatalf("who is inside: %d %.40q", a.StatusCode, a.body)
		}
		site.took()
		testkit.NoError(t, st.stop())
		for _, url := range []string{"http://sale.example/", "http://shop.example/about"} {
			if a := st.door.visitor().get(url, "Cookie", in); a.StatusCode < 500 {
				t.Errorf("%s: %d %.40q", url, a.StatusCode, a.body)
			}
		}
		if n := len(site.took()); n > 0 {
			t.Errorf("%d requests reached the site", n)
		}
	})
}
