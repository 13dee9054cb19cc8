package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/global/audit"
	"vestibule/internal/global/roomstore"
	"vestibule/internal/lab/testkit"
)

// list returns the result of a list, by the names of its fields.
func (a answer) list() (out []map[string]any) {
	all, _ := a.Result.([]any)
	for _, e := range all {
		m, _ := e.(map[string]any)
		out = append(out, m)
	}
	return out
}

// chain verifies the API's answers, as a client without any other source does.
func (f *fixture) chain() (entries []audit.Entry) {
	f.Helper()
	var c audit.Chain
	for from := uint64(1); ; {
		var page struct {
			Result []struct {
				Sequence uint64
				Hash     string
				Entry    json.RawMessage
			}
		}
		testkit.NoError(f, json.Unmarshal(f.raw(Admin, fmt.Sprintf("/vestibule/audit?per_page=3&from=%d", from)), &page))
		if len(page.Result) == 0 {
			return entries
		}
		for _, r := range page.Result {
			e, gap, err := c.Next(r.Entry)
			if err != nil || gap != "" || c.Hash != r.Hash {
				f.Fatalf("%s: %v %s, hash %s and not %s", r.Entry, err, gap, r.Hash, c.Hash)
			}
			entries, from = append(entries, e), r.Sequence+1
		}
	}
}

func TestEveryChangeHasItsEntry(t *testing.T) {
	f := start(t)
	begun := len(f.chain()) // the tokens of the fixture, and its host
	made := f.ask(Editor, "POST", "{z}", strings.Replace(shop, `"shop"`, `"shop<&>"`, 1)+"}")
	if made.code != 400 {
		t.Fatalf("%+v", made)
	}
	made = f.ask(Editor, "POST", "{z}", shop+`,"custom_page_html":"<p>one & all"}`)
	id, _ := made.field("id").(string)
	f.ask(Editor, "PATCH", "{z}/"+id, `{"total_active_users":301}`)
	f.ask(Editor, "PATCH", "{z}/"+id, `{"total_active_users":301}`) // changes nothing
	f.ask(Viewer, "PATCH", "{z}/"+id, `{"total_active_users":999}`) // refused
	f.ask(Editor, "PUT", "/vestibule/hosts/shop.example", `{"origin":"http://10.0.0.2"}`)
	f.ask(Editor, "DELETE", "{z}/"+id, "")
	token := f.ask(Admin, "POST", "/vestibule/tokens", `{"name":"ci","role":"editor","expires_on":"never"}`)
	value, _ := token.field("value").(string)
	tokenID, _ := token.field("id").(string)
	f.ask(Admin, "DELETE", "/vestibule/tokens/"+tokenID, "")

	var got []string
	for _, e := range f.chain()[begun:] {
		what := e.By.Operation + " by " + e.By.Name
		for _, r := range e.Rooms {
			what += fmt.Sprintf(" %s:%t-%t", r.Name, r.Before != nil, r.After != nil)
		}
		for _, h := range e.Hosts {
			what += fmt.Sprintf(" %s:%s-%s", h.Name, h.Before, h.After)
		}
		if e.Target != "" {
			what += fmt.Sprintf(" %s:%s-%s", strings.Replace(e.Target, tokenID, "ID", 1), e.Before, e.After)
		}
		if got = append(got, what); e.By.From != "192.0.2.1" || e.At.IsZero() || e.ID == "" || e.Late || e.By.ID == "" ||
			e.By.Role == "" {
			t.Errorf("%+v", e)
		}
	}
	want := []string{
		"waiting-room-create-waiting-room by a editor shop:false-true",
		"waiting-room-patch-waiting-room by a editor shop:true-true",
		"put-host by a editor shop:true-true shop.example:http://10.0.0.1-http://10.0.0.2",
		"waiting-room-delete-waiting-room by a editor shop:true-false",
		`create-token by a admin token.ID:-{"name":"ci","role":"editor"}`,
		`delete-token by a admin token.ID:{"name":"ci","role":"editor"}-`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("entries\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, data := range f.audit.Entries() {
		if strings.Contains(string(data), value[len(value)-43:]) || strings.Contains(string(data), hash(value)) ||
			strings.Contains(string(data), `"hash"`) {
			t.Errorf("a secret stands in %s", data)
		}
	}
	newest := f.ask(Admin, "GET", "/vestibule/audit?per_page=2", "")
	if l := newest.list(); len(l) != 2 || newest.Info.TotalCount != begun+6 || l[0]["sequence"] != float64(begun+6) ||
		l[1]["sequence"] != float64(begun+5) {
		t.Errorf("the first page: %+v %+v", newest.Info, l)
	}
	if l := f.ask(Admin, "GET", "/vestibule/audit?page=99", "").list(); len(l) != 0 {
		t.Errorf("past the oldest: %v", l)
	}
}

func TestARoomIsRestored(t *testing.T) {
	f := start(t)
	made := f.ask(Editor, "POST", "{z}", shop+`,"custom_page_html":"<p>one","vestibule":{"grace":"2m"}}`)
	id, _ := made.field("id").(string)
	f.ask(Editor, "PUT", "{z}/"+id, strings.Replace(shop, `"shop"`, `"fair"`, 1)+`,"session_duration":9}`)
	f.ask(Editor, "DELETE", "{z}/"+id, "")
	path := "/vestibule/rooms/" + id + "/revisions"
	all := f.ask(Editor, "GET", path, "").list()
	if len(all) != 3 || all[0]["room"] != nil ||
		fmt.Sprint(all[1]["changed"]) != "[name session_duration waiting_page identity]" &&
			fmt.Sprint(all[1]["changed"]) != "[name session_duration waiting_page]" {
		t.Fatalf("%+v", all)
	}
	for _, name := range []string{"shop", "fair"} { // a deleted room is found by each of its names
		if named := f.ask(Editor, "GET", "/vestibule/rooms/"+name+"/revisions", "").list(); len(named) != 3 {
			t.Errorf("the revisions of %s: %+v", name, named)
		}
	}
	restore := func(i int) answer {
		return f.ask(Editor, "POST", fmt.Sprintf("%s/%.0f/restore", path, all[i]["revision"]), "")
	}
	if a := restore(0); a.code != 400 || !strings.Contains(a.Errors[0].Message, "deleted") {
		t.Errorf("a deletion: %+v", a)
	}
	back := restore(2)
	own, _ := back.field("vestibule").(map[string]any)
	if back.code != 200 || back.field("id") != id || back.field("name") != "shop" ||
		back.field("custom_page_html") != "<p>one" || own["grace"] != "2m0s" || back.field("session_duration") != 5. {
		t.Errorf("the first revision, of a room that was gone: %+v", back)
	}
	back = restore(1)
	if back.code != 200 || back.field("id") != id || back.field("name") != "fair" ||
		back.field("custom_page_html") != "" || back.field("session_duration") != 9. {
		t.Errorf("the second one, over another: %+v", back)
	}
	if again := f.ask(Editor, "GET", path+"?per_page=2", ""); again.Info.TotalCount != 5 || again.Info.Count != 2 {
		t.Errorf("a restore makes a revision: %+v", again.Info)
	}
	// The name may be another's by now.
	f.ask(Editor, "POST", "{z}", shop+`,"path":"/other"}`)
	if a := restore(2); a.code != 400 || !strings.Contains(a.Errors[0].Message, "another room") {
		t.Errorf("a name that is taken: %+v", a)
	}
	// The API reports a page that is not kept any more.
	f.docs.Lock()
	delete(f.docs.Data, roomdoc.PageDocument(roomdoc.Hash([]byte("<p>one"))))
	f.docs.Unlock()
	if a := restore(2); a.code != 400 || !strings.Contains(a.Errors[0].Message, "not kept any more") {
		t.Errorf("without its page: %+v", a)
	}
	for _, path := range []string{
		"/vestibule/rooms/x/revisions",
		"/vestibule/rooms/" + room.PublicID("nobody") + "/revisions", path + "/1", path + "/1/restore", path + "/x/restore",
		"/vestibule/rooms/>/revisions",
	} {
		method := "GET"
		if strings.HasSuffix(path, "restore") {
			method = "POST"
		}
		f.expect(404, Editor, method, path, "")
	}
}

// Where the stream cannot be written, changes of rooms are made and their entries wait; tokens are not
// made, and are revoked all the same.
func TestWithoutTheAuditStream(t *testing.T) {
	f := start(t)
	begun := len(f.chain())
	f.audit.Before = func(string) string { return "failed" }
	for _, j := range []*audit.Journal{f.parts.audit.journal, f.rooms.Journal} {
		j.Pause = func(context.Context, time.Duration) {}
	}
	f.expect(200, Editor, "POST", "{z}", shop+"}")
	if f.rooms.AuditFault() == "" {
		t.Error("nothing is said of an entry that waits")
	}
	f.expect(503, Admin, "POST", "/vestibule/tokens", `{"name":"ci","role":"editor"}`) // a token without an entry
	list, _ := f.ask(Admin, "GET", "/vestibule/tokens", "").Result.([]any)
	i := slices.IndexFunc(list, func(v any) bool { return v.(map[string]any)["role"] == "viewer" })
	id, _ := list[i].(map[string]any)["id"].(string)
	f.expect(200, Admin, "DELETE", "/vestibule/tokens/"+id, "") // a token that is revoked
	f.audit.Before = nil
	for role := range f.token { // one of them is gone
		if a := f.ask(role, "GET", "{z}", ""); a.code == 401 {
			delete(f.token, role)
		}
	}
	testkit.Must(f.rooms.Publish(t.Context(), false, func(*roomstore.Draft) error { return nil }))(t)
	var late []audit.Entry
	for _, data := range f.audit.Entries()[begun:] {
		var e audit.Entry
		testkit.NoError(t, json.Unmarshal(data, &e))
		if e.Target != loginTarget { // of the revoked token above
			late = append(late, e)
		}
	}
	if len(late) != 1 || !late[0].Late || late[0].By.Name != "a editor" || len(late[0].Rooms) != 1 ||
		f.rooms.AuditFault() != "" {
		t.Errorf("what the leader added: %+v, %q", late, f.rooms.AuditFault())
	}
}

// The filters of the audit log work together, and before continues a list.
func TestTheAuditLogIsFiltered(t *testing.T) {
	f := start(t)
	id, _ := f.ask(Editor, "POST", "{z}?reason=a+new+shop", shop+"}").field("id").(string)
	f.ask(Editor, "POST", "{z}",
		`{"name":"news","host":"shop.example","path":"/news","total_active_users":3,"new_users_per_minute":5}`)
	f.ask(Admin, "PATCH", "{z}/"+id, `{"total_active_users":301}`)
	f.ask(Operator, "PATCH", "/vestibule/rooms/"+id+"/controls", `{"pause":{"message":"Soon."},"reason":"slow"}`)
	f.ask(Editor, "DELETE", "{z}/"+id, "")
	list := func(query string) (got []string, last float64) {
		for _, e := range f.ask(Admin, "GET", "/vestibule/audit?"+query, "").list() {
			changes, _ := e["changes"].([]any)
			change, _ := changes[0].(map[string]any)
			got = append(got, fmt.Sprintf("%v %v %v by %v: %v %v", change["change"], change["kind"], change["name"], e["by"],
				e["reason"], change["settings"]))
			last, _ = e["sequence"].(float64)
		}
		return got, last
	}
	made := "made room shop by a editor: a new shop []"
	patched := "changed room shop by a admin:  [map[after:301 before:300 key:total_active_users]]"
	paused := "changed controls shop by a operator: slow [map[after:true before:<nil> key:pause] map[after:Soon. " +
		"before:<nil> key:pause.message]]"
	gone := "deleted room shop by a editor:  []"
	hour := time.Hour
	for query, want := range map[string][]string{
		"room=shop":                  {gone, paused, patched, made},
		"room=" + id:                 {gone, paused, patched, made},
		"room=" + id + "&by=a+admin": {patched},
		"room=" + id + "&per_page=2": {gone, paused},
		"room=shop&since=" + time.Now().Add(-hour).UTC().Format(time.RFC3339): {gone, paused, patched, made},
		"room=shop&since=" + time.Now().Add(hour).UTC().Format(time.RFC3339):  nil,
	} {
		if got, _ := list(query); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s:\n%s\nwant\n%s", query, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	_, last := list("room=" + id + "&per_page=2")
	if got, _ := list(fmt.Sprintf("room=%s&before=%.0f", id, last)); strings.Join(got, "\n") != patched+"\n"+made {
		t.Errorf("before %.0f: %v", last, got)
	}
	for _, query := range []string{"since=noon", "before=0"} {
		f.expect(400, Admin, "GET", "/vestibule/audit?"+query, "")
	}
	f.refused(Editor, "DELETE", "{z}/"+id+"?reason="+strings.Repeat("x", 201), "", "/reason")
}

// A write without an answer may have been made: the client is told so, and the audit stream does not say that the
// change failed.
func TestAWriteWithoutAnAnswer(t *testing.T) {
	f := start(t)
	id := f.made()
	made := f.ask(Admin, "POST", "/vestibule/tokens", `{"name":"ci","role":"editor"}`)
	token, _ := made.field("id").(string)
	f.docs.Writing = func(string) error { return errors.New("no answer came") }
	for _, c := range []struct{ method, path, body string }{
		{"POST", "/vestibule/tokens", `{"name":"cd","role":"editor"}`},
		{"DELETE", "/vestibule/tokens/" + token, ""},
		{"POST", "/vestibule/webhooks", `{"name":"pager","url":"https://hooks.example/x"}`},
		{"PATCH", "/vestibule/rooms/" + id + "/controls", `{"pause":{}}`},
	} {
		a := f.ask(Admin, c.method, c.path, c.body)
		if a.code != http.StatusServiceUnavailable || !strings.Contains(a.Errors[0].Message, "is not known") {
			t.Errorf("%s %s: %d %+v", c.method, c.path, a.code, a.Errors)
		}
	}
	f.docs.Writing = nil
	for _, e := range f.chain() {
		if e.Failed != "" {
			t.Errorf("the stream says that a change failed: %+v", e)
		}
	}
}

// The audit entry of a control is of the change that was written, also if another writer changed the room meanwhile.
func TestTheEntryIsOfTheChangeThatWasWritten(t *testing.T) {
	f := start(t)
	id := f.made()
	at := "/vestibule/rooms/" + id + "/controls"
	f.docs.Writing = func(string) error {
		f.docs.Writing = nil
		return first(f.ask(Operator, "PATCH", at, `{"message":{"text":"Size 8 is gone."}}`))
	}
	f.ok(Operator, "PATCH", at, `{"pause":{}}`)
	failed := map[string]bool{}
	var last audit.Entry
	for _, e := range f.chain() {
		failed[e.Failed] = true
		if strings.Contains(string(e.After), "ause") {
			last = e
		}
	}
	if !strings.Contains(string(last.Before), "Size 8") || !strings.Contains(string(last.After), "Size 8") ||
		failed[last.ID] {
		t.Errorf("the newest entry is %s to %s, failed %v", last.Before, last.After, failed[last.ID])
	}
}

func first(a answer) error {
	if a.code != http.StatusOK {
		return fmt.Errorf("%+v", a)
	}
	return nil
}
