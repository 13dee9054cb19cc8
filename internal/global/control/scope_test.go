package control

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"vestibule/internal/core/room"
)

// The lists of a principal with one room have that room. Asked for by name or ID, another room is answered as one that
// does not exist.
func TestListsOfAPrincipalWithOneRoom(t *testing.T) {
	f := start(t)
	ids := map[string]string{}
	for _, name := range []string{"own", "other"} {
		made := f.ask(Editor, "POST", "{z}",
			`{"name":"`+name+`","host":"shop.example","path":"/`+name+`","total_active_users":300,"new_users_per_minute":200}`)
		ids[name], _ = made.field("id").(string)
		if made.code != 200 {
			t.Fatalf("%+v", made)
		}
	}
	who := Principal{ID: "u", Name: "Ana", Role: Viewer, Rooms: []string{ids["own"]}}
	get := func(path string) (result json.RawMessage, err error) {
		err = f.api.Call(t.Context(), who, "192.0.2.7:1", http.MethodGet, path, nil, &result)
		return result, err
	}
	for _, path := range []string{
		"/zones/" + Zone + "/waiting_rooms", "/accounts/" + Account + "/waiting_rooms", "/vestibule/status",
		"/vestibule/status?room=own",
		"/vestibule/status?room=" + ids["own"],
	} {
		var list []any
		if result, err := get(path); err != nil || json.Unmarshal(result, &list) != nil || len(list) != 1 ||
			strings.Contains(string(result), "other") {
			t.Errorf("%s: %s, %v", path, result, err)
		}
	}
	for _, name := range []string{"other", ids["other"], "nowhere", room.PublicID("nowhere"), "own&room=other"} {
		if result, err := get("/vestibule/status?room=" + name); Status(err) != http.StatusNotFound {
			t.Errorf("status of %s: %s, %v", name, result, err)
		}
	}
}
