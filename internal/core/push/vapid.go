package push

import (
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"vestibule/internal/core/ticket"
)

// Identity is the key pair by which push services know the fleet (VAPID, RFC 8292).
type Identity struct {
	key    *ecdsa.PrivateKey
	public []byte
}

// NewIdentity derives the identity from the fleet's secret.
func NewIdentity(secret ticket.Secret) (*Identity, error) {
	for i := range 8 {
		raw, err := hkdf.Key(sha256.New, secret[:], nil, fmt.Sprintf("vestibule push 1 identity %d", i), 32)
		if err != nil {
			return nil, err
		}
		key, err := ecdh.P256().NewPrivateKey(raw)
		if err != nil {
			continue // one in 2^32 is no key
		}
		signs, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), raw)
		if err != nil {
			return nil, err
		}
		return &Identity{signs, key.PublicKey().Bytes()}, nil
	}
	return nil, fmt.Errorf("push: the secret gives no key")
}

// Public returns the public key, in base64url: the applicationServerKey of pages.
func (id *Identity) Public() string { return base64.RawURLEncoding.EncodeToString(id.public) }

// A token is valid for tokenLife, and used for half of that. RFC 8292 allows a day.
const (
	tokenLife = 12 * time.Hour
	tokenUse  = 6 * time.Hour
	maxTokens = 64 // origins
)

// Tokens makes the Authorization header of messages and keeps one for each push service. contact is a mailto: or https:
// address of the operator. It is not safe for concurrent use.
type Tokens struct {
	id      *Identity
	contact string
	random  io.Reader
	made    map[string]token
}

type token struct {
	header string
	until  time.Time // it is used
}

// NewTokens returns the tokens of an identity.
func NewTokens(id *Identity, contact string, random io.Reader) *Tokens {
	return &Tokens{id, contact, random, map[string]token{}}
}

// Header returns the Authorization header for a push service, by its origin such as https://push.example.
func (t *Tokens) Header(now time.Time, origin string) (string, error) {
	if had, ok := t.made[origin]; ok && now.Before(had.until) && now.After(had.until.Add(-tokenUse-time.Minute)) {
		return had.header, nil
	}
	claims, err := json.Marshal(struct {
		Audience string `json:"aud"`
		Expires  int64  `json:"exp"`
		Subject  string `json:"sub"`
	}{origin, now.Add(tokenLife).Unix(), t.contact})
	if err != nil {
		return "", err
	}
	text := base64.RawURLEncoding.EncodeToString([]byte(`{"typ":"JWT","alg":"ES256"}`)) + "." +
		base64.RawURLEncoding.EncodeToString(claims)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(t.random, t.id.key, sum[:])
	if err != nil {
		return "", err
	}
	var signature [64]byte
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	header := "vapid t=" + text + "." + base64.RawURLEncoding.EncodeToString(signature[:]) + ", k=" + t.id.Public()
	if len(t.made) >= maxTokens {
		clear(t.made)
	}
	t.made[strings.Clone(origin)] = token{header, now.Add(tokenUse)}
	return header, nil
}
