package edge

import (
	"context"
	crand "crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
	"vestibule/internal/edge/gate"
	"vestibule/internal/node"
)

// rotated returns the ring of a stage as it was rotated since it was made, without
// and with the key that is sealed with by now.
func rotated(t *testing.T, ago time.Duration) (old, now ticket.Keyring) {
	t.Helper()
	at := fleettime.TimeOf(time.Now().Add(-ago))
	var rings []ticket.Keyring
	ring := ticket.Keyring{}
	for i := range int(ago/ticket.MinRotation) + 1 {
		var err error
		if ring, err = ring.Rotate(at.Add(time.Duration(i)*ticket.MinRotation), ticket.MinRotation,
			crand.Reader); err != nil {
			t.Fatal(err)
		}
		rings = append(rings, ring)
	}
	return rings[0], ring
}

// cutOff opens an edge that has not heard of keys for three rotations and cannot ask.
func cutOff(t *testing.T) (st *stage, newest ticket.Keyring) {
	t.Helper()
	var old ticket.Keyring
	old, newest = rotated(t, 3*ticket.MinRotation+time.Minute)
	st = open(t, func(st *stage) { st.keys.ring = old })
	st.docs.broken.Store(true)
	st.keys.ring = newest // of everybody else
	return st, newest
}

// moment reports faults of an answer that asks the visitor to retry.
func (a answer) moment(t *testing.T, what string) {
	t.Helper()
	if a.StatusCode != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" ||
		len(a.Header["Set-Cookie"]) > 0 || a.Header.Get(gate.TicketHeader) != "" {
		t.Errorf("%s: %d, retry after %q, cookies %v", what, a.StatusCode, a.Header.Get("Retry-After"),
			a.Header["Set-Cookie"])
	}
}

// A ticket under a key that the edge does not know yet is not a missing ticket: its visitor is asked to retry, and
// nothing is replaced or charged.
func TestRule10ATicketUnderANewerKeyIsNotReplaced(t *testing.T) {
	t.Parallel()
	st, newest := cutOff(t)
	place := session(7)
	place.Admitted, place.Until, place.Home = 0, 0, 0
	for what, tk := range map[string]ticket.Ticket{"a session": session(8), "a place": place} {
		cookie := st.keys.seal("sale", tk)
		value := strings.TrimPrefix(cookie, "vestibule-sale=")
		a := st.door.visitor().get("http://sale.example/", "Cookie", cookie)
		a.moment(t, what)
		if !strings.Contains(a.body, "One moment, please") {
			t.Errorf("%s: the page says %.300q", what, a.body)
		}
		for name, header := range map[string][]string{
			"the page's question": {"Cookie", cookie, "Accept", "application/json", gate.PollHeader, "1"},
			"an app":              {"Accept", "application/json", gate.TicketHeader, "sale=" + value},
		} {
			a := st.door.visitor().get("http://sale.example/", header...)
			a.moment(t, what+", "+name)
			var answer struct {
				Vestibule struct {
					State    string
					JoinedAt string
				}
			}
			if err := json.Unmarshal([]byte(a.body), &answer); err != nil || answer.Vestibule.State != "moment" ||
				answer.Vestibule.JoinedAt != "" {
				t.Errorf("%s, %s: %v, %.300q", what, name, err, a.body)
			}
		}
		st.door.visitor().ask(http.MethodPost, "http://sale.example"+gate.LeavePath, "", "Cookie", cookie, "Accept",
			"text/html").moment(t, what+", leaving")
		st.door.visitor().get("http://sale.example"+gate.EventsPath+"?room=sale", "Cookie", cookie).moment(t,
			what+", listening")
		if a := st.door.visitor().ask(http.MethodPost, "http://sale.example"+gate.AwayPath, "", "Cookie",
			cookie); len(a.Header["Set-Cookie"]) > 0 {
			t.Errorf("%s, going away: cookies %v", what, a.Header["Set-Cookie"])
		}
	}
	if l := st.server.Status().Rooms["sale"]; l.Spent != 0 || l.Sessions != 0 || st.origin.requests() != 0 {
		t.Errorf("charged: %+v, %d requests at the site", l, st.origin.requests())
	}
	if n := metric(t, st, "vestibule_edge_requests_total", "result", "ticket_unread"); n < 8 {
		t.Errorf("%v such tickets counted", n)
	}

	// The store is heard again.
	st.docs.pages.Store(node.KeysDocument, keysDocument(t, newest))
	st.docs.broken.Store(false)
	inside := st.keys.seal("sale", session(8))
	eventually(t, "the session is served", func() bool {
		return st.door.visitor().get("http://sale.example/", "Cookie", inside).body == "the site"
	})
	var kept ticket.Ticket
	st.up.queue(sale, 10, 1)
	c := cookieOf(st.door.visitor().get("http://sale.example/", "Cookie", st.keys.seal("sale", place)), "vestibule-sale")
	codec, err := ticket.NewCodec(newest, sale, "vestibule-sale")
	if err == nil && c != nil {
		err = codec.Open(&kept, c.Value, ticket.NewScratch([32]byte{2}))
	}
	if err != nil || c == nil || kept.ID != place.ID || kept.Joined != place.Joined {
		t.Errorf("the place: %+v, %v", kept, err)
	}
}

// A key that no node has locks no visitor out: its ticket counts as none once the store confirms the ring, or if the
// ring is too young to lack a key.
func TestATicketUnderAKeyThatNobodyHasIsNone(t *testing.T) {
	t.Parallel()
	old, newest := rotated(t, 3*ticket.MinRotation+time.Minute)
	foreign := func(st *stage, ring ticket.Keyring) string {
		// newer than the edge's
		st.keys.ring = ticket.Keyring{
			Version: 9,
			Keys:    []ticket.Key{{ID: ring.Keys[len(ring.Keys)-1].ID + 1, Secret: ring.Keys[0].Secret}},
		}
		return st.keys.seal("sale", session(7))
	}
	t.Run("the ring is confirmed", func(t *testing.T) {
		st := open(t, func(st *stage) { st.keys.ring = old })
		st.docs.pages.Store(node.KeysDocument, keysDocument(t, old))
		cookie := foreign(st, old)
		eventually(t, "its visitor is somebody new", func() bool {
			a := st.door.visitor().get("http://sale.example/", "Cookie", cookie)
			return a.body == "the site" && cookieOf(a, "vestibule-sale") != nil
		})
	})
	t.Run("a copy of the store may be behind", func(t *testing.T) {
		st := open(t, func(st *stage) { st.keys.ring = old })
		st.docs.pages.Store(node.KeysDocument, keysDocument(t, old))
		st.docs.behind.Store(true)
		cookie := foreign(st, old)
		eventually(t, "the store is asked twice", func() bool {
			st.door.visitor().get("http://sale.example/", "Cookie", cookie).moment(t, "who has a ticket under another key")
			return st.docs.doubts.Load() > 1 // so the first answer was heard
		})
		// A newer ring is taken from it all the same.
		st.docs.pages.Store(node.KeysDocument, keysDocument(t, newest))
		st.keys.ring = newest
		inside := st.keys.seal("sale", session(8))
		eventually(t, "the session is served", func() bool {
			return st.door.visitor().get("http://sale.example/", "Cookie", inside).body == "the site"
		})
	})
	t.Run("the ring is young", func(t *testing.T) {
		st := open(t, func(st *stage) { st.keys.ring = newest })
		st.docs.broken.Store(true)
		if a := st.door.visitor().get("http://sale.example/", "Cookie", foreign(st, newest)); a.body != "the site" ||
			cookieOf(a, "vestibule-sale") == nil {
			t.Errorf("somebody new got %d %.60q", a.StatusCode, a.body)
		}
	})
	t.Run("a good session beside it", func(t *testing.T) {
		st := open(t, func(st *stage) { st.keys.ring = old })
		st.docs.broken.Store(true)
		good := st.keys.seal("sale", session(8))
		if a := st.door.visitor().get("http://sale.example/", "Cookie", foreign(st, old)+"; "+good); a.body != "the site" {
			t.Errorf("who is inside got %d %.60q", a.StatusCode, a.body)
		}
	})
}

// An edge that never got the time is not ready. It asks newcomers to come back without giving them a place, and
// serves admitted visitors.
func TestAnEdgeWithoutTheTimeIsNotReady(t *testing.T) {
	st := newStage(t, nil)
	st.docs.offer(node.RoomsDocument, roomsDocument(t, 1, document(st.origin.URL)))
	st.docs.offer(node.KeysDocument, keysDocument(t, st.keys.ring))
	st.start()
	eventually(t, "rooms and keys are there", func() bool { return len(st.server.gate.Unready()) == 1 })
	if r := st.server.Ready(); r.Ready || !strings.Contains(strings.Join(r.Reasons, ";"), "fleet time is unknown") {
		t.Errorf("ready: %+v", r)
	}
	v := st.door.visitor()
	v.get("http://sale.example/").moment(t, "somebody new")
	v.get("http://sale.example/", "Accept", "application/json").moment(t, "an app")
	v.get("http://sale.example/", "Accept", "application/json", gate.PollHeader, "1").moment(t, "the page's question")
	ended := session(9)
	ended.Until = ended.Admitted - 60
	v.get("http://sale.example/", "Cookie", st.keys.seal("sale", ended)).moment(t, "a session that seems to have ended")
	v.get("http://sale.example/", "Cookie", st.keys.seal("sale", session(8))).enters(t, "who is inside")
	place := session(7)
	place.Admitted, place.Until, place.Home = 0, 0, 0
	if a := v.get("http://sale.example/", "Cookie", st.keys.seal("sale", place)); a.StatusCode != http.StatusOK ||
		len(a.Header["Set-Cookie"]) > 0 || !strings.Contains(a.body, "The line is paused") {
		t.Errorf("who has a place got %d %v", a.StatusCode, a.Header["Set-Cookie"])
	}
	st.counts(4, "vestibule_edge_requests_total", "result", "time_unknown")

	st.up = newParent(t, st.bus, sale, vip)
	st.adopted()
	st.up.grant(sale, 1000, 1000)
	st.covered(100, sale)
	eventually(t, "somebody new is let in", func() bool { return v.get("http://sale.example/").body == "the site" })

	// The edge keeps the time: nobody is sent away because the regional is silent.
	st.up.mu.Lock()
	st.up.mute = true
	st.up.mu.Unlock()
	if r := st.server.Ready(); !r.Ready {
		t.Errorf("not ready without its regional: %v", r.Reasons)
	}
}

var errBroken = errors.New("the store cannot be reached")

func (d *fakeDocs) reach(ctx context.Context) error {
	if d.broken.Load() {
		return errBroken
	}
	return ctx.Err()
}
