package edge

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/compress"
	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/core/ticket"
	"vestibule/internal/edge/gate"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/page"
)

// jsonAnswer is the JSON for apps and waiting pages.
type jsonAnswer struct {
	Cloudflare map[string]any `json:"cfWaitingRoom"`
	Ours       map[string]any `json:"vestibule"`
}

func (a answer) json(t *testing.T) (out jsonAnswer) {
	t.Helper()
	if got := a.Header.Get("Content-Type"); got != "application/json" {
		t.Fatalf("%d %q: %.60q", a.StatusCode, got, a.body)
	}
	testkit.NoError(t, json.Unmarshal([]byte(a.body), &out))
	return out
}

const saleURL = "http://sale.example/"

// An app that asks for JSON gets the content of the page as JSON, with the same status and ticket, and the site's own
// answer when it enters.
func TestAppsGetJSON(t *testing.T) {
	st := open(t, func(st *stage) {})
	st.up.queue(vip, 1234, 2)
	app := st.door.visitor()
	const axios = "application/json, text/plain, */*"
	a := app.get("http://shop.example/vip", "Accept", axios)
	said := a.json(t)
	if a.StatusCode != http.StatusTooManyRequests || a.Header.Get("Retry-After") == "" || a.Header.Get("Refresh") != "" ||
		cookieOf(a, "vestibule-vip") == nil {
		t.Errorf("%d, %v", a.StatusCode, a.Header)
	}
	if len(said.Cloudflare) != 25 || said.Cloudflare["inWaitingRoom"] != true || said.Cloudflare["waitTime"] != 11.0 {
		t.Errorf("cfWaitingRoom: %v", said.Cloudflare)
	}
	if said.Ours["state"] != "queued" || said.Ours["peopleAhead"] != 1234.0 || said.Ours["room"] != "vip" {
		t.Errorf("vestibule: %v", said.Ours)
	}
	if again := app.get("http://shop.example/vip", "Accept",
		axios).json(t); again.Ours["joinedAt"] != said.Ours["joinedAt"] {
		t.Errorf("joined at %v, then at %v", said.Ours["joinedAt"], again.Ours["joinedAt"])
	}
	st.up.view(vip, 0, 2, 1<<60, 0)
	if a := app.get("http://shop.example/vip", "Accept", axios); a.body != "the site" ||
		st.origin.last().Header.Get("Accept") != axios {
		t.Errorf("admitted: %d %.60q", a.StatusCode, a.body)
	}
	app.get("http://shop.example/vip", "Accept", "text/html").enters(t, "inside")
}

// Browsers that accept gzip get the page with gzip, from either front; others do not.
func TestPagesWithGzip(t *testing.T) {
	eachFront(t, func(t *testing.T, front string) {
		st := open(t, reads(front))
		st.up.queue(sale, 1234, 2)
		for _, tc := range []struct {
			method, accept, encodings string
			want                      string
		}{
			{"GET", "text/html", "gzip, deflate, br, zstd", "gzip"},
			{"GET", "text/html", "deflate, br", ""},
			{"GET", "text/html", "gzip;q=0", ""},
			{"HEAD", "text/html", "gzip", "gzip"},
			{"POST", "text/html", "gzip", "gzip"},
			{"GET", "application/json", "gzip", ""},
			{"GET", "image/avif", "gzip", ""},
		} {
			a := st.door.visitor().ask(tc.method, saleURL, "", "Accept", tc.accept, "Accept-Encoding", tc.encodings)
			if got := a.Header.Get("Content-Encoding"); got != tc.want || a.Header.Get("Vary") != "*" || a.ContentLength <= 0 {
				t.Errorf("%+v: coding %q, Vary %q, length %d", tc, got, a.Header["Vary"], a.ContentLength)
			}
			if tc.method == "HEAD" || tc.want == "" {
				continue
			}
			r, err := gzip.NewReader(strings.NewReader(a.body))
			if err != nil {
				t.Fatalf("%+v: %v: %.60q", tc, err, a.body)
			}
			shown, err := io.ReadAll(r)
			if err != nil || !strings.Contains(string(shown), "1,234") || int64(len(a.body)) != a.ContentLength {
				t.Errorf("%+v: %v, %d bytes, %.60q", tc, err, len(a.body), shown)
			}
		}
		if fast, netHTTP, _ := byFront(t, st); (fast > 0) != (front == frontFast) || (netHTTP > 0) == (front == frontFast) {
			t.Errorf("%v were read by the fast front and %v by net/http", fast, netHTTP)
		}
	})
}

// A poll of a waiting page enters without the origin seeing it. A poll without a ticket is not counted as a new
// visitor.
func TestAPageThatAsksForNews(t *testing.T) {
	st := open(t, nil)
	st.up.queue(sale, 10, 1)
	v := st.door.visitor()
	news := func() map[string]any {
		t.Helper()
		a := v.get(saleURL, "Accept", "application/json", "Vestibule-Poll", "1")
		if a.StatusCode != http.StatusOK || a.Header.Get("Cache-Control") != "private, no-store, no-transform" {
			t.Errorf("%d %v", a.StatusCode, a.Header)
		}
		return a.json(t).Ours
	}
	if said := news(); said["state"] != "reload" {
		t.Errorf("without a ticket: %v", said)
	}
	if l := st.server.Status().Rooms["sale"]; l.Spent != 0 || l.Waiting != 0 {
		t.Errorf("the question was counted: %+v", l)
	}
	v.get(saleURL)
	if said := news(); said["state"] != "queued" {
		t.Errorf("in line: %v", said)
	}
	st.up.view(sale, 0, 2, 1<<60, 0)
	if said := news(); said["state"] != "entering" {
		t.Errorf("at the turn: %v", said)
	}
	st.origin.untouched()
	v.get(saleURL).enters(t, "the page itself")
	if l := st.server.Status().Rooms["sale"]; l.Spent != 1 {
		t.Errorf("%d permits were charged", l.Spent)
	}
	if said := news(); said["state"] != "entering" || st.origin.requests() != 1 {
		t.Errorf("inside: %v, %d requests at the origin", said, st.origin.requests())
	}
}

// TestTheGraceIsShown: pages and apps state how long the room keeps a place, and the edge keeps it that long.
func TestTheGraceIsShown(t *testing.T) {
	st := openRooms(t, nil, func(d *room.Document) { d.Rooms[0].Grace = 20 * time.Minute })
	st.up.queue(sale, 10, 1)
	if a := st.door.visitor().get(saleURL); !strings.Contains(a.body, `<dd id=kept>20 minutes</div>`) {
		t.Errorf("the page: %s", a.body)
	}
	now := st.server.Status().Time
	place := ticket.Ticket{ID: 7, Joined: now.Add(-time.Hour), Seen: uint32(now.Second()) - 1200, Flags: ticket.Returned}
	said := st.door.visitor().get(saleURL, "Accept", "application/json", "Cookie", st.keys.seal("sale", place)).json(t)
	if said.Ours["placeKeptSeconds"] != 1200.0 || said.Ours["lost"] != "" ||
		said.Ours["joinedAt"] != place.Joined.Std().Format("2006-01-02T15:04:05.000Z07:00") {
		t.Errorf("after twenty minutes: %v", said.Ours)
	}
	place.Seen -= 120
	said = st.door.visitor().get(saleURL, "Accept", "application/json", "Cookie", st.keys.seal("sale", place)).json(t)
	if said.Ours["lost"] != "away" {
		t.Errorf("after twenty-two minutes: %v", said.Ours)
	}
}

// Pages use the visitor's language, or else the room's, and show the operator's message.
func TestPagesInTheVisitorsLanguage(t *testing.T) {
	st := openRooms(t, nil, func(d *room.Document) {
		d.Rooms[0].DefaultLanguage, d.Rooms[0].QueueMessage = "ja-JP", "Seats & <standing>"
	})
	st.up.queue(sale, 10, 1)
	for header, want := range map[string]string{
		"":                        `<html lang="ja-JP" dir="ltr">`,
		"xx":                      `<html lang="ja-JP" dir="ltr">`,
		"he":                      `<html lang="he-IL" dir="rtl">`,
		"de-CH,de;q=0.9,en;q=0.8": `<html lang="de-DE" dir="ltr">`,
	} {
		a := st.door.visitor().get(saleURL, "Accept", "text/html", "Accept-Language", header)
		if !strings.Contains(a.body, want) || !strings.Contains(a.body, ">Seats &amp; &lt;standing&gt;</p>") ||
			!strings.Contains(want, a.Header.Get("Content-Language")) {
			t.Errorf("%q: no %s, or no message, in %.80q", header, want, a.body)
		}
	}
}

// A waiting visitor that leaves by the page's button gets a confirmation and loses its place; an app gets JSON; a
// beacon gets an empty answer.
func TestLeavingTheLineByThePage(t *testing.T) {
	st := open(t, nil)
	st.up.queue(sale, 10, 1)
	const leave = leaveURL + "?room=sale"
	v := st.door.visitor()
	joined := st.keys.opened("sale", cookieOf(v.get(saleURL), "vestibule-sale").Value).Joined
	for range 2 { // the second time there is nothing to leave, and that is fine
		a := v.ask(http.MethodPost, leave, "", "Sec-Fetch-Site", "same-origin", "Origin", "http://sale.example", "Accept",
			"text/html,*/*;q=0.8")
		if a.StatusCode != http.StatusOK || !strings.Contains(a.body, "You have left the line") ||
			!strings.Contains(a.body, `<a href="/">Join again</a>`) {
			t.Errorf("leaving: %d, %.60q", a.StatusCode, a.body)
		}
	}
	eventually(t, "the new place is behind the old one", func() bool {
		return st.keys.opened("sale", cookieOf(st.door.visitor().get(saleURL), "vestibule-sale").Value).Joined > joined
	})
	if len(v.Jar.Cookies(&url.URL{Scheme: "http", Host: "sale.example", Path: "/"})) > 0 {
		t.Error("the browser keeps its ticket")
	}
	if a := v.ask(http.MethodPost, leave, "", "Accept", "application/json").json(t); a.Ours["state"] != "left" ||
		a.Cloudflare["inWaitingRoom"] != false {
		t.Errorf("an app that leaves: %v", a)
	}
	v.ask(http.MethodPost, leaveURL, "", "Accept", "*/*").has(t, http.StatusNoContent, "a beacon")

	app := st.door.visitor()
	app.Jar = nil
	place := app.get(saleURL, gate.TicketHeader, "new").Header.Get(gate.TicketHeader)
	place = app.get(saleURL, gate.TicketHeader, place).Header.Get(gate.TicketHeader) // counted from now on
	app.ask(http.MethodPost, leave, "", gate.TicketHeader, place).has(t, http.StatusNoContent, "leaving by header")
	if a := app.get(saleURL, gate.TicketHeader, place, "Accept", "application/json").json(t); a.Ours["lost"] != "left" {
		t.Errorf("after leaving: %v", a.Ours)
	}
}

// A client without cookies keeps its place and its session by a header; a
// browser's ticket is not given away by it, and no origin sees it or sets it.
func TestTicketsInAHeader(t *testing.T) {
	st := open(t, nil)
	st.origin.serves(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Vestibule-Ticket"); got != "" {
			t.Errorf("the origin sees %q", got)
		}
		w.Header().Set("Vestibule-Ticket", "sale=forged")
	})
	st.up.queue(sale, 10, 1)
	app := st.door.visitor()
	app.Jar = nil
	a := app.get(saleURL, "Vestibule-Ticket", "new")
	place := a.Header.Get("Vestibule-Ticket")
	if !regexp.MustCompile(`^sale=[A-Za-z0-9_-]{86,}$`).MatchString(place) {
		t.Fatalf("ticket %q", place)
	}
	joined := st.keys.opened("sale", strings.TrimPrefix(place, "sale=")).Joined
	a = app.get(saleURL, "Vestibule-Ticket", "other=x, "+place)
	place = a.Header.Get("Vestibule-Ticket")
	if got := st.keys.opened("sale", strings.TrimPrefix(place, "sale=")).Joined; got != joined {
		t.Errorf("joined at %v, then at %v", joined, got)
	}
	st.up.view(sale, 0, 2, 1<<60, 0)
	a = app.get(saleURL, "Vestibule-Ticket", place)
	pass := st.keys.opened("sale", strings.TrimPrefix(a.Header.Get("Vestibule-Ticket"), "sale="))
	if lines := a.Header.Values("Vestibule-Ticket"); a.StatusCode != http.StatusOK || len(lines) != 1 ||
		!pass.IsAdmitted() {
		t.Errorf("admitted: %d with %q", a.StatusCode, lines)
	}
	if a := st.door.visitor().get(saleURL); a.Header.Get("Vestibule-Ticket") != "" {
		t.Error("a browser that did not ask was given its ticket in a header")
	}
	browser := st.door.visitor()
	browser.get(saleURL)
	if a := browser.get(saleURL, "Vestibule-Ticket", "new"); a.Header.Get("Vestibule-Ticket") != "" {
		t.Error("a browser's cookie was given away")
	}
	if a := app.get(saleURL, "Vestibule-Ticket", strings.Repeat("sale=x,", 50)+"sale="+st.keys.value("sale",
		session(7))); a.Header.Get("Vestibule-Decision") != "" {
		t.Errorf("a session behind 50 values that do not open: %d %.60q", a.StatusCode, a.body)
	}
}

// A custom page reloads by itself, and its scripts run under a nonce that no
// other answer has.
func TestCustomPagesAreServedWithANonce(t *testing.T) {
	const text = "<!doctype html><title>{{peopleAhead}}</title><script>1</script>"
	hash := roomdoc.Hash([]byte(text))
	st := openRooms(t, func(st *stage) {
		st.docs.pages.Store(roomdoc.PageDocument(hash), compress.Gzip([]byte(text)))
	}, func(d *room.Document) { d.Rooms[0].WaitingPage = hash })
	st.up.queue(sale, 10, 1)
	seen := map[string]bool{}
	for range 3 {
		a := st.door.visitor().get(saleURL)
		m := regexp.MustCompile(`^<!doctype html><title>10</title><script nonce=([A-Za-z0-9_-]{22})>1</script>$`).FindStringSubmatch(a.body)
		if m == nil || seen[m[1]] || !strings.Contains(a.Header.Get("Content-Security-Policy"),
			"script-src 'nonce-"+m[1]+"'") {
			t.Fatalf("%q under %q", a.body, a.Header.Get("Content-Security-Policy"))
		}
		seen[m[1]] = true
		if a.Header.Get("Retry-After") == "" || !strings.HasPrefix(a.Header.Get("Refresh"), a.Header.Get("Retry-After")+"; url=./") {
			t.Errorf("Refresh %q", a.Header.Get("Refresh"))
		}
	}
}

// TestFrameAncestors: a waiting page may be framed by pages of its own origin and of the origins that the room lists,
// or by none with the setting none; so may the operator's own page.
func TestFrameAncestors(t *testing.T) {
	st := openWith(t, 0, func(r *room.Settings) { r.QueueAll = true })
	for i, tc := range []struct{ setting, want string }{
		{"", "frame-ancestors 'self'"},
		{room.FramedByNone, "frame-ancestors 'none'"},
		{"https://a.example https://b.example:8443", "frame-ancestors 'self' https://a.example https://b.example:8443"},
	} {
		st.change(uint64(2+i), func(r *room.Settings) {
			r.CookieSameSite, r.CookiePartitioned, r.FrameAncestors = room.CookieNone, true, tc.setting
		})
		policy := st.door.visitor().get(saleURL, "Accept", "text/html").Header.Get("Content-Security-Policy")
		if !slices.Contains(strings.Split(policy, "; "), tc.want) {
			t.Errorf("%q: %s", tc.setting, policy)
		}
	}
	custom := testkit.Must(page.Custom([]byte("<!doctype html><title>wait</title><p>{{waitTime}}</p>")))(t)
	if policy := page.FramedBy(custom.Policy("n", ""), "https://a.example"); !strings.Contains(policy,
		"; frame-ancestors 'self' https://a.example; ") {
		t.Errorf("a page of the operator's own: %s", policy)
	}
}

// The script of the waiting page comes from any edge, under its address for good, and for a page of another version with
// the same protocol for once. It is no visit.
func TestTheScriptOfThePage(t *testing.T) {
	st := openWith(t, 0, func(r *room.Settings) { r.QueueAll = true })
	v := st.door.visitor()
	shown := v.get(saleURL, "Accept", "text/html")
	if !strings.Contains(shown.body, `<script src="`+page.ScriptPath()+`"`) ||
		!strings.Contains(shown.Header.Get("Content-Security-Policy"), "script-src 'self';") {
		t.Fatalf("%v %s", shown.Header, shown.body)
	}
	script, _ := page.ScriptAt(page.ScriptPath())
	for path, want := range map[string]struct {
		status  int
		caching string
	}{
		page.ScriptPath(): {http.StatusOK, "public, max-age=31536000, immutable, no-transform"},
		"/.well-known/vestibule/page.1.0123456789ab.js":     {http.StatusOK, "no-store, no-transform"},
		"/.well-known/vestibule/page.1.0123456789ab.js?a=b": {http.StatusOK, "no-store, no-transform"},
		"/.well-known/vestibule/page.9.0123456789ab.js":     {http.StatusNotFound, "no-store"},
	} {
		for _, host := range []string{"sale.example", "shop.example"} {
			a := st.door.visitor().get("http://"+host+path, "Sec-Fetch-Dest", "script", "Sec-Fetch-Mode", "no-cors")
			if a.StatusCode != want.status || a.Header.Get("Cache-Control") != want.caching || a.Header["Set-Cookie"] != nil {
				t.Errorf("%s of %s: %d %v", path, host, a.StatusCode, a.Header)
			}
			if want.status == http.StatusOK && (a.body != script.Text ||
				!strings.HasPrefix(a.Header.Get("Content-Type"), "text/javascript")) {
				t.Errorf("%s of %s: %d bytes %v", path, host, len(a.body), a.Header)
			}
		}
	}
	st.origin.untouched()
}
