package access

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"embed"
	"encoding/base64"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"vestibule/internal/core/wire"
	"vestibule/internal/global/control"
)

// Options are the parts of an access.
type Options struct {
	Docs wire.DocumentStore // for links and sessions
	OIDC *OIDCConfig        // nil for none
	Log  *slog.Logger
	Now  func() time.Time // nil for the machine's time

	HTTPS bool // browsers reach this listener over TLS, of a proxy before it if it has none

	// Refused notes a refused login for the audit log: who tried, "" if that is unknown, from where, and why.
	Refused func(ctx context.Context, who, from, why string)

	// Token returns the principal of a token by its ID. ok is false for a token that is unknown, expired or revoked.
	Token func(ctx context.Context, id string) (who control.Principal, ok bool, err error)
}

// Access serves the pages of logins, and knows the sessions. It is safe for concurrent use.
type Access struct {
	Options
	lately  *lru.Cache[string, seen] // sessions by the digest of their secret
	oidc    *provider                // nil for none
	pages   *template.Template
	handler http.Handler
}

//go:embed templates/*.html
var templates embed.FS

// policy allows nothing but our own files.
const policy = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

const (
	home    = "/console/"
	maxForm = 16 << 10 // bytes
)

// New returns an access.
func New(o Options) *Access {
	if o.Now == nil {
		o.Now = time.Now
	}
	lately, err := lru.New[string, seen](maxSessions)
	if err != nil {
		panic(err) // for a size below 1
	}
	a := &Access{Options: o, lately: lately, pages: template.Must(template.ParseFS(templates, "templates/*.html"))}
	if o.OIDC != nil {
		a.oidc = newProvider(*o.OIDC)
	}
	mux := http.NewServeMux()
	for route, serve := range map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /login": a.showLogin, "POST /logout": a.logout,
		"GET " + linkPath + "{secret}": a.showLink, "POST " + linkPath + "{secret}": a.useLink,
		"GET /oidc/start": a.startOIDC, "GET /oidc/callback": a.finishOIDC,
	} {
		mux.HandleFunc(route, func(w http.ResponseWriter, r *http.Request) {
			if err := serve(w, r); err != nil {
				a.fail(w, err)
			}
		})
	}
	a.handler = http.NewCrossOriginProtection().Handler(mux)
	return a
}

// Paths are the paths that ServeHTTP serves, as patterns of a mux.
var Paths = []string{"/login", linkPath, "/logout", "/oidc/"}

// ServeHTTP implements [http.Handler].
func (a *Access) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer") // the path of a link is a secret
	h.Set("Cache-Control", "no-store")
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	a.handler.ServeHTTP(w, r)
}

// fail answers for an error of the store.
func (a *Access) fail(w http.ResponseWriter, err error) {
	a.Log.Warn("access: a login page was not served: the store cannot be used", slog.Any("error", err))
	w.Header().Set("Retry-After", "2")
	a.write(w, http.StatusServiceUnavailable, &view{
		Page: "message", Title: "Not now", Text: "The store cannot be used now. Try again in a moment.",
	})
}

// view is the content of a page.
type view struct {
	Page, Title, Text string
	Next              string // the page that a login leads to
	OIDC              string // name of the provider, "" for none
	Path              string // of the link
	Name              string // of the link's token
	Role              control.Role
}

// show writes a page. Its result is that of a handler.
func (a *Access) show(w http.ResponseWriter, status int, v view) error {
	a.write(w, status, &v)
	return nil
}

func (a *Access) write(w http.ResponseWriter, status int, v *view) {
	var out bytes.Buffer
	if err := a.pages.ExecuteTemplate(&out, "layout", v); err != nil {
		a.Log.Error("access: a page is broken", slog.String("page", v.Page), slog.Any("error", err))
		status = http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	if _, err := w.Write(out.Bytes()); err != nil {
		a.Log.Debug("access: answer not written", slog.Any("error", err))
	}
}

// checkNext returns the page of the console that a login leads to: next if it is one.
func checkNext(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || !strings.HasPrefix(u.Path, home) ||
		strings.ContainsAny(next, "\\\r\n") {
		return home
	}
	return next
}

// showLogin says how to log in.
func (a *Access) showLogin(w http.ResponseWriter, r *http.Request) error {
	next := checkNext(r.FormValue("next"))
	if _, ok := a.Who(r); ok {
		http.Redirect(w, r, next, http.StatusSeeOther)
		return nil
	}
	if a.again(r) {
		http.Redirect(w, r, "/oidc/start?next="+url.QueryEscape(next), http.StatusSeeOther)
		return nil
	}
	v := view{Page: "login", Title: "Log in", Next: next}
	if a.oidc != nil {
		v.OIDC = a.oidc.config.Name
	}
	return a.show(w, http.StatusOK, v)
}

func (a *Access) logout(w http.ResponseWriter, r *http.Request) error {
	if err := a.end(w, r); err != nil {
		return err
	}
	http.Redirect(w, r, "/login", http.StatusSeeOther)
	return nil
}

// random returns a secret of 256 bits.
func random() string {
	secret := make([]byte, 32)
	rand.Read(secret) // documented never to fail
	return base64.RawURLEncoding.EncodeToString(secret)
}

// digest returns the stored form of a random secret, which needs no slow hash.
func digest(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
