package roomfile

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"vestibule/internal/core/room"
)

// Format writes any settings so that Parse reads the same.
func TestWhatIsWrittenIsReadAsTheSame(t *testing.T) {
	plain := func(name string) room.Settings {
		return room.Settings{
			Name: name, Host: name + ".example", TotalActiveUsers: 9, NewUsersPerMinute: 5,
			Origin: "http://10.0.0.1",
		}
	}
	same := func(what string, doc room.Document) {
		t.Helper()
		data, err := Format(doc)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		got, err := Parse(data)
		if diff := cmp.Diff(doc.WithDefaults(), got, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s\n%s", what, err, diff, data)
		}
	}
	same("nothing", room.Document{})
	same("hosts", room.Document{
		Rooms: []room.Settings{plain("a"), plain("b")},
		Hosts: []room.Host{{Name: "c.example", Origin: "https://x.example:8443"}},
	})
	routes := plain("routes")
	routes.AdditionalRoutes = []room.Route{{Host: "b.example", Path: "/Sale:-1"}, {Host: "c.example"}}
	same("routes", room.Document{Rooms: []room.Settings{routes}})

	bypass := plain("rules")
	bypass.Rules = []room.Rule{
		{Expression: `http.host eq "a: b"`, Description: "- #x", Disabled: true},
		{Expression: "ssl"},
	}
	same("rules", room.Document{Rooms: []room.Settings{bypass}})

	events := plain("events")
	start := time.Date(2026, 11, 22, 20, 0, 0, 5_000_000, time.UTC).UnixMilli()
	events.Events = []room.Event{
		{
			Name: "launch", Description: "- #x", Prequeue: start - 600_000, Start: start, End: start + 3_600_000,
			Suspended: true, Shuffle: true, Overrides: room.Overrides{
				"total_active_users": 7, "new_users_per_minute": 8, "session_duration": 90 * time.Second,
				"disable_session_renewal": false, "queueing_method": "reject", "waiting_page": "page.html",
			},
		},
		{
			Name: "next", Start: start + 3_600_000, End: start + 7_200_000,
			Overrides: room.Overrides{"disable_session_renewal": true},
		},
	}
	same("events", room.Document{Rooms: []room.Settings{events}})

	tried := 0
	for i := range room.Schema {
		s := &room.Schema[i]
		var values []any
		switch s.Field(&room.Settings{}).(type) {
		case *string:
			values = []any{
				"yes", "null", "0x10", "~", "- a", "{}", "a: b", "#x", " x ", "ö\u2028\u00a0\x7f\"'\\", "1e3",
				"2026-01-01", "de-DE", "close", "strict", "none", "lax", "always", "never", "passthrough", "random",
				"https://a.example", "a.example", "site",
			}
		case *int:
			values = []any{1, 7, 200, 429, 503, 2147483647}
		case *uint32:
			values = []any{uint32(1), uint32(4294967295)}
		case *bool:
			values = []any{true}
		case *time.Duration:
			values = []any{time.Minute, 90 * time.Second, 1500 * time.Millisecond, time.Hour}
		}
		for _, v := range values {
			r := plain("room")
			switch to := s.Field(&r).(type) {
			case *string:
				*to = v.(string)
			case *int:
				*to = v.(int)
			case *uint32:
				*to = v.(uint32)
			case *bool:
				*to = v.(bool)
			case *time.Duration:
				*to = v.(time.Duration)
			}
			doc := room.Document{Rooms: []room.Settings{r}}.WithDefaults()
			if len(doc.Validate()) > 0 {
				continue // not one that a store accepts
			}
			tried++
			same(fmt.Sprintf("%s: %v", s.Key, v), doc)
		}
	}
	if tried < 40 {
		t.Errorf("%d values were tried", tried)
	}
}
