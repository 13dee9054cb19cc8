package push

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/strictjson"
	"vestibule/internal/core/ticket"
)

// Subscription is how a browser is reached. Only [Sealer.Seal]ed ones are stored.
type Subscription struct {
	Endpoint string `json:"endpoint"`
	Public   []byte `json:"public"` // the browser's key
	Auth     []byte `json:"auth"`
	Language string `json:"language"` // of the page
	Page     string `json:"page"`     // path and query that the visitor waits for
	Room     string `json:"room"`     // its name

	Others strictjson.Others `json:"-"` // of a newer release
}

// Longest values in bytes.
const (
	maxEndpoint = 1024
	maxPage     = 512
)

// Check returns the violated rule, "" for none.
func (s *Subscription) Check() string {
	if _, why := hostOf(s.Endpoint); why != "" {
		return "endpoint: " + why
	}
	if _, err := ecdh.P256().NewPublicKey(s.Public); err != nil || len(s.Public) != PublicKey {
		return "public: must be an uncompressed point on P-256"
	}
	if len(s.Auth) != Auth {
		return fmt.Sprintf("auth: must have %d bytes", Auth)
	}
	if len(s.Language) > 16 {
		return "language: must be a language of the page"
	}
	if len(s.Page) > maxPage || !strings.HasPrefix(s.Page, "/") || strings.HasPrefix(s.Page, "//") ||
		strings.ContainsFunc(s.Page, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '\\' }) {
		return fmt.Sprintf("page: must be a path of at most %d bytes", maxPage)
	}
	return ""
}

// Origin returns the origin of an endpoint that has passed [Subscription.Check].
func Origin(endpoint string) string {
	host, _ := hostOf(endpoint)
	return "https://" + host
}

// hostOf returns the host of an endpoint, or the rule that it violates. An endpoint is a URL that a visitor gives: it
// must be https, at the usual port, of a host by name.
func hostOf(endpoint string) (host, why string) {
	if len(endpoint) > maxEndpoint {
		return "", fmt.Sprintf("must have at most %d bytes", maxEndpoint)
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "https" || u.Opaque != "" || u.User != nil || u.Fragment != "" {
		return "", "must be an https URL"
	}
	host = strings.TrimSuffix(u.Host, ":443")
	if !isName(host) {
		return "", "must name a host, without a port"
	}
	return host, ""
}

// isName reports whether a host is a domain name with a dot: no address in any notation.
func isName(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil || len(host) > 253 {
		return false
	}
	labels := strings.Split(host, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return false
		}
	}
	last := labels[len(labels)-1]
	return len(labels) > 1 && strings.Trim(last[:1], "0123456789") != "" // 0x7f.1 is an address too
}

// Services are hosts of push services; *.push.example stands for every name below.
type Services []string

// DefaultServices are those of the browsers.
var DefaultServices = Services{
	"fcm.googleapis.com", "updates.push.services.mozilla.com", "*.push.services.mozilla.com", "*.push.apple.com",
	"*.notify.windows.com",
}

// Check returns a violated rule, "" for none.
func (s Services) Check() string {
	for _, name := range s {
		if !isName(strings.TrimPrefix(name, "*.")) {
			return fmt.Sprintf("must be names such as push.example or *.push.example, got %q", name)
		}
	}
	return ""
}

// Has reports whether an endpoint is at one of them.
func (s Services) Has(endpoint string) bool { return s.Of(endpoint) != "" }

// Of returns the one that an endpoint is at, "" for none.
func (s Services) Of(endpoint string) string {
	host, why := hostOf(endpoint)
	if why != "" {
		return ""
	}
	for _, name := range s {
		below, ok := strings.CutPrefix(name, "*")
		if ok && strings.HasSuffix(host, below) || host == name {
			return name
		}
	}
	return ""
}

// Stage is the newest message to a subscriber.
type Stage uint8

// The stages, in their order.
const (
	Unconfirmed Stage = iota // nothing
	Confirmed                // the browser got a first message
	Soon                     // that about five minutes are left
	Called                   // that its turn has come
)

func (s Stage) String() string { return [...]string{"none", "confirm", "soon", "turn"}[min(s, Called)] }

// Record is a stored subscription: [Subject] names its room and ticket. An empty one means that it was withdrawn.
type Record struct {
	Place    fleettime.Time `json:"place"`
	Notified Stage          `json:"told"`
	Sealed   []byte         `json:"sealed,omitempty"` // a Subscription; none after the last stage

	Others strictjson.Others `json:"-"` // of a newer release
}

// Encode returns the stored form.
func (r *Record) Encode() ([]byte, error) { return strictjson.EncodeKeeping(r, r.Others) }

// DecodeRecord reads the stored form.
func DecodeRecord(data []byte) (r Record, err error) {
	if r.Others, err = strictjson.DecodeKeeping(data, &r); err == nil && r.Notified > Called {
		err = errors.New("unknown stage")
	}
	return r, err
}

// Sealer seals subscriptions, and signs the codes that browsers bring back. It is safe for concurrent use.
type Sealer struct {
	aead cipher.AEAD
	sign []byte
}

// NewSealer derives its keys from the fleet's secret.
func NewSealer(secret ticket.Secret) (*Sealer, error) {
	key, err := hkdf.Key(sha256.New, secret[:], nil, "vestibule push 1 seal", 64)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key[:32])
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return &Sealer{aead, key[32:]}, err
}

// Seal seals a subscription of a ticket.
func (s *Sealer) Seal(id room.ID, visitor uint64, sub *Subscription) ([]byte, error) {
	data, err := strictjson.EncodeKeeping(sub, sub.Others)
	if err != nil {
		return nil, err
	}
	return s.aead.Seal(nil, nil, data, about(id, visitor)), nil
}

// Open is the inverse of Seal.
func (s *Sealer) Open(id room.ID, visitor uint64, sealed []byte) (*Subscription, error) {
	data, err := s.aead.Open(nil, nil, sealed, about(id, visitor))
	if err != nil {
		return nil, errors.New("the subscription does not open")
	}
	sub := &Subscription{}
	sub.Others, err = strictjson.DecodeKeeping(data, sub)
	return sub, err
}

func about(id room.ID, visitor uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(id)), visitor)
}

// Code returns the code that the first message brings, and its browser sends back.
func (s *Sealer) Code(id room.ID, visitor uint64) string { return s.mac("code", id, visitor) }

// Begun returns the cookie of a visitor that has subscribed.
func (s *Sealer) Begun(id room.ID, visitor uint64) string { return s.mac("begun", id, visitor) }

// Proof returns the cookie of a visitor that has sent the code back.
func (s *Sealer) Proof(id room.ID, visitor uint64) string { return s.mac("proof", id, visitor) }

// Has reports whether a cookie is one of a visitor's subscription.
func (s *Sealer) Has(id room.ID, visitor uint64, cookie string) bool {
	return Equal(cookie, s.Begun(id, visitor)) || Equal(cookie, s.Proof(id, visitor))
}

func (s *Sealer) mac(what string, id room.ID, visitor uint64) string {
	h := hmac.New(sha256.New, s.sign)
	h.Write(append(about(id, visitor), what...))
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Equal compares codes and proofs in constant time.
func Equal(a, b string) bool { return hmac.Equal([]byte(a), []byte(b)) }

// NewSecret returns a new secret for a fleet.
func NewSecret() (s ticket.Secret, err error) {
	_, err = rand.Read(s[:])
	return s, err
}
