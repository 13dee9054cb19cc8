package access

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"vestibule/internal/core/wire"
	"vestibule/internal/global/control"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/lab/testkit/fakes"
)

// fixture is an access over a store in memory, with tokens and a time that tests change.
type fixture struct {
	testing.TB
	*Access
	docs *hookedStore

	mu     sync.Mutex
	now    time.Time
	tokens map[string]control.Principal
}

// hookedStore is a store that lets something happen before its next deletion.
type hookedStore struct {
	*fakes.Documents
	before func()
}

func (s *hookedStore) Delete(ctx context.Context, key string, revision uint64) error {
	if before := s.before; before != nil {
		s.before = nil
		before()
	}
	return s.Documents.Delete(ctx, key, revision)
}

var _ wire.DocumentStore = (*hookedStore)(nil)

func start(t testing.TB, provider *OIDCConfig) *fixture {
	t.Helper()
	f := &fixture{
		TB: t, docs: &hookedStore{Documents: fakes.NewDocuments()}, now: time.Now().Truncate(time.Second),
		tokens: map[string]control.Principal{
			"a": {ID: "a", Name: "ana", Role: control.Operator, Rooms: []string{"1"}},
			"b": {ID: "b", Name: "ben", Role: control.Viewer},
		},
	}
	f.Access = New(Options{
		Docs: f.docs, OIDC: provider, Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.now
		},
		Token: func(_ context.Context, id string) (control.Principal, bool, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			who, ok := f.tokens[id]
			return who, ok, f.docs.Down
		},
	})
	return f
}

// pass lets time pass.
func (f *fixture) pass(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.now.Add(d)
}

// revoke revokes a token.
func (f *fixture) revoke(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.tokens, id)
}

// link makes a link of a token.
func (f *fixture) link(token string) string {
	f.Helper()
	path, expires, err := f.Link(f.Context(), token)
	if err != nil || !expires.After(f.now) {
		f.Fatalf("%s, until %v: %v", path, expires, err)
	}
	return path
}

// client keeps cookies.
type client struct {
	*fixture
	secure bool // over TLS
	jar    map[string]string
}

func (f *fixture) client() *client { return &client{fixture: f, jar: map[string]string{}} }

// again is another client with the same cookies.
func (b *client) again() *client {
	other := *b
	other.jar = maps.Clone(b.jar)
	return &other
}

func (b *client) request(method, path string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, path, http.NoBody)
	if r.TLS = nil; b.secure {
		r.TLS = &tls.ConnectionState{}
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	for name, value := range b.jar {
		r.AddCookie(&http.Cookie{Name: name, Value: value}) //nolint:gosec // a request's
	}
	return r
}

func (b *client) do(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	b.ServeHTTP(w, r)
	for _, c := range w.Result().Cookies() {
		if b.jar[c.Name] = c.Value; c.MaxAge < 0 {
			delete(b.jar, c.Name)
		}
	}
	return w
}

func (b *client) get(path string) *httptest.ResponseRecorder {
	return b.do(b.request(http.MethodGet, path))
}

func (b *client) post(path string) *httptest.ResponseRecorder {
	return b.do(b.request(http.MethodPost, path))
}

func (b *client) who() (control.Principal, bool) { return b.Who(b.request(http.MethodGet, home)) }

// in reports whether the client has a valid session.
func (b *client) in() bool {
	_, ok := b.who()
	return ok
}

// login is a client with a session of a token.
func (f *fixture) login(token string) *client {
	f.Helper()
	b := f.client()
	if w := b.post(f.link(token)); w.Code != http.StatusSeeOther || w.Header().Get("Location") != home || !b.in() {
		f.Fatalf("%d %s", w.Code, w.Body)
	}
	return b
}

// encoded returns v as JSON.
func encoded(t testing.TB, v any) []byte {
	t.Helper()
	return testkit.Must(json.Marshal(v))(t)
}

// A link opens a session with the token's role and rooms. Looking at it does not use it up; confirming does.
func TestALinkOpensASession(t *testing.T) {
	f := start(t, nil)
	path, b := f.link("a"), f.client()
	for range 3 {
		if w := b.get(path); w.Code != http.StatusOK || b.in() || !strings.Contains(w.Body.String(), "ana") {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	if w := b.post(path); w.Code != http.StatusSeeOther {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if who, ok := b.who(); !ok || who.ID != "a" || who.Role != control.Operator || len(who.Rooms) != 1 {
		t.Errorf("%+v, %v", who, ok)
	}
	other := f.client()
	for _, w := range []*httptest.ResponseRecorder{other.get(path), other.post(path)} {
		if w.Code != http.StatusGone || other.in() {
			t.Errorf("again: %d", w.Code)
		}
	}
}

func TestLinksThatOpenNothing(t *testing.T) {
	for what, do := range map[string]func(f *fixture, path string) string{
		"unknown":          func(_ *fixture, path string) string { return path + "x" },
		"expired":          func(f *fixture, path string) string { f.pass(linkTime); return path },
		"token is revoked": func(f *fixture, path string) string { f.revoke("a"); return path },
	} {
		f := start(t, nil)
		path, b := do(f, f.link("a")), f.client()
		if w := b.post(path); w.Code != http.StatusGone || b.in() {
			t.Errorf("%s: %d, in: %v", what, w.Code, b.in())
		}
	}
}

// Of two requests with one link, the first to delete the link gets in.
func TestALinkIsUsedOnceByTwoAtATime(t *testing.T) {
	f := start(t, nil)
	path, a, b := f.link("a"), f.client(), f.client()
	f.docs.before = func() { a.post(path) }
	if w := b.post(path); w.Code != http.StatusGone || b.in() || !a.in() {
		t.Errorf("%d, in: %v and %v", w.Code, a.in(), b.in())
	}
}

func TestLinksAreBounded(t *testing.T) {
	f := start(t, nil)
	for range maxLinks {
		f.link("a")
	}
	if _, _, err := f.Link(t.Context(), "a"); !errors.Is(err, control.ErrManyLinks) {
		t.Errorf("one more: %v", err)
	}
}

func TestSessionsEnd(t *testing.T) {
	for what, c := range map[string]struct {
		do   func(f *fixture, b *client)
		ends bool
	}{
		"nothing":            {func(*fixture, *client) {}, false},
		"29 minutes":         {func(f *fixture, _ *client) { f.pass(29 * time.Minute) }, false},
		"30 minutes":         {func(f *fixture, _ *client) { f.pass(30 * time.Minute) }, true},
		"an hour, in use":    {func(f *fixture, b *client) { f.use(b, 3) }, false},
		"half a day, in use": {func(f *fixture, b *client) { f.use(b, 36) }, true},
		"the token ends":     {func(f *fixture, _ *client) { f.revoke("a") }, true},
		"another token ends": {func(f *fixture, _ *client) { f.revoke("b") }, false},
		"logout":             {func(_ *fixture, b *client) { b.again().post("/logout") }, true},
		"the store is away":  {func(f *fixture, b *client) { b.in(); f.docs.Down = errors.New("away") }, false},
		"and stays away long": {func(f *fixture,
			b *client,
		) {
			b.in()
			f.docs.Down = errors.New("away")
			f.pass(31 * time.Minute)
		}, true},
	} {
		f := start(t, nil)
		b := f.login("a")
		if c.do(f, b); b.in() == c.ends {
			t.Errorf("%s: the session ends: %v, want %v", what, !c.ends, c.ends)
		}
	}
}

// use uses a session every 20 minutes.
func (f *fixture) use(b *client, times int) {
	for range times {
		f.pass(20 * time.Minute)
		b.in()
	}
}

// A session that another global wrote is valid at this one.
func TestAnyGlobalServesASession(t *testing.T) {
	f := start(t, nil)
	b := f.login("a")
	other := New(Options{Docs: f.docs, Log: f.Access.Log, Now: f.Now, Token: f.Token})
	if who, ok := other.Who(b.request(http.MethodGet, home)); !ok || who.ID != "a" {
		t.Errorf("%+v, %v", who, ok)
	}
}

// A form is used once at all globals. Logins delete the forms that are too old to be sent.
func TestAFormIsUsedOnce(t *testing.T) {
	f := start(t, nil)
	other := New(Options{Docs: f.docs, Log: f.Access.Log, Now: f.Now, Token: f.Token})
	for i, a := range []*Access{f.Access, other, f.Access} {
		if once, err := a.Once(t.Context(), "x"); err != nil || once != (i == 0) {
			t.Errorf("use %d: %v, %v", i+1, once, err)
		}
	}
	for _, c := range []struct {
		pass time.Duration
		want int
	}{{12 * time.Hour, 1}, {2 * time.Hour, 0}} {
		f.pass(c.pass)
		f.login("a")
		if forms, err := f.docs.List(t.Context(), formKeys+"*"); err != nil || len(forms) != c.want {
			t.Errorf("%d forms, %v, want %d", len(forms), err, c.want)
		}
	}
	f.docs.Down = errors.New("down")
	if once, err := f.Once(t.Context(), "y"); once || err == nil {
		t.Errorf("without the store: %v, %v", once, err)
	}
}

// The cookie is bound to the host and sent by no other site, and no script reads it. Without TLS, on a loopback
// address, it has a plain name.
func TestTheCookie(t *testing.T) {
	f := start(t, nil)
	for secure, name := range map[bool]string{true: "__Host-vestibule", false: "vestibule_session"} {
		b := f.client()
		b.secure = secure
		cookies := b.post(f.link("a")).Result().Cookies()
		if len(cookies) != 1 {
			t.Fatal(cookies)
		}
		if c := cookies[0]; c.Name != name || c.Secure != secure || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode ||
			c.Path != "/" || c.Domain != "" {
			t.Errorf("TLS %v: %s", secure, c)
		}
	}
}

// The store has no secret that lets anybody in.
func TestTheStoreLetsNobodyIn(t *testing.T) {
	f := start(t, nil)
	b := f.login("a")
	secrets := []string{b.jar["vestibule_session"], strings.TrimPrefix(f.link("a"), linkPath)}
	for key, data := range f.docs.Data {
		for _, s := range secrets {
			if s == "" || strings.Contains(key+string(data), s) {
				t.Errorf("%s has %q: %s", key, s, data)
			}
		}
	}
}

// A session is written once a minute at most, however often it is used.
func TestSessionsAreWrittenSeldom(t *testing.T) {
	f := start(t, nil)
	b := f.login("a")
	before := f.docs.Puts
	for range 50 {
		b.in()
	}
	if f.docs.Puts != before {
		t.Errorf("%d writes", f.docs.Puts-before)
	}
	f.pass(seenEvery)
	for range 50 {
		b.in()
	}
	if f.docs.Puts != before+1 {
		t.Errorf("%d writes after a minute", f.docs.Puts-before)
	}
}

func TestPagesAreStrict(t *testing.T) {
	f := start(t, nil)
	for _, w := range []*httptest.ResponseRecorder{
		f.client().get("/login"), f.client().get(f.link("a")),
		f.client().get("/login/unknown"),
	} {
		h, page := w.Header(), w.Body.String()
		for name, want := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cache-Control": "no-store",
			"Content-Type":  "text/html; charset=utf-8",
		} {
			if got := h.Get(name); got != want {
				t.Errorf("%s: %q", name, got)
			}
		}
		if strings.Contains(page, "<script") || strings.Contains(page, "style=") || !strings.HasSuffix(page, "</html>\n") {
			t.Errorf("%s", page)
		}
	}
}

func TestWhereALoginLeads(t *testing.T) {
	f := start(t, nil)
	b := f.login("a")
	for next, want := range map[string]string{
		"": home, "/console/rooms/7?tab=x": "/console/rooms/7?tab=x", "//evil.example/console/": home,
		"https://evil.example/console/": home,
		"/console/\\..\\evil":           home, "/logout": home, "/console/\r\nSet-Cookie: a=b": home,
		"javascript:alert(1)": home,
	} {
		w := b.get("/login?next=" + url.QueryEscape(next))
		if to := w.Header().Get("Location"); w.Code != http.StatusSeeOther || to != want {
			t.Errorf("next %q leads to %q, want %q", next, to, want)
		}
	}
}

// Other sites can send nothing in the name of an operator.
func TestRequestsOfOtherSites(t *testing.T) {
	f := start(t, nil)
	b, path := f.login("a"), f.link("b")
	for _, path := range []string{"/logout", path} {
		for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://evil.example"}} {
			if w := b.do(b.request(http.MethodPost, path, header...)); w.Code != http.StatusForbidden {
				t.Errorf("%s with %v: %d", path, header, w.Code)
			}
		}
	}
	if who, ok := b.who(); !ok || who.ID != "a" {
		t.Errorf("the session is of %+v now", who)
	}
}

func TestTheStoreIsAway(t *testing.T) {
	f := start(t, nil)
	path, b := f.link("a"), f.client()
	f.docs.Down = errors.New("away")
	for _, w := range []*httptest.ResponseRecorder{b.get(path), b.post(path)} {
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || b.in() {
			t.Errorf("%d", w.Code)
		}
	}
	f.docs.Down = nil
	if b.post(path); !b.in() {
		t.Error("not in when the store is back")
	}
}
