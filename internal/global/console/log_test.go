package console_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"vestibule/internal/global/console"
	"vestibule/internal/global/control"
	"vestibule/internal/global/control/api"
	"vestibule/internal/lab/testkit"
)

// The changes of a room show what differs, and can be restored.
func TestChangesAreShownAndRestored(t *testing.T) {
	f := start(t)
	id := f.api.make("sale", 2000, 200, nil)
	room := "/zones/" + control.Zone + "/waiting_rooms/" + id
	for _, body := range []map[string]any{{"total_active_users": 1500, "description": "<b>autumn"}, {"suspended": true}} {
		testkit.NoError(t, f.api.call(http.MethodPatch, room, body, nil))
	}
	at := "/console/rooms/" + id + "/changes"
	page := f.see(at)
	contains(t, page, "Ben changed the settings, just now", "suspended false → true", "total_active_users 2000 → 1500",
		"description <b>autumn", "Ben created the room", "Current")
	lacks(t, page, "<b>autumn")
	links := regexp.MustCompile(`href="(`+at+`/\d+)"`).FindAllStringSubmatch(page.body, -1)
	if len(links) != 2 {
		t.Fatalf("links: %v", links)
	}
	first := links[1][1]
	confirm := f.see(first)
	contains(t, confirm, "as they were after Ben created the room", "total_active_users 1500 → 2000",
		"suspended true → false")
	contains(t, f.sent(confirm, first, map[string]string{"reason": "too early"}), "The revision is restored",
		"Ana restored a revision, just now")
	var now api.Room
	if err := f.api.call(http.MethodGet, room, nil, &now); err != nil || now.TotalActiveUsers != 2000 || now.Suspended {
		t.Errorf("%+v, %v", now, err)
	}
	contains(t, f.see("/console/audit"), "Ana restored an earlier revision of room sale", "too early")
	f.get(at+"/7").is(t, http.StatusNotFound) // an unknown revision
	f.as(control.Operator)
	lacks(t, f.see("/console/rooms/"+id), "/changes")
	for _, a := range []answer{f.get(at), f.get(first), f.post(first, nil)} {
		a.is(t, http.StatusForbidden) // an operator
	}
}

// The audit log says who changed what, from what to what.
func TestAuditInWords(t *testing.T) {
	f := start(t)
	id := f.api.make("sale", 2000, 200, nil)
	f.act(id, "pause", map[string]string{"message": "<i>soon"})
	testkit.NoError(t, f.api.call(http.MethodPatch, "/zones/"+control.Zone+"/waiting_rooms/"+id,
		map[string]any{"total_active_users": 1500}, nil))
	testkit.NoError(t, f.api.call(http.MethodPut, "/vestibule/hosts/sale.example", map[string]string{"origin": "http://10.0.0.9"},
		nil))
	page := f.see("/console/audit")
	contains(t, page, "Ana paused room sale", "a test", "<i>soon", "Ben changed the settings",
		"total_active_users 2000 → 1500", "Ben created room sale", "room sale : new",
		"host sale.example: new origin", "http://10.0.0.9")
	lacks(t, page, "<i>soon")
	contains(t, f.see("/console/audit?room=sale&by=Ana"), "Ana paused room sale")
	lacks(t, f.see("/console/audit?room=sale&by=Ana"), "Ben")
	for range 60 {
		f.api.patch(id, map[string]any{"message": map[string]any{"text": "x"}})
	}
	contains(t, f.see("/console/audit"), "Older entries")
	older := regexp.MustCompile(`href="(/console/audit\?[^"]+)"`).FindStringSubmatch(f.see("/console/audit").body)
	contains(t, f.see(strings.ReplaceAll(older[1], "&amp;", "&")), "Ben created room sale")
	f.as(control.Editor)
	lacks(t, f.see("/console/"), "/console/audit", "/console/access")
	f.get("/console/audit").is(t, http.StatusForbidden) // an editor reads the audit log
}

// Tokens are created, shown once, and revoked, by admins alone.
func TestTokens(t *testing.T) {
	f := start(t)
	const at, tokens = "/console/access", "/console/access/tokens"
	page := f.see(at)
	if a := f.sent(page, tokens,
		map[string]string{"name": "ci", "expires_on": "2001-01-01T00:00"}); a.code != http.StatusUnprocessableEntity ||
		!strings.Contains(a.text(), `expires_on must be "never" or a time to come`) {
		t.Errorf("%d %s", a.code, a.text())
	}
	made := f.sent(page, tokens, map[string]string{"name": "<b>ci", "role": "operator"})
	contains(t, made, "The token <b>ci is created.", "vst_")
	value := regexp.MustCompile(`vst_[A-Za-z0-9_-]+`).FindString(made.body)
	if !f.api.server.Good(t.Context(), value) {
		t.Errorf("the token %q is refused", value)
	}
	page = f.see(at)
	contains(t, page, "<b>ci operator", "expires ")
	lacks(t, page, "vst_", "<b>ci")
	revoke := regexp.MustCompile(`action="(/console/access/tokens/[^"]+)"`).FindStringSubmatch(page.body)[1]
	contains(t, f.sent(page, revoke, nil), "The token is revoked.")
	if f.api.server.Good(t.Context(), value) {
		t.Error("the token is still good")
	}
	f.as(control.Editor)
	for _, a := range []answer{
		f.get(at), f.post(tokens, map[string][]string{"name": {"x"}, "role": {"admin"}}),
		f.post(revoke, nil),
	} {
		a.is(t, http.StatusForbidden) // an editor
	}
}

// An operator of some rooms sees these alone, also in streams that others share.
func TestAnOperatorOfSomeRooms(t *testing.T) {
	f := start(t)
	mine, other := f.api.make("mine", 300, 200, nil), f.api.make("other", 300, 200, nil)
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	all, leave := f.listen(server.URL + "/console/stream")
	if got := all(); got[other+".state"] != "Open" || got[mine+".state"] != "Open" {
		t.Fatalf("an admin's stream: %v", got)
	}
	leave()
	f.play(func() { f.who = control.Principal{ID: "u", Name: "Eve", Role: control.Operator, Rooms: []string{mine}} })
	page := f.see("/console/")
	contains(t, page, "mine.example")
	lacks(t, page, "other.example", other)
	some, _ := f.listen(server.URL + "/console/stream")
	if got := some(); got[other+".state"] != "" || got[mine+".state"] != "Open" || got["all.inside"] != "0" {
		t.Errorf("the stream of some rooms: %v", got)
	}
	at := "/console/rooms/" + other
	for _, path := range []string{
		at, at + "/stream", at + "/charts?from=-1h&step=10", at + "/history",
		at + "/history.csv", at + "/events", at + "/rules", at + "/page", at + "/actions/pause",
	} {
		if a := f.get(path); a.code != http.StatusForbidden && a.code != http.StatusNotFound {
			t.Errorf("%s: %d", path, a.code)
		}
	}
	f.see("/console/rooms/" + mine)
	f.see("/console/fleet")
}

// Webhooks are created with their secret shown once, tested, disabled and deleted, by admins alone.
func TestWebhooks(t *testing.T) {
	f := start(t)
	f.api.make("sale", 2000, 200, nil)
	const at = "/console/webhooks"
	page := f.see(at)
	contains(t, page, "Nobody is told", "room.paused")
	if a := f.sent(page, at, map[string]string{
		"name": "pager", "url": "ftp://x",
		"kinds": "room.paused",
	}); a.code != http.StatusUnprocessableEntity ||
		!strings.Contains(a.body, `aria-invalid="true"`) ||
		!strings.Contains(a.body, `value="room.paused" checked`) || strings.Contains(a.body, `value="room.resumed" checked`) {
		t.Errorf("a bad URL: %d %s", a.code, a.text())
	}
	made := f.sent(page, at, map[string]string{
		"name": "pager<b>", "url": "https://hooks.example/secretpath",
		"kinds": "room.paused, alarm.raised", "rooms": "sale",
	})
	contains(t, made, "The webhook pager<b> is created.", "whsec_",
		"to hooks.example; only room.paused, alarm.raised; only for sale")
	two := f.post(at, map[string][]string{
		"name": {"two"}, "url": {"https://two.example"},
		"kinds": {"room.resumed", "limit.changed"},
	})
	contains(t, two, "to two.example; only room.resumed, limit.changed")
	contains(t, f.press(two,
		regexp.MustCompile(`(?s)<h3>two .*?action="(/console/webhooks/[^"]+)"`).FindStringSubmatch(two.body)[1], "do",
		"delete"), "The webhook is deleted")
	page = f.see(at)
	lacks(t, page, "whsec_", "secretpath", "<b>")
	one := regexp.MustCompile(`action="(/console/webhooks/[^"]+)"`).FindStringSubmatch(page.body)[1]
	contains(t, f.press(page, one, "do", "test"), "The receiver did not take the test: the receiver answered 503")
	page = f.press(page, one, "do", "off")
	contains(t, page, "The webhook is disabled.", "Disabled: an operator turned it off")
	page = f.press(page, one, "do", "on")
	contains(t, page, "The webhook is enabled.")
	contains(t, f.press(page, one, "do", "delete"), "The webhook is deleted", "Nobody is told")
	f.as(control.Editor)
	for _, a := range []answer{
		f.get(at), f.post(at, nil), f.post(one, map[string][]string{"do": {"delete"}}),
		f.post(one, map[string][]string{"do": {"test"}}),
	} {
		if a.code == http.StatusOK || a.code == http.StatusSeeOther {
			t.Errorf("an editor: %d", a.code)
		}
	}
}

// login opens a session of a new token and returns its cookie.
func (f *fixture) login(role control.Role, rooms ...string) *http.Cookie {
	f.Helper()
	var made api.Token
	testkit.NoError(f, f.api.call(http.MethodPost, "/vestibule/tokens", map[string]any{
		"name": string(role), "role": role,
		"rooms": rooms,
	}, &made))
	path, _, err := f.logins.Link(f.Context(), made.Id)
	testkit.NoError(f, err)
	w := httptest.NewRecorder()
	f.logins.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, http.NoBody))
	if w.Code != http.StatusSeeOther {
		f.Fatal(w.Code, w.Body)
	}
	return w.Result().Cookies()[0]
}

// stored returns all documents but those of sessions.
func (f *fixture) stored() map[string]string {
	f.docs.Lock()
	defer f.docs.Unlock()
	out := map[string]string{}
	for key, data := range f.docs.Data {
		out[key] = string(data)
	}
	return out
}

// objects gives a room events, rules and a second revision, and returns the IDs of the newest objects.
func (f *fixture) objects(id string) map[string]string {
	f.Helper()
	path := "/zones/" + control.Zone + "/waiting_rooms/" + id
	of := map[string]string{"{room}": id, "{event}": f.plan(id), "{session}": "cleo"}
	testkit.Must(f.docs.Put(f.Context(), personKeys+"cleo", []byte("{}"), 0))(f)
	testkit.NoError(f, f.api.call(http.MethodPatch, path, map[string]any{"total_active_users": 1990}, nil))
	var list []map[string]any
	for key, path := range map[string]string{
		"{rule}": path + "/rules", "{webhook}": "/vestibule/webhooks", "{token}": "/vestibule/tokens",
		"{revision}": "/vestibule/rooms/" + id + "/revisions",
	} {
		testkit.NoError(f, f.api.call(http.MethodGet, path, nil, &list))
		if of[key] = fmt.Sprint(list[0]["id"]); key == "{revision}" {
			of[key] = fmt.Sprintf("%.0f", list[1]["revision"])
		}
	}
	return of
}

// fill replaces the names of objects by their IDs.
func fill(path string, of map[string]string) string {
	for key, value := range of {
		path = strings.ReplaceAll(path, key, value)
	}
	return path
}

// pageOf returns the address of the page with the form that goes to a path.
func pageOf(path string, form url.Values) string {
	parent := path[:strings.LastIndexByte(path, '/')]
	switch do := form.Get("do"); {
	case strings.HasPrefix(path, "/console/access"):
		return "/console/access"
	case strings.HasPrefix(path, "/console/webhooks"):
		return "/console/webhooks"
	case do == "up" || do == "down":
		return parent
	case strings.HasSuffix(path, "/events"):
		return path + "/new"
	}
	return path
}

// Every route that changes something refuses a request without the role, of another site, with an expired session, of
// a room outside the token's, and one that was sent before.
func TestEveryChangeIsRefused(t *testing.T) {
	type change struct {
		path   string // with {room}, {rule}, {event}, {revision}, {token} and {webhook}
		needs  control.Role
		form   url.Values
		before map[string]any // controls
		reads  bool           // it changes nothing
	}
	const at = "/console/rooms/{room}"
	do := func(what string) url.Values { return url.Values{"do": {what}} }
	rule, tomorrow := url.Values{"expression": {"ssl"}}, time.Now().Add(24*time.Hour)
	event := url.Values{
		"name": {"x"}, "event_start_time": {tomorrow.Format("2006-01-02T15:04")},
		"event_end_time": {tomorrow.Add(time.Hour).Format("2006-01-02T15:04")},
	}
	paused, message := map[string]any{"pause": map[string]any{}}, map[string]any{"message": map[string]any{"text": "x"}}
	action := func(name string) string { return at + "/actions/" + name }
	all := map[string][]change{
		"POST /console/webhooks": {{
			"/console/webhooks", control.Admin,
			url.Values{"name": {"x"}, "url": {"https://hooks.example/y"}},
			nil, false,
		}},
		"POST /console/webhooks/{webhook}": {
			{"/console/webhooks/{webhook}", control.Admin, do("test"), nil, true},
			{"/console/webhooks/{webhook}", control.Admin, do("off"), nil, false},
			{"/console/webhooks/{webhook}", control.Admin, do("delete"), nil, false},
		},
		"POST /console/access/tokens": {{
			"/console/access/tokens", control.Admin,
			url.Values{"name": {"x"}, "role": {"viewer"}},
			nil, false,
		}},
		"POST /console/access/tokens/{token}":     {{"/console/access/tokens/{token}", control.Admin, nil, nil, false}},
		"POST /console/access/sessions/{session}": {{"/console/access/sessions/{session}", control.Admin, nil, nil, false}},
		"POST " + at + "/rules":                   {{at + "/rules", control.Editor, rule, nil, false}},
		"POST " + at + "/rules/{rule}": {
			{at + "/rules/{rule}", control.Editor, rule, nil, false},
			{at + "/rules/{rule}", control.Editor, do("down"), nil, false},
			{at + "/rules/{rule}", control.Editor, do("delete"), nil, false},
		},
		"POST " + at + "/events": {{at + "/events", control.Editor, event, nil, false}},
		"POST " + at + "/events/{event}": {
			{at + "/events/{event}", control.Editor, event, nil, false}, {
				at + "/events/{event}", control.Editor, do("delete"),
				nil, false,
			},
		},
		"POST " + at + "/page": {
			{at + "/page", control.Operator, url.Values{"html": {"<p>x"}}, nil, true},
			{at + "/page", control.Operator, do("current"), nil, true},
			{at + "/page", control.Operator, do("builtin"), nil, true},
			{at + "/page", control.Editor, url.Values{"do": {"publish"}, "html": {"<p>x"}}, nil, false},
		},
		"POST " + at + "/changes/{revision}": {{at + "/changes/{revision}", control.Editor, nil, nil, false}},
		"POST " + at + "/actions/{name}": {
			{action("pause"), control.Operator, nil, nil, false},
			{action("resume"), control.Operator, nil, paused, false},
			{action("message"), control.Operator, url.Values{"message": {"x"}}, nil, false},
			{action("end-message"), control.Operator, nil, message, false},
			{action("release"), control.Operator, url.Values{"people": {"5"}}, paused, false},
			{action("limits"), control.Operator, url.Values{"total": {"9"}, "minutes": {"5"}}, nil, false},
			{action("limits"), control.Editor, url.Values{"total": {"9"}, "for": {"always"}}, nil, false},
			{action("end-limits"), control.Operator, nil, nil, false},
			{action("end-queue"), control.Operator, nil, map[string]any{"queue_all": map[string]any{}}, false},
		},
	}
	for name, route := range map[string][]string{
		"the table":   slices.Collect(maps.Keys(all)),
		"the console": console.Changing(),
	} {
		for _, pattern := range route {
			if all[strings.ReplaceAll(pattern, "{id}", "{room}")] == nil ||
				!slices.Contains(console.Changing(), strings.ReplaceAll(pattern, "{room}", "{id}")) {
				t.Errorf("only %s has the route %s", name, pattern)
			}
		}
	}
	below := map[control.Role]control.Role{
		control.Operator: control.Viewer, control.Editor: control.Operator,
		control.Admin: control.Editor,
	}
	for route, changes := range all {
		for _, c := range changes {
			t.Run(route+" "+c.path+" "+c.form.Encode(), func(t *testing.T) {
				f := start(t)
				id := f.sale()
				of := f.objects(id)
				if c.before != nil {
					f.api.patch(id, c.before)
				}
				c.path = fill(c.path, of)
				form := func() url.Values {
					if !strings.Contains(c.path, "/actions/") {
						return f.formWith(f.see(pageOf(c.path, c.form)), c.path, c.form)
					}
					out := f.see(c.path+"?"+c.form.Encode()).form(t, c.path, "seen").fields
					out.Set("reason", "x")
					return out
				}
				good, low, outside := f.login(c.needs), f.login(below[c.needs]),
					f.login(c.needs, f.api.make("elsewhere", 10, 10, nil))
				send := func(cookie *http.Cookie, form url.Values, header ...string) int {
					r := posted(c.path, form)
					r.AddCookie(cookie)
					for i := 0; i < len(header); i += 2 {
						r.Header.Set(header[i], header[i+1])
					}
					return f.do(r).code
				}
				before := f.stored()
				refused := func(what string, code int, codes ...int) {
					t.Helper()
					if !slices.Contains(codes, code) || !maps.Equal(f.stored(), before) {
						t.Errorf("%s: %d, changed: %v", what, code, !maps.Equal(f.stored(), before))
					}
				}
				refused("without the role", send(low, form()), http.StatusForbidden)
				refused("of another site", send(good, form(), "Sec-Fetch-Site", "cross-site"), http.StatusForbidden)
				refused("of another site in an older browser", send(good, form(), "Sec-Fetch-Site", "", "Origin",
					"https://evil.example"), http.StatusForbidden)
				refused("of a room outside the token's", send(outside, form()), http.StatusForbidden, http.StatusNotFound)
				f.play(func() { f.later = 31 * time.Minute })
				refused("with an expired session", send(good, form()), http.StatusSeeOther)
				f.play(func() { f.later = 0 })
				old := form()
				old.Set("once", "1.x")
				refused("of an old page", send(good, old), http.StatusConflict)
				sent := form()
				if code := send(good, sent); code != http.StatusSeeOther && code != http.StatusOK ||
					maps.Equal(f.stored(), before) != c.reads {
					t.Errorf("the allowed one: %d", code)
				}
				before = f.stored()
				refused("sent before", send(good, sent), http.StatusConflict)
			})
		}
	}
}

// Sessions of persons are listed, and ended with an entry of the audit log.
func TestSessionsOfPersons(t *testing.T) {
	f := start(t)
	lacks(t, f.see("/console/access"), "Sessions of persons")
	testkit.Must(f.docs.Put(t.Context(), personKeys+"cleo", []byte("{}"), 0))(t)
	const at = "/console/access/sessions/cleo"
	page := f.see("/console/access")
	contains(t, page, "Sessions of persons", "Cleo editor", "logged in just now")
	contains(t, f.sent(page, at, map[string]string{"reason": "left the company"}), "The session is ended.")
	contains(t, f.see("/console/audit"), "Ana ended the session of Cleo", "left the company")
	f.post(at, nil).is(t, http.StatusNotFound)
}

// A stream ends within seconds with the session that it belongs to.
func TestAStreamEndsWithItsSession(t *testing.T) {
	f := start(t)
	id := f.api.make("sale", 2000, 200, nil)
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	r := testkit.Must(http.NewRequestWithContext(testkit.Within(t), http.MethodGet,
		server.URL+"/console/rooms/"+id+"/stream", http.NoBody))(t)
	res := testkit.Must(http.DefaultTransport.RoundTrip(r))(t)
	defer res.Body.Close()
	f.as(control.Viewer)
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Errorf("the stream did not end: %v", err)
	}
}

// failing is an API that refuses some calls.
type failing struct {
	console.API
	refuses func(method, path string) bool
}

func (x failing) Call(
	ctx context.Context, who control.Principal, remote, method, path string, body, result any,
) error {
	if x.refuses(method, path) {
		return &control.RefusalError{Status: http.StatusServiceUnavailable}
	}
	return x.API.Call(ctx, who, remote, method, path, body, result)
}

// A token or a secret that was made is shown, also if nothing else can be read any more.
func TestWhatWasMadeIsShownOnce(t *testing.T) {
	f := start(t)
	f.API = failing{f.API, func(method, _ string) bool { return method == http.MethodGet }}
	a := f.post("/console/access/tokens", url.Values{"name": {"robot"}, "role": {"viewer"}})
	a.is(t, http.StatusOK)
	contains(t, a, "The token robot is created.", "vst_", "The lists cannot be read now.")
	a = f.post("/console/webhooks", url.Values{"name": {"pager"}, "url": {"https://hooks.example/x"}})
	a.is(t, http.StatusOK)
	contains(t, a, "The webhook pager is created.", "whsec_", "The lists cannot be read now.")
	f.get("/console/access").is(t, http.StatusServiceUnavailable)
}

// A form of somebody who can change nothing is refused before it is kept as one that was sent.
func TestFormsOfViewersAreNotKept(t *testing.T) {
	f := start(t).as(control.Viewer)
	f.post("/console/access/tokens", url.Values{"name": {"robot"}}).is(t, http.StatusForbidden)
	if kept, err := f.logins.Docs.List(t.Context(), "form.*"); err != nil || len(kept) > 0 {
		t.Errorf("%v, %v", kept, err)
	}
	f.as(control.Operator).post("/console/rooms/x/actions/pause", nil)
	if kept, err := f.logins.Docs.List(t.Context(), "form.*"); err != nil || len(kept) != 1 {
		t.Errorf("of an operator: %v, %v", kept, err)
	}
}
