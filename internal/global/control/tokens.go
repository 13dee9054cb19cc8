package control

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/audit"
	"vestibule/internal/global/control/api"
	"vestibule/internal/global/roomstore"
)

// Role is the set of operations that a token permits. Each role includes those before it.
type Role string

// The roles.
const (
	Viewer   Role = "viewer"   // sees rooms and their state
	Operator Role = "operator" // runs events
	Editor   Role = "editor"   // makes and changes rooms
	Admin    Role = "admin"    // makes tokens
)

var roles = []Role{Viewer, Operator, Editor, Admin}

// Known reports whether r is a role.
func (r Role) Known() bool { return slices.Contains(roles, r) }

// May reports whether the role includes another.
func (r Role) May(need Role) bool { return slices.Index(roles, r) >= slices.Index(roles, need) }

// token is a stored token. Its key is its id.
type token struct {
	Name    string    `json:"name"`
	Role    Role      `json:"role"`
	Rooms   []string  `json:"rooms,omitempty"` // IDs of the only rooms; none for all
	Hash    string    `json:"hash"`            // SHA-256 of the whole token: with 256 random bits it needs no slow hash
	Issued  time.Time `json:"issued"`
	Expires time.Time `json:"expires,omitzero"`
	Used    time.Time `json:"used,omitzero"`
}

// keeper reports whether the token gives access to everything for ever. A fleet keeps one.
func (t *token) keeper() bool { return t.Role == Admin && len(t.Rooms) == 0 && t.Expires.IsZero() }

func (t *token) expired(now time.Time) bool { return !t.Expires.IsZero() && !now.Before(t.Expires) }

// The form of tokens. The Terraform provider takes 40 to 80 of these characters.
const (
	tokenPrefix = "vst_"
	tokenIDLen  = 12
	firstToken  = "first0000000" // the id of the first token of a fleet
)

var tokenForm = regexp.MustCompile(`^vst_([A-Za-z0-9]{12})_[A-Za-z0-9_-]{43}$`)

const tokenKeys = "token."

// usedEvery is the minimum interval between writes of a token's last use.
const usedEvery = 5 * time.Minute

// maxTokens bounds the number of tokens.
const maxTokens = 1000

// tokenLife is the life of a token whose end is not given.
const tokenLife = 365 * 24 * time.Hour

// never is the end of a token that does not expire.
const never = "never"

type tokens struct {
	revoking sync.Mutex
	docs     wire.DocumentStore
	journal  *audit.Journal
	log      *slog.Logger
	now      func() time.Time
	throttle *Throttle
	outage   *outage
	kept     *keptTokens
}

func newTokens(docs wire.DocumentStore, journal *audit.Journal, log *slog.Logger, down *outage) *tokens {
	return &tokens{
		docs: docs, journal: journal, log: log, now: time.Now, throttle: NewThrottle(), outage: down, kept: newKeptTokens(),
	}
}

// errToken rejects a token. It gives no reason, so that guesses reveal nothing.
var errToken = refusef(http.StatusUnauthorized, codeAuthentication,
	"Authentication error: the token is unknown, expired or revoked")

// get returns a stored token and its revision, nil for none.
func (t *tokens) get(ctx context.Context, id string) (*token, uint64, error) {
	data, revision, err := t.docs.Get(ctx, tokenKeys+id)
	if err != nil || data == nil {
		return nil, 0, err
	}
	var stored token
	if err := json.Unmarshal(data, &stored); err != nil {
		return nil, 0, fmt.Errorf("token %s: %w", id, err)
	}
	return &stored, revision, nil
}

// getFor is get, with little patience for a request that only reads.
func (t *tokens) getFor(ctx context.Context, id string, reads bool) (stored *token, revision uint64, err error) {
	if !reads {
		return t.get(ctx, id)
	}
	err = t.outage.read(ctx, func(ctx context.Context) error {
		stored, revision, err = t.get(ctx, id)
		return err
	})
	return stored, revision, err
}

func (t *tokens) put(ctx context.Context, id string, tok *token, revision uint64) error {
	data, err := json.Marshal(tok)
	if err != nil {
		return err
	}
	_, err = t.docs.Put(ctx, tokenKeys+id, data, revision)
	return err
}

// check returns the principal of a token. from is the address of the client. A valid token is accepted whatever else
// came from its address. For a request that only reads, a token that was valid lately is enough while the store does
// not answer.
func (t *tokens) check(ctx context.Context, from, text string, reads bool) (who Principal, err error) {
	m := tokenForm.FindStringSubmatch(text)
	if m == nil {
		return who, t.failed(ctx, from, "")
	}
	now := t.now()
	stored, revision, err := t.getFor(ctx, m[1], reads)
	kept := err != nil && reads
	if kept {
		stored = t.kept.get(now, m[1])
	}
	if err != nil && stored == nil {
		return who, err
	}
	if stored == nil || subtle.ConstantTimeCompare([]byte(stored.Hash), []byte(hash(text))) != 1 || stored.expired(now) {
		return who, t.failed(ctx, from, m[1])
	}
	if !kept {
		t.kept.keep(now, m[1], stored)
	}
	if !kept && now.Sub(stored.Used) >= usedEvery {
		stored.Used = now.UTC().Truncate(time.Second)
		if err := t.put(ctx, m[1], stored, revision); err != nil && !errors.Is(err, wire.ErrChanged) {
			t.log.Warn("control: not noted that a token was used", slog.String("token", m[1]), slog.Any("error", err))
		}
	}
	return Principal{m[1], stored.Name, stored.Role, stored.Rooms}, nil
}

// failed records an invalid token with an ID, "" for none, from an address, and returns the refusal.
func (t *tokens) failed(ctx context.Context, from, id string) error {
	now := t.now()
	if wait := t.throttle.Failed(now, from); wait > 0 {
		return tooMany(wait)
	}
	if t.throttle.First(now, from) {
		ctx = roomstore.By(ctx, audit.By{Name: "unknown", From: from, Operation: "authenticate"})
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := Announce(ctx, t.journal, now, loginTarget, nil, refusedLogin{id, "the token is unknown, expired or revoked"}); err != nil {
			t.log.Warn("control: a refused token is not in the audit stream", slog.String("from", from), slog.String("token", id), slog.Any("error", err))
		}
	}
	return errToken
}

// Targets of audit entries.
const (
	loginTarget = "login"  // refused authentications
	tokenTarget = "token." // followed by an ID
)

// refusedLogin is the part of a refused authentication that an audit entry shows.
type refusedLogin struct {
	Token   string `json:"token,omitempty"` // its ID, which anybody may have made up
	Refused string `json:"refused"`
}

func tooMany(wait time.Duration) error {
	return refusef(http.StatusTooManyRequests, codeAuthentication,
		"Authentication error: too many invalid tokens came from this address; try again in %d s", int(wait/time.Second)+1)
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// make makes a token. It returns wire.ErrChanged if the id is taken.
func (t *tokens) make(ctx context.Context, id string, of token) (value string, tok *token, err error) {
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return "", nil, err
	}
	value = tokenPrefix + id + "_" + base64.RawURLEncoding.EncodeToString(secret)
	of.Hash, of.Issued = hash(value), t.now().UTC().Truncate(time.Second)
	tok = &of
	failed, err := Announce(ctx, t.journal, t.now(), tokenTarget+id, nil, tok.audited())
	if err != nil {
		return "", nil, err
	}
	if err := undone(ctx, t.log, tokenTarget+id, failed, maybe(t.put(ctx, id, tok, 0))); err != nil {
		return "", nil, err
	}
	return value, tok, nil
}

// list returns the sorted ids of all tokens.
func (t *tokens) list(ctx context.Context) ([]string, error) {
	keys, err := t.docs.List(ctx, tokenKeys+"*")
	if err != nil {
		return nil, err
	}
	ids := make([]string, 0, len(keys))
	for key := range keys {
		ids = append(ids, strings.TrimPrefix(key, tokenKeys))
	}
	slices.Sort(ids)
	return ids, nil
}

// tokenService serves tokens.
type tokenService struct {
	tokens *tokens
	name   string // of this candidate
	rooms  *catalog
	link   LinkFunc // nil for none
}

// First makes the first token, an admin's, if there is none at all. It returns "" if there is one, or another
// candidate makes it.
func (s *tokenService) First(ctx context.Context) (string, error) {
	ids, err := s.tokens.list(ctx)
	if err != nil || len(ids) > 0 {
		return "", err
	}
	ctx = roomstore.By(ctx, audit.By{Name: "a global that starts", From: s.name, Operation: "make-first-token"})
	value, _, err := s.tokens.make(ctx, firstToken, token{Name: "first", Role: Admin})
	if errors.Is(err, wire.ErrChanged) {
		return "", nil
	}
	return value, err
}

// Good reports whether a token is known and not expired.
func (s *tokenService) Good(ctx context.Context, value string) bool {
	_, err := s.tokens.check(ctx, "", value, false)
	return err == nil
}

// Make makes a token that does not expire.
func (s *tokenService) Make(ctx context.Context, name string, role Role) (string, error) {
	ctx = roomstore.By(ctx, audit.By{Name: "the owner of this process", From: s.name, Operation: "make-token"})
	value, _, err := s.tokens.make(ctx, rand.Text()[:tokenIDLen], token{Name: name, Role: role})
	return value, err
}

// TokenID returns the ID of a token, "" for text that is no token.
func TokenID(value string) string {
	m := tokenForm.FindStringSubmatch(value)
	if m == nil {
		return ""
	}
	return m[1]
}

// Principal returns the principal of a token by its ID. ok is false for a token that is unknown, expired or revoked.
func (s *tokenService) Principal(ctx context.Context, id string) (who Principal, ok bool, err error) {
	stored, _, err := s.tokens.get(ctx, id)
	if err != nil || stored == nil || stored.expired(s.tokens.now()) {
		return who, false, err
	}
	return Principal{id, stored.Name, stored.Role, stored.Rooms}, true, nil
}

// ErrManyLinks means that too many links to the console are valid.
var ErrManyLinks = errors.New("too many links to the console are valid")

// createLink makes a one-time link to the console for the token of the request.
func (s *tokenService) createLink(ctx context.Context, q *request) (any, error) {
	if err := q.empty(); err != nil {
		return nil, err
	}
	if s.link == nil {
		return nil, refusef(http.StatusNotFound, codeNotFound, "this global has no console")
	}
	path, expires, err := s.link(ctx, principal(ctx).ID)
	if errors.Is(err, ErrManyLinks) {
		return nil, refusef(http.StatusTooManyRequests, codeNotNow, "%v: try again in 15 minutes, or use one of them", err)
	}
	if err != nil {
		return nil, err
	}
	return api.ConsoleLink{Path: path, ExpiresOn: expires}, nil
}

func showToken(id string, t *token, value string) api.Token {
	out := api.Token{Id: id, Name: t.Name, Role: string(t.Role), Rooms: t.Rooms, IssuedOn: t.Issued}
	if !t.Expires.IsZero() {
		out.ExpiresOn = &t.Expires
	}
	if !t.Used.IsZero() {
		out.LastUsedOn = &t.Used
	}
	if value != "" {
		out.Value = &value
	}
	return out
}

// verify shows the token of the request.
func (s *tokenService) verify(ctx context.Context, _ *request) (any, error) {
	who := principal(ctx)
	return api.Verified{Id: who.ID, Status: "active", Role: string(who.Role), Zone: Zone, Account: Account}, nil
}

func (s *tokenService) list(ctx context.Context, _ *request) (any, error) {
	ids, err := s.tokens.list(ctx)
	if err != nil {
		return nil, err
	}
	out := []api.Token{}
	for _, id := range ids {
		t, _, err := s.tokens.get(ctx, id)
		if err != nil {
			return nil, err
		}
		if t != nil {
			out = append(out, showToken(id, t, ""))
		}
	}
	return complete(out), nil
}

func (s *tokenService) create(ctx context.Context, q *request) (any, error) {
	var f faults
	m := f.object("", q.body, "name", "role", "rooms", "expires_on")
	name, ok := f.text("/name", m["name"])
	unprintable := strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
	if ok && (name == "" || len(name) > 64 || unprintable) {
		f.add("/name", "name must be 1 to 64 bytes of readable text")
	}
	role, rooms := f.role(m["role"]), s.rooms.rooms(ctx, &f, m["rooms"])
	expires := s.readExpiry(&f, m["expires_on"])
	if len(f) > 0 {
		return nil, invalid(f)
	}
	ids, err := s.tokens.list(ctx)
	if err != nil {
		return nil, err
	}
	if len(ids) >= maxTokens {
		f.add("", "there are %d tokens, which is the most: revoke some", len(ids))
		return nil, invalid(f)
	}
	id := rand.Text()[:tokenIDLen]
	value, t, err := s.tokens.make(ctx, id, token{Name: name, Role: role, Rooms: rooms, Expires: expires})
	if err != nil {
		return nil, err
	}
	return showToken(id, t, value), nil
}

// readExpiry returns the end of a new token: in tokenLife by default, the zero time for never.
func (s *tokenService) readExpiry(f *faults, v json.RawMessage) time.Time {
	now := s.tokens.now()
	text, ok := f.text("/expires_on", v)
	switch {
	case !ok || text == never:
		return time.Time{}
	case text == "":
		return now.Add(tokenLife).UTC().Truncate(time.Second)
	}
	expires, err := time.Parse(time.RFC3339, text)
	if err != nil || !expires.After(now) {
		f.add("/expires_on", "expires_on must be %q or a time to come, such as 2027-01-31T00:00:00Z, got %q", never, short(text))
	}
	return expires.UTC()
}

func (s *tokenService) delete(ctx context.Context, q *request) (any, error) {
	id := q.PathValue("token_id")
	if !tokenForm.MatchString(tokenPrefix + id + "_" + strings.Repeat("a", 43)) {
		return nil, errNotFound
	}
	if err := s.tokens.revoke(ctx, id); err != nil {
		return nil, err
	}
	return deleted(id), nil
}

// revoke deletes a token, even if the audit stream cannot be written: a leaked token must not stay valid because of
// that. The last keeper is refused.
func (t *tokens) revoke(ctx context.Context, id string) error {
	t.revoking.Lock() // two keepers must not be revoked beside each other
	defer t.revoking.Unlock()
	var failed func(context.Context) error // nil without an entry
	err := wire.ErrChanged
	for try := 0; try < 3 && errors.Is(err, wire.ErrChanged); try++ { // a concurrent write of its last use
		stored, revision, e := t.get(ctx, id)
		if e != nil {
			err = e
			break
		}
		if stored == nil {
			err = errNotFound
			break
		}
		if err = t.mayRevoke(ctx, id, stored); err != nil {
			break
		}
		if try == 0 {
			adding, cancel := context.WithTimeout(ctx, 3*time.Second)
			failed, e = Announce(adding, t.journal, t.now(), tokenTarget+id, stored.audited(), nil)
			cancel()
			if e != nil {
				t.log.Error("control: a token is revoked without an entry in the audit stream", slog.String("token", id),
					slog.String("by", roomstore.ByOf(ctx).ID), slog.Any("error", e))
			}
		}
		err = maybe(t.docs.Delete(ctx, tokenKeys+id, revision))
	}
	return undone(ctx, t.log, tokenTarget+id, failed, err)
}

// mayRevoke returns the refusal to revoke the last keeper, nil for another token.
func (t *tokens) mayRevoke(ctx context.Context, id string, stored *token) error {
	if !stored.keeper() {
		return nil
	}
	ids, err := t.list(ctx)
	if err != nil {
		return err
	}
	for _, other := range ids {
		o, _, err := t.get(ctx, other)
		if err != nil {
			return err
		}
		if other != id && o != nil && o.keeper() {
			return nil
		}
	}
	return refusef(http.StatusBadRequest, codeInvalid,
		"token %s is the last admin token for all rooms that does not expire: create another with expires_on %q before you revoke it: invalid data",
		id, never)
}

// Expiry is the coming end of a token.
type Expiry struct {
	ID, Name string
	At       time.Time
}

// Soon reports whether operators must be told of the expiry; a nil one is never soon.
func (e *Expiry) Soon(now time.Time) bool { return e != nil && e.At.Sub(now) <= expiryWarning }

// expiryWarning is the time before the end of a token at which operators are told. Tokens with a shorter life end as
// planned.
const expiryWarning = 30 * 24 * time.Hour

// NextExpiry returns the earliest end of the valid tokens that were made for longer than expiryWarning; nil for none.
func (s *tokenService) NextExpiry(ctx context.Context) (*Expiry, error) {
	ids, err := s.tokens.list(ctx)
	if err != nil {
		return nil, err
	}
	var next *Expiry
	now := s.tokens.now()
	for _, id := range ids {
		t, _, err := s.tokens.get(ctx, id)
		if err != nil {
			return nil, err
		}
		if t == nil || t.Expires.IsZero() || t.expired(now) || t.Expires.Sub(t.Issued) <= expiryWarning {
			continue
		}
		if next == nil || t.Expires.Before(next.At) {
			next = &Expiry{id, t.Name, t.Expires}
		}
	}
	return next, nil
}

// role reads a role.
func (f *faults) role(value []byte) Role {
	role, ok := f.text("/role", value)
	if role = strings.ToLower(role); ok && !slices.Contains(roles, Role(role)) {
		f.add("/role", "role must be viewer, operator, editor or admin, got %q", short(role))
	}
	return Role(role)
}

// maxOwnRooms bounds the rooms of a principal.
const maxOwnRooms = 100

// rooms reads the only rooms of a principal, by name or ID; none for all.
func (c *catalog) rooms(ctx context.Context, f *faults, value []byte) (ids []string) {
	if len(value) == 0 {
		return nil
	}
	var names []string
	if err := json.Unmarshal(value, &names); err != nil {
		f.add("/rooms", "rooms must be a list of names or IDs, empty for all rooms")
		return nil
	}
	if len(names) > maxOwnRooms {
		f.add("/rooms", "rooms must be at most %d, got %d", maxOwnRooms, len(names))
		return nil
	}
	state, err := c.store.Read(ctx)
	if err != nil {
		f.add("/rooms", "rooms cannot be checked now: the store cannot be read")
		return nil
	}
	for i, name := range names {
		r := state.Room(name)
		if r == nil {
			r = c.find(state, name)
		}
		if r == nil {
			f.add(fmt.Sprintf("/rooms/%d", i), "no room %q", short(name))
			continue
		}
		ids = append(ids, room.PublicID(r.Known()))
	}
	return ids
}
