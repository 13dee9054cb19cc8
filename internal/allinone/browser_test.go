//go:build !race

// The race detector would run on a browser's protocol here; the tests of this package without a browser cover the
// nodes with it.

package allinone

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"go.uber.org/goleak"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/wire"
	"vestibule/internal/lab/browsertest"
	"vestibule/internal/lab/testkit"
)

func init() { tests = func(m *testing.M) goleak.TestingM { return inOneBrowser{m} } }

// inOneBrowser runs tests with one shared browser.
type inOneBrowser struct{ *testing.M }

func (m inOneBrowser) Run() int { return browsertest.Main(m.M) }

// TestBrowser: a real browser that comes to a full room sees the waiting page, in light and in dark mode, and
// enters by itself when a permit is free.
func TestBrowser(t *testing.T) {
	t.Parallel()
	// Sessions outlast the test even if the machine pauses; T is raised instead.
	tree, _ := grow(t, 1, 60, 10*time.Minute)
	ctx := browsertest.Open(t)
	first, second := newBrowser(t), newBrowser(t)
	edge := tree.Info.Edges[0].URL
	first.stays(edge)
	if second.open(edge).inside {
		t.Fatal("came in beyond T")
	}
	waits, stop := context.WithCancel(t.Context())
	var ahead sync.WaitGroup
	defer ahead.Wait()
	defer stop()
	ahead.Go(func() {
		if _, err := second.wait(waits, edge); err != nil && waits.Err() == nil {
			t.Errorf("the second visitor: %v", err)
		}
	})
	everywhere(t, tree, "every edge counts who waits", func(v *wire.View) bool { return v.Line.Total() > .9 })
	screens := os.Getenv("VESTIBULE_SCREENS") // folder for screenshots, for inspection

	browsertest.Do(t, ctx, chromedp.Navigate(tree.Info.Edges[1].URL), chromedp.WaitVisible(chromedp.CSS("dl")))
	counted := regexp.MustCompile(`People ahead of you\s+1`)
	title, text := browsertest.See(t, ctx, chromedp.Title()), ""
	eventually(t, "the place is counted", func() bool { // no number is shown before
		text = browsertest.See(t, ctx, chromedp.Text(chromedp.CSS("main")))
		return counted.MatchString(text)
	})
	// The browser supports gzip.
	const sizes = `(e => e.encodedBodySize > 0 && e.encodedBodySize < e.decodedBodySize / 2)(performance.getEntriesByType("navigation")[0])`
	if !browsertest.See(t, ctx, chromedp.Evaluate[bool](sizes)) {
		t.Error("the page came as it is, not with gzip")
	}
	background := map[string]string{}
	for _, scheme := range []string{"light", "dark"} {
		browsertest.See(t, ctx, func(ctx context.Context, target *chromedp.Target) (cdp.Empty, error) {
			return cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
			})
		})
		background[scheme] = browsertest.See(t, ctx,
			chromedp.Evaluate[string](`getComputedStyle(document.documentElement).backgroundColor`))
		browsertest.Keep(t, screens, "waiting-"+scheme+".png", browsertest.See(t, ctx, chromedp.FullScreenshot(100)))
	}
	t.Logf("%q: %s", title, strings.Join(strings.Fields(text), " "))
	for _, want := range []string{`Estimated wait\s+\S`, `In line since\s+\d`, `Last update\s+\d`} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("the waiting page does not say %q", want)
		}
	}
	if background["light"] == background["dark"] {
		t.Errorf("the page is %s in light and in dark", background["light"])
	}

	// No interaction from here on.
	begun := time.Now()
	edit(t, tree, "total_active_users: 1", "total_active_users: 3")
	eventually(t, "the browser is in", func() bool {
		heading, err := browsertest.Look(ctx, chromedp.Evaluate[string](`document.querySelector("h1")?.textContent ?? ""`))
		return err == nil && heading == "You are in" // an error: the page is being replaced
	})
	t.Logf("the browser came in by itself after %v", time.Since(begun).Round(100*time.Millisecond))
	browsertest.Keep(t, screens, "inside.png", browsertest.See(t, ctx, chromedp.FullScreenshot(100)))
	s := tree.Origin.Stats()
	if s.Peak > 3 || s.Total < 2 {
		t.Errorf("the site counted %d sessions, %d at once; want the first and the browser's, and at most 3", s.Total, s.Peak)
	}
}

// TestOnePlacePerBrowser: neither a reload nor a second tab at another edge is a new visitor, and leaving in one
// tab leaves in all.
func TestOnePlacePerBrowser(t *testing.T) {
	t.Parallel()
	// Nobody else is admitted or held meanwhile.
	tree, _ := grow(t, 1, 60, 10*time.Minute, func(o *Options) { o.Params.Hold = 100 * time.Millisecond })
	ctx := browsertest.Open(t)
	newBrowser(t).stays(tree.Info.Edges[0].URL)
	do := func(ctx context.Context, steps ...chromedp.Action[chromedp.Void]) {
		t.Helper()
		browsertest.Do(t, ctx, steps...)
	}
	waiting := chromedp.WaitVisible(chromedp.CSS("dl.few"))
	joined := chromedp.Evaluate[string](`JSON.parse(document.getElementById("now").textContent).pop().joinedAt`)
	do(ctx, chromedp.Navigate(tree.Info.Edges[0].URL), waiting)
	place := browsertest.See(t, ctx, joined)
	do(ctx, chromedp.Reload(), waiting)
	if again := browsertest.See(t, ctx, joined); again != place {
		t.Errorf("joined at %s, after a reload at %s", place, again)
	}
	tab, _ := browsertest.Tab(t, ctx)
	do(tab, chromedp.Navigate(tree.Info.Edges[1].URL), waiting)
	if again := browsertest.See(t, tab, joined); again != place {
		t.Errorf("joined at %s, in a second tab at %s", place, again)
	}
	// A pending poll of the first tab at the other edge may restore the ticket, since that edge does not know yet.
	// Leaving again is final.
	eventually(t, "the visitor has left the line in every tab", func() bool {
		do(ctx, chromedp.Navigate("about:blank"))
		do(tab, chromedp.Navigate(tree.Info.Edges[1].URL), waiting)
		// Not with the mouse: an update of the page may move the button.
		browsertest.See(t, tab, chromedp.Evaluate[bool](`document.getElementById("leave").requestSubmit(), true`))
		do(tab, chromedp.WaitVisible(chromedp.CSS(".l a")))
		do(ctx, chromedp.Navigate(tree.Info.Edges[0].URL), waiting)
		return browsertest.See(t, ctx, joined) > place
	})
	if s := tree.Origin.Stats(); s.Total != 1 {
		t.Errorf("the site counted %d sessions, want that of the first visitor", s.Total)
	}
}

// TestABrowserGoesAway: closing the page ends the count at once, and keeps the place; a reload changes no count;
// the same applies to a custom page with our script.
func TestABrowserGoesAway(t *testing.T) {
	t.Parallel()
	for name, page := range map[string]string{
		"built-in": "",
		"custom":   `<!doctype html><title>wait</title><dl class="few"><dd id="joined">{{joinedAt}}</dd></dl><script>window.vestibule = true</script>{{{liveScript}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Nobody else is admitted meanwhile.
			tree, _ := grow(t, 1, 60, 10*time.Minute, func(o *Options) { o.Params.Hold = 100 * time.Millisecond })
			ctx := browsertest.Open(t)
			if page != "" {
				if err := os.WriteFile(filepath.Join(filepath.Dir(tree.Info.Rooms), "page.html"), []byte(page), 0o600); err != nil {
					t.Fatal(err)
				}
				edit(t, tree, "- name: demo\n", "- name: demo\n    waiting_page: page.html\n")
			}
			edge := tree.Info.Edges[0].URL
			newBrowser(t).stays(edge)
			if page != "" {
				eventually(t, "the edge has the page", func() bool {
					resp, err := http.Get(edge)
					if err != nil {
						return false
					}
					defer resp.Body.Close()
					return strings.Contains(resp.Header.Get("Content-Security-Policy"), "nonce-")
				})
			}
			counted := func() int64 { return tree.edges[0].Status().Rooms["demo"].Waiting }
			do := func(ctx context.Context, steps ...chromedp.Action[chromedp.Void]) {
				t.Helper()
				browsertest.Do(t, ctx, steps...)
			}
			waiting := chromedp.WaitVisible(chromedp.CSS("dl.few"))
			joined := chromedp.Evaluate[string](`JSON.parse(document.getElementById("now")?.textContent ?? "[{}]").pop().joinedAt || document.getElementById("joined").textContent`)
			var place string
			var gone [2]bool // departures: by closing the page, and by navigating to another one
			for round := 0; round < 8 && (!gone[0] || !gone[1]); round++ {
				tab, closeTab := browsertest.Tab(t, ctx)
				do(tab, chromedp.Navigate(edge), waiting)
				if at := browsertest.See(t, tab, joined); round == 0 {
					place = at
				} else if at != place {
					t.Errorf("joined at %s, then at %s", place, at)
				}
				eventually(t, "the visitor is counted", func() bool { return counted() == 1 })
				for range 3 {
					// Near its turn a custom page polls by itself: an error at that time.
					eventually(t, "the page is reloaded", func() bool {
						for _, step := range []chromedp.Action[chromedp.Void]{chromedp.Reload(), waiting} {
							if _, err := browsertest.Look(tab, step); err != nil {
								return false
							}
						}
						return true
					})
					if n := counted(); n != 1 {
						t.Errorf("%d are counted after a reload", n)
					}
				}
				if round%2 == 1 {
					do(tab, chromedp.Navigate("about:blank"))
				} else {
					closeTab()
				}
				// A poll that crosses with the departure counts the visitor for another minute: then the next round
				// decides. A slow machine gets more time in later rounds, but less than that minute.
				long := 3 * time.Second
				if round >= 4 {
					long = 30 * time.Second
				}
				tick := time.NewTicker(10 * time.Millisecond)
				for end := time.Now().Add(long); !gone[round%2] && time.Now().Before(end); <-tick.C {
					gone[round%2] = counted() == 0
				}
				tick.Stop()
				closeTab()
			}
			if !gone[0] || !gone[1] {
				t.Errorf("counted no more when the page was closed: %v, when it was left: %v", gone[0], gone[1])
			}
		})
	}
}

// TestABrowserThatKeepsNoCookies: the page shows that cookies are blocked, detected by the script or by the edge,
// and reloads slowly.
func TestABrowserThatKeepsNoCookies(t *testing.T) {
	t.Parallel()
	tree, _ := grow(t, 1, 60, 10*time.Minute)
	newBrowser(t).stays(tree.Info.Edges[0].URL)
	to := testkit.Must(url.Parse(tree.Info.Edges[0].URL))(t)
	for _, tc := range []struct {
		name, inject string
		noScript     bool
		polls        int32 // before it knows
	}{
		// The test triggers actions that are due after a minute.
		{
			"cookies are lost on the way",
			`const wait = setTimeout; window.setTimeout = (f, ms) => ms >= 60000 ? (window.afterAMinute = f, 0) : wait(f, ms)`,
			false, 1,
		},
		{"the browser says so", `Object.defineProperty(navigator, "cookieEnabled", {get: () => false})`, false, 0},
		{"without script", "", true, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var loads, polls, brought atomic.Int32
			way := browsertest.Serve(t, &httputil.ReverseProxy{
				Rewrite: func(p *httputil.ProxyRequest) {
					p.SetURL(to)
					p.Out.Host = p.In.Host
					switch {
					case p.In.Header.Get("Cookie") != "":
						brought.Add(1)
					case p.In.Header.Get("Sec-Fetch-Dest") == "document":
						loads.Add(1)
					case p.In.Header.Get("Vestibule-Poll") != "":
						polls.Add(1)
					}
				},
				ModifyResponse: func(r *http.Response) error {
					r.Header.Del("Set-Cookie")
					return nil
				},
			})
			ctx := browsertest.Open(t)
			browsertest.See(t, ctx, func(ctx context.Context, target *chromedp.Target) (cdp.Empty, error) {
				return cdp.Call(ctx, target, emulation.SetScriptExecutionDisabled,
					emulation.SetScriptExecutionDisabledParams{Value: tc.noScript})
			})
			browsertest.See(t, ctx,
				func(ctx context.Context, target *chromedp.Target) (cdppage.AddScriptToEvaluateOnNewDocumentResult, error) {
					return cdp.Call(ctx, target, cdppage.AddScriptToEvaluateOnNewDocument,
						cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: tc.inject})
				})
			browsertest.Do(t, ctx, chromedp.Navigate(way))
			informed := func() bool {
				text, err := browsertest.Look(ctx, chromedp.Evaluate[string](`document.querySelector("main")?.innerText ?? ""`))
				return err == nil && strings.Contains(text, "Your browser blocks cookies") &&
					strings.Contains(text, "Allow them for this site") && !strings.Contains(text, "People ahead")
			}
			eventually(t, "the page shows it", informed)
			if n := loads.Load(); n != 1 && !tc.noScript {
				t.Errorf("the page was loaded %d times before", n)
			}
			if n := polls.Load(); n != tc.polls || brought.Load() > 0 {
				t.Errorf("it asked %d times, %d times with a cookie", n, brought.Load())
			}
			if tc.polls > 0 {
				eventually(t, "it sets out to load the page again after a minute", func() bool {
					return browsertest.See(t, ctx, chromedp.Evaluate[bool](`!!window.afterAMinute && (wait(afterAMinute, 50), true)`))
				})
				eventually(t, "it loads the page again", func() bool { return loads.Load() >= 2 })
			}
			if tc.polls > 0 || tc.noScript {
				// state, retryAfterSeconds
				retry := chromedp.Evaluate[int](`(s => s[0] == "blocked" ? s[14] : 0)(JSON.parse(document.getElementById("now")?.textContent ?? "[]"))`)
				eventually(t, "the edge knows", func() bool {
					n, err := browsertest.Look(ctx, retry)
					return err == nil && n >= 60 && n <= 90
				})
			}
			if n := polls.Load(); n != tc.polls {
				t.Errorf("it asked %d times", n)
			}
		})
	}
	t.Cleanup(func() {
		if s := tree.Origin.Stats(); s.Total != 1 {
			t.Errorf("the site counted %+v, want one session, that of the first visitor", s)
		}
	})
}

// TestTheHeadOfTheLineInABrowser: a browser's requests besides a visit take no permit, the head of the queue sees
// the page on every load, and an open page stays during a restart of everything, shows that, and enters by itself.
func TestTheHeadOfTheLineInABrowser(t *testing.T) {
	t.Parallel()
	// The site outlives the restart: at another address, whoever enters by the rooms of before would find nothing.
	site := testkit.Must(NewOrigin(OriginOptions{
		Listen: "127.0.0.1:0", Session: 10 * time.Minute,
		Log: slog.New(slog.DiscardHandler),
	}))(t)
	var running sync.WaitGroup
	running.Go(func() {
		if err := site.Run(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(running.Wait)
	var o Options
	small := func(opts *Options) {
		opts.Origin = site.URL()
		// Polls at the head are held for an hour: a held page load would never finish.
		opts.DataCenters, opts.Edges, opts.Params.Hold = []string{"nairobi"}, 1, time.Hour
		if o.DataDir != "" {
			opts.DataDir = o.DataDir
		}
		o = *opts
	}
	tree, _ := grow(t, 2, 600, 10*time.Minute, small)
	room := func() admission.Ledger { return tree.edges[0].Status().Rooms["demo"] }

	var to atomic.Pointer[url.URL] // the edge, nil while stopped
	aim := func() {
		u := testkit.Must(url.Parse(tree.Info.Edges[0].URL))(t)
		to.Store(u)
	}
	aim()
	var preflights, pictures, calls, lost atomic.Int32
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	proxy := &httputil.ReverseProxy{
		Transport: transport, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(to.Load())
			p.Out.Host = p.In.Host
		},
		// like a refused connection
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	way := browsertest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch dest := r.Header.Get("Sec-Fetch-Dest"); {
		case r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") == http.MethodPut:
			preflights.Add(1)
		case dest == "image":
			pictures.Add(1)
		case dest == "empty" && r.Method == http.MethodGet && r.Header.Get("Vestibule-Poll") == "":
			calls.Add(1)
		case dest == "document" && to.Load() == nil:
			lost.Add(1)
		}
		if to.Load() == nil {
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(w, r)
	}))
	app := browsertest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, //nolint:errcheck // the browser tells
			"<!doctype html><link rel=icon href=data:,><title>another site</title>")
	}))
	inside := browsertest.Open(t)

	// A page of another site sends a request before any visitor.
	browsertest.Do(t, inside, chromedp.Navigate(app))
	browsertest.See(t, inside, chromedp.Evaluate[bool](fmt.Sprintf(`Promise.allSettled([
		fetch(%[1]q + "/cart", {method: "PUT"}), fetch(%[1]q + "/stock"),
		new Promise(done => { const i = new Image(); i.onload = i.onerror = done; i.src = %[1]q + "/favicon.ico" }),
	]).then(() => true)`, way), chromedp.EvalAwaitPromise))
	if preflights.Load() != 1 || pictures.Load() != 1 || calls.Load() != 1 {
		t.Fatalf("the browser asked for %d preflights, %d pictures and %d calls, want one of each", preflights.Load(),
			pictures.Load(), calls.Load())
	}
	if n := room().Admitted; n != 0 {
		t.Errorf("they took %d permits", n)
	}
	// Both permits are free for visitors.
	browsertest.Do(t, inside, chromedp.Navigate(way))
	says := func(ctx context.Context) string { // the state of the page, "" while it is replaced
		text, err := browsertest.Look(ctx,
			chromedp.Evaluate[string](`(document.getElementById("vr")?.dataset.state || document.querySelector("h1")?.textContent) ?? ""`))
		if err != nil {
			return ""
		}
		return text
	}
	const shop = "You are in"
	eventually(t, "the browser is in", func() bool { return says(inside) == shop })
	browsertest.Do(t, inside, chromedp.Reload())
	if n, text := room().Admitted, says(inside); n != 1 || text != shop {
		t.Errorf("%q; the browser and its pictures took %d permits", text, n)
	}
	newBrowser(t).stays(tree.Info.Edges[0].URL)

	// The next visitor is at the head of a full room's queue.
	waits, _ := browsertest.Tab(t, inside, chromedp.WithNewBrowserContext())
	line := chromedp.WaitVisible(chromedp.CSS("dl.few"))
	held := func() { eventually(t, "the page's question is held", func() bool { return room().Held > 0 }) }
	browsertest.Do(t, waits, chromedp.Navigate(way), line)
	held()
	browsertest.Do(t, waits, chromedp.Reload(), line)
	held()
	second, leave := browsertest.Tab(t, waits)
	browsertest.Do(t, second, chromedp.Navigate(way), line)
	leave()
	if n := room().Admitted; n != 2 {
		t.Errorf("%d were let in, T is 2", n)
	}

	// Everything is restarted with one more permit.
	held()
	before := site.Stats().Total
	to.Store(nil)
	testkit.NoError(t, tree.Stop())
	seen := map[string]bool{}
	look := func(want string) func() bool {
		return func() bool {
			text := says(waits)
			seen[text] = true
			return text == want
		}
	}
	eventually(t, "the page says that nobody answers", look("offline"))
	tree, _ = grow(t, 3, 600, 10*time.Minute, small)
	aim()
	took := eventually(t, "whoever waited is in", look(shop))
	t.Logf("in %v after everything was ready again; the page was %v", took.Round(100*time.Millisecond),
		slices.Sorted(maps.Keys(seen)))
	for text := range seen {
		if !slices.Contains([]string{"", "queued", "next", "paused", "moment", "offline", "entering", shop}, text) {
			t.Errorf("the page was %q", text)
		}
	}
	if n := lost.Load(); n > 0 {
		t.Errorf("the page was loaded %d times while nobody answered", n)
	}
	if n := site.Stats().Total - before; n != 1 {
		t.Errorf("the site counted %d new sessions after the restart, want that of the waiting visitor", n)
	}
}
