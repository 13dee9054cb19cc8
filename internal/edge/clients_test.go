package edge

import (
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/edge/gate"
	"vestibule/internal/lab/testkit"
)

// Browsers, payment services and programs as they are. Each test names what a visitor or an operator suffers otherwise.

// Header lines of browsers.
var (
	navigation = []string{"Accept", "text/html,*/*;q=0.8", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}
	bankForm   = append(slices.Clone(navigation), "Origin", "https://bank.example", "Sec-Fetch-Site", "cross-site",
		"Content-Type", "application/x-www-form-urlencoded")
	oldBrowser = []string{
		"Accept", "text/html,*/*;q=0.8", "Origin", "https://bank.example", "Content-Type",
		"application/x-www-form-urlencoded",
	}
)

// behindTLS opens a stage whose visitors come by a proxy that says whether they used TLS.
func behindTLS(t testing.TB, change func(*room.Settings)) *stage {
	t.Helper()
	st := openRooms(t, func(st *stage) { st.cfg.Proxies = []string{"127.0.0.1"} }, func(d *room.Document) {
		if change != nil {
			change(&d.Rooms[0])
		}
	})
	st.up.grant(sale, 1, 1)
	st.covered(0, sale)
	return st
}

// by returns a header of a visitor over a scheme.
func by(scheme string, header ...string) []string {
	return append([]string{"X-Forwarded-For", "203.0.113.9", "X-Forwarded-Proto", scheme}, header...)
}

// jar are the cookies of a browser by name.
type jar map[string]*http.Cookie

func (j jar) take(a answer) {
	for _, c := range a.Cookies() {
		if c.MaxAge < 0 {
			delete(j, c.Name)
		} else {
			j[c.Name] = c
		}
	}
}

// header returns the Cookie header of a request, over TLS if secure, and from another site if cross.
func (j jar) header(secure, cross bool) []string {
	var pairs []string
	for name, c := range j {
		if (c.Secure && !secure) || (cross && c.SameSite != http.SameSiteNoneMode) {
			continue
		}
		pairs = append(pairs, name+"="+c.Value)
	}
	if len(pairs) == 0 {
		return nil
	}
	slices.Sort(pairs)
	return []string{"Cookie", strings.Join(pairs, "; ")}
}

// bare returns a visitor without a cookie jar.
func (d *door) bare() *visitor {
	v := d.visitor()
	v.Jar = nil
	return v
}

// TestAReturnFromABank: a form of another site reaches the site over TLS, in the visitor's session. Without TLS
// browsers withhold the cookies: a visitor that would have to wait is told so, and keeps the tickets that it has.
func TestAReturnFromABank(t *testing.T) {
	for _, tc := range []struct {
		same, scheme string
		arrives      bool
	}{
		{"", "https", true},
		{room.CookieNone, "https", true},
		{room.CookieLax, "https", false},
		{room.CookieStrict, "https", false},
		{"", "http", false},
	} {
		t.Run(tc.same+tc.scheme, func(t *testing.T) {
			st := behindTLS(t, func(r *room.Settings) { r.CookieSameSite = tc.same })
			secure, cookies := tc.scheme == "https", jar{}
			a := st.door.bare().get(saleURL, by(tc.scheme, navigation...)...)
			cookies.take(a)
			if a.body != "the site" || len(cookies) != 1 {
				t.Fatalf("not let in: %d %v", a.StatusCode, a.Header)
			}
			for _, form := range [][]string{bankForm, oldBrowser} {
				seen := st.origin.requests()
				a = st.door.bare().ask(http.MethodPost, saleURL, "paid=1",
					by(tc.scheme, append(cookies.header(secure, true), form...)...)...)
				if arrived := st.origin.requests() > seen; arrived != tc.arrives || arrived != (a.body == "the site") {
					t.Errorf("arrived %v: %d %.60q", arrived, a.StatusCode, a.body)
				}
				if !tc.arrives && (a.StatusCode != http.StatusTooManyRequests || len(a.Cookies()) > 0 ||
					!strings.Contains(a.body, "<title>One moment") || a.Header.Get("Retry-After") == "") {
					t.Errorf("%d %v %.200q", a.StatusCode, a.Cookies(), a.body)
				}
				cookies.take(a)
			}
			if a = st.door.bare().get(saleURL,
				by(tc.scheme, append(cookies.header(secure, false), navigation...)...)...); a.body != "the site" {
				t.Errorf("the visitor was put out: %d %.60q", a.StatusCode, a.body)
			}
			st.hasAdmitted(1)
		})
	}
}

// TestAFormOfAnotherSiteEntersARoomWithSpace: as any first request.
func TestAFormOfAnotherSiteEntersARoomWithSpace(t *testing.T) {
	st := open(t, nil)
	if a := st.door.bare().ask(http.MethodPost, saleURL, "a=b", oldBrowser...); a.body != "the site" ||
		cookieOf(a, "vestibule-sale") == nil {
		t.Errorf("%d %v %.60q", a.StatusCode, a.Header, a.body)
	}
}

// TestAPlaceNeverReplacesASession: of two tabs without tickets one is let in, and its session outlives the answer to
// the other, whichever comes last.
func TestAPlaceNeverReplacesASession(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		for _, domain := range []string{"", "sale.example"} {
			t.Run(scheme+domain, func(t *testing.T) {
				st := behindTLS(t, func(r *room.Settings) { r.CookieDomain = domain })
				first, second := st.door.bare().get(saleURL, by(scheme)...), st.door.bare().get(saleURL, by(scheme)...)
				if first.body != "the site" || second.body == "the site" {
					t.Fatalf("%.20q and %.20q", first.body, second.body)
				}
				for _, order := range [][]answer{{first, second}, {second, first}} {
					cookies := jar{}
					for _, a := range order {
						cookies.take(a)
					}
					a := st.door.bare().get(saleURL, by(scheme, cookies.header(scheme == "https", false)...)...)
					if a.body != "the site" {
						t.Fatalf("who was let in waits: %.60q", a.body)
					}
					// The place has no purpose any more.
					if cookies.take(a); len(cookies) != 1 || st.admittedNow() != 1 {
						t.Errorf("left are %d cookies, %d admissions", len(cookies), st.admittedNow())
					}
				}
				// A waiting answer leaves the session's cookie alone, also a session that does not serve any more.
				cookies := jar{}
				cookies.take(first)
				over := cookies.header(scheme == "https", false)
				if a := st.door.bare().ask(http.MethodPost, leaveURL, "",
					by(scheme, over...)...); a.StatusCode != http.StatusNoContent {
					t.Fatalf("leaving: %d", a.StatusCode)
				}
				st.up.queue(sale, 10, 1)
				joined := map[fleettime.Time]bool{}
				for range 3 {
					a := st.door.bare().get(saleURL, by(scheme, cookies.header(scheme == "https", false)...)...)
					for _, c := range a.Cookies() {
						if !strings.Contains(c.Name, ".place") {
							t.Errorf("a waiting answer sets %s", c.Name)
						}
						joined[st.keys.openedBy(c).Joined] = true
					}
					cookies.take(a)
				}
				if len(joined) != 1 {
					t.Errorf("one visitor with a session that has ended takes %d places", len(joined))
				}
			})
		}
	}
}

// openedBy opens the ticket of a cookie of the room sale.
func (k *keys) openedBy(c *http.Cookie) (out ticket.Ticket) {
	k.Helper()
	codec := testkit.Must(ticket.NewCodec(k.ring, sale, strings.TrimSuffix(c.Name, ".place")))(k)
	testkit.NoError(k, codec.Open(&out, c.Value, ticket.NewScratch([32]byte{})))
	return out
}

// TestPlacesOfAnEarlierRelease: a place under the session's name counts, and moves to its own; an expired or lapsed one
// hides no place that stands.
func TestPlacesOfAnEarlierRelease(t *testing.T) {
	st := open(t, nil)
	st.up.queue(sale, 10, 1)
	place, stale, over := inLine(7), inLine(8), session(9)
	stale.Joined, stale.Seen = stale.Joined-3_600_000, stale.Seen-3600
	over.Until -= 3600
	underSession := func(t ticket.Ticket) string { return st.keys.seal("sale", t) }
	underPlace := func(t ticket.Ticket) string {
		return strings.Replace(st.keys.seal("sale", t), "vestibule-sale=", "vestibule-sale.place=", 1)
	}
	for what, cookie := range map[string]string{
		"of the earlier release":            underSession(place),
		"of this release":                   underPlace(place),
		"both":                              underSession(place) + "; " + underPlace(place),
		"beside one that lapsed":            underSession(place) + "; " + underPlace(stale),
		"beside one that lapsed, exchanged": underSession(stale) + "; " + underPlace(place),
		"beside a session that is over":     underSession(over) + "; " + underPlace(place),
		"with a session that is over":       underSession(over) + "; " + underSession(place),
	} {
		a := st.door.bare().get(saleURL, "Cookie", cookie)
		if c := a.Cookies(); len(c) != 1 || c[0].Name != "vestibule-sale.place" ||
			st.keys.opened("sale", c[0].Value).ID != 7 {
			t.Errorf("%s: %v", what, c)
		}
	}
	if a := st.door.bare().get(saleURL, "Cookie", underPlace(session(5))+"; "+underSession(place)); a.body != "the site" {
		t.Errorf("a session under the other name: %.60q", a.body)
	}
}

// TestLeavingTakesBothCookies.
func TestLeavingTakesBothCookies(t *testing.T) {
	st := open(t, nil)
	cookies := st.keys.seal("sale", session(7)) + "; " +
		strings.Replace(st.keys.seal("sale", inLine(8)), "sale=", "sale.place=", 1)
	a := st.door.bare().ask(http.MethodPost, leaveURL, "", "Cookie", cookies)
	var gone []string
	for _, c := range a.Cookies() {
		if c.MaxAge < 0 {
			gone = append(gone, c.Name)
		}
	}
	if want := []string{"vestibule-sale", "vestibule-sale.place"}; !slices.Equal(gone, want) {
		t.Errorf("taken back: %q, want %q", gone, want)
	}
	st.up.queue(sale, 10, 1)
	if a := st.door.bare().get(saleURL, "Cookie", cookies); a.body == "the site" ||
		st.keys.opened("sale", cookieOf(a, "vestibule-sale").Value).ID == 8 {
		t.Error("session or place go on after leaving")
	}
}

// TestFromHTTPToHTTPS: a visitor that was let in over http is inside over https at once, keeps one ticket under both
// names, and can go back.
func TestFromHTTPToHTTPS(t *testing.T) {
	st := behindTLS(t, nil)
	cookies := jar{}
	ask := func(scheme string) answer {
		t.Helper()
		a := st.door.bare().get(saleURL, by(scheme, cookies.header(scheme == "https", false)...)...)
		cookies.take(a)
		return a
	}
	ask("http")
	for _, scheme := range []string{"https", "http", "https", "https"} {
		if a := ask(scheme); a.body != "the site" {
			t.Fatalf("%s: %.60q", scheme, a.body)
		}
	}
	plain, secure := cookies["vestibule-sale"], cookies["__Host-vestibule-sale"]
	if len(cookies) != 2 || st.keys.openedBy(plain) != st.keys.openedBy(secure) ||
		secure.SameSite != http.SameSiteNoneMode || st.admittedNow() != 1 {
		t.Errorf("%v, %d admissions", cookies, st.admittedNow())
	}
	// A renewal over https renews both.
	old := session(9)
	old.Until, old.Seen, old.Admitted, old.Stamp = old.Until-200, old.Seen-200, old.Admitted-200, 5
	st.up.grant(sale, 1, 1)
	cookies = jar{"vestibule-sale": {Name: "vestibule-sale", Value: st.keys.value("sale", old)}}
	ask("https")
	if plain, secure = cookies["vestibule-sale"], cookies["__Host-vestibule-sale"]; secure == nil ||
		st.keys.openedBy(plain) != st.keys.openedBy(secure) || st.keys.openedBy(secure).Until <= old.Until {
		t.Errorf("renewed: %v", cookies)
	}
	// A cookie that TLS protects is not replaced by a foreign one.
	foreign := session(5)
	foreign.Until += 60
	st.up.queue(sale, 10, 1)
	a := st.door.bare().get(saleURL,
		by("https", "Cookie", st.keys.seal("sale", foreign)+"; "+st.keys.sealTLS("sale", old))...)
	for _, c := range a.Cookies() {
		if st.keys.openedBy(c).ID != old.ID {
			t.Errorf("%s holds the foreign ticket", c.Name)
		}
	}
	// The place goes along too.
	cookies = jar{}
	ask("http")
	ask("https")
	if plain, secure = cookies["vestibule-sale.place"], cookies["__Host-vestibule-sale.place"]; secure == nil ||
		st.keys.openedBy(plain).ID != st.keys.openedBy(secure).ID {
		t.Errorf("places: %v", cookies)
	}
}

// TestMachinesGetNoSuccess: a client that could take the waiting answer for the site's gets no success
// and a time to retry; pages, polls and programs that know of the room get the room's status.
func TestMachinesGetNoSuccess(t *testing.T) {
	t.Parallel()
	mode := func(mode, dest string) []string { return []string{"Sec-Fetch-Mode", mode, "Sec-Fetch-Dest", dest} }
	with := func(header []string, more ...string) []string { return append(slices.Clone(header), more...) }
	for _, tc := range []struct {
		name, method string
		header       []string
		kind         string // "" for a page
		form         string // of the answer
	}{
		{"a browser", "GET", navigation, "page", "text/html"},
		{"a browser over http", "GET", []string{"Accept", "text/html,application/xhtml+xml,*/*;q=0.8"}, "page", "text/html"},
		{"a frame", "GET", with(mode("navigate", "iframe"), "Accept", "text/html"), "page", "text/html"},
		{"a check without Accept", "GET", nil, "page", "text/html"},
		{"a check of everything", "HEAD", []string{"Accept", "*/*"}, "page", "text/html"},
		{"a download", "GET", with(mode("navigate", "empty"), "Accept", "text/html,*/*;q=0.8"), "download", "text/html"},
		{"a download that takes all", "GET", with(mode("navigate", "empty"), "Accept", "*/*"), "download", "text/plain"},
		{"a download without Accept", "GET", mode("navigate", "empty"), "download", "text/plain"},
		{
			"a download over http", "GET", []string{"Accept-Language", "en-US", "Referer", saleURL}, "download", "text/plain",
		},
		{"a download from a page that is not told", "GET", []string{"Accept-Language", "en-US"}, "download", "text/plain"},
		{"ticket.pdf", "GET", []string{"Accept", "*/*"}, "download", "text/plain"},
		{"order.php", "GET", []string{"Accept", "*/*"}, "page", "text/html"},
		{"v1.2", "GET", []string{"Accept", "*/*"}, "page", "text/html"},
		{"a poll", "GET", []string{"Vestibule-Poll", "now", "Accept", "application/json"}, "poll", "application/json"},
		{"a poll without Accept", "GET", []string{"Vestibule-Poll", "now"}, "poll", "application/json"},
		{"an app", "POST", []string{"Vestibule-Ticket", "new", "Accept", "application/json"}, "ticket", "application/json"},
		{"a program for JSON", "GET", []string{"Accept", "application/json"}, "other", "application/json"},
		{
			"a form", "POST", with(navigation, "Origin", "http://sale.example", "Sec-Fetch-Site", "same-origin"), "form",
			"text/html",
		},
		{"a form over http", "POST", []string{"Accept", "text/html"}, "form", "text/html"},
		{"a webhook", "POST", []string{"Content-Type", "application/json", "Accept", "*/*"}, "unsafe", "text/plain"},
		{
			"GraphQL", "POST",
			[]string{"Content-Type", "application/json", "Accept", "application/json"},
			"unsafe",
			"application/json",
		},
		{"PUT", "PUT", nil, "unsafe", "text/plain"},
		{"DELETE", "DELETE", nil, "unsafe", "text/plain"},
		{"OPTIONS that is no preflight", "OPTIONS", nil, "unsafe", "text/plain"},
		{"a part of a file", "GET", []string{"Range", "bytes=100-"}, "range", "text/plain"},
		{"a download that goes on", "GET", with(navigation, "Range", "bytes=100-"), "range", "text/html"},
		{"a feed reader", "GET", []string{"Accept", "application/rss+xml, application/xml;q=0.9"}, "other", "text/plain"},
		{"fetch", "GET", with(mode("cors", "empty"), "Accept", "*/*"), "script", "application/json"},
		{"a service worker", "GET", with(mode("same-origin", "empty"), "Accept", "*/*"), "script", "application/json"},
		{"a picture", "GET", with(mode("no-cors", "image"), "Accept", "image/avif"), "subresource", "text/plain"},
		{"robots.txt", "GET", []string{"Accept", "*/*"}, "subresource", "text/plain"},
		{"a prefetch", "GET", with(navigation, "Sec-Purpose", "prefetch"), "prefetch", "text/plain"},
		{"a prerender", "GET", with(navigation, "Sec-Purpose", "prefetch;prerender"), "prefetch", "text/plain"},
		{"a prefetch of old", "GET", with(navigation, "Purpose", "prefetch"), "prefetch", "text/plain"},
		{"a preview", "GET", with(navigation, "X-Purpose", "preview"), "prefetch", "text/plain"},
		{"a prefetch of Firefox", "GET", with(navigation, "X-Moz", "prefetch"), "prefetch", "text/plain"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			st := open(t, nil)
			st.up.queue(sale, 10, 1)
			url := saleURL
			if strings.Contains(tc.name, ".") {
				url = "http://sale.example/" + tc.name
			}
			header := append(slices.Clone(tc.header), "Cookie",
				strings.Replace(st.keys.seal("sale", inLine(7)), "sale=", "sale.place=", 1))
			if tc.kind == "ticket" {
				header = tc.header
			}
			a := st.door.bare().ask(tc.method, url, "", header...)
			want := http.StatusTooManyRequests
			switch tc.kind {
			case "page", "poll", "ticket":
				want = http.StatusOK
			}
			retry, err := strconv.Atoi(a.Header.Get("Retry-After"))
			if a.StatusCode != want || err != nil || retry < 1 || !slices.Equal(a.Header["Vary"], []string{"*"}) ||
				!strings.Contains(a.Header.Get("Cache-Control"), "no-store") {
				t.Errorf("%d %v", a.StatusCode, a.Header)
			}
			if got := a.Header.Get("Content-Type"); !strings.HasPrefix(got, tc.form) {
				t.Errorf("answered as %s", got)
			}
			if n := metric(t, st, "vestibule_edge_waiting_answers_total", "kind", tc.kind); n != 1 {
				t.Errorf("%g answers of kind %s are counted", n, tc.kind)
			}
			st.origin.untouched()
		})
	}
	// A room that answers with no success keeps its status, one for programs too.
	for _, tc := range []struct {
		status int
		json   bool
		header []string
		want   int
	}{
		{503, false, nil, 503},
		{202, false, nil, 429},
		{202, true, []string{"Accept", "application/json"}, 202},
		{202, true, []string{"Accept", "application/json, */*"}, 202},
	} {
		method := http.MethodGet
		if tc.header == nil {
			method = http.MethodPut
		}
		st := openWith(t, 0, func(r *room.Settings) { r.QueueingStatus, r.JSONResponse = tc.status, tc.json })
		st.door.bare().ask(method, saleURL, "", tc.header...).has(t, tc.want, "%+v", tc)
	}
}

// TestAPrefetchTakesNothing: it is neither admitted nor counted, and gives no ticket, unless a session asks; a picture
// on a page elsewhere does the same.
func TestAPrefetchTakesNothing(t *testing.T) {
	for _, header := range [][]string{{"Sec-Purpose", "prefetch"}, {"Sec-Fetch-Dest", "image"}} {
		st := openWith(t, 1, func(*room.Settings) {})
		place := strings.Replace(st.keys.seal("sale", inLine(7)), "sale=", "sale.place=", 1)
		for _, cookie := range []string{"", place, place, st.keys.seal("sale", inLine(8)), "vestibule-sale=junk"} {
			a := st.door.bare().get(saleURL, append(header, "Cookie", cookie)...)
			if a.StatusCode != http.StatusTooManyRequests || len(a.Cookies()) > 0 {
				t.Errorf("%q: %d %v", cookie, a.StatusCode, a.Cookies())
			}
		}
		if r := st.server.Status().Rooms["sale"]; r.Admitted != 0 || r.Waiting != 0 || r.Held != 0 ||
			st.origin.requests() != 0 {
			t.Errorf("%q: %+v", header, r)
		}
		st.door.bare().get(saleURL, "Cookie", place).enters(t, "the visitor's own turn")
		if a := st.door.bare().get(saleURL,
			append(header, "Cookie", st.keys.seal("sale", session(5)))...); a.body != "the site" {
			t.Errorf("a session's: %d %.60q", a.StatusCode, a.body)
		}
	}
}

// TestOnlyTheSitesOwnPagesMakeAVisitorLeave: by the browser's own comparison where it tells, since a CDN may change
// Host.
func TestOnlyTheSitesOwnPagesMakeAVisitorLeave(t *testing.T) {
	st := open(t, nil)
	for _, tc := range []struct {
		host, origin, site string
		may                bool
	}{
		{"sale.example", "http://sale.example", "", true},
		{"sale.example:80", "http://sale.example", "", true},
		{"sale.example:443", "https://SALE.example", "", true},
		{"sale.example", "https://sale.example:443", "", true},
		{"sale.example:443", "http://sale.example", "", false},
		{"sale.example", "https://www.shop.example", "same-origin", true},
		{"sale.example", "https://www.shop.example", "", false},
		{"sale.example", "https://evil.example", "cross-site", false},
		{"sale.example", "http://sale.example", "cross-site", false},
		{"sale.example", "http://a.sale.example", "same-site", false},
		{"sale.example", "null", "", false},
		{"sale.example", "", "none", true},
		{"sale.example", "", "", true},
	} {
		header := []string{"Cookie", st.keys.seal("sale", session(7))}
		for name, value := range map[string]string{"Origin": tc.origin, "Sec-Fetch-Site": tc.site} {
			if value != "" {
				header = append(header, name, value)
			}
		}
		if a := st.door.bare().ask(http.MethodPost, "http://"+tc.host+gate.LeavePath, "",
			header...); (a.StatusCode == http.StatusNoContent) != tc.may {
			t.Errorf("%+v: %d", tc, a.StatusCode)
		}
	}
}

// TestATicketInAHeaderIsNotCached: a script would read the ticket of an earlier time in a cached answer. Headers of
// vendors do not pass beside a visitor's answer.
func TestATicketInAHeaderIsNotCached(t *testing.T) {
	eachFront(t, func(t *testing.T, front string) {
		st := open(t, reads(front))
		vendors := []string{
			"X-LiteSpeed-Cache-Control", "Akamai-CDN-Cache-Control", "Some-New-Cache-Control",
			"Surrogate-Control", "CDN-Cache-Control", "Expires",
		}
		st.origin.serves(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Cache-Control", "public, max-age=600, immutable")
			for _, name := range vendors {
				w.Header().Set(name, "public, max-age=120")
			}
		})
		a := st.door.bare().get(saleURL, gate.TicketHeader, "new")
		if cache := strings.Join(a.Header["Cache-Control"], ", "); a.Header.Get(gate.TicketHeader) == "" ||
			!strings.Contains(cache, "no-store") {
			t.Errorf("%v", a.Header)
		}
		for _, name := range vendors {
			if a.Header.Get(name) != "" {
				t.Errorf("%s passed", name)
			}
		}
	})
}

// TestAnAddressThatCannotBeRead: requests of a trusted proxy that does not tell the visitor's address are counted, and
// warned about once.
func TestAnAddressThatCannotBeRead(t *testing.T) {
	eachFront(t, func(t *testing.T, front string) {
		var log testkit.Log
		st := open(t, func(st *stage) {
			reads(front)(st)
			st.cfg.Proxies, st.log = []string{"127.0.0.1"}, slog.New(slog.NewTextHandler(&log, nil))
		})
		for _, from := range []string{
			"unknown", "198.51.100.7", "198.51.100.7:1111", "unknown, [2001:db8::7]:443",
			"198.51.100.7, _gateway", "",
		} {
			st.door.bare().get(saleURL, "X-Forwarded-For", from).enters(t, "%q", from)
		}
		st.counts(3, "vestibule_edge_forwarded_unread_total")
		if n := strings.Count(log.String(), "X-Forwarded-For of a trusted proxy cannot be read"); n != 1 {
			t.Errorf("%d warnings", n)
		}
	})
}

// TestAFrontPassesOneCookie: a server in front that passes on one Set-Cookie line gets the session's first; the place
// goes with the next answer.
func TestAFrontPassesOneCookie(t *testing.T) {
	for _, form := range forms {
		st := openFront(t, form, nil)
		place := strings.Replace(st.keys.seal("sale", inLine(7)), "sale=", "sale.place=", 1)
		var a answer
		eventually(t, "the visitor is let in", func() bool {
			a = st.question(form, "GET", "sale.example", "/", "Cookie", place)
			return admitted(t, form, a)
		})
		lines := a.Header["Set-Cookie"]
		if want := map[bool]int{true: 2, false: 1}[form == formAccel || form == formGRPC]; len(lines) != want ||
			!strings.HasPrefix(lines[0], "vestibule-sale=") {
			t.Fatalf("%s: %q", form, lines)
		}
		session, _, _ := strings.Cut(lines[0], ";")
		a = st.question(form, "GET", "sale.example", "/", "Cookie", session+"; "+place)
		if lines = a.Header["Set-Cookie"]; !admitted(t, form, a) || len(lines) != 1 ||
			!strings.HasPrefix(lines[0], "vestibule-sale.place=; Path=/; Max-Age=0") {
			t.Errorf("%s: %q", form, lines)
		}
	}
}

// TestTheRedirectToTLS: before the line, by the connection or the trusted proxy, for known hosts alone, and never for a
// server in front.
func TestTheRedirectToTLS(t *testing.T) {
	st := open(t, func(st *stage) { st.cfg.TLS.Redirect, st.cfg.Proxies = true, []string{"127.0.0.1"} })
	for _, tc := range []struct {
		method, url, scheme string
		status              int
		location            string
	}{
		{"GET", "http://sale.example:8080/a%20b?c=d", "http", 308, "https://sale.example/a%20b?c=d"},
		{"POST", "http://shop.example/about", "http", 308, "https://shop.example/about"},
		{"GET", "http://sale.example/", "https", 200, ""},
		{"GET", "http://unknown.example/", "http", 421, ""},
		{"GET", "http://sale.example" + gate.LanguagePath + "?room=sale", "http", 200, ""},
	} {
		a := st.door.bare().ask(tc.method, tc.url, "", by(tc.scheme)...)
		if a.StatusCode != tc.status || a.Header.Get("Location") != tc.location || tc.status == 308 && len(a.Cookies()) > 0 {
			t.Errorf("%+v: %d %v", tc, a.StatusCode, a.Header)
		}
	}
	for _, form := range forms {
		st := openFront(t, form, func(st *stage) { st.cfg.TLS.Redirect = true })
		eventually(t, "the visitor is let in", func() bool {
			return admitted(t, form, st.question(form, "GET", "sale.example", "/"))
		})
	}
}

// TestAFormThatWasSentWhileWaiting: the page says that it has not arrived, and leads back to its page, if that is one
// of the site.
func TestAFormThatWasSentWhileWaiting(t *testing.T) {
	st := open(t, nil)
	st.up.queue(sale, 10, 1)
	const says, back = "The form that you sent has not arrived.", `<a href="/seats?a=1&amp;b=2">Back to the form</a>`
	for _, tc := range []struct {
		method, referer string
		says, back      bool
	}{
		{"POST", "http://sale.example/seats?a=1&b=2", true, true},
		{"POST", "http://bank.example/seats?a=1&b=2", true, false},
		{"POST", "", true, false},
		{"POST", "http://sale.example//evil.example", true, false},
		{"GET", "http://sale.example/seats?a=1&b=2", false, false},
	} {
		a := st.door.bare().ask(tc.method, saleURL, "", "Accept", "text/html", "Referer", tc.referer)
		if strings.Contains(a.body, says) != tc.says || strings.Contains(a.body, back) != tc.back ||
			strings.Contains(a.body, "Back to the form") != tc.back {
			t.Errorf("%+v: %d %.3000q", tc, a.StatusCode, a.body)
		}
	}
	if a := st.door.bare().ask(http.MethodPost, leaveURL+"?room=sale", "", "Accept", "text/html"); strings.Contains(a.body,
		says) {
		t.Error("leaving counts as a lost form")
	}
}
