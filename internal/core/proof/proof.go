// Package proof makes and checks the signed header that an edge adds to a request for the site: a JWT which says
// that the request passed the waiting room, and in which session. A site that rejects requests without a valid
// proof cannot be reached around the edges.
//
// Signing keys are derived from the root keys of the fleet ([ticket.Keyring]), so nothing else is stored,
// distributed or rotated. A reader of the root keys could forge tickets anyway, and a leaked signing key reveals
// nothing of the root. A key is published for a whole rotation before it signs.
//
// A proof is a bearer token: it does not identify the request. It is valid for the one site in its audience and for
// at most [Life]. Visitors never see it.
package proof

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
)

// Life is the maximum validity of a proof. It never outlives the session.
const Life = 5 * time.Minute

// Issuer is the issuer claim of proofs.
const Issuer = "vestibule"

// Claims are the contents of a proof. Times are Unix seconds of fleet time.
type Claims struct {
	Issuer   string `json:"iss"`
	Audience string `json:"aud"` // the origin, as the room names it
	Issued   int64  `json:"iat"` //
	Expires  int64  `json:"exp"` //
	// pseudonym of the visitor's ticket, constant for the session; empty outside of all rooms
	Subject  string `json:"sub,omitempty"`
	Number   string `json:"number,omitempty"`   // the visitor's reference number, as shown on the waiting page
	Room     string `json:"room,omitempty"`     // the visitor's room; empty outside of all rooms
	Admitted int64  `json:"admitted,omitempty"` // time of the admission
	Epoch    uint32 `json:"epoch,omitempty"`    // of the room
	Session  string `json:"sid,omitempty"`      // the ticket, encrypted for the edges
}

// Errors of [Keys.Check].
var (
	ErrMalformed = errors.New("malformed")
	ErrKey       = errors.New("unknown key")
	ErrSignature = errors.New("broken signature")
	ErrExpired   = errors.New("expired")
)

// Keys are the signing keys of a ring. They are immutable and safe for concurrent use.
type Keys struct {
	keys []key // oldest first, as in the ring
	set  []byte
}

type key struct {
	id       string
	sealFrom fleettime.Time
	signer   jose.Signer
	public   ed25519.PublicKey
	session  cipher.Block
}

// NewKeys derives the keys of a ring.
func NewKeys(ring ticket.Keyring) (*Keys, error) {
	out := &Keys{}
	var set jose.JSONWebKeySet
	for _, root := range ring.Keys {
		k, err := derive(root)
		if err != nil {
			return nil, fmt.Errorf("proof key of key %d: %w", root.ID, err)
		}
		out.keys = append(out.keys, k)
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: k.public, KeyID: k.id, Algorithm: string(jose.EdDSA), Use: "sig"})
	}
	if set.Keys == nil {
		set.Keys = []jose.JSONWebKey{}
	}
	var err error
	out.set, err = json.Marshal(set)
	return out, err
}

func derive(root ticket.Key) (k key, err error) {
	seed, err := hkdf.Key(sha256.New, root.Secret[:], nil, "vestibule proof 1 signature", ed25519.SeedSize)
	if err != nil {
		return key{}, err
	}
	inner, err := hkdf.Key(sha256.New, root.Secret[:], nil, "vestibule proof 1 session", 32)
	if err != nil {
		return key{}, err
	}
	private := ed25519.NewKeyFromSeed(seed)
	k.sealFrom, k.public = root.SealFrom, private.Public().(ed25519.PublicKey)
	sum := sha256.Sum256(k.public)
	k.id = base64.RawURLEncoding.EncodeToString(sum[:12])
	if k.session, err = aes.NewCipher(inner); err != nil {
		return key{}, err
	}
	k.signer, err = jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: private, KeyID: k.id}},
		(&jose.SignerOptions{}).WithType("JWT"))
	return k, err
}

// Set returns the public keys as a JSON Web Key Set (RFC 7517); it must not be changed.
func (k *Keys) Set() []byte { return k.set }

// Outside signs that a request outside of all rooms passed an edge, for the site audience. It also returns the
// claims, which hold the expiry.
func (k *Keys) Outside(now fleettime.Time, audience string) (string, Claims, error) {
	return k.sign(now, Claims{Audience: audience}, nil)
}

// Inside signs that a request of session t in room r passed an edge.
func (k *Keys) Inside(now fleettime.Time, audience string, r *room.Room, t *ticket.Ticket) (string, Claims, error) {
	c := Claims{
		Audience: audience, Subject: subject(r.ID, t.ID), Number: string(ticket.AppendNumber(nil, t.ID)), Room: r.Name,
		Admitted: int64(t.Admitted), Epoch: t.Epoch, Expires: int64(t.Until),
	}
	return k.sign(now, c, t)
}

func (k *Keys) sign(now fleettime.Time, c Claims, t *ticket.Ticket) (string, Claims, error) {
	i := len(k.keys) - 1
	for i >= 0 && k.keys[i].sealFrom > now {
		i--
	}
	if i < 0 {
		return "", c, ErrKey
	}
	c.Issuer, c.Issued = Issuer, now.Second()
	end := c.Issued + int64(Life/time.Second)
	if c.Expires == 0 || c.Expires > end {
		c.Expires = end
	}
	if t != nil {
		var b [aes.BlockSize]byte
		binary.BigEndian.PutUint64(b[:], t.ID)
		binary.BigEndian.PutUint32(b[8:], uint32(t.Home))
		binary.BigEndian.PutUint32(b[12:], t.Until)
		k.keys[i].session.Encrypt(b[:], b[:])
		c.Session = base64.RawURLEncoding.EncodeToString(b[:])
	}
	text, err := jwt.Signed(k.keys[i].signer).Claims(c).Serialize()
	return text, c, err
}

// subject returns the pseudonym of a ticket. It reveals neither the ticket nor its number.
func subject(id room.ID, number uint64) string {
	b := binary.BigEndian.AppendUint64([]byte("vestibule proof 1 subject"), uint64(id))
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(b, number))
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// Check returns the claims of a proof that is valid at now, and the fields of the session's ticket that it holds:
// number, home, epoch and expiry. The number is 0 outside of all rooms. The caller checks the audience.
func (k *Keys) Check(now fleettime.Time, text string) (Claims, ticket.Ticket, error) {
	var c Claims
	var t ticket.Ticket
	if len(text) > maxLength {
		return c, t, ErrMalformed
	}
	parsed, err := jwt.ParseSigned(text, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil || len(parsed.Headers) != 1 {
		return c, t, ErrMalformed
	}
	i := slices.IndexFunc(k.keys, func(h key) bool { return h.id == parsed.Headers[0].KeyID })
	if i < 0 {
		return c, t, ErrKey
	}
	if err := parsed.Claims(k.keys[i].public, &c); err != nil {
		return Claims{}, t, ErrSignature
	}
	if c.Issuer != Issuer {
		return Claims{}, t, ErrMalformed
	}
	if now.Second() >= c.Expires {
		return Claims{}, t, ErrExpired
	}
	if c.Room == "" {
		return c, t, nil
	}
	var b [aes.BlockSize]byte
	if len(c.Session) != base64.RawURLEncoding.EncodedLen(len(b)) {
		return Claims{}, t, ErrMalformed
	}
	if _, err := base64.RawURLEncoding.Decode(b[:], []byte(c.Session)); err != nil {
		return Claims{}, t, ErrMalformed
	}
	k.keys[i].session.Decrypt(b[:], b[:])
	t = ticket.Ticket{
		ID: binary.BigEndian.Uint64(b[:]), Home: ticket.DC(binary.BigEndian.Uint32(b[8:])),
		Until: binary.BigEndian.Uint32(b[12:]), Admitted: uint32(c.Admitted), Epoch: c.Epoch,
	}
	return c, t, nil
}

// maxLength bounds the length of a proof, in bytes. A usual one has about 400, with the names of a room and an
// origin.
const maxLength = 4 << 10
