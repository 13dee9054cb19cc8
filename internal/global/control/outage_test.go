package control

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// While the store does not answer, reads are served from what the candidate knows, and say so; changes are refused.
// Only one request in a while waits for the store.
func TestReadsGoOnWithoutTheStore(t *testing.T) {
	f := start(t)
	id := f.made()
	event, _ := f.ask(Editor, "POST", "{z}/"+id+"/events",
		`{"name":"sale","event_start_time":"2096-11-22T20:00:00Z","event_end_time":"2096-11-22T21:00:00Z"}`).field("id").(string)
	reads := []string{
		"{z}", "{z}/" + id, "{z}/" + id + "/status", "{z}/" + id + "/events", "{z}/" + id + "/events/" + event + "/details",
		"{z}/" + id + "/rules", "/vestibule/status", "/vestibule/status?room=shop", "/vestibule/hosts", "/vestibule/export",
		"/vestibule/rooms/" + id + "/controls", "/vestibule/rooms/" + id + "/releases",
	}
	for _, path := range reads {
		if a := f.ask(Viewer, "GET", path, ""); a.code != 200 || len(a.Messages) > 0 {
			t.Errorf("%s: %+v", path, a)
		}
	}
	f.ask(Editor, "GET", "{z}", "")
	asOf := "the store does not answer: this is as of " + time.Now().UTC().Format("2006-01-02T15:")
	f.docs.Down = errors.New("away")
	before := f.docs.Reads
	for _, path := range reads {
		a := f.ask(Viewer, "GET", path, "")
		if a.code != 200 || len(a.Messages) != 1 || a.Messages[0].Code != 1104 ||
			!strings.HasPrefix(a.Messages[0].Message, asOf) {
			t.Errorf("%s without the store: %+v", path, a)
		}
	}
	if n := f.docs.Reads - before; n != 1 {
		t.Errorf("%d of %d requests waited for the store", n, len(reads))
	}
	for _, c := range []struct{ method, path, body string }{
		{"PATCH", "{z}/" + id, `{"total_active_users":301}`},
		{"DELETE", "{z}/" + id, ""},
		{"PATCH", "/vestibule/rooms/" + id + "/controls", `{"pause":{}}`},
	} {
		if a := f.ask(Editor, c.method, c.path, c.body); a.code != 503 || a.Errors[0].Code != 1102 {
			t.Errorf("%s %s without the store: %+v", c.method, c.path, a)
		}
	}
	f.expect(503, Operator, "GET", "{z}", "") // a token that was not checked before
	f.parts.tokens.tokens.now = func() time.Time { return time.Now().Add(keptFor + time.Second) }
	f.expect(503, Viewer, "GET", "{z}", "") // a token that was checked long ago

	// The store is back: it is asked again soon.
	f.parts.tokens.tokens.now = time.Now
	f.docs.Down = nil
	f.parts.rooms.outage.now = func() time.Time { return time.Now().Add(outageFor) }
	if a := f.ask(Viewer, "GET", "{z}", ""); a.code != 200 || len(a.Messages) > 0 {
		t.Errorf("once the store is back: %+v", a)
	}
}

// Numbers of a leader that is gone are shown as old.
func TestNumbersWithoutALeader(t *testing.T) {
	f := start(t)
	f.ask(Editor, "POST", "{z}", shop+"}")
	last := time.Date(2026, 11, 22, 20, 0, 0, 0, time.UTC)
	f.silent = true
	f.expect(503, Viewer, "GET", "/vestibule/status", "") // before any leader
	f.numbers = &Numbers{Active: 5, At: last}
	a := f.ask(Viewer, "GET", "/vestibule/status", "")
	if a.code != 200 || len(a.Messages) != 1 ||
		a.Messages[0].Message != "no global leads: this is as of 2026-11-22T20:00:00Z" {
		t.Errorf("after it: %+v", a)
	}
	if s := stopsOf(t, a); len(s) != 1 || s[0]["reason"] != "no_leader" || s[0]["since"] != "2026-11-22T20:00:00Z" {
		t.Errorf("why nobody enters: %+v", s)
	}
}
