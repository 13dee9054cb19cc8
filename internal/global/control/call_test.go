package control

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"

	"vestibule/internal/core/room"
	"vestibule/internal/global/audit"
	"vestibule/internal/global/control/api"
	"vestibule/internal/lab/testkit"
)

// entries returns the audit entries of an operation, without what differs between two calls.
func (f *fixture) entries(operation string) (out []audit.Entry) {
	f.Helper()
	stored := testkit.Must(audit.NewJournal(f.audit).Read(f.Context(), 1, 1000, ""))(f)
	for _, s := range stored {
		var e audit.Entry
		testkit.NoError(f, json.Unmarshal(s.Data, &e))
		if e.By.Operation == operation {
			out = append(out, e)
		}
	}
	return out
}

// A call inside the process answers as a request does: the same result, role check, faults and audit entry.
func TestACallAnswersAsARequest(t *testing.T) {
	f := start(t)
	id := f.made()
	path := "/vestibule/rooms/" + id + "/controls"
	asked := f.ask(Operator, "PATCH", path, `{"pause":{"message":"soon"},"reason":"crash"}`)

	who := Principal{ID: "u1", Name: "Ana", Role: Operator}
	const from = "192.0.2.7:4711"
	var got api.Controls
	body := map[string]any{"pause": map[string]any{"message": "soon"}, "reason": "crash"}
	testkit.NoError(t, f.api.Call(t.Context(), who, from, http.MethodPatch, path, body, &got))
	if got.Pause == nil || got.Pause.By != "Ana" || got.Pause.Reason != "crash" || *got.Pause.Message != "soon" {
		t.Errorf("pause: %+v", got.Pause)
	}
	total := asked.field("in_force").(map[string]any)["total_active_users"]
	if float64(got.InForce.TotalActiveUsers) != total {
		t.Errorf("in force: %+v, want total_active_users %v", got.InForce, total)
	}
	entries := f.entries("patch-controls")
	want := audit.By{ID: "u1", Name: "Ana", Role: "operator", From: "192.0.2.7", Operation: "patch-controls", Reason: "crash"}
	if len(entries) != 2 || entries[1].By != want || entries[1].Target != entries[0].Target {
		t.Errorf("audit entries: %+v", entries)
	}
	if n := f.count["patch-controls 200"]; n != 2 {
		t.Errorf("counted %d calls, want 2", n)
	}
	var rooms []api.Room
	if err := f.api.Call(t.Context(), who, from, http.MethodGet, "/zones/"+Zone+"/waiting_rooms?per_page=5", nil,
		&rooms); err != nil || len(rooms) != 1 || rooms[0].Name != "shop" {
		t.Errorf("rooms: %+v, %v", rooms, err)
	}
}

// A refused call has the status and the notes that a request gets, and changes nothing.
func TestARefusedCallNamesItsFaults(t *testing.T) {
	f := start(t)
	id := f.made()
	controls := "/vestibule/rooms/" + id + "/controls"
	before := len(f.entries("patch-controls"))
	for name, c := range map[string]struct {
		role         Role
		method, path string
		body         any
		status, code int
	}{
		"role":      {Viewer, http.MethodPatch, controls, map[string]any{"pause": map[string]any{}}, 403, codeForbidden},
		"no role":   {"", http.MethodGet, controls, nil, 403, codeForbidden},
		"bad data":  {Operator, http.MethodPatch, controls, map[string]any{"pauze": 1}, 400, codeInvalid},
		"unknown":   {Admin, http.MethodGet, "/vestibule/rooms/" + room.PublicID("x") + "/controls", nil, 404, codeNotFound},
		"no route":  {Admin, http.MethodGet, "/vestibule/rooms", nil, 404, codeNoRoute},
		"elsewhere": {Admin, http.MethodGet, "/../../preview/x", nil, 404, codeNoRoute},
	} {
		err := f.api.Call(t.Context(), Principal{ID: "u", Name: "Ana", Role: c.role}, "192.0.2.7:1", c.method, c.path,
			c.body, nil)
		refusal, ok := errors.AsType[*RefusalError](err)
		if !ok || refusal.Status != c.status || len(refusal.Notes) != 1 || refusal.Notes[0].Code != c.code ||
			Status(err) != c.status {
			t.Errorf("%s: %v", name, err)
		}
		if c.body == nil || !ok {
			continue
		}
		sent, _ := json.Marshal(c.body)
		if asked := f.ask(c.role, c.method, c.path, string(sent)); asked.code != c.status ||
			asked.Errors[0].Message != refusal.Notes[0].Message {
			t.Errorf("%s: a request got %+v, the call %+v", name, asked, refusal)
		}
	}
	if after := len(f.entries("patch-controls")); after != before {
		t.Errorf("%d audit entries of refused calls", after-before)
	}
	if err := f.api.Call(t.Context(), Principal{Role: Admin}, "", http.MethodPatch, controls, func() {},
		nil); err == nil || Status(err) != 500 {
		t.Errorf("a body that is no JSON: %v", err)
	}
}
