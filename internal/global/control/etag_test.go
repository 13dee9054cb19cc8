package control

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// A change that expects another revision of the room is refused with 412, whichever part of the room it changes; the
// answers with the room, its events and its rules have the revision in ETag.
func TestChangesOfARevisionThatIsNotTheCurrentOne(t *testing.T) {
	f := start(t)
	id := f.made()
	room := "/zones/" + Zone + "/waiting_rooms/" + id
	ask := func(method, path, body, tag string) (code int, answered, text string) {
		t.Helper()
		r := httptest.NewRequest(method, Prefix+path, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+f.token[Admin])
		if tag != "" {
			r.Header.Set("If-Match", tag)
		}
		w := httptest.NewRecorder()
		f.api.ServeHTTP(w, r)
		return w.Code, w.Header().Get("ETag"), w.Body.String()
	}
	tag := func() string {
		t.Helper()
		_, tag, _ := ask("GET", room, "", "")
		for _, part := range []string{"/events", "/rules"} {
			if _, again, _ := ask("GET", room+part, "", ""); again != tag || tag == "" {
				t.Errorf("%s has %s, the room %s", part, again, tag)
			}
		}
		return tag
	}
	begun := tag()
	event, _ := f.ask(Editor, "POST", "{z}/"+id+"/events",
		`{"name":"sale","event_start_time":"2096-11-22T20:00:00Z","event_end_time":"2096-11-22T21:00:00Z"}`).field("id").(string)
	rules, _ := f.ask(Editor, "POST", "{z}/"+id+"/rules",
		`{"action":"bypass_waiting_room","expression":"ssl"}`).Result.([]any)
	rule, _ := rules[0].(map[string]any)["id"].(string)
	_, all, _ := ask("POST", "/vestibule/apply", `{"rooms_yaml":"rooms: []","dry_run":true}`, "")
	for _, c := range []struct{ method, path, body string }{
		{"PATCH", room, `{"total_active_users":301}`},
		{"PUT", room, shop + `}`},
		{
			"POST", room + "/events",
			`{"name":"two","event_start_time":"2097-11-22T20:00:00Z","event_end_time":"2097-11-22T21:00:00Z"}`,
		},
		{"PATCH", room + "/events/" + event, `{"description":"x"}`},
		{"DELETE", room + "/events/" + event, ""},
		{"POST", room + "/rules", `{"action":"bypass_waiting_room","expression":"not ssl"}`},
		{"PATCH", room + "/rules/" + rule, `{"description":"x"}`},
		{"PUT", room + "/rules", `[]`},
		{"DELETE", room, ""},
	} {
		if code, _, text := ask(c.method, c.path, c.body, begun); code != 412 || !strings.Contains(text, `"code":1103`) ||
			!strings.Contains(text, "read it again") {
			t.Errorf("%s %s at an earlier revision: %d %s", c.method, c.path, code, text)
		}
		if code, _, text := ask(c.method, c.path, c.body, tag()); code != 200 {
			t.Errorf("%s %s at the current revision: %d %s", c.method, c.path, code, text)
		}
	}
	if code, _, _ := ask("POST", "/vestibule/apply", `{"rooms_yaml":"rooms: []","prune":true}`, all); code != 412 {
		t.Errorf("a file for an earlier state of all rooms: %d", code)
	}
	if code, _, text := ask("POST", "/vestibule/apply", `{"rooms_yaml":"rooms: []","prune":true}`, "*"); code != 200 {
		t.Errorf("a file for any state: %d %s", code, text)
	}
}
