package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"vestibule/internal/core/room"
	"vestibule/internal/global/control"
	"vestibule/internal/lab/testkit"
)

// told runs a command, and returns its exit code and what it writes.
func told(ctx context.Context, args ...string) (int, string) {
	var out bytes.Buffer
	code := run(ctx, args, &out, &out)
	return code, out.String()
}

// apiServer serves, to the commands of this test, the requests that the API's document has, and fails the test for
// others.
func apiServer(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	data := testkit.Must(os.ReadFile("../../internal/global/control/openapi.yaml"))(t)
	var doc struct {
		Paths map[string]map[string]yaml.Node
	}
	testkit.NoError(t, yaml.Unmarshal(data, &doc))
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("not in the document: %s %s", r.Method,
			r.URL)
	})
	for path, methods := range doc.Paths {
		for method := range methods {
			if method != "parameters" {
				mux.Handle(strings.ToUpper(method)+" "+path, handler)
			}
		}
	}
	s := httptest.NewServer(http.StripPrefix(control.Prefix, mux))
	t.Cleanup(s.Close)
	s.URL += control.Prefix
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("VESTIBULE_TOKEN", "good")
	t.Setenv("VESTIBULE_SERVER", s.URL)
	return s
}

// answer writes a successful answer of the API.
func answer(w io.Writer, result string) {
	fmt.Fprintf(w, `{"success":true,"errors":[],"messages":[],"result":%s}`, result)
}

// TestTheClientsExitCodes: what scripts go by, against a server that answers as the API does.
func TestTheClientsExitCodes(t *testing.T) {
	var asked []string
	api := apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		asked = append(asked, r.Method+" "+r.URL.Path+" "+strings.TrimSpace(string(data)))
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Header.Get("Authorization") != "Bearer good":
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"success":false,"errors":[{"code":1000,"message":"who?"}],"messages":[],"result":null}`)
		case r.URL.Path == "/user/tokens/verify":
			answer(w, `{"id":"i","status":"active","role":"admin","zone":"z","account":"a"}`)
		case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/waiting_rooms"):
			answer(w, `[{"id":"0123","name":"shop","host":"shop.example","total_active_users":7}]`)
		case strings.HasSuffix(r.URL.Path, "/vestibule/status"):
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w,
				`{"success":false,"errors":[{"code":1001,"message":"no room \"nobody\""}],"messages":[],"result":null}`)
		case strings.HasSuffix(r.URL.Path, "/vestibule/fleet"):
			answer(w, `{"leader":"g1",`+
				`"candidates":[{"name":"g1","term":"7","leading":true,"alarms":["the store is full"]}],`+
				`"data_centers":[{"name":"nairobi","state":"active","told":true,"clock_bound_seconds":0.004,"permits":30,`+
				`"edges_count":2,"edges":[{"name":"edge-7","state":"awaiting","build":"v0.1.1"}]}]}`)
		case strings.HasSuffix(r.URL.Path, "/vestibule/export"):
			answer(w, `{"rooms_yaml":"rooms: []\n","pages":{"p.html":"<p>"}}`)
		case strings.HasSuffix(r.URL.Path, "/vestibule/apply"):
			answer(w, `{"applied":false,"changes":[{"kind":"room","name":"shop","change":"changed","settings":[`+
				`{"key":"total_active_users","before":7,"after":9},`+
				`{"key":"rules","before":[],"after":["`+strings.Repeat("x", 60)+`"]}]}]}`)
		case strings.HasSuffix(r.URL.Path, "/waiting_rooms/0123/rules"):
			answer(w, `[{"id":"r1","version":"1","action":"bypass_waiting_room",`+
				`"expression":"starts_with(http.request.uri.path, \"/a/\")","description":"assets","enabled":true,`+
				`"last_updated":"2026-11-22T17:00:00Z"},{"id":"r2","version":"1","action":"bypass_waiting_room",`+
				`"expression":"ssl","description":"","enabled":false,"last_updated":"2026-11-22T17:00:00Z"}]`)
		case r.Method == http.MethodPatch:
			answer(w, `{"id":"0123","name":"shop"}`)
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"success":false,"errors":[{"code":1102,"message":"not now"}],"messages":[],"result":null}`)
		}
	})
	server := "--server=" + api.URL + "/"
	file := filepath.Join(t.TempDir(), "rooms.yaml")
	plain, odd := filepath.Join(t.TempDir(), "plain.json"), filepath.Join(t.TempDir(), "odd.json")
	for name, path := range map[string]string{plain: "/a/x", odd: "/a/..%2fb"} {
		testkit.NoError(t, os.WriteFile(name, []byte(`{"path":"`+path+`"}`), 0o600))
	}
	for _, c := range []struct {
		args  string
		token string
		code  int
		says  string
	}{
		{"rooms list", "good", 0, "shop.example"},
		{"rooms get 0123", "good", 0, `"total_active_users": 7`},
		{"rooms set shop total_active_users=9 name=x1 vestibule.grace=2m", "good", 0, "room shop: "},
		{"rooms get nobody", "good", 1, `no room "nobody"`},
		{"rooms list", "bad", 1, "who? (1000)"},
		{"rooms delete shop --yes", "good", 3, "not now"},
		{"rooms list", "", 2, "token: is needed"},
		{"rooms", "good", 2, "needs a command\nUsage:"},
		{"rooms lits", "good", 2, `unknown command "lits", did you mean "list"?`},
		{"rooms show shop", "good", 2, `unknown command "show", did you mean "get"?`},
		{"rooms set shop --total-active-users 9", "good", 2, "settings are given as total_active_users=VALUE"},
		{"rooms --output json list", "good", 0, `"name": "shop"`},
		{"rooms list --outptu json", "good", 2, "unknown flag: --outptu, did you mean --output?"},
		{"rooms list -output json", "good", 2, "did you mean --output?"},
		{"rooms list --timeout soon", "good", 2, `timeout: must be a duration such as 90s, 30m or 24h, got "soon"`},
		{"rooms set shop", "good", 2, "usage:"},
		{"rooms set shop x", "good", 2, "must be KEY=VALUE"},
		{"rooms list --output xml", "good", 2, "output: must be table or json"},
		{"rooms export -f " + file, "good", 0, "written, with 1 pages"},
		{"rooms export -f " + file, "good", 0, "written"}, // the same again
		{"rooms export", "good", 1, "name a file"},
		{
			"rooms apply -f " + file + " --dry-run", "good", 0,
			"room shop  changed  total_active_users: 7 -> 9, rules\nchanges: 1 (dry run: none applied)",
		},
		{"rooms apply", "good", 2, "usage:"},
		{"rooms apply -f " + file + ".not", "good", 1, "no such file"},
		{"fleet status", "good", 0, "±4 ms"},
		{"fleet status", "good", 0, "alarm of g1: the store is full"},
		{"fleet status --output json", "good", 0, `"permits": 30`},
		{"fleet status", "good", 0, "edge-7      nairobi      awaiting  0.0 s ago  0.0 s  v0.1.1"},
		{"fleet status", "good", 0, "and 1 more  nairobi"},
		{"fleet status x", "good", 2, "unexpected argument \"x\"\nusage: vestibule fleet status"},
		{"rules list shop", "good", 0, "assets"},
		{"rules list nobody", "good", 1, `no room "nobody"`},
		{"rules try --room shop --request " + odd, "good", 0, "a site may read the path as /b"},
		{"rules try --room shop --request " + odd, "good", 0, "it is not enabled"},
		{"rules try --room shop --request " + odd, "good", 0, "no rule lets the request past"},
		{"rules try --room shop --request " + plain, "good", 0, "passes by rule r1"},
		{"rules try --room shop --request " + plain + " --output json", "good", 0, `"matches": true`},
		{"rules try --room shop --expression ssl --request " + plain, "good", 2, "usage:"},
		{"tokens create", "good", 2, "usage:"},
		{"status nobody", "good", 1, `no room "nobody"`},
		{"login", "good", 0, " as admin (token i): profile default"},
		{"rooms list --output json", "", 0, `"name": "shop"`}, // with what login kept
	} {
		t.Setenv("VESTIBULE_TOKEN", c.token)
		if code, out := told(t.Context(), append(strings.Fields(c.args), server)...); code != c.code ||
			!strings.Contains(out, c.says) {
			t.Errorf("%s: %d %s", c.args, code, out)
		}
	}
	want := `PATCH /zones/` + control.Zone +
		`/waiting_rooms/0123 {"name":"x1","total_active_users":9,"vestibule":{"grace":"2m"}}`
	if !strings.Contains(strings.Join(asked, "\n"), want) {
		t.Errorf("not asked: %s\n%s", want, strings.Join(asked, "\n"))
	}
	api.Close()
	if code, out := told(t.Context(), "rooms", "list", server); code != exitUnreachable {
		t.Errorf("a server that is not there: %d %s", code, out)
	}
}

// TestKeysAreRevokedOnlyOnPurpose: keys rotate asks before it voids all tickets, and says whose.
func TestKeysAreRevokedOnlyOnPurpose(t *testing.T) {
	var asked []string
	apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			answer(w, `[{"status":"queueing","estimated_total_active_users":40,"estimated_queued_users":7,"vestibule":{"room":"shop"}}]`)
			return
		}
		data, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		asked = append(asked, r.URL.RequestURI()+" "+string(data))
		answer(w, `{"done":"version 9 of the keys"}`)
	})
	for _, c := range []struct {
		args string
		code int
		says string
		asks string
	}{
		{"keys rotate", 0, "version 9 of the keys", `/vestibule/keys/rotate {"revoke_old":false}`},
		{"keys rotate --revoke-old", 2, "sessions of 40 visitors inside and the places of 7 that wait, in all rooms\nvestibule keys rotate: yes: is needed to revoke", ""},
		{"keys rotate --revoke-old --yes --reason leak", 0, "version 9", `/vestibule/keys/rotate?reason=leak {"revoke_old":true}`},
		{"keys rotate now", 2, "unexpected argument", ""},
	} {
		asked = nil
		if code, out := told(t.Context(), strings.Fields(c.args)...); code != c.code || !strings.Contains(out, c.says) || strings.Join(asked, "") != c.asks {
			t.Errorf("%s: %d %s, asked %q", c.args, code, out, asked)
		}
	}
}

// TestAnswersNameTheFleet: with more than one profile each command says to which fleet it speaks, on standard error.
func TestAnswersNameTheFleet(t *testing.T) {
	api := apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/verify"):
			answer(w, `{"id":"i","status":"active","role":"admin"}`)
		case strings.HasSuffix(r.URL.Path, "/controls"):
			answer(w, `{"room":"shop","version":1,"in_force":{"total_active_users":7,"new_users_per_minute":8,"queue_all":false}}`)
		default:
			answer(w, `[{"id":"0123","name":"shop","host":"shop.example","total_active_users":7}]`)
		}
	})
	other := httptest.NewServer(api.Config.Handler) // the same program at another address
	t.Cleanup(other.Close)
	first, second := strings.TrimSuffix(api.URL, control.Prefix), other.URL
	for _, login := range []string{first + " --profile live", second + " --profile trial"} {
		if code, out := told(t.Context(), "limits", "shop", "--server", first); code != 0 || strings.Contains(out, "fleet") {
			t.Errorf("with one profile at most: %d %s", code, out)
		}
		if code, out := told(t.Context(), append([]string{"login"}, strings.Fields(login)...)...); code != 0 {
			t.Fatalf("%d %s", code, out)
		}
	}
	const token, server = "VESTIBULE_TOKEN", "VESTIBULE_SERVER"
	for _, c := range []struct {
		args, token, server, want string
	}{
		{"limits shop", "", "", "fleet trial at " + second}, // the last login
		{"rooms list", "", "", "fleet trial at " + second},
		{"limits shop", "good", "", "fleet trial at " + second}, // another token
		{"limits shop --profile live", "", "", "fleet live at " + first},
		{"limits shop", "good", first, "fleet live at " + first},
		{"limits shop --server " + first, "good", "", "fleet live at " + first},
		{"limits shop --output json --server " + second + "/", "good", "", "fleet trial at " + second},
		{"rooms list --server " + strings.Replace(first, "127.0.0.1", "localhost", 1), "good", "", "fleet without a profile at http://localhost"},
	} {
		t.Setenv(token, c.token)
		t.Setenv(server, c.server)
		var out, notes bytes.Buffer
		code := run(t.Context(), strings.Fields(c.args), &out, &notes)
		if code != 0 || !strings.HasPrefix(notes.String(), c.want) || strings.Contains(out.String(), "fleet") {
			t.Errorf("%s: %d, %q, want %q\n%s", c.args, code, notes.String(), c.want, out.String())
		}
	}
}

// TestTextsThatLookLikeJSON: the value of each setting with a text is sent as text, other values as they are.
func TestTextsThatLookLikeJSON(t *testing.T) {
	for i := range room.Schema {
		s := &room.Schema[i]
		_, isText := s.Field(&room.Settings{}).(*string)
		if s.Key == "waiting_page" { // a file
			continue
		}
		b := testkit.Must(body([]string{"vestibule." + s.Key + "=2026"}))(t)
		data, err := json.Marshal(b)
		if want := map[bool]string{true: `"2026"`, false: `2026`}[isText]; err != nil ||
			string(data) != `{"vestibule":{"`+s.Key+`":`+want+`}}` {
			t.Errorf("%s: %s %v", s.Key, data, err)
		}
	}
	for in, want := range map[string]string{
		"description=7": `{"description":"7"}`, "queue_message=null": `{"queue_message":null}`, `name="a"`: `{"name":"a"}`,
		"position.before=12": `{"position":{"before":"12"}}`, "position.index=2": `{"position":{"index":2}}`,
	} {
		b := testkit.Must(body([]string{in}))(t)
		if data, err := json.Marshal(b); err != nil || string(data) != want {
			t.Errorf("%s: %s %v", in, data, err)
		}
	}
}
