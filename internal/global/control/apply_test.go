package control

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomfile"
	"vestibule/internal/global/roomstore"
)

// load imports a file, and returns what was answered.
func (f *fixture) load(file string, more map[string]any) answer {
	f.Helper()
	body := map[string]any{"rooms_yaml": file}
	maps.Copy(body, more)
	data, err := json.Marshal(body)
	if err != nil {
		f.Fatal(err)
	}
	return f.ask(Editor, "POST", "/vestibule/import", string(data))
}

// changes lists what an import says that it changed.
func (a answer) changes() (out []string) {
	list, _ := a.field("changes").([]any)
	for _, e := range list {
		m, _ := e.(map[string]any)
		out = append(out, fmt.Sprint(m["kind"], " ", m["name"], " ", m["change"], " ", m["settings"]))
	}
	return out
}

func TestRoomsAreExportedAndImported(t *testing.T) {
	f := start(t)
	f.ask(Editor, "POST", "{z}", shop+`,"custom_page_html":"<p>one & all","vestibule":{"grace":"2m"}}`)
	f.ask(Editor, "POST", "{z}", strings.Replace(shop, `"shop"`, `"fair"`, 1)+`,"path":"/fair"}`)
	got := f.ask(Viewer, "GET", "/vestibule/export", "")
	file, _ := got.field("rooms_yaml").(string)
	pages, _ := got.field("pages").(map[string]any)
	doc, err := roomfile.Parse([]byte(file))
	if err != nil || len(doc.Rooms) != 2 || len(doc.Hosts) != 1 || len(pages) != 1 || pages[doc.Rooms[1].WaitingPage] != "<p>one & all" {
		t.Fatalf("%v\n%s\n%v", err, file, pages)
	}
	before, err := f.rooms.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// The same again changes nothing, not even the version.
	if a := f.load(file, map[string]any{"pages": pages}); a.code != 200 || len(a.changes()) != 0 {
		t.Errorf("%+v", a)
	}
	if after, err := f.rooms.Read(t.Context()); err != nil || after.Version != before.Version {
		t.Errorf("version %d after %d, %v", after.Version, before.Version, err)
	}
	// Into another fleet it is the same set.
	other := start(t)
	if a := other.load(file, map[string]any{"pages": pages}); a.code != 200 || len(a.changes()) != 2 {
		t.Errorf("%+v", a)
	}
	there, err := other.rooms.Read(t.Context())
	if err != nil || !there.Room("shop").Equal(before.Room("shop").Settings) || !there.Room("fair").Equal(before.Room("fair").Settings) {
		t.Errorf("%+v, %v", there, err)
	}
	// What would change is told first, then changed at once.
	changed := strings.Replace(file, "total_active_users: 300", "total_active_users: 250", 1)
	changed = strings.Replace(changed, `name: "shop"`, `name: "mart"`, 1)
	changed = strings.ReplaceAll(changed, "http://10.0.0.1\"\n", "http://10.0.0.9\"\n")
	want := "[room fair changed [total_active_users origin] room mart made [] room shop deleted [] host shop.example changed []]"
	for _, dry := range []bool{true, false} {
		a := f.load(changed, map[string]any{"pages": pages, "dry_run": dry})
		if fmt.Sprint(a.changes()) != want || a.field("applied") != !dry {
			t.Errorf("dry %t: %v %v\nwant %s", dry, a.field("applied"), a.changes(), want)
		}
		if now, err := f.rooms.Read(t.Context()); err != nil || (now.Version == before.Version) != dry || (now.Room("mart") == nil) != dry {
			t.Errorf("dry %t: version %d after %d, %v", dry, now.Version, before.Version, err)
		}
	}
}

func TestAnImportIsWholeOrNotAtAll(t *testing.T) {
	f := start(t)
	f.ask(Editor, "POST", "{z}", shop+"}")
	_, err := f.rooms.Publish(t.Context(), roomstore.File, false, func(d *roomstore.Draft) error {
		d.Set(room.Document{Rooms: []room.Settings{{Name: "filed", Host: "filed.example", TotalActiveUsers: 5, NewUsersPerMinute: 5, Origin: "http://10.0.0.1"}}})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	before, err := f.rooms.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	one := func(name, more string) string {
		return fmt.Sprintf("  - {name: %s, host: %s.example, total_active_users: 9, new_users_per_minute: 5, origin: 'http://10.0.0.1'%s}\n", name, name, more)
	}
	for what, x := range map[string]struct {
		file  string
		says  []string
		pages map[string]any
	}{
		"no YAML":                {"rooms: {", []string{"line"}, nil},
		"two faults":             {"rooms:\n" + one("a", ", grace: 1s") + one("b", ", zap: 1"), []string{"rooms[0]", "grace", "zap"}, nil},
		"a page that is missing": {"rooms:\n" + one("a", ", waiting_page: p.html"), []string{"p.html"}, nil},
		"a page that is none":    {"rooms:\n" + one("a", ", waiting_page: p.html"), []string{"p.html"}, map[string]any{"p.html": "{{#x}}"}},
		"a room of the file":     {"rooms:\n" + one("new", "") + one("filed", ""), []string{"of the rooms file already"}, nil},
	} {
		a := f.load(x.file, map[string]any{"pages": x.pages})
		said := fmt.Sprint(a.Errors)
		for _, want := range x.says {
			if a.code != 400 || !strings.Contains(said, want) {
				t.Errorf("%s: %d %s\nwant %s", what, a.code, said, want)
			}
		}
	}
	if now, err := f.rooms.Read(t.Context()); err != nil || now.Version != before.Version {
		t.Errorf("version %d after %d, %v", now.Version, before.Version, err)
	}
	// The file's rooms become the API's where it says so.
	if a := f.load("rooms:\n"+one("filed", ""), map[string]any{"take_over": true}); a.code != 200 {
		t.Errorf("%+v", a)
	}
	now, err := f.rooms.Read(t.Context())
	if err != nil || len(now.Rooms) != 1 || now.Room("filed").Owner != roomstore.API || now.Room("filed").TotalActiveUsers != 9 {
		t.Errorf("%+v, %v", now, err)
	}
}

// Ten thousand rooms go out and in.
func TestTenThousandRoomsAreMoved(t *testing.T) {
	f := start(t)
	var doc room.Document
	for i := range room.MaxRooms {
		name := fmt.Sprintf("room-%05d", i)
		doc.Rooms = append(doc.Rooms, room.Settings{Name: name, Host: name + ".shop.example", TotalActiveUsers: 500, NewUsersPerMinute: 100, Origin: "http://10.0.0.1"})
	}
	data, err := roomfile.Format(doc)
	if err != nil {
		t.Fatal(err)
	}
	if a := f.load(string(data), nil); a.code != 200 || len(a.changes()) != room.MaxRooms+1 { // the entry of a host goes
		t.Fatalf("%d, %d changes", a.code, len(a.changes()))
	}
	got := f.ask(Viewer, "GET", "/vestibule/export", "")
	if file, _ := got.field("rooms_yaml").(string); strings.Count(file, "- name:") != room.MaxRooms {
		t.Errorf("%d rooms", strings.Count(file, "- name:"))
	}
}
