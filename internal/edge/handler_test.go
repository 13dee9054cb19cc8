package edge

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
	"vestibule/internal/edge/gate"
	"vestibule/internal/lab/testkit"
)

func TestAnAdmittedRequestReachesTheOrigin(t *testing.T) {
	st := open(t, nil)
	v := st.door.visitor()
	a := v.get("http://sale.example/")
	if a.StatusCode != http.StatusOK || a.body != "the site" {
		t.Fatalf("got %d %q", a.StatusCode, a.body)
	}
	c := cookieOf(a, "vestibule-sale")
	if c == nil {
		t.Fatal("who was admitted has no ticket")
	}
	if !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Domain != "" || c.Secure ||
		c.MaxAge < 300 || c.MaxAge > 332 {
		t.Errorf("cookie %+v", c)
	}
	if got := a.Header.Get("Cache-Control"); got != "private" {
		t.Errorf("an answer with a ticket may be cached: %q", got)
	}

	a = v.ask(http.MethodPost, "http://sale.example/buy?what=%61&b;c", "two seats",
		"Cookie", "theirs=1; vestibule-other=x; more=2",
		"X-Forwarded-For", "6.6.6.6", "X-Forwarded-Proto", "https", "X-Forwarded-Host", "evil.example", "Forwarded",
		"for=6.6.6.6",
		"X-Real-Ip", "6.6.6.6", "X_Forwarded_For", "6.6.6.6", "X-Vestibule-Decision", "forged", "X-Original-Url", "/admin",
		"X-Http-Method-Override", "DELETE", "Connection", "X-Secret, X-Forwarded-Host", "X-Secret", "1",
		"Proxy-Authorization", "x", "X-Kept", "yes")
	if a.StatusCode != http.StatusOK {
		t.Fatalf("got %d", a.StatusCode)
	}
	if len(a.Cookies()) > 0 {
		t.Errorf("a session that is not renewed sets %v", a.Cookies())
	}
	r := st.origin.last()
	if r.Host != "sale.example" || r.RequestURI != "/buy?what=%61&b;c" || r.Method != http.MethodPost ||
		r.ContentLength != 9 {
		t.Errorf("origin got %s %s %s, %d bytes", r.Method, r.Host, r.RequestURI, r.ContentLength)
	}
	for name, want := range map[string]string{
		"Cookie": "theirs=1; more=2", "X-Forwarded-For": "127.0.0.1", "X-Forwarded-Proto": "http",
		"X-Forwarded-Host": "sale.example",
		"X-Kept":           "yes", "Forwarded": "", "X-Real-Ip": "", "X_forwarded_for": "", "X-Original-Url": "",
		"X-Http-Method-Override": "",
		"X-Secret":               "", "Proxy-Authorization": "", "Connection": "", "Accept-Encoding": "",
	} {
		if got := strings.Join(r.Header.Values(name), "|"); got != want {
			t.Errorf("origin got %s: %q, want %q", name, got, want)
		}
	}
}

func TestListedProxiesAreBelieved(t *testing.T) {
	for _, tc := range []struct {
		name    string
		proxies []string
		header  []string
		client  string
		proto   string
		host    string // cookie name if the connection claims TLS
	}{
		{"a proxy says who and how", []string{"127.0.0.1"}, []string{
			"X-Forwarded-For", "203.0.113.9", "X-Forwarded-Proto",
			"https",
		}, "203.0.113.9", "https", "__Host-vestibule-sale"},
		{
			"a visitor cannot put itself behind others",
			[]string{"127.0.0.0/8", "10.0.0.0/8"},
			[]string{"X-Forwarded-For", "1.1.1.1, 203.0.113.9, 10.1.1.1"},
			"203.0.113.9", "http", "vestibule-sale",
		},
		{
			"several headers are one list",
			[]string{"127.0.0.1"},
			[]string{"X-Forwarded-For", "1.1.1.1", "X-Forwarded-For", "2001:db8::1"},
			"2001:db8::1", "http", "vestibule-sale",
		},
		{
			"nonsense ends the list",
			[]string{"127.0.0.0/8"},
			[]string{"X-Forwarded-For", "1.1.1.1, nonsense, 127.0.0.2"},
			"127.0.0.2", "http", "vestibule-sale",
		},
		{
			"two protocols are none",
			[]string{"127.0.0.1"},
			[]string{"X-Forwarded-Proto", "https", "X-Forwarded-Proto", "http"},
			"127.0.0.1", "http", "vestibule-sale",
		},
		{"others are not believed", []string{"192.0.2.1"}, []string{
			"X-Forwarded-For", "203.0.113.9", "X-Forwarded-Proto",
			"https",
		}, "127.0.0.1", "http", "vestibule-sale"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			st := open(t, func(st *stage) { st.cfg.Proxies = tc.proxies })
			a := st.door.visitor().get("http://sale.example/", tc.header...)
			r := st.origin.last()
			if got := r.Header.Values("X-Forwarded-For"); len(got) != 1 || got[0] != tc.client {
				t.Errorf("X-Forwarded-For %q, want %q", got, tc.client)
			}
			if got := r.Header.Values("X-Forwarded-Proto"); len(got) != 1 || got[0] != tc.proto {
				t.Errorf("X-Forwarded-Proto %q, want %q", got, tc.proto)
			}
			c := cookieOf(a, tc.host)
			if c == nil || c.Secure != strings.HasPrefix(tc.host, "__Host-") {
				t.Errorf("cookies %v, want %s", a.Cookies(), tc.host)
			}
		})
	}
}

// The origin's answer passes unchanged, except for headers that would affect the visitor's ticket.
func TestTheOriginsAnswer(t *testing.T) {
	st := open(t, nil)
	st.origin.serves(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Add("Set-Cookie", "theirs=1; Path=/")
		h.Add("Set-Cookie", "vestibule-sale=stolen; Path=/")
		h.Add("Set-Cookie", " __Host-vestibule-sale = ; Max-Age=0")
		h.Set("Cache-Control", "public, max-age=60, s-maxage=600, must-revalidate")
		h.Set("Surrogate-Control", "max-age=600")
		h.Set("Content-Encoding", "gzip")
		w.WriteHeader(http.StatusTeapot)
		io.WriteString(w, "not really gzip") //nolint:errcheck // the client checks the answer
	})
	v := st.door.visitor()
	a := v.get("http://sale.example/")
	if a.StatusCode != http.StatusTeapot || a.body != "not really gzip" || a.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("got %d %q", a.StatusCode, a.body)
	}
	if c := cookieOf(a, "vestibule-sale"); c == nil || c.Value == "stolen" || len(a.Cookies()) != 2 {
		t.Errorf("cookies %v, want theirs and ours", a.Cookies())
	}
	if got := a.Header.Get("Cache-Control"); got != "private, max-age=60, must-revalidate" ||
		a.Header.Get("Surrogate-Control") != "" {
		t.Errorf("Cache-Control %q: a shared cache would hand one visitor's ticket to others", got)
	}
	a = v.get("http://sale.example/")
	if cookieOf(a, "vestibule-sale") != nil || cookieOf(a, "theirs") == nil || len(a.Cookies()) != 1 {
		t.Errorf("cookies %v, want theirs only", a.Cookies())
	}
	if got := a.Header.Get("Cache-Control"); got != "private, max-age=60, must-revalidate" ||
		a.Header.Get("Surrogate-Control") != "" {
		t.Errorf("Cache-Control %q: a shared cache would serve the site past the room", got)
	}

	st.origin.serves(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Cache-Control", "no-store") })
	if got := st.door.visitor().get("http://sale.example/").Header.Get("Cache-Control"); got != "private, no-store" {
		t.Errorf("no-store became %q", got)
	}
}

// Where the room leaves caching to the site, only answers with a ticket are private; and
// so are those outside of all rooms.
func TestCachingByTheSite(t *testing.T) {
	st := openWith(t, 10, func(s *room.Settings) { s.Caching = room.CachingSite })
	const public = "public, max-age=60"
	st.origin.serves(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", public)
		w.Header().Set("X-Accel-Expires", "600")
	})
	v := st.door.visitor()
	for i, want := range []string{"private, max-age=60", public} {
		a := v.get("http://sale.example/")
		if got := a.Header.Get("Cache-Control"); got != want || (a.Header.Get("X-Accel-Expires") == "") != (want != public) {
			t.Errorf("answer %d: %v, want %q", i+1, a.Header, want)
		}
	}
	if a := v.get("http://shop.example/about"); a.Header.Get("Cache-Control") != public {
		t.Errorf("outside of all rooms: %v", a.Header)
	}
}

// All hosts of a room with cookie_domain know one place and one session, also one from
// before, and all forget it.
func TestOneCookieForAllHostsOfARoom(t *testing.T) {
	st := openRooms(t, func(st *stage) { st.cfg.Proxies = []string{"127.0.0.1"} }, func(d *room.Document) {
		d.Rooms[0].AdditionalRoutes = []room.Route{{Host: "www.sale.example"}, {Host: "a.b.sale.example", Path: "/x"}}
		d.Rooms[0].CookieDomain = "sale.example"
	})
	st.up.grant(sale, 0, 0) // the handshake may have preceded the rooms; without a grant the edge does not renew
	st.covered(0, sale)
	for i, tls := range []bool{false, true} {
		v := st.door.visitor()
		name, scheme, proto := ticket.SharedCookieName("sale", tls), "http://", "http"
		if tls {
			proto = "https" // as a proxy says it
		}
		own := st.keys.seal("sale", session(7))
		if tls {
			own = st.keys.sealTLS("sale", session(7))
		}
		v.Jar = nil
		ask := func(host, cookie string) answer {
			return v.get(scheme+host, "X-Forwarded-For", "203.0.113.9", "X-Forwarded-Proto", proto, "Cookie", cookie)
		}
		old := session(uint64(9 + i))
		old.Until -= 200 // due to be renewed
		before := st.keys.seal("sale", old)
		if tls {
			before = st.keys.sealTLS("sale", old)
		}
		a := ask("www.sale.example/", before)
		c := cookieOf(a, name)
		if a.body != "the site" || c == nil || c.Domain != "sale.example" || c.Secure != tls || !c.HttpOnly || c.Path != "/" {
			t.Fatalf("who was inside before the setting: %d %.60q %v", a.StatusCode, a.body, a.Header["Set-Cookie"])
		}
		for _, host := range []string{"sale.example/", "www.sale.example/", "a.b.sale.example/x"} {
			// With both present, the new one counts.
			if a := ask(host, name+"="+c.Value+"; "+own); a.body != "the site" || len(a.Cookies()) > 0 {
				t.Errorf("%s: %d %.60q %v", host, a.StatusCode, a.body, a.Header["Set-Cookie"])
			}
		}
		if a := ask("sale.example/", ticket.CookieName("sale", tls)+"="+c.Value); a.body == "the site" {
			t.Error("a ticket is good under another cookie's name")
		}
		a = v.ask(http.MethodPost, scheme+"sale.example"+gate.LeavePath, "", "X-Forwarded-For", "203.0.113.9",
			"X-Forwarded-Proto", proto, "Cookie", name+"="+c.Value)
		var gone []string
		for _, c := range a.Cookies() {
			if c.MaxAge < 0 && c.Value == "" {
				gone = append(gone, c.Name+" "+c.Domain)
			}
		}
		if want := []string{ticket.CookieName("sale", tls) + " ", name + " sale.example"}; !slices.Equal(gone, want) {
			t.Errorf("taken back: %q, want %q", gone, want)
		}
		if ask("sale.example/", name+"="+c.Value).body == "the site" {
			t.Error("who left is inside")
		}
	}
	for _, line := range st.origin.last().Header["Cookie"] {
		t.Errorf("the site got %q", line)
	}
}

// An informational answer must not take the ticket along.
func TestEarlyHintsLeaveTheTicket(t *testing.T) {
	st := open(t, nil)
	st.origin.serves(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</x.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusOK)
	})
	if a := st.door.visitor().get("http://sale.example/"); cookieOf(a, "vestibule-sale") == nil {
		t.Errorf("admitted without a ticket after 103: %v", a.Header)
	}
}

// A site that takes the connection may have seen the request: the newcomer keeps the session.
func TestAnOriginThatFailsCostsNoSlotTwice(t *testing.T) {
	st := open(t, nil)
	st.origin.serves(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	v := st.door.visitor()
	for range 3 {
		a := v.get("http://sale.example/")
		if a.StatusCode != http.StatusBadGateway || a.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("got %d, Cache-Control %q", a.StatusCode, a.Header.Get("Cache-Control"))
		}
	}
	st.hasAdmitted(1)
}

// A site that refuses connections costs a newcomer no session, and the room is down before the next request.
func TestAnOriginThatRefusesCostsNoSession(t *testing.T) {
	st := open(t, nil)
	st.origin.Close()
	v := st.door.visitor()
	a := v.get("http://sale.example/")
	if a.StatusCode != http.StatusBadGateway || a.Header.Get("Cache-Control") != "no-store" || a.Header.Get("Refresh") != "5" {
		t.Errorf("got %d %v", a.StatusCode, a.Header)
	}
	if c := cookieOf(a, ticket.CookieName("sale", false)); c != nil {
		t.Errorf("a session that was not used: %v", c)
	}
	eventually(t, "the site is down", func() bool {
		for _, o := range st.server.gate.Origins() {
			if o.Down() {
				return true
			}
		}
		return false
	})
	for range 2 {
		if a := v.get("http://sale.example/"); a.Header.Get("Vestibule-Decision") != "wait" {
			t.Errorf("got %d %v", a.StatusCode, a.Header)
		}
	}
	st.hasAdmitted(1)
}

func TestBodiesStream(t *testing.T) {
	st := open(t, nil)
	v := st.door.visitor()

	// Up: the origin has the first bytes before the visitor sends the others.
	read := make(chan string)
	st.origin.serves(func(_ http.ResponseWriter, r *http.Request) {
		buf := make([]byte, 5)
		for {
			n, err := io.ReadFull(r.Body, buf)
			if err != nil {
				return
			}
			read <- string(buf[:n])
		}
	})
	body, send := io.Pipe()
	r := testkit.Must(http.NewRequest(http.MethodPost, "http://sale.example/", body))(t)
	go func() {
		for _, want := range []string{"first", "other"} {
			io.WriteString(send, want) //nolint:errcheck // the read shows an error
			if got := <-read; got != want {
				t.Errorf("the origin read %q, want %q", got, want)
			}
		}
		send.Close()
	}()
	v.do(r)

	// Down: the visitor has the first bytes before the origin sends the others.
	first := make(chan struct{})
	st.origin.serves(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "first") //nolint:errcheck // the client checks the answer
		http.NewResponseController(w).Flush()
		<-first
		io.WriteString(w, " second") //nolint:errcheck // as above
	})
	r = testkit.Must(http.NewRequest(http.MethodGet, "http://sale.example/", nil))(t)
	res := testkit.Must(v.Do(r))(t)
	defer res.Body.Close()
	buf := make([]byte, 5)
	if _, err := io.ReadFull(res.Body, buf); err != nil || string(buf) != "first" {
		t.Fatalf("before the origin was done: %q, %v", buf, err)
	}
	close(first)
	if rest, err := io.ReadAll(res.Body); err != nil || string(rest) != " second" {
		t.Fatalf("then %q, %v", rest, err)
	}
}

func TestAQueuedVisitorSeesThePage(t *testing.T) {
	st := open(t, nil)
	st.up.queue(sale, 1234, 2)
	st.up.queue(vip, 5, 0)
	v := st.door.visitor()
	a := v.get("http://sale.example/tickets?secret=<script>", "Referer", "http://evil.example/<b>")
	if a.StatusCode != http.StatusOK {
		t.Errorf("status %d, want the room's", a.StatusCode)
	}
	for name, want := range map[string]string{
		"Content-Type": "text/html; charset=utf-8", "Cache-Control": "private, no-store, no-transform", "X-Content-Type-Options": "nosniff",
	} {
		if got := a.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	retry, err := strconv.Atoi(a.Header.Get("Retry-After"))
	if err != nil || retry < 2 || retry > 3 ||
		!strings.Contains(a.body,
			`<meta http-equiv="refresh" content="`+a.Header.Get("Retry-After")+`;url=./tickets?secret=`) {
		t.Errorf("Retry-After %q: want 2 s give or take a quarter, so that the visitor is counted soon, and the page "+
			"to know it", a.Header.Get("Retry-After"))
	}
	if csp := a.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") ||
		strings.Contains(csp, "unsafe") {
		t.Errorf("policy %q lets any script run", csp)
	}
	for _, want := range []string{
		`<dt>People ahead of you<dd id=ahead>1,234</div>`, `<dd id=wait>10 minutes</div>`,
		`<dd id=total>1,235</div>`,
	} {
		if !strings.Contains(a.body, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	for _, echoed := range []string{"<script>", "secret=<", "evil"} { // but for the address of the page itself
		if strings.Contains(a.body, echoed) {
			t.Errorf("the page echoes %q of the request", echoed)
		}
	}
	c := cookieOf(a, "vestibule-sale")
	if c == nil || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.MaxAge != 24*60*60 {
		t.Errorf("cookie %+v", c)
	}

	place := cookieOf(a, "vestibule-sale").Value
	head := v.ask(http.MethodHead, "http://sale.example/", "")
	if head.StatusCode != http.StatusOK || head.body != "" || head.ContentLength < 1000 ||
		head.Header.Get("Retry-After") == "" {
		t.Errorf("HEAD: %d, %d bytes announced, %q", head.StatusCode, head.ContentLength, head.body)
	}
	post := v.ask(http.MethodPost, "http://sale.example/buy", "seats=2", "Content-Type",
		"application/x-www-form-urlencoded")
	if post.StatusCode != http.StatusTooManyRequests || strings.Contains(post.body, "<") {
		t.Errorf("POST while waiting: %d", post.StatusCode)
	}
	if now := cookieOf(post, "vestibule-sale"); now != nil {
		was, is := st.keys.opened("sale", place), st.keys.opened("sale", now.Value)
		if was.ID != is.ID || was.Joined != is.Joined {
			t.Errorf("the place changed from %+v to %+v", was, is)
		}
	}
	if a := st.door.visitor().get("http://shop.example/vip/x"); a.StatusCode != http.StatusTooManyRequests ||
		!strings.Contains(a.body, "Not known yet") {
		t.Errorf("vip: %d", a.StatusCode)
	}
	st.origin.untouched()
}

// opened opens a ticket, which must be one.
func (k *keys) opened(name, value string) (out ticket.Ticket) {
	k.Helper()
	codec := testkit.Must(ticket.NewCodec(k.ring, room.IDOf(name), ticket.CookieName(name, false)))(k)
	testkit.NoError(k, codec.Open(&out, value, ticket.NewScratch([32]byte{})))
	return out
}

// A waiting visitor is admitted once a session permit is free, with the same ticket. A lost answer costs no second
// session permit.
func TestAWaitingVisitorEnters(t *testing.T) {
	st := open(t, nil)
	st.up.queue(sale, 10, 1)
	v := st.door.visitor()
	a := v.get("http://sale.example/")
	if st.origin.requests() != 0 {
		t.Fatal("let in from behind the line")
	}
	waiting := cookieOf(a, "vestibule-sale")
	st.up.view(sale, 0, 1, fleettime.TimeOf(time.Now().Add(time.Hour)), 0)
	a = v.get("http://sale.example/")
	admitted := cookieOf(a, "vestibule-sale")
	if a.body != "the site" || admitted == nil {
		t.Fatalf("not let in: %q", a.body)
	}
	if was, is := st.keys.opened("sale", waiting.Value), st.keys.opened("sale", admitted.Value); was.ID != is.ID ||
		was.Joined != is.Joined || !is.IsAdmitted() {
		t.Errorf("waited with %+v, entered with %+v", was, is)
	}
	again := st.door.visitor()
	for range 3 {
		if a := again.get("http://sale.example/", "Cookie", "vestibule-sale="+waiting.Value); a.body != "the site" {
			t.Errorf("the old ticket of who is in: %q", a.body)
		}
		again.Jar = nil
	}
	st.hasAdmitted(1)
}

// A held visitor is admitted by the grant of a permit.
func TestAHeldVisitorIsLetInByAGrant(t *testing.T) {
	st := open(t, func(st *stage) { st.params.Hold, st.params.Knock = time.Hour, time.Hour })
	st.up.queue(vip, 0, 1)
	done := make(chan answer, 1)
	v := st.door.visitor()
	v.Timeout = 0
	st.fill(sale, 1000)
	go func() { done <- v.get("http://sale.example/", "Accept", "application/json") }()
	eventually(t, "the visitor is held", func() bool { return st.server.Status().Rooms["sale"].Held == 1 })
	if st.origin.requests() != 0 {
		t.Fatal("let in without a permit")
	}
	st.up.grant(sale, 1, 1)
	if a := <-done; a.body != "the site" || cookieOf(a, "vestibule-sale") == nil {
		t.Errorf("held and then shown %q", a.body)
	}
	if n := st.server.Status().Rooms["sale"].Credit(); n != 0 {
		t.Errorf("%d permits left, want 0", n)
	}
}

// A browser shows nothing while it loads a page: the next visitor in line sees the page within a second, and only the
// page's questions are held.
func TestAPageLoadIsNotHeldForLong(t *testing.T) {
	t.Parallel()
	st := open(t, func(st *stage) { st.params.Hold, st.params.Knock = time.Hour, time.Hour })
	st.fill(sale, 1000)
	v := st.door.visitor()
	begun := time.Now()
	a := v.get("http://sale.example/") // times out in a stage that holds it
	if retry, err := strconv.Atoi(a.Header.Get("Retry-After")); err != nil || retry < 2 || retry > 4 ||
		!strings.Contains(a.body, "You are next") {
		t.Errorf("after %v: Retry-After %q, %.80q", time.Since(begun), a.Header.Get("Retry-After"), a.body)
	}
	if a := v.get("http://sale.example/"); !strings.Contains(a.body, "You are next") { // with a ticket
		t.Errorf("the second time: %.80q", a.body)
	}
	if n := st.server.Status().Rooms["sale"].Held; n != 0 {
		t.Errorf("%d held", n)
	}
}

// One neighbourhood cannot take all places of held requests; the visitors beyond its share poll, spread over time.
func TestHeldRequestsAreCapped(t *testing.T) {
	st := open(t, func(st *stage) { st.params.Hold, st.params.Knock, st.cfg.Held.Prefix = time.Hour, time.Hour, 1 })
	st.fill(sale, 1000)
	done := make(chan answer, 1)
	first := st.door.visitor()
	first.Timeout = 0
	go func() { done <- first.get("http://sale.example/", "Accept", "application/json") }()
	eventually(t, "one is held", func() bool { return st.server.Status().Rooms["sale"].Held == 1 })
	a := st.door.visitor().get("http://sale.example/")
	if retry, err := strconv.Atoi(a.Header.Get("Retry-After")); err != nil || retry < 2 || retry > 4 ||
		!strings.Contains(a.body, "You are next") {
		t.Errorf("over the cap: Retry-After %q, %d", a.Header.Get("Retry-After"), a.StatusCode)
	}
	st.up.grant(sale, 1, 1)
	<-done
	// The place of the held request is free again.
	go func() { done <- st.door.visitor().get("http://sale.example/", "Accept", "application/json") }()
	eventually(t, "another one is held", func() bool { return st.server.Status().Rooms["sale"].Held == 1 })
	st.up.grant(sale, 1, 1)
	<-done
}

// TestACappedVisitorSeesSteadyNumbers: an answer in place of a hold bounds later ones, as any other does.
func TestACappedVisitorSeesSteadyNumbers(t *testing.T) {
	st := open(t, func(st *stage) { st.params.Hold, st.params.Knock, st.cfg.Held.Prefix = time.Hour, time.Hour, 0 })
	st.fill(sale, 1000)
	me := st.keys.seal("sale", inLine(7))
	ahead := func(line int) (ahead int) {
		t.Helper()
		st.up.view(sale, float64(line), 2, 1, 1<<60)
		eventually(t, fmt.Sprintf("a line of %d is shown", line), func() bool {
			a := st.door.visitor().get(saleURL, "Cookie", me, "Accept", "application/json", gate.PollHeader, "1")
			me, _, _ = strings.Cut(a.Header.Get("Set-Cookie"), ";")
			var j struct {
				Vestibule struct{ PeopleAhead, PeopleWaiting int }
			}
			if err := json.Unmarshal([]byte(a.body), &j); err != nil {
				t.Fatalf("%v: %s", err, a.body)
			}
			ahead = j.Vestibule.PeopleAhead
			n := j.Vestibule.PeopleWaiting
			return n >= line && n <= line+1
		})
		return ahead
	}
	ahead(30)
	if few, many := ahead(9), ahead(20); few < 1 || few > 9 || many > few {
		t.Errorf("%d people ahead, then %d", few, many)
	}
}

// A cookie that is broken in any way is no ticket: never an error and never a
// pass.
func TestBrokenCookiesAreNoTickets(t *testing.T) {
	st := open(t, nil)
	st.up.queue(sale, 10, 1)
	good := st.keys.value("sale", session(7))
	flip := []byte(good)
	flip[40] ^= 1
	other := testkit.Must(ticket.NewCodec(st.keys.ring, sale, "vestibule-vip"))(t)
	swapped := session(7)
	expired := session(8)
	expired.Until = uint32(time.Now().Unix()) - 1
	foreign := *st
	foreign.keys.ring = keyring(t)
	for name, value := range map[string]string{
		"empty": "", "text": "admin", "cut": good[:len(good)-1], "longer": good + "A", "one bit": string(flip),
		"spaced":            good[:20] + " " + good[20:],
		"of another room":   st.keys.value("vip", session(7)),
		"of another cookie": string(other.Seal(nil, fleettime.TimeOf(time.Now()), &swapped, ticket.NewScratch([32]byte{2}))),
		"of other keys":     foreign.keys.value("sale", session(7)),
		"expired":           st.keys.value("sale", expired),
		"bytes":             "\x80\xff" + good[2:],
		"very long":         strings.Repeat("A", 8000),
	} {
		a := st.door.visitor().get("http://sale.example/", "Cookie", "vestibule-sale="+value)
		if a.StatusCode != http.StatusOK || !strings.Contains(a.body, "You are in line") {
			t.Errorf("%s: %d %.40q", name, a.StatusCode, a.body)
		}
	}
	st.origin.untouched()
}

// Of several cookies the best valid one wins, and at most four are read.
func TestTheBestTicketWins(t *testing.T) {
	st := open(t, nil)
	st.up.queue(sale, 10, 1)
	in := st.keys.seal("sale", session(7))
	place := session(8)
	place.Admitted, place.Until = 0, 0
	waiting := st.keys.seal("sale", place)
	old := session(9)
	old.Epoch = 3 // of an epoch that is not the room's
	void := st.keys.seal("sale", old)
	const junk = "vestibule-sale=junk"
	for _, tc := range []struct {
		name   string
		cookie []string
		enters bool
	}{
		{"a session after a place", []string{waiting + "; " + in}, true},
		{"a session before a place", []string{in + "; " + waiting}, true},
		{"in two headers", []string{waiting, in}, true},
		{"behind as many as a header holds", []string{strings.Repeat(junk+"; ", 500) + in}, true},
		{"behind others in headers of their own", []string{junk, junk, junk, junk, in}, true},
		{"quoted", []string{strings.Replace(in, "=", `="`, 1) + `"`}, true},
		{"the name in other letters", []string{strings.Replace(in, "vestibule", "Vestibule", 1)}, false},
		{"the name of TLS", []string{"__Host-" + in}, false},
		{"one that is void", []string{void}, false},
	} {
		r := testkit.Must(http.NewRequest(http.MethodGet, "http://sale.example/", nil))(t)
		r.Header["Cookie"] = tc.cookie
		v := st.door.visitor()
		v.Jar = nil
		if a := v.do(r); (a.body == "the site") != tc.enters {
			t.Errorf("%s: enters %v, want %v", tc.name, !tc.enters, tc.enters)
		}
	}
	// A void session does not hide the place that is good.
	v := st.door.visitor()
	v.Jar = nil
	a := v.get("http://sale.example/", "Cookie", void+"; "+waiting)
	if c := cookieOf(a, "vestibule-sale"); c != nil && st.keys.opened("sale", c.Value).ID != 8 {
		t.Error("a void ticket took the place away")
	}
}

func TestPassThrough(t *testing.T) {
	st := open(t, nil)
	st.up.queue(vip, 10, 1)
	if a := st.door.visitor().get("http://shop.example/about"); a.body != "the site" || len(a.Cookies()) > 0 ||
		a.Header.Get("Cache-Control") != "" {
		t.Errorf("outside the room: %d %v", a.StatusCode, a.Header)
	}
	st.door.visitor().get("http://shop.example/vip").has(t, http.StatusTooManyRequests, "inside")
}

// TestACopyOfATicketIsANewcomer: the regional has decided which of two copies of a session's ticket continues.
func TestACopyOfATicketIsANewcomer(t *testing.T) {
	st := open(t, nil)
	st.up.mu.Lock()
	st.up.held[sale].Lines = []wire.Line{{ID: 7, Stamp: 1}}
	st.up.say()
	st.up.mu.Unlock()
	v := st.door.visitor()
	v.Jar = nil
	eventually(t, "sessions are renewed", func() bool {
		old := session(8)
		old.Until -= 60
		return cookieOf(v.get("http://sale.example/", "Cookie", st.keys.seal("sale", old)),
			ticket.CookieName("sale", false)) != nil
	})
	for stamp, continues := range map[uint32]bool{1: true, 2: false} {
		k := session(7)
		k.Until -= 60 // due to be renewed
		k.Stamp = stamp
		c := cookieOf(v.get("http://sale.example/", "Cookie", st.keys.seal("sale", k)), ticket.CookieName("sale", false))
		if c == nil || (st.keys.opened("sale", c.Value).ID == 7) != continues {
			t.Errorf("stamp %d: %v", stamp, c)
		}
	}
	st.counts(1, "vestibule_edge_copied_tickets_total", "room", "sale")
}
