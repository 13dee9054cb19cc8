package console_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"vestibule/internal/global/control"
	"vestibule/internal/global/control/api"
)

// The changes of a room show what differs, and can be restored.
func TestChangesAreShownAndRestored(t *testing.T) {
	f := start(t)
	id := f.make("sale", 2000, 200, nil)
	room := "/zones/" + control.Zone + "/waiting_rooms/" + id
	for _, body := range []map[string]any{{"total_active_users": 1500, "description": "<b>autumn"}, {"suspended": true}} {
		if err := f.call(http.MethodPatch, room, body, nil); err != nil {
			t.Fatal(err)
		}
	}
	at := "/console/rooms/" + id + "/changes"
	page := f.see(at)
	contains(t, page, "Ben changed the settings, just now", "suspended false → true", "total_active_users 2000 → 1500", "description <b>autumn", "Ben created the room", "Current")
	lacks(t, page, "<b>autumn")
	links := regexp.MustCompile(`href="(`+at+`/\d+)"`).FindAllStringSubmatch(page.body, -1)
	if len(links) != 2 {
		t.Fatalf("links: %v", links)
	}
	first := links[1][1]
	confirm := f.see(first)
	contains(t, confirm, "as they were after Ben created the room", "total_active_users 1500 → 2000", "suspended true → false")
	contains(t, f.sent(confirm, first, map[string]string{"reason": "too early"}), "The revision is restored", "Ana restored a revision, just now")
	var now api.Room
	if err := f.call(http.MethodGet, room, nil, &now); err != nil || now.TotalActiveUsers != 2000 || now.Suspended {
		t.Errorf("%+v, %v", now, err)
	}
	contains(t, f.see("/console/audit"), "Ana restored a revision", "too early")
	if a := f.get(at + "/7"); a.code != http.StatusNotFound {
		t.Errorf("an unknown revision: %d", a.code)
	}
	f.as(control.Operator)
	lacks(t, f.see("/console/rooms/"+id), "/changes")
	for _, a := range []answer{f.get(at), f.get(first), f.post(first, nil)} {
		if a.code != http.StatusForbidden {
			t.Errorf("an operator: %d", a.code)
		}
	}
}

// The audit log says who changed what, from what to what.
func TestAuditInWords(t *testing.T) {
	f := start(t)
	id := f.make("sale", 2000, 200, nil)
	f.act(id, "pause", map[string]string{"message": "<i>soon"})
	if err := f.call(http.MethodPatch, "/zones/"+control.Zone+"/waiting_rooms/"+id, map[string]any{"total_active_users": 1500}, nil); err != nil {
		t.Fatal(err)
	}
	if err := f.call(http.MethodPut, "/vestibule/hosts/sale.example", map[string]string{"origin": "http://10.0.0.9"}, nil); err != nil {
		t.Fatal(err)
	}
	page := f.see("/console/audit")
	contains(t, page, "Ana changed the controls", "a test", "<i>soon", "Ben changed the settings", "total_active_users 2000 → 1500", "Ben created the room", "room sale : new",
		"host sale.example: new origin", "http://10.0.0.9")
	lacks(t, page, "<i>soon")
	contains(t, f.see("/console/audit?room=sale&by=Ana"), "Ana changed the controls")
	lacks(t, f.see("/console/audit?room=sale&by=Ana"), "Ben")
	for range 60 {
		f.patch(id, map[string]any{"message": map[string]any{"text": "x"}})
	}
	contains(t, f.see("/console/audit"), "Older entries")
	older := regexp.MustCompile(`href="(/console/audit\?[^"]+)"`).FindStringSubmatch(f.see("/console/audit").body)
	contains(t, f.see(strings.ReplaceAll(older[1], "&amp;", "&")), "Ben created the room")
	f.as(control.Editor)
	lacks(t, f.see("/console/"), "/console/audit", "/console/access")
	if a := f.get("/console/audit"); a.code != http.StatusForbidden {
		t.Errorf("an editor reads the audit log: %d", a.code)
	}
}

// Tokens are created, shown once, and revoked, by admins alone.
func TestTokens(t *testing.T) {
	f := start(t)
	const at, tokens = "/console/access", "/console/access/tokens"
	page := f.see(at)
	if a := f.sent(page, tokens, map[string]string{"name": "ci", "expires_on": "2001-01-01T00:00"}); a.code != http.StatusUnprocessableEntity || !strings.Contains(a.text(), `expires_on must be "never" or a time to come`) {
		t.Errorf("%d %s", a.code, a.text())
	}
	made := f.sent(page, tokens, map[string]string{"name": "<b>ci", "role": "operator"})
	contains(t, made, "The token <b>ci is created.", "vst_")
	value := regexp.MustCompile(`vst_[A-Za-z0-9_-]+`).FindString(made.body)
	if !f.api.Good(t.Context(), value) {
		t.Errorf("the token %q is refused", value)
	}
	page = f.see(at)
	contains(t, page, "<b>ci operator", "expires ")
	lacks(t, page, "vst_", "<b>ci")
	revoke := regexp.MustCompile(`action="(/console/access/tokens/[^"]+)"`).FindStringSubmatch(page.body)[1]
	contains(t, f.sent(page, revoke, nil), "The token is revoked.")
	if f.api.Good(t.Context(), value) {
		t.Error("the token is still good")
	}
	f.as(control.Editor)
	for _, a := range []answer{f.get(at), f.post(tokens, map[string][]string{"name": {"x"}, "role": {"admin"}}), f.post(revoke, nil)} {
		if a.code != http.StatusForbidden {
			t.Errorf("an editor: %d", a.code)
		}
	}
}

// An operator of some rooms sees these alone, also in streams that others share.
func TestAnOperatorOfSomeRooms(t *testing.T) {
	f := start(t)
	mine, other := f.make("mine", 300, 200, nil), f.make("other", 300, 200, nil)
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	all, leave := f.listen(server.URL + "/console/stream")
	if got := all(); got[other+".state"] != "Open" || got[mine+".state"] != "Open" {
		t.Fatalf("an admin's stream: %v", got)
	}
	leave()
	f.play(func() { f.who = control.Principal{ID: "u", Name: "Eve", Role: control.Operator, Rooms: []string{mine}} })
	page := f.see("/console/")
	contains(t, page, "mine.example")
	lacks(t, page, "other.example", other)
	some, _ := f.listen(server.URL + "/console/stream")
	if got := some(); got[other+".state"] != "" || got[mine+".state"] != "Open" || got["all.inside"] != "0" {
		t.Errorf("the stream of some rooms: %v", got)
	}
	at := "/console/rooms/" + other
	for _, path := range []string{at, at + "/stream", at + "/charts?from=-1h&step=10", at + "/history", at + "/history.csv", at + "/events", at + "/rules", at + "/page", at + "/actions/pause"} {
		if a := f.get(path); a.code != http.StatusForbidden && a.code != http.StatusNotFound {
			t.Errorf("%s: %d", path, a.code)
		}
	}
	f.see("/console/rooms/" + mine)
	f.see("/console/fleet")
}

// Webhooks are created with their secret shown once, tested, disabled and deleted, by admins alone.
func TestWebhooks(t *testing.T) {
	f := start(t)
	f.make("sale", 2000, 200, nil)
	const at = "/console/webhooks"
	page := f.see(at)
	contains(t, page, "Nobody is told", "room.paused")
	if a := f.sent(page, at, map[string]string{"name": "pager", "url": "ftp://x"}); a.code != http.StatusUnprocessableEntity || !strings.Contains(a.body, `aria-invalid="true"`) {
		t.Errorf("a bad URL: %d %s", a.code, a.text())
	}
	made := f.sent(page, at, map[string]string{"name": "pager<b>", "url": "https://hooks.example/secretpath", "kinds": "room.paused, alarm.raised", "rooms": "sale"})
	contains(t, made, "The webhook pager<b> is created.", "whsec_", "to hooks.example; only room.paused, alarm.raised; only for sale")
	page = f.see(at)
	lacks(t, page, "whsec_", "secretpath", "<b>")
	one := regexp.MustCompile(`action="(/console/webhooks/[^"]+)"`).FindStringSubmatch(page.body)[1]
	contains(t, f.press(page, one, "do", "test"), "The receiver did not take the test: the receiver answered 503")
	page = f.press(page, one, "do", "off")
	contains(t, page, "The webhook is disabled.", "Disabled: an operator turned it off")
	page = f.press(page, one, "do", "on")
	contains(t, page, "The webhook is enabled.")
	contains(t, f.press(page, one, "do", "delete"), "The webhook is deleted", "Nobody is told")
	f.as(control.Editor)
	for _, a := range []answer{f.get(at), f.post(at, nil), f.post(one, map[string][]string{"do": {"delete"}}), f.post(one, map[string][]string{"do": {"test"}})} {
		if a.code == http.StatusOK || a.code == http.StatusSeeOther {
			t.Errorf("an editor: %d", a.code)
		}
	}
}
