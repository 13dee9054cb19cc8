package control

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/lab/testkit"
)

// keyed sends a request with an idempotency key, and returns the status and the body.
func (f *fixture) keyed(key, path, body string) (code int, text string) {
	f.Helper()
	r := httptest.NewRequestWithContext(f.Context(), http.MethodPost, Prefix+path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+f.token[Operator])
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	f.api.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// TestReleases: one at a time in a room that is paused, each key once, taken by the coordinator that leads, and
// gone with the pause.
func TestReleases(t *testing.T) {
	f := start(t)
	id := f.made()
	controls := "/vestibule/rooms/" + id + "/controls"
	at := "/vestibule/rooms/" + id + "/releases"
	f.expect(http.StatusConflict, Operator, "POST", at, `{"people":5}`) // a room that is not paused
	f.ok(Operator, "PATCH", controls, `{"pause":{}}`)
	for _, body := range []string{
		`{}`, `{"people":0}`, `{"people":1001}`, `{"people":"x"}`, `{"people":3,"number":4}`,
		`[]`,
	} {
		f.expect(http.StatusBadRequest, Operator, "POST", at, body)
	}
	f.expect(http.StatusForbidden, Viewer, "POST", at, `{"people":5}`)
	a := f.ask(Operator, "POST", at, `{"people":5,"reason":"row one"}`)
	if a.code != http.StatusOK || a.field("state") != "waiting" || a.field("people") != 5.0 ||
		a.field("by") != "a operator" || a.field("reason") != "row one" {
		t.Fatalf("%+v", a)
	}
	first := a.field("id")
	entry := f.ask(Admin, "GET", "/vestibule/audit?per_page=1", "").list()[0]
	if text := fmt.Sprint(entry["changes"]); entry["reason"] != "row one" ||
		!strings.Contains(text, "map[after:5 before:<nil> key:pause.release.n]") || strings.Contains(text, "release.at") {
		t.Errorf("the audit entry: %+v", entry)
	}
	f.expect(http.StatusConflict, Operator, "POST", at, `{"people":2}`) // a second one while one is open
	f.expect(http.StatusOK, Operator, "PATCH", controls, `{"pause":{"message":"Soon."}}`)
	state := func() string {
		all, _ := f.ask(Viewer, "GET", at, "").Result.([]any)
		if len(all) != 1 {
			return fmt.Sprintf("%d releases", len(all))
		}
		m, _ := all[0].(map[string]any)
		return fmt.Sprintf("%v %v %v", m["state"], m["let_in"], m["id"] == first)
	}
	if s := state(); s != "waiting 0 true" {
		t.Errorf("after another word of the pause: %s", s)
	}

	me := room.Lender{Term: 4, Nonce: 9}
	c, revision, err := f.parts.controls.controls.read(t.Context())
	testkit.NoError(t, err)
	taken, n := c.Take(me, time.Now().UnixMilli())
	data, err := room.EncodeControls(taken)
	if err != nil || n != 1 || c.Rooms[id].Pause.Release.Lender != nil {
		t.Fatalf("%d are taken: %v, %+v", n, err, c.Rooms[id].Pause.Release)
	}
	if _, again := taken.Take(room.Lender{Term: 5}, time.Now().UnixMilli()); again != 0 {
		t.Error("what one coordinator has taken another one takes too")
	}
	testkit.Must(f.docs.Put(t.Context(), controlsDocument, data, revision))(t)
	release := taken.Rooms[id].Pause.Release.ID
	for _, tt := range []struct {
		n    Numbers
		want string
	}{
		{Numbers{Leader: me}, "open <nil> true"},
		{Numbers{Leader: me, Release: release, LetIn: 3}, "open 3 true"},
		{Numbers{Leader: room.Lender{Term: 5, Nonce: 1}}, "interrupted <nil> true"},
		{Numbers{Leader: me, Release: release, LetIn: 5}, "done 5 true"},
	} {
		f.numbers = &tt.n
		if s := state(); s != tt.want {
			t.Errorf("%+v: %s, want %s", tt.n, s, tt.want)
		}
	}

	code, one := f.keyed("k1", at, `{"people":2}`)
	if code2, two := f.keyed("k1", at, `{"people":2}`); code != http.StatusOK || code2 != code || one != two {
		t.Errorf("the same key twice: %d %s, %d %s", code, one, code2, two)
	}
	if code, text := f.keyed("k1", at, `{"people":3}`); code != http.StatusConflict {
		t.Errorf("the same key for others: %d %s", code, text)
	}
	if code, text := f.keyed("k2", at, `{"people":7,"replace":true}`); code != http.StatusOK ||
		strings.Contains(text, fmt.Sprintf(`"id":%d,`, release)) {
		t.Errorf("in place of one that is open: %d %s", code, text)
	}
	if code, text := f.keyed("k1", at, `{"people":2}`); code != http.StatusConflict {
		t.Errorf("a key of before: %d %s", code, text)
	}
	if log := fmt.Sprint(f.ask(Admin, "GET", "/vestibule/audit", "").Result); !strings.Contains(log, "row one") {
		t.Errorf("the audit stream does not tell of it: %s", log)
	}
	if a := f.ask(Operator, "PATCH", controls, `{"pause":null}`); a.code != http.StatusOK || state() != "0 releases" {
		t.Errorf("after the pause: %+v, %s", a, state())
	}
}
