package access

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"vestibule/internal/core/wire"
	"vestibule/internal/global/control"
	"vestibule/internal/global/jsondoc"
)

// link is the document of a one-time link. It is named by the digest of its secret.
type link struct {
	Token   string    `json:"token"` // ID of the token of the session that the link opens
	Expires time.Time `json:"expires"`
}

const (
	linkKeys = "link."
	linkPath = "/login/"
	linkTime = 15 * time.Minute
	maxLinks = 200
)

// Link makes a one-time link of a token, and returns its path and the end of its validity. Expired links are deleted.
// It returns [control.ErrManyLinks] while 200 links are valid.
func (a *Access) Link(ctx context.Context, token string) (path string, expires time.Time, err error) {
	now := a.Now()
	valid, err := a.kept(ctx, linkKeys, now, linkTime)
	if err != nil {
		return "", expires, err
	}
	if len(valid) >= maxLinks {
		return "", expires, control.ErrManyLinks
	}
	secret := random()
	expires = now.Add(linkTime).UTC().Truncate(time.Second)
	err = jsondoc.Write(ctx, a.Docs, linkKeys+digest(secret), link{Token: token, Expires: expires}, 0)
	return linkPath + secret, expires, err
}

// owner returns the principal of a link, and the revision of the link. ok is false for a link that was used or has
// expired, and for one whose token was revoked.
func (a *Access) owner(
	ctx context.Context, secret string,
) (who control.Principal, revision uint64, ok bool, err error) {
	l, revision, err := jsondoc.Read[link](ctx, a.Docs, linkKeys+digest(secret))
	if err != nil || l == nil || !a.Now().Before(l.Expires) {
		return who, 0, false, err
	}
	who, ok, err = a.Token(ctx, l.Token)
	return who, revision, ok, err
}

// showLink asks for the confirmation of a link: programs that preview links send no forms, so they do not use it up.
func (a *Access) showLink(w http.ResponseWriter, r *http.Request) error {
	who, _, ok, err := a.owner(r.Context(), r.PathValue("secret"))
	if err != nil {
		return err
	}
	if !ok {
		return a.usedLink(w)
	}
	return a.show(w, http.StatusOK, view{Page: "link", Title: "Log in", Name: who.Name, Role: who.Role, Path: r.URL.Path})
}

func (a *Access) usedLink(w http.ResponseWriter) error {
	return a.show(w, http.StatusGone, view{
		Page: "message", Title: "This link cannot be used",
		Text: "It was used before, it has expired, or its token was revoked.",
	})
}

// useLink uses a link up, and begins a session. Of two requests with one link the first to delete the link gets in.
func (a *Access) useLink(w http.ResponseWriter, r *http.Request) error {
	secret := r.PathValue("secret")
	who, revision, ok, err := a.owner(r.Context(), secret)
	if err != nil {
		return err
	}
	if ok {
		err = a.Docs.Delete(r.Context(), linkKeys+digest(secret), revision)
	}
	if !ok || errors.Is(err, wire.ErrChanged) {
		return a.usedLink(w)
	}
	if err != nil {
		return err
	}
	if err := a.begin(w, r, session{Token: who.ID}); err != nil {
		return err
	}
	a.Log.Info("access: a token logged in to the console",
		slog.String("token", who.ID), slog.String("from", control.Source(r.RemoteAddr)))
	http.Redirect(w, r, home, http.StatusSeeOther)
	return nil
}
