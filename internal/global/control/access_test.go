package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"vestibule/internal/core/wire"
	"vestibule/internal/lab/testkit"
)

// with asks with a header.
func (f *fixture) with(method, path string, headers ...string) answer {
	f.Helper()
	r := httptest.NewRequest(method, Prefix+strings.ReplaceAll(path, "{z}", "/zones/"+Zone+"/waiting_rooms"),
		strings.NewReader("{}"))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return f.do(r)
}

// TestOperationsOfTheDocument: the API has the operations of its document, at the same paths.
func TestOperationsOfTheDocument(t *testing.T) {
	var doc struct {
		Paths map[string]map[string]yaml.Node
	}
	readDocument(t, &doc)
	want := map[string]string{}
	for path, methods := range doc.Paths {
		for method, node := range methods {
			var o struct {
				ID string `yaml:"operationId"`
			}
			if node.Decode(&o) == nil && o.ID != "" {
				want[o.ID] = strings.ToUpper(method) + " " + path
			}
		}
	}
	have := map[string]string{}
	for _, o := range newServices(Options{}).operations() {
		have[o.id] = o.route
	}
	if !maps.Equal(have, want) {
		t.Errorf("the API has %v\nand its document %v", have, want)
	}
}

// readDocument reads openapi.yaml.
func readDocument(t *testing.T, into any) {
	t.Helper()
	data, err := os.ReadFile("openapi.yaml")
	if err == nil {
		err = yaml.Unmarshal(data, into)
	}
	testkit.NoError(t, err)
}

func TestWhoMayDoWhat(t *testing.T) {
	f := start(t)
	for call, least := range map[string]Role{
		"GET {z}": Viewer, "GET {z}/settings": Viewer, "GET /user/tokens/verify": Viewer, "POST {z}/preview": Operator,
		"POST {z}":  Editor,
		"PUT {z}/x": Editor, "PATCH {z}/x": Editor, "DELETE {z}/x": Editor, "PUT /vestibule/hosts/a": Editor,
		"GET /vestibule/export": Viewer, "GET /vestibule/status": Viewer, "GET /vestibule/data_centers": Viewer,
		"PUT /vestibule/data_centers/x": Admin, "DELETE /vestibule/data_centers/x": Admin, "GET /vestibule/fleet": Viewer,
		"GET /vestibule/visitors/482-177-301": Viewer, "POST /vestibule/apply": Editor,
		"GET /vestibule/rooms/x/revisions": Editor, "POST /vestibule/rooms/x/revisions/1/restore": Editor,
		"GET /vestibule/audit":  Admin,
		"GET /vestibule/tokens": Admin, "POST /vestibule/tokens": Admin, "DELETE /vestibule/tokens/x": Admin,
		"GET /vestibule/webhooks": Admin, "POST /vestibule/webhooks": Admin, "PATCH /vestibule/webhooks/x": Admin,
		"DELETE /vestibule/webhooks/x": Admin, "POST /vestibule/webhooks/x/test": Admin,
	} {
		method, path, _ := strings.Cut(call, " ")
		for _, role := range roles {
			a := f.ask(role, method, path, "{}")
			if refused := a.code == 403; refused == role.May(least) {
				t.Errorf("%s by %s: %+v", call, role, a)
			}
		}
	}
}

// A token with some rooms reaches them and nothing else, by any operation.
func TestAPrincipalWithSomeRooms(t *testing.T) {
	f := start(t)
	made := f.ask(Admin, "POST", "{z}",
		`{"name":"mine","host":"mine.example"`+limits)
	id, _ := made.field("id").(string)
	other := f.ask(Admin, "POST", "{z}",
		`{"name":"theirs","host":"theirs.example"`+limits)
	theirs, _ := other.field("id").(string)
	if id == "" || theirs == "" {
		t.Fatalf("%+v %+v", made, other)
	}
	f.expect(400, Admin, "POST", "/vestibule/tokens",
		`{"name":"ci","role":"admin","rooms":["mine","none"]}`) // a token for a room that does not exist
	token := f.ask(Admin, "POST", "/vestibule/tokens", `{"name":"ci","role":"admin","rooms":["mine"]}`)
	value, _ := token.field("value").(string)
	ask := func(method, path string) answer {
		return f.with(method, path, "Authorization", "Bearer "+value)
	}
	for _, o := range newServices(Options{}).operations() {
		method, path, _ := strings.Cut(o.route, " ")
		fill := strings.NewReplacer("{zone_id}", Zone, "{account_id}", Account, "{waiting_room_id}", theirs, "{event_id}",
			"e", "{rule_id}", "r", "{host}", "h", "{token_id}", "t", "{revision}", "1", "{user}", "u", "{name}", "n")
		a := ask(method, fill.Replace(path))
		switch {
		case strings.Contains(path, "{waiting_room_id}"):
			if a.code != 404 {
				t.Errorf("%s on a room of others: %+v", o.id, a)
			}
		case forAnyRooms[o.id]:
			if a.code == 403 {
				t.Errorf("%s: %+v", o.id, a)
			}
		case a.code != 403:
			t.Errorf("%s on all rooms: %+v", o.id, a)
		}
	}
	ask("GET", "{z}/"+id).is(t, 200) // its room
	if a := ask("GET", "{z}"); a.code != 200 || !strings.Contains(fmt.Sprint(a.Result), "mine.example") ||
		strings.Contains(fmt.Sprint(a.Result), "theirs.example") {
		t.Errorf("its rooms: %+v", a)
	}
}

func TestTokensThatAreNotGood(t *testing.T) {
	f := start(t)
	good := f.token[Viewer]
	f.with("GET", "{z}", "X-Auth-Email", "a@b.example", "X-Auth-Key", good).is(t, 200) // the older headers
	last := "A"
	if strings.HasSuffix(good, last) {
		last = "B"
	}
	for what, token := range map[string]string{
		"none": "", "no token": "Bearer x", "another secret": "Bearer " + good[:len(good)-1] + last,
		"nobody's": "Bearer vst_aaaaaaaaaaaa_" + strings.Repeat("a", 43),
		"longer":   "Bearer " + good + "a", "basic": "Basic " + good,
	} {
		if a := f.with("GET", "{z}", "Authorization", token); a.code != 401 || a.Errors[0].Code != 1000 {
			t.Errorf("%s: %+v", what, a)
		}
	}
	if !regexp.MustCompile(`^[0-9A-Za-z\-_]{40,80}$`).MatchString(good) {
		t.Errorf("the provider does not take %s", good)
	}
}

func TestExpiredAndRevokedTokens(t *testing.T) {
	f := start(t)
	made := f.ask(Admin, "POST", "/vestibule/tokens",
		`{"name":"ci","role":"Editor","expires_on":"`+time.Now().Add(time.Hour).Format(time.RFC3339)+`"}`)
	value, _ := made.field("value").(string)
	id, _ := made.field("id").(string)
	if made.code != 200 || made.field("role") != "editor" {
		t.Fatalf("%+v", made)
	}
	f.with("GET", "{z}", "Authorization", "Bearer "+value).is(t, 200)
	list, _ := f.ask(Admin, "GET", "/vestibule/tokens", "").Result.([]any)
	if len(list) != 5 || strings.Contains(string(f.docs.Data[tokenKeys+id]), value[len(value)-43:]) {
		t.Errorf("%v, stored %s", list, f.docs.Data[tokenKeys+id])
	}
	for _, e := range list {
		if m, _ := e.(map[string]any); m["value"] != nil {
			t.Errorf("a value is shown again: %v", e)
		}
	}
	f.api.tokens.now = func() time.Time { return time.Now().Add(61 * time.Minute) }
	f.with("GET", "{z}", "Authorization", "Bearer "+value).is(t, 401) // expired
	f.api.tokens.now = time.Now
	f.expect(200, Admin, "DELETE", "/vestibule/tokens/"+id, "")
	f.with("GET", "{z}", "Authorization", "Bearer "+value).is(t, 401) // revoked
	f.refused(Admin, "POST", "/vestibule/tokens", `{"name":"","role":"root","expires_on":"2020-01-01T00:00:00Z"}`,
		"/expires_on", "/name", "/role")
}

func TestItIsNotedSeldomThatATokenIsUsed(t *testing.T) {
	f := start(t)
	f.ask(Viewer, "GET", "{z}", "")
	before := f.docs.Puts
	for range 50 {
		f.ask(Viewer, "GET", "{z}", "")
	}
	if f.docs.Puts != before {
		t.Errorf("%d writes", f.docs.Puts-before)
	}
	f.api.tokens.now = func() time.Time { return time.Now().Add(usedEvery + time.Second) }
	if f.ask(Viewer, "GET", "{z}", ""); f.docs.Puts != before+1 {
		t.Errorf("%d writes after a while", f.docs.Puts-before)
	}
}

func TestOtherSitesAreRefused(t *testing.T) {
	f := start(t)
	token := "Bearer " + f.token[Admin]
	if a := f.with("POST", "{z}", "Authorization", token, "Sec-Fetch-Site", "cross-site"); a.code != 403 ||
		a.Errors[0].Code != 10000 {
		t.Errorf("%+v", a)
	}
	f.with("POST", "{z}", "Authorization", token, "Origin", "https://evil.example").is(t, 403)
}

func TestTheFirstTokenIsMadeOnce(t *testing.T) {
	f := start(t)
	if value, err := f.api.First(t.Context()); value != "" || err != nil {
		t.Errorf("there are tokens already: %q, %v", value, err)
	}
	f.docs.Lock()
	clear(f.docs.Written)
	clear(f.docs.Data)
	f.docs.Unlock()
	value, err := f.api.First(t.Context())
	if err != nil || !f.api.Good(t.Context(), value) {
		t.Fatal(value, err)
	}
	if again, err := f.api.First(t.Context()); again != "" || err != nil {
		t.Errorf("%q, %v", again, err)
	}
}

func TestRequestsAreCounted(t *testing.T) {
	f := start(t)
	f.ask(Viewer, "GET", "{z}", "")
	f.ask(Viewer, "GET", "{z}", "")
	f.ask(Viewer, "DELETE", "{z}/x", "")
	f.ask(Admin, "DELETE", "{z}/x", "")
	f.ask(Admin, "GET", "/nowhere/at/all", "")
	f.with("GET", "{z}", "Authorization", "Bearer x")
	f.docs.Down = errors.New("down")
	f.ask(Operator, "GET", "{z}", "")
	want := map[string]int{
		"waiting-room-list-waiting-rooms 200": 2, "waiting-room-delete-waiting-room 403": 1,
		"waiting-room-delete-waiting-room 404": 1,
		"none 404":                             1, "none 401": 1, "none 503": 1,
	}
	if !maps.Equal(f.count, want) {
		t.Errorf("%v, want %v", f.count, want)
	}
}

// An order to forget an edge: who may give it, what the regional gets and answers, and the audit entry.
func TestAnEdgeIsForgotten(t *testing.T) {
	f := start(t)
	var asked []wire.ForgetAsk
	said, away := wire.ForgetAnswer{Done: "1 process has ended"}, error(nil)
	f.parts.members.forget = func(_ context.Context, dc string, ask wire.ForgetAsk) (wire.ForgetAnswer, error) {
		if asked = append(asked, ask); dc != "nairobi" {
			t.Errorf("asked of %s", dc)
		}
		return said, away
	}
	const path = "/vestibule/data_centers/nairobi/forget"
	if a := f.ask(Editor, "POST", path, `{"edge":"edge-3"}`); a.code != 403 || len(asked) > 0 {
		t.Errorf("an editor: %+v", a)
	}
	if a := f.ask(Admin, "POST", path+"?reason=its+machine+burnt", `{"edge":"edge-3","instance":"7"}`); a.code != 200 ||
		a.field("done") != "1 process has ended" {
		t.Errorf("%+v", a)
	}
	newest := f.ask(Admin, "GET", "/vestibule/audit?per_page=1", "").list()[0]
	const changes = "[map[change:changed kind:data_center name:nairobi " +
		"settings:[map[after:edge-3 before:<nil> key:forget]]]]"
	if fmt.Sprint(newest["changes"]) != changes || newest["reason"] != "its machine burnt" {
		t.Errorf("the entry: %+v", newest)
	}
	said = wire.ForgetAnswer{Error: "edge-4 is heard"}
	if a := f.ask(Admin, "POST", path, `{"edge":"edge-4"}`); a.code != 409 || a.Errors[0].Message != "edge-4 is heard" {
		t.Errorf("refused by the regional: %+v", a)
	}
	away = errors.New("no result came")
	if a := f.ask(Admin, "POST", path, `{"all":true}`); a.code != 503 || a.Errors[0].Message != "no result came" {
		t.Errorf("no answer: %+v", a)
	}
	if want := []wire.ForgetAsk{{Edge: "edge-3", Instance: 7}, {Edge: "edge-4"}, {All: true}}; !slices.Equal(asked, want) {
		t.Errorf("asked %+v", asked)
	}
	for body, pointers := range map[string][]string{
		`{}`: {"/edge"}, `{"edge":"A","instance":"x","alll":true}`: {"/alll", "/edge", "/instance"},
		`{"edge":"a","all":true}`: {"/all"},
	} {
		f.refused(Admin, "POST", path, body, pointers...)
	}
}
