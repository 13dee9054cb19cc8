package control

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/audit"
	"vestibule/internal/global/control/api"
	"vestibule/internal/global/jsondoc"
	"vestibule/internal/global/roomstore"
)

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
	all, err := s.tokens.docs.List(ctx, tokenKeys+"*")
	if err != nil || len(all) > 0 {
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
	all, err := jsondoc.List[token](ctx, s.tokens.docs, tokenKeys)
	if err != nil {
		return nil, err
	}
	out := []api.Token{}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		out = append(out, showToken(id, all[id], ""))
	}
	return complete(out), nil
}

func (s *tokenService) create(ctx context.Context, q *request) (any, error) {
	var f faults
	m := f.object("", q.body, "name", "role", "rooms", "expires_on")
	name := f.name(m["name"])
	role, rooms := f.role(m["role"]), s.rooms.rooms(ctx, &f, m["rooms"])
	expires := s.readExpiry(&f, m["expires_on"])
	if f.n > 0 {
		return nil, f.err()
	}
	all, err := s.tokens.docs.List(ctx, tokenKeys+"*")
	if err != nil {
		return nil, err
	}
	if len(all) >= maxTokens {
		f.add("", "there are %d tokens, which is the most: revoke some", len(all))
		return nil, f.err()
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
		f.add("/expires_on", "expires_on must be %q or a time to come, such as 2027-01-31T00:00:00Z, got %q", never,
			short(text))
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

// Expiry is the coming end of a token.
type Expiry struct {
	ID, Name string
	At       time.Time
}

// Soon reports whether operators must be warned of the expiry; a nil one is never soon.
func (e *Expiry) Soon(now time.Time) bool { return e != nil && e.At.Sub(now) <= expiryWarning }

// expiryWarning is the time before the end of a token at which operators are warned. Tokens with a shorter life end as
// planned.
const expiryWarning = 30 * 24 * time.Hour

// NextExpiry returns the earliest end of the valid tokens that were made for longer than expiryWarning; nil for none.
func (s *tokenService) NextExpiry(ctx context.Context) (*Expiry, error) {
	all, err := jsondoc.List[token](ctx, s.tokens.docs, tokenKeys)
	if err != nil {
		return nil, err
	}
	var next *Expiry
	now := s.tokens.now()
	for _, id := range slices.Sorted(maps.Keys(all)) {
		t := all[id]
		if t.Expires.IsZero() || t.expired(now) || t.Expires.Sub(t.Issued) <= expiryWarning {
			continue
		}
		if next == nil || t.Expires.Before(next.At) {
			next = &Expiry{id, t.Name, t.Expires}
		}
	}
	return next, nil
}

// name reads the name of a token or a webhook.
func (f *faults) name(value json.RawMessage) string {
	name, ok := f.text("/name", value)
	unprintable := strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
	if ok && (name == "" || len(name) > 64 || unprintable) {
		f.add("/name", "name must be 1 to 64 bytes of readable text")
	}
	return name
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
		r := c.named(state, name)
		if r == nil {
			f.add(fmt.Sprintf("/rooms/%d", i), "no room %q", short(name))
			continue
		}
		ids = append(ids, room.PublicID(r.TicketName()))
	}
	return ids
}
