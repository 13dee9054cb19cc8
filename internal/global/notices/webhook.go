package notices

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"vestibule/internal/core/wire"
	"vestibule/internal/global/jsondoc"
)

// Webhook is an address that notices are posted to. Its key in the store is its ID.
type Webhook struct {
	Name    string    `json:"name"`
	URL     string    `json:"url"`
	Kinds   []Kind    `json:"kinds,omitempty"` // none for all
	Rooms   []string  `json:"rooms,omitempty"` // their IDs; none for all, and for notices of no room
	Secrets []Secret  `json:"secrets"`         // the newest first
	Created time.Time `json:"created"`
	Off     *Off      `json:"off,omitempty"` // nil while it is on
}

// Off tells why a webhook is off.
type Off struct {
	At     time.Time `json:"at"`
	Why    string    `json:"why"`
	Failed bool      `json:"failed"` // by failure, not by an operator
}

// Secret is a key that signs messages.
type Secret struct {
	Key   Key       `json:"key"`
	Until time.Time `json:"until,omitzero"` // of a replaced one
}

// Key is the text of a secret, as its receiver configures it. It hides itself in logs.
type Key string

const keyPrefix = "whsec_"

// String implements [fmt.Stringer].
func (Key) String() string { return keyPrefix + "…" }

// GoString implements [fmt.GoStringer].
func (k Key) GoString() string { return k.String() }

// NewKey returns a random key of 256 bits.
func NewKey() Key {
	raw := make([]byte, 32)
	rand.Read(raw) // documented never to fail
	return Key(keyPrefix + base64.StdEncoding.EncodeToString(raw))
}

// bytes returns the key of the HMAC.
func (k Key) bytes() ([]byte, error) {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(string(k), keyPrefix))
	if err != nil || len(raw) < 24 || !strings.HasPrefix(string(k), keyPrefix) {
		return nil, errors.New("the secret of the webhook is not readable: rotate it")
	}
	return raw, nil
}

// RotateFor is how long messages are signed by the replaced secret too.
const RotateFor = 24 * time.Hour

// Rotate adds a key that signs from now on. The one before it signs too for [RotateFor].
func (w *Webhook) Rotate(now time.Time, key Key) {
	before := w.valid(now)
	if len(before) > 0 {
		before = before[:1]
		before[0].Until = now.Add(RotateFor)
	}
	w.Secrets = append([]Secret{{Key: key}}, before...)
}

// valid returns the secrets that sign at now.
func (w *Webhook) valid(now time.Time) []Secret {
	over := func(s Secret) bool { return !s.Until.IsZero() && !now.Before(s.Until) }
	return slices.DeleteFunc(slices.Clone(w.Secrets), over)
}

// Sign returns the signatures of a message by Standard Webhooks 1.0, one for each valid secret.
func (w *Webhook) Sign(now time.Time, id string, body []byte) (string, error) {
	var out []string
	for _, s := range w.valid(now) {
		key, err := s.Key.bytes()
		if err != nil {
			return "", err
		}
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + strconv.FormatInt(now.Unix(), 10) + "."))
		mac.Write(body)
		out = append(out, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	if len(out) == 0 {
		return "", errors.New("the webhook has no secret")
	}
	return strings.Join(out, " "), nil
}

// Takes reports whether the webhook gets a notice.
func (w *Webhook) Takes(n *Notice) bool {
	kind := len(w.Kinds) == 0 && n.Kind != RoomCalled || slices.Contains(w.Kinds, n.Kind)
	return kind && (len(w.Rooms) == 0 || slices.Contains(w.Rooms, n.Data.RoomID))
}

// Audited is the part of a webhook in an audit entry. The path of a URL may be a secret.
type Audited struct {
	Name  string   `json:"name"`
	Host  string   `json:"host"`
	Kinds []Kind   `json:"kinds,omitempty"`
	Rooms []string `json:"rooms,omitempty"`
	Keys  int      `json:"keys"`
	Off   string   `json:"off,omitempty"`
}

// Audited returns the part of a webhook that an audit entry shows, nil of none.
func (w *Webhook) Audited() *Audited {
	if w == nil {
		return nil
	}
	a := &Audited{Name: w.Name, Host: w.Host(), Kinds: w.Kinds, Rooms: w.Rooms, Keys: len(w.Secrets)}
	if w.Off != nil {
		a.Off = w.Off.Why
	}
	return a
}

// Host returns the host of the URL.
func (w *Webhook) Host() string {
	u, err := url.Parse(w.URL)
	if err != nil {
		return ""
	}
	return u.Host
}

const maxURL = 500

// CheckURL returns why notices cannot be posted to a URL, "" if they can.
func CheckURL(text string) string {
	u, err := url.Parse(text)
	switch {
	case len(text) > maxURL:
		return fmt.Sprintf("must be at most %d bytes", maxURL)
	case err != nil || u.Hostname() == "" || u.Opaque != "":
		return "must be an address such as https://hooks.example/vestibule"
	case u.User != nil:
		return "must have no user name and password: the signature proves the sender"
	case u.Fragment != "":
		return "must have no fragment"
	case u.Scheme == "https" || u.Scheme == "http" && loopback(u.Hostname()):
		return ""
	}
	return "must begin with https://; http:// is for this machine only"
}

func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// MaxWebhooks bounds the number of webhooks.
const MaxWebhooks = 20

const webhookKeys = "webhook."

// Webhooks are the stored webhooks.
type Webhooks struct{ Docs wire.DocumentStore }

// Get returns a webhook and its revision, nil for none.
func (s Webhooks) Get(ctx context.Context, id string) (*Webhook, uint64, error) {
	return jsondoc.Read[Webhook](ctx, s.Docs, webhookKeys+id)
}

// Put writes a webhook that was read at revision, 0 for a new one. It returns wire.ErrChanged if it has changed since.
func (s Webhooks) Put(ctx context.Context, id string, w *Webhook, revision uint64) error {
	return jsondoc.Write(ctx, s.Docs, webhookKeys+id, w, revision)
}

// Delete removes a webhook that was read at revision.
func (s Webhooks) Delete(ctx context.Context, id string, revision uint64) error {
	return s.Docs.Delete(ctx, webhookKeys+id, revision)
}

// List returns all webhooks by ID.
func (s Webhooks) List(ctx context.Context) (map[string]*Webhook, error) {
	return jsondoc.List[Webhook](ctx, s.Docs, webhookKeys)
}
