package access

import (
	"context"
	"errors"
	"html/template"
	"net/http"
	"net/url"

	"vestibule/internal/global/audit"
	"vestibule/internal/global/control"
	"vestibule/internal/global/roomstore"
)

// accountPages are the pages of the session's own user.
type accountPages struct{ *Access }

// accountView returns the page of the session's own user; ok is false, and the answer is given, without a session.
func (a accountPages) accountView(w http.ResponseWriter, r *http.Request) (v view, ok bool, err error) {
	who, name, ok := a.session(r)
	if !ok {
		http.Redirect(w, r, "/login", http.StatusSeeOther)
		return v, false, nil
	}
	v = view{Page: "account", Title: "Your account", Who: who, Name: name, Local: name != ""}
	if !v.Local {
		return v, true, nil
	}
	b, _, err := a.store.read(r.Context())
	if err != nil {
		return v, false, err
	}
	u := b.Users[name]
	v.Factor = u != nil && u.TOTP != ""
	return v, true, nil
}

func (a accountPages) showAccount(w http.ResponseWriter, r *http.Request) error {
	v, ok, err := a.accountView(w, r)
	if err != nil || !ok {
		return err
	}
	if r.FormValue("done") == "password" {
		v.Done = "Your password is set. All earlier sessions have ended."
	}
	return a.show(w, http.StatusOK, v)
}

// confirmed returns the page of a local user who has given the password; ok is false, and the answer is given,
// otherwise.
func (a accountPages) confirmed(w http.ResponseWriter, r *http.Request) (v view, ok bool, err error) {
	if v, ok, err = a.accountView(w, r); err != nil || !ok {
		return v, false, err
	}
	now, source := a.store.now(), "user "+v.Name
	if a.throttle.Refuses(now, source, "") > 0 {
		v.Fault = "Too many attempts failed. Please wait a minute."
		return v, false, a.show(w, http.StatusTooManyRequests, v)
	}
	b, _, err := a.store.read(r.Context())
	if err != nil {
		return v, false, err
	}
	if u := b.Users[v.Name]; v.Local && u != nil {
		password := r.PostFormValue("current")
		ok, err = a.hasher.check(r.Context(), password[:min(len(password), maxPassword+1)], u.Password)
		if err != nil {
			return v, false, err
		}
	}
	if !v.Local || !ok {
		a.throttle.Failed(now, source)
		v.Fault = "The password is wrong."
		return v, false, a.show(w, http.StatusUnauthorized, v)
	}
	return v, true, nil
}

// by returns a context that attributes changes of a user to itself.
func by(r *http.Request, name, operation string) context.Context {
	return roomstore.By(r.Context(), audit.By{
		ID: "user:" + name, Name: name, From: control.Source(r.RemoteAddr), Operation: operation,
	})
}

// edit changes the session's own user.
func (a accountPages) edit(r *http.Request, name, operation string, do func(*user) error) error {
	return a.store.change(by(r, name, operation), name, func(b *book) error {
		u := b.Users[name]
		if u == nil {
			return errNoUser
		}
		return do(u)
	})
}

func (a accountPages) changePassword(w http.ResponseWriter, r *http.Request) error {
	v, ok, err := a.confirmed(w, r)
	if err != nil || !ok {
		return err
	}
	password := r.PostFormValue("password")
	if v.Fault = checkPassword(v.Name, password); v.Fault == "" && password != r.PostFormValue("again") {
		v.Fault = "The two passwords differ."
	}
	if v.Fault != "" {
		return a.show(w, http.StatusUnprocessableEntity, v)
	}
	hash, err := a.hasher.encode(r.Context(), password)
	if err != nil {
		return err
	}
	s := session{User: v.Name, Sessions: random()}
	err = a.edit(r, v.Name, "change-password", func(u *user) error {
		u.Password, u.Sessions = hash, s.Sessions
		return nil
	})
	if err != nil {
		return err
	}
	if err := a.begin(w, r, s); err != nil {
		return err
	}
	http.Redirect(w, r, "/account?done=password", http.StatusSeeOther)
	return nil
}

// startFactor shows the secret of a second factor. It is stored once a code proves that an authenticator has it.
func (a accountPages) startFactor(w http.ResponseWriter, r *http.Request) error {
	v, ok, err := a.confirmed(w, r)
	if err != nil || !ok {
		return err
	}
	secret := newTOTP()
	err = a.store.change(r.Context(), "", func(b *book) error {
		u := b.Users[v.Name]
		if u == nil {
			return errNoUser
		}
		u.Pending = secret
		return nil
	})
	if err != nil {
		return err
	}
	return a.showFactor(w, http.StatusOK, v, secret)
}

func (a accountPages) showFactor(w http.ResponseWriter, status int, v view, secret string) error {
	query := url.Values{"secret": {secret}, "issuer": {"Vestibule"}}
	text := "otpauth://totp/" + url.PathEscape("Vestibule:"+v.Name) + "?" + query.Encode()
	var err error
	if v.Picture, err = picture(text); err != nil {
		return err
	}
	v.Page, v.Title, v.Secret, v.URL = "factor", "Second factor", secret, template.URL(text) //nolint:gosec // made here
	return a.show(w, status, v)
}

func (a accountPages) confirmFactor(w http.ResponseWriter, r *http.Request) error {
	v, ok, err := a.accountView(w, r)
	if err != nil || !ok {
		return err
	}
	if !v.Local {
		return a.showAccount(w, r)
	}
	codes, hashes := newRecovery()
	secret := ""
	err = a.edit(r, v.Name, "add-second-factor", func(u *user) error {
		secret = u.Pending
		if secret == "" || u.TOTP != "" {
			return errNotPending
		}
		step, ok := totpOf(secret, plainCode(r.PostFormValue("code")), a.store.now(), 0)
		if !ok {
			return errWrongCode
		}
		u.TOTP, u.Pending, u.Step, u.Recovery = secret, "", step, hashes
		return nil
	})
	switch {
	case errors.Is(err, errWrongCode):
		v.Fault = "The code is wrong. Is the clock of your phone right?"
		return a.showFactor(w, http.StatusUnprocessableEntity, v, secret)
	case errors.Is(err, errNotPending):
		http.Redirect(w, r, "/account", http.StatusSeeOther)
		return nil
	case err != nil:
		return err
	}
	v.Page, v.Title, v.Codes = "codes", "Recovery codes", codes
	return a.show(w, http.StatusOK, v)
}

var errNotPending = errors.New("no second factor was begun")

func (a accountPages) removeFactor(w http.ResponseWriter, r *http.Request) error {
	v, ok, err := a.confirmed(w, r)
	if err != nil || !ok {
		return err
	}
	err = a.edit(r, v.Name, "remove-second-factor", func(u *user) error {
		u.TOTP, u.Recovery, u.Step = "", nil, 0
		return nil
	})
	if err != nil {
		return err
	}
	http.Redirect(w, r, "/account", http.StatusSeeOther)
	return nil
}
