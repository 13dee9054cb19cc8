package console_test

import (
	"context"
	"encoding/xml"
	"errors"
	"html"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/global/access"
	"vestibule/internal/global/audit"
	"vestibule/internal/global/console"
	"vestibule/internal/global/control"
	"vestibule/internal/global/control/api"
	"vestibule/internal/global/notices"
	"vestibule/internal/global/roomstore"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/lab/testkit/fakes"
	"vestibule/internal/node"
)

// fixture is a console over an API and a store in memory.
type fixture struct {
	testing.TB
	*console.Console
	api   client
	docs  *fakes.Documents
	audit *fakes.Stream
	past  *past

	logins *access.Access // of requests with a cookie

	mu      sync.Mutex
	who     control.Principal // the operator; no role for nobody
	numbers map[room.ID]control.Numbers
	leader  bool
	heard   time.Time // when a leader was heard last, while there is none
	fleet   api.Fleet
	calls   map[string]int // of operations of the API
	later   time.Duration  // by which the clock of the logins is ahead
}

func (f *fixture) play(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// as makes the following requests those of an operator with a role.
func (f *fixture) as(role control.Role) *fixture {
	f.play(func() { f.who = control.Principal{ID: "u-" + string(role), Name: "Ana", Role: role} })
	return f
}

func start(t testing.TB) *fixture {
	t.Helper()
	f := &fixture{
		TB: t, docs: fakes.NewDocuments(), audit: &fakes.Stream{}, past: &past{start: time.Now().Add(-30 * time.Minute)},
		numbers: map[room.ID]control.Numbers{}, leader: true, calls: map[string]int{},
		fleet: api.Fleet{
			Leader: "global-1", Candidates: []api.Candidate{{Name: "global-1", Alarms: []string{}}},
			DataCenters: []api.DataCenter{},
		},
	}
	log := slog.New(slog.DiscardHandler)
	journal := audit.NewJournal(f.audit)
	rooms := roomstore.New(roomstore.Options{Docs: f.docs, Log: log, Floor: func() uint64 { return 0 }, Journal: journal})
	server := control.New(control.Options{
		Name: "global-1", Audit: journal, Rooms: rooms, Docs: f.docs, Log: log, Origin: "http://10.0.0.1",
		Page: func(string) []byte { return nil },
		Fleet: func() api.Fleet {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.fleet
		},
		Numbers: func(_ context.Context, id room.ID) (control.Numbers, bool) {
			f.mu.Lock()
			defer f.mu.Unlock()
			n, ok := f.numbers[id]
			if !ok {
				n = control.Numbers{Complete: true, Longest: -1}
			}
			if n.At = time.Now(); !f.leader {
				n.At = f.heard
			}
			return n, f.leader
		},
		Count: func(operation string, _ int) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.calls[operation]++
		},
		History: f.past, Sessions: persons{f.docs},
		Refuses: notices.NewPoster(nil).Refuses, OwnSites: func(ctx context.Context, sites []string) map[string]string {
			return node.OwnSites(ctx, sites, []string{"10.9.9.9:8090", "127.0.0.1:9100"}, nil)
		},
		Post: func(context.Context, time.Time, *notices.Webhook, *notices.Notice) notices.Result {
			return notices.Result{Err: errors.New("the receiver answered 503"), Status: 503}
		},
		Shared: f.docs, Controls: func() *room.Controls { return nil }, Board: func() *draw.Board { return nil },
		Time: func() fleettime.Time { return fleettime.TimeOf(time.Now()) },
	})
	f.api = client{t, server}
	f.logins = access.New(access.Options{
		Docs: fakes.NewDocuments(), Log: log, Token: server.Principal,
		Now: func() time.Time {
			f.mu.Lock()
			defer f.mu.Unlock()
			return time.Now().Add(f.later)
		},
	})
	f.Console = console.New(console.Options{
		API: server, Log: log, Live: f.past.live, Once: f.logins.Once,
		Who: func(r *http.Request) (control.Principal, bool) {
			if len(r.Cookies()) > 0 {
				return f.logins.Who(r)
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.who, f.who.Role != ""
		},
	})
	return f.as(control.Admin)
}

// client calls the API as an admin.
type client struct {
	testing.TB
	server *control.Server
}

// make makes a room and returns its ID.
func (c client) make(name string, total, rate int, more map[string]any) string {
	c.Helper()
	body := map[string]any{
		"name": name, "host": name + ".example", "total_active_users": total,
		"new_users_per_minute": rate,
	}
	maps.Copy(body, more)
	var made api.Room
	testkit.NoError(c, c.call(http.MethodPost, "/zones/"+control.Zone+"/waiting_rooms", body, &made))
	return made.Id
}

// call calls the API as an admin.
func (c client) call(method, path string, body, result any) error {
	return c.server.Call(c.Context(), control.Principal{ID: "t", Name: "Ben", Role: control.Admin}, "192.0.2.1:1", method,
		path, body, result)
}

// patch changes the controls of a room.
func (c client) patch(id string, body any) {
	c.Helper()
	testkit.NoError(c, c.call(http.MethodPatch, "/vestibule/rooms/"+id+"/controls", body, nil))
}

func (c client) controls(id string) (got api.Controls) {
	c.Helper()
	testkit.NoError(c, c.call(http.MethodGet, "/vestibule/rooms/"+id+"/controls", nil, &got))
	return got
}

// count sets the numbers of a room.
func (f *fixture) count(name string, n control.Numbers) {
	n.Complete = true
	f.play(func() { f.numbers[room.IDOf(name)] = n })
}

// answer is a page.
type answer struct {
	code   int
	header http.Header
	body   string
}

// is reports an answer with another status.
func (a answer) is(t testing.TB, code int) {
	t.Helper()
	if a.code != code {
		t.Errorf("status %d, want %d: %s", a.code, code, a.text())
	}
}

// text returns the words of a page, without its tags.
func (a answer) text() string {
	text := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(a.body, " ")
	return strings.Join(strings.Fields(html.UnescapeString(text)), " ")
}

func (f *fixture) do(r *http.Request) answer {
	f.Helper()
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	a := answer{w.Code, w.Header(), w.Body.String()}
	if strings.HasPrefix(a.header.Get("Content-Type"), "text/html") && w.Code != http.StatusSeeOther {
		wellFormed(f, a.body)
	}
	return a
}

func (f *fixture) get(path string) answer {
	f.Helper()
	return f.do(httptest.NewRequest(http.MethodGet, path, nil))
}

// see returns a page that must be there.
func (f *fixture) see(path string) answer {
	f.Helper()
	a := f.get(path)
	if a.code != http.StatusOK {
		f.Fatalf("%s: %d %s", path, a.code, a.text())
	}
	return a
}

// posted returns a request of the console's pages. A form that is from no page is new.
func posted(path string, form url.Values) *http.Request {
	if !form.Has("once") {
		form = maps.Clone(form)
		if form == nil {
			form = url.Values{}
		}
		form.Set("once", console.NewForm())
	}
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return r
}

func (f *fixture) post(path string, form url.Values) answer {
	f.Helper()
	return f.do(posted(path, form))
}

// wellFormed checks that the tags of a page are balanced, and that it has no script or style of its own.
func wellFormed(t testing.TB, body string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(strings.TrimPrefix(body, "<!doctype html>")))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	var open []string
	ids := map[string]bool{}
	for {
		token, err := d.RawToken()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Errorf("the page is no HTML: %v\n%s", err, body)
			return
		}
		switch tag := token.(type) {
		case xml.StartElement:
			for _, a := range tag.Attr {
				if a.Name.Local == "style" || strings.HasPrefix(a.Name.Local, "on") {
					t.Errorf("<%s %s> is not allowed by the policy", tag.Name.Local, a.Name.Local)
				}
				if a.Name.Local == "id" && ids[a.Value] {
					t.Errorf("the id %q is there twice", a.Value)
				}
				ids[a.Value] = ids[a.Value] || a.Name.Local == "id"
			}
			switch tag.Name.Local {
			case "meta", "link", "input", "br", "img", "hr":
			default:
				open = append(open, tag.Name.Local)
			}
		case xml.EndElement:
			if len(open) == 0 || open[len(open)-1] != tag.Name.Local {
				t.Errorf("</%s> closes %v\n%s", tag.Name.Local, open, body)
				return
			}
			open = open[:len(open)-1]
		}
	}
	if len(open) > 0 {
		t.Errorf("open at the end: %v", open)
	}
}

var (
	formTag  = regexp.MustCompile(`(?s)<form([^>]*)>(.*?)</form>`)
	inputTag = regexp.MustCompile(`(?s)<input([^>]*)>|<textarea([^>]*)>(.*?)</textarea>|<select([^>]*)>(.*?)</select>`)
	attr     = regexp.MustCompile(`([a-z-]+)(?:="([^"]*)")?`)
)

// form is a form of a page.
type form struct {
	method, action string
	fields         url.Values
}

func attributes(tag string) map[string]string {
	out := map[string]string{}
	for _, m := range attr.FindAllStringSubmatch(tag, -1) {
		out[m[1]] = html.UnescapeString(m[2])
	}
	return out
}

// form finds the form of a page that goes to an address and has these fields. It returns the fields as a browser
// without script sends them.
func (a answer) form(t testing.TB, action string, has ...string) form {
	t.Helper()
	for _, m := range formTag.FindAllStringSubmatch(a.body, -1) {
		at := attributes(m[1])
		missing := func(name string) bool { return !strings.Contains(m[2], `name="`+name+`"`) }
		if at["action"] != action || slices.ContainsFunc(has, missing) {
			continue
		}
		out := form{at["method"], at["action"], url.Values{}}
		for _, in := range inputTag.FindAllStringSubmatch(m[2], -1) {
			field := attributes(in[1] + in[2] + in[4])
			value := field["value"]
			if in[2] != "" {
				value = html.UnescapeString(in[3])
			}
			if in[4] != "" {
				if s := regexp.MustCompile(`<option value="([^"]*)" selected`).FindStringSubmatch(in[5]); s != nil {
					value = s[1]
				}
			}
			_, checked := field["checked"]
			if (field["type"] == "radio" || field["type"] == "checkbox") && !checked {
				continue
			}
			out.fields.Add(field["name"], value)
		}
		return out
	}
	t.Fatalf("no form goes to %s with %v:\n%s", action, has, a.body)
	return form{}
}

// follow opens a page, fills in a form of it and sends it.
func (f *fixture) follow(a answer, action string, fill map[string]string) answer {
	f.Helper()
	form := a.form(f, action, slices.Collect(maps.Keys(fill))...)
	for name, value := range fill {
		form.fields.Set(name, value)
	}
	if form.method == "post" {
		if !form.fields.Has("once") {
			f.Errorf("the form to %s can be sent twice", action)
		}
		form.fields.Del("once") // as if the page were opened again
		return f.post(action, form.fields)
	}
	return f.get(action + "?" + form.fields.Encode())
}

// act does an action of a room from the page of the room on, as a browser without script.
func (f *fixture) act(id, name string, fill map[string]string) (confirm, after answer) {
	f.Helper()
	action := "/console/rooms/" + id + "/actions/" + name
	page := f.see("/console/rooms/" + id)
	if strings.Contains(page.body, `action="`+action+`"`) {
		confirm = f.follow(page, action, fill)
	} else if strings.Contains(page.body, `href="`+action+`"`) {
		confirm = f.get(action)
	} else {
		f.Fatalf("the page of the room does not offer %s:\n%s", name, page.body)
	}
	if confirm.code != http.StatusOK {
		return confirm, confirm
	}
	after = f.follow(confirm, action, map[string]string{"reason": "a test"})
	if after.code == http.StatusSeeOther {
		after = f.see(after.header.Get("Location"))
	}
	return confirm, after
}

func contains(t testing.TB, a answer, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(a.text(), text) {
			t.Errorf("%q is not in the page: %d %s", text, a.code, a.text())
		}
	}
}

func lacks(t testing.TB, a answer, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(a.body, text) {
			t.Errorf("%q is in the page: %s", text, a.body)
		}
	}
}

// persons are sessions of persons: documents named by them.
type persons struct{ docs *fakes.Documents }

const personKeys = "person."

func (p persons) List(context.Context) (out []control.Session, err error) {
	p.docs.Lock()
	defer p.docs.Unlock()
	for key := range p.docs.Data {
		if id, ok := strings.CutPrefix(key, personKeys); ok {
			out = append(out, control.Session{
				ID: id, Who: control.Principal{ID: "oidc:" + id, Name: "Cleo", Role: control.Editor}, Made: time.Now(), Seen: time.Now(),
			})
		}
	}
	return out, nil
}

func (p persons) End(_ context.Context, id string) (bool, error) {
	p.docs.Lock()
	defer p.docs.Unlock()
	_, ok := p.docs.Data[personKeys+id]
	delete(p.docs.Data, personKeys+id)
	return ok, nil
}
