package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"vestibule/internal/core/wire"
	"vestibule/internal/global/audit"
	"vestibule/internal/global/control"
	"vestibule/internal/global/roomstore"
)

// book is the document of all users.
type book struct {
	Users map[string]*user `json:"users"` // by name
	Links map[string]*link `json:"links"` // by the hash of their secret
}

// user is a person with a password. A user without one has not used its link yet.
type user struct {
	Role     control.Role `json:"role"`
	Rooms    []string     `json:"rooms,omitempty"` // IDs of the only rooms; none for all
	Password string       `json:"password,omitempty"`
	TOTP     string       `json:"totp,omitempty"`     // secret of the second factor
	Pending  string       `json:"pending,omitempty"`  // secret of a second factor that no code has confirmed yet
	Step     int64        `json:"step,omitempty"`     // of the newest accepted code: a code is used once
	Recovery []string     `json:"recovery,omitempty"` // hashes of unused recovery codes
	Sessions string       `json:"sessions"`           // sessions with another value have ended
	Made     time.Time    `json:"made"`
}

// link lets whoever has its secret set the password of a user, once.
type link struct {
	User    string       `json:"user,omitempty"` // "" for one that is made and named by the link's user
	Role    control.Role `json:"role"`           // of a new user
	Expires time.Time    `json:"expires"`
}

const (
	bookDocument = "access"
	maxUsers     = 200
	maxLinks     = 250
)

// userName is the form of names: login names and e-mail addresses.
var userName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}$`)

// key returns the key of a user in the book: names that differ in case only are one.
func key(name string) string { return strings.ToLower(name) }

// admins returns the number of users with a password that may change all users.
func (b *book) admins() (n int) {
	for _, u := range b.Users {
		if u.Role == control.Admin && len(u.Rooms) == 0 && u.Password != "" {
			n++
		}
	}
	return n
}

// take returns the link of a secret and removes it; nil if there is none or it has expired.
func (b *book) take(secret string, now time.Time) *link {
	id := digest(secret)
	l := b.Links[id]
	delete(b.Links, id)
	if l == nil || !now.Before(l.Expires) {
		return nil
	}
	return l
}

// addLink adds a link and returns its secret. Expired ones go, and if there are many the oldest.
func (b *book) addLink(l link, now time.Time) (secret string) {
	maps.DeleteFunc(b.Links, func(_ string, l *link) bool { return !now.Before(l.Expires) })
	for len(b.Links) >= maxLinks {
		oldest := ""
		for id, l := range b.Links {
			if oldest == "" || l.Expires.Before(b.Links[oldest].Expires) {
				oldest = id
			}
		}
		delete(b.Links, oldest)
	}
	secret = random()
	b.Links[digest(secret)] = &l
	return secret
}

// random returns a secret of 256 bits.
func random() string {
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		panic(err) // documented never to happen
	}
	return base64.RawURLEncoding.EncodeToString(secret)
}

// digest returns the stored form of a random secret, which needs no slow hash.
func digest(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// store reads and changes the book.
type store struct {
	docs    wire.DocumentStore
	journal *audit.Journal // nil for none
	log     *slog.Logger
	now     func() time.Time
}

func (s *store) read(ctx context.Context) (*book, uint64, error) {
	b := &book{Users: map[string]*user{}, Links: map[string]*link{}}
	data, revision, err := s.docs.Get(ctx, bookDocument)
	if err != nil || data == nil {
		return b, revision, err
	}
	if err := json.Unmarshal(data, b); err != nil {
		return nil, 0, fmt.Errorf("users: %w", err)
	}
	if b.Users == nil || b.Links == nil {
		return nil, 0, errors.New("users: the document lacks users or links")
	}
	return b, revision, nil
}

// maxTries bounds the attempts beside concurrent changes.
const maxTries = 10

// change changes the book: edit may be called again with a newer one. A name in about is that of the changed user, for
// the audit log; "" makes no entry.
func (s *store) change(ctx context.Context, about string, edit func(*book) error) error {
	for try := 0; ; try++ {
		b, revision, err := s.read(ctx)
		if err != nil {
			return err
		}
		before := b.Users[key(about)].audited()
		if err := edit(b); err != nil {
			return err
		}
		data, err := json.Marshal(b)
		if err != nil {
			return err
		}
		failed := func() {}
		if after := b.Users[key(about)].audited(); about != "" {
			if failed, err = s.announce(ctx, about, before, after); err != nil && after != nil {
				return err
			} else if err != nil { // a user must not stay because of that
				s.log.Error("access: a user is removed without an entry in the audit stream", slog.String("user", about),
					slog.String("by", roomstore.ByOf(ctx).ID), slog.Any("error", err))
				failed = func() {}
			}
		}
		if _, err = s.docs.Put(ctx, bookDocument, data, revision); err == nil {
			return nil
		}
		failed()
		if !errors.Is(err, wire.ErrChanged) || try == maxTries {
			return err
		}
	}
}

func (s *store) announce(ctx context.Context, name string, before, after *auditedUser) (failed func(), err error) {
	if s.journal == nil {
		return func() {}, nil
	}
	adding, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	undo, err := control.Announce(adding, s.journal, s.now(), "user."+key(name), before, after)
	if err != nil {
		return nil, err
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		defer cancel()
		if err := undo(ctx); err != nil {
			s.log.Warn("access: the audit stream has a change of a user that was not made",
				slog.String("user", name), slog.Any("error", err))
		}
	}, nil
}

// auditedUser is the part of a user that an audit entry shows.
type auditedUser struct {
	Role         control.Role `json:"role"`
	Rooms        []string     `json:"rooms,omitempty"`
	SecondFactor bool         `json:"second_factor"`
	Password     string       `json:"password"`
}

func (u *user) audited() *auditedUser {
	if u == nil {
		return nil
	}
	set := "not set"
	if u.Password != "" {
		set = "set " + digest(u.Password)[:6] // tells whether it changed
	}
	return &auditedUser{u.Role, u.Rooms, u.TOTP != "", set}
}

var (
	errLastAdmin = &control.RuleError{Rule: "this is the last admin: make another user an admin first"}
	errNoUser    = &control.RuleError{Rule: "there is no such user"}
)

// List returns all users by name.
func (a *Access) List(ctx context.Context) ([]control.User, error) {
	b, _, err := a.store.read(ctx)
	if err != nil {
		return nil, err
	}
	out := []control.User{}
	for _, name := range slices.Sorted(maps.Keys(b.Users)) {
		u := b.Users[name]
		out = append(out, control.User{
			Name: name, Role: u.Role, Rooms: u.Rooms, SecondFactor: u.TOTP != "", Invited: u.Password == "", Made: u.Made,
		})
	}
	return out, nil
}

// invitedFor is how long an invitation is valid.
const invitedFor = 72 * time.Hour

// Invite makes a user, and returns the path of a link by which it sets its password. Of an existing user it makes a
// link for a new password.
func (a *Access) Invite(ctx context.Context, name string, role control.Role, rooms []string) (path string, err error) {
	if !userName.MatchString(name) {
		return "", &control.RuleError{Rule: "name must be 1 to 64 letters, digits or ._@+- that begin with a letter or digit"}
	}
	var secret string
	err = a.store.change(ctx, name, func(b *book) error {
		if b.Users[key(name)] == nil {
			if len(b.Users) >= maxUsers {
				return &control.RuleError{Rule: fmt.Sprintf("there are %d users, which is the most: remove some", maxUsers)}
			}
			b.Users[key(name)] = &user{
				Role: role, Rooms: rooms, Sessions: random(), Made: a.store.now().UTC().Truncate(time.Second),
			}
		}
		secret = b.addLink(link{User: key(name), Expires: a.store.now().Add(invitedFor)}, a.store.now())
		return nil
	})
	return setupPath + secret, err
}

// Change changes the role and rooms of a user, and ends its sessions.
func (a *Access) Change(ctx context.Context, name string, role control.Role, rooms []string) error {
	return a.store.change(ctx, name, func(b *book) error {
		u := b.Users[key(name)]
		if u == nil {
			return errNoUser
		}
		was := b.admins()
		u.Role, u.Rooms, u.Sessions = role, rooms, random()
		if was > 0 && b.admins() == 0 {
			return errLastAdmin
		}
		return nil
	})
}

// Remove removes a user, and ends its sessions.
func (a *Access) Remove(ctx context.Context, name string) error {
	return a.store.change(ctx, name, func(b *book) error {
		if b.Users[key(name)] == nil {
			return errNoUser
		}
		was := b.admins()
		delete(b.Users, key(name))
		maps.DeleteFunc(b.Links, func(_ string, l *link) bool { return l.User == key(name) })
		if was > 0 && b.admins() == 0 {
			return errLastAdmin
		}
		return nil
	})
}

// recoverFor is how long the link of a first or recovered admin is valid.
const recoverFor = 15 * time.Minute

// AdminLink makes a link by which its user becomes an admin, and returns its path. With onlyFirst it makes none, and
// returns "", if there is an admin.
func (a *Access) AdminLink(ctx context.Context, onlyFirst bool) (path string, err error) {
	ctx = roomstore.By(ctx, audit.By{Name: "the owner of the data folder", From: a.name, Operation: "make-admin-link"})
	var secret string
	err = a.store.change(ctx, "", func(b *book) error {
		if onlyFirst && b.admins() > 0 {
			return errNotFirst
		}
		secret = b.addLink(link{Role: control.Admin, Expires: a.store.now().Add(recoverFor)}, a.store.now())
		return nil
	})
	if errors.Is(err, errNotFirst) {
		return "", nil
	}
	return setupPath + secret, err
}

var errNotFirst = errors.New("there is an admin")
