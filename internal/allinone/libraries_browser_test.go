//go:build !race

// As in browser_test.go.

package allinone

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"vestibule/internal/lab/browsertest"
	"vestibule/internal/lab/testkit"
)

// runs is how often tests of what a browser decides by time play each case: see make browser-runs.
var runs = flag.Int("runs", 1, "how often each case of some tests in a browser is played")

// another is another visitor, which takes and gives the room's only place.
type another struct{ *browser }

// takes enters the room with one place, and leaves it with give.
func (a another) takes(edge string) { a.stays(edge) }

func (a another) gives(edge string) {
	a.t.Helper()
	leave(a.t, &a.Client, edge, "demo")
}

// leave gives up the place or session of a client's visitor in a room.
func leave(t *testing.T, c *http.Client, edge, room string) {
	t.Helper()
	resp := testkit.Must(c.Post(edge+"/.well-known/vestibule/leave?room="+room, "", http.NoBody))(t)
	testkit.NoError(t, resp.Body.Close())
}

// pageShows returns the state of the waiting page, the heading of another page, or "" while it is replaced.
func pageShows(ctx context.Context) string {
	text, err := browsertest.Look(ctx,
		chromedp.Evaluate[string](`(window.vestibule && document.getElementById("vr")?.dataset.state || document.querySelector("h1")?.textContent) ?? ""`))
	if err != nil {
		return ""
	}
	return text
}

// TestLibrariesInABrowser: Turbo and htmx from npm get a waiting answer in the place of a page or of a part of it. With
// and without a policy of the site, the visitor sees a waiting page that works, and enters.
func TestLibrariesInABrowser(t *testing.T) {
	t.Parallel()
	scripts := map[string]string{
		"/turbo.js": npm(t, "@hotwired/turbo", "dist/turbo.es2017-umd.js"),
		"/htmx.js":  npm(t, "htmx.org", "dist/htmx.min.js"),
	}
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Demo-Origin", "1")
		if file := scripts[r.URL.Path]; file != "" {
			http.ServeFile(w, r, file)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		if r.URL.Query().Has("policy") {
			w.Header().Set("Content-Security-Policy", "default-src 'self'; img-src data:")
		}
		boost := ""
		if r.URL.Path == "/htmx" {
			boost = ` hx-boost="true"`
		}
		fmt.Fprintf(w, `<!doctype html><link rel=icon href="data:,"><title>shop</title><script src="%s.js" defer></script><body%s><h1>shop %[1]s</h1>
			<a id="link" href="/next">next</a> <turbo-frame id="cart"><a id="frame" href="/cart">cart</a></turbo-frame>
			<form method="post" action="/order"><button id="form">order</button></form>
			<button id="part" hx-get="/part" hx-target="#out">part</button><div id="out"></div>`, r.URL.Path, boost)
	}))
	t.Cleanup(site.Close)
	tree, _ := grow(t, 1, 60000, 10*time.Minute,
		func(o *Options) { o.DataCenters, o.Edges, o.Origin = []string{"nairobi"}, 1, site.URL })
	edge := tree.Info.Edges[0].URL
	wrong := 0
	play := func(t *testing.T) { // and closes its tabs
		for _, policy := range []string{"", "?policy"} {
			for _, tc := range []struct{ page, click, enters string }{
				{"/turbo", "link", "shop /next"},
				{"/turbo", "frame", "shop /cart"},
				{"/turbo", "form", "shop /turbo"}, // the form has not arrived: the visitor comes back to it
				{"/htmx", "link", "shop /next"},
				{"/htmx", "part", "shop /htmx"},
			} {
				ctx := browsertest.Open(t)
				browsertest.Do(t, ctx, chromedp.Navigate(edge+tc.page+policy))
				eventually(t, "the browser is in", func() bool { return pageShows(ctx) == "shop "+tc.page })
				browsertest.See(t, ctx,
					chromedp.Evaluate[bool](`fetch("/.well-known/vestibule/leave?room=demo", {method: "POST"}).then(r => r.ok)`,
						chromedp.EvalAwaitPromise))
				other := another{newBrowser(t)}
				other.takes(edge)
				browsertest.See(t, ctx, chromedp.Evaluate[bool](fmt.Sprintf(`document.getElementById(%q).click(), true`, tc.click)))
				begun := time.Now()
				eventually(t, fmt.Sprintf("after a click on %s of %s%s the page waits", tc.click, tc.page, policy), func() bool {
					s := pageShows(ctx)
					return s == "queued" || s == "next"
				})
				waits := time.Since(begun)
				other.gives(edge)
				eventually(t, fmt.Sprintf("the visitor enters after a click on %s of %s%s", tc.click, tc.page, policy),
					func() bool { return pageShows(ctx) == tc.enters })
				browsertest.See(t, ctx,
					chromedp.Evaluate[bool](`fetch("/.well-known/vestibule/leave?room=demo", {method: "POST"}).then(r => r.ok)`,
						chromedp.EvalAwaitPromise))
				if waits > 15*time.Second { // a dead page is loaded again after 20 s
					wrong++
					t.Errorf("the page worked %v after a click on %s of %s%s", waits, tc.click, tc.page, policy)
				}
			}
		}
	}
	for run := 1; run <= *runs && t.Run(fmt.Sprint("run ", run), play); run++ {
	}
	t.Logf("%d of %d runs of ten cases were wrong", wrong, *runs)
}
