package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"vestibule/internal/lab/testkit"
)

// TestClientsThroughFronts plays browsers, payment services, programs and CDNs against each listener of an edge, and
// through each server of deploy/fronts with one edge and with two. A case holds at every door, or differs at some for
// the reason that it gives; docs/INTEGRATIONS.md names these.
func TestClientsThroughFronts(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes a minute; `make e2e` runs it")
	}
	bin, dir := build(t), t.TempDir()
	site := newOddSite(t)
	doors := []*doorway{{name: "fast", kind: "edge"}, {name: "nethttp", kind: "edge"}}
	for i, f := range testkit.Fronts {
		for edges := 1; edges <= 2; edges++ {
			if edges == 1 && !*allFronts {
				continue
			}
			doors = append(doors, &doorway{
				name: fmt.Sprintf("%s-%d", f.Name, edges), kind: f.Name, front: &testkit.Fronts[i],
				edges: edges,
			})
		}
	}
	text := "rooms:\n"
	var hosts []string
	for _, d := range doors {
		d.site = site
		for name, total := range clientRooms {
			hosts = append(hosts, d.host(name))
			text += fmt.Sprintf("- {name: %s-%s, host: %s, path: %s, total_active_users: %d, new_users_per_minute: 6000, "+
				"session_duration: 5m, probation: 1m, origin: 'http://%s'}\n",
				name, d.name, d.host(name), map[bool]string{true: "/b", false: "/"}[name == "part"], total, site.addr)
		}
	}
	nats, _ := fleet(t, bin, dir, text, "nairobi")
	cert := certificate(t, dir, hosts)
	asked := map[string][]string{} // listeners for fronts, by form
	for i, form := range []string{"accel", "accel", "headers", "headers"} {
		own := `listen: ""`
		if i%2 == 0 {
			d := doors[i/2]
			d.plain, d.tls = testkit.FreeAddr(t), testkit.FreeAddr(t)
			own = fmt.Sprintf("front: %s\nlisten: %q\ntls: {listen: %q, cert: %q, key: %q}\n", d.name, d.plain, d.tls,
				cert, cert)
		}
		asked[form] = append(asked[form], startFronted(t, bin, dir, nats, fmt.Sprintf("edge-%d", i+1), form, own).addr)
	}
	for _, d := range doors {
		t.Run(d.name, func(t *testing.T) {
			if d.front != nil {
				d.plain, d.tls = testkit.FreeAddr(t), testkit.FreeAddr(t)
				startFront(t, d.front, &testkit.FrontPlaces{
					Visitors: d.tls, Plain: d.plain, Edges: asked[d.front.Form][:d.edges],
					Site: site.addr, Cert: cert,
				})
				until(t, d.name+" listens", func() bool {
					c, err := net.Dial("tcp", d.plain)
					return err == nil && c.Close() == nil
				})
			}
			failed, differs := 0, 0
			for _, c := range clientCases {
				why := d.play(t.Context(), c.steps)
				switch reason := c.differs[d.kind]; {
				case reason == "" && why != "":
					failed++
					t.Errorf("%s: %s", c.name, why)
				case reason != "" && why == "":
					t.Errorf("%s: is equal here, but is said to differ: %s", c.name, reason)
				case reason != "":
					differs++
					t.Logf("%s: differs: %s", c.name, reason)
				}
			}
			t.Logf("%s: %d cases, %d fail (goal: 0), %d differ as documented", d.name, len(clientCases), failed, differs)
		})
	}
}

// clientRooms are the rooms of each door, with total_active_users.
var clientRooms = map[string]int{"open": 1000, "one": 1, "full": 1, "tabs": 1, "red": 1, "out": 1, "pre": 1, "part": 2}

// clientCase is what a person suffers otherwise.
type clientCase struct {
	name    string
	steps   []step
	differs map[string]string // doors where it does not hold, and why
}

// step is one request.
type step struct {
	who    string // browsers whose cookies it has, the answer's go to the first; "" for a client without cookies
	room   string
	path   string // "" for /
	method string // "" for GET
	header []string
	body   string
	tls    bool
	cross  bool   // from another site: only SameSite=None cookies go along
	until  bool   // repeated until the answer is as wanted
	want   string // what the answer must be, of answerKinds, separated by blanks
}

// Header lines of browsers.
var (
	pageLines = []string{
		"Accept: text/html,*/*;q=0.8", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document",
		"Sec-Fetch-Site: none", "User-Agent: Mozilla/5.0",
	}
	bankLines = []string{
		"Accept: text/html,*/*;q=0.8", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document", "Sec-Fetch-Site: cross-site",
		"Origin: https://bank.example", "Content-Type: application/x-www-form-urlencoded",
	}
	pictureLines = []string{
		"Accept: image/avif,image/*", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image",
		"Sec-Fetch-Site: cross-site",
	}
)

func enters(who, room string) step {
	return step{who: who, room: room, header: pageLines, until: true, want: "inside"}
}

func later(name, method string, body string, header ...string) clientCase {
	return clientCase{name: name + " in a full room is not told that it succeeded", steps: []step{
		enters("holder", "full"), {
			room: "full", path: "/hook", method: method, header: header, body: body,
			want: "later unseen",
		},
	}}
}

const (
	unseen = "the edge does not see the site's answers"
	shared = "the server shares its connections to the site"
)

// clientCases are the cases.
var clientCases = []clientCase{
	{name: "a POST from another site reaches the site (TLS)", steps: []step{
		{who: "buyer", room: "one", header: pageLines, tls: true, until: true, want: "inside"},
		{
			who: "buyer", room: "one", path: "/order", method: "POST", header: bankLines, body: "paid=1", tls: true, cross: true,
			want: "inside seen",
		},
		{who: "buyer", room: "one", header: pageLines, tls: true, want: "inside"},
	}},
	{name: "a POST from another site that has to wait is not told that it succeeded (plain)", steps: []step{
		enters("holder", "full"),
		{
			who: "holder", room: "full", path: "/order", method: "POST", header: bankLines, body: "paid=1", cross: true,
			want: "later unseen no-cookies",
		},
		{who: "holder", room: "full", header: pageLines, want: "inside"},
	}},
	{name: "two tabs at once, one free place", steps: []step{
		enters("first", "tabs"),
		{who: "second", room: "tabs", header: pageLines, until: true, want: "page cookies"},
		{who: "first second", room: "tabs", header: pageLines, want: "inside"},
	}},
	{
		name:  "let in over http, sent on to https",
		steps: []step{enters("red", "red"), {who: "red", room: "red", header: pageLines, tls: true, want: "inside"}},
	},
	later("a payment webhook", "POST", "{}", "Content-Type: application/json", "Accept: */*"),
	later("PUT of a program", "PUT", "{}", "Accept: */*"),
	later("DELETE", "DELETE", ""),
	later("a range of a download", "GET", "", "Range: bytes=100-"),
	later("a feed reader", "GET", "", "Accept: application/rss+xml, application/xml;q=0.9"),
	later("fetch of a script", "GET", "", "Accept: */*", "Sec-Fetch-Dest: empty", "Sec-Fetch-Mode: cors",
		"Sec-Fetch-Site: same-origin"),
	later("a service worker's fetch", "GET", "", "Accept: */*", "Sec-Fetch-Dest: empty", "Sec-Fetch-Mode: same-origin"),
	later("GraphQL", "POST", "{}", "Content-Type: application/json", "Accept: application/json"),
	later("a preview", "GET", "", "Accept: text/html", "X-Purpose: preview"),
	{
		name:  "a page in a full room",
		steps: []step{enters("holder", "full"), {room: "full", header: pageLines, want: "page"}},
	},
	{name: "a balancer's check keeps its 200", steps: []step{
		enters("holder", "full"),
		{room: "full", want: "page"},
		{room: "full", header: []string{"Accept: */*"}, want: "page"},
		{room: "full", method: "HEAD", want: "page"},
		{room: "full", method: "HEAD", header: []string{"Accept: */*"}, want: "page"},
	}},
	{name: "a poll whose Accept a CDN removed gets JSON", steps: []step{
		enters("holder", "full"),
		{who: "poller", room: "full", header: pageLines, until: true, want: "page cookies"},
		{who: "poller", room: "full", header: []string{"Vestibule-Poll: 1", "User-Agent: Mozilla/5.0"}, want: "json"},
	}},
	{name: "an offer to upgrade to h2c is ignored", steps: []step{
		enters("visitor", "open"),
		{
			who: "visitor", room: "open",
			header: append([]string{"Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"},
				pageLines...), want: "inside seen no-upgrade",
		},
	}},
	{name: "blanks after a chunk size of the site", steps: []step{
		enters("visitor", "open"),
		{who: "visitor", room: "open", path: "/pad", header: pageLines, want: "hello"},
	}},
	{name: "a chunk extension of the site", steps: []step{
		enters("visitor", "open"),
		{who: "visitor", room: "open", path: "/ext", header: pageLines, want: "hello"},
	}},
	{name: "Alt-Svc of the site does not lead past the edge", steps: []step{
		enters("visitor", "open"),
		{who: "visitor", room: "open", path: "/alt", header: pageLines, want: "inside no-alt"},
	}},
	{name: "no shared cache keeps a visitor's answer", steps: []step{
		enters("visitor", "open"),
		{who: "visitor", room: "open", path: "/cached", header: pageLines, want: "inside private"},
	}},
	{
		name: "no cache replays a ticket in a header",
		steps: []step{{room: "open", path: "/cached", header: []string{
			"Accept: application/json, */*",
			"Vestibule-Ticket: new",
		}, until: true, want: "inside ticket no-store"}},
	},
	{name: "a logout with Clear-Site-Data reaches the browser", steps: []step{
		enters("visitor", "open"),
		{who: "visitor", room: "open", path: "/logout", header: pageLines, want: "inside clears"},
	}},
	{
		name: "a logout with Clear-Site-Data ends the session", steps: []step{
			enters("leaver", "out"),
			{who: "leaver", room: "out", path: "/logout", header: pageLines, want: "inside"},
			{who: "next", room: "out", header: pageLines, until: true, want: "inside"},
		},
		differs: map[string]string{"nginx": unseen, "haproxy": unseen, "caddy": unseen},
	},
	{name: "prefetches take no place from a visitor", steps: []step{
		{room: "pre", header: append([]string{"Sec-Purpose: prefetch"}, pageLines...), want: "waits"},
		{room: "pre", header: append([]string{"Sec-Purpose: prefetch;prerender"}, pageLines...), want: "waits"},
		{room: "pre", header: append([]string{"Purpose: prefetch"}, pageLines...), want: "waits"},
		{room: "pre", header: append([]string{"X-Moz: prefetch"}, pageLines...), want: "waits"},
		{room: "pre", method: "OPTIONS", header: []string{
			"Origin: https://app.example",
			"Access-Control-Request-Method: POST", "Sec-Fetch-Mode: cors",
		}, want: "any"},
		{room: "pre", path: "/app.js", header: []string{
			"Accept: */*", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: script",
			"Sec-Fetch-Site: same-origin",
		}, want: "waits"},
		enters("reader", "pre"),
	}},
	{name: "pictures of a room on pages elsewhere take none of its places", steps: []step{
		{who: "p1", room: "part", path: "/b/1.png", header: pictureLines, want: "waits"},
		{who: "p2", room: "part", path: "/b/2.png", header: pictureLines, want: "waits"},
		{who: "p1", room: "part", path: "/b/1.png", header: pictureLines, want: "waits"},
		{who: "p2", room: "part", path: "/b/2.png", header: pictureLines, want: "waits"},
		{who: "v1", room: "part", path: "/b/", header: pageLines, until: true, want: "inside"},
		{who: "v2", room: "part", path: "/b/", header: pageLines, until: true, want: "inside"},
	}},
	{name: "leaving works where a CDN rewrites Host", steps: []step{
		enters("l1", "open"), {
			who: "l1", room: "open", path: leavePath, method: "POST",
			header: []string{"Origin: https://www.shop.example", "Sec-Fetch-Site: same-origin"}, want: "left",
		},
	}},
	{name: "another site cannot make a visitor leave", steps: []step{
		enters("l2", "open"),
		{
			who: "l2", room: "open", path: leavePath, method: "POST",
			header: []string{"Origin: https://evil.example", "Sec-Fetch-Site: cross-site"}, want: "refused",
		},
		{who: "l2", room: "open", header: pageLines, want: "inside"},
	}},
	{name: "a login that the site binds to a connection is no other visitor's", steps: []step{
		enters("alice", "open"), enters("bob", "open"),
		{who: "alice", room: "open", path: "/ntlm", header: append([]string{"Authorization: NTLM TlRMTVNTUAADAAAA"},
			pageLines...), want: "any"},
		{who: "bob", room: "open", path: "/ntlm", header: pageLines, want: "stranger"},
		{who: "bob", room: "open", path: "/ntlm", header: pageLines, want: "stranger"},
		{who: "bob", room: "open", path: "/ntlm", header: pageLines, want: "stranger"},
	}},
	{name: "a login that the site binds to a connection works", steps: []step{
		enters("alice", "open"), {
			who: "alice", room: "open", path: "/ntlm",
			header: append([]string{"Authorization: NTLM TlRMTVNTUAADAAAA"}, pageLines...), want: "inside",
		},
	}, differs: map[string]string{"nginx": shared, "caddy": shared}},
	{name: "methods of WebDAV and QUERY reach the site", steps: []step{
		enters("dav", "open"),
		{who: "dav", room: "open", path: "/dav", method: "PROPFIND", header: pageLines, want: "inside seen"},
		{who: "dav", room: "open", path: "/dav", method: "REPORT", header: pageLines, want: "inside seen"},
		{who: "dav", room: "open", path: "/dav", method: "MKCOL", header: pageLines, want: "inside seen"},
		{who: "dav", room: "open", path: "/dav", method: "QUERY", header: pageLines, want: "inside seen"},
	}},
	{
		name: "CONNECT and TRACE do not",
		steps: []step{
			{room: "open", method: "CONNECT", header: pageLines, want: "refused unseen"},
			{room: "open", method: "TRACE", header: pageLines, want: "refused unseen"},
		},
	},
}

const leavePath = "/.well-known/vestibule/leave"

// reply is an answer as a client reads it.
type reply struct {
	*http.Response
	body string
	seen []string // heads of the requests with this method and path that reached the site meanwhile
}

// answerKinds are what an answer can be.
var answerKinds = map[string]func(a *reply) bool{
	"any": func(*reply) bool { return true },
	"inside": func(a *reply) bool {
		return a.StatusCode == http.StatusOK && (strings.HasPrefix(a.body, "site") || a.Request.Method == http.MethodHead) &&
			!a.says("wait")
	},
	"hello": func(a *reply) bool { return a.StatusCode == http.StatusOK && a.body == "hello" },
	"waits": func(a *reply) bool { return a.says("wait") && !strings.HasPrefix(a.body, "site") },
	"page": func(a *reply) bool {
		return a.StatusCode == http.StatusOK && a.says("wait") && a.Header.Get("Vary") == "*" &&
			!strings.HasPrefix(a.body, "site")
	},
	"later": func(a *reply) bool {
		return a.StatusCode == http.StatusTooManyRequests && a.says("wait") && a.Header.Get("Retry-After") != ""
	},
	"json": func(a *reply) bool {
		return a.StatusCode == http.StatusOK && a.says("wait") && strings.HasPrefix(a.body, "{")
	},
	"refused":    func(a *reply) bool { return slices.Contains([]int{400, 403, 405, 501}, a.StatusCode) },
	"left":       func(a *reply) bool { return a.StatusCode < 300 && !strings.HasPrefix(a.body, "site") },
	"stranger":   func(a *reply) bool { return !strings.Contains(a.body, "alice") },
	"seen":       func(a *reply) bool { return len(a.seen) == 1 },
	"unseen":     func(a *reply) bool { return len(a.seen) == 0 },
	"cookies":    func(a *reply) bool { return len(a.Cookies()) > 0 },
	"no-cookies": func(a *reply) bool { return len(a.Cookies()) == 0 },
	"no-alt":     func(a *reply) bool { return a.Header.Get("Alt-Svc") == "" },
	"no-upgrade": func(a *reply) bool { return !strings.Contains(strings.ToLower(strings.Join(a.seen, "")), "upgrade") },
	"clears":     func(a *reply) bool { return strings.Contains(a.Header.Get("Clear-Site-Data"), "cookies") },
	"ticket":     func(a *reply) bool { return a.Header.Get("Vestibule-Ticket") != "" },
	"private": func(a *reply) bool {
		return strings.Contains(a.caching(), "private") && a.Header.Get("CDN-Cache-Control") == "" &&
			a.Header.Get("Expires") == ""
	},
	"no-store": func(a *reply) bool {
		return strings.Contains(a.caching(), "no-store") && a.Header.Get("CDN-Cache-Control") == ""
	},
}

func (a *reply) says(decision string) bool { return a.Header.Get("Vestibule-Decision") == decision }
func (a *reply) caching() string           { return strings.Join(a.Header["Cache-Control"], ", ") }

// doorway is a way to the site.
type doorway struct {
	name, kind string
	front      *testkit.Front // nil for an edge itself
	edges      int
	plain, tls string // addresses
	site       *oddSite

	tickets map[string]string // of the client without cookies, by room
}

func (d *doorway) host(room string) string { return room + "." + d.name + ".test" }

// play does the steps of a case with new browsers, and returns what went wrong.
func (d *doorway) play(ctx context.Context, steps []step) string {
	jars := map[string]map[string]*http.Cookie{}
	for i := range steps {
		s := &steps[i]
		limit := time.Now().Add(8 * time.Second)
		for {
			a, err := d.ask(s, jars)
			wrong := ""
			if err != nil {
				wrong = err.Error()
			} else {
				for want := range strings.FieldsSeq(s.want) {
					if !answerKinds[want](a) {
						wrong = fmt.Sprintf("step %d, %s %s: not %q: %d, %d at the site, %v, %.60q", i, a.Request.Method, s.path, want,
							a.StatusCode, len(a.seen), a.Header, a.body)
						break
					}
				}
			}
			if wrong == "" {
				break
			}
			if !s.until || time.Now().After(limit) {
				return wrong
			}
			pause(ctx, 100*time.Millisecond) // like the page's own pause between polls
		}
	}
	d.leave(jars)
	return ""
}

// leave ends the stays of all browsers, so that the next case finds the rooms empty.
func (d *doorway) leave(jars map[string]map[string]*http.Cookie) {
	for who := range jars {
		for room := range clientRooms {
			for _, secure := range []bool{false, true} {
				leave := &step{who: who, room: room, path: leavePath, method: "POST", tls: secure}
				d.ask(leave, jars) //nolint:errcheck // the next case waits for a place
			}
		}
	}
}

// ask sends one request on a connection of its own, as a browser would with these jars.
func (d *doorway) ask(s *step, jars map[string]map[string]*http.Cookie) (*reply, error) {
	addr := d.plain
	if s.tls {
		addr = d.tls
	}
	dial := net.Dialer{Timeout: 5 * time.Second}
	if d.front == nil { // 127.0.0.1 is a trusted proxy
		dial.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}
	}
	c, err := dial.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	host, path, method := d.host(s.room), s.path, s.method
	if path == "" {
		path = "/"
	}
	if method == "" {
		method = http.MethodGet
	}
	if s.tls {
		c = tls.Client(c, &tls.Config{
			InsecureSkipVerify: true,
			ServerName:         host,
		}) //nolint:gosec // its certificate is a test's
	}
	if err := c.SetDeadline(time.Now().Add(15 * time.Second)); err != nil {
		return nil, err
	}
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n", method, path, host)
	if !slices.ContainsFunc(s.header, func(l string) bool { return strings.HasPrefix(l, "Connection:") }) {
		head += "Connection: close\r\n"
	}
	for _, line := range s.header {
		if room, ok := strings.CutPrefix(line, "Vestibule-Ticket: new"); ok && d.tickets[s.room] != "" {
			line = "Vestibule-Ticket: " + d.tickets[s.room] + room
		}
		head += line + "\r\n"
	}
	var cookies []string
	names := strings.Fields(s.who)
	for _, who := range names {
		if jars[who] == nil {
			jars[who] = map[string]*http.Cookie{}
		}
		for _, name := range slices.Sorted(maps.Keys(jars[who])) {
			if c := jars[who][name]; (s.tls || !c.Secure) && (!s.cross || c.SameSite == http.SameSiteNoneMode) {
				cookies = append(cookies, name+"="+c.Value)
			}
		}
	}
	if len(cookies) > 0 {
		head += "Cookie: " + strings.Join(cookies, "; ") + "\r\n"
	}
	if s.body != "" || method == http.MethodPost {
		head += "Content-Length: " + strconv.Itoa(len(s.body)) + "\r\n"
	}
	d.site.forget(host)
	if _, err := io.WriteString(c, head+"\r\n"+s.body); err != nil {
		return nil, err
	}
	r := &http.Request{Method: method}
	res, err := http.ReadResponse(bufio.NewReader(c), r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	if len(names) > 0 {
		for _, c := range res.Cookies() {
			if c.MaxAge < 0 {
				delete(jars[names[0]], c.Name)
			} else {
				jars[names[0]][c.Name] = c
			}
		}
	}
	if ticket := res.Header.Get("Vestibule-Ticket"); ticket != "" &&
		strings.HasPrefix(res.Header.Get("Vestibule-Decision"), "wait") {
		if d.tickets == nil {
			d.tickets = map[string]string{}
		}
		d.tickets[s.room] = ticket
	}
	return &reply{res, string(body), d.site.saw(host, method, path)}, nil
}

// certificate writes a certificate of these hosts and its key into one file.
func certificate(t *testing.T, dir string, hosts []string) string {
	t.Helper()
	cert, key, err := testkit.Certificate(1, time.Now().Add(time.Hour), hosts...)
	testkit.NoError(t, err)
	return file(t, dir, "both.pem", "%s%s", cert, key)
}

// oddSite is a site that chunks oddly, clears the browser's data, and binds a login to the connection, as NTLM does.
type oddSite struct {
	addr string

	mu   sync.Mutex
	seen map[string][]string // heads of requests by host
}

func newOddSite(t *testing.T) *oddSite {
	t.Helper()
	s := &oddSite{seen: map[string][]string{}}
	s.addr = testkit.Listen(t, s.serve)
	return s
}

func (s *oddSite) forget(host string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, host)
}

// saw returns the heads of the requests with this method and path.
func (s *oddSite) saw(host, method, path string) (heads []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, head := range s.seen[host] {
		if strings.HasPrefix(head, method+" "+path+" ") {
			heads = append(heads, head)
		}
	}
	return heads
}

// serve answers the requests of a connection.
func (s *oddSite) serve(c net.Conn) {
	who := "-"
	for br := bufio.NewReader(c); ; {
		r, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		head := fmt.Sprintf("%s %s %v", r.Method, r.RequestURI, r.Header)
		if r.UserAgent() != "vestibule" { // the edge itself asks whether there is life
			s.mu.Lock()
			s.seen[r.Host] = append(s.seen[r.Host], head)
			s.mu.Unlock()
		}
		extra := ""
		switch r.URL.Path {
		case "/pad":
			extra = "Transfer-Encoding: chunked\r\n\r\n5   \r\nhello\r\n0\r\n\r\n"
		case "/ext":
			extra = "Transfer-Encoding: chunked\r\n\r\n5;sig=abc\r\nhello\r\n0\r\n\r\n"
		case "/alt":
			extra = "Alt-Svc: h3=\"direct.example:443\"\r\n"
		case "/logout":
			extra = "Clear-Site-Data: \"cookies\"\r\n"
		case "/cached":
			extra = "Cache-Control: public, max-age=600\r\nExpires: Thu, 01 Jan 2099 00:00:00 GMT\r\n" +
				"CDN-Cache-Control: max-age=600\r\n"
		case "/ntlm":
			if strings.HasPrefix(r.Header.Get("Authorization"), "NTLM ") {
				who = "alice"
			}
			if who == "-" {
				if _, err := io.WriteString(c,
					"HTTP/1.1 401 No\r\nWWW-Authenticate: NTLM\r\nContent-Length: 0\r\n\r\n"); err != nil {
					return
				}
				continue
			}
		}
		if !strings.Contains(extra, "chunked") {
			body := "site " + who
			extra += fmt.Sprintf("Content-Type: text/html\r\nContent-Length: %d\r\n\r\n", len(body))
			if r.Method != http.MethodHead {
				extra += body
			}
		}
		if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n"+extra); err != nil {
			return
		}
	}
}
