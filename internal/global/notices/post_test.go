package notices

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
)

func hook(t testing.TB, url string) *Webhook {
	t.Helper()
	key := NewKey()
	w := &Webhook{Name: "pager", URL: url}
	w.Rotate(time.Now(), key)
	return w
}

var loopbacks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// TestTheSignatureIsThatOfStandardWebhooks: the reference library verifies messages with the secret, and during a
// rotation with both; with no other, and with the old one no longer than the rotation lasts.
func TestTheSignatureIsThatOfStandardWebhooks(t *testing.T) {
	var got http.Header
	var body []byte
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = r.Header
		body, _ = io.ReadAll(r.Body)
	}))
	defer s.Close()
	w, n := hook(t, s.URL), newNotice(RoomPaused, "r1", "c", at(1), Data{Text: "Room shop: it is paused.", RoomID: "r1"})
	old := w.Secrets[0].Key
	fresh := NewKey()
	verifies := func(key Key) bool {
		t.Helper()
		v := testkit.Must(standardwebhooks.NewWebhook(string(key)))(t)
		return v.Verify(body, got) == nil
	}
	post := func() {
		t.Helper()
		if r := NewPoster(loopbacks).Post(t.Context(), time.Now(), w, &n); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	post()
	if !verifies(old) || verifies(fresh) {
		t.Error("one secret")
	}
	var m struct {
		Type      string
		Timestamp time.Time
		Data      Data
	}
	if err := json.Unmarshal(body, &m); err != nil || m.Type != "room.paused" || !m.Timestamp.Equal(at(1).Std()) ||
		m.Data.RoomID != "r1" || got.Get("webhook-id") != n.ID {
		t.Errorf("%s, %v, %v", body, err, got)
	}
	w.Rotate(time.Now(), fresh)
	post()
	if !verifies(old) || !verifies(fresh) {
		t.Error("two secrets")
	}
	w.Secrets[1].Until = time.Now()
	post()
	if verifies(old) || !verifies(fresh) {
		t.Error("after the rotation")
	}
	w.Rotate(time.Now(), old)
	if w.Rotate(time.Now(), fresh); len(w.Secrets) != 2 {
		t.Errorf("%d secrets", len(w.Secrets))
	}
}

// TestPrivateAddressesAreRefused: what a name resolves to counts, at the moment of the connection.
func TestPrivateAddressesAreRefused(t *testing.T) {
	asked := false
	s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer s.Close()
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	testkit.NoError(t, err)
	n := newNotice(WebhookTest, "", "", at(0), Data{})
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0"} {
		r := NewPoster(nil).Post(t.Context(), time.Now(), hook(t, "https://"+host+":"+port), &n)
		if !errors.Is(r.Err, errPrivate) || asked {
			t.Errorf("%s: %v", host, r.Err)
		}
	}
	for text, want := range map[string]bool{
		"8.8.8.8": true, "2606:4700::1": true, "10.1.2.3": false, "172.16.0.1": false, "192.168.1.1": false,
		"169.254.169.254": false,
		"100.64.0.1":      false, "127.0.0.1": false, "0.0.0.0": false, "255.255.255.255": false, "224.0.0.1": false,
		"::1": false, "::": false,
		"fe80::1": false, "fc00::1": false, "::ffff:10.0.0.1": false, "::ffff:8.8.8.8": true, "64:ff9b::a00:1": false,
		"2002:a00:1::": false, "::7f00:1": false,
	} {
		if got := node.Public(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s is public: %v", text, got)
		}
	}
}

// TestAnswers: what a receiver answers, or fails to.
func TestAnswers(t *testing.T) {
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		switch r.URL.Path {
		case "/good":
			w.WriteHeader(http.StatusNoContent)
		case "/moved":
			http.Redirect(w, r, "/good", http.StatusTemporaryRedirect)
		case "/gone":
			w.WriteHeader(http.StatusGone)
		case "/busy":
			w.Header().Set("Retry-After", "120")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer s.Close()
	n := newNotice(WebhookTest, "", "", at(0), Data{})
	for _, tt := range []struct {
		path   string
		status int
		good   bool
		gone   bool
		after  time.Duration
	}{
		{"/good", 204, true, false, 0},
		{"/moved", 307, false, false, 0},
		{"/gone", 410, false, true, 0},
		{"/busy", 503, false, false, 2 * time.Minute},
	} {
		asked = 0
		r := NewPoster(loopbacks).Post(t.Context(), time.Now(), hook(t, s.URL+tt.path), &n)
		if r.Status != tt.status || (r.Err == nil) != tt.good || r.Gone != tt.gone || r.RetryAfter != tt.after || asked != 1 {
			t.Errorf("%s: %+v after %d requests", tt.path, r, asked)
		}
	}
	url := s.URL + "/a-secret-path"
	s.Close()
	if r := NewPoster(loopbacks).Post(t.Context(), time.Now(), hook(t, url), &n); r.Err == nil ||
		strings.Contains(r.Err.Error(), "secret") || strings.Contains(r.Err.Error(), "127") {
		t.Errorf("%v", r.Err)
	}
}

func TestURLs(t *testing.T) {
	for url, good := range map[string]bool{
		"https://a.example/x?y": true, "http://127.0.0.1:8080": true, "http://localhost/x": true, "http://[::1]:1": true,
		"http://a.example": false, "ftp://a.example": false, "https://": false, "//a.example": false, "a.example": false,
		"":                      false,
		"https://u:p@a.example": false, "https://a.example/#x": false, "https:a.example": false,
		"https://a.example/" + strings.Repeat("x", maxURL): false,
	} {
		if why := CheckURL(url); (why == "") != good {
			t.Errorf("%q: %q", url, why)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, text := range []string{"", "5", "-1", "99999999999999999999", "Wed, 21 Oct 2026 07:28:00 GMT", "1.5"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if d := node.RetryAfter(time.Unix(1_795_000_000, 0), text, maxRetryAfter); d < 0 || d > maxRetryAfter {
			t.Errorf("%q: %v", text, d)
		}
	})
}

func FuzzURL(f *testing.F) {
	f.Add("https://a.example/x")
	f.Add("http://127.0.0.1:8080")
	f.Fuzz(func(t *testing.T, text string) {
		if CheckURL(text) != "" {
			return
		}
		if _, err := http.NewRequest(http.MethodPost, text, nil); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if w := (&Webhook{URL: text}); w.Host() == "" ||
			!slices.Contains([]string{"https", "http:"}, strings.ToLower(text[:5])) {
			t.Errorf("%q", text)
		}
	})
}
