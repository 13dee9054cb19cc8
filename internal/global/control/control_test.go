package control

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/global/audit"
	"vestibule/internal/global/control/api"
	"vestibule/internal/global/notices"
	"vestibule/internal/global/roomstore"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/lab/testkit/fakes"
	"vestibule/internal/node"
)

// fixture is an API over a store in memory, with a token of each role.
type fixture struct {
	testing.TB
	api   *Server
	parts *services
	rooms *roomstore.Store
	docs  *fakes.Documents
	ring  ticket.Keyring
	audit *fakes.Stream
	mu    sync.Mutex
	count map[string]int // of requests that were answered
	token map[Role]string

	controls *room.Controls // in force at the node
	board    *draw.Board    // likewise
	ahead    time.Duration  // of fleet time, of the clock
	numbers  *Numbers       // the leading global's; nil for some
	silent   bool           // no global leads
}

func start(t testing.TB, edits ...func(*Options)) *fixture {
	t.Helper()
	f := &fixture{
		TB: t, docs: fakes.NewDocuments(), audit: &fakes.Stream{}, count: map[string]int{},
		token: map[Role]string{},
	}
	log := slog.New(slog.DiscardHandler)
	f.rooms = roomstore.New(roomstore.Options{
		Docs: f.docs, Log: log, Floor: func() uint64 { return 0 },
		Journal: audit.NewJournal(f.audit),
	})
	o := Options{
		Refuses: notices.NewPoster(nil).Refuses, OwnSites: func(ctx context.Context, sites []string) map[string]string {
			return node.OwnSites(ctx, sites, []string{"10.9.9.9:8090", "127.0.0.1:9100"}, nil)
		},
		Name: "global-1", Audit: audit.NewJournal(f.audit), Rooms: f.rooms, Docs: f.docs, Log: log,
		Page: func(string) []byte { return nil },
		Fleet: func() api.Fleet {
			return api.Fleet{
				Leader: "global-1", Candidates: []api.Candidate{{Name: "global-1", Alarms: []string{}}},
				DataCenters: []api.DataCenter{},
			}
		},
		Numbers: func(_ context.Context, id room.ID) (Numbers, bool) {
			if f.numbers != nil {
				return *f.numbers, !f.silent
			}
			if f.silent {
				return Numbers{}, false
			}
			return Numbers{Active: 7, Waiting: 3, Longest: 61, PerMinute: 4.5, Complete: true, At: time.Unix(1795353281, 0)},
				id != 0
		},
		Ring: func() ticket.Keyring { return f.ring }, Rotation: 24 * time.Hour,
		Shared: f.docs, Controls: func() *room.Controls { return f.controls }, Board: func() *draw.Board { return f.board },
		Time: func() fleettime.Time { return fleettime.TimeOf(time.Now().Add(f.ahead)) },
	}
	for _, edit := range edits {
		edit(&o)
	}
	f.parts = newServices(o)
	f.api = serve(f.parts, &envelope{turns: newTurns(), count: func(operation string, status int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.count[fmt.Sprint(operation, " ", status)]++
	}, log: log})
	for _, role := range roles {
		f.token[role] = testkit.Must(f.api.Make(t.Context(), "a "+string(role), role))(t)
	}
	testkit.Must(f.rooms.Change(t.Context(), func(d *roomstore.Draft) error {
		d.PutHost(room.Host{Name: "shop.example", Origin: "http://10.0.0.1"})
		return nil
	}))(t)
	return f
}

// answer is an answer of the API.
type answer struct {
	code    int
	Success bool
	Errors  []struct {
		Code    int
		Message string
		Source  struct{ Pointer string }
	}
	Messages []api.Note
	Result   any
	Info     api.ResultInfo `json:"result_info"`
}

// is reports an answer with another status.
func (a answer) is(t testing.TB, code int) {
	t.Helper()
	if a.code != code {
		t.Errorf("status %d, want %d: %+v", a.code, code, a)
	}
}

// pointers lists the JSON pointers of the faults.
func (a answer) pointers() (out []string) {
	for _, e := range a.Errors {
		out = append(out, e.Source.Pointer)
	}
	slices.Sort(out)
	return out
}

func (a answer) field(name string) any {
	m, _ := a.Result.(map[string]any)
	return m[name]
}

func (f *fixture) do(r *http.Request) answer {
	f.Helper()
	w := httptest.NewRecorder()
	f.api.ServeHTTP(w, r)
	a := answer{code: w.Code}
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Header().Get("Content-Type") != "application/json" {
		f.Fatalf("%s %s: %d %s: %v", r.Method, r.URL, w.Code, w.Body, err)
	}
	if a.Success != (w.Code == 200) || (len(a.Errors) > 0) == a.Success || w.Code == 500 {
		f.Fatalf("%s %s: %d %s", r.Method, r.URL, w.Code, w.Body)
	}
	return a
}

// ask asks with the token of a role.
func (f *fixture) ask(role Role, method, path, body string) answer {
	f.Helper()
	path = strings.ReplaceAll(path, "{z}", "/zones/"+Zone+"/waiting_rooms")
	r := httptest.NewRequest(method, Prefix+path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+f.token[role])
	return f.do(r)
}

// expect asks like ask, and reports an answer with another status.
func (f *fixture) expect(code int, role Role, method, path, body string) answer {
	f.Helper()
	a := f.ask(role, method, path, body)
	if a.code != code {
		f.Errorf("%s %s %.200s by %s: %+v, want status %d", method, path, body, role, a, code)
	}
	return a
}

// refused asks like ask, and reports an answer without faults at exactly these places.
func (f *fixture) refused(role Role, method, path, body string, pointers ...string) answer {
	f.Helper()
	a := f.expect(400, role, method, path, body)
	if !slices.Equal(a.pointers(), pointers) {
		f.Errorf("%s %s %.200s: %v, want faults at %v", method, path, body, a.Errors, pointers)
	}
	return a
}

// A refusal is a request that is refused for faults at these places.
type refusal struct {
	method, path, body string
	pointers           []string // in order, each once
	says               string   // a part of what is said of them
}

func (f *fixture) refuse(all []refusal) {
	f.Helper()
	for _, c := range all {
		a := f.expect(400, Editor, c.method, c.path, c.body)
		said := ""
		for _, e := range a.Errors {
			said += e.Message + "\n"
		}
		if !slices.Equal(slices.Compact(a.pointers()), c.pointers) || !strings.Contains(said, c.says) {
			f.Errorf("%s %.200s: %q %s", c.method, c.body, a.pointers(), said)
		}
	}
}

// ok asks for what the test depends on.
func (f *fixture) ok(role Role, method, path, body string) answer {
	f.Helper()
	a := f.ask(role, method, path, body)
	if a.code != http.StatusOK {
		f.Fatalf("%s %s %.200s by %s: %+v", method, path, body, role, a)
	}
	return a
}

// raw asks with the token of a role, and returns the bytes that came back.
func (f *fixture) raw(role Role, path string) []byte {
	f.Helper()
	r := httptest.NewRequest(http.MethodGet, Prefix+path, nil)
	r.Header.Set("Authorization", "Bearer "+f.token[role])
	w := httptest.NewRecorder()
	f.api.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		f.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	return w.Body.Bytes()
}

// The settings of a body are found by their names in rooms.yaml and in the API, in strict requests. An unknown name,
// and a name given twice, are faults that change nothing.
func TestSettingsByTheirNames(t *testing.T) {
	f := start(t)
	id := f.made()
	for body, want := range map[string]string{
		`{"grace":"2m"}`:                            "",
		`{"vestibule":{"grace":"3m"}}`:              "",
		`{"cookie_samesite":"lax"}`:                 "",
		`{"session_duration":"90s"}`:                "",
		`{"session_duration":7}`:                    "",
		`{"grace":"2m","vestibule":{"grace":"3m"}}`: "vestibule.grace and grace are the same setting",
		`{"grace":3}`:                               "grace must be a duration such as 5m or 90s, got 3",
		`{"session_duration":"90"}`:                 `session_duration must be a duration such as 5m or 90s, got "90"`,
		`{"total":400}`:                             "total: no such setting, did you mean total_active_users?",
		`{"totl_active_users":300}`:                 "totl_active_users: no such setting, did you mean total_active_users?",
		`{"graze":"3m"}`:                            "graze: no such setting, did you mean vestibule.grace?",
		`{"vestibule":{"cookie_samesit":"lax"}}`:    "did you mean cookie_attributes.samesite?",
		`{"samesite":"lax"}`:                        "samesite: no such setting, did you mean cookie_attributes.samesite?",
		`{"limit":5}`:                               "limit: no such setting, did you mean vestibule.isolation_limit?",
		`{"cookie_s":"lax"}`:                        "cookie_s: no such setting, there are additional_routes, ",
		`{"waiting_page":"x.html"}`:                 "waiting_page: no such setting",
		`{"colour":"red"}`:                          "colour: no such setting, there are additional_routes, ",
	} {
		before := string(f.raw(Viewer, "/zones/"+Zone+"/waiting_rooms/"+id))
		a := f.ask(Editor, "PATCH", "{z}/"+id+"?strict=true", body)
		changed := string(f.raw(Viewer, "/zones/"+Zone+"/waiting_rooms/"+id)) != before
		if want == "" && (a.code != 200 || !changed) {
			t.Errorf("%s: %+v", body, a)
		}
		if want != "" && (a.code != 400 || changed || len(a.Errors) != 1 || !strings.Contains(a.Errors[0].Message, want)) {
			t.Errorf("%s: %+v, want %s", body, a, want)
		}
	}
	// Without the flag as well, one unknown name refuses the whole body.
	before := string(f.raw(Viewer, "/zones/"+Zone+"/waiting_rooms/"+id))
	if a := f.ask(Editor, "PATCH", "{z}/"+id, `{"grace":"9m","totl":1}`); a.code != 400 ||
		string(f.raw(Viewer, "/zones/"+Zone+"/waiting_rooms/"+id)) != before {
		t.Errorf("%+v", a)
	}
}

// A deleted or moved room leaves its hosts to their sites; only the removal of the host ends that.
func TestTheSiteOfADeletedRoomIsServed(t *testing.T) {
	f := start(t)
	made := f.ask(Editor, "POST", "{z}",
		`{"name":"kiosk","host":"kiosk.example","total_active_users":3,"new_users_per_minute":2,`+
			`"additional_routes":[{"host":"more.example","path":"/"}],"vestibule":{"origin":"http://10.0.0.9"}}`)
	id, _ := made.field("id").(string)
	hosts := func() (out []string) {
		for _, h := range f.ask(Viewer, "GET", "/vestibule/hosts", "").list() {
			if h["origin"] == "http://10.0.0.9" {
				out = append(out, h["name"].(string))
			}
		}
		return out
	}
	f.expect(400, Editor, "DELETE", "/vestibule/hosts/kiosk.example", "") // the host of a room is no entry
	f.ask(Editor, "PATCH", "{z}/"+id, `{"host":"moved.example"}`)
	if got := fmt.Sprint(hosts()); got != "[kiosk.example]" {
		t.Errorf("after a move: %s", got)
	}
	f.ask(Editor, "DELETE", "{z}/"+id, "")
	if got := fmt.Sprint(hosts()); got != "[kiosk.example more.example moved.example]" {
		t.Errorf("after the deletion: %s", got)
	}
	f.expect(200, Editor, "DELETE", "/vestibule/hosts/kiosk.example", "")
	if got := fmt.Sprint(hosts()); got != "[more.example moved.example]" {
		t.Errorf("after the removal of a host: %s", got)
	}
}

// limits ends a small room.
const limits = `,"total_active_users":200,"new_users_per_minute":200,"vestibule":{"origin":"http://10.0.0.1"}}`

const shop = `{"name":"shop","host":"shop.example","total_active_users":300,"new_users_per_minute":200`

func TestARoomIsMadeChangedRenamedAndDeleted(t *testing.T) {
	f := start(t)
	made := f.ask(Editor, "POST", "{z}",
		shop+`,"queueing_method":"FIFO","session_duration":0,"cookie_attributes":{"samesite":"auto"},"id":"x","created_on":"0001-01-01T00:00:00Z"}`)
	id, _ := made.field("id").(string)
	if made.code != 200 || id != room.PublicID("shop") || made.field("session_duration") != 5. ||
		made.field("path") != "/" {
		t.Fatalf("%+v", made)
	}
	f.refused(Editor, "POST", "{z}", shop+"}", "/name")
	patched := f.ask(Editor, "PATCH", "{z}/"+id,
		`{"total_active_users":400,"vestibule":{"grace":"2m","session_duration":"90s"}}`)
	own, _ := patched.field("vestibule").(map[string]any)
	if patched.field("total_active_users") != 400. || patched.field("new_users_per_minute") != 200. ||
		patched.field("session_duration") != 2. || own["grace"] != "2m0s" || own["session_duration"] != "1m30s" {
		t.Errorf("patched: %+v", patched)
	}
	// A PUT by a client of the hosted product keeps the settings that it does not know.
	put := f.ask(Editor, "PUT", "{z}/"+id,
		strings.Replace(shop, `"shop"`, `"fair"`, 1)+`,"session_duration":2,"default_template_language":"de-DE"}`)
	own, _ = put.field("vestibule").(map[string]any)
	if put.code != 200 || put.field("id") != id || put.field("name") != "fair" ||
		put.field("total_active_users") != 300. || own["grace"] != "2m0s" || own["session_duration"] != "1m30s" {
		t.Errorf("put, under another name: %+v", put)
	}
	state, err := f.rooms.Read(t.Context())
	if err != nil || state.Room("fair").TicketName() != "shop" {
		t.Fatalf("the renamed room is known as another one: %+v, %v", state.Room("fair"), err)
	}
	// The name is free again, and the room of that name is another one.
	other := f.ask(Editor, "POST", "{z}", shop+`,"path":"/other"}`)
	if other.code != 200 || other.field("id") == id {
		t.Errorf("a room of the name that the renamed one had: %+v", other)
	}
	f.refused(Editor, "PUT", "{z}/"+id, shop+"}", "/name") // another room's now
	if list := f.ask(Viewer, "GET", "{z}?per_page=1&page=2", ""); list.Info.TotalCount != 2 || list.Info.Count != 1 ||
		list.Info.TotalPages != 2 {
		t.Errorf("%+v", list.Info)
	}
	if past, _ := f.ask(Viewer, "GET", "/accounts/"+Account+"/waiting_rooms?page=9", "").Result.([]any); past == nil ||
		len(past) != 0 {
		t.Errorf("past the last page: %v", past)
	}
	if gone := f.ask(Editor, "DELETE", "{z}/"+id, ""); gone.code != 200 || gone.field("id") != id {
		t.Errorf("%+v", gone)
	}
	for _, method := range []string{"GET", "DELETE", "PATCH"} {
		if gone := f.ask(Admin, method, "{z}/"+id, "{}"); gone.code != 404 || gone.Errors[0].Code != 1001 {
			t.Errorf("%s of a room that is gone: %+v", method, gone)
		}
	}
}

func TestTheFirstTenFaultsOfABodyAreNamed(t *testing.T) {
	f := start(t)
	a := f.ask(Editor, "POST", "{z}", `{"name":"b b","host":7,"total_active_users":"x","queue_all":"yes","suspended":1,"session_duration":99,"description":7,
		"additional_routes":[{"host":"a.example"},{"host":3}],"queueing_method":"lottery","turnstile_mode":"loud","cookie_attributes":{"secure":"sometimes"},
		"enabled_origin_commands":["stop"],"queueing_status_code":500,"custom_page_html":"{{#a}}","vestibule":{"grace":"1s","zap":1,"epoch":-1}}`)
	want := []string{
		"", // their number
		"/additional_routes/1/host", "/custom_page_html", "/description", "/enabled_origin_commands", "/host", "/queue_all",
		"/suspended", "/total_active_users", "/vestibule/epoch", "/vestibule/zap",
	}
	if got := a.pointers(); a.code != 400 || !slices.Equal(got, want) {
		t.Errorf("%d %v\nwant %v", a.code, got, want)
	}
	for _, e := range a.Errors {
		if e.Code != 1002 || !strings.HasSuffix(e.Message, ": invalid data") {
			t.Errorf("%+v", e)
		}
	}
	const all = " /host /host /name /new_users_per_minute /total_active_users"
	for body, pointers := range map[string]string{
		"": all, "[]": all, "null": all, `"x"`: all, "{": "",
		strings.Replace(shop, "shop.example", "elsewhere.example", 1) + "}": "/host",
	} {
		f.refused(Editor, "POST", "{z}", body, strings.Split(pointers, " ")...)
	}
	f.expect(413, Editor, "POST", "{z}", `{"description":"`+strings.Repeat("x", maxBody)+`"}`) // a body that is too long
}

// follow makes a rooms file the authority, as a leader does that has it.
func (f *fixture) follow(doc room.Document) {
	f.Helper()
	_, err := f.rooms.Publish(f.Context(), false, func(d *roomstore.Draft) error {
		d.Set(room.Document{})
		return nil
	})
	if err == nil {
		_, err = f.rooms.Publish(f.Context(), false, func(d *roomstore.Draft) error { return d.Follow(doc) })
	}
	testkit.NoError(f, err)
}

// If a rooms file is the authority, the API shows rooms, and refuses changes of them and of their parts with the name
// of the file. Controls work.
func TestRoomsOfAFileRefuseChanges(t *testing.T) {
	f := start(t)
	sale := room.Event{Name: "sale", Start: 4e12, End: 4e12 + 3.6e6}
	f.follow(room.Document{
		Rooms: []room.Settings{{
			Name: "filed", Host: "filed.example", TotalActiveUsers: 3, NewUsersPerMinute: 5, Origin: "http://10.0.0.2",
			Events: []room.Event{sale}, Rules: []room.Rule{{Expression: "ssl"}},
		}},
		Hosts: []room.Host{{Name: "h.example", Origin: "http://10.0.0.3"}},
	})
	id := room.PublicID("filed")
	at := "{z}/" + id
	event, _ := f.ask(Viewer, "GET", at+"/events", "").Result.([]any)[0].(map[string]any)["id"].(string)
	rule, _ := f.ask(Viewer, "GET", at+"/rules", "").Result.([]any)[0].(map[string]any)["id"].(string)
	revisions, _ := f.ask(Editor, "GET", "/vestibule/rooms/"+id+"/revisions", "").Result.([]any)
	if len(revisions) != 1 {
		t.Fatalf("revisions: %+v", revisions)
	}
	restore := fmt.Sprintf("/vestibule/rooms/%s/revisions/%.0f/restore", id, revisions[0].(map[string]any)["revision"])
	before := testkit.Must(f.rooms.Read(t.Context()))(t)
	const launch = `{"name":"launch","event_start_time":"2096-11-22T20:00:00Z","event_end_time":"2096-11-22T21:00:00Z"}`
	for _, c := range []struct {
		role         Role
		method, path string
		body         string
		code         int
	}{
		{Viewer, "GET", at, "", 200},
		{Viewer, "GET", at + "/status", "", 200},
		{Viewer, "GET", at + "/events/" + event + "/details", "", 200},
		{Viewer, "GET", "/vestibule/hosts", "", 200},
		{Viewer, "GET", "/vestibule/export", "", 200},
		{Editor, "POST", "{z}", shop + "}", 400},
		{Editor, "PUT", at, shop + "}", 400},
		{Editor, "PATCH", at, `{"total_active_users":9}`, 400},
		{Editor, "DELETE", at, "", 400},
		{Editor, "POST", at + "/events", launch, 400},
		{Editor, "PATCH", at + "/events/" + event, `{"suspended":true}`, 400},
		{Editor, "DELETE", at + "/events/" + event, "", 400},
		{Editor, "PUT", at + "/rules", "[]", 400},
		{Editor, "DELETE", at + "/rules/" + rule, "", 400},
		{Editor, "PUT", "/vestibule/hosts/h.example", `{"origin":"http://10.0.0.4"}`, 400},
		{Editor, "DELETE", "/vestibule/hosts/h.example", "", 400},
		{Editor, "POST", restore, "", 400},
		{Editor, "POST", "/vestibule/apply", `{"rooms_yaml":"rooms: []","prune":true}`, 400},
		{Editor, "POST", "/vestibule/apply", `{"rooms_yaml":"rooms: []","dry_run":true}`, 400},
		{
			Operator, "PATCH", "/vestibule/rooms/" + id + "/controls",
			`{"pause":{},"message":{"text":"a moment"},"limits":{"total_active_users":2,"until":"` + soon() + `"}}`, 200,
		},
		{Operator, "POST", "/vestibule/rooms/" + id + "/releases", `{"people":1}`, 200},
	} {
		a := f.ask(c.role, c.method, c.path, c.body)
		if a.code != c.code {
			t.Errorf("%s %s: %d, want %d: %+v", c.method, c.path, a.code, c.code, a.Errors)
		}
		if c.code == 400 && (len(a.Errors) != 1 || a.Errors[0].Code != codeFromFile ||
			a.Errors[0].Message != "rooms come from the rooms file of the leading global: change them there") {
			t.Errorf("%s %s: %+v", c.method, c.path, a.Errors)
		}
	}
	if now, err := f.rooms.Read(t.Context()); err != nil || now.Version != before.Version {
		t.Errorf("version %d after %d, %v", now.Version, before.Version, err)
	}
}

func TestTheSiteOfAHostMovesItsRooms(t *testing.T) {
	f := start(t)
	id := f.made()
	f.ask(Editor, "POST", "{z}",
		`{"name":"own","host":"shop.example","path":"/own","total_active_users":3,"new_users_per_minute":5,"vestibule":{"origin":"http://10.9.9.9"}}`)
	f.refused(Editor, "PUT", "/vestibule/hosts/shop.example", `{"origin":"ftp://x"}`, "/origin")
	f.ok(Editor, "PUT", "/vestibule/hosts/shop.example", `{"origin":"http://10.0.0.8"}`)
	state, err := f.rooms.Read(t.Context())
	if err != nil || state.Room("shop").Origin != "http://10.0.0.8" || state.Room("own").Origin != "http://10.9.9.9" {
		t.Errorf("%+v %v", state.Rooms, err)
	}
	if hosts, _ := f.ask(Viewer, "GET", "/vestibule/hosts", "").Result.([]any); len(hosts) != 1 {
		t.Errorf("%v", hosts)
	}
	if a := f.ask(Viewer, "GET", "{z}/"+id+"/status", ""); a.field("status") != "queueing" ||
		a.field("estimated_queued_users") != 3. || a.field("max_estimated_time_minutes") != 2. {
		t.Errorf("%+v", a)
	}
}

// A room on a host without a site uses the default site, until the host has a site of its own.
func TestTheSiteOfHostsThatNobodyNamed(t *testing.T) {
	f := start(t)
	const other = `{"name":"other","host":"other.example","total_active_users":3,"new_users_per_minute":5}`
	f.refused(Editor, "POST", "{z}", other, "/host")
	f.parts.rooms.origin = "http://10.0.0.7"
	f.ok(Editor, "POST", "{z}", other)
	f.ask(Editor, "POST", "{z}", shop+"}")
	origins := func(want ...string) {
		t.Helper()
		state, err := f.rooms.Read(t.Context())
		if err != nil || state.Room("other").Origin != want[0] || state.Room("shop").Origin != want[1] {
			t.Errorf("%+v %v", state.Rooms, err)
		}
	}
	origins("http://10.0.0.7", "http://10.0.0.1")
	f.ok(Editor, "PUT", "/vestibule/hosts/other.example", `{"origin":"http://10.0.0.8"}`)
	origins("http://10.0.0.8", "http://10.0.0.1")
}

func TestWhatIsNoRouteIsAnsweredInTheEnvelope(t *testing.T) {
	f := start(t)
	for _, p := range []string{
		"GET /", "GET /nope", "POST {z}/settings", "PUT /vestibule/hosts", "GET //vestibule/hosts",
		"GET /a/../vestibule/hosts", "DELETE {z}/events/x", "GET /zones/" + strings.Repeat("0", 32) + "/waiting_rooms",
	} {
		method, path, _ := strings.Cut(p, " ")
		if a := f.ask(Admin, method, path, "{}"); a.code != 404 || a.Errors[0].Code != 7003 {
			t.Errorf("%s: %+v", p, a)
		}
	}
	for _, p := range []string{"{z}?page=0", "{z}?per_page=1001", "{z}?page=x"} {
		if a := f.ask(Admin, "GET", p, ""); a.code != 400 || a.Errors[0].Code != 1002 {
			t.Errorf("%s: %+v", p, a)
		}
	}
}

// Settings of the hosted product without an effect are kept for its clients, and a change is answered with a warning.
func TestSettingsWithoutAnEffectAreKept(t *testing.T) {
	f := start(t)
	warned := func(a answer) (keys string) {
		for _, m := range a.Messages {
			if m.Code == codeKept {
				keys += m.Source.Pointer
			}
		}
		return keys
	}
	const bypass = "search_engine_crawler_bypass"
	for _, c := range []struct {
		method, body string
		want         bool
	}{
		{"GET", "", false},
		{"PUT", `{"search_engine_crawler_bypass":true}`, true},
		{"PATCH", `{}`, true},
		{"PATCH", `{"search_engine_crawler_bypass":null}`, false},
		{"PUT", `{"search_engine_crawler_bypass":true}`, true},
		{"GET", "", true},
		{"PUT", `{}`, false},
	} {
		a := f.ask(Editor, c.method, "{z}/settings", c.body)
		if a.code != 200 || a.field(bypass) != c.want || c.method != "GET" && (warned(a) == "/"+bypass) != c.want {
			t.Errorf("%s %s: %+v", c.method, c.body, a)
		}
	}
	f.expect(403, Viewer, "PUT", "{z}/settings", `{"search_engine_crawler_bypass":true}`)
	const of = `"name":"kept","host":"kept.example","total_active_users":300,"new_users_per_minute":200,"vestibule":{"origin":"https://o.example"}`
	a := f.ask(Editor, "POST", "{z}", `{`+of+`,"turnstile_mode":"Visible_Managed","turnstile_action":"infinite_queue"}`)
	id, _ := a.field("id").(string)
	if a.code != 200 || warned(a) != "/turnstile_mode/turnstile_action" || a.field("turnstile_mode") != "visible_managed" {
		t.Fatalf("%+v", a)
	}
	if a := f.ask(Viewer, "GET", "{z}/"+id, ""); a.field("turnstile_mode") != "visible_managed" ||
		a.field("turnstile_action") != "infinite_queue" || warned(a) != "" {
		t.Errorf("%+v", a)
	}
	if a := f.ask(Editor, "PATCH", "{z}/"+id, `{"turnstile_mode":"off"}`); a.field("turnstile_mode") != "off" ||
		warned(a) != "/turnstile_action" {
		t.Errorf("%+v", a)
	}
	if a := f.ask(Editor, "PUT", "{z}/"+id, `{`+of+`}`); a.field("turnstile_mode") != "invisible" ||
		a.field("turnstile_action") != "log" || warned(a) != "" {
		t.Errorf("%+v", a)
	}
	if a := f.ask(Editor, "PATCH", "{z}/"+id, `{"turnstile_mode":"loud"}`); a.code != 400 ||
		!strings.Contains(a.Errors[0].Message, "visible_non_interactive") {
		t.Errorf("%+v", a)
	}
	a = f.ask(Editor, "POST", "{z}/"+id+"/events",
		eventBody("e", time.Hour, 2*time.Hour, `,"turnstile_action":"infinite_queue"`))
	if a.code != 200 || a.field("turnstile_action") != "infinite_queue" || a.field("turnstile_mode") != nil ||
		warned(a) != "/turnstile_action" {
		t.Errorf("%+v", a)
	}
}

// A number is listed as it came, and a fault of JSON with its place.
func TestFaultsAreListedAsTheyCame(t *testing.T) {
	f := start(t)
	const of = `{"name":"big","host":"big.example","new_users_per_minute":200,"vestibule":{"origin":"https://o.example"},"total_active_users":`
	for body, want := range map[string]string{
		of + `1099511627776}`:           "total_active_users must be 1 to 2147483647, got 1099511627776",
		of + `-1099511627776}`:          "got -1099511627776",
		of + `10000000000000000000000}`: "got 10000000000000000000000",
		"{\"name\":\n  \"ä\", x}":       "line 2, column 8: invalid character 'x'",
		`{"name":"a"`:                   "line 1, column 11: unexpected end",
		`{"name":"a"} {}`:               "line 1, column 14: invalid character '{' after top-level value",
	} {
		if a := f.ask(Editor, "POST", "{z}", body); a.code != 400 || len(a.Errors) != 1 ||
			!strings.Contains(a.Errors[0].Message, want) {
			t.Errorf("%s: %+v, want %s", body, a, want)
		}
	}
}

func TestAPreviewIsShownWithoutAToken(t *testing.T) {
	f := start(t)
	url, _ := f.ask(Operator, "POST", "{z}/preview",
		`{"custom_html":"<p>wait {{waitTime}}"}`).field("preview_url").(string)
	w := httptest.NewRecorder()
	f.api.ServeHTTP(w, httptest.NewRequest("GET", url, nil))
	body, err := io.ReadAll(w.Body)
	if err != nil || !regexp.MustCompile(`<p>wait \d+`).Match(body) ||
		!strings.HasPrefix(w.Header().Get("Content-Security-Policy"), "sandbox") {
		t.Errorf("%d %s %v", w.Code, body, w.Header())
	}
	f.parts.previews.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	w = httptest.NewRecorder()
	if f.api.ServeHTTP(w, httptest.NewRequest("GET", url, nil)); w.Code != 404 {
		t.Errorf("after two hours: %d", w.Code)
	}
	f.expect(400, Operator, "POST", "{z}/preview", `{"custom_html":"{{#a}}"}`)
}

// BenchmarkFirstPage measures the first page of a list of 10,000 rooms.
func BenchmarkFirstPage(b *testing.B) {
	f := start(b)
	doc := room.Document{}
	for i := range 10_000 {
		doc.Rooms = append(doc.Rooms, room.Settings{
			Name: fmt.Sprint("r", i), Host: fmt.Sprintf("h%d.example", i),
			Origin: "http://10.0.0.2", TotalActiveUsers: 3, NewUsersPerMinute: 5,
		})
	}
	testkit.Must(f.rooms.Change(b.Context(), func(d *roomstore.Draft) error { d.Set(doc); return nil }))(b)
	for b.Loop() {
		f.ask(Viewer, "GET", "{z}", "")
	}
}
