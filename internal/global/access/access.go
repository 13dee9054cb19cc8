package access

import (
	"bytes"
	"context"
	"embed"
	"encoding/base64"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"rsc.io/qr"

	"vestibule/internal/core/wire"
	"vestibule/internal/global/audit"
	"vestibule/internal/global/control"
)

// Options are the parts of an access.
type Options struct {
	Name    string             // of this candidate
	Docs    wire.DocumentStore // for users and sessions
	Journal *audit.Journal     // nil for none
	OIDC    *OIDCConfig        // nil for none
	Log     *slog.Logger
	Now     func() time.Time // nil for the machine's time
}

// Access knows who may log in, and who has. It is safe for concurrent use.
type Access struct {
	name     string
	store    *store
	hasher   hasher
	throttle *control.Throttle
	lately   *lru.Cache[string, seen] // sessions by the digest of their secret
	oidc     *provider                // nil for none
	pages    *template.Template
	handler  http.Handler
}

//go:embed templates/*.html
var templates embed.FS

// policy allows nothing but our own files. The picture of a second factor is in the page itself.
const policy = "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'"

const (
	setupPath = "/setup/"
	home      = "/console/"
	maxForm   = 16 << 10
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
	a := &Access{
		name: o.Name, store: &store{o.Docs, o.Journal, o.Log, o.Now}, hasher: newHasher(),
		throttle: control.NewThrottle(), lately: lately,
		pages: template.Must(template.ParseFS(templates, "templates/*.html")),
	}
	if o.OIDC != nil {
		a.oidc = newProvider(*o.OIDC)
	}
	mux := http.NewServeMux()
	links, own, foreign := setupPages{a}, accountPages{a}, oidcPages{a}
	for route, serve := range map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /login": a.showLogin, "POST /login": a.login, "POST /logout": a.logout,
		"GET /setup/{secret}": links.showSetup, "POST /setup/{secret}": links.setup,
		"GET /account": own.showAccount, "POST /account/password": own.changePassword,
		"POST /account/factor":         own.startFactor,
		"POST /account/factor/confirm": own.confirmFactor,
		"POST /account/factor/remove":  own.removeFactor,
		"GET /oidc/start":              foreign.startOIDC, "GET /oidc/callback": foreign.finishOIDC,
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
var Paths = []string{"/login", "/logout", "/setup/", "/account", "/account/", "/oidc/"}

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
	a.store.log.Warn("access: not answered", slog.Any("error", err))
	status := http.StatusServiceUnavailable
	text := "The store cannot be used now. Nothing was changed. Please try again in a moment."
	if errors.Is(err, errBusy) {
		text = "Many people log in at this moment. Please try again."
	}
	w.Header().Set("Retry-After", "2")
	a.write(w, status, &view{Page: "message", Title: "Not now", Text: text})
}

// view is the content of a page.
type view struct {
	Page, Title, Text string
	Fault             string // what to change in the form
	Next, Name        string // of the login
	OIDC              string // name of the provider, "" for none
	Path              string // of the setup link
	NewName           bool   // the setup asks for a name
	Who               control.Principal
	Local             bool // Who has a password
	Factor            bool // and a second factor
	Secret            string
	URL               template.URL // of the second factor
	Picture           template.URL
	Codes             []string
	Done              string
}

// show writes a page. Its result is that of a handler.
func (a *Access) show(w http.ResponseWriter, status int, v view) error {
	a.write(w, status, &v)
	return nil
}

func (a *Access) write(w http.ResponseWriter, status int, v *view) {
	var out bytes.Buffer
	if err := a.pages.ExecuteTemplate(&out, "layout", v); err != nil {
		a.store.log.Error("access: a page is broken", slog.Any("error", err))
		status = http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	if _, err := w.Write(out.Bytes()); err != nil {
		a.store.log.Debug("access: answer not written", slog.Any("error", err))
	}
}

// nextOf returns where a login leads: a page of the console.
func nextOf(r *http.Request) string {
	next := r.FormValue("next")
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || !strings.HasPrefix(u.Path, home) ||
		strings.ContainsAny(next, "\\\r\n") {
		return home
	}
	return next
}

func (a *Access) loginView(r *http.Request) view {
	v := view{Page: "login", Title: "Log in", Next: nextOf(r), Name: r.PostFormValue("name")}
	if a.oidc != nil {
		v.OIDC = a.oidc.config.Name
	}
	return v
}

func (a *Access) showLogin(w http.ResponseWriter, r *http.Request) error {
	if _, ok := a.Who(r); ok {
		http.Redirect(w, r, nextOf(r), http.StatusSeeOther)
		return nil
	}
	return a.show(w, http.StatusOK, a.loginView(r))
}

// login answers a name, a password and a code. Every failure looks the same, and takes as long.
func (a *Access) login(w http.ResponseWriter, r *http.Request) error {
	name, from, now := key(r.PostFormValue("name")), control.Source(r.RemoteAddr), a.store.now()
	known := name + " at " + from // a neighbour or a stranger cannot lock out somebody who logged in from there
	sources := []string{from, "user " + name}
	v := a.loginView(r)
	wait := a.throttle.Refuses(now, known, "") // and cannot guess without end beside that login
	for _, source := range sources {
		wait = max(wait, a.throttle.Refuses(now, source, known))
	}
	if wait > 0 {
		v.Fault = "Too many logins failed. Please wait a minute."
		return a.show(w, http.StatusTooManyRequests, v)
	}
	s, err := a.verify(r.Context(), name, r.PostFormValue("password"), plainCode(r.PostFormValue("code")), now)
	if err != nil {
		return err
	}
	if s == nil {
		for _, source := range append(sources, known) {
			a.throttle.Failed(now, source)
		}
		v.Fault = "The name, the password or the code is wrong."
		return a.show(w, http.StatusUnauthorized, v)
	}
	a.throttle.Good(known)
	if err := a.begin(w, r, *s); err != nil {
		return err
	}
	a.store.log.Info("a user logged in", slog.String("user", name), slog.String("from", from))
	http.Redirect(w, r, v.Next, http.StatusSeeOther)
	return nil
}

// verify returns a new session; nil if the password or the code is wrong. A code is used up.
func (a *Access) verify(ctx context.Context, name, password, code string, now time.Time) (*session, error) {
	b, _, err := a.store.read(ctx)
	if err != nil {
		return nil, err
	}
	u := b.Users[name]
	stored := ""
	if u != nil {
		stored = u.Password
	}
	ok, err := a.hasher.check(ctx, password[:min(len(password), maxPassword+1)], stored)
	if err != nil || !ok {
		return nil, err
	}
	s := &session{User: name, Sessions: u.Sessions}
	if u.TOTP == "" {
		return s, nil
	}
	err = a.store.change(ctx, "", func(b *book) error {
		u := b.Users[name]
		if u == nil || u.Password != stored || u.Sessions != s.Sessions {
			return errWrongCode
		}
		if step, ok := totpOf(u.TOTP, code, now, u.Step); ok {
			u.Step = step
			return nil
		}
		i := slices.IndexFunc(u.Recovery, func(h string) bool { return same(h, digest(code)) })
		if i < 0 {
			return errWrongCode
		}
		u.Recovery = slices.Delete(u.Recovery, i, i+1)
		return nil
	})
	if errors.Is(err, errWrongCode) {
		return nil, nil
	}
	return s, err
}

var errWrongCode = errors.New("wrong code")

func (a *Access) logout(w http.ResponseWriter, r *http.Request) error {
	if err := a.end(w, r); err != nil {
		return err
	}
	http.Redirect(w, r, "/login", http.StatusSeeOther)
	return nil
}

// setupPages are the pages of one-time links.
type setupPages struct{ *Access }

// setupView returns the page of a link; ok is false if it cannot be used.
func (a setupPages) setupView(r *http.Request) (v view, ok bool, err error) {
	b, _, err := a.store.read(r.Context())
	if err != nil {
		return v, false, err
	}
	l := b.take(r.PathValue("secret"), a.store.now())
	if l == nil {
		return view{Page: "message", Title: "This link cannot be used", Text: "It was used before, or it has expired. " +
			"Ask an admin for a new one; an admin of the fleet makes one with: vestibule admin recover"}, false, nil
	}
	v = view{Page: "setup", Title: "Set your password", Path: r.URL.Path, Name: l.User, NewName: l.User == ""}
	return v, true, nil
}

func (a setupPages) showSetup(w http.ResponseWriter, r *http.Request) error {
	v, ok, err := a.setupView(r)
	if err != nil {
		return err
	}
	if !ok {
		return a.show(w, http.StatusGone, v)
	}
	return a.show(w, http.StatusOK, v)
}

// setup sets the password of a link's user, and logs in.
func (a setupPages) setup(w http.ResponseWriter, r *http.Request) error {
	v, ok, err := a.setupView(r)
	if err != nil {
		return err
	}
	if !ok {
		return a.show(w, http.StatusGone, v)
	}
	name := v.Name
	if v.NewName {
		name = r.PostFormValue("name")
		v.Name = name
		if !userName.MatchString(name) {
			v.Fault = "The name must be 1 to 64 letters, digits or ._@+- and begin with a letter or digit."
		}
	}
	password := r.PostFormValue("password")
	if rule := checkPassword(name, password); rule != "" {
		v.Fault = strings.TrimSpace(v.Fault + " " + rule)
	} else if password != r.PostFormValue("again") {
		v.Fault = strings.TrimSpace(v.Fault + " The two passwords differ.")
	}
	if v.Fault != "" {
		return a.show(w, http.StatusUnprocessableEntity, v)
	}
	hash, err := a.hasher.encode(r.Context(), password)
	if err != nil {
		return err
	}
	ctx := by(r, key(name), "set-password")
	s := session{User: key(name)}
	err = a.store.change(ctx, name, func(b *book) error {
		l := b.take(r.PathValue("secret"), a.store.now())
		u := b.Users[key(name)]
		switch {
		case l == nil, l.User != "" && u == nil:
			return errUsed
		case u == nil:
			if len(b.Users) >= maxUsers {
				return errUsed
			}
			u = &user{Made: a.store.now().UTC().Truncate(time.Second)}
			b.Users[key(name)] = u
		}
		if l.User == "" {
			u.Role, u.Rooms = l.Role, nil // an admin who has lost everything gets in again
			u.TOTP, u.Recovery = "", nil
		}
		u.Password, u.Sessions = hash, random()
		s.Sessions = u.Sessions
		return nil
	})
	if errors.Is(err, errUsed) {
		v, _, err = a.setupView(r)
		if err != nil {
			return err
		}
		return a.show(w, http.StatusGone, v)
	}
	if err != nil {
		return err
	}
	if err := a.begin(w, r, s); err != nil {
		return err
	}
	http.Redirect(w, r, "/account?done=password", http.StatusSeeOther)
	return nil
}

var errUsed = errors.New("the link was used")

// picture returns a QR code as the address of an image.
func picture(text string) (template.URL, error) {
	code, err := qr.Encode(text, qr.M)
	if err != nil {
		return "", err
	}
	data := base64.StdEncoding.EncodeToString(code.PNG())
	return template.URL("data:image/png;base64," + data), nil //nolint:gosec // made here
}
