package allinone

import (
	"context"
	"net/http"
	"net/http/httptest"
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
	ctx := browsertest.Open(t)
	tree, _ := grow(t, 1, 60, 8*time.Second)
	first, second := newBrowser(t), newBrowser(t)
	first.enters(tree.Info.Edges[0].URL)
	if second.open(tree.Info.Edges[0].URL).inside {
		t.Fatal("came in beyond T")
	}
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	seen, stop := context.WithCancel(ctx) // stop: the browser has been looked at
	var ahead sync.WaitGroup
	defer ahead.Wait()
	defer cancel()
	defer stop()
	ahead.Go(func() {
		for seen.Err() == nil { // the first visitor stays until then
			if _, err := first.try(ctx, tree.Info.Edges[0].URL); err != nil {
				t.Errorf("the first visitor: %v", err)
			}
			sleep(seen, time.Second)
		}
	})
	ahead.Go(func() {
		// Who asks rarely may find that the next in line has gone in first.
		if _, err := second.wait(ctx, tree.Info.Edges[0].URL); err != nil && ctx.Err() == nil {
			t.Errorf("the second visitor: %v", err)
		}
	})
	everywhere(t, tree, "every edge counts who waits", func(v *wire.View) bool { return v.Line.Total() > .9 })
	screens := os.Getenv("VESTIBULE_SCREENS") // a folder in which pictures are kept, for who wants to look

	if err := chromedp.Do(ctx, chromedp.Navigate(tree.Info.Edges[1].URL), chromedp.WaitVisible(chromedp.CSS("dl"))); err != nil {
		t.Fatal(err)
	}
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
	stop()
	begun := time.Now()
	eventually(t, "the browser is in", func() bool {
		heading, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.querySelector("h1")?.textContent ?? ""`))
		return err == nil && heading == "You are in" // an error: the page is just being replaced
	})
	t.Logf("the browser came in by itself after %v", time.Since(begun).Round(100*time.Millisecond))
	browsertest.Keep(t, screens, "inside.png", browsertest.See(t, ctx, chromedp.FullScreenshot(100)))
	s := tree.Origin.Stats()
	if s.Peak > 1 || s.Total < 2 {
		t.Errorf("the site counted %d sessions, %d at once; want the first and the browser's, one at a time", s.Total, s.Peak)
	}
}

// TestOnePlacePerBrowser: neither a reload nor a second tab at another edge is
// somebody new, and who leaves the line has left it in every tab.
func TestOnePlacePerBrowser(t *testing.T) {
	t.Parallel()
	ctx := browsertest.Open(t)
	// Nobody else is let in meanwhile, and nobody is held until then.
	tree, _ := grow(t, 1, 60, 10*time.Minute, func(o *Options) { o.Params.Hold = 100 * time.Millisecond })
	newBrowser(t).stays(tree.Info.Edges[0].URL)
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	do := func(ctx context.Context, steps ...chromedp.Action[chromedp.Void]) {
		t.Helper()
		if err := chromedp.Do(ctx, steps...); err != nil {
			t.Fatal(err)
		}
	}
	waiting := chromedp.WaitVisible(chromedp.CSS("dl.few"))
	joined := chromedp.Evaluate[string](`JSON.parse(document.getElementById("now").textContent).joinedAt`)
	do(ctx, chromedp.Navigate(tree.Info.Edges[0].URL), waiting)
	place := browsertest.See(t, ctx, joined)
	do(ctx, chromedp.Reload(), waiting)
	if again := browsertest.See(t, ctx, joined); again != place {
		t.Errorf("joined at %s, after a reload at %s", place, again)
	}
	tab, closeTab := chromedp.NewContext(ctx)
	defer closeTab()
	do(tab, chromedp.Navigate(tree.Info.Edges[1].URL), waiting)
	if again := browsertest.See(t, tab, joined); again != place {
		t.Errorf("joined at %s, in a second tab at %s", place, again)
	}
	// A question of the first tab that is on its way to the other edge may bring the ticket
	// back: that edge does not know yet. Who leaves again has left.
	eventually(t, "the visitor has left the line in every tab", func() bool {
		do(ctx, chromedp.Navigate("about:blank"))
		do(tab, chromedp.Navigate(tree.Info.Edges[1].URL), waiting)
		do(tab, chromedp.Click(chromedp.CSS("summary")), chromedp.Click(chromedp.CSS("details button")), chromedp.WaitVisible(chromedp.CSS(".l a")))
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
			ctx := browsertest.Open(t)
			// Nobody else is let in meanwhile.
			tree, _ := grow(t, 1, 60, 10*time.Minute, func(o *Options) { o.Params.Hold = 100 * time.Millisecond })
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
				if err := chromedp.Do(ctx, steps...); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(ctx, 3*patience)
			defer cancel()
			waiting := chromedp.WaitVisible(chromedp.CSS("dl.few"))
			joined := chromedp.Evaluate[string](`document.getElementById("joined").dateTime || document.getElementById("joined").textContent`)
			var place string
			var told [2]bool // that the page goes away: by closing it, by going on to another page
			for round := 0; round < 8 && (!told[0] || !told[1]); round++ {
				tab, closeTab := chromedp.NewContext(ctx)
				defer closeTab()
				do(tab, chromedp.Navigate(edge), waiting)
				if at := browsertest.See(t, tab, joined); round == 0 {
					place = at
				} else if at != place {
					t.Errorf("joined at %s, then at %s", place, at)
				}
				eventually(t, "the visitor is counted", func() bool { return counted() == 1 })
				for range 3 {
					// Near its turn a custom page asks for itself: an error where it just does.
					eventually(t, "the page is reloaded", func() bool { return chromedp.Do(tab, chromedp.Reload(), waiting) == nil })
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
				// for another minute: then the next round tells.
				tick := time.NewTicker(10 * time.Millisecond)
				for end := time.Now().Add(3 * time.Second); !told[round%2] && time.Now().Before(end); <-tick.C {
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
		// What would be a minute is a second, so that the next load is seen.
		{"cookies are lost on the way", `const wait = setTimeout; window.setTimeout = (f, ms) => wait(f, ms >= 60000 ? ms / 60 : ms)`, false, 1},
		{"the browser says so", `Object.defineProperty(navigator, "cookieEnabled", {get: () => false})`, false, 0},
		{"without script", "", true, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var loads, polls, brought atomic.Int32
			way := httptest.NewServer(&httputil.ReverseProxy{
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
			defer way.Close()
			ctx := browsertest.Open(t)
			browsertest.See(t, ctx, func(ctx context.Context, target *chromedp.Target) (cdp.Empty, error) {
				return cdp.Call(ctx, target, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: tc.noScript})
			})
			browsertest.See(t, ctx, func(ctx context.Context, target *chromedp.Target) (cdppage.AddScriptToEvaluateOnNewDocumentResult, error) {
				return cdp.Call(ctx, target, cdppage.AddScriptToEvaluateOnNewDocument, cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: tc.inject})
			})
			if err := chromedp.Do(ctx, chromedp.Navigate(way.URL)); err != nil {
				t.Fatal(err)
			}
			told := func() bool {
				text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.querySelector("main")?.innerText ?? ""`))
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
				eventually(t, "it loads the page again", func() bool { return loads.Load() >= 2 })
			}
			if tc.polls > 0 || tc.noScript {
				retry := chromedp.Evaluate[int](`(s => s.state == "blocked" ? s.retryAfterSeconds : 0)(JSON.parse(document.getElementById("now")?.textContent ?? "{}"))`)
				eventually(t, "the edge knows", func() bool {
					n, err := chromedp.Run(ctx, retry)
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
