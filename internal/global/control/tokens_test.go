package control

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"vestibule/internal/lab/testkit"
)

// Every body has one JSON object with known keys, once each: a mistyped limit must not pass for no limit, nor a
// mistyped dry_run apply a file.
func TestBodiesThatAreNotUnderstood(t *testing.T) {
	f := start(t)
	made := f.ask(Editor, "POST", "{z}", shop+"}")
	id, _ := made.field("id").(string)
	rules := f.ask(Editor, "POST", "{z}/"+id+"/rules",
		`{"expression":"ip.src eq 192.0.2.1","action":"bypass_waiting_room"}`)
	events := f.ask(Editor, "POST", "{z}/"+id+"/events", eventBody("e", 24*time.Hour, 25*time.Hour, ""))
	if id == "" || rules.code != 200 || events.code != 200 {
		t.Fatalf("%+v %+v %+v", made, rules, events)
	}
	event, _ := events.field("id").(string)
	own := "/vestibule/rooms/" + id
	for _, c := range []struct{ method, path, body, pointers string }{
		{"POST", "/vestibule/tokens", `{"name":"t","role":"editor","romes":["shop"]}`, "/romes"},
		{"POST", "/vestibule/tokens", `{"name":"t","role":"viewer","role":"admin"}`, "/role"},
		{"POST", "{z}", shop + `,"total_active_user":1}`, "/name /total_active_user"},
		{"PATCH", "{z}/" + id, `{"queue_al":true}`, "/queue_al"},
		{"PUT", "{z}/" + id, shop + `,"x":1}`, "/x"},
		{"PATCH", "{z}/" + id, `{"cookie_attributes":{"samsite":"lax"}}`, "/cookie_attributes/samsite"},
		{"PATCH", "{z}/" + id, `{"vestibule":{"gracee":"1m"}}`, "/vestibule/gracee"},
		{"PATCH", "{z}/" + id, `{"additional_routes":[{"host":"b.example","path":"/","x":1}]}`, "/additional_routes/0/x"},
		{"POST", "{z}/" + id + "/rules", `{"expression":"true","action":"bypass_waiting_room","enable":false}`, "/enable /expression"},
		{"PATCH", "{z}/" + id + "/events/" + event, `{"suspend":true}`, "/suspend"},
		{"PATCH", own + "/controls", `{"pause":{"untl":"2999-01-01T00:00:00Z"}}`, "/pause/untl"},
		{"PATCH", own + "/controls", `{"limits":{"total_active_user":1}}`, "/limits/total_active_user"},
		{"PATCH", own + "/controls", `{"stop":{}}`, "/stop"},
		{"POST", own + "/releases", `{"people":1,"replac":true}`, "/replac"},
		{"POST", own + "/rules/try", `{"host":"a.example","pathh":"/"}`, "/pathh"},
		{"PUT", "/vestibule/hosts/a.example", `{"origin":"http://10.0.0.1","orign":"x"}`, "/orign"},
		{"POST", "/vestibule/apply", `{"rooms_yaml":"","dryrun":true}`, "/dryrun"},
		{"PUT", "/vestibule/data_centers/x", `{"state":"active","sate":"x"}`, "/sate"},
		{"POST", "/vestibule/webhooks", `{"name":"x","url":"https://a.example/b","kind":[]}`, "/kind"},
		{"PATCH", "{z}/settings", `{"search_engine_crawler_bypas":true}`, "/search_engine_crawler_bypas"},
		{"POST", "{z}/preview", `{"html":"x"}`, "/html"},
	} {
		f.refused(Admin, c.method, c.path, c.body, strings.Split(c.pointers, " ")...)
	}
	before := f.docs.Puts
	for _, c := range map[string]struct {
		body string
		code int
	}{
		"two values":    {`{"name":"w","role":"viewer"}{"role":"admin"}`, 400},
		"a value after": {`{"name":"w","role":"viewer"} 1`, 400},
		"half a value":  {`{"name":"w"`, 400},
		"padding":       {`{"name":"w","role":"viewer"}` + strings.Repeat(" ", maxBody), 413},
		"too long":      {`{"name":"w","role":"viewer","x":"` + strings.Repeat("a", maxBody) + `"}`, 413},
	} {
		f.expect(c.code, Admin, "POST", "/vestibule/tokens", c.body)
	}
	if f.docs.Puts != before {
		t.Error("a refused body was stored")
	}
}

// Clients of the hosted product send the rooms, events and rules back that they have read.
func TestAnswersAreBodies(t *testing.T) {
	f := start(t)
	id := f.made()
	rule := f.ask(Editor, "POST", "{z}/"+id+"/rules",
		`{"expression":"ip.src eq 192.0.2.1","action":"bypass_waiting_room"}`).list()
	event := f.ask(Editor, "POST", "{z}/"+id+"/events", eventBody("e", 24*time.Hour, 25*time.Hour, "")).Result
	for path, body := range map[string]any{
		"/events/" + fmt.Sprint(event.(map[string]any)["id"]): event, "/rules": rule,
		"": f.ask(Editor, "GET", "{z}/"+id, "").Result,
	} {
		data := testkit.Must(json.Marshal(body))(t)
		f.expect(200, Editor, "PUT", "{z}/"+id+path, string(data))
	}
}

// A token ends in a year unless its end is given.
func TestTheEndOfTokens(t *testing.T) {
	f := start(t)
	now := time.Now()
	for given, want := range map[string]time.Duration{
		"": tokenLife, `,"expires_on":null`: tokenLife, `,"expires_on":"never"`: 0,
		`,"expires_on":"` + now.Add(time.Hour).Format(time.RFC3339) + `"`:  time.Hour,
		`,"expires_on":"` + now.Add(-time.Hour).Format(time.RFC3339) + `"`: -1, `,"expires_on":"soon"`: -1,
		`,"expires_on":0`: -1,
	} {
		a := f.ask(Admin, "POST", "/vestibule/tokens", `{"name":"ci","role":"viewer"`+given+"}")
		text, _ := a.field("expires_on").(string)
		switch {
		case want < 0:
			if a.code != 400 || !slices.Contains(a.pointers(), "/expires_on") {
				t.Errorf("%s: %+v", given, a)
			}
		case want == 0:
			if a.code != 200 || text != "" {
				t.Errorf("%s: %+v", given, a)
			}
		default:
			end, err := time.Parse(time.RFC3339, text)
			if got := end.Sub(now); err != nil || got < want-time.Minute || got > want+time.Minute {
				t.Errorf("%s: %+v", given, a)
			}
		}
	}
}

// A fleet keeps an admin token for all rooms that does not expire, also against two revocations beside each other.
func TestTheLastAdminIsNotRevoked(t *testing.T) {
	f := start(t)
	clear(f.docs.Data)
	clear(f.docs.Written)
	f.token[Admin] = testkit.Must(f.api.First(t.Context()))(t)
	create := func(rest string) string {
		a := f.ask(Admin, "POST", "/vestibule/tokens", `{"name":"a",`+rest+"}")
		if a.code != 200 {
			t.Fatalf("%+v", a)
		}
		return a.field("id").(string)
	}
	revoke := func(id string) int { return f.ask(Admin, "DELETE", "/vestibule/tokens/"+id, "").code }
	f.ask(Admin, "POST", "{z}", shop+"}")
	ids := []string{
		create(`"role":"admin"`), create(`"role":"editor","expires_on":"never"`),
		create(`"role":"admin","rooms":["shop"],"expires_on":"never"`),
	}
	if code := revoke(firstToken); code != 400 {
		t.Errorf("the last one: %d", code)
	}
	for _, id := range ids {
		if code := revoke(id); code != 200 {
			t.Errorf("another: %d", code)
		}
	}
	other := create(`"role":"admin","expires_on":"never"`)
	codes := make(chan int)
	for _, id := range []string{firstToken, other} {
		go func() { codes <- f.api.tokenStatus(t, id) }()
	}
	got := map[int]int{}
	for range 2 {
		got[<-codes]++
	}
	if !maps.Equal(got, map[int]int{200: 1, 400: 1}) {
		t.Errorf("both at once: %v", got)
	}
}

// tokenStatus revokes a token as an admin, and returns the status.
func (s *Server) tokenStatus(t *testing.T, id string) int {
	err := s.Call(t.Context(), Principal{ID: "x", Role: Admin}, "192.0.2.1:1", http.MethodDelete, "/vestibule/tokens/"+id,
		nil, nil)
	if err == nil {
		return 200
	}
	return Status(err)
}

// Invalid tokens of an address are throttled for a minute. They never lock out a valid one, whether it was used before
// or not. The first of a minute is in the audit log, without the secret.
func TestInvalidTokensLockOutNobody(t *testing.T) {
	f := start(t)
	begun := len(f.chain())
	f.ask(Operator, "GET", "{z}", "")
	secret := strings.Repeat("s", 43)
	bad := func() answer { return f.with("GET", "{z}", "Authorization", "Bearer vst_aaaaaaaaaaaa_"+secret) }
	for i := range 3 * maxFailures {
		a := bad()
		if want := map[bool]int{true: 401, false: 429}[i < maxFailures]; a.code != want {
			t.Fatalf("try %d: %d, want %d", i, a.code, want)
		}
	}
	f.expect(200, Viewer, "GET", "{z}", "")
	f.expect(200, Operator, "GET", "{z}", "") // used before
	chain := f.chain()[begun:]
	if len(chain) != 1 || chain[0].Target != loginTarget || chain[0].By.From != "192.0.2.1" ||
		!strings.Contains(string(chain[0].After), "aaaaaaaaaaaa") ||
		strings.Contains(string(chain[0].After), secret) {
		t.Errorf("%+v", chain)
	}
	f.api.tokens.now = func() time.Time { return time.Now().Add(failuresWithin) }
	bad().is(t, 401) // a minute later
	if a, b := Source("[2001:db8::1]:80"), Source("[2001:db8::2]:90"); a != b || a == Source("[2001:db8:0:1::1]:80") {
		t.Errorf("%s, %s", a, b)
	}
}

// Entries about refused tokens are bounded, however many addresses they come from.
func TestRefusedTokensOfManyAddresses(t *testing.T) {
	now, throttle := time.Unix(1_800_000_000, 0), NewThrottle()
	logged := 0
	for i := range 1000 {
		from := fmt.Sprint(i)
		throttle.Failed(now, from)
		if throttle.First(now, from) {
			logged++
		}
	}
	if logged != maxLogged {
		t.Errorf("%d logged, want %d", logged, maxLogged)
	}
	now = now.Add(failuresWithin)
	if throttle.Failed(now, "1"); !throttle.First(now, "1") {
		t.Error("nothing is published a minute later")
	}
}

// A viewer sees rules without their texts, wherever rules are shown.
func TestAViewerSeesNoSecret(t *testing.T) {
	f := start(t)
	const secret = "s3cret-of-a-program"
	id := f.made()
	body := `{"expression":"any(http.request.headers[\"x-key\"][*] eq \"` + secret + `\")","action":"bypass_waiting_room"}`
	f.ok(Editor, "POST", "{z}/"+id+"/rules", body)
	for _, c := range [][3]string{
		{"GET", "{z}", ""},
		{"GET", "{z}/" + id, ""},
		{"GET", "{z}/" + id + "/rules", ""},
		{"GET", "/vestibule/export", ""},
		{"POST", "/vestibule/rooms/" + id + "/rules/try", `{"host":"shop.example"}`},
		{"GET", "/vestibule/rooms/" + id + "/stats", ""},
	} {
		if a := f.ask(Viewer, c[0], c[1], c[2]); a.code != 200 && a.code != 404 || strings.Contains(fmt.Sprint(a), secret) {
			t.Errorf("%s: %+v", c[1], a)
		}
	}
	if a := f.ask(Operator, "GET", "{z}/"+id+"/rules", ""); !strings.Contains(fmt.Sprint(a), secret) {
		t.Errorf("an operator: %+v", a)
	}
	file, _ := f.ask(Viewer, "GET", "/vestibule/export", "").field("rooms_yaml").(string)
	again, err := json.Marshal(map[string]any{"rooms_yaml": file})
	if err != nil || !strings.Contains(file, "***") {
		t.Fatal(file, err)
	}
	f.expect(400, Editor, "POST", "/vestibule/apply", string(again)) // an export without its texts
}

// The next end of a long-lived token is known. Tokens with a short life end as planned.
func TestNextExpiry(t *testing.T) {
	f := start(t)
	now := time.Now()
	next := func() *Expiry {
		return testkit.Must(f.api.NextExpiry(t.Context()))(t)
	}
	create := func(name string, life time.Duration) {
		f.ok(Admin, "POST", "/vestibule/tokens", fmt.Sprintf(`{"name":%q,"role":"viewer","expires_on":%q}`, name,
			now.Add(life).Format(time.RFC3339)))
	}
	create("short", time.Hour)
	if e := next(); e.Soon(now) {
		t.Errorf("%+v", e)
	}
	create("later", 100*24*time.Hour)
	create("long", 40*24*time.Hour)
	if e := next(); e == nil || e.Name != "long" || e.Soon(now) || !e.Soon(now.Add(11*24*time.Hour)) {
		t.Errorf("%+v", e)
	}
}
