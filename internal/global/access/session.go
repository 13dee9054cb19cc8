package access

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"vestibule/internal/core/wire"
	"vestibule/internal/global/control"
	"vestibule/internal/global/jsondoc"
)

// session is the document of a login. It is named by the digest of its secret, which only the browser has.
type session struct {
	Token  string             `json:"token,omitempty"`  // ID of the token
	Person *control.Principal `json:"person,omitempty"` // of an OpenID Connect provider, as at login; nil for a token
	Claim  []string           `json:"claim,omitempty"`  // what the provider said of the person: the values that name roles
	Made   time.Time          `json:"made"`
	Seen   time.Time          `json:"seen"` // at most seenEvery before the last request
}

const (
	sessionKeys = "session."
	formKeys    = "form." // followed by the digest of a form that was sent
	maxAge      = 12 * time.Hour
	maxIdle     = 30 * time.Minute
	askAgain    = time.Hour        // the provider is asked again about a person after this time
	sendUntil   = 15 * time.Minute // later: a form that was begun in time is taken
	seenEvery   = time.Minute
	maxSessions = 2000
)

func (s *session) expired(now time.Time) bool {
	return now.Sub(s.Made) >= maxAge || now.Sub(s.Seen) >= maxIdle
}

// secure reports whether browsers reach this listener over TLS: its own, or that of a proxy before it.
func (a *Access) secure(r *http.Request) bool { return r.TLS != nil || a.HTTPS }

// cookieName returns the name of the session's cookie. Browsers bind the prefixed one to this host, over TLS.
func (a *Access) cookieName(r *http.Request) string {
	if a.secure(r) {
		return "__Host-vestibule"
	}
	return "vestibule_session"
}

func (a *Access) setCookie(
	w http.ResponseWriter, r *http.Request, name, value string, age time.Duration, site http.SameSite,
) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure with TLS; without it the listener is a loopback address
		Name: name, Value: value, Path: "/", MaxAge: int(age / time.Second),
		Secure: a.secure(r), HttpOnly: true, SameSite: site,
	})
}

// begin makes a session for a request that has logged in.
func (a *Access) begin(w http.ResponseWriter, r *http.Request, s session) error {
	now := a.Now()
	s.Made, s.Seen = now.UTC(), now.UTC()
	if err := a.sweep(r.Context(), now); err != nil {
		return err
	}
	secret := random()
	if err := jsondoc.Write(r.Context(), a.Docs, sessionKeys+digest(secret), s, 0); err != nil {
		return err
	}
	a.setCookie(w, r, a.cookieName(r), secret, maxAge, http.SameSiteStrictMode)
	return nil
}

// sweep deletes the forms of expired sessions, expired sessions, and the oldest if there are too many.
func (a *Access) sweep(ctx context.Context, now time.Time) error {
	if _, err := a.kept(ctx, formKeys, now, maxAge+time.Hour); err != nil {
		return err
	}
	all, err := a.kept(ctx, sessionKeys, now, maxIdle+2*seenEvery)
	if err != nil || len(all) < maxSessions {
		return err
	}
	oldest := slices.MinFunc(slices.Collect(maps.Keys(all)), func(x, y string) int { return all[x].At.Compare(all[y].At) })
	err = a.Docs.Delete(ctx, oldest, all[oldest].Revision)
	if errors.Is(err, wire.ErrChanged) {
		return nil // it is in use, and there is one more for now
	}
	return err
}

// kept returns the documents below a prefix. It deletes those that were written longer ago than age.
func (a *Access) kept(
	ctx context.Context, prefix string, now time.Time, age time.Duration,
) (map[string]wire.Written, error) {
	all, err := a.Docs.List(ctx, prefix+"*")
	if err != nil {
		return nil, err
	}
	for id, at := range all {
		if now.Sub(at.At) <= age {
			continue
		}
		if err := a.Docs.Delete(ctx, id, at.Revision); err != nil && !errors.Is(err, wire.ErrChanged) {
			return nil, err
		}
		delete(all, id)
	}
	return all, nil
}

// Once uses up the name of a form. It returns false if it was used before.
func (a *Access) Once(ctx context.Context, form string) (bool, error) {
	_, err := a.Docs.Put(ctx, formKeys+digest(form), []byte("{}"), 0)
	if errors.Is(err, wire.ErrChanged) {
		return false, nil
	}
	return err == nil, err
}

// end ends the session of a request.
func (a *Access) end(w http.ResponseWriter, r *http.Request) error {
	name := a.cookieName(r)
	a.setCookie(w, r, name, "", -time.Second, http.SameSiteStrictMode)
	c, err := r.Cookie(name)
	if err != nil {
		return nil //nolint:nilerr // there is none
	}
	id := digest(c.Value)
	a.lately.Remove(id)
	_, revision, err := a.Docs.Get(r.Context(), sessionKeys+id)
	if err != nil || revision == 0 {
		return err
	}
	err = a.Docs.Delete(r.Context(), sessionKeys+id, revision)
	if errors.Is(err, wire.ErrChanged) { // it was seen meanwhile
		return a.end(w, r)
	}
	return err
}

// Who returns the principal of a request's session; false for none. While the store cannot be read, a session that was
// valid lately is valid: nobody can end it meanwhile either.
func (a *Access) Who(r *http.Request) (control.Principal, bool) {
	c, err := r.Cookie(a.cookieName(r))
	if err != nil {
		return control.Principal{}, false
	}
	id, now := digest(c.Value), a.Now()
	s, who, err := a.find(r.Context(), id, now)
	ok := s != nil && !s.outdated(now, r.Method)
	if err != nil {
		was, lately := a.lately.Get(id)
		a.Log.Warn("access: a session cannot be read", slog.Any("error", err), slog.Bool("valid_lately", lately))
		return was.who, lately && now.Sub(was.at) < maxIdle
	}
	if !ok {
		a.lately.Remove(id)
		return control.Principal{}, false
	}
	a.lately.Add(id, seen{who, now})
	return who, true
}

// seen is a session that was valid at a time.
type seen struct {
	who control.Principal
	at  time.Time
}

// outdated reports whether the provider is to be asked again about the person of a session, before a page is shown or
// a form is taken.
func (s *session) outdated(now time.Time, method string) bool {
	age := askAgain
	if method != http.MethodGet && method != http.MethodHead {
		age += sendUntil
	}
	return s.Person != nil && now.Sub(s.Made) >= age
}

// find reads a session and its principal; nil for none that is valid. The role of a person follows from the roles that
// the configuration has now.
func (a *Access) find(ctx context.Context, id string, now time.Time) (*session, control.Principal, error) {
	var none control.Principal
	s, revision, err := jsondoc.Read[session](ctx, a.Docs, sessionKeys+id)
	if err != nil || s == nil || s.expired(now) {
		return nil, none, err
	}
	who, ok := none, false
	if s.Person == nil {
		who, ok, err = a.Token(ctx, s.Token)
	} else if a.oidc != nil {
		who = *s.Person
		who.Role = a.oidc.role(s.Claim)
		ok = who.Role != ""
	}
	if err != nil || !ok {
		return nil, none, err
	}
	if now.Sub(s.Seen) >= seenEvery && !s.outdated(now, http.MethodPost) {
		s.Seen = now.UTC()
		err := jsondoc.Write(ctx, a.Docs, sessionKeys+id, s, revision)
		if err != nil && !errors.Is(err, wire.ErrChanged) {
			return nil, none, err
		}
	}
	return s, who, nil
}

// again reports whether a request has a session of a person whom the provider only needs to be asked about again.
func (a *Access) again(r *http.Request) bool {
	c, err := r.Cookie(a.cookieName(r))
	if err != nil || a.oidc == nil {
		return false
	}
	now := a.Now()
	s, _, err := a.find(r.Context(), digest(c.Value), now)
	return err == nil && s != nil && s.outdated(now, r.Method)
}

// List implements [control.Sessions].
func (a *Access) List(ctx context.Context) (out []control.Session, err error) {
	all, err := a.Docs.List(ctx, sessionKeys+"*")
	if err != nil {
		return nil, err
	}
	now := a.Now()
	for name := range all {
		s, _, err := jsondoc.Read[session](ctx, a.Docs, name)
		if err != nil {
			return nil, err
		}
		if s == nil || s.Person == nil || s.expired(now) || s.outdated(now, http.MethodPost) {
			continue
		}
		who := *s.Person
		if who.Role = ""; a.oidc != nil {
			who.Role = a.oidc.role(s.Claim)
		}
		out = append(out, control.Session{ID: strings.TrimPrefix(name, sessionKeys), Who: who, Made: s.Made, Seen: s.Seen})
	}
	slices.SortFunc(out, func(x, y control.Session) int { return y.Made.Compare(x.Made) })
	return out, nil
}

// End implements [control.Sessions].
func (a *Access) End(ctx context.Context, id string) (bool, error) {
	for {
		s, revision, err := jsondoc.Read[session](ctx, a.Docs, sessionKeys+id)
		if err != nil || s == nil || s.Person == nil {
			return false, err
		}
		a.lately.Remove(id)
		err = a.Docs.Delete(ctx, sessionKeys+id, revision)
		if !errors.Is(err, wire.ErrChanged) { // it was seen meanwhile
			return err == nil, err
		}
	}
}
