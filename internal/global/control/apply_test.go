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
	"vestibule/internal/lab/testkit"
)

// apply applies a file and returns the answer.
func (f *fixture) apply(file string, more map[string]any) answer {
	f.Helper()
	body := map[string]any{"rooms_yaml": file}
	maps.Copy(body, more)
	data := testkit.Must(json.Marshal(body))(f)
	return f.ask(Editor, "POST", "/vestibule/apply", string(data))
}

// changes lists the changes of a file that an answer reports.
func (a answer) changes() (out []string) {
	list, _ := a.field("changes").([]any)
	for _, e := range list {
		m, _ := e.(map[string]any)
		var settings []string
		all, _ := m["settings"].([]any)
		for _, s := range all {
			of, _ := s.(map[string]any)
			settings = append(settings, fmt.Sprint(of["key"], ":", of["before"], ">", of["after"]))
		}
		out = append(out, fmt.Sprint(m["kind"], " ", m["name"], " ", m["change"], " ", settings))
	}
	return out
}

// An export can be applied unchanged: to the same fleet as no change, to another one as the same rooms. A renamed
// room, events, rules and pages are included.
func TestRoomsAreExportedAndApplied(t *testing.T) {
	f := start(t)
	f.ask(Editor, "POST", "{z}", shop+`,"custom_page_html":"<p>one & all","vestibule":{"grace":"2m"}}`)
	fair, _ := f.ask(Editor, "POST", "{z}",
		strings.Replace(shop, `"shop"`, `"expo"`, 1)+`,"path":"/fair"}`).field("id").(string)
	for _, a := range []answer{
		f.ask(Editor, "PATCH", "{z}/"+fair, `{"name":"fair"}`),
		f.ask(Editor, "POST", "{z}/"+fair+"/events",
			`{"name":"launch","event_start_time":"2096-11-22T20:00:00Z","event_end_time":"2096-11-22T21:00:00Z","custom_page_html":"<p>launch"}`),
		f.ask(Editor, "POST", "{z}/"+fair+"/rules", `{"action":"bypass_waiting_room","expression":"ssl","enabled":false}`),
	} {
		if a.code != 200 {
			t.Fatalf("%+v", a)
		}
	}
	got := f.ask(Viewer, "GET", "/vestibule/export", "")
	file, _ := got.field("rooms_yaml").(string)
	pages, _ := got.field("pages").(map[string]any)
	doc, err := roomfile.Parse([]byte(file))
	if err != nil || len(doc.Rooms) != 2 || len(doc.Hosts) != 1 || len(pages) != 2 ||
		pages[doc.Rooms[1].WaitingPage] != "<p>one & all" {
		t.Fatalf("%v\n%s\n%v", err, file, pages)
	}
	before := testkit.Must(f.rooms.Read(t.Context()))(t)
	for _, prune := range []bool{false, true} { // not even the version changes
		if a := f.apply(file, map[string]any{"pages": pages, "prune": prune}); a.code != 200 || len(a.changes()) != 0 {
			t.Errorf("%+v", a)
		}
	}
	if after, err := f.rooms.Read(t.Context()); err != nil || after.Version != before.Version {
		t.Errorf("version %d after %d, %v", after.Version, before.Version, err)
	}
	other := start(t)
	if a := other.apply(file, map[string]any{"pages": pages}); a.code != 200 || len(a.changes()) != 2 {
		t.Errorf("%+v", a)
	}
	there, err := other.rooms.Read(t.Context())
	if err != nil || !there.Room("shop").Equal(before.Room("shop").Settings) ||
		!there.Room("fair").Equal(before.Room("fair").Settings) {
		t.Errorf("%+v, %v", there, err)
	}
	a := f.apply(strings.Replace(file, "total_active_users: 300", "total_active_users: 301", 1),
		map[string]any{"pages": pages, "dry_run": true})
	if fmt.Sprint(a.changes()) != "[room fair changed [total_active_users:300>301]]" {
		t.Errorf("%v", a.changes())
	}
	if again, _ := other.ask(Viewer, "GET", "/vestibule/export", "").field("rooms_yaml").(string); again != file {
		t.Errorf("exported again:\n%s\nwant\n%s", again, file)
	}
	// A leader that has this file follows it.
	if _, err := f.rooms.Publish(t.Context(), false,
		func(d *roomstore.Draft) error { return d.Follow(there.Document()) }); err != nil {
		t.Error(err)
	}
}

// A dry run lists the changes, then they are made at once; with prune, rooms that the file does not name are deleted.
func TestWhatAFileChanges(t *testing.T) {
	const file = `
rooms:
  - {name: fair, host: shop.example, path: /fair, total_active_users: 250, new_users_per_minute: 200, origin: 'http://10.0.0.9'}
  - {name: mart, host: mart.example, total_active_users: 5, new_users_per_minute: 5, origin: 'http://10.0.0.1'}
hosts:
  - {name: shop.example, origin: 'http://10.0.0.9'}
`
	const changed = "room fair changed [total_active_users:300>250 origin:http://10.0.0.1>http://10.0.0.9] room " +
		"mart made []"
	for prune, want := range map[bool]string{
		false: "[" + changed + " host shop.example changed []]",
		true:  "[" + changed + " room shop deleted [] host more.example deleted [] host shop.example changed []]",
	} {
		f := start(t)
		f.ask(Editor, "POST", "{z}", strings.Replace(shop, "shop.example", "more.example",
			1)+`,"vestibule":{"origin":"http://10.0.0.1"}}`)
		f.ask(Editor, "POST", "{z}", strings.Replace(shop, `"shop"`, `"fair"`, 1)+`,"path":"/fair"}`)
		f.ask(Editor, "PUT", "/vestibule/hosts/more.example", `{"origin":"http://10.0.0.1"}`)
		before, err := f.rooms.Read(t.Context())
		if err != nil || len(before.Rooms) != 2 {
			t.Fatalf("%v, %v", before, err)
		}
		for _, dry := range []bool{true, false} {
			a := f.apply(file, map[string]any{"dry_run": dry, "prune": prune})
			if fmt.Sprint(a.changes()) != want || a.field("applied") != !dry {
				t.Errorf("dry %t, prune %t: %v %v\nwant %s", dry, prune, a.field("applied"), a.changes(), want)
			}
			if now, err := f.rooms.Read(t.Context()); err != nil || (now.Version == before.Version) != dry ||
				(now.Room("mart") == nil) != dry || !dry && (now.Room("shop") == nil) != prune {
				t.Errorf("dry %t, prune %t: version %d after %d, %v", dry, prune, now.Version, before.Version, err)
			}
		}
	}
}

func TestAFileIsAppliedWholeOrNotAtAll(t *testing.T) {
	f := start(t)
	f.ask(Editor, "POST", "{z}", shop+"}")
	before := testkit.Must(f.rooms.Read(t.Context()))(t)
	one := func(name, more string) string {
		return fmt.Sprintf("  - {name: %s, host: %s.example, total_active_users: 9, new_users_per_minute: 5, origin: "+
			"'http://10.0.0.1'%s}\n", name, name, more)
	}
	for what, x := range map[string]struct {
		file  string
		says  []string
		pages map[string]any
	}{
		"no YAML": {"rooms: {", []string{"line"}, nil},
		"two faults": {
			"rooms:\n" + one("a", ", grace: 1s") + one("b", ", zap: 1"),
			[]string{"rooms[0]", "grace", "zap"},
			nil,
		},
		"a page that is missing": {"rooms:\n" + one("a", ", waiting_page: p.html"), []string{"p.html"}, nil},
		"a page that is none": {
			"rooms:\n" + one("a", ", waiting_page: p.html"),
			[]string{"p.html"},
			map[string]any{"p.html": "{{#x}}"},
		},
		"the place of one that stays": {"rooms:\n" + one("new", "") + strings.Replace(one("x", ""), "x.example",
			"shop.example", 1), []string{`rooms[1] "x": path: names shop.example/, which room "shop" covers already`}, nil},
	} {
		a := f.apply(x.file, map[string]any{"pages": x.pages})
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
}

// Ten thousand rooms go out and in.
func TestTenThousandRoomsAreMoved(t *testing.T) {
	f := start(t)
	var doc room.Document
	for i := range room.MaxRooms {
		name := fmt.Sprintf("room-%05d", i)
		doc.Rooms = append(doc.Rooms, room.Settings{
			Name: name, Host: name + ".shop.example", TotalActiveUsers: 500,
			NewUsersPerMinute: 100, Origin: "http://10.0.0.1",
		})
	}
	data := testkit.Must(roomfile.Format(doc))(t)
	// the entry of a host goes
	if a := f.apply(string(data), map[string]any{"prune": true}); a.code != 200 || len(a.changes()) != room.MaxRooms+1 {
		t.Fatalf("%d, %d changes", a.code, len(a.changes()))
	}
	got := f.ask(Viewer, "GET", "/vestibule/export", "")
	if file, _ := got.field("rooms_yaml").(string); strings.Count(file, "- name:") != room.MaxRooms {
		t.Errorf("%d rooms", strings.Count(file, "- name:"))
	}
}
