package control

import (
	"flag"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"vestibule/internal/core/room"
)

// FuzzRoomBodies: for any body and path the answer is in the envelope and never 500, and an accepted object can be
// read again.
func FuzzRoomBodies(f *testing.F) {
	f.Add("POST", "/zones/"+Zone+"/waiting_rooms", shop+"}")
	f.Add("PUT", "/zones/"+Zone+"/waiting_rooms/"+room.PublicID("shop"),
		shop+`,"vestibule":{"epoch":7,"grace":"1m"},"additional_routes":[{"host":"b.example"}]}`)
	f.Add("PATCH", "/zones/"+Zone+"/waiting_rooms/"+room.PublicID("shop"),
		`{"session_duration":1e1,"custom_page_html":"{{#waitTimeKnown}}{{waitTime}}{{/waitTimeKnown}}"}`)
	f.Add("PUT", "/vestibule/hosts/shop.example", `{"origin":"http://10.0.0.9"}`)
	f.Add("POST", "/vestibule/tokens", `{"name":"x","role":"viewer","expires_on":null}`)
	f.Add("GET", "/zones/"+Zone+"/waiting_rooms?page=2&per_page=5", ``)
	f.Fuzz(func(t *testing.T, method, path, body string) {
		r, err := httpRequest(method, path, body)
		if err != nil {
			return // no request can be made of it
		}
		x := start(t)
		x.ask(Editor, "POST", "{z}", shop+"}")
		r.Header.Set("Authorization", "Bearer "+x.token[Admin])
		x.do(r)
		if a := x.ask(Viewer, "GET", "{z}", ""); a.code != 200 {
			t.Errorf("rooms cannot be listed afterwards: %+v", a)
		}
	})
}

// httpRequest is a request as a server would have read it.
func httpRequest(method, target, body string) (*http.Request, error) {
	u, err := url.ParseRequestURI(Prefix + target)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequest(method, "http://127.0.0.1"+u.RequestURI(), strings.NewReader(body))
	if err == nil {
		r.RemoteAddr = "127.0.0.1:80"
	}
	return r, err
}

// TestCornersOfBodies: the corners of bodies that a client may send.
func TestCornersOfBodies(t *testing.T) {
	f := start(t)
	for extra, code := range map[string]int{
		`,"session_duration":null,"path":null,"additional_routes":null,"cookie_attributes":null,"enabled_origin_commands":null,"vestibule":null`: 200,
		`,"session_duration":5.0`:                                200,
		`,"session_duration":1e999999999999999`:                  400,
		`,"session_duration":5.5`:                                400,
		`,"session_duration":-1`:                                 400,
		`,"session_duration":true`:                               400,
		`,"cookie_attributes":{"samesite":"AUTO","secure":""}`:   200,
		`,"vestibule":{"origin":"http://10.1.1.1","revision":9}`: 200,
		`,"vestibule":{"grace":60}`:                              400,
		`,"vestibule":[]`:                                        400,
		`,"additional_routes":{}`:                                400,
		`,"custom_page_html":7`:                                  400,
		`,"path":"/a/../b"`:                                      400,
		`,"custom_page_html":"<p>hello"`:                         200,
	} {
		a := f.ask(Editor, "POST", "{z}", shop+extra+"}")
		if a.code != code {
			t.Errorf("%s: %d %+v", extra, a.code, a)
		}
		if id, ok := a.field("id").(string); ok {
			if strings.Contains(extra, "hello") && a.field("custom_page_html") != "<p>hello" {
				t.Errorf("the page that was given is not shown: %v", a.field("custom_page_html"))
			}
			f.ask(Editor, "DELETE", "{z}/"+id, "")
		}
	}
	w := httptest.NewRecorder()
	if f.api.ServeHTTP(w, httptest.NewRequest("GET", "/preview/none", nil)); w.Code != 404 {
		t.Errorf("a preview that is not there: %d", w.Code)
	}
}

var bodies = flag.Int("bodies", 5000, "requests that TestRequestsOfAllKinds makes")

// TestRequestsOfAllKinds: for any request the answer is in the envelope, and never 500. The requests are valid ones
// with parts removed, doubled, exchanged or replaced by noise.
func TestRequestsOfAllKinds(t *testing.T) {
	id := room.PublicID("shop")
	zone := "/zones/" + Zone + "/waiting_rooms"
	good := [][3]string{
		{"GET", zone + "?page=1&per_page=5", ""},
		{"POST", zone, shop + `,"path":"/a","additional_routes":[{"host":"b.example","path":"/x"}],"cookie_suffix":"x"}`},
		{
			"PUT", zone + "/" + id,
			shop +
				`,"session_duration":9,"queueing_method":"reject","custom_page_html":"{{#waitTimeKnown}}{{waitTime}}{{/waitTimeKnown}}"}`,
		},
		{
			"PATCH", zone + "/" + id,
			`{"total_active_users":9,"vestibule":{"grace":"2m","epoch":3,"origin":"http://10.0.0.3"}}`,
		},
		{"DELETE", zone + "/" + id, ""},
		{"GET", zone + "/" + id + "/status", ""},
		{"PUT", zone + "/settings", `{"search_engine_crawler_bypass":false}`},
		{"POST", zone + "/preview", `{"custom_html":"<p>{{waitTime}}</p>"}`},
		{"GET", "/accounts/" + Account + "/waiting_rooms", ""},
		{"PUT", "/vestibule/hosts/shop.example", `{"origin":"http://10.0.0.9:80"}`},
		{"DELETE", "/vestibule/hosts/shop.example", ""},
		{"POST", "/vestibule/tokens", `{"name":"x","role":"viewer","expires_on":"2999-01-01T00:00:00Z"}`},
		{"DELETE", "/vestibule/tokens/first0000000", ""},
		{
			"POST", "/vestibule/webhooks",
			`{"name":"x","url":"https://a.example/b","kinds":["room.clear"],"rooms":["shop"],"enabled":false}`,
		},
		{"GET", "/vestibule/webhooks", ""},
		{"GET", "/vestibule/audit?from=3&per_page=7", ""},
		{"GET", "/vestibule/rooms/" + id + "/revisions", ""},
		{"POST", "/vestibule/rooms/" + id + "/revisions/1795353281000/restore", ""},
		{
			"POST", "/vestibule/apply",
			`{"rooms_yaml":"rooms:\n  - {name: a, host: a.example, total_active_users: 9, new_users_per_minute: 5, origin: 'http://10.0.0.1'}\n","dry_run":true}`,
		},
		{"GET", "/vestibule/export", ""},
		{"GET", "/vestibule/fleet", ""},
		{"GET", "/user/tokens/verify", ""},
	}
	noise := []string{
		"\x00", "\xff", "\u2028", "{", "}", "[", "]", `"`, ":", ",", "null", "-1", "1e999", "true", "{}",
		"..", "%2f", "%", "//", "?", "&", "#", "\\", "9223372036854775808", strings.Repeat("a", 300),
	}
	rng := rand.New(rand.NewPCG(uint64(*bodies), 1))
	change := func(s string) string {
		for range rng.IntN(3) {
			i, j := rng.IntN(len(s)+1), rng.IntN(len(s)+1)
			i, j = min(i, j), max(i, j)
			switch rng.IntN(5) {
			case 0:
				s = s[:i] + s[j:]
			case 1:
				s = s[:j] + s[i:j] + s[j:]
			case 2:
				s = s[:i] + noise[rng.IntN(len(noise))] + s[j:]
			case 3:
				s = s[:i] + noise[rng.IntN(len(noise))] + s[i:]
			case 4:
				other := good[rng.IntN(len(good))][2]
				s = s[:i] + other[rng.IntN(len(other)+1):]
			}
		}
		return s
	}
	var x *fixture
	codes := map[int]int{}
	for n := range *bodies {
		if n%2000 == 0 {
			x = start(t)
			x.ask(Editor, "POST", "{z}", shop+"}")
		}
		g := good[rng.IntN(len(good))]
		r, err := httpRequest(g[0], change(g[1]), change(g[2]))
		if err != nil {
			codes[0]++ // no request can be made of it
			continue
		}
		r.Header.Set("Authorization", "Bearer "+x.token[Admin])
		codes[x.do(r).code]++
	}
	t.Logf("%v", codes)
	if codes[200] == 0 || codes[400] == 0 || codes[404] == 0 || codes[503]+codes[500] > 0 {
		t.Errorf("%v", codes)
	}
}
