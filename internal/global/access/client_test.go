package access

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"vestibule/internal/core/wire"
	"vestibule/internal/global/audit"
	"vestibule/internal/global/control"
	"vestibule/internal/lab/testkit"
)

// fixture is an access over a store in memory, at a time that tests move.
type fixture struct {
	testing.TB
	*Access
	docs  *hookedStore
	audit *testkit.Stream

	mu  sync.Mutex
	now time.Time
}

// hookedStore is a store that lets something happen before its next write of a document.
type hookedStore struct {
	*testkit.Documents
	mu     sync.Mutex
	before map[string]func() // by document
}

func (s *hookedStore) Put(ctx context.Context, key string, data []byte, revision uint64) (uint64, error) {
	s.mu.Lock()
	before := s.before[key]
	delete(s.before, key)
	s.mu.Unlock()
	if before != nil {
		before()
	}
	return s.Documents.Put(ctx, key, data, revision)
}

var _ wire.DocumentStore = (*hookedStore)(nil)

func start(t testing.TB, provider *OIDCConfig) *fixture {
	t.Helper()
	f := &fixture{
		TB: t, docs: &hookedStore{Documents: testkit.NewDocuments(), before: map[string]func(){}}, audit: &testkit.Stream{},
		now: time.Now().Truncate(time.Second),
	}
	f.Access = New(Options{
		Name: "global-1", Docs: f.docs, Journal: audit.NewJournal(f.audit), OIDC: provider, Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.now
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

// client keeps cookies.
type client struct {
	*fixture
	from   string
	secure bool // over TLS
	jar    map[string]string
}

func (f *fixture) client() *client {
	return &client{fixture: f, from: "192.0.2.7", jar: map[string]string{}}
}

// again is another client with the same cookies.
func (b *client) again() *client {
	other := *b
	other.jar = maps.Clone(b.jar)
	return &other
}

func (b *client) request(method, path string, form url.Values, headers ...string) *http.Request {
	r := httptest.NewRequest(method, path, strings.NewReader(form.Encode()))
	r.RemoteAddr = b.from + ":4711"
	if r.TLS = nil; b.secure {
		r.TLS = &tls.ConnectionState{}
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
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
	return b.do(b.request(http.MethodGet, path, nil))
}

func (b *client) post(path string, fields ...string) *httptest.ResponseRecorder {
	form := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	return b.do(b.request(http.MethodPost, path, form))
}

func (b *client) login(name, password, code string) *httptest.ResponseRecorder {
	return b.post("/login", "name", name, "password", password, "code", code)
}

func (b *client) who() (control.Principal, bool) {
	return b.Who(b.request(http.MethodGet, "/console/", nil))
}

// in reports whether the client has a valid session.
func (b *client) in() bool {
	_, ok := b.who()
	return ok
}

const secretWord = "correct horse battery"

// admin makes an admin by a link, in a client that is logged in.
func (f *fixture) admin(name string) *client {
	f.Helper()
	link, err := f.AdminLink(f.Context(), false)
	if err != nil {
		f.Fatal(err)
	}
	b := f.client()
	if w := b.post(link, "name", name, "password", secretWord, "again", secretWord); w.Code != http.StatusSeeOther || !b.in() {
		f.Fatalf("%s: %d %s", link, w.Code, w.Body)
	}
	return b
}

// user makes a user of a role, in a client that is logged in.
func (f *fixture) user(name string, role control.Role, rooms ...string) *client {
	f.Helper()
	link, err := f.Invite(f.Context(), name, role, rooms)
	if err != nil {
		f.Fatal(err)
	}
	b := f.client()
	if w := b.post(link, "password", secretWord, "again", secretWord); w.Code != http.StatusSeeOther || !b.in() {
		f.Fatalf("%s: %d %s", link, w.Code, w.Body)
	}
	return b
}

// factor gives the user of the client a second factor, and returns its secret and the recovery codes.
func (b *client) factor() (secret string, codes []string) {
	b.Helper()
	w := b.post("/account/factor", "current", secretWord)
	m := regexp.MustCompile(`<code class="secret">([A-Z2-7]{32})</code>`).FindStringSubmatch(w.Body.String())
	if m == nil {
		b.Fatalf("%d %s", w.Code, w.Body)
	}
	w = b.post("/account/factor/confirm", "secret", m[1], "code", b.code(m[1], 0))
	for _, c := range regexp.MustCompile(`<li><code>([^<]+)</code>`).FindAllStringSubmatch(w.Body.String(), -1) {
		codes = append(codes, c[1])
	}
	if w.Code != http.StatusOK || len(codes) != recoveryCodes {
		b.Fatalf("%d codes: %d %s", len(codes), w.Code, w.Body)
	}
	b.pass(2 * totpStep) // that code is used
	return m[1], codes
}

// code returns the code of a secret, some steps from now.
func (f *fixture) code(secret string, steps int64) string {
	f.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	code, err := totp(secret, f.now.Unix()/int64(totpStep/time.Second)+steps)
	if err != nil {
		f.Fatal(err)
	}
	return code
}

// names lists the users with their roles.
func (f *fixture) names() (out []string) {
	f.Helper()
	all, err := f.List(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	for _, u := range all {
		out = append(out, u.Name+" "+string(u.Role))
	}
	return out
}

// entries returns the audit entries, as text.
func (f *fixture) entries() (out []string) {
	f.Helper()
	stored, err := audit.NewJournal(f.audit).Read(f.Context(), 1, 1000, "")
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range stored {
		var e audit.Entry
		if err := json.Unmarshal(s.Data, &e); err != nil {
			f.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%s %s: %s -> %s", e.By.Operation, e.Target, e.Before, e.After))
	}
	return out
}

// encoded returns v as JSON.
func encoded(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
