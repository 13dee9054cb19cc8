package control

import (
	"strings"
	"testing"
)

// The audit log has a sentence for each change and the reason that was given, also where a control ends.
func TestTheAuditLogSaysWhatSomebodyDid(t *testing.T) {
	f := start(t)
	made := f.ask(Admin, "POST", "{z}", `{"name":"shop","host":"shop.example"`+limits)
	id, _ := made.field("id").(string)
	at, room := "/vestibule/rooms/"+id, "{z}/"+id
	const end = `"2096-01-01T10:00:00Z"`
	var tokens []string
	for _, c := range []struct{ method, path, body, want string }{
		{
			"PATCH", at + "/controls", `{"pause":{"message":"soon"},"reason":"r1"}`,
			`paused room shop with the message "soon": r1`,
		},
		{"POST", at + "/releases", `{"people":7,"reason":"r2"}`, "released the next 7 visitors of paused room shop: r2"},
		{"PATCH", at + "/controls", `{"pause":null,"reason":"r3"}`, "resumed room shop: r3"},
		{
			"PATCH", at + "/controls", `{"message":{"text":"hello"},"reason":"r4"}`,
			`showed the message "hello" in room shop: r4`,
		},
		{"PATCH", at + "/controls?reason=r5", `{"message":null}`, "removed the message of room shop: r5"},
		{"PATCH", at + "/controls", `{"queue_all":{},"reason":"r6"}`, "made everybody wait in room shop: r6"},
		{"PATCH", at + "/controls", `{"queue_all":null,"reason":"r7"}`, "let room shop admit again: r7"},
		{"PATCH", room + "?reason=r8", `{"total_active_users":301}`, "changed the settings of room shop: r8"},
		{
			"POST", room + "/rules?reason=r9", `{"action":"bypass_waiting_room","expression":"ssl"}`,
			"added a rule to room shop: r9",
		},
		{
			"POST", room + "/events?reason=r10",
			`{"name":"sale","event_start_time":` + end + `,"event_end_time":"2096-01-01T12:00:00Z"}`,
			"created an event of room shop: r10",
		},
		{"PUT", "/vestibule/hosts/a.example?reason=r11", `{"origin":"http://10.0.0.2"}`, "set the site of host a.example: r11"},
		{"POST", "/vestibule/tokens?reason=r12", `{"name":"robot","role":"viewer"}`, "created token robot: r12"},
		{
			"POST", "/vestibule/webhooks?reason=r13", `{"name":"pager","url":"https://hooks.example"}`,
			"created webhook pager: r13",
		},
		{"DELETE", room + "?reason=r15", "", "deleted room shop: r15"},
	} {
		a := f.ok(Admin, c.method, c.path, c.body)
		if strings.HasPrefix(c.path, "/vestibule/tokens") {
			id, _ := a.field("id").(string)
			tokens = append(tokens, id)
		}
		if got := f.newestSentence(); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.method, c.path, got, c.want)
		}
	}
	f.ok(Admin, "DELETE", "/vestibule/tokens/"+tokens[0], "")
	if got := f.newestSentence(); got != "revoked token robot: " {
		t.Error(got)
	}
	if long := strings.Repeat("x", 201); f.ask(Admin, "PATCH", at+"/controls", `{"pause":null,"reason":"`+long+`"}`).code == 200 {
		t.Error("a long reason is taken")
	}
}

// newestSentence returns the text and the reason of the newest entry.
func (f *fixture) newestSentence() string {
	f.Helper()
	list, _ := f.ok(Admin, "GET", "/vestibule/audit?per_page=1", "").Result.([]any)
	if len(list) != 1 {
		f.Fatal("no entry")
	}
	e, _ := list[0].(map[string]any)
	text, _ := e["text"].(string)
	reason, _ := e["reason"].(string)
	return text + ": " + reason
}

// A refused token is a refused login.
func TestSentencesOfLogins(t *testing.T) {
	f := start(t)
	token := "vst_" + strings.Repeat("A", 12) + "_" + strings.Repeat("A", 43)
	f.with("GET", "/vestibule/status", "Authorization", "Bearer "+token)
	want := "was refused, with token AAAAAAAAAAAA: the token is unknown, expired or revoked: "
	if got := f.newestSentence(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
