package control

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/lab/testkit"
)

// in is so long from now, as bodies write it.
func in(d time.Duration) string {
	return time.Now().Add(d).UTC().Truncate(time.Second).Format(time.RFC3339)
}

func eventBody(name string, start, end time.Duration, more string) string {
	return `{"name":"` + name + `","event_start_time":"` + in(start) + `","event_end_time":"` + in(end) + `"` + more + `}`
}

func TestEventsAreMadeChangedAndDeleted(t *testing.T) {
	f := start(t)
	id := f.made()
	at := "{z}/" + id + "/events"
	if a := f.ask(Viewer, "GET", at, ""); a.code != 200 || a.Info.TotalCount != 0 {
		t.Errorf("a new room has events: %+v", a)
	}
	late := f.ask(Editor, "POST", at, eventBody("late", 50*time.Hour, 51*time.Hour, ""))
	made := f.ask(Editor, "POST", at,
		eventBody("launch", 24*time.Hour, 25*time.Hour,
			`,"prequeue_start_time":"`+in(23*time.Hour)+`","total_active_users":7,"new_users_per_minute":5,"custom_page_html":"<p>{{waitTime}}</p>","session_duration":0,"created_on":"0001-01-01T00:00:00Z"`))
	one, _ := made.field("id").(string)
	if made.code != 200 || late.code != 200 || len(one) != 32 {
		t.Fatalf("%+v %+v", made, late)
	}
	for key, want := range map[string]any{
		"name": "launch", "description": "", "total_active_users": 7., "new_users_per_minute": 5., "session_duration": nil,
		"disable_session_renewal": nil, "queueing_method": nil,
		"custom_page_html": "<p>{{waitTime}}</p>", "turnstile_mode": nil, "turnstile_action": nil, "suspended": false,
		"shuffle_at_event_start": false,
		"prequeue_start_time":    in(23 * time.Hour), "event_start_time": in(24 * time.Hour),
	} {
		if got := made.field(key); got != want && !strings.HasSuffix(key, "_time") {
			t.Errorf("%s: %v, want %v", key, got, want)
		}
	}
	names := func(a answer) (all []string) {
		list, _ := a.Result.([]any)
		for _, e := range list {
			all = append(all, e.(map[string]any)["name"].(string))
		}
		return all
	}
	if a := f.ask(Viewer, "GET", at, ""); !slices.Equal(names(a), []string{"launch", "late"}) {
		t.Errorf("listed: %v", names(a))
	}
	if a := f.ask(Viewer, "GET", at+"?page=2&per_page=5", ""); a.code != 200 || len(names(a)) != 0 {
		t.Errorf("past the last page: %+v", a)
	}
	full := f.ask(Viewer, "GET", at+"/"+one+"/details", "")
	if full.field("total_active_users") != 7. || full.field("session_duration") != 5. ||
		full.field("queueing_method") != "fifo" || full.field("disable_session_renewal") != false {
		t.Errorf("details: %+v", full)
	}
	if a := f.ask(Viewer, "GET", "{z}/"+id, ""); a.field("next_event_start_time") != made.field("event_start_time") ||
		a.field("next_event_prequeue_start_time") != made.field("prequeue_start_time") {
		t.Errorf("the room: %+v", a)
	}
	patched := f.ask(Editor, "PATCH", at+"/"+one,
		`{"disable_session_renewal":true,"queueing_method":"REJECT","session_duration":10,"total_active_users":null,"new_users_per_minute":null}`)
	if patched.field("disable_session_renewal") != true || patched.field("queueing_method") != "reject" ||
		patched.field("session_duration") != 10. || patched.field("total_active_users") != nil ||
		patched.field("custom_page_html") == nil ||
		patched.field("prequeue_start_time") != made.field("prequeue_start_time") ||
		patched.field("created_on") != made.field("created_on") {
		t.Errorf("patched: %+v", patched)
	}
	put := f.ask(Editor, "PUT", at+"/"+one,
		eventBody("launch", 24*time.Hour, 26*time.Hour, `,"suspended":true,"disable_session_renewal":false`))
	if put.code != 200 || put.field("id") != one || put.field("queueing_method") != nil ||
		put.field("disable_session_renewal") != false || put.field("custom_page_html") != nil ||
		put.field("prequeue_start_time") != nil || put.field("suspended") != true {
		t.Errorf("put: %+v", put)
	}
	if a := f.ask(Viewer, "GET", "{z}/"+id, ""); a.field("next_event_start_time") != late.field("event_start_time") {
		t.Errorf("a suspended event is the next one: %+v", a)
	}
	// A PUT of the room keeps its events.
	f.ask(Editor, "PUT", "{z}/"+id, shop+"}")
	if a := f.ask(Editor, "DELETE", at+"/"+one, ""); a.code != 200 || a.field("id") != one {
		t.Errorf("deleted: %+v", a)
	}
	if a := f.ask(Viewer, "GET", at, ""); !slices.Equal(names(a), []string{"late"}) {
		t.Errorf("left: %v", names(a))
	}
	for _, call := range []string{"GET", "DELETE", "PATCH", "PUT"} {
		if a := f.ask(Editor, call, at+"/"+one, "{}"); a.code != 404 || a.Errors[0].Code != codeNotFound {
			t.Errorf("%s of an event that is gone: %+v", call, a)
		}
	}
	f.expect(403, Viewer, "POST", at, eventBody("x", time.Hour, 2*time.Hour, ""))
}

func TestFaultsOfEvents(t *testing.T) {
	f := start(t)
	id := f.made()
	at := "{z}/" + id + "/events"
	one, _ := f.ask(Editor, "POST", at, eventBody("launch", 24*time.Hour, 25*time.Hour, "")).field("id").(string)
	f.refuse([]refusal{
		{"POST", at, `{}`, []string{"/event_end_time", "/event_start_time", "/name"}, "is required"},
		{"POST", at, `5`, []string{"", "/event_end_time", "/event_start_time", "/name"}, "must be an object"},
		{
			"POST", at, `{"name":5,"event_start_time":"soon","event_end_time":7,"suspended":"no"}`,
			[]string{"/event_end_time", "/event_start_time", "/name", "/suspended"},
			"such as 2026-11-22T20:15:00Z",
		},
		{"POST", at, eventBody("b", time.Hour, time.Hour+time.Second, ""), []string{"/event_end_time"}, "1m or more after"},
		{
			"POST", at, eventBody("b", time.Hour, 2*time.Hour, `,"prequeue_start_time":"`+in(59*time.Minute)+`"`),
			[]string{"/prequeue_start_time"},
			"5m or more before",
		},
		{
			"POST", at, eventBody("b", time.Hour, 2*time.Hour, `,"shuffle_at_event_start":true`),
			[]string{"/shuffle_at_event_start"},
			"without prequeue_start_time",
		},
		{
			"POST", at, eventBody("b", time.Hour, 2*time.Hour, `,"shuffle_at_event_start":"yes"`),
			[]string{"/shuffle_at_event_start"},
			"must be true or false",
		},
		{
			"POST", at, eventBody("b", 50*time.Second, 2*time.Hour,
				`,"shuffle_at_event_start":true,"prequeue_start_time":"`+in(-time.Hour)+`"`),
			[]string{"/shuffle_at_event_start"},
			"starts in less than 1m0s",
		},
		{
			"POST", at, eventBody("b", time.Hour, 2*time.Hour, `,"total_active_users":5`),
			[]string{"/new_users_per_minute"},
			"both or neither",
		},
		{
			"POST", at, eventBody("b", time.Hour, 2*time.Hour,
				`,"queueing_method":"lottery","session_duration":61,"turnstile_mode":"loud"`),
			[]string{"/queueing_method", "/session_duration", "/turnstile_mode"},
			"must be fifo, random, passthrough or reject",
		},
		{
			"POST", at, eventBody("b", time.Hour, 2*time.Hour, `,"custom_page_html":"{{#x}}"`),
			[]string{"/custom_page_html"},
			"custom_page_html",
		},
		{"POST", at, eventBody("launch", time.Hour, 2*time.Hour, ""), []string{"/name"}, "already"},
		{"POST", at, eventBody("b", 24*time.Hour, 26*time.Hour, ""), []string{"/event_start_time"}, "overlaps"},
		{
			"PATCH", at + "/" + one, `{"event_end_time":"` + in(time.Hour) + `"}`,
			[]string{"/event_end_time"},
			"1m or more after",
		},
		{"PUT", at + "/" + one, `{"name":"launch"}`, []string{"/event_end_time", "/event_start_time"}, "is required"},
	})
	last := ""
	for i := range room.MaxEvents - 1 {
		a := f.ask(Editor, "POST", at, eventBody(fmt.Sprint("e", i), time.Duration(100+10*i)*time.Hour,
			time.Duration(101+10*i)*time.Hour, ""))
		if last, _ = a.field("id").(string); a.code != 200 {
			t.Fatalf("%+v", a)
		}
	}
	more := eventBody("more", time.Hour, 2*time.Hour, "")
	if a := f.ask(Editor, "POST", at, more); a.code != 400 ||
		!strings.Contains(a.Errors[0].Message, "at most 25, got 26") {
		t.Errorf("one event too many: %+v", a)
	}
	if a := f.ask(Viewer, "GET", at, ""); a.Info.TotalCount != room.MaxEvents {
		t.Errorf("what was refused changed the events: %+v", a)
	}
	// One that has ended makes room.
	f.ok(Editor, "PATCH", at+"/"+last,
		`{"event_start_time":"`+in(-3*time.Hour)+`","event_end_time":"`+in(-2*time.Hour)+`"}`)
	f.expect(200, Editor, "POST", at, more)
	if a := f.ask(Viewer, "GET", at, ""); a.Info.TotalCount != room.MaxEvents {
		t.Errorf("%d events", a.Info.TotalCount)
	}
	f.expect(404, Viewer, "GET", at+"/"+last, "") // the event that ended is gone
}

// TestOverridesThatTheHostedProductHasNot: if the table lets events override a setting, they do so in the object
// vestibule, in the room's revisions and in the room during the event.
func TestOverridesThatTheHostedProductHasNot(t *testing.T) {
	overridden := []string{"grace", "queue_message", "cookie_partitioned"}
	for _, key := range overridden {
		line := fields[place(key)]
		line.Events = true
		defer func() { line.Events = false }()
	}
	f := start(t)
	id, _ := f.ask(Editor, "POST", "{z}", shop+`,"vestibule":{"queue_message":"Later."}}`).field("id").(string)
	at := "{z}/" + id + "/events"
	own := func(a answer) string {
		all, _ := a.field("vestibule").(map[string]any)
		maps.DeleteFunc(all, func(key string, _ any) bool { return !slices.Contains(overridden, key) })
		shown, _ := json.Marshal(all)
		return string(shown)
	}
	made := f.ask(Editor, "POST", at, eventBody("launch", 24*time.Hour, 25*time.Hour,
		`,"vestibule":{"grace":"2m","queue_message":"Soon.","cookie_partitioned":false}`))
	if made.code != 200 || own(made) != `{"cookie_partitioned":false,"grace":"2m0s","queue_message":"Soon."}` {
		t.Fatalf("%s of %+v", own(made), made)
	}
	at += "/" + made.field("id").(string)
	if full := f.ask(Viewer, "GET", at+"/details",
		""); own(full) != `{"cookie_partitioned":false,"grace":"2m0s","queue_message":"Soon."}` {
		t.Errorf("details: %s", own(full))
	}
	if patched := f.ask(Editor, "PATCH", at,
		`{"vestibule":{"queue_message":null,"cookie_partitioned":null}}`); own(patched) != `{"grace":"2m0s"}` {
		t.Errorf("patched: %s", own(patched))
	}
	if full := f.ask(Viewer, "GET", at+"/details",
		""); own(full) != `{"cookie_partitioned":false,"grace":"2m0s","queue_message":"Later."}` {
		t.Errorf("details with the room's: %s", own(full))
	}
	revisions, _ := json.Marshal(f.ask(Editor, "GET", "/vestibule/rooms/"+id+"/revisions", "").Result)
	if !strings.Contains(string(revisions), `"grace":"2m0s","id"`) {
		t.Errorf("revisions: %s", revisions)
	}
	for body, pointer := range map[string]string{
		`{"vestibule":{"grace":"2s"}}`:     "/vestibule/grace",
		`{"vestibule":{"grace":2}}`:        "/vestibule/grace",
		`{"vestibule":{"probation":"2m"}}`: "/vestibule/probation",
		`{"vestibule":5}`:                  "/vestibule",
	} {
		f.refused(Editor, "PATCH", at, body, pointer)
	}
	if put := f.ask(Editor, "PUT", at, eventBody("launch", 24*time.Hour, 25*time.Hour, "")); put.code != 200 ||
		put.field("vestibule") != nil {
		t.Errorf("put: %s", own(put))
	}
}

// TestTheDocumentHasEveryOverride: the API's document names the overrides that the hosted product has.
func TestTheDocumentHasEveryOverride(t *testing.T) {
	var doc struct {
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	readDocument(t, &doc)
	for _, schema := range []string{"EventBody", "Event", "EventDetails"} {
		for at, f := range overrides() {
			if _, named := doc.Components.Schemas[schema].Properties[at[1:]]; !named && !strings.HasPrefix(at, ownPrefix) {
				t.Errorf("%s has no %s", schema, f.Key)
			}
		}
	}
}

// TestAnEventWithADraw: it is accepted, and the public part of its draw is shown to every role with read access.
func TestAnEventWithADraw(t *testing.T) {
	f := start(t)
	id := f.made()
	at, body := "{z}/"+id+"/events", eventBody("launch", time.Hour, 2*time.Hour,
		`,"shuffle_at_event_start":true,"prequeue_start_time":"`+in(30*time.Minute)+`"`)
	made := f.ask(Editor, "POST", at, body)
	event, _ := made.field("id").(string)
	if made.code != 200 || made.field("shuffle_at_event_start") != true ||
		f.ask(Viewer, "GET", at+"/"+event+"/details", "").field("shuffle_at_event_start") != true {
		t.Fatalf("%+v", made)
	}
	if a := f.ask(Editor, "PATCH", at+"/"+event, `{"description":"x"}`); a.code != 200 ||
		a.field("shuffle_at_event_start") != true {
		t.Errorf("what has nothing to do with the draw: %+v", a)
	}
	f.ahead = time.Hour - 30*time.Second
	if a := f.ask(Editor, "PATCH", at+"/"+event, `{"description":"y"}`); a.code != 200 ||
		a.field("shuffle_at_event_start") != true {
		t.Errorf("what was announced is not asked again: %+v", a)
	}
	f.refused(Editor, "PATCH", at+"/"+event, `{"event_start_time":"`+in(time.Hour+10*time.Second)+`"}`,
		"/shuffle_at_event_start") // another start is another draw
	show := "/vestibule/rooms/" + id + "/events/" + event + "/draw"
	f.expect(404, Viewer, "GET", show, "") // before anything is public
	start := fleettime.TimeOf(time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC))
	n := draw.Announce(start.Add(-time.Hour), draw.Event{Room: id, ID: event, Start: start, End: start.Add(time.Hour)},
		draw.Secret{1}, draw.BeaconNone)
	f.board = &draw.Board{Version: 1, Notices: []*draw.Notice{n}}
	a := f.ask(Viewer, "GET", show, "")
	for key, want := range map[string]any{
		"closes_on": "2026-12-01T09:59:30Z", "commit": fmt.Sprintf("%x", n.Commit),
		"record": nil, "published_on": nil, "opens_on": nil, "beacon": "none", "void": "",
	} {
		if got := a.field(key); got != want {
			t.Errorf("announced: %s is %v, want %v", key, got, want)
		}
	}
	n = testkit.Must(n.Publish(start.Add(-draw.Lead), draw.Secret{1}, nil, 5))(t)
	f.board = &draw.Board{Version: 2, Notices: []*draw.Notice{n}}
	a = f.ask(Viewer, "GET", show, "")
	record, err := json.Marshal(a.field("record"))
	if err != nil || a.field("opens_on") != "2026-12-01T10:00:00Z" || a.field("published_on") != "2026-12-01T09:59:30Z" {
		t.Errorf("published: %+v, %v", a, err)
	}
	if r, err := draw.DecodeRecord(record); err != nil || len(r.Check(nil)) > 0 || *r != *n.Drawn() {
		t.Errorf("the record is %s: %v", record, err)
	}
}

// TestDrawsOfFilesAndRevisions: events of a rooms file, and events restored by a revision, follow the same rules of
// draws.
func TestDrawsOfFilesAndRevisions(t *testing.T) {
	f := start(t)
	file := func(start time.Duration, more string) string {
		return fmt.Sprintf("rooms:\n"+
			"  - {name: fair, host: fair.example, total_active_users: 9, new_users_per_minute: 5, origin: 'http://10.0.0.1'}\n"+
			"  - {name: shop, host: shop.example, total_active_users: 9, new_users_per_minute: 5, origin: 'http://10.0.0.1', "+
			"events: [\n"+
			"    {name: launch, prequeue_start_time: %q, event_start_time: %q, event_end_time: %q, shuffle_at_event_start: "+
			"true%s}]}\n", in(start-time.Hour), in(start), in(start+time.Hour), more)
	}
	const soon = time.Hour - 50*time.Second
	for _, c := range []struct {
		what, file, says string
		ahead            time.Duration
	}{
		{
			"too late", file(50*time.Second, ""),
			`rooms[1] "shop": events[0].shuffle_at_event_start: must be false where the event starts in less than 1m0s`, 0,
		},
		{"it has begun", file(-time.Minute, ""), "starts in less than", 0},
		{"it is over", file(-3*time.Hour, ""), "", 0},
		{"in an hour", file(time.Hour, ""), "", 0},
		{"nothing about the draw", file(time.Hour, ", description: x"), "", soon},
		{"suspended", file(time.Hour, ", suspended: true"), "", soon},
		{"suspended no more", file(time.Hour, ""), "starts in less than", soon},
	} {
		f.ahead = c.ahead
		for _, dry := range []bool{true, false} {
			a := f.apply(c.file, map[string]any{"dry_run": dry, "prune": true})
			if (a.code == 200) != (c.says == "") || a.code != 200 &&
				(a.code != 400 || !strings.Contains(fmt.Sprint(a.Errors), c.says)) {
				t.Errorf("%s, dry %v: %+v", c.what, dry, a)
			}
		}
	}

	f.ahead = 0
	id, _ := f.ask(Viewer, "GET", "{z}", "").list()[1]["id"].(string)
	path := "/vestibule/rooms/" + id + "/revisions"
	revision := f.ask(Editor, "GET", path, "").list()[0]["revision"]
	f.apply("rooms: []\n", map[string]any{"prune": true}).is(t, 200)
	restore := func() answer { return f.ask(Editor, "POST", fmt.Sprintf("%s/%.0f/restore", path, revision), "") }
	f.ahead = soon
	if a := restore(); a.code != 400 || !slices.Equal(a.pointers(), []string{"/events/0/shuffle_at_event_start"}) ||
		!strings.Contains(a.Errors[0].Message, "starts in less than") {
		t.Errorf("a revision with a draw: %+v", a)
	}
	f.ahead = 0
	restore().is(t, 200) // while there is time for the draw
}
