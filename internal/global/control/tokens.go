package control

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"regexp"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"vestibule/internal/core/wire"
	"vestibule/internal/global/audit"
	"vestibule/internal/global/jsondoc"
	"vestibule/internal/global/roomstore"
)

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

// tokenLife is the life of a token without a given end.
const tokenLife = 365 * 24 * time.Hour

// never is the end of a token that does not expire.
const never = "never"

type tokens struct {
	auditor
	revoking sync.Mutex
	docs     wire.DocumentStore
	now      func() time.Time
	throttle *Throttle
	outage   *outage
	kept     *lru.Cache[string, keptToken] // those that were valid lately
}

type keptToken struct {
	token
	at time.Time
}

func newTokens(docs wire.DocumentStore, log auditor, down *outage) *tokens {
	kept, err := lru.New[string, keptToken](maxTokens)
	if err != nil {
		panic(err) // for a size below 1
	}
	return &tokens{auditor: log, docs: docs, now: time.Now, throttle: NewThrottle(), outage: down, kept: kept}
}

// errToken rejects a token. It gives no reason, so that guesses reveal nothing.
var errToken = refusef(http.StatusUnauthorized, codeAuthentication,
	"Authentication error: the token is unknown, expired or revoked")

// get returns a stored token and its revision, nil for none.
func (t *tokens) get(ctx context.Context, id string) (*token, uint64, error) {
	return jsondoc.Read[token](ctx, t.docs, tokenKeys+id)
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
		if was, ok := t.kept.Get(m[1]); ok && now.Sub(was.at) <= keptFor {
			stored = &was.token
		}
	}
	if err != nil && stored == nil {
		return who, err
	}
	if stored == nil || subtle.ConstantTimeCompare([]byte(stored.Hash), []byte(hash(text))) != 1 || stored.expired(now) {
		return who, t.failed(ctx, from, m[1])
	}
	if !kept {
		t.kept.Add(m[1], keptToken{*stored, now})
	}
	if !kept && now.Sub(stored.Used) >= usedEvery {
		stored.Used = now.UTC().Truncate(time.Second)
		if err := jsondoc.Write(ctx, t.docs, tokenKeys+m[1], stored, revision); err != nil && !errors.Is(err, wire.ErrChanged) {
			t.log.Warn("control: not noted that a token was used", slog.String("token", m[1]), slog.Any("error", err))
		}
	}
	return Principal{m[1], stored.Name, stored.Role, stored.Rooms}, nil
}

// failed records an invalid token with an ID, "" for none, from an address, and returns the refusal.
func (t *tokens) failed(ctx context.Context, from, id string) error {
	now := t.now()
	if wait := t.throttle.Failed(now, from); wait > 0 {
		return refusef(http.StatusTooManyRequests, codeAuthentication,
			"Authentication error: too many invalid tokens came from this address; try again in %d s", int(wait/time.Second)+1)
	}
	if t.throttle.First(now, from) {
		ctx = roomstore.By(ctx, audit.By{Name: "unknown", From: from, Operation: "authenticate"})
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := Announce(ctx, t.journal, now, loginTarget, nil, refusedLogin{
			id, "the token is unknown, expired or revoked",
		}); err != nil {
			t.log.Warn("control: a refused token is not in the audit stream",
				slog.String("from", from), slog.String("token", id), slog.Any("error", err))
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

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// make makes a token. It returns wire.ErrChanged if the id is taken.
func (t *tokens) make(ctx context.Context, id string, of token) (value string, tok *token, err error) {
	secret := make([]byte, 32)
	rand.Read(secret) // documented never to fail
	value = tokenPrefix + id + "_" + base64.RawURLEncoding.EncodeToString(secret)
	of.Hash, of.Issued = hash(value), t.now().UTC().Truncate(time.Second)
	put := func() error { return jsondoc.Write(ctx, t.docs, tokenKeys+id, &of, 0) }
	if err := t.audited(ctx, t.now(), tokenTarget+id, nil, of.shown(), put); err != nil {
		return "", nil, err
	}
	return value, &of, nil
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
			failed, e = Announce(adding, t.journal, t.now(), tokenTarget+id, stored.shown(), nil)
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
	all, err := jsondoc.List[token](ctx, t.docs, tokenKeys)
	if err != nil {
		return err
	}
	for other, o := range all {
		if other != id && o.keeper() {
			return nil
		}
	}
	return refusef(http.StatusBadRequest, codeInvalid,
		"token %s is the last admin token for all rooms that does not expire: create another with expires_on %q before you revoke it: invalid data",
		id, never)
}

// auditedToken is the part of a token that an audit entry shows.
type auditedToken struct {
	Name    string    `json:"name"`
	Role    Role      `json:"role"`
	Rooms   []string  `json:"rooms,omitempty"`
	Expires time.Time `json:"expires,omitzero"`
}

func (t *token) shown() *auditedToken {
	return &auditedToken{t.Name, t.Role, t.Rooms, t.Expires}
}
