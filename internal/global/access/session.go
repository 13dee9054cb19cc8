package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"vestibule/internal/core/wire"
	"vestibule/internal/global/control"
)

// session is the document of a login. It is named by the digest of its secret, which only the browser has.
type session struct {
	User     string             `json:"user,omitempty"`     // key of a local user
	Sessions string             `json:"sessions,omitempty"` // of the user, at the login
	Other    *control.Principal `json:"other,omitempty"`    // of an OpenID Connect provider
	Made     time.Time          `json:"made"`
	Seen     time.Time          `json:"seen"` // up to seenEvery ago
}

const (
	sessionKeys = "session."
	maxAge      = 12 * time.Hour
	maxIdle     = 30 * time.Minute
	seenEvery   = time.Minute
	maxSessions = 2000
)

func (s *session) expired(now time.Time) bool {
	return now.Sub(s.Made) >= maxAge || now.Sub(s.Seen) >= maxIdle
}

// cookie returns the name of the session's cookie. Browsers bind the prefixed one to this host, over TLS.
func cookieName(r *http.Request) string {
	if r.TLS != nil {
		return "__Host-vestibule"
	}
	return "vestibule_session"
}

func setCookie(w http.ResponseWriter, r *http.Request, name, value string, age time.Duration) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure with TLS; without it the listener is a loopback address
		Name: name, Value: value, Path: "/", MaxAge: int(age / time.Second),
		Secure: r.TLS != nil, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
}

// begin makes a session for a request that has logged in.
func (a *Access) begin(w http.ResponseWriter, r *http.Request, s session) error {
	now := a.store.now()
	s.Made, s.Seen = now.UTC(), now.UTC()
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := a.sweep(r.Context(), now); err != nil {
		return err
	}
	secret := random()
	if _, err := a.store.docs.Put(r.Context(), sessionKeys+digest(secret), data, 0); err != nil {
		return err
	}
	setCookie(w, r, cookieName(r), secret, maxAge)
	return nil
}

// sweep deletes expired sessions, and the oldest if there are too many.
func (a *Access) sweep(ctx context.Context, now time.Time) error {
	all, err := a.store.docs.List(ctx, sessionKeys+"*")
	if err != nil {
		return err
	}
	var oldest string
	var deleted int
	for id, at := range all {
		if now.Sub(at.At) > maxIdle+2*seenEvery {
			if err := a.store.docs.Delete(ctx, id, at.Revision); err != nil && !errors.Is(err, wire.ErrChanged) {
				return err
			}
			deleted++
			continue
		}
		if oldest == "" || at.At.Before(all[oldest].At) {
			oldest = id
		}
	}
	if len(all)-deleted < maxSessions {
		return nil
	}
	err = a.store.docs.Delete(ctx, oldest, all[oldest].Revision)
	if errors.Is(err, wire.ErrChanged) {
		return nil // it is in use, and there is one more for now
	}
	return err
}

// end ends the session of a request.
func (a *Access) end(w http.ResponseWriter, r *http.Request) error {
	name := cookieName(r)
	setCookie(w, r, name, "", -time.Second)
	c, err := r.Cookie(name)
	if err != nil {
		return nil //nolint:nilerr // there is none
	}
	id := digest(c.Value)
	a.lately.Remove(id)
	_, revision, err := a.store.docs.Get(r.Context(), sessionKeys+id)
	if err != nil || revision == 0 {
		return err
	}
	err = a.store.docs.Delete(r.Context(), sessionKeys+id, revision)
	if errors.Is(err, wire.ErrChanged) { // it was seen meanwhile
		return a.end(w, r)
	}
	return err
}

// Who returns the principal of a request's session; false for none. While the store cannot be read, a session that was
// valid lately is valid: nobody can end it meanwhile either.
func (a *Access) Who(r *http.Request) (control.Principal, bool) {
	who, _, ok := a.session(r)
	return who, ok
}

// seen is a session that was valid at a time.
type seen struct {
	who  control.Principal
	user string
	at   time.Time
}

// session returns the principal of a request's session, and the key of the user if it is a local one.
func (a *Access) session(r *http.Request) (who control.Principal, user string, ok bool) {
	c, err := r.Cookie(cookieName(r))
	if err != nil {
		return who, "", false
	}
	id, now := digest(c.Value), a.store.now()
	found, err := a.find(r.Context(), id, now)
	if err != nil {
		was, lately := a.lately.Get(id)
		a.store.log.Warn("access: a session cannot be read", slog.Any("error", err), slog.Bool("valid_lately", lately))
		return was.who, was.user, lately && now.Sub(was.at) < maxIdle
	}
	if found == nil {
		a.lately.Remove(id)
		return who, "", false
	}
	a.lately.Add(id, *found)
	return found.who, found.user, true
}

// find reads a session; nil for none that is valid.
func (a *Access) find(ctx context.Context, id string, now time.Time) (*seen, error) {
	data, revision, err := a.store.docs.Get(ctx, sessionKeys+id)
	if err != nil || data == nil {
		return nil, err
	}
	var s session
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	if s.expired(now) {
		return nil, nil
	}
	out := &seen{at: now, user: s.User}
	if s.Other != nil {
		out.who = *s.Other
	} else {
		b, _, err := a.store.read(ctx)
		if err != nil {
			return nil, err
		}
		u := b.Users[s.User]
		if u == nil || u.Sessions != s.Sessions {
			return nil, nil
		}
		out.who = control.Principal{ID: "user:" + s.User, Name: s.User, Role: u.Role, Rooms: u.Rooms}
	}
	if now.Sub(s.Seen) >= seenEvery {
		s.Seen = now.UTC()
		data, err := json.Marshal(s)
		if err != nil {
			return nil, err
		}
		if _, err := a.store.docs.Put(ctx, sessionKeys+id, data, revision); err != nil && !errors.Is(err, wire.ErrChanged) {
			return nil, err
		}
	}
	return out, nil
}
