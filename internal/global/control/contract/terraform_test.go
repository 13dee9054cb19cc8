package contract

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"vestibule/internal/allinone"
	"vestibule/internal/global/control"
	"vestibule/internal/lab/testkit"
)

var record = flag.Bool("record", false, "let TestTerraformManagesRooms write what TestTerraformRequests plays")

// sent is a request of the Terraform provider. $ZONE and the names of resources, such as $sale, stand for IDs.
type sent struct {
	Provider string          `json:"provider"`
	Method   string          `json:"method"`
	Path     string          `json:"path"`
	Body     json.RawMessage `json:"body,omitempty"`
	Status   int             `json:"status"`
}

var realTerraform = flag.Bool("terraform", false, "run the real Terraform, which must be installed (`make terraform`)")

const requestsFile = "terraform/requests.json"

// ids has the IDs of a fleet: of its zone, and of the rooms and events made in it, by name.
type ids map[string]string

// learn takes the ID of what was made.
func (n ids) learn(answer []byte) {
	var made struct{ Result struct{ ID, Name string } }
	if json.Unmarshal(answer, &made) == nil && made.Result.Name != "" {
		n["$"+made.Result.Name] = made.Result.ID
	}
}

// put replaces names by IDs, or back.
func (n ids) put(s string, back bool) string {
	for name, id := range n {
		if back {
			name, id = id, name
		}
		s = strings.ReplaceAll(s, name, id)
	}
	return s
}

// recorder is a transport that keeps the requests that pass, without repeated reads.
type recorder struct {
	next     http.RoundTripper
	provider string

	mu   sync.Mutex
	ids  ids
	read map[string]bool // since the last change
	sent []sent

	asked, passed int
}

func (r *recorder) RoundTrip(q *http.Request) (*http.Response, error) {
	r.mu.Lock() // one request at a time
	defer r.mu.Unlock()
	body, err := whole(&q.Body)
	if err != nil {
		return nil, err
	}
	r.asked++
	res, err := r.next.RoundTrip(q)
	if err != nil {
		return nil, err
	}
	answer, err := whole(&res.Body)
	if err != nil {
		return nil, err
	}
	if q.Method == http.MethodPost {
		r.ids.learn(answer)
	}
	if res.StatusCode == http.StatusOK {
		r.passed++
	}
	path := r.ids.put(q.URL.RequestURI(), true)
	if q.Method == http.MethodGet && r.read[path] {
		return res, nil
	}
	if q.Method != http.MethodGet {
		clear(r.read)
	}
	r.read[path] = true
	body = []byte(r.ids.put(string(body), true))
	r.sent = append(r.sent, sent{r.provider, q.Method, path, body, res.StatusCode})
	return res, nil
}

// ask sends a request of the provider to the API, and returns the answer.
func (s *sent) ask(t *testing.T, x *allinone.Tree, h http.RoundTripper, n ids) (status int, result any) {
	t.Helper()
	path := strings.TrimPrefix(n.put(s.Path, false), control.Prefix)
	res := testkit.Must(h.RoundTrip(request(t, x, s.Method, path, n.put(string(s.Body), false))))(t)
	answer := testkit.Must(whole(&res.Body))(t)
	if s.Method == http.MethodPost {
		n.learn(answer)
	}
	var got struct{ Result any }
	if err := json.Unmarshal(answer, &got); err != nil {
		t.Fatalf("%s %s: %v\n%s", s.Method, s.Path, err, answer)
	}
	return res.StatusCode, got.Result
}

// keeps reports whether an answer has everything that was sent, as Terraform demands. The old client sends empty times.
func keeps(was, is any) bool {
	switch was := was.(type) {
	case map[string]any:
		is, ok := is.(map[string]any)
		for k, v := range was {
			ok = ok && (k == "created_on" || k == "modified_on" || keeps(v, is[k]))
		}
		return ok
	case []any:
		is, ok := is.([]any)
		ok = ok && len(is) == len(was)
		for i := 0; ok && i < len(was); i++ {
			ok = keeps(was[i], is[i])
		}
		return ok
	}
	return reflect.DeepEqual(was, is)
}

// What the official Terraform provider sends, as TestTerraformManagesRooms has recorded it. An answer that lacks what
// it sent is a fault to it, and a read that differs from its last change is somebody else's change.
func TestTerraformRequests(t *testing.T) {
	text := testkit.Must(os.ReadFile(requestsFile))(t)
	var all []sent
	testkit.NoError(t, json.Unmarshal(text, &all))
	x := tree(t)
	h := newHeld(t, x.Info.Control.URL)
	site(t, x, h, "shop.example")
	n, passed := ids{"$ZONE": x.Info.Control.Zone}, 0
	left := map[string]any{} // by a change, for the next read
	for _, s := range all {
		var was any
		if len(s.Body) > 0 {
			testkit.NoError(t, json.Unmarshal([]byte(n.put(string(s.Body), false)), &was))
		}
		status, is := s.ask(t, x, h, n)
		at := n.put(s.Path, false)
		switch made, isObject := is.(map[string]any); {
		case s.Method == http.MethodGet:
			was = left[at]
		case s.Method == http.MethodDelete:
			delete(left, at)
		case s.Method == http.MethodPost && isObject:
			left[at+"/"+fmt.Sprint(made["id"])] = was
		default:
			left[at] = was
		}
		if status != s.Status || was != nil && !keeps(was, is) {
			t.Errorf("provider %s: %s %s %s\nwas answered %d %v, not %d",
				s.Provider, s.Method, s.Path, s.Body, status, is, s.Status)
			continue
		}
		passed++
	}
	t.Logf("Terraform: %d of %d requests passed", passed, len(all))
}

// changed edits a configuration as an operator does.
var changed = strings.NewReplacer(
	"= 405", "= 500",
	"session_duration          = 10", "session_duration          = 7",
	"session_duration        = 10", "session_duration        = 9",
	"suspended                 = true", "suspended                 = false",
	"suspended               = true", "suspended               = false",
	"query string bypass", "by query",
	"crawler_bypass = true", "crawler_bypass = false",
	"09:00:00Z", "09:30:00Z",
	`"queue1"`, `"queue2"`,
	`"invisible"`, `"off"`,
	"<p>soon</p>", "<p>sooner</p>",
)

// The official Terraform provider, as `terraform init` gets it: from its registry, or from a folder beside it.
func TestTerraformManagesRooms(t *testing.T) {
	if !*realTerraform {
		t.Skip("`make terraform` runs it; TestTerraformRequests replays what it sent")
	}
	program := testkit.Program(t, "terraform")
	var all []sent
	for _, provider := range []string{"5.22.0", "4.52.8"} {
		t.Run(provider, func(t *testing.T) {
			all = append(all, manageByTerraform(t, program, provider)...)
		})
	}
	if *record && !t.Failed() {
		var text bytes.Buffer
		for i := range all {
			line := testkit.Must(json.Marshal(&all[i]))(t)
			text.WriteString("[,"[min(i, 1):min(i, 1)+1] + "\n" + string(line))
		}
		text.WriteString("\n]\n")
		testkit.NoError(t, os.WriteFile(requestsFile, text.Bytes(), 0o600))
	}
}

// manageByTerraform makes, changes, imports and destroys every resource, and returns the requests.
func manageByTerraform(t *testing.T, program, provider string) []sent {
	t.Helper()
	ctx, dir := testkit.Within(t), t.TempDir()
	text := testkit.Must(os.ReadFile("terraform/v" + provider[:1] + ".tf"))(t)
	env := os.Environ()
	terraform := func(args ...string) error {
		c := exec.CommandContext(ctx, program, args...)
		c.Dir, c.Env = dir, env
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("terraform %s: %w\n%s", strings.Join(args, " "), err, out)
		}
		return nil
	}
	write := func(name string, text []byte) string {
		name = filepath.Join(dir, name)
		testkit.NoError(t, os.WriteFile(name, text, 0o600))
		return name
	}
	conf := strings.ReplaceAll(string(text), "VERSION", provider)
	write("main.tf", []byte(conf))
	if err := terraform("init", "-no-color"); err != nil {
		t.Fatalf("the provider cannot be installed: %v", err)
	}

	x := tree(t)
	h := newHeld(t, x.Info.Control.URL)
	site(t, x, h, "shop.example")
	to := testkit.Must(url.Parse(x.Info.Control.URL))(t)
	r := &recorder{next: h, provider: provider, ids: ids{"$ZONE": x.Info.Control.Zone}, read: map[string]bool{}}
	between := httptest.NewTLSServer(&httputil.ReverseProxy{Transport: r, Rewrite: func(q *httputil.ProxyRequest) {
		q.Out.URL.Scheme, q.Out.URL.Host, q.Out.Host = to.Scheme, to.Host, to.Host
		q.Out.Header.Del("Accept-Encoding")
	}})
	defer between.Close()
	ca := write("ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: between.Certificate().Raw}))
	env = append(env, "SSL_CERT_FILE="+ca, "CLOUDFLARE_API_TOKEN="+x.Info.Control.Token,
		"CLOUDFLARE_BASE_URL="+between.URL+to.Path, "CLOUDFLARE_API_HOSTNAME="+strings.TrimPrefix(between.URL, "https://"),
		"CLOUDFLARE_API_BASE_PATH="+to.Path)
	conf = strings.ReplaceAll(conf, "ZONE", x.Info.Control.Zone)
	take := func(resource, id string) error {
		resource = "cloudflare_waiting" + resource
		err := terraform("state", "rm", resource)
		return errors.Join(err, terraform("import", "-no-color", resource, r.ids.put(id, false)))
	}
	apply := func(conf string) {
		t.Helper()
		write("main.tf", []byte(conf))
		put := []string{"apply", "-auto-approve", "-no-color", "-parallelism=1"}
		err := terraform(put...)
		if err != nil && strings.Contains(err.Error(), "\ncloudflare_waiting_room_rules.sale.id.") { // never set by version 5
			err = errors.Join(take("_room_rules.sale", "$ZONE/$sale"), terraform(put...))
		}
		testkit.NoError(t, err)
		if err := terraform("plan", "-detailed-exitcode", "-no-color"); err != nil {
			t.Errorf("something is left to change: %v", err)
		}
	}
	apply(conf)
	apply(changed.Replace(conf))
	for _, i := range [][2]string{
		{"_room.sale", "$ZONE/$sale"},
		{"_room_event.launch", "$ZONE/$sale/$launch"},
		{"_room_rules.sale", "$ZONE/$sale"},
		{"_room_settings.zone", "$ZONE"},
	} {
		if provider[0] == '4' && i[1] == "$ZONE" {
			continue // this version forgets the zone, and asks for /zones//waiting_rooms/settings
		}
		if err := take(i[0], i[1]); err != nil {
			t.Error(err)
		}
	}
	apply(changed.Replace(conf))
	if err := terraform("destroy", "-auto-approve", "-parallelism=1", "-no-color"); err != nil {
		t.Error(err)
	}
	t.Logf("provider %s: %d of %d requests passed, %d were recorded", provider, r.passed, r.asked, len(r.sent))
	return r.sent
}
