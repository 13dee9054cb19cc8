package control

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/stop"
)

// The state of all rooms, or of those named, with the limits in force and the next change by an event.
func TestTheStatusOfAllRooms(t *testing.T) {
	f := start(t)
	id, _ := f.ask(Editor, "POST", "{z}", shop+`,"vestibule":{"queue_message":"Hello."}}`).field("id").(string)
	f.ask(Editor, "POST", "{z}",
		`{"name":"news","host":"shop.example","path":"/news","total_active_users":3,"new_users_per_minute":5}`)
	begin := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	at := func(d time.Duration) string { return begin.Add(d).Format(time.RFC3339) }
	f.expect(200, Editor, "POST", "{z}/"+id+"/events",
		`{"name":"sale","prequeue_start_time":"`+at(0)+`","event_start_time":"`+at(time.Hour)+`","event_end_time":"`+at(2*time.Hour)+`","total_active_users":400,"new_users_per_minute":201}`)
	f.ask(Operator, "PATCH", "/vestibule/rooms/"+id+"/controls",
		`{"limits":{"total_active_users":7,"until":"`+soon()+`"}}`)
	rooms := func(query string) (names []string) {
		list, _ := f.ask(Viewer, "GET", "/vestibule/status"+query, "").Result.([]any)
		for _, r := range list {
			own, _ := r.(map[string]any)["vestibule"].(map[string]any)
			names = append(names, own["room"].(string))
		}
		return names
	}
	for query, want := range map[string][]string{
		"": {"news", "shop"}, "?room=shop": {"shop"}, "?room=" + id + "&room=news": {"shop", "news"},
	} {
		if got := rooms(query); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
	a := f.ask(Viewer, "GET", "/vestibule/status?room=shp", "")
	if a.code != 404 || a.Errors[0].Message != `no room "shp", did you mean "shop"?` {
		t.Errorf("%+v", a)
	}
	if a := f.ask(Viewer, "GET", "/vestibule/status?room=x&room=shop&room=y", ""); a.code != 404 || len(a.Errors) != 2 ||
		a.Errors[1].Message != `no room "y"` {
		t.Errorf("%+v", a)
	}
	for _, c := range []struct {
		ahead        time.Duration
		event, phase string
		at           time.Time
		total        float64
	}{
		{0, "", "prequeue", begin, 7},
		{90 * time.Minute, "sale", "start", begin.Add(time.Hour), 400},
		{150 * time.Minute, "sale", "end", begin.Add(2 * time.Hour), 400},
		{4 * time.Hour, "", "", time.Time{}, 300},
	} {
		f.ahead = c.ahead
		list, _ := f.ask(Viewer, "GET", "/vestibule/status?room=shop", "").Result.([]any)
		own, _ := list[0].(map[string]any)["vestibule"].(map[string]any)
		next, _ := own["next"].(map[string]any)
		if own["event"] != c.event || own["total_active_users"] != c.total || own["message"] != "Hello." ||
			own["admitted_per_minute"] != 4.5 {
			t.Errorf("in %v: %+v", c.ahead, own)
		}
		if c.phase == "" && next != nil || c.phase != "" &&
			(next["phase"] != c.phase || next["at"] != c.at.Format(time.RFC3339) || next["event"] != "sale") {
			t.Errorf("in %v: next is %+v, want %s", c.ahead, next, c.phase)
		}
	}
}

// stopsOf returns why nobody enters the first room of an answer with the status of rooms.
func stopsOf(t *testing.T, a answer) (out []map[string]any) {
	t.Helper()
	list, _ := a.Result.([]any)
	if len(list) == 0 {
		t.Fatalf("%+v", a)
	}
	own, _ := list[0].(map[string]any)["vestibule"].(map[string]any)
	stops, ok := own["stops"].([]any)
	if !ok {
		t.Fatalf("%+v", own)
	}
	for _, s := range stops {
		out = append(out, s.(map[string]any))
	}
	return out
}

// TestWhyNobodyEnters: the reasons of operators come first, then those of the fleet, each with its command. A wait is
// shown for visitors that wait, and a paused room is not open.
func TestWhyNobodyEnters(t *testing.T) {
	f := start(t)
	id := f.made()
	f.numbers = &Numbers{Longest: 50, Complete: true, At: time.Now()}
	look := func() (map[string]any, string) {
		t.Helper()
		a := f.ask(Viewer, "GET", "/vestibule/status?room=shop", "")
		var parts []string
		for _, s := range stopsOf(t, a) {
			parts = append(parts, fmt.Sprintf("%s %s [%s]", s["reason"], s["data_center"], s["command"]))
		}
		return a.Result.([]any)[0].(map[string]any), strings.Join(parts, "; ")
	}
	if r, why := look(); why != "" || r["status"] != "not_queueing" || r["max_estimated_time_minutes"] != 0. {
		t.Errorf("open: %s, %+v", why, r)
	}
	f.ask(Operator, "PATCH", "/vestibule/rooms/"+id+"/controls", `{"pause":{"until":"`+soon()+`"},"reason":"till"}`)
	f.numbers.Stops = []stop.Stop{
		{Reason: stop.AwaitsEdge, Centre: "dublin", Edge: "edge-1", Instance: 7},
		{Reason: stop.SiteDown, Centre: "nairobi", Room: "shop", Edges: 2},
	}
	const site, fleet = "site_down nairobi []; ", "awaits_edge dublin [vestibule fleet forget edge-1 --dc dublin]"
	if r, why := look(); why != site+"paused  [vestibule resume shop]; "+fleet || r["status"] != "queueing" {
		t.Errorf("paused: %s, %+v", why, r)
	}
	a := stopsOf(t, f.ask(Viewer, "GET", "/vestibule/status", ""))
	if a[1]["until"] != soon() || a[1]["since"] == nil ||
		!strings.HasPrefix(a[1]["text"].(string), "the room is paused: till, until ") {
		t.Errorf("%+v", a[1])
	}
	f.ask(Operator, "PATCH", "/vestibule/rooms/"+id+"/controls", `{"pause":null}`)
	if r, why := look(); why != site+fleet || r["status"] != "not_queueing" { // visitors enter in other data centres
		t.Errorf("resumed: %s, %+v", why, r)
	}
	f.ask(Editor, "PATCH", "{z}/"+id, `{"suspended":true}`)
	if _, why := look(); why != "" {
		t.Errorf("suspended: %s", why)
	}
}
