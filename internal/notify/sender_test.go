package notify

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"vestibule/internal/core/push"
	"vestibule/internal/core/ticket"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
)

func identity(t testing.TB) *push.Identity {
	t.Helper()
	return testkit.Must(push.NewIdentity(ticket.Secret{1}))(t)
}

// deliver makes one attempt.
func deliver(t testing.TB, s *sender, sub *push.Subscription, m *Message) Result {
	t.Helper()
	r, res := s.request(time.Now(), sub, m)
	if r == nil {
		return res
	}
	return s.send(t.Context(), time.Now(), r)
}

// browserKeys are the keys of a subscription.
func browserKeys(t testing.TB) push.Subscription {
	t.Helper()
	key := testkit.Must(ecdh.P256().GenerateKey(rand.Reader))(t)
	return push.Subscription{Public: key.PublicKey().Bytes(), Auth: make([]byte, push.Auth), Language: "en-US", Page: "/"}
}

// names is a DNS server that answers every question for an A or AAAA record with the next address.
func names(t testing.TB, next func() netip.Addr) *net.Resolver {
	t.Helper()
	conn := testkit.Must(net.ListenPacket("udp", "127.0.0.1:0"))(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return // closed
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q, a := m.Questions[0], next()
			m.Response, m.Additionals = true, nil
			h := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 0}
			switch {
			case q.Type == dnsmessage.TypeA && a.Is4():
				m.Answers = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.AResource{A: a.As4()}}}
			case q.Type == dnsmessage.TypeAAAA && a.Is6():
				m.Answers = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}}}
			}
			if out, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(out, from)
			}
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// TestAnEndpointReachesOnlyPushServices: endpoints are URLs that visitors give. None of these is connected to: other
// schemes, ports and hosts by their text, before any look-up; the others by the address that a name of an allowed push
// service resolves to, at the moment of the connection.
func TestAnEndpointReachesOnlyPushServices(t *testing.T) {
	hit := &atomic.Int32{}
	l := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	s := &httptest.Server{
		Listener: l,
		Config:   &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hit.Add(1) })},
	}
	s.StartTLS()
	defer s.Close()
	services := append(push.Services{"push.example"}, push.DefaultServices...)
	tried := 0
	refused := func(name, endpoint string, names *net.Resolver) {
		t.Helper()
		tried++
		sub := browserKeys(t)
		sub.Endpoint = endpoint
		s := newSender(identity(t), "mailto:ops@shop.example", services, node.Outbound{Resolver: names})
		r := deliver(t, s, &sub, &Message{Text: []byte("{}"), Topic: "t", TTL: time.Minute})
		if r.Cause != causeForbidden || hit.Load() != 0 {
			t.Errorf("%s: %s: %+v", name, endpoint, r)
		}
		if r.Err != nil && strings.Contains(r.Err.Error(), "secret-token") {
			t.Errorf("%s: the error tells the endpoint: %v", name, r.Err)
		}
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	testkit.NoError(t, err)
	looked := names(t, func() netip.Addr {
		t.Error("a name is looked up")
		return netip.MustParseAddr("8.8.8.8")
	})
	for _, endpoint := range []string{
		"http://fcm.googleapis.com/x", "HTTP://fcm.googleapis.com/x", "ftp://fcm.googleapis.com/x", "file:///etc/passwd",
		"gopher://fcm.googleapis.com/x", "//fcm.googleapis.com/x", "fcm.googleapis.com/x", "https:fcm.googleapis.com",
		"https:///x", "",
		"https://fcm.googleapis.com:" + port + "/x", "https://fcm.googleapis.com:80/x", "https://fcm.googleapis.com:22/x",
		"https://fcm.googleapis.com:/x",
		"https://fcm.googleapis.com:0443/x", "https://127.0.0.1/x", "https://127.0.0.1:" + port + "/x", "https://127.1/x",
		"https://0x7f.0.0.1/x", "https://2130706433/x",
		"https://0177.0.0.1/x", "https://[::1]/x", "https://[::ffff:127.0.0.1]/x", "https://[fe80::1%25eth0]/x",
		"https://169.254.169.254/latest/meta-data",
		"https://localhost/x", "https://metadata.google.internal/x", "https://shop.example/x",
		"https://evil.example/fcm.googleapis.com",
		"https://fcm.googleapis.com.evil.example/x", "https://evilfcm.googleapis.com/x",
		"https://push.apple.com.evil.example/x", "https://xpush.apple.com/x",
		"https://push.apple.com/x", "https://.push.apple.com/x", "https://fcm.googleapis.com./x",
		"https://FCM.googleapis.com/x", "https://fcm.googleapis.com\u3002/x", "https://fcm%2egoogleapis.com/x",
		"https://user:secret-token@fcm.googleapis.com/x", "https://fcm.googleapis.com@evil.example/x",
		"https://evil.example\\@fcm.googleapis.com/x",
		"https://fcm.googleapis.com/x#y", "https://fcm.googleapis.com\r\nHost: evil/x",
		"https://fcm.googleapis.com/" + strings.Repeat("x", 1100), "https://ｆcm.googleapis.com/x",
	} {
		refused("by text", endpoint, looked)
	}
	for _, a := range []string{
		"127.0.0.1", "127.255.255.254", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
		"169.254.169.254", "100.64.0.1", "100.100.100.200",
		"192.0.0.192", "192.0.2.1", "192.88.99.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1",
		"239.255.255.250", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1",
		"64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "100::1",
		"2001::1", "2001:db8::1", "2002:7f00:1::", "2002:a00:1::", "fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1",
		"ff02::1",
	} {
		to := netip.MustParseAddr(a)
		refused(a, "https://push.example/secret-token", names(t, func() netip.Addr { return to }))
	}
	t.Logf("%d cases, %d connections", tried, hit.Load())
}

// TestRebinding: a name that was public when it was looked up first, and is not at the next connection, is not
// connected to, however often it changes.
func TestRebinding(t *testing.T) {
	var private atomic.Bool
	resolver := names(t, func() netip.Addr {
		if private.Load() {
			return netip.MustParseAddr("127.0.0.1")
		}
		return netip.MustParseAddr("8.8.8.8")
	})
	if got, err := resolver.LookupHost(t.Context(), "push.example"); err != nil || got[0] != "8.8.8.8" {
		t.Fatal(got, err)
	}
	private.Store(true)
	sub := browserKeys(t)
	sub.Endpoint = "https://push.example/x"
	s := newSender(identity(t), "mailto:ops@shop.example", push.Services{"push.example"},
		node.Outbound{Resolver: resolver})
	for range 4 {
		if r := deliver(t, s, &sub, &Message{TTL: time.Minute}); r.Cause != causeForbidden {
			t.Errorf("%+v", r)
		}
	}
}

// pushService is a push service of the tests, reached as push.example.
type pushService struct {
	*httptest.Server
	out node.Outbound
}

func newPushService(t testing.TB, h http.Handler) *pushService {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return &pushService{s, node.Outbound{Roots: roots}}
}

// sender returns a sender whose connections go to the service.
func (p *pushService) sender(t testing.TB) *sender {
	t.Helper()
	s := newSender(identity(t), "mailto:ops@shop.example", push.Services{"example.com"}, p.out)
	dialTo(s.client, p.Listener.Addr().String())
	return s
}

// dialTo has all connections of a client go to an address.
func dialTo(c *http.Client, at string) {
	c.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, at)
	}
}

// TestAnswersOfAPushService: what it answers decides about another attempt, and no redirect is followed.
func TestAnswersOfAPushService(t *testing.T) {
	asked := 0
	p := newPushService(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		body, err := io.ReadAll(r.Body)
		h := r.Header
		if err != nil || len(body) < 86 || h.Get("TTL") != "300" || h.Get("Urgency") != "high" || h.Get("Topic") != "t1" ||
			h.Get("Content-Encoding") != "aes128gcm" || !strings.HasPrefix(h.Get("Authorization"), "vapid t=") ||
			bytes.Contains(body, []byte("turn")) {
			t.Errorf("%d bytes, %v, %v", len(body), h, err)
		}
		switch r.URL.Path {
		case "/created":
			w.WriteHeader(http.StatusCreated)
		case "/moved":
			http.Redirect(w, r, "/created", http.StatusTemporaryRedirect)
		case "/found":
			http.Redirect(w, r, "https://127.0.0.1/", http.StatusFound)
		case "/busy":
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
		case "/long":
			w.Header().Set("Retry-After", "86400")
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/gone":
			w.WriteHeader(http.StatusGone)
		case "/unknown":
			w.WriteHeader(http.StatusNotFound)
		case "/badtoken":
			w.WriteHeader(http.StatusForbidden)
		case "/large":
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}
	}))
	s := p.sender(t)
	for path, want := range map[string]Result{
		"/created": {}, "/ok": {}, "/moved": {Cause: causeRefused}, "/found": {Cause: causeRefused},
		"/gone": {Cause: causeGone}, "/unknown": {Cause: causeGone},
		"/badtoken": {Cause: causeRefused}, "/large": {Cause: causeRefused},
		"/busy": {Cause: causeBusy, After: 7 * time.Second},
		"/long": {Cause: causeBusy, After: maxRetryAfter},
	} {
		asked = 0
		sub := browserKeys(t)
		sub.Endpoint = "https://example.com" + path
		got := deliver(t, s, &sub, &Message{Text: []byte(`{"stage":"turn"}`), Topic: "t1", TTL: 5 * time.Minute})
		if (got.Err == nil) != (want.Cause == "") {
			t.Errorf("%s: %v", path, got.Err)
		}
		if got.Err = nil; got != want || asked != 1 {
			t.Errorf("%s: %+v, want %+v, after %d requests", path, got, want, asked)
		}
	}
	p.Close()
	sub := browserKeys(t)
	sub.Endpoint = "https://example.com/x"
	if got := deliver(t, s, &sub, &Message{}); got.Cause != causeNetwork ||
		strings.Contains(got.Err.Error(), "example.com") {
		t.Errorf("%+v", got)
	}
}
