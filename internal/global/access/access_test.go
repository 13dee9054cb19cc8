package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"vestibule/internal/global/audit"
	"vestibule/internal/global/control"
	"vestibule/internal/lab/testkit"
)

// site is an access behind a listener, with a clock of its own.
type site struct {
	*testing.T
	*Access
	docs  *testkit.Documents
	audit *testkit.Stream
	url   string

	mu  sync.Mutex
	now time.Time
}

func newSite(t *testing.T, o Options) *site {
	t.Helper()
	s := &site{T: t, docs: testkit.NewDocuments(), audit: &testkit.Stream{}, now: time.Now()}
	o.Name, o.Docs, o.Journal, o.Log, o.Now = "global-1", s.docs, audit.NewJournal(s.audit), slog.New(slog.DiscardHandler), s.time
	s.Access = New(o)
	s.hasher = newHasher()
	mux := http.NewServeMux()
	mux.HandleFunc("/console/", func(w http.ResponseWriter, r *http.Request) {
		who, ok := s.Who(r)
		if !ok {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		fmt.Fprintf(w, "%s %s %v", who.Name, who.Role, who.Rooms)
	})
	mux.Handle("/", s.Access)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *site) time() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *site) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
}

// browser is a client with cookies that follows no redirects.
type browser struct {
	*site
	http.Client
}

func (s *site) browser() *browser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.Fatal(err)
	}
	return &browser{s, http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// do sends a request and returns status, body and where it leads.
func (b *browser) do(method, path string, form url.Values, header ...string) (status int, body, to string) {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), method, b.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		b.Fatal(err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := b.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer res.Body.Close()
	out, err := io.ReadAll(res.Body)
	b.must(err)
	return res.StatusCode, string(out), res.Header.Get("Location")
}

func (b *browser) want(status int, method, path string, form url.Values, header ...string) string {
	b.Helper()
	got, body, _ := b.do(method, path, form, header...)
	if got != status {
		b.Fatalf("%s %s: status %d, want %d: %s", method, path, got, status, faultOf(body))
	}
	return body
}

var fault = regexp.MustCompile(`role="alert">([^<]*)<`)

func faultOf(body string) string {
	if m := fault.FindStringSubmatch(body); m != nil {
		return html.UnescapeString(m[1])
	}
	return body[:min(len(body), 200)]
}

// inside reports whether the browser has a session.
func (b *browser) inside() bool {
	b.Helper()
	status, _, _ := b.do(http.MethodGet, "/console/", nil)
	return status == http.StatusOK
}

const password = "correct horse battery"

func passwords(name, text string) url.Values {
	return url.Values{"name": {name}, "password": {text}, "again": {text}}
}

func (b *browser) login(name, text, code string) (status int) {
	b.Helper()
	status, _, _ = b.do(http.MethodPost, "/login", url.Values{"name": {name}, "password": {text}, "code": {code}})
	return status
}

// admin makes the first admin, Ana, and returns her browser.
func (s *site) admin() *browser {
	s.Helper()
	path, err := s.AdminLink(s.Context(), true)
	if err != nil || path == "" {
		s.Fatal(path, err)
	}
	b := s.browser()
	b.want(http.StatusSeeOther, http.MethodPost, path, passwords("Ana", password))
	return b
}

// invited makes another user with a password.
func (s *site) invited(name string, role control.Role, rooms ...string) *browser {
	s.Helper()
	path, err := s.Invite(s.Context(), name, role, rooms)
	if err != nil {
		s.Fatal(err)
	}
	b := s.browser()
	b.want(http.StatusSeeOther, http.MethodPost, path, passwords("", password))
	return b
}

func TestTheFirstAdmin(t *testing.T) {
	s := newSite(t, Options{})
	path, err := s.AdminLink(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	b := s.browser()
	if body := b.want(http.StatusOK, http.MethodGet, path, nil); !strings.Contains(body, "You become an admin") {
		t.Error(body)
	}
	for _, c := range []struct {
		form url.Values
		want string
	}{
		{passwords("Ana", "short"), "at least 12"},
		{passwords("ana ana ana ana", "ana ana ana ana"), "The name must be"},
		{passwords("Ana", strings.Repeat("a", 20)), "too easy"},
		{passwords("Ana", strings.Repeat("ab", 200)), "at most 256"},
		{url.Values{"name": {"Ana"}, "password": {password}, "again": {"another one, longer"}}, "differ"},
		{passwords("", "short"), "The name must be 1 to 64 letters, digits or ._@+- and begin with a letter or digit. The password must have"},
	} {
		if got := faultOf(b.want(http.StatusUnprocessableEntity, http.MethodPost, path, c.form)); !strings.Contains(got, c.want) {
			t.Errorf("%v: %q, want %q", c.form, got, c.want)
		}
	}
	b.want(http.StatusSeeOther, http.MethodPost, path, passwords("Ana", password))
	if body := b.want(http.StatusOK, http.MethodGet, "/console/", nil); body != "ana admin []" {
		t.Error(body)
	}
	b.want(http.StatusGone, http.MethodPost, path, passwords("Eve", password))
	b.want(http.StatusGone, http.MethodGet, path, nil)
	if path, err := s.AdminLink(t.Context(), true); path != "" || err != nil {
		t.Errorf("another first admin: %q, %v", path, err)
	}
	if status := s.browser().login("ANA", password, ""); status != http.StatusSeeOther {
		t.Errorf("login: %d", status)
	}
}

func TestALinkExpires(t *testing.T) {
	s := newSite(t, Options{})
	path, err := s.AdminLink(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	s.pass(recoverFor)
	s.browser().want(http.StatusGone, http.MethodPost, path, passwords("Ana", password))
}

// Whoever may write into the data folder gets in again, also without the second factor.
func TestRecovery(t *testing.T) {
	s := newSite(t, Options{})
	b := s.admin()
	s.factor(b)
	path, err := s.AdminLink(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	s.browser().want(http.StatusSeeOther, http.MethodPost, path, passwords("ana", "another long password"))
	if b.inside() {
		t.Error("the sessions of the old password continue")
	}
	if status := s.browser().login("ana", "another long password", ""); status != http.StatusSeeOther {
		t.Errorf("login: %d", status)
	}
}

var secretOf = regexp.MustCompile(`<code class="secret">([A-Z2-7]+)<`)

// factor sets up the second factor of a browser's user, and returns its secret and the recovery codes.
func (s *site) factor(b *browser) (secret string, codes []string) {
	s.Helper()
	body := b.want(http.StatusOK, http.MethodPost, "/account/factor", url.Values{"current": {password}})
	m := secretOf.FindStringSubmatch(body)
	if m == nil || !strings.Contains(body, "data:image/png;base64,") {
		s.Fatal(body)
	}
	b.want(http.StatusUnprocessableEntity, http.MethodPost, "/account/factor/confirm", url.Values{"code": {"000000"}})
	body = b.want(http.StatusOK, http.MethodPost, "/account/factor/confirm", url.Values{"code": {s.code(m[1])}})
	for _, code := range regexp.MustCompile(`<li><code>([a-z2-7-]+)<`).FindAllStringSubmatch(body, -1) {
		codes = append(codes, code[1])
	}
	if len(codes) != recoveryCodes {
		s.Fatalf("%d recovery codes: %s", len(codes), body)
	}
	return m[1], codes
}

func (s *site) code(secret string) string {
	s.Helper()
	code, err := totp(secret, s.time().Unix()/30)
	if err != nil {
		s.Fatal(err)
	}
	return code
}

func TestTheSecondFactor(t *testing.T) {
	s := newSite(t, Options{})
	ana := s.admin()
	ana.want(http.StatusUnauthorized, http.MethodPost, "/account/factor", url.Values{"current": {"wrong"}})
	secret, codes := s.factor(ana)
	s.pass(time.Minute)
	for _, c := range []struct {
		what, code string
		status     int
	}{
		{"none", "", http.StatusUnauthorized},
		{"a wrong one", "123456", http.StatusUnauthorized},
		{"the right one", s.code(secret), http.StatusSeeOther},
		{"the same again", s.code(secret), http.StatusUnauthorized},
		{"a recovery code", strings.ToUpper(codes[3]), http.StatusSeeOther},
		{"the same again", codes[3], http.StatusUnauthorized},
		{"another, without hyphens", strings.ReplaceAll(codes[4], "-", " "), http.StatusSeeOther},
	} {
		if status := s.browser().login("ana", password, c.code); status != c.status {
			t.Errorf("%s: %d, want %d", c.what, status, c.status)
		}
	}
	ana.want(http.StatusSeeOther, http.MethodPost, "/account/factor/remove", url.Values{"current": {password}})
	if status := s.browser().login("ana", password, ""); status != http.StatusSeeOther {
		t.Errorf("without it: %d", status)
	}
}

// RFC 6238, appendix B, with six digits.
func TestCodesOfTheRFC(t *testing.T) {
	secret := base32Plain.EncodeToString([]byte("12345678901234567890"))
	for at, want := range map[int64]string{59: "287082", 1111111109: "081804", 1111111111: "050471", 1234567890: "005924", 2000000000: "279037", 20000000000: "353130"} {
		if got, err := totp(secret, at/30); got != want || err != nil {
			t.Errorf("%d: %s, want %s, %v", at, got, want, err)
		}
	}
	for _, c := range []struct {
		early time.Duration
		ok    bool
	}{{-61 * time.Second, false}, {-30 * time.Second, true}, {0, true}, {30 * time.Second, true}, {61 * time.Second, false}} {
		code, err := totp(secret, 1111111110/30)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := totpOf(secret, code, time.Unix(1111111110, 0).Add(c.early), 0); ok != c.ok {
			t.Errorf("%v early: %v", c.early, ok)
		}
	}
}

func TestSessionsEnd(t *testing.T) {
	for _, c := range []struct {
		what string
		do   func(s *site, b *browser)
		ends bool
	}{
		{"nothing", func(*site, *browser) {}, false},
		{"29 minutes", func(s *site, _ *browser) { s.pass(29 * time.Minute) }, false},
		{"30 minutes", func(s *site, _ *browser) { s.pass(30 * time.Minute) }, true},
		{"half a day, in use", func(s *site, b *browser) {
			for range 12 * 3 {
				s.pass(20 * time.Minute)
				b.inside()
			}
		}, true},
		{"an hour, in use", func(s *site, b *browser) {
			for range 3 {
				s.pass(20 * time.Minute)
				b.inside()
			}
		}, false},
		{"another role", func(s *site, _ *browser) { s.must(s.Change(s.Context(), "Ben", control.Operator, nil)) }, true},
		{"removal", func(s *site, _ *browser) { s.must(s.Remove(s.Context(), "ben")) }, true},
		{"another password, elsewhere", func(s *site, _ *browser) {
			other := s.browser()
			other.login("ben", password, "")
			other.want(http.StatusSeeOther, http.MethodPost, "/account/password", url.Values{"current": {password}, "password": {"another long one"}, "again": {"another long one"}})
		}, true},
		{"the store is away", func(s *site, b *browser) {
			b.inside()
			s.docs.Down = errors.New("away")
		}, false},
		{"the store is away for long", func(s *site, b *browser) {
			b.inside()
			s.docs.Down = errors.New("away")
			s.pass(31 * time.Minute)
		}, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := newSite(t, Options{})
			s.admin()
			b := s.invited("ben", control.Viewer)
			if !b.inside() {
				t.Fatal("not logged in")
			}
			if c.do(s, b); b.inside() == c.ends {
				t.Errorf("the session ends: %v, want %v", !c.ends, c.ends)
			}
		})
	}
}

func (s *site) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// A cookie that was copied before the logout is worth nothing after it.
func TestAReplayAfterTheLogout(t *testing.T) {
	s := newSite(t, Options{})
	b := s.admin()
	u, err := url.Parse(s.url)
	s.must(err)
	copied := b.Jar.Cookies(u)
	b.want(http.StatusSeeOther, http.MethodPost, "/logout", nil)
	other := s.browser()
	other.Jar.SetCookies(u, copied)
	if b.inside() || other.inside() {
		t.Error("the session continues")
	}
}

func TestCookiesAndHeaders(t *testing.T) {
	s := newSite(t, Options{})
	b := s.admin()
	res, err := b.PostForm(s.url+"/login", url.Values{"name": {"ana"}, "password": {password}})
	s.must(err)
	defer res.Body.Close()
	c := res.Cookies()[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || len(c.Value) < 43 {
		t.Errorf("cookie %+v", c)
	}
	if h := res.Header; !strings.Contains(h.Get("Content-Security-Policy"), "frame-ancestors 'none'") || h.Get("Referrer-Policy") != "no-referrer" || h.Get("Cache-Control") != "no-store" {
		t.Errorf("header %v", h)
	}
	for key := range s.docs.Data {
		if strings.Contains(key, c.Value) {
			t.Errorf("the store has the secret of a session: %s", key)
		}
	}
}

func TestWhereALoginLeads(t *testing.T) {
	s := newSite(t, Options{})
	s.admin()
	for next, want := range map[string]string{
		"": home, "/console/rooms/7?tab=x": "/console/rooms/7?tab=x", "//evil.example/console/": home, "https://evil.example/console/": home,
		"/console/\\..\\evil": home, "/logout": home, "/console/\r\nSet-Cookie: a=b": home, "javascript:alert(1)": home,
	} {
		b := s.browser()
		_, _, to := b.do(http.MethodPost, "/login", url.Values{"name": {"ana"}, "password": {password}, "next": {next}})
		if to != want {
			t.Errorf("next %q leads to %q, want %q", next, to, want)
		}
	}
}

// Other sites can send nothing in the name of a user.
func TestRequestsOfOtherSites(t *testing.T) {
	s := newSite(t, Options{})
	b := s.admin()
	for _, path := range []string{"/login", "/logout", "/account/password", "/account/factor", "/account/factor/confirm", "/account/factor/remove", "/setup/x"} {
		for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://evil.example"}} {
			b.want(http.StatusForbidden, http.MethodPost, path, url.Values{"current": {password}}, header...)
		}
	}
	if !b.inside() {
		t.Error("the session has ended")
	}
}

// Guesses are refused before a password is checked, and a user who logged in before is not locked out.
func TestGuesses(t *testing.T) {
	s := newSite(t, Options{})
	s.admin()
	if status := s.browser().login("ana", password, ""); status != http.StatusSeeOther {
		t.Fatal(status)
	}
	b := s.browser()
	refused := 0
	for i := range 100 {
		switch status := b.login("ben", fmt.Sprint("guess number ", i), ""); status {
		case http.StatusTooManyRequests:
			refused++
		case http.StatusUnauthorized:
		default:
			t.Fatalf("guess %d: %d", i, status)
		}
	}
	if refused != 90 {
		t.Errorf("%d of 100 guesses refused, want 90", refused)
	}
	if status := s.browser().login("ana", password, ""); status != http.StatusSeeOther {
		t.Errorf("a user who logged in from here before: %d", status)
	}
	s.pass(time.Minute)
	if status := b.login("ben", "one more guess", ""); status != http.StatusUnauthorized {
		t.Errorf("a minute later: %d", status)
	}
}

// Two admins that remove each other at the same time: one stays.
func TestTheLastAdminStays(t *testing.T) {
	s := newSite(t, Options{})
	s.admin()
	if err := s.Remove(t.Context(), "ana"); !errors.Is(err, errLastAdmin) {
		t.Errorf("the only admin is removed: %v", err)
	}
	if err := s.Change(t.Context(), "ana", control.Viewer, nil); !errors.Is(err, errLastAdmin) {
		t.Errorf("the only admin becomes a viewer: %v", err)
	}
	if err := s.Change(t.Context(), "ana", control.Admin, []string{"7"}); !errors.Is(err, errLastAdmin) {
		t.Errorf("the only admin has one room: %v", err)
	}
	if _, err := s.Invite(t.Context(), "cleo", control.Admin, nil); err != nil { // has no password
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), "ana"); !errors.Is(err, errLastAdmin) {
		t.Errorf("the only admin with a password is removed: %v", err)
	}
	for range 20 {
		s.invited("ben", control.Admin)
		var both sync.WaitGroup
		errs := make([]error, 2)
		both.Go(func() { errs[0] = s.Remove(t.Context(), "ana") })
		both.Go(func() { errs[1] = s.Change(t.Context(), "ben", control.Viewer, nil) })
		both.Wait()
		b, _, err := s.store.read(t.Context())
		if err != nil || b.admins() != 1 || (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("%d admins, %v, %v", b.admins(), errs, err)
		}
		if errs[0] == nil { // ana is gone
			s.invited("ana", control.Admin)
		}
		s.must(s.Change(t.Context(), "ana", control.Admin, nil))
		s.must(s.Remove(t.Context(), "ben"))
	}
}

func TestUsersAreAudited(t *testing.T) {
	s := newSite(t, Options{})
	s.admin()
	s.invited("ben", control.Operator, "7")
	s.must(s.Change(t.Context(), "ben", control.Editor, nil))
	s.must(s.Remove(t.Context(), "ben"))
	entries, err := s.audit.Read(t.Context(), 1, 100, "")
	s.must(err)
	var got []string
	for _, e := range entries {
		var x audit.Entry
		s.must(json.Unmarshal(e.Data, &x))
		got = append(got, x.Target)
		if strings.Contains(string(e.Data), "argon2") {
			t.Errorf("a password is in the audit log: %s", e.Data)
		}
	}
	if want := "user.ana user.ben user.ben user.ben user.ben"; strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
}

func TestTheStoreIsAway(t *testing.T) {
	s := newSite(t, Options{})
	b := s.admin()
	if !b.inside() {
		t.Fatal("not logged in")
	}
	s.docs.Down = errors.New("away")
	for _, path := range []string{"/login", "/account/password"} {
		b.want(http.StatusServiceUnavailable, http.MethodPost, path, url.Values{"name": {"ana"}, "password": {password}, "current": {password}})
	}
	if _, err := s.List(context.WithoutCancel(t.Context())); err == nil {
		t.Error("users are listed without the store")
	}
}
