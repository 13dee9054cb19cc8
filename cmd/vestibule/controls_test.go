package main

import (
	"io"
	"net/http"
	"regexp"
	"testing"

	"vestibule/internal/global/control"
)

// commandCase is a command about the room shop, its exit code, and patterns of what it asks of the API and of what it
// shows.
type commandCase struct {
	args         []string
	code         int
	asked, shown string
}

// check runs the command. The API sets said to what it was asked.
func (c *commandCase) check(t *testing.T, said *string) {
	t.Helper()
	*said = ""
	code, out := told(t.Context(), c.args...)
	if code != c.code || !regexp.MustCompile(c.asked).MatchString(*said) || !regexp.MustCompile(c.shown).MatchString(out) {
		t.Errorf("%q: %d, asked %s, shown %s", c.args, code, *said, out)
	}
}

// roomAPI has the room shop, and returns the results of handle.
func roomAPI(t *testing.T, handle func(r *http.Request, body string) (result string)) {
	t.Helper()
	apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/zones/"+control.Zone+"/waiting_rooms" {
			answer(w, `[{"id":"0123","name":"shop"}]`)
			return
		}
		data, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		answer(w, handle(r, string(data)))
	})
}

// TestReleaseByTheCommandLine: what is asked of the API, with a key for each call, and what is shown.
func TestReleaseByTheCommandLine(t *testing.T) {
	said, key := "", ""
	const one = `{"id":7,"people":10,"let_in":3,"state":"open","at":"2026-11-22T20:00:00Z","by":"ops","reason":"row one"}`
	roomAPI(t, func(r *http.Request, body string) string {
		if r.URL.Path != "/vestibule/rooms/0123/releases" {
			t.Errorf("%s %s", r.Method, r.URL.Path)
		}
		if r.Method == http.MethodPost {
			said, key = body, r.Header.Get("Idempotency-Key")
			return one
		}
		return "[" + one + "]"
	})
	keys := map[string]bool{}
	for _, c := range []commandCase{
		{
			[]string{"release", "shop", "10", "--reason", "row one"},
			0, `^{"people":10,"reason":"row one","replace":false}$`,
			`7 +10 +3 +open +2026-11-22T20:00:00Z +ops +row one`,
		},
		{[]string{"release", "shop", "10", "--replace"}, 0, `"replace":true`, ""},
		{[]string{"release", "shop"}, 0, "^$", `7 +10 +3 +open`},
		{[]string{"release", "shop", "many"}, 2, "^$", "N: must be a number"},
		{[]string{"release", "shop", "0"}, 2, "^$", "N: must be a number"},
		{[]string{"release", "shop", "--replace"}, 2, "^$", "N: is needed"},
		{[]string{"release"}, 2, "^$", "ROOM: is needed"},
	} {
		key = ""
		c.check(t, &said)
		if said != "" && (key == "" || len(key) > 64 || keys[key]) {
			t.Errorf("%q: key %q", c.args, key)
		}
		keys[key] = true
	}
}

// TestEventsByTheCommandLine: what is asked of the API, and what is shown.
func TestEventsByTheCommandLine(t *testing.T) {
	said := ""
	const one = `{"id":"e1","name":"launch","prequeue_start_time":"2026-12-01T09:00:00Z","event_start_time":"2026-12-01T10:00:00Z","event_end_time":"2026-12-01T12:00:00Z","total_active_users":500}`
	const twin = `{"id":"e2","name":"again"},{"id":"e3","name":"again"}`
	roomAPI(t, func(r *http.Request, body string) string {
		at := "/zones/" + control.Zone + "/waiting_rooms/0123/events"
		result := one
		switch r.Method + " " + r.URL.Path {
		case "GET " + at:
			result = "[" + one + "," + twin + "]"
		case "GET /vestibule/rooms/0123/events/e1/draw":
			said, result = "draw", `{"event_id":"e1","commit":"aa","closes_on":"2026-12-01T09:59:30Z","record":{"secret":"bb","entrants":1234567}}`
		case "GET /vestibule/rooms/0123/events/e2/draw", "GET /vestibule/rooms/0123/events/gone/draw":
			said, result = r.URL.Path[len("/vestibule/rooms/0123/events/"):],
				`{"event_id":"e2","commit":"aa","closes_on":"2026-12-01T09:59:30Z","record":null}`
		case "GET " + at + "/e1/details":
			said = "details"
		case "DELETE " + at + "/e1":
			said, result = "gone", `{"id":"e1"}`
		case "POST " + at, "PATCH " + at + "/e1":
			said = r.Method + body
		default:
			t.Errorf("%s %s", r.Method, r.URL.Path)
		}
		return result
	})
	for _, c := range []commandCase{
		{
			[]string{"list", "shop"},
			0, "^$",
			`launch +2026-12-01T09:00:00Z +2026-12-01T10:00:00Z +2026-12-01T12:00:00Z +500 +room's +false +e1`,
		},
		{[]string{"get", "shop", "launch"}, 0, "^details$", `"event_start_time": "2026-12-01T10:00:00Z"`},
		{
			[]string{"create", "shop", "name=launch", "total_active_users=500"},
			0,
			`^POST{"name":"launch","total_active_users":500}\s*$`,
			`^created event launch of room shop: 2026-12-01T10:00:00Z to 2026-12-01T12:00:00Z`,
		},
		{
			[]string{"set", "0123", "e1", "suspended=true"},
			0, `^PATCH{"suspended":true}\s*$`,
			`^event launch of room shop: nothing changes`,
		},
		{[]string{"delete", "shop", "launch"}, 0, "^gone$", `^deleted event launch of room shop`},
		{[]string{"delete", "shop", "again"}, 1, "^$", `several events "again"`},
		{[]string{"draw", "shop", "launch"}, 0, "^draw$", `(?s)"commit": "aa".*"record": {.*"secret": "bb"`},
		{[]string{"record", "shop", "launch"}, 0, "^draw$", `^{\s+"entrants": 1234567,\s+"secret": "bb"\s+}\s*$`},
		{[]string{"record", "shop", "e2"}, 1, "^e2/draw$", "no record yet: entries close on 2026-12-01T09:59:30Z"},
		{[]string{"draw", "shop", "gone"}, 0, "^gone/draw$", `"record": null`},
		{[]string{"draw", "shop"}, 2, "^$", "usage"},
		{[]string{"get", "shop", "never"}, 1, "^$", `no event "never"`},
		{[]string{"create", "shop", "launch"}, 2, "^$", "must be KEY=VALUE"},
		{[]string{"set", "shop", "launch"}, 2, "^$", "usage"},
		{[]string{"list"}, 2, "^$", "usage"},
		{nil, 2, "^$", "Usage:"},
	} {
		c.args = append([]string{"events"}, c.args...)
		c.check(t, &said)
	}
}

// TestControlsByTheCommandLine: what is asked of the API, what is shown, and the exit codes.
func TestControlsByTheCommandLine(t *testing.T) {
	said := ""
	const none = `{"room":"shop","id":"0123","version":0,"pause":null,"queue_all":null,"message":null,"limits":null,"in_force":{"total_active_users":7,"new_users_per_minute":3,"queue_all":false,"queue_message":""}}`
	roomAPI(t, func(r *http.Request, body string) string {
		if r.URL.Path != "/vestibule/rooms/0123/controls" {
			t.Errorf("%s %s", r.Method, r.URL.Path)
		}
		if r.Method == http.MethodPatch {
			said = body
			return `{"room":"shop","id":"0123","version":5,"pause":{"since":"2026-11-22T20:00:00Z","until":null,"by":"ops","reason":"","message":"Soon."},"queue_all":null,"message":null,` +
				`"limits":{"since":"2026-11-22T20:00:00Z","until":"2026-11-22T21:00:00Z","by":"ops","reason":"slow","total_active_users":5},"in_force":{"total_active_users":5,"new_users_per_minute":3,"queue_all":true,"queue_message":"Soon."}}`
		}
		return none
	})
	for _, c := range []commandCase{
		{
			[]string{"pause", "shop", "Back in ten minutes.", "--reason", "slow"},
			0,
			`^{"pause":{"message":"Back in ten minutes."},"reason":"slow"}$`,
			`shop +paused "Soon." +- +2026-11-22T20:00:00Z +ops`,
		},
		{
			[]string{"pause", "0123", "--for", "10m"},
			0, `^{"pause":{"until":"20..-..-..T..:..:..(\..*)?Z"}}$`,
			`shop +limits 5, 3 per minute +2026-11-22T21:00:00Z +.* +ops +slow`,
		},
		{[]string{"resume", "shop"}, 0, `^{"pause":null,"queue_all":null}$`, ""},
		{
			[]string{"message", "shop", "Sold out soon.", "--until", "2036-11-22T20:15:00Z"},
			0,
			`^{"message":{"text":"Sold out soon.","until":"2036-11-22T20:15:00Z"}}$`, "",
		},
		{[]string{"message", "shop", "--clear"}, 0, `^{"message":null}$`, ""},
		{
			[]string{"limits", "shop", "--total", "5", "--for", "30m"},
			0, `^{"limits":{"total_active_users":5,"until":".*Z"}}$`,
			"",
		},
		{[]string{"limits", "shop", "--clear", "--output", "json"}, 0, `^{"limits":null}$`, `"total_active_users": 5`},
		{[]string{"limits", "shop"}, 0, "^$", `none: limits 7, 3 per minute`},
		{[]string{"limits", "shop", "--total", "5"}, 2, "^$", "for, until: limits for now need an end"},
		{[]string{"limits", "shop", "--total", "5", "--clear"}, 2, "^$", "clear: must be given alone"},
		{[]string{"limits", "shop", "--for", "1m"}, 2, "^$", "total, per-minute: one of them is needed"},
		{[]string{"limits", "shop", "--reason", "slow"}, 2, "^$", "total, per-minute: one of them is needed"},
		{[]string{"limits", "shop", "--total", "0"}, 2, "^$", "total: must be above 0, got 0"},
		{[]string{"limits", "shop", "--per-minute=-5", "--for", "1m"}, 2, "^$", "per-minute: must be above 0, got -5"},
		{[]string{"pause", "shop", "--for", "0m"}, 2, "^$", `for: must be longer than 0, such as 30m, got "0m"`},
		{[]string{"pause", "shop", "--for", "-5m"}, 2, "^$", `for: must be longer than 0, such as 30m, got "`},
		{[]string{"pause"}, 2, "^$", "ROOM: is needed"},
		{[]string{"pause", "shop", "two", "words"}, 2, "^$", "in quotes"},
		{[]string{"pause", "shop", "--until", "noon"}, 2, "^$", "until: must be a time"},
		{[]string{"pause", "shop", "--until", "in 10m"}, 0, `^{"pause":{"until":"20..-..-..T..:..:..(\..*)?Z"}}$`, ""},
		{[]string{"pause", "shop", "--until", "2036-11-22T20:15:00Z", "--for", "1m"}, 2, "^$", "one of them only"},
		{[]string{"resume", "shop", "now"}, 2, "^$", `unexpected argument "now"`},
		{[]string{"resume", "shop", "--for", "1m"}, 2, "^$", "a pause ends at once"},
		{[]string{"message", "shop"}, 2, "^$", "TEXT: must be"},
		{[]string{"message", "shop", ""}, 2, "^$", "TEXT: must be given, or --clear alone"},
		{[]string{"resume", "nobody"}, 1, "^$", `no room "nobody"`},
	} {
		c.check(t, &said)
	}
}
