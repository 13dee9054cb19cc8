package proof

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/lab/testkit"
)

const (
	begin = fleettime.Time(1_800_000_000_000)
	site  = "http://10.0.0.5:8080"
)

func ringOf(t testing.TB, seed byte) ticket.Keyring {
	t.Helper()
	return testkit.Must(ticket.Keyring{}.Rotate(begin, time.Hour, rand.NewChaCha8([32]byte{seed})))(t)
}

func keysOf(t testing.TB, ring ticket.Keyring) *Keys {
	t.Helper()
	return testkit.Must(NewKeys(ring))(t)
}

func saleRoom() *room.Room {
	return &room.Room{ID: room.IDOf("sale"), Settings: room.Settings{Name: "sale"}}
}

func session(now fleettime.Time) ticket.Ticket {
	return ticket.Ticket{
		ID: 1<<63 | 7, Admitted: uint32(now.Second()) - 60, Until: uint32(now.Second()) + 3600,
		Home: ticket.DCOf("nairobi"), Epoch: 3,
	}
}

// With only the published keys a site learns the session of a proof, and a node of the fleet its ticket.
func TestAProofSaysWhoIsInside(t *testing.T) {
	k := keysOf(t, ringOf(t, 1))
	s := session(begin)
	text, made, err := k.Inside(begin, site, saleRoom(), &s)
	testkit.NoError(t, err)
	var set jose.JSONWebKeySet
	testkit.NoError(t, json.Unmarshal(k.Set(), &set))
	parsed := testkit.Must(jwt.ParseSigned(text, []jose.SignatureAlgorithm{jose.EdDSA}))(t)
	var c Claims
	testkit.NoError(t, parsed.Claims(&set, &c))
	want := Claims{
		Issuer: Issuer, Audience: site, Issued: begin.Second(), Expires: begin.Second() + 300, Room: "sale",
		Admitted: begin.Second() - 60, Epoch: 3, Subject: made.Subject, Number: "854-775-815", Session: made.Session,
	}
	if c != want || c != made || c.Subject == "" {
		t.Errorf("%+v, want %+v", c, want)
	}
	for _, key := range set.Keys {
		if !key.IsPublic() || key.Use != "sig" || key.Algorithm != "EdDSA" {
			t.Errorf("published: %+v", key)
		}
	}
	if len(set.Keys) != 2 || strings.Contains(string(k.Set()), `"d"`) {
		t.Errorf("published: %s", k.Set())
	}

	got, who, err := k.Check(begin.Add(time.Minute), text)
	if err != nil || got != want {
		t.Errorf("checked: %+v, %v", got, err)
	}
	if who != (ticket.Ticket{ID: s.ID, Home: s.Home, Until: s.Until, Admitted: s.Admitted, Epoch: s.Epoch}) {
		t.Errorf("whose: %+v", who)
	}
	// The subject is constant within a session and differs between sessions.
	s.Until++
	_, again, err := k.Inside(begin, site, saleRoom(), &s)
	if err != nil || again.Subject != made.Subject || again.Session == made.Session {
		t.Errorf("renewed: %+v, %v", again, err)
	}
	s.ID++
	if _, other, err := k.Inside(begin, site, saleRoom(), &s); err != nil || other.Subject == made.Subject {
		t.Errorf("another's: %+v, %v", other, err)
	}
}

// No proof is valid for longer than [Life], or than its session.
func TestAProofEnds(t *testing.T) {
	k := keysOf(t, ringOf(t, 1))
	for left, want := range map[uint32]time.Duration{3600: Life, 20: 20 * time.Second} {
		s := session(begin)
		s.Until = uint32(begin.Second()) + left
		text, _, err := k.Inside(begin, site, saleRoom(), &s)
		testkit.NoError(t, err)
		if _, _, err := k.Check(begin.Add(want-time.Second), text); err != nil {
			t.Errorf("%d s left: %v", left, err)
		}
		if _, _, err := k.Check(begin.Add(want), text); !errors.Is(err, ErrExpired) {
			t.Errorf("%d s left, after %v: %v", left, want, err)
		}
	}
	text, c, err := k.Outside(begin, site)
	if err != nil || c.Subject != "" || c.Room != "" || c.Session != "" {
		t.Errorf("outside: %+v, %v", c, err)
	}
	if _, who, err := k.Check(begin.Add(Life-time.Second), text); err != nil || who.ID != 0 {
		t.Errorf("outside: %+v, %v", who, err)
	}
}

// Only proofs signed by the fleet are valid, after any change none is.
func TestNobodyMakesAProof(t *testing.T) {
	ring := ringOf(t, 1)
	k := keysOf(t, ring)
	s := session(begin)
	text, _, err := k.Inside(begin, site, saleRoom(), &s)
	testkit.NoError(t, err)
	for i := range len(text) {
		for _, c := range []byte{'A', 'b', '.'} {
			forged := text[:i] + string(c) + text[i+1:]
			// The last characters of a part have unused bits.
			if same, _, err := k.Check(begin, forged); forged != text && err == nil {
				if parts := strings.Split(forged, "."); len(parts) != 3 || same.Room != "sale" || same.Audience != site {
					t.Fatalf("%d: %s is a proof of %+v", i, forged, same)
				}
			}
		}
	}
	other := keysOf(t, ringOf(t, 2))
	foreign, _, err := other.Inside(begin, site, saleRoom(), &s)
	testkit.NoError(t, err)
	if _, _, err := k.Check(begin, foreign); !errors.Is(err, ErrKey) {
		t.Errorf("of another fleet: %v", err)
	}
	// From another fleet, under the ID of a key of this one.
	_, private, err := ed25519.GenerateKey(nil)
	testkit.NoError(t, err)
	signed := func(alg jose.SignatureAlgorithm, key any) string {
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: k.keys[0].id}},
			nil)
		testkit.NoError(t, err)
		text := testkit.Must(jwt.Signed(signer).Claims(Claims{
			Issuer: Issuer, Audience: site, Expires: begin.Second() + 100,
			Room: "sale",
		}).Serialize())(t)
		return text
	}
	if _, _, err := k.Check(begin, signed(jose.EdDSA, private)); !errors.Is(err, ErrSignature) {
		t.Errorf("by another key: %v", err)
	}
	// The public key used as a shared secret, and no signature at all.
	public := []byte(k.keys[0].public)
	if _, _, err := k.Check(begin, signed(jose.HS256, public)); !errors.Is(err, ErrMalformed) {
		t.Errorf("HS256: %v", err)
	}
	parts := strings.Split(text, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","kid":"` + k.keys[0].id + `"}`))
	mac := hmac.New(sha256.New, public)
	mac.Write([]byte(none + "." + parts[1]))
	for _, forged := range []string{
		"", ".", "..", none + "." + parts[1] + ".",
		none + "." + parts[1] + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)),
		text + ".", "." + text, text + text, strings.Repeat("a", 5000),
	} {
		if c, _, err := k.Check(begin, forged); err == nil {
			t.Errorf("%.80q is a proof of %+v", forged, c)
		}
	}
}

// Keys are published for a rotation before and after they sign; proofs of a node with an older ring are valid
// everywhere.
func TestProofKeysRotate(t *testing.T) {
	rings := []ticket.Keyring{ringOf(t, 1)}
	now := begin
	for i := range 3 {
		now = now.Add(time.Hour)
		rings = append(rings, testkit.Must(rings[i].Rotate(now, time.Hour, rand.NewChaCha8([32]byte{9})))(t))
	}
	s := session(begin.Add(time.Hour))
	for i := 1; i < len(rings); i++ {
		at := begin.Add(time.Duration(i) * time.Hour)
		old, fresh := keysOf(t, rings[i-1]), keysOf(t, rings[i])
		s.Until = uint32(at.Second()) + 600
		for _, pair := range [][2]*Keys{{old, fresh}, {fresh, old}, {fresh, fresh}} {
			text, _, err := pair[0].Inside(at, site, saleRoom(), &s)
			testkit.NoError(t, err)
			if _, _, err := pair[1].Check(at, text); err != nil {
				t.Errorf("rotation %d: %v", i, err)
			}
		}
	}
	if _, _, err := keysOf(t, rings[0]).Outside(begin.Add(-time.Second), site); !errors.Is(err, ErrKey) {
		t.Errorf("before any key signs: %v", err)
	}
	if empty := keysOf(t, ticket.Keyring{}); string(empty.Set()) != `{"keys":[]}` {
		t.Errorf("without keys: %s", empty.Set())
	}
}
