package edge

import (
	"fmt"
	"net/http"
	"testing"

	"vestibule/internal/core/ticket"
	"vestibule/internal/edge/gate"
)

const awayURL = "http://sale.example" + gate.AwayPath + "?room=sale"

// TestGoingAway: a page that goes away takes its visitor out of the count and ends
// the stream; the place is kept, and a question counts the visitor again, once.
func TestGoingAway(t *testing.T) {
	t.Parallel()
	st := open(t, nil)
	st.up.queue(sale, 10, 1)
	v := st.door.visitor()
	waits := func() int64 { return st.server.Status().Rooms["sale"].Waiting }
	ask := func() map[string]any {
		t.Helper()
		return v.get(saleURL, "Accept", "application/json").json(t).Ours
	}
	away := func(answer any) {
		t.Helper()
		a := v.ask(http.MethodPost, fmt.Sprint(awayURL, "&answer=", answer), "", "Origin", "http://sale.example",
			"Sec-Fetch-Site", "same-origin")
		if a.StatusCode != http.StatusNoContent || len(a.Header["Set-Cookie"]) > 0 ||
			a.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%d %v", a.StatusCode, a.Header)
		}
	}
	first := ask()
	old := ask()
	page := v.listen(streamURL)
	for range 2 { // to say it again is the same
		away(old["answer"])
		if n := waits(); n != 0 {
			t.Errorf("%d are counted after the page went away", n)
		}
	}
	page.over("ask")
	back := ask()
	if n := waits(); n != 1 || back["joinedAt"] != first["joinedAt"] || back["lost"] != "" {
		t.Errorf("%d are counted when the visitor is back, joined at %v, then %v (%v)", n, first["joinedAt"],
			back["joinedAt"], back["lost"])
	}
	page = v.listen(streamURL)
	away(old["answer"]) // by an older page: a reload
	if n := waits(); n != 1 {
		t.Errorf("%d are counted after a reload", n)
	}
	eventually(t, "the page that was reloaded listens, and only that", func() bool { return st.onStream() == 1 })
	v.ask(http.MethodPost, "http://sale.example"+gate.AwayPath, "") // an app, which has one page and one room
	if n := waits(); n != 0 {
		t.Errorf("%d are counted after the app went away", n)
	}
	page.over("ask")
	ask()
	v.ask(http.MethodPost, leaveURL, "")
	away(old["answer"])
	if n := waits(); n != 0 {
		t.Errorf("%d are counted after the visitor left", n)
	}
}

func TestGoingAwayIsRefusedTo(t *testing.T) {
	t.Parallel()
	st := open(t, nil)
	st.up.queue(sale, 10, 1)
	v := st.door.visitor()
	v.Jar = nil
	a := v.get(saleURL, "Cookie", st.keys.seal("sale", inLine(7)))
	in := ticket.CookieName("sale", false) + "=" + cookieOf(a, ticket.CookieName("sale", false)).Value
	was := st.server.Status().Rooms["sale"].Waiting
	for _, c := range []struct {
		why, method, url string
		header           []string
		status           int
	}{
		{"a link", http.MethodGet, awayURL, nil, http.StatusMethodNotAllowed},
		{"a page of another site", http.MethodPost, awayURL, []string{"Origin", "http://evil.example"}, http.StatusForbidden},
		{"a form of another site", http.MethodPost, awayURL, []string{"Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		{
			"a host that is not ours", http.MethodPost, "http://other.example" + gate.AwayPath, nil,
			http.StatusMisdirectedRequest,
		},
		{"a room that is not there", http.MethodPost, awayURL + "nowhere", nil, http.StatusNotFound},
		{"a question that cannot be", http.MethodPost, awayURL + "&answer=256", nil, http.StatusBadRequest},
		{"no question", http.MethodPost, awayURL + "&answer=", nil, http.StatusBadRequest},
		{
			"a visitor of another room", http.MethodPost, "http://sale.example" + gate.AwayPath + "?room=vip", nil,
			http.StatusNoContent,
		},
		{"an older page", http.MethodPost, awayURL + "&answer=0", nil, http.StatusNoContent},
	} {
		v.ask(c.method, c.url, "", append(c.header, "Cookie", in)...).has(t, c.status, "%s", c.why)
		if n := st.server.Status().Rooms["sale"].Waiting; n != was {
			t.Errorf("after %s %d are counted, before %d", c.why, n, was)
		}
	}
	for _, cookie := range []string{"", ticket.CookieName("sale", false) + "=x", st.keys.seal("sale", session(9))} {
		if a := v.ask(http.MethodPost, awayURL, "", "Cookie", cookie); a.StatusCode != http.StatusNoContent ||
			st.server.Status().Rooms["sale"].Waiting != was {
			t.Errorf("with %q: %d", cookie, a.StatusCode)
		}
	}
}
