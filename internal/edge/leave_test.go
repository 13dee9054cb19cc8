package edge

import (
	"net/http"
	"testing"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
	"vestibule/internal/edge/gate"
	"vestibule/internal/lab/testkit"
)

const leaveURL = "http://sale.example" + gate.LeavePath

// TestLeaving: a visitor that leaves is out at once, for good, and the browser forgets the ticket; a copy of it is
// invalid here.
func TestLeaving(t *testing.T) {
	t.Parallel()
	st := open(t, nil)
	st.up.grant(sale, 5, 5)
	v := st.door.visitor()
	if a := v.get("http://sale.example/"); a.body != "the site" {
		t.Fatalf("not let in: %d %.60q", a.StatusCode, a.body)
	}
	copied := st.keys.seal("sale", session(7))
	for range 2 { // the second time there is nothing to leave, and that is fine
		a := v.ask(http.MethodPost, leaveURL, "", "Cookie", copied, "Origin", "http://sale.example", "Sec-Fetch-Site",
			"same-origin")
		if a.StatusCode != http.StatusNoContent || a.Header.Get("Cache-Control") != "no-store" {
			t.Fatalf("leaving: %d %v", a.StatusCode, a.Header)
		}
		if c := cookieOf(a, ticket.CookieName("sale", false)); c == nil || c.MaxAge >= 0 {
			t.Errorf("the browser keeps its ticket: %v", a.Header)
		}
	}
	w := st.door.visitor()
	w.Jar = nil
	st.up.queue(sale, 100, 1)
	w.get("http://sale.example/", "Cookie", copied).stays(t, "a copy of the ticket")
}

// TestWhoLeavesIsNotLetIn: a poll that is held when its visitor leaves in another tab is answered at once, and the next
// permit is for somebody else.
func TestWhoLeavesIsNotLetIn(t *testing.T) {
	t.Parallel()
	st := open(t, func(st *stage) { st.params.Hold, st.params.Knock = time.Hour, time.Hour })
	st.fill(sale, 1000)
	place := st.keys.seal("sale", inLine(7))
	spent := st.server.Status().Rooms["sale"].Spent
	done := make(chan answer, 1)
	v := st.door.bare()
	v.Timeout = 0
	go func() { done <- v.get(saleURL, "Cookie", place, "Accept", "application/json", gate.PollHeader, "1") }()
	eventually(t, "the poll is held", func() bool { return st.server.Status().Rooms["sale"].Held == 1 })
	st.door.bare().ask(http.MethodPost, leaveURL, "", "Cookie", place, "Origin", "http://sale.example", "Sec-Fetch-Site", "same-origin")
	if a := testkit.Receive(t, "the answer", done); a.json(t).Ours["state"] != "reload" || a.Header["Set-Cookie"] != nil {
		t.Errorf("%v %s", a.Header, a.body)
	}
	st.up.grant(sale, 1, 1)
	if l := st.server.Status().Rooms["sale"]; l.Held != 0 || l.Spent != spent {
		t.Errorf("%d held, %d permits spent", l.Held, l.Spent-spent)
	}
}

func TestLeavingIsRefusedTo(t *testing.T) {
	t.Parallel()
	st := open(t, nil)
	in := st.keys.seal("sale", session(7))
	for _, c := range []struct {
		why, method, url string
		header           []string
		status           int
	}{
		{"a link", http.MethodGet, leaveURL, nil, http.StatusMethodNotAllowed},
		{
			"a page of another site", http.MethodPost, leaveURL,
			[]string{"Origin", "http://evil.example"},
			http.StatusForbidden,
		},
		{"a form of another site", http.MethodPost, leaveURL, []string{"Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		{"a page of a sister site", http.MethodPost, leaveURL, []string{"Sec-Fetch-Site", "same-site"}, http.StatusForbidden},
		{"an opaque origin", http.MethodPost, leaveURL, []string{"Origin", "null"}, http.StatusForbidden},
		{
			"a host that is not ours", http.MethodPost, "http://other.example" + gate.LeavePath, nil,
			http.StatusMisdirectedRequest,
		},
		{"a room that is not there", http.MethodPost, leaveURL + "?room=nowhere", nil, http.StatusNotFound},
	} {
		v := st.door.visitor()
		v.Jar = nil
		v.ask(c.method, c.url, "", append(c.header, "Cookie", in)...).has(t, c.status, "%s", c.why)
		v.get("http://sale.example/", "Cookie", in).enters(t, "after %s", c.why)
	}
	v := st.door.visitor()
	v.Jar = nil
	v.ask(http.MethodPost, leaveURL+"?room=vip", "", "Cookie", in)
	v.get("http://sale.example/", "Cookie", in).enters(t, "who leaves another room")
}

// TestTheOriginPutsAVisitorOut: one header of the origin's answer ends the session, and no visitor sees it.
func TestTheOriginPutsAVisitorOut(t *testing.T) {
	t.Parallel()
	st := open(t, nil)
	st.origin.serves(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/logout" {
			w.Header().Set("Vestibule-Command", "revoke")
		}
		_, _ = w.Write([]byte("the site"))
	})
	in := st.keys.seal("sale", session(7))
	v := st.door.visitor()
	v.Jar = nil
	for _, path := range []string{"/", "/logout"} {
		if a := v.get("http://sale.example"+path, "Cookie", in); a.body != "the site" ||
			a.Header.Get("Vestibule-Command") != "" {
			t.Fatalf("%s: %d %v", path, a.StatusCode, a.Header)
		}
	}
	st.up.queue(sale, 100, 1)
	if a := v.get("http://sale.example/", "Cookie", in, "Vestibule-Command", "keep"); a.body == "the site" {
		t.Error("the visitor who was put out is inside")
	}
}

// TestAFirstStampIsShort as the room says, until the second request.
func TestAFirstStampIsShort(t *testing.T) {
	t.Parallel()
	st := openRooms(t, nil, func(d *room.Document) { d.Rooms[0].Probation = 20 * time.Second })
	st.up.grant(sale, 5, 5)
	st.covered(0, sale)
	v := st.door.visitor()
	for _, want := range []int{21, int(wire.Life(5*time.Minute)) + 1} {
		c := cookieOf(v.get("http://sale.example/"), ticket.CookieName("sale", false))
		if c == nil || c.MaxAge != want {
			t.Fatalf("a ticket for %v, want one for %d s", c, want)
		}
	}
}
