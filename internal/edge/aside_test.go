package edge

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"vestibule/internal/core/room"
	"vestibule/internal/lab/figures"
)

// openWith is open with settings of the room sale and a number of permits.
func openWith(t testing.TB, permits uint64, change func(*room.Settings), more ...func(*stage)) *stage {
	t.Helper()
	st := openRooms(t, func(st *stage) {
		for _, m := range more {
			m(st)
		}
	}, func(d *room.Document) { change(&d.Rooms[0]) })
	st.up.grant(sale, permits, permits)
	st.covered(0, sale)
	return st
}

// admittedNow returns the edge's number of admissions to the room sale.
func (st *stage) admittedNow() uint64 { return st.server.Status().Rooms["sale"].Admitted }

// hasAdmitted fails if the edge has admitted another number of visitors to the room sale.
func (st *stage) hasAdmitted(n uint64) {
	st.t.Helper()
	if got := st.admittedNow(); got != n {
		st.t.Errorf("%d visitors were admitted, want %d", got, n)
	}
}

var preflight = []string{
	"Origin", "https://app.example", "Access-Control-Request-Method", "PUT",
	"Access-Control-Request-Headers", "x-a,vestibule-ticket",
}

// Preflights, pictures and robots take no session permit of a room with two, and see nothing of the site; two
// visitors do.
func TestRule10WhatIsNoVisitTakesNoSlot(t *testing.T) {
	st := openWith(t, 2, func(*room.Settings) {})
	st.origin.serves(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodOptions {
			h := w.Header()
			h.Set("Access-Control-Allow-Origin", "https://app.example")
			h.Set("Access-Control-Allow-Methods", "PUT")
			h.Set("Vary", "Origin")
			h.Set("Set-Cookie", "a=b")
			h.Set("X-Secret", "content")
		}
		io.WriteString(w, "the site") //nolint:errcheck // the client checks the answer
	})
	inside := session(7)
	for i, header := range [][]string{nil, {
		"Cookie", st.keys.seal("sale", inside) + "; login=1", "Authorization",
		"Bearer x", "X-A", "1",
	}} {
		seen := st.origin.requests()
		path := [...]string{"/a", "/b"}[i] // the second would be answered from memory
		a := st.door.visitor().ask(http.MethodOptions, "http://sale.example"+path+"?order=1", "a=b",
			append(header, preflight...)...)
		if a.StatusCode != http.StatusNoContent || a.body != "" || a.Header.Get("Access-Control-Allow-Methods") != "PUT" {
			t.Fatalf("a preflight is answered by %d %v %q", a.StatusCode, a.Header, a.body)
		}
		if a.Header["Set-Cookie"] != nil || a.Header["X-Secret"] != nil {
			t.Errorf("the site's answer to a preflight reached the visitor: %v", a.Header)
		}
		if n := st.origin.requests() - seen; n != 1 {
			t.Fatalf("the site was asked %d times", n)
		}
		r := st.origin.last()
		if r.RequestURI != path || r.Host != "sale.example" || r.ContentLength != 0 {
			t.Errorf("the site was asked for %s of %s with %d bytes", r.RequestURI, r.Host, r.ContentLength)
		}
		for name := range r.Header {
			switch name {
			case "Origin", "Access-Control-Request-Method", "Access-Control-Request-Headers", "X-Forwarded-Host",
				"X-Forwarded-Proto", "Via", "Vestibule-Hops", "User-Agent", auditHeader:
			default:
				t.Errorf("%s of a preflight reached the site", name)
			}
		}
	}
	seen := st.origin.requests()
	for _, tc := range []struct {
		path   string
		header []string
	}{
		{"/favicon.ico", nil},
		{"/robots.txt", nil},
		{"/robots.txt?x", []string{"Accept", "*/*"}},
		{"/a.png", []string{"Sec-Fetch-Dest", "image"}},
		{"/a.js", []string{"Sec-Fetch-Dest", "script", "Accept", "*/*"}},
		{"/a.css", []string{"Sec-Fetch-Dest", "style"}},
		{"/a.woff2", []string{"Sec-Fetch-Dest", "font"}},
		{"/a.png", []string{"Accept", "image/avif,image/webp,*/*;q=0.8"}},
		{"/a.css", []string{"Accept", "text/css,*/*;q=0.1"}},
	} {
		for range 2 { // without cookies, like two robots
			v := st.door.visitor()
			v.Jar = nil
			a := v.get("http://sale.example"+tc.path, tc.header...)
			if a.StatusCode != http.StatusTooManyRequests || len(a.Cookies()) > 0 ||
				!strings.HasPrefix(a.Header.Get("Content-Type"), "text/plain") || len(a.body) > 100 ||
				a.Header.Get("Retry-After") == "" || a.Header.Get("Vestibule-Decision") != "wait" {
				t.Errorf("%s %v: %d %v %.80q", tc.path, tc.header, a.StatusCode, a.Header, a.body)
			}
		}
	}
	a := st.door.visitor().get("http://sale.example/api", "Sec-Fetch-Dest", "empty", "Accept", "*/*")
	if a.StatusCode != http.StatusTooManyRequests || a.Header.Get("Content-Type") != "application/json" ||
		a.Header.Get("Vestibule-Decision") != "wait" {
		t.Errorf("a fetch of somebody new: %d %v %.80q", a.StatusCode, a.Header, a.body)
	}
	if n := st.admittedNow(); n != 0 || st.origin.requests() != seen {
		t.Fatalf("%d permits taken, %d requests at the site", n, st.origin.requests()-seen)
	}
	// Two visitors do; one began with a picture.
	v := st.door.visitor()
	v.get("http://sale.example/a.png", "Sec-Fetch-Dest", "image")
	for _, v := range []*visitor{v, st.door.visitor()} {
		if a := v.get("http://sale.example/", "Sec-Fetch-Dest", "document"); a.body != "the site" ||
			a.Header.Get("Vestibule-Decision") != "" {
			t.Errorf("a visit: %d %v %.80q", a.StatusCode, a.Header, a.body)
		}
	}
	st.hasAdmitted(2)
	// A program that keeps its ticket comes in with the second question.
	st.up.grant(sale, 1, 1)
	st.covered(0, sale)
	v = st.door.visitor()
	v.get("http://sale.example/api", "Sec-Fetch-Dest", "empty")
	v.get("http://sale.example/api", "Sec-Fetch-Dest", "empty").enters(t, "the second touch")
}

// The edge answers preflights itself if the room says so, and lets the listed pages read the reason of their wait.
func TestCORSOfARoom(t *testing.T) {
	for _, tc := range []struct {
		name, origins, preflights, origin string
		code                              int
		allow                             string
	}{
		{"named", "https://app.example http://127.0.0.1:3000", "", "https://app.example", 204, "https://app.example"},
		{"not named", "https://app.example", "edge", "https://evil.example", 403, ""},
		{"not named, opaque", "https://app.example", "edge", "null", 403, ""},
		{"no origin", "*", "edge", "", 403, ""},
		{"anybody", "*", "", "https://evil.example", 204, "*"},
		{"nobody", "", "edge", "https://app.example", 403, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			st := openWith(t, 0, func(s *room.Settings) { s.CORSOrigins, s.Preflights = tc.origins, tc.preflights })
			var from []string
			if tc.origin != "" {
				from = []string{"Origin", tc.origin}
			}
			a := st.door.visitor().ask(http.MethodOptions, "http://sale.example/", "",
				append(from, "Access-Control-Request-Method", "GET", "Access-Control-Request-Headers", "vestibule-poll")...)
			if h := a.Header; a.StatusCode != tc.code || h.Get("Access-Control-Allow-Origin") != tc.allow ||
				(tc.allow != "") != (h.Get("Access-Control-Allow-Headers") == "vestibule-poll") ||
				h["Set-Cookie"] != nil {
				t.Errorf("preflight: %d %v", a.StatusCode, h)
			}
			for _, accept := range []string{"application/json", "text/html"} {
				a = st.door.visitor().get("http://sale.example/", append(from, "Accept", accept)...)
				if h := a.Header; h.Get("Access-Control-Allow-Origin") != tc.allow ||
					(h.Get("Access-Control-Allow-Credentials") == "true") != (tc.allow == tc.origin && tc.allow != "") ||
					strings.Contains(h.Get("Access-Control-Expose-Headers"), "Vestibule-Decision") != (tc.allow != "") ||
					!slices.Equal(h["Vary"], []string{"*"}) {
					t.Errorf("%s: %d %v", accept, a.StatusCode, h)
				}
			}
			st.origin.untouched()
		})
	}
}

// Through a front that serves the site itself nothing is asked of the site, and a
// preflight is no admission.
func TestRule10AFrontsPreflight(t *testing.T) {
	for _, form := range forms {
		st := openFront(t, form, nil)
		if a := st.question(form, http.MethodOptions, "sale.example", "/", preflight...); admitted(t, form, a) ||
			a.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %d %v", form, a.StatusCode, a.Header)
		}
	}
}

// The site of a closed room is asked once about equal preflights, and only so often by one address prefix.
func TestPreflightsDoNotReachTheSiteWithoutLimit(t *testing.T) {
	eachFront(t, func(t *testing.T, front string) {
		st := open(t, reads(front))
		st.change(2, func(s *room.Settings) { s.QueueAll = true })
		st.origin.serves(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/forbidden" {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
		})
		v := st.door.visitor()
		for _, c := range []struct {
			path   string
			status int
		}{{"/a", http.StatusNoContent}, {"/forbidden", http.StatusForbidden}} {
			before := st.origin.requests()
			for range 50 {
				a := v.ask(http.MethodOptions, "http://sale.example"+c.path, "", preflight...)
				if a.StatusCode != c.status || c.status == http.StatusNoContent &&
					a.Header.Get("Access-Control-Allow-Origin") != "https://app.example" {
					t.Fatalf("%s: %d %v", c.path, a.StatusCode, a.Header)
				}
			}
			if n := st.origin.requests() - before; n != 1 {
				t.Errorf("%s: the site was asked %d times for the same", c.path, n)
			}
		}
		other := append([]string{"Origin", "https://other.example"}, preflight[2:]...)
		if a := v.ask(http.MethodOptions, "http://sale.example/a", "",
			other...); a.Header.Get("Access-Control-Allow-Origin") != "https://other.example" {
			t.Errorf("another origin gets the answer of the first: %v", a.Header)
		}
		before, codes := st.origin.requests(), map[int]int{}
		for i := range 3 * room.DefaultPreflightRate {
			codes[v.ask(http.MethodOptions, fmt.Sprint("http://sale.example/", i), "", preflight...).StatusCode]++
		}
		// a minute may begin meanwhile
		if n := st.origin.requests() - before; n > 2*room.DefaultPreflightRate ||
			codes[http.StatusServiceUnavailable] < room.DefaultPreflightRate {
			t.Errorf("the site was asked %d times by one address; answers %v", n, codes)
		}
	})
}

// The people inside a full room ask for their app, and somebody behind their address asks as much as it can, over new
// connections: none of them is refused. A room with space asks its site without a bound.
func TestPreflightsOfPeopleInsideAreNotRefused(t *testing.T) {
	const each = 20
	people := 10
	if *thorough {
		people = 50
	}
	eachFront(t, func(t *testing.T, front string) {
		st := openWith(t, uint64(people), func(s *room.Settings) { s.PreflightRate, s.PreflightsEach = 1, each }, reads(front))
		st.origin.serves(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
		})
		limited := func() float64 { return metric(t, st, "vestibule_edge_requests_total", "result", "preflight_limited") }
		ask := func(v *visitor, path string) int {
			return v.ask(http.MethodOptions, "http://sale.example"+path, "", preflight...).StatusCode
		}
		first := st.door.visitor()
		for i := range 2 * room.DefaultPreflightRate {
			if code := ask(first, fmt.Sprint("/open/", i)); code != http.StatusNoContent {
				t.Fatalf("the room has space: %d", code)
			}
		}
		inside := make([]*visitor, people)
		for i := range inside {
			inside[i] = st.door.visitor()
			eventually(t, "there is a permit for each", func() bool {
				return inside[i].get("http://sale.example/").Header.Get("Vestibule-Decision") == ""
			})
		}
		stranger := st.door.visitor()
		stranger.Transport.(*http.Transport).DisableKeepAlives = true
		refused := 0
		for i := 0; refused < 20; i++ { // the allowance of the address is used up, although a minute may begin meanwhile
			if ask(stranger, fmt.Sprint("/flood/", i)) == http.StatusServiceUnavailable {
				refused++
			}
			if i > 3*(1+2*people*each) {
				t.Fatalf("the site was asked %d times for the stranger", i)
			}
		}
		if n := limited(); n != 20 {
			t.Errorf("%v refused questions are counted", n)
		}
		lost := 0
		for i, v := range inside {
			for j := range each {
				if code := ask(v, fmt.Sprintf("/%d/%d", i, j)); code != http.StatusNoContent {
					t.Logf("question %d of %d inside: %d", j, i, code)
					lost++
				}
			}
		}
		figures.Check(t, "preflights: refused of people inside beside a flood", front, float64(lost))
	})
}

// The site answers slowly, and one address prefix asks as much as it can: a visitor of another prefix gets an answer.
func TestPrefixesShareTheQuestionsOfPreflights(t *testing.T) {
	eachFront(t, func(t *testing.T, front string) {
		st := open(t, reads(front))
		st.change(2, func(s *room.Settings) { s.QueueAll = true })
		over := make(chan struct{})
		var asked, refused atomic.Int32
		st.origin.serves(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/slow") {
				asked.Add(1)
				<-over
			}
			w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
		})
		var all sync.WaitGroup
		for i := range 2 * preflightsAtOnce {
			v := st.door.visitor()
			v.Transport.(*http.Transport).DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{LocalAddr: attackFrom}).DialContext(ctx, "tcp", st.door.entrance())
			}
			all.Go(func() {
				r, err := http.NewRequest(http.MethodOptions, fmt.Sprint("http://sale.example/slow", i), http.NoBody)
				if err == nil {
					for j := 0; j < len(preflight); j += 2 {
						r.Header.Set(preflight[j], preflight[j+1])
					}
					var res *http.Response
					if res, err = v.Do(r); err == nil {
						if res.StatusCode == http.StatusServiceUnavailable {
							refused.Add(1)
						}
						err = res.Body.Close()
					}
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		eventually(t, "all are refused or asked", func() bool { return asked.Load()+refused.Load() == 2*preflightsAtOnce })
		if n := asked.Load(); n != preflightsAtOnce/2 {
			t.Errorf("one prefix asks %d questions", n)
		}
		st.door.visitor().ask(http.MethodOptions, "http://sale.example/", "",
			preflight...).has(t, http.StatusNoContent, "a preflight beside it")
		close(over)
		all.Wait()
		eventually(t, "no question is in progress", func() bool {
			asking := st.server.preflights.asking
			return asking.Free() == preflightsAtOnce && asking.Prefixes() == 0
		})
	})
}
