package access

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"vestibule/internal/global/control"
)

// OIDCConfig is an OpenID Connect provider.
type OIDCConfig struct {
	Name         string // shown on the login page
	Issuer       string
	ClientID     string
	ClientSecret string
	URL          string                  // of this listener as browsers reach it, without a path
	Claim        string                  // a string or a list of strings
	Roles        map[string]control.Role // by value of the claim; the highest counts
	Client       *http.Client            // nil for the default one
}

// provider is the OpenID Connect provider, which is asked for its keys at the first login.
type provider struct {
	config OIDCConfig
	asking chan struct{} // holds a value while the provider is asked
	found  atomic.Pointer[oidc.Provider]
}

const (
	oidcPath    = "/oidc/callback"
	oidcTime    = 10 * time.Minute
	oidcTimeout = 10 * time.Second
)

// oidcCookie returns the name of the cookie of a login that began.
func (a *Access) oidcCookie(r *http.Request) string {
	if a.secure(r) {
		return "__Host-vestibule_oidc"
	}
	return "vestibule_oidc"
}

func newProvider(c OIDCConfig) *provider {
	if c.Client == nil {
		c.Client = &http.Client{Timeout: oidcTimeout}
	}
	return &provider{config: c, asking: make(chan struct{}, 1)}
}

// ask returns the provider's endpoints.
func (p *provider) ask(ctx context.Context) (*oidc.Provider, *oauth2.Config, error) {
	found, err := p.discover(ctx)
	if err != nil {
		return nil, nil, err
	}
	return found, &oauth2.Config{
		ClientID: p.config.ClientID, ClientSecret: p.config.ClientSecret, Endpoint: found.Endpoint(),
		RedirectURL: p.config.URL + oidcPath,
		Scopes:      []string{oidc.ScopeOpenID, "profile", "email"},
	}, nil
}

// discover asks the provider for its endpoints until it has answered once.
func (p *provider) discover(ctx context.Context) (*oidc.Provider, error) {
	if found := p.found.Load(); found != nil {
		return found, nil
	}
	select {
	case p.asking <- struct{}{}:
		defer func() { <-p.asking }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if found := p.found.Load(); found != nil {
		return found, nil
	}
	lasting := oidc.ClientContext(context.WithoutCancel(ctx), p.config.Client) // the result asks for keys with it
	found, err := oidc.NewProvider(lasting, p.config.Issuer)
	if err != nil {
		return nil, err
	}
	p.found.Store(found)
	return found, nil
}

// startOIDC sends the browser to the provider. State, nonce and verifier are in a cookie of this browser.
func (a *Access) startOIDC(w http.ResponseWriter, r *http.Request) error {
	if a.oidc == nil {
		http.NotFound(w, r)
		return nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), oidcTimeout)
	defer cancel()
	_, to, err := a.oidc.ask(ctx)
	if err != nil {
		return a.noProvider(w, err)
	}
	state, nonce, verifier := random(), random(), oauth2.GenerateVerifier()
	a.setCookie(w, r, a.oidcCookie(r), strings.Join([]string{state, nonce, verifier, checkNext(r.FormValue("next"))}, "|"),
		oidcTime, http.SameSiteLaxMode)
	address := to.AuthCodeURL(state, oidc.Nonce(nonce), oauth2.S256ChallengeOption(verifier))
	http.Redirect(w, r, address, http.StatusSeeOther)
	return nil
}

func (a *Access) noProvider(w http.ResponseWriter, err error) error {
	a.Log.Warn("access: the OpenID Connect provider cannot be used",
		slog.String("issuer", a.oidc.config.Issuer), slog.Any("error", err))
	const text = "The login provider cannot be used now. Try again, or log in with a link: vestibule login --console"
	return a.show(w, http.StatusBadGateway, view{Page: "message", Title: "Not now", Text: text})
}

// finishOIDC takes the answer of the provider. It answers a page that leads on: a redirect would still belong to the
// navigation that the provider began, and browsers withhold the session's cookie from that.
func (a *Access) finishOIDC(w http.ResponseWriter, r *http.Request) error {
	name := "" // of the person
	refuse := func(why string) error {
		from := control.Source(r.RemoteAddr)
		a.Log.Warn("access: a login by OpenID Connect is refused",
			slog.String("why", why), slog.String("who", name), slog.String("from", from))
		if a.Refused != nil {
			a.Refused(r.Context(), name, from, why)
		}
		v := view{Page: "message", Title: "Not logged in", Text: "The login was refused: " + why + "."}
		return a.show(w, http.StatusForbidden, v)
	}
	if a.oidc == nil {
		http.NotFound(w, r)
		return nil
	}
	c, err := r.Cookie(a.oidcCookie(r))
	a.setCookie(w, r, a.oidcCookie(r), "", -time.Second, http.SameSiteLaxMode)
	if err != nil {
		return refuse("it was not begun in this browser, or took too long")
	}
	parts := strings.SplitN(c.Value, "|", 4)
	if len(parts) != 4 || !same(parts[0], r.FormValue("state")) {
		return refuse("it was not begun in this browser")
	}
	if r.FormValue("error") != "" {
		return refuse("the provider does not allow it")
	}
	ctx, cancel := context.WithTimeout(r.Context(), oidcTimeout)
	defer cancel()
	s, err := a.oidc.session(ctx, r.FormValue("code"), parts[1], parts[2])
	if bad, ok := errors.AsType[*badTokenError](err); ok {
		if a.Refused != nil {
			a.Refused(r.Context(), "", control.Source(r.RemoteAddr), bad.Error())
		}
		return a.noProvider(w, err)
	}
	if err != nil {
		return a.noProvider(w, err)
	}
	if name = s.Person.Name; s.Person.Role == "" {
		return refuse("your account has no role here")
	}
	if err := a.begin(w, r, *s); err != nil {
		return err
	}
	a.Log.Info("a user logged in", slog.String("user", name), slog.String("from", control.Source(r.RemoteAddr)))
	return a.show(w, http.StatusOK, view{Page: "done", Title: "Logged in", Next: checkNext(parts[3])})
}

// badTokenError is an ID token that is not good for this login.
type badTokenError struct{ error }

func (e *badTokenError) Unwrap() error { return e.error }

// session exchanges a code for a session of a person. The role is that of the roles in force, "" for none.
func (p *provider) session(ctx context.Context, code, nonce, verifier string) (*session, error) {
	found, to, err := p.ask(ctx)
	if err != nil {
		return nil, err
	}
	ctx = oidc.ClientContext(ctx, p.config.Client)
	token, err := to.Exchange(ctx, code, oauth2.VerifierOption(verifier))
	if err != nil {
		return nil, err
	}
	raw, ok := token.Extra("id_token").(string)
	if !ok {
		return nil, errors.New("the answer has no id_token")
	}
	id, err := found.Verifier(&oidc.Config{ClientID: p.config.ClientID}).Verify(ctx, raw)
	if err != nil {
		return nil, &badTokenError{err}
	}
	if !same(id.Nonce, nonce) {
		return nil, &badTokenError{errors.New("the nonce is another one")}
	}
	var claims map[string]any
	if err := id.Claims(&claims); err != nil {
		return nil, fmt.Errorf("claims: %w", err)
	}
	// OpenID Connect Core 3.1.3.7: a token for several has the one that it was made for.
	if party, given := claims["azp"]; given && party != p.config.ClientID || !given && len(id.Audience) > 1 {
		return nil, &badTokenError{fmt.Errorf("the authorized party (azp) is %v, not this client", party)}
	}
	name := id.Subject
	for _, claim := range []string{"name", "preferred_username", "email"} {
		if text, ok := claims[claim].(string); ok && text != "" && len(text) <= 64 {
			name = text
		}
	}
	values := valuesOf(claims[p.config.Claim])
	who := &control.Principal{ID: "oidc:" + id.Subject, Name: name, Role: p.role(values)}
	return &session{Person: who, Claim: p.known(values)}, nil
}

// maxClaim bounds the values of a claim that are kept with a session: those that name roles come first.
const maxClaim = 100

// known returns the values of a claim to keep with a session: a later configuration may give them other roles.
func (p *provider) known(values []string) []string {
	slices.SortStableFunc(values, func(a, b string) int {
		rank := func(v string) int {
			if p.config.Roles[v] != "" {
				return 0
			}
			return 1
		}
		return rank(a) - rank(b)
	})
	return values[:min(len(values), maxClaim)]
}

// valuesOf returns the texts of a claim: one, or a list.
func valuesOf(claim any) (out []string) {
	values, ok := claim.([]any)
	if !ok {
		values = []any{claim}
	}
	for _, v := range values {
		if text, ok := v.(string); ok && text != "" {
			out = append(out, text)
		}
	}
	return out
}

// role returns the highest role of the values of a claim, "" for none.
func (p *provider) role(values []string) (best control.Role) {
	for _, v := range values {
		if role := p.config.Roles[v]; role != "" && (best == "" || role.May(best)) {
			best = role
		}
	}
	return best
}
