package control

import (
	"errors"
	"maps"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// with asks with a header.
func (f *fixture) with(method, path string, headers ...string) answer {
	f.Helper()
	r := httptest.NewRequest(method, Prefix+strings.ReplaceAll(path, "{z}", "/zones/"+Zone+"/waiting_rooms"), strings.NewReader("{}"))
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
	if err != nil {
		t.Fatal(err)
	}
}

func TestWhoMayDoWhat(t *testing.T) {
	f := start(t)
	for call, least := range map[string]Role{
		"GET {z}": Viewer, "GET {z}/settings": Viewer, "GET /user/tokens/verify": Viewer, "POST {z}/preview": Operator, "POST {z}": Editor,
		"PUT {z}/x": Editor, "PATCH {z}/x": Editor, "DELETE {z}/x": Editor, "PUT /vestibule/hosts/a": Editor,
		"GET /vestibule/export": Viewer, "GET /vestibule/fleet": Viewer, "POST /vestibule/apply": Editor, "GET /vestibule/rooms/x/revisions": Editor, "POST /vestibule/rooms/x/revisions/1/restore": Editor, "GET /vestibule/audit": Admin,
		"GET /vestibule/tokens": Admin, "POST /vestibule/tokens": Admin, "DELETE /vestibule/tokens/x": Admin,
	} {
		method, path, _ := strings.Cut(call, " ")
		for _, role := range roles {
			a := f.ask(role, method, path, "{}")
			if refused := a.code == 403; refused == role.may(least) {
				t.Errorf("%s by %s: %+v", call, role, a)
			}
		}
	}
}

func TestTokensThatAreNotGood(t *testing.T) {
	f := start(t)
	good := f.token[Viewer]
	if a := f.with("GET", "{z}", "X-Auth-Email", "a@b.example", "X-Auth-Key", good); a.code != 200 {
		t.Errorf("the older headers: %+v", a)
	}
	last := "A"
	if strings.HasSuffix(good, last) {
		last = "B"
	}
	for what, token := range map[string]string{
		"none": "", "no token": "Bearer x", "another secret": "Bearer " + good[:len(good)-1] + last, "nobody's": "Bearer vst_aaaaaaaaaaaa_" + strings.Repeat("a", 43),
		"longer": "Bearer " + good + "a", "basic": "Basic " + good,
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
	made := f.ask(Admin, "POST", "/vestibule/tokens", `{"name":"ci","role":"Editor","expires_on":"`+time.Now().Add(time.Hour).Format(time.RFC3339)+`"}`)
	value, _ := made.field("value").(string)
	id, _ := made.field("id").(string)
	if made.code != 200 || made.field("role") != "editor" {
		t.Fatalf("%+v", made)
	}
	if a := f.with("GET", "{z}", "Authorization", "Bearer "+value); a.code != 200 {
		t.Errorf("%+v", a)
	}
	list, _ := f.ask(Admin, "GET", "/vestibule/tokens", "").Result.([]any)
	if len(list) != 5 || strings.Contains(string(f.docs.data[tokenKeys+id]), value[len(value)-43:]) {
		t.Errorf("%v, stored %s", list, f.docs.data[tokenKeys+id])
	}
	for _, e := range list {
		if m, _ := e.(map[string]any); m["value"] != nil {
			t.Errorf("a value is shown again: %v", e)
		}
	}
	f.api.tokens.now = func() time.Time { return time.Now().Add(61 * time.Minute) }
	if a := f.with("GET", "{z}", "Authorization", "Bearer "+value); a.code != 401 {
		t.Errorf("expired: %+v", a)
	}
	f.api.tokens.now = time.Now
	if a := f.ask(Admin, "DELETE", "/vestibule/tokens/"+id, ""); a.code != 200 {
		t.Errorf("%+v", a)
	}
	if a := f.with("GET", "{z}", "Authorization", "Bearer "+value); a.code != 401 {
		t.Errorf("revoked: %+v", a)
	}
	bad := f.ask(Admin, "POST", "/vestibule/tokens", `{"name":"","role":"root","expires_on":"2020-01-01T00:00:00Z"}`)
	if !slices.Equal(bad.pointers(), []string{"/expires_on", "/name", "/role"}) {
		t.Errorf("%+v", bad)
	}
}

func TestItIsNotedSeldomThatATokenIsUsed(t *testing.T) {
	f := start(t)
	f.ask(Viewer, "GET", "{z}", "")
	before := f.docs.put
	for range 50 {
		f.ask(Viewer, "GET", "{z}", "")
	}
	if f.docs.put != before {
		t.Errorf("%d writes", f.docs.put-before)
	}
	f.api.tokens.now = func() time.Time { return time.Now().Add(usedEvery + time.Second) }
	if f.ask(Viewer, "GET", "{z}", ""); f.docs.put != before+1 {
		t.Errorf("%d writes after a while", f.docs.put-before)
	}
}

func TestFailuresAreThrottled(t *testing.T) {
	f := start(t)
	f.ask(Viewer, "GET", "{z}", "")
	bad := "Bearer vst_aaaaaaaaaaaa_" + strings.Repeat("a", 43)
	for range maxFailures {
		if a := f.with("GET", "{z}", "Authorization", bad); a.code != 401 {
			t.Fatalf("%+v", a)
		}
	}
	if a := f.with("GET", "{z}", "Authorization", bad); a.code != 429 {
		t.Errorf("one more: %+v", a)
	}
	if a := f.ask(Viewer, "GET", "{z}", ""); a.code != 200 {
		t.Errorf("a neighbour whose token was good is locked out: %+v", a)
	}
	f.api.tokens.now = func() time.Time { return time.Now().Add(failuresWithin) }
	if a := f.with("GET", "{z}", "Authorization", bad); a.code != 401 {
		t.Errorf("a minute later: %+v", a)
	}
	if a, b := source("[2001:db8::1]:80"), source("[2001:db8::2]:90"); a != b || a == source("[2001:db8:0:1::1]:80") {
		t.Errorf("%s, %s", a, b)
	}
}

func TestOtherSitesAreRefused(t *testing.T) {
	f := start(t)
	token := "Bearer " + f.token[Admin]
	if a := f.with("POST", "{z}", "Authorization", token, "Sec-Fetch-Site", "cross-site"); a.code != 403 || a.Errors[0].Code != 10000 {
		t.Errorf("%+v", a)
	}
	if a := f.with("POST", "{z}", "Authorization", token, "Origin", "https://evil.example"); a.code != 403 {
		t.Errorf("%+v", a)
	}
}

func TestTheFirstTokenIsMadeOnce(t *testing.T) {
	f := start(t)
	if value, err := f.api.First(t.Context()); value != "" || err != nil {
		t.Errorf("there are tokens already: %q, %v", value, err)
	}
	f.docs.mu.Lock()
	clear(f.docs.docs)
	clear(f.docs.data)
	f.docs.mu.Unlock()
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
	f.docs.down = errors.New("down")
	f.ask(Viewer, "GET", "{z}", "")
	want := map[string]int{
		"waiting-room-list-waiting-rooms 200": 2, "waiting-room-delete-waiting-room 403": 1, "waiting-room-delete-waiting-room 404": 1,
		"none 404": 1, "none 401": 1, "none 503": 1,
	}
	if !maps.Equal(f.count, want) {
		t.Errorf("%v, want %v", f.count, want)
	}
}
