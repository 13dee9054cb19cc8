package control

import (
	"slices"
	"testing"
	"time"
)

// The state of all rooms, or of those named, with the limits in force and the next change by an event.
func TestTheStatusOfAllRooms(t *testing.T) {
	f := start(t)
	id, _ := f.ask(Editor, "POST", "{z}", shop+`,"vestibule":{"queue_message":"Hello."}}`).field("id").(string)
	f.ask(Editor, "POST", "{z}", `{"name":"news","host":"shop.example","path":"/news","total_active_users":3,"new_users_per_minute":5}`)
	begin := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	at := func(d time.Duration) string { return begin.Add(d).Format(time.RFC3339) }
	if a := f.ask(Editor, "POST", "{z}/"+id+"/events", `{"name":"sale","prequeue_start_time":"`+at(0)+`","event_start_time":"`+at(time.Hour)+`","event_end_time":"`+at(2*time.Hour)+`","total_active_users":400,"new_users_per_minute":201}`); a.code != 200 {
		t.Fatalf("%+v", a)
	}
	f.ask(Operator, "PATCH", "/vestibule/rooms/"+id+"/controls", `{"limits":{"total_active_users":7,"until":"`+soon()+`"}}`)
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
	if a := f.ask(Viewer, "GET", "/vestibule/status?room=x&room=shop&room=y", ""); a.code != 404 || len(a.Errors) != 2 || a.Errors[1].Message != `no room "y"` {
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
		if own["event"] != c.event || own["total_active_users"] != c.total || own["message"] != "Hello." || own["admitted_per_minute"] != 4.5 {
			t.Errorf("in %v: %+v", c.ahead, own)
		}
		if c.phase == "" && next != nil || c.phase != "" && (next["phase"] != c.phase || next["at"] != c.at.Format(time.RFC3339) || next["event"] != "sale") {
			t.Errorf("in %v: next is %+v, want %s", c.ahead, next, c.phase)
		}
	}
}
