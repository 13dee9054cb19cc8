package push

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"vestibule/internal/core/strictjson"
	"vestibule/internal/core/ticket"
	"vestibule/internal/lab/testkit"
)

func subscription(t testing.TB) *Subscription {
	t.Helper()
	key := testkit.Must(ecdh.P256().GenerateKey(rand.Reader))(t)
	return &Subscription{
		"https://fcm.googleapis.com/fcm/send/secret-token", key.PublicKey().Bytes(),
		bytes.Repeat([]byte{3}, Auth), "de-DE", "/sale?x=1", "sale", nil,
	}
}

// TestASealedSubscription: opens for its room and ticket, under its secret, and shows nothing.
func TestASealedSubscription(t *testing.T) {
	s := testkit.Must(NewSealer(ticket.Secret{1}))(t)
	sub := subscription(t)
	sealed, err := s.Seal(7, 8, sub)
	if err != nil || bytes.Contains(sealed, []byte("secret-token")) {
		t.Fatalf("%q, %v", sealed, err)
	}
	r := Record{Place: 5, Notified: Soon, Sealed: sealed}
	data := testkit.Must(r.Encode())(t)
	back, err := DecodeRecord(data)
	if err != nil || !reflect.DeepEqual(back, r) {
		t.Fatalf("%+v, %v", back, err)
	}
	got, err := s.Open(7, 8, back.Sealed)
	if err != nil || !reflect.DeepEqual(got, sub) {
		t.Fatalf("%+v, %v", got, err)
	}
	other := testkit.Must(NewSealer(ticket.Secret{2}))(t)
	sealed[len(sealed)-1] ^= 1
	_, broken := s.Open(7, 8, sealed)
	sealed[len(sealed)-1] ^= 1
	_, room := s.Open(6, 8, sealed)
	_, visitor := s.Open(7, 9, sealed)
	_, secret := other.Open(7, 8, sealed)
	if broken == nil || room == nil || visitor == nil || secret == nil {
		t.Error("it opens elsewhere", broken, room, visitor, secret)
	}
	if c := s.Code(7, 8); !Equal(c, s.Code(7, 8)) || Equal(c, s.Code(7, 9)) || Equal(c, s.Code(6, 8)) ||
		Equal(c, s.Proof(7, 8)) || Equal(c, other.Code(7, 8)) {
		t.Error("codes of visitors are alike")
	}
	for _, text := range []string{"", "{", `{"told":9}`, `{"extra":1}`} {
		if r, err := DecodeRecord([]byte(text)); err == nil {
			t.Errorf("%q: %+v", text, r)
		}
	}
}

// TestASubscriptionOfANewerRelease: fields that may be ignored stay when it is stored or sealed again; with any other one
// it does not open.
func TestASubscriptionOfANewerRelease(t *testing.T) {
	r := testkit.Must(DecodeRecord([]byte(`{"opt_lane":[1],"place":5,"told":2}`)))(t)
	r.Notified = Called
	if data := testkit.Must(r.Encode())(t); string(data) != `{"place":5,"told":3,"opt_lane":[1]}` {
		t.Errorf("stored again as %s", data)
	}
	if r, err := DecodeRecord([]byte(`{"place":5,"told":2,"lane":1}`)); err == nil {
		t.Errorf("a critical field: %+v", r)
	}
	s, sub := testkit.Must(NewSealer(ticket.Secret{1}))(t), subscription(t)
	sub.Others = strictjson.Others{"opt_app": json.RawMessage(`"native"`)}
	got := testkit.Must(s.Open(7, 8, testkit.Must(s.Seal(7, 8, sub))(t)))(t)
	if again := testkit.Must(s.Open(7, 8, testkit.Must(s.Seal(7, 8, got))(t)))(t); !reflect.DeepEqual(again, sub) {
		t.Errorf("sealed again: %+v", again)
	}
	sealed := s.aead.Seal(nil, nil, []byte(`{"endpoint":"https://fcm.googleapis.com/x","app":"native"}`), about(7, 8))
	if got, err := s.Open(7, 8, sealed); err == nil {
		t.Errorf("a critical field: %+v", got)
	}
}

// TestWhatIsNoSubscription names the field of each fault.
func TestWhatIsNoSubscription(t *testing.T) {
	if why := subscription(t).Check(); why != "" {
		t.Fatal(why)
	}
	for name, change := range map[string]func(*Subscription){
		"endpoint": func(s *Subscription) { s.Endpoint = "https://127.0.0.1/" },
		"public":   func(s *Subscription) { s.Public[1]++ },
		"auth":     func(s *Subscription) { s.Auth = s.Auth[1:] },
		"language": func(s *Subscription) { s.Language = strings.Repeat("x", 17) },
		"page":     func(s *Subscription) { s.Page = "//evil.example" },
	} {
		s := subscription(t)
		change(s)
		if why := s.Check(); !strings.HasPrefix(why, name) {
			t.Errorf("%s: %q", name, why)
		}
	}
	for _, page := range []string{
		"", "x", "https://evil.example", "/\\evil", "/a b", "/é",
		"/" + strings.Repeat("x", 512),
	} {
		s := subscription(t)
		if s.Page = page; s.Check() == "" {
			t.Errorf("page %q", page)
		}
	}
	for services, want := range map[string]bool{
		"push.example": true, "*.push.example": true, "": false, "*": false,
		"push": false, "10.0.0.1": false, "https://push.example": false, "a.*.example": false, "push.example:444": false,
	} {
		if got := (Services{services}).Check() == ""; got != want {
			t.Errorf("%q: %v", services, got)
		}
	}
}
