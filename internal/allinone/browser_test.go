package allinone

import (
	"context"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"vestibule/internal/browsertest"
	"vestibule/internal/wire"
)

// TestBrowser: a real browser that comes to a full room sees the waiting page,
// in light and in dark, and comes in by itself when a slot is free.
func TestBrowser(t *testing.T) {
	t.Parallel()
	// Sessions outlast the test also where the machine stands still; T is raised instead.
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
	screens := os.Getenv("VESTIBULE_SCREENS") // a folder in which pictures are kept, for who wants to look

	browsertest.Do(t, ctx, chromedp.Navigate(tree.Info.Edges[1].URL), chromedp.WaitVisible(chromedp.CSS("dl")))
	counted := regexp.MustCompile(`People ahead of you\s+1`)
	title, text := browsertest.See(t, ctx, chromedp.Title()), ""
	eventually(t, "the place is counted", func() bool { // no number is told before
		text = browsertest.See(t, ctx, chromedp.Text(chromedp.CSS("main")))
		return counted.MatchString(text)
	})
	// The browser reads a page with gzip.
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
		background[scheme] = browsertest.See(t, ctx, chromedp.Evaluate[string](`getComputedStyle(document.documentElement).backgroundColor`))
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

	// Nobody touches the browser from here on.
	begun := time.Now()
	edit(t, tree, "total_active_users: 1", "total_active_users: 3")
	eventually(t, "the browser is in", func() bool {
		heading, err := browsertest.Look(ctx, chromedp.Evaluate[string](`document.querySelector("h1")?.textContent ?? ""`))
		return err == nil && heading == "You are in" // an error: the page is just being replaced
	})
	t.Logf("the browser came in by itself after %v", time.Since(begun).Round(100*time.Millisecond))
	browsertest.Keep(t, screens, "inside.png", browsertest.See(t, ctx, chromedp.FullScreenshot(100)))
	s := tree.Origin.Stats()
	if s.Peak > 3 || s.Total < 2 {
		t.Errorf("the site counted %d sessions, %d at once; want the first and the browser's, and at most 3", s.Total, s.Peak)
	}
}

// TestOnePlacePerBrowser: neither a reload nor a second tab at another edge is
// somebody new, and who leaves the line has left it in every tab.
func TestOnePlacePerBrowser(t *testing.T) {
	t.Parallel()
	// Nobody else is let in meanwhile, and nobody is held until then.
	tree, _ := grow(t, 1, 60, 10*time.Minute, func(o *Options) { o.Params.Hold = 100 * time.Millisecond })
	ctx := browsertest.Open(t)
	newBrowser(t).stays(tree.Info.Edges[0].URL)
	do := func(ctx context.Context, steps ...chromedp.Action[chromedp.Void]) {
		t.Helper()
		browsertest.Do(t, ctx, steps...)
	}
	waiting := chromedp.WaitVisible(chromedp.CSS("dl.few"))
	joined := chromedp.Evaluate[string](`JSON.parse(document.getElementById("now").textContent).joinedAt`)
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
	// A question of the first tab that is on its way to the other edge may bring the ticket
	// back: that edge does not know yet. Who leaves again has left.
	eventually(t, "the visitor has left the line in every tab", func() bool {
		do(ctx, chromedp.Navigate("about:blank"))
		do(tab, chromedp.Navigate(tree.Info.Edges[1].URL), waiting)
		// Not by the mouse: what the page is told may move the button away from under it.
		browsertest.See(t, tab, chromedp.Evaluate[bool](`document.getElementById("leave").requestSubmit(), true`))
		do(tab, chromedp.WaitVisible(chromedp.CSS(".l a")))
		do(ctx, chromedp.Navigate(tree.Info.Edges[0].URL), waiting)
		return browsertest.See(t, ctx, joined) > place
	})
	if s := tree.Origin.Stats(); s.Total != 1 {
		t.Errorf("the site counted %d sessions, want that of the first visitor", s.Total)
	}
}

// TestAPageThatGoesAway: who closes the page is counted no more at once, and keeps
// the place; a reload counts nobody twice and nobody less; so it is with a page of
// the operator's own that has our script.
func TestAPageThatGoesAway(t *testing.T) {
	t.Parallel()
	for name, page := range map[string]string{
		"built-in": "",
		"custom":   `<!doctype html><title>wait</title><dl class="few"><dd id="joined">{{joinedAt}}</dd></dl><script>window.vestibule = true</script>{{{liveScript}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Nobody else is let in meanwhile.
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
			joined := chromedp.Evaluate[string](`document.getElementById("joined").dateTime || document.getElementById("joined").textContent`)
			var place string
			var told [2]bool // that the page goes away: by closing it, by going on to another page
			for round := 0; round < 8 && (!told[0] || !told[1]); round++ {
				tab, closeTab := browsertest.Tab(t, ctx)
				do(tab, chromedp.Navigate(edge), waiting)
				if at := browsertest.See(t, tab, joined); round == 0 {
					place = at
				} else if at != place {
					t.Errorf("joined at %s, then at %s", place, at)
				}
				eventually(t, "the visitor is counted", func() bool { return counted() == 1 })
				for range 3 {
					// Near its turn a custom page asks for itself: an error where it just does.
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
				// A question of the page that crosses with its goodbye counts the visitor
				// for another minute: then the next round tells. A slow machine has more time
				// in later rounds, and less than that minute.
				long := 3 * time.Second
				if round >= 4 {
					long = 30 * time.Second
				}
				tick := time.NewTicker(10 * time.Millisecond)
				for end := time.Now().Add(long); !told[round%2] && time.Now().Before(end); <-tick.C {
					told[round%2] = counted() == 0
				}
				tick.Stop()
				closeTab()
			}
			if !told[0] || !told[1] {
				t.Errorf("counted no more when the page was closed: %v, when it was left: %v", told[0], told[1])
			}
		})
	}
}

// TestABrowserThatKeepsNoCookies: it is told so, whether the script finds out by what comes
// back or the edge does, and loads the page again slowly.
func TestABrowserThatKeepsNoCookies(t *testing.T) {
	t.Parallel()
	tree, _ := grow(t, 1, 60, 10*time.Minute)
	newBrowser(t).stays(tree.Info.Edges[0].URL)
	to, err := url.Parse(tree.Info.Edges[0].URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, inject string
		noScript     bool
		polls        int32 // before it knows
	}{
		// What would be done after a minute is done when the test says so.
		{"cookies are lost on the way", `const wait = setTimeout; window.setTimeout = (f, ms) => ms >= 60000 ? (window.afterAMinute = f, 0) : wait(f, ms)`, false, 1},
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
				return cdp.Call(ctx, target, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: tc.noScript})
			})
			browsertest.See(t, ctx, func(ctx context.Context, target *chromedp.Target) (cdppage.AddScriptToEvaluateOnNewDocumentResult, error) {
				return cdp.Call(ctx, target, cdppage.AddScriptToEvaluateOnNewDocument, cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: tc.inject})
			})
			browsertest.Do(t, ctx, chromedp.Navigate(way))
			told := func() bool {
				text, err := browsertest.Look(ctx, chromedp.Evaluate[string](`document.querySelector("main")?.innerText ?? ""`))
				return err == nil && strings.Contains(text, "Your browser blocks cookies") && strings.Contains(text, "Allow them for this site") && !strings.Contains(text, "People ahead")
			}
			eventually(t, "the visitor is told", told)
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
				retry := chromedp.Evaluate[int](`(s => s.state == "blocked" ? s.retryAfterSeconds : 0)(JSON.parse(document.getElementById("now")?.textContent ?? "{}"))`)
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
