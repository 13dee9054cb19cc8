package control

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/roomstore"
	"vestibule/internal/lab/testkit"
)

// made makes the room shop and returns its id.
func (f *fixture) made() string {
	f.Helper()
	a := f.ask(Editor, "POST", "{z}", shop+`}`)
	if a.code != http.StatusOK {
		f.Fatalf("%+v", a)
	}
	return a.field("id").(string)
}

func inForce(a answer) map[string]any {
	m, _ := a.field("in_force").(map[string]any)
	return m
}

// TestControlsAreNoPartOfTheRoom: controls are in force beside the settings, a PUT of the room neither shows nor
// undoes them, and null removes one.
func TestControlsAreNoPartOfTheRoom(t *testing.T) {
	f := start(t)
	id := f.made()
	at := "/vestibule/rooms/" + id + "/controls"
	before := f.ask(Viewer, "GET", "{z}/"+id, "")
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	a := f.ask(Operator, "PATCH", at,
		`{"pause":{"message":"<b>Ten</b> minutes."},"limits":{"total_active_users":5,"until":"`+until.Format(time.RFC3339)+`"},"reason":"the site is slow"}`)
	if a.code != http.StatusOK {
		t.Fatalf("%+v", a)
	}
	pause, _ := a.field("pause").(map[string]any)
	limits, _ := a.field("limits").(map[string]any)
	if pause["by"] != "a operator" || pause["reason"] != "the site is slow" || pause["until"] != nil ||
		limits["until"] != until.Format(time.RFC3339) {
		t.Errorf("%v %v", pause, limits)
	}
	want := inForce(a)
	if want["total_active_users"] != 5.0 || want["queue_all"] != true || want["queue_message"] != "<b>Ten</b> minutes." {
		t.Errorf("in force: %v", want)
	}
	put := f.ask(Editor, "PUT", "{z}/"+id, shop+`}`)
	if after := f.ask(Viewer, "GET", "{z}/"+id, ""); put.code != http.StatusOK || after.field("queue_all") != false ||
		after.field("total_active_users") != before.field("total_active_users") {
		t.Errorf("the room shows its controls: %+v", after.Result)
	}
	if a := f.ask(Viewer, "GET", at, ""); cmp.Diff(want, inForce(a)) != "" {
		t.Errorf("after a PUT of the room: %+v", a.Result)
	}
	st := f.ask(Viewer, "GET", "{z}/"+id+"/status", "")
	own, _ := st.field("vestibule").(map[string]any)
	if got := fmt.Sprint(own["controls"]); got != "[pause limits]" {
		t.Errorf("the status tells %v", got)
	}
	if a := f.ask(Operator, "PATCH", at, `{"pause":null,"message":{"text":"Go on."}}`); inForce(a)["queue_all"] != false ||
		inForce(a)["queue_message"] != "Go on." || inForce(a)["total_active_users"] != 5.0 {
		t.Errorf("once it goes on: %+v", a.Result)
	}
	a = f.ask(Operator, "PATCH", at, `{"limits":null,"message":null}`)
	if cmp.Diff(f.ask(Viewer, "GET", at, "").Result, a.Result) != "" || a.field("limits") != nil ||
		inForce(a)["total_active_users"] != before.field("total_active_users") {
		t.Errorf("all taken back: %+v", a.Result)
	}
	if log := f.ask(Admin, "GET", "/vestibule/audit", ""); !strings.Contains(fmt.Sprint(log.Result),
		"controls of room "+id) || !strings.Contains(fmt.Sprint(log.Result), "the site is slow") {
		t.Errorf("the audit stream does not tell of it: %v", log.Result)
	}
	data, _, err := f.docs.Get(t.Context(), controlsDocument)
	if c, err2 := room.DecodeControls(data); err != nil || err2 != nil || len(c.Rooms) != 0 {
		t.Errorf("what is stored: %s %v %v", data, err, err2)
	}
}

// TestControlsOfASuspendedRoom: they have no effect, and the answer says so.
func TestControlsOfASuspendedRoom(t *testing.T) {
	f := start(t)
	id := f.made()
	at := "/vestibule/rooms/" + id + "/controls"
	f.ok(Editor, "PATCH", "{z}/"+id, `{"suspended":true}`)
	if a := f.ask(Operator, "PATCH", at, `{"pause":{}}`); len(a.Messages) != 1 ||
		!strings.Contains(a.Messages[0].Message, "room shop is suspended") {
		t.Errorf("a pause: %+v", a)
	}
	if a := f.ask(Operator, "PATCH", at, `{"pause":null}`); a.code != http.StatusOK || len(a.Messages) != 0 {
		t.Errorf("its end: %+v", a)
	}
}

func TestControlsThatAreRefused(t *testing.T) {
	f := start(t)
	id := f.made()
	at := "/vestibule/rooms/" + id + "/controls"
	for body, want := range map[string][]string{
		`[]`: {""},
		`{"paused":true,"pause":true,"message":7,"limits":{"total_active_users":"x","until":"soon"},"reason":1}`: {
			"/limits/total_active_users", "/limits/until", "/message", "/pause", "/paused", "/reason",
		},
		`{"pause":{"until":"2020-01-01T00:00:00Z"}}`:                                  {"/pause/until"},
		`{"queue_all":{"until":"2999-01-01T00:00:00Z"}}`:                              {"/queue_all/until"},
		`{"limits":{"total_active_users":3}}`:                                         {"/limits/until"},
		`{"limits":{}}`:                                                               {"/limits", "/limits/until"},
		`{"pause":{"message":"` + strings.Repeat("x", room.MaxMessage+1) + `"}}`:      {"/pause/message"},
		`{"message":{"text":"a\u0007b"},"reason":"` + strings.Repeat("x", 300) + `"}`: {"/message/text", "/reason"},
		`{"limits":{"new_users_per_minute":-1,"until":"` + soon() + `"}}`:             {"/limits/new_users_per_minute"},
	} {
		f.refused(Operator, "PATCH", at, body, want...)
	}
	f.expect(http.StatusForbidden, Viewer, "PATCH", at, `{"pause":{}}`)
	for _, method := range []string{"GET", "PATCH"} {
		f.expect(http.StatusNotFound, Admin, method, "/vestibule/rooms/"+room.PublicID("none")+"/controls",
			`{}`)
	}
	if c, _, err := f.parts.controls.controls.read(t.Context()); err != nil || c.Version != 0 {
		t.Errorf("something was written: %+v %v", c, err)
	}
}

func soon() string { return time.Now().Add(time.Hour).UTC().Format(time.RFC3339) }

// TestControlsOfManyWriters: each change applies on top of all others. A store restored to an older state gets this
// node's version.
func TestControlsOfManyWriters(t *testing.T) {
	f := start(t)
	ids := []string{f.made()}
	_, err := f.rooms.Change(t.Context(), func(d *roomstore.Draft) error {
		var doc room.Document
		for i := range 5 {
			doc.Rooms = append(doc.Rooms, room.Settings{
				Name: fmt.Sprint("file", i), Host: fmt.Sprintf("f%d.example", i), TotalActiveUsers: 9, NewUsersPerMinute: 9,
				Origin: "http://10.0.0.2",
			})
		}
		d.Merge(doc)
		return nil
	})
	testkit.NoError(t, err)
	for i := range 5 {
		ids = append(ids, room.PublicID(fmt.Sprint("file", i)))
	}
	var all sync.WaitGroup
	for _, id := range ids {
		all.Go(func() {
			f.expect(http.StatusOK, Operator, "PATCH", "/vestibule/rooms/"+id+"/controls", `{"pause":{}}`)
		})
	}
	all.Wait()
	c, _, err := f.parts.controls.controls.read(t.Context())
	if err != nil || len(c.Rooms) != len(ids) {
		t.Fatalf("%d rooms are paused, want %d: %v", len(c.Rooms), len(ids), err)
	}
	f.ok(Editor, "DELETE", "{z}/"+ids[0], "")
	f.controls = c
	testkit.NoError(t, f.docs.Delete(t.Context(), controlsDocument, f.docs.Written[controlsDocument].Revision))
	a := f.ask(Operator, "PATCH", "/vestibule/rooms/"+ids[1]+"/controls", `{"pause":null}`)
	if after, _, err := f.parts.controls.controls.read(t.Context()); err != nil || len(after.Rooms) != len(ids)-1 ||
		after.Version <= c.Version {
		t.Errorf("%+v: %d rooms are paused, want %d: %v", a, len(after.Rooms), len(ids)-1, err)
	}
}

// full are documents of at most a size.
type full struct {
	wire.DocumentStore
	limit int
}

func (s full) Limit() int { return s.limit }

// TestARoomComesBackPaused: a deleted room keeps its controls through changes of others, as long as the store has space
// for them.
func TestARoomComesBackPaused(t *testing.T) {
	f := start(t)
	id := f.made()
	other := f.ask(Editor, "POST", "{z}",
		strings.Replace(shop, "shop", "other", 1)+`,"path":"/other"}`).field("id").(string)
	pause := func(id, body string) *room.Controls {
		f.ok(Operator, "PATCH", "/vestibule/rooms/"+id+"/controls", body)
		c, _, err := f.parts.controls.controls.read(t.Context())
		testkit.NoError(t, err)
		return c
	}
	pause(id, `{"pause":{"message":"Ten minutes."}}`)
	path := "/vestibule/rooms/" + id + "/revisions"
	revisions := f.ask(Editor, "GET", path, "").list()
	f.ok(Editor, "DELETE", "{z}/"+id, "")
	f.controls = pause(other, `{"pause":{}}`)
	a := f.ask(Editor, "POST", fmt.Sprintf("%s/%.0f/restore", path, revisions[0]["revision"]), "")
	if a.code != http.StatusOK || len(a.Messages) != 1 ||
		!strings.Contains(a.Messages[0].Message, "room shop is under controls from before: pause") {
		t.Errorf("%+v", a)
	}
	if a := f.ask(Viewer, "GET", "/vestibule/rooms/"+id+"/controls", ""); inForce(a)["queue_message"] != "Ten minutes." {
		t.Errorf("it came back with %v", a.Result)
	}
	f.ok(Editor, "DELETE", "{z}/"+id, "")
	f.parts.controls.controls.shared = full{f.docs, len(f.docs.Data[controlsDocument])}
	if c := pause(other, `{"pause":{"message":"A little longer."}}`); len(c.Rooms) != 1 || c.Rooms[other] == nil {
		t.Errorf("where space is short, the controls of %d rooms are stored, want 1", len(c.Rooms))
	}
}
