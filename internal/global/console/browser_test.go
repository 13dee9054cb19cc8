package console_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"vestibule/internal/global/control"
	"vestibule/internal/global/control/api"
	"vestibule/internal/lab/browsertest"
	"vestibule/internal/lab/figures"
	"vestibule/internal/lab/testkit"
)

func TestMain(m *testing.M) { os.Exit(browsertest.Main(m)) }

// axeFile is the accessibility checker axe-core, with its licence next to it.
const axeFile = "../../page/preview/testdata/axe.min.js"

var (
	do         = browsertest.Do
	shot       = browsertest.Shot
	violations = browsertest.Violations
	waitFor    = browsertest.WaitFor
)

func theme(name string) chromedp.Action[cdp.Empty] {
	return func(ctx context.Context, target *chromedp.Target) (cdp.Empty, error) {
		return cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
		})
	}
}

// sale fills the fixture with a busy shop and returns its ID.
func (f *fixture) sale() string {
	f.Helper()
	id := f.api.make("autumn-sale", 2000, 200, map[string]any{"vestibule": map[string]any{}})
	f.count("autumn-sale", control.Numbers{Active: 1987, Waiting: 12400, Longest: 61 * 60})
	f.api.make("tickets", 5000, 600, nil)
	f.count("tickets", control.Numbers{Active: 1214})
	gallery := f.api.make("gallery", 300, 60, nil)
	f.count("gallery", control.Numbers{Active: 300, Waiting: 42, Longest: 140})
	f.api.make("archive", 100, 60, map[string]any{"suspended": true})
	f.api.patch(gallery, map[string]any{"pause": map[string]any{}, "reason": "the till is down"})
	f.api.patch(id, map[string]any{
		"limits": map[string]any{
			"new_users_per_minute": 180,
			"until":                time.Now().Add(25 * time.Minute).UTC().Format(time.RFC3339),
		}, "reason": "payment provider is slow",
	})
	f.api.patch(id, map[string]any{"message": map[string]any{"text": "Size 8 is sold out."}, "reason": "size 8 is gone"})
	return id
}

// plan gives a room events and rules, and returns the ID of the event that gathers visitors now.
func (f *fixture) plan(id string) string {
	f.Helper()
	room := "/zones/" + control.Zone + "/waiting_rooms/" + id
	now := time.Now().UTC().Truncate(time.Minute)
	var e api.Event
	err := f.api.call(http.MethodPost, room+"/events", map[string]any{
		"name": "autumn-launch", "description": "All shoes at half price", "prequeue_start_time": now.Add(-20 * time.Minute),
		"event_start_time": now.Add(40 * time.Minute),
		"event_end_time":   now.Add(4 * time.Hour), "total_active_users": 5000, "new_users_per_minute": 900,
	}, &e)
	if err == nil {
		err = f.api.call(http.MethodPost, room+"/events", map[string]any{
			"name": "late-hour", "shuffle_at_event_start": true, "prequeue_start_time": now.Add(29 * time.Hour),
			"event_start_time": now.Add(30 * time.Hour), "event_end_time": now.Add(31 * time.Hour),
		}, nil)
	}
	if err == nil {
		err = f.api.call(http.MethodPut, room+"/rules", []map[string]any{
			{
				"action": "bypass_waiting_room", "expression": `http.request.uri.path eq "/health"`,
				"description": "probes of the load balancer",
			},
			{
				"action": "bypass_waiting_room", "expression": `ip.src in {192.0.2.0/24}`, "description": "the office",
				"enabled": false,
			},
		}, nil)
	}
	if err == nil {
		err = f.api.call(http.MethodPost, "/vestibule/webhooks", map[string]any{
			"name": "pager", "url": "https://hooks.example/x",
			"kinds": []string{"room.paused", "alarm.raised"},
		}, nil)
	}
	if err == nil {
		err = f.api.call(http.MethodPost, "/vestibule/tokens", map[string]any{"name": "terraform", "role": "editor"}, nil)
	}
	testkit.NoError(f, err)
	return e.Id
}

// lighthouse returns the accessibility of a page by Lighthouse, of 100.
func lighthouse(t *testing.T, url string) float64 {
	t.Helper()
	chromium := testkit.Must(exec.LookPath("chromium"))(t)
	run := exec.CommandContext(t.Context(), os.Getenv("LIGHTHOUSE"), url, "--quiet",
		"--ignore-status-code", "--only-categories=accessibility", "--chrome-flags=--headless --no-sandbox", "--output=json")
	run.Env = append(os.Environ(), "CHROME_PATH="+chromium)
	out, err := run.Output()
	var report struct {
		Categories map[string]struct{ Score float64 }
	}
	if err == nil {
		err = json.Unmarshal(out, &report)
	}
	testkit.NoError(t, err)
	return 100 * report.Categories["accessibility"].Score
}

// Every screen, in a real browser, in both themes and on a phone: the policy allows its script and style, axe-core
// finds nothing, and it fits the width. With SCREENSHOTS set to a folder it keeps pictures of each screen, and of its
// first view. With LIGHTHOUSE set to its path, that gives each screen all points for accessibility.
func TestScreensInABrowser(t *testing.T) {
	f := start(t)
	id := f.sale()
	f.play(func() { f.fleet = someFleet() })
	event := f.plan(id)
	url := browsertest.Serve(t, f)
	ctx := browsertest.Open(t)
	axe := testkit.Must(os.ReadFile(axeFile))(t)
	folder := os.Getenv("SCREENSHOTS")
	room := "/console/rooms/" + id
	for _, screen := range []struct{ name, path, prepare string }{
		{"rooms", "/console/", ""},
		{"room", room, ""},
		{"room-limits", room, `document.querySelectorAll("details")[2].open = true`},
		{"room-done", room + "?done=limits", ""},
		{"confirm", room + "/actions/limits?rate=800&minutes=20&for=minutes", ""},
		{"fault", room + "/actions/limits?rate=x&minutes=20&for=minutes", ""},
		{"failed", "/console/nothing", ""},
		{"fleet", "/console/fleet", ""},
		{"history", room + "/history", ""},
		{"report", room + "/history?event=" + event, `document.querySelector("figure details").open = true`},
		{"events", room + "/events", ""},
		{"event", room + "/events/" + event, ""},
		{"newevent", room + "/events/new", ""},
		{"rules", room + "/rules?host=autumn-sale.example&path=/health&method=GET", ""},
		{"page", room + "/page", ""},
		{"changes", room + "/changes", ""},
		{"audit", "/console/audit", ""},
		{"webhooks", "/console/webhooks", ""},
		{"access", "/console/access", `document.querySelector("details").open = true`},
	} {
		for _, look := range []struct {
			name   string
			theme  string
			width  int64
			height int64
		}{
			{"", "light", 1280, 800},
			{"-dark", "dark", 1280, 800},
			{"-phone", "light", 390, 844},
			{"-phone-dark", "dark", 390, 844},
		} {
			name := screen.name + look.name
			if folder == "" && !strings.HasPrefix(screen.name, "room") && (look.name == "-dark" || look.name == "-phone") {
				continue // each theme and each width was seen once
			}
			browsertest.See(t, ctx, theme(look.theme))
			do(t, ctx, chromedp.EmulateViewport(look.width, look.height), chromedp.Navigate(url+screen.path))
			if screen.prepare != "" {
				browsertest.See(t, ctx, chromedp.Evaluate[bool](screen.prepare+`;true`))
			}
			if n := browsertest.See(t, ctx, chromedp.Evaluate[int64](`document.documentElement.scrollWidth`)); n > look.width {
				t.Errorf("%s is %d wide", name, n)
			}
			if hidden := browsertest.See(t, ctx, chromedp.Evaluate[[]string](`[...document.querySelectorAll(".top nav a, .tabs a, .acts .button")]
				.filter(a => { const r = a.getBoundingClientRect(); return r.left < 0 || r.right > innerWidth || r.bottom > innerHeight; }).map(a => a.textContent)`)); len(hidden) > 0 && screen.prepare == "" {
				t.Errorf("%s: the first view lacks %q", name, hidden)
			}
			if n := browsertest.See(t, ctx, chromedp.Evaluate[int64](`document.styleSheets.length`)); n == 0 {
				t.Errorf("%s has no style", name)
			}
			for _, v := range violations(t, ctx, string(axe)) {
				t.Errorf("%s: %s", name, v)
			}
			if look.name == "" && os.Getenv("LIGHTHOUSE") != "" {
				figures.Check(t, "lighthouse: accessibility", name, lighthouse(t, url+screen.path))
			}
			if folder != "" {
				browsertest.Keep(t, folder, "first-"+name+".png", browsertest.See(t, ctx, chromedp.CaptureScreenshot()))
				browsertest.Keep(t, folder, name+".png", shot(t, ctx, look.width, look.height))
			}
		}
	}
}
