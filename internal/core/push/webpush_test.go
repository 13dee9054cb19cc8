package push

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/ticket"
	"vestibule/internal/lab/testkit"
)

func raw(t testing.TB, text string) []byte {
	t.Helper()
	return testkit.Must(base64.RawURLEncoding.DecodeString(text))(t)
}

// TestExampleOfRFC8291: the keys and the salt of its section 5 give its message.
func TestExampleOfRFC8291(t *testing.T) {
	own := testkit.Must(ecdh.P256().NewPrivateKey(raw(t, "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw")))(t)
	browser := raw(t, "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4")
	salt := [16]byte(raw(t, "DGv6ra1nlYgDCS1FRnbzlw"))
	got, err := encrypt([]byte("When I grow up, I want to be a watermelon"), browser, raw(t, "BTBZMqHH6r4Tts7J_aSIgg"),
		own, salt)
	testkit.NoError(t, err)
	want := "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27ml" +
		"mlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPT" +
		"pK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
	if text := base64.RawURLEncoding.EncodeToString(got); text != want {
		t.Fatalf("got  %s\nwant %s", text, want)
	}
}

// TestABrowserReadsWhatWasEncryptedForIt: and nobody else.
func TestABrowserReadsWhatWasEncryptedForIt(t *testing.T) {
	key := testkit.Must(ecdh.P256().GenerateKey(rand.Reader))(t)
	other := testkit.Must(ecdh.P256().GenerateKey(rand.Reader))(t)
	auth := bytes.Repeat([]byte{7}, Auth)
	seen := map[string]bool{}
	for _, size := range []int{0, 1, 300, MaxText} {
		text := bytes.Repeat([]byte("é"), size)[:size]
		body := testkit.Must(Encrypt(text, key.PublicKey().Bytes(), auth, rand.Reader))(t)
		got, err := testkit.ReadPush(body, key, auth)
		if err != nil || !bytes.Equal(got, text) {
			t.Fatalf("%d bytes: %q, %v", size, got, err)
		}
		if len(body) > 4096 || seen[string(body[:16])] {
			t.Errorf("%d bytes, salt %x", len(body), body[:16])
		}
		seen[string(body[:16])] = true
		if _, err := testkit.ReadPush(body, other, auth); err == nil {
			t.Error("another browser reads it")
		}
		if _, err := testkit.ReadPush(body, key, bytes.Repeat([]byte{8}, Auth)); err == nil {
			t.Error("it opens without the authentication secret")
		}
	}
	for name, c := range map[string]struct{ text, public, auth []byte }{
		"too long":       {make([]byte, MaxText+1), key.PublicKey().Bytes(), auth},
		"no point":       {nil, append([]byte{4}, make([]byte, 64)...), auth},
		"short key":      {nil, key.PublicKey().Bytes()[:64], auth},
		"compressed key": {nil, append([]byte{2}, key.PublicKey().Bytes()[1:33]...), auth},
		"no auth":        {nil, key.PublicKey().Bytes(), nil},
		"long auth":      {nil, key.PublicKey().Bytes(), make([]byte, 17)},
	} {
		if _, err := Encrypt(c.text, c.public, c.auth, rand.Reader); err == nil {
			t.Errorf("%s: encrypted", name)
		}
	}
}

// TestTokens: a token verifies by the public key, names the push service, ends within a day, is kept for six hours, and
// another push service gets another.
func TestTokens(t *testing.T) {
	id := testkit.Must(NewIdentity(ticket.Secret{1}))(t)
	again, err := NewIdentity(ticket.Secret{1})
	if err != nil || again.Public() != id.Public() {
		t.Fatalf("equal secrets give %s and %s, %v", id.Public(), again.Public(), err)
	}
	if other, err := NewIdentity(ticket.Secret{2}); err != nil || other.Public() == id.Public() {
		t.Fatalf("other secrets give %s, %v", other.Public(), err)
	}
	tokens, now := NewTokens(id, "mailto:ops@shop.example", rand.Reader), time.Unix(1_800_000_000, 0)
	header := func(after time.Duration, origin string) string {
		return testkit.Must(tokens.Header(now.Add(after), origin))(t)
	}
	first := header(0, "https://push.example")
	text, key, _ := strings.Cut(strings.TrimPrefix(first, "vapid t="), ", k=")
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		t.Fatal(first)
	}
	public := testkit.Must(ecdsa.ParseUncompressedPublicKey(elliptic.P256(), raw(t, key)))(t)
	sum, signature := sha256.Sum256([]byte(parts[0]+"."+parts[1])), raw(t, parts[2])
	if !ecdsa.Verify(public, sum[:], new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:])) {
		t.Error("the signature does not verify")
	}
	var claims struct {
		Aud, Sub string
		Exp      int64
	}
	testkit.NoError(t, json.Unmarshal(raw(t, parts[1]), &claims))
	if life := time.Unix(claims.Exp, 0).Sub(now); claims.Aud != "https://push.example" ||
		claims.Sub != "mailto:ops@shop.example" || life <= tokenUse || life > 24*time.Hour {
		t.Errorf("%+v, lives %v", claims, life)
	}
	if header(tokenUse-time.Second, "https://push.example") != first {
		t.Error("a new token within six hours")
	}
	if header(tokenUse, "https://push.example") == first {
		t.Error("the old token after six hours")
	}
	if header(0, "https://other.example") == first {
		t.Error("one token for two push services")
	}
	for i := range 3 * maxTokens {
		header(0, fmt.Sprintf("https://%d.example", i))
	}
	if len(tokens.made) > maxTokens {
		t.Errorf("%d tokens are kept", len(tokens.made))
	}
}

func BenchmarkEncrypt(b *testing.B) {
	key := testkit.Must(ecdh.P256().GenerateKey(rand.Reader))(b)
	public, auth, text := key.PublicKey().Bytes(), make([]byte, Auth), make([]byte, 300)
	for b.Loop() {
		testkit.Must(Encrypt(text, public, auth, rand.Reader))(b)
	}
}

// BenchmarkSubscription is what an edge computes for a subscription: it checks it and seals it.
func BenchmarkSubscription(b *testing.B) {
	s := testkit.Must(NewSealer(ticket.Secret{1}))(b)
	sub := subscription(b)
	for b.Loop() {
		if why := sub.Check(); why != "" {
			b.Fatal(why)
		}
		sealed, err := s.Seal(7, 8, sub)
		if err == nil {
			_, err = (&Record{Place: 5, Sealed: sealed}).Encode()
		}
		testkit.NoError(b, err)
	}
}
