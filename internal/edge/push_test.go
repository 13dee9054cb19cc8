package edge

import (
	"context"
	"crypto/ecdh"
	crand "crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/push"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/edge/gate"
	"vestibule/internal/lab/testkit"
)

// pushStore keeps the newest state of each subscription.
type pushStore struct {
	mu     sync.Mutex
	states map[uint64][]byte // by visitor
	n      int               // changes
	down   bool
}

func (p *pushStore) stored() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

func (p *pushStore) store(_ context.Context, id, visitor uint64, record []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		return errors.New("away")
	}
	if room.ID(id) != sale {
		return errors.New("another room")
	}
	if p.states == nil {
		p.states = map[uint64][]byte{}
	}
	p.states[visitor] = record
	p.n++
	return nil
}

// only returns the only subscription; ok is false if there is none, or it has ended.
func (p *pushStore) only(t testing.TB) (visitor uint64, r push.Record, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.states) > 1 {
		t.Errorf("%d visitors", len(p.states))
	}
	for id, data := range p.states {
		if len(data) == 0 {
			return id, r, false
		}
		r, err := push.DecodeRecord(data)
		if err != nil {
			t.Error(err)
		}
		return id, r, true
	}
	return 0, r, false
}

// notifying starts an edge whose room sale notifies its visitors, with a line.
func notifying(t testing.TB, p *pushStore, change ...func(*stage)) *stage {
	t.Helper()
	st := openRooms(t, func(st *stage) {
		st.keys.ring.Push = ticket.Secret{9}
		st.pushes = p.store
		for _, f := range change {
			f(st)
		}
	}, func(d *room.Document) { d.Rooms[0].WebPush = true })
	st.covered(0, sale)
	st.up.queue(sale, 100, 1)
	return st
}

const pushURL = "http://sale.example" + gate.PushPath + "?room=sale"

// pushHeader returns the header with which a page subscribes.
func pushHeader(t testing.TB, endpoint string) string {
	t.Helper()
	key := testkit.Must(ecdh.P256().GenerateKey(crand.Reader))(t)
	enc := base64.RawURLEncoding
	return strings.Join([]string{
		endpoint, enc.EncodeToString(key.PublicKey().Bytes()),
		enc.EncodeToString(make([]byte, push.Auth)), "de-DE",
	}, " ")
}

const endpoint = "https://fcm.googleapis.com/fcm/send/secret-token"

func pushCookie(a answer) *http.Cookie {
	for _, c := range a.Cookies() {
		if c.Name == ticket.PushCookieName(ticket.CookieName("sale", false)) {
			return c
		}
	}
	return nil
}

// TestSubscribing: a waiting visitor subscribes, confirms, and the subscription ends when it enters, leaves or wants
// so.
func TestSubscribing(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"enters", "leaves", "ends"} {
		p := &pushStore{}
		st := notifying(t, p)
		v := st.door.visitor()
		page := v.get("http://sale.example/buy?x=1", "Accept", "text/html")
		if !strings.Contains(page.body, `src="/.well-known/vestibule/push.js?room=sale&amp;lang=`) ||
			!strings.Contains(page.Header.Get("Content-Security-Policy"), "; worker-src 'self'") {
			t.Fatalf("%d %v", page.StatusCode, page.Header)
		}
		script := v.get("http://sale.example" + gate.PushPagePath + "?room=sale&lang=de-DE")
		if sealer, err := push.NewIdentity(st.keys.ring.Push); err != nil ||
			!strings.Contains(script.body, sealer.Public()) || !strings.Contains(script.body, "benachrichtigt") {
			t.Fatalf("%v %s", err, script.body)
		}
		if w := v.get("http://sale.example" + gate.PushWorkPath); w.StatusCode != http.StatusOK ||
			!strings.HasPrefix(w.Header.Get("Content-Type"), "text/javascript") {
			t.Fatal(w.StatusCode, w.Header)
		}
		a := v.ask(http.MethodPost, pushURL, "", gate.PushHeader, pushHeader(t, endpoint), "Referer",
			"http://sale.example/buy?x=1", "Sec-Fetch-Site", "same-origin")
		if c := pushCookie(a); a.StatusCode != http.StatusNoContent || c == nil || !c.HttpOnly {
			t.Fatalf("%d %s %v", a.StatusCode, a.body, a.Header)
		}
		var visitor uint64
		var r push.Record
		eventually(t, "the subscription is stored", func() (ok bool) {
			visitor, r, ok = p.only(t)
			return ok
		})
		sealer := testkit.Must(push.NewSealer(st.keys.ring.Push))(t)
		sub, err := sealer.Open(sale, visitor, r.Sealed)
		if err != nil || sub.Endpoint != endpoint || sub.Page != "/buy?x=1" || sub.Language != "de-DE" ||
			r.Notified != push.Unconfirmed || r.Place < fleettime.TimeOf(time.Now().Add(-time.Minute)) {
			t.Fatalf("%+v %+v %v", sub, r, err)
		}
		v.ask(http.MethodPost, pushURL+"&code="+sealer.Code(sale, visitor+1),
			"").has(t, http.StatusForbidden, "the code of another")
		a = v.ask(http.MethodPost, pushURL+"&code="+sealer.Code(sale, visitor), "")
		if c := pushCookie(a); a.StatusCode != http.StatusNoContent || c == nil || c.Value != sealer.Proof(sale, visitor) {
			t.Fatalf("%d %v", a.StatusCode, a.Header)
		}
		if page := v.get("http://sale.example/buy?x=1", "Accept", "text/html"); !strings.Contains(page.body,
			`<dd id=kept>10 minutes</div>`) {
			t.Errorf("the claim time is not shown: %s", page.body)
		}
		switch end {
		case "enters":
			st.up.grant(sale, 5, 5)
			st.up.view(sale, 0, 1, fleettime.TimeOf(time.Now().Add(time.Hour)), 0)
			a = v.get("http://sale.example/buy?x=1")
			if a.body != "the site" {
				t.Fatalf("not let in: %d", a.StatusCode)
			}
		case "leaves":
			a = v.ask(http.MethodPost, leaveURL, "")
		case "ends":
			a = v.ask(http.MethodPost, pushURL+"&end=1", "")
		}
		if c := pushCookie(a); c == nil || c.MaxAge >= 0 {
			t.Errorf("%s: the cookie stays: %v", end, a.Header)
		}
		if a := v.ask(http.MethodPost, pushURL+"&code="+sealer.Code(sale, visitor), ""); a.StatusCode != http.StatusGone ||
			pushCookie(a) != nil {
			t.Errorf("%s: a late message: %d %v", end, a.StatusCode, a.Header)
		}
		eventually(t, "the subscription ends", func() bool {
			_, _, ok := p.only(t)
			return !ok
		})
	}
}

// TestSubscribingIsRefused to those without a place, in rooms without notifications, and with what is no subscription.
func TestSubscribingIsRefused(t *testing.T) {
	t.Parallel()
	p := &pushStore{}
	st := notifying(t, p)
	v := st.door.visitor()
	good := pushHeader(t, endpoint)
	for name, c := range map[string]struct {
		url, header string
		status      int
		more        []string
	}{
		"nobody":         {pushURL, good, http.StatusForbidden, nil},
		"another room":   {"http://shop.example" + gate.PushPath + "?room=vip", good, http.StatusNotFound, nil},
		"no room":        {"http://sale.example" + gate.PushPath, good, http.StatusNotFound, nil},
		"a page of evil": {pushURL, good, http.StatusForbidden, []string{"Sec-Fetch-Site", "cross-site"}},
		"the script elsewhere": {
			"http://shop.example" + gate.PushPagePath + "?room=vip", "", http.StatusMethodNotAllowed,
			nil,
		},
	} {
		a := v.ask(http.MethodPost, c.url, "", append([]string{gate.PushHeader, c.header}, c.more...)...)
		if a.StatusCode != c.status {
			t.Errorf("%s: %d %s", name, a.StatusCode, a.body)
		}
	}
	if a := v.get("http://shop.example" + gate.PushPagePath + "?room=vip"); a.StatusCode != http.StatusNotFound {
		t.Errorf("the script of a room without notifications: %d", a.StatusCode)
	}
	v.get("http://sale.example/")
	for name, header := range map[string]string{
		"nothing": "", "an address": pushHeader(t, "https://127.0.0.1/x"),
		"http": pushHeader(t, "http://fcm.googleapis.com/x"), "garbage": "a b c d",
		"too much": good + " x", "no key": strings.Replace(good, "AAAA", "!!!!", 1),
		"no push service": pushHeader(t, "https://push.example/x"), "a name like one": pushHeader(t, "https://xfcm.googleapis.com/x"),
		"a long one": pushHeader(t, endpoint+strings.Repeat("x", 2000)),
	} {
		v.ask(http.MethodPost, pushURL, "", gate.PushHeader, header).has(t, http.StatusBadRequest, "%s", name)
	}
	if _, _, ok := p.only(t); ok {
		t.Error("something is stored")
	}
}

// TestTheNewestSubscriptionOfATicketWins: it has one place, whatever addresses it comes from.
func TestTheNewestSubscriptionOfATicketWins(t *testing.T) {
	t.Parallel()
	p := &pushStore{}
	st := notifying(t, p, func(st *stage) { st.cfg.Proxies = []string{"127.0.0.1"} })
	v := st.door.visitor()
	v.get("http://sale.example/")
	last, begun := "", time.Now()
	for i := range 1000 {
		last = fmt.Sprintf("%s%d", endpoint, i)
		v.ask(http.MethodPost, pushURL, "", gate.PushHeader, pushHeader(t, last), "X-Forwarded-For",
			fmt.Sprintf("198.18.%d.1", i/50)).has(t, http.StatusNoContent, "%d", i)
	}
	other := st.door.visitor()
	other.get("http://sale.example/")
	other.ask(http.MethodPost, pushURL, "", gate.PushHeader, pushHeader(t, endpoint)).has(t, http.StatusNoContent, "another")
	eventually(t, "the newest is stored", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		for id, data := range p.states {
			r, err := push.DecodeRecord(data)
			testkit.NoError(t, err)
			sub, err := testkit.Must(push.NewSealer(st.keys.ring.Push))(t).Open(sale, id, r.Sealed)
			testkit.NoError(t, err)
			if sub.Endpoint == last {
				return len(p.states) == 2
			}
		}
		return false
	})
	if n, most := p.stored(), 10+int(2*time.Since(begun)/time.Second); n > most {
		t.Errorf("%d changes were stored, more than %d", n, most)
	}
}

// TestEndingNeedsTheCookie of a subscription of the same ticket.
func TestEndingNeedsTheCookie(t *testing.T) {
	t.Parallel()
	p := &pushStore{}
	st := notifying(t, p)
	v, thief := st.door.visitor(), st.door.visitor()
	v.get("http://sale.example/")
	thief.get("http://sale.example/")
	c := pushCookie(v.ask(http.MethodPost, pushURL, "", gate.PushHeader, pushHeader(t, endpoint)))
	eventually(t, "the subscription is stored", func() bool { return p.stored() == 1 })
	for _, value := range []string{"", "1", c.Value} {
		thief.ask(http.MethodPost, pushURL+"&end=1", "", "Cookie", c.Name+"="+value).has(t, http.StatusNoContent, "%q", value)
	}
	st.up.grant(sale, 5, 5)
	st.up.view(sale, 0, 1, fleettime.TimeOf(time.Now().Add(time.Hour)), 0)
	for range 5 {
		thief.get("http://sale.example/", "Cookie", c.Name+"="+c.Value).enters(t, "without a subscription")
	}
	v.ask(http.MethodPost, pushURL+"&end=1", "").has(t, http.StatusNoContent, "the visitor's own")
	eventually(t, "it has ended", func() bool {
		_, _, ok := p.only(t)
		return !ok
	})
	if n := p.stored(); n != 2 {
		t.Errorf("%d changes were stored", n)
	}
}

// BenchmarkSubscribe measures a whole subscription at an edge, and a request of an admitted visitor in a room with
// web_push and in one without.
func BenchmarkSubscribe(b *testing.B) {
	b.Run("subscription", func(b *testing.B) {
		st := notifying(b, &pushStore{})
		st.up.queue(sale, 4_000_000, 1) // half of it may subscribe
		r := httptest.NewRequest(http.MethodPost, pushURL, http.NoBody)
		r.Header.Set(gate.PushHeader, pushHeader(b, endpoint))
		r.Header.Set("Referer", "http://sale.example/buy?x=1")
		r.Header.Set("Cookie", "theirs=1; "+st.keys.seal("sale", inLine(7)))
		w, n := &nowhere{h: http.Header{}}, 0
		b.ReportAllocs()
		for b.Loop() {
			n++
			r.RemoteAddr = fmt.Sprintf("10.%d.%d.1:1", n>>8&255, n&255) // each subscribes a few times a minute
			clear(w.h)
			// the queue of the store is full
			if st.server.ServeHTTP(w, r); w.code != http.StatusNoContent && w.code != http.StatusServiceUnavailable {
				b.Fatal(w.code)
			}
		}
		b.Log("goal: at most 50 us/op")
	})
	for _, on := range []bool{false, true} {
		b.Run(fmt.Sprintf("others/web_push=%v", on), func(b *testing.B) {
			st := open(b, nil)
			if on {
				st = notifying(b, &pushStore{})
			}
			st.server.proxy.trip = instantly{}
			benchmark(b, st, "sale.example", "/tickets?show=1", st.keys.seal("sale", session(7)), http.StatusOK)
		})
	}
}
