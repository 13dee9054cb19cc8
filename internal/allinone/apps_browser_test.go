//go:build !race

// As in browser_test.go.

package allinone

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"vestibule/internal/lab/browsertest"
	"vestibule/internal/lab/testkit"
)

// appRoom starts a tree with one edge in front of a shop, with a full room that covers only /api. more are further
// room settings, as lines.
func appRoom(t *testing.T, origin, more string) (tree *Tree, edge string) {
	t.Helper()
	tree, _ = grow(t, 1, 600, 10*time.Minute,
		func(o *Options) { o.DataCenters, o.Edges, o.Origin = []string{"nairobi"}, 1, origin })
	edit(t, tree, "path: /", "path: /api")
	edit(t, tree, "    total_active_users:", more+"    total_active_users:")
	edge = tree.Info.Edges[0].URL
	eventually(t, "the room covers /api alone", func() bool {
		req := testkit.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, edge, http.NoBody))(t)
		req.Header.Set("Sec-Fetch-Dest", "empty") // takes no permit
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.Header.Get("X-Demo-Origin") != ""
	})
	newBrowser(t).stays(edge + "/api")
	return tree, edge
}

// text returns the text of an element of the page.
func text(t *testing.T, ctx context.Context, selector string) string {
	t.Helper()
	return browsertest.See(t, ctx,
		chromedp.Evaluate[string](fmt.Sprintf(`document.querySelector(%q)?.textContent ?? ""`, selector)))
}

func click(t *testing.T, ctx context.Context, selector string) {
	t.Helper()
	browsertest.Do(t, ctx, chromedp.Click(chromedp.CSS(selector)))
}

// TestAppInABrowser: the example of docs/APPS.md on a page outside the room. An order waits, is aborted, waits
// again, and reaches the site once, after admission. It runs under a strict content security policy.
func TestAppInABrowser(t *testing.T) {
	t.Parallel()
	var orders testkit.Log
	tree, edge := appRoom(t, newShop(t, &orders), "    queueing_status_code: 429\n")
	ctx := browsertest.Open(t)
	browsertest.Do(t, ctx, chromedp.Navigate(edge+"/vanilla/"))
	click(t, ctx, "#order")
	eventually(t, "the page shows the line", func() bool {
		return strings.HasPrefix(text(t, ctx, "#line"), "Waiting room: ")
	})
	browsertest.Keep(t, os.Getenv("VESTIBULE_SCREENS"), "app-waits.png",
		browsertest.See(t, ctx, chromedp.FullScreenshot(100)))
	click(t, ctx, "#cancel")
	eventually(t, "the order is given up", func() bool {
		return strings.HasPrefix(text(t, ctx, "#result"), "AbortError") && text(t, ctx, "#line") == ""
	})
	eventually(t, "nobody is counted as waiting", func() bool { return tree.edges[0].Status().Rooms["demo"].Waiting == 0 })
	click(t, ctx, "#order")
	eventually(t, "the order waits again", func() bool { return text(t, ctx, "#line") != "" })
	edit(t, tree, "total_active_users: 1", "total_active_users: 3")
	took := eventually(t, "the order is placed", func() bool { return text(t, ctx, "#result") == "Ordered." })
	t.Logf("placed %v after T was raised", took.Round(100*time.Millisecond))
	if got := orders.String(); got != `{"tickets":2}`+"\n" {
		t.Errorf("the site received %q, want one order", got)
	}
	if line := text(t, ctx, "#line"); line != "" {
		t.Errorf("after admission the page says %q", line)
	}
}

// TestParallelRequestsOfAnAppInABrowser: parallel requests share one place, show one box, and are all answered;
// each body arrives once.
func TestParallelRequestsOfAnAppInABrowser(t *testing.T) {
	t.Parallel()
	var orders testkit.Log
	tree, edge := appRoom(t, newShop(t, &orders), "    queue_message: \"Seats <b>40</b>\"\n")
	ctx := browsertest.Open(t)
	browsertest.Do(t, ctx, chromedp.Navigate(edge+"/vanilla/"))
	before := withoutTicket(t, tree)
	browsertest.See(t, ctx, chromedp.Evaluate[bool](`window.answers = [], import("/.well-known/vestibule/client.js").then(({waitingFetch}) => {
		const order = n => waitingFetch("/api/orders", {method: "POST", body: "order " + n}).then(r => r.json()).then(j => answers.push(j.message));
		[1, 2, 3].forEach(order);
		[1, 2].forEach(() => waitingFetch(new Request("/api/stock")).then(r => r.json()).then(j => answers.push("left " + j.left)));
		window.quit = new AbortController();
		waitingFetch("/api/orders", {method: "POST", body: "never", signal: quit.signal}).catch(e => answers.push(e.name));
		return true;
	})`, chromedp.EvalAwaitPromise))
	eventually(t, "the line is shown", func() bool { return text(t, ctx, "#line") != "" })
	browsertest.See(t, ctx, chromedp.Evaluate[bool](`quit.abort(), true`))
	eventually(t, "one was given up", func() bool {
		return browsertest.See(t, ctx, chromedp.Evaluate[string](`answers.join()`)) == "AbortError"
	})
	eventually(t, "one visitor is counted as waiting",
		func() bool { return tree.edges[0].Status().Rooms["demo"].Waiting == 1 })
	edit(t, tree, "total_active_users: 1", "total_active_users: 2")
	eventually(t, "all are answered",
		func() bool { return browsertest.See(t, ctx, chromedp.Evaluate[int](`answers.length`)) == 6 })
	got := browsertest.See(t, ctx, chromedp.Evaluate[string](`answers.sort().join()`))
	if want := "AbortError,Ordered.,Ordered.,Ordered.,left 7,left 7"; got != want {
		t.Errorf("answers %s, want %s", got, want)
	}
	if n := withoutTicket(t, tree) - before; n != 1 {
		t.Errorf("%d requests came without a ticket, want the first alone", n)
	}
	for n, want := range map[string]int{"order 1\n": 1, "order 2\n": 1, "order 3\n": 1, "never": 0} {
		if got := strings.Count(orders.String(), n); got != want {
			t.Errorf("%q arrived %d times, want %d", n, got, want)
		}
	}
}

// withoutTicket returns the number of requests for the room without a ticket: each of them joins the queue.
func withoutTicket(t *testing.T, tree *Tree) (n int) {
	t.Helper()
	resp := testkit.Must(http.Get(tree.Info.Metrics + "/metrics"))(t)
	defer resp.Body.Close()
	body := testkit.Must(io.ReadAll(resp.Body))(t)
	e := tree.Info.Edges[0]
	_, count, _ := strings.Cut(string(body),
		fmt.Sprintf("\nvestibule_edge_tickets_total{node=%q,result=\"none\"} ", "edge-"+e.DC+"-"+e.Name))
	if _, err := fmt.Sscan(count, &n); err != nil {
		t.Fatalf("no tickets are counted: %v", err)
	}
	return n
}

// TestTheBoxOfTheModuleInABrowser: a page without a callback shows a box in the visitor's language, under a policy
// without inline styles; the preview's axe-core tests do not cover it, so its roles are checked here.
func TestTheBoxOfTheModuleInABrowser(t *testing.T) {
	t.Parallel()
	var orders testkit.Log
	tree, edge := appRoom(t, newShop(t, &orders),
		"    queue_message: \"Seats <b>40</b>\"\n    default_template_language: de-DE\n")
	ctx := browsertest.Open(t)
	browsertest.Do(t, ctx, chromedp.Navigate(edge+"/native/main.go"))
	browsertest.See(t, ctx, chromedp.Evaluate[bool](`window.answer = "", window.broken = [],
		addEventListener("securitypolicyviolation", e => broken.push(e.violatedDirective)),
		import("/.well-known/vestibule/client.js").then(({waitingFetch}) => {
			waitingFetch("/api/orders", {method: "POST", body: "one", headers: {"Accept-Language": "xx"}}).then(r => r.json()).then(j => answer = j.message);
			return true })`, chromedp.EvalAwaitPromise))
	eventually(t, "the box is shown",
		func() bool { return strings.Contains(text(t, ctx, "#vestibule-wait"), "Seats <b>40</b>") })
	browsertest.Keep(t, os.Getenv("VESTIBULE_SCREENS"), "app-box.png",
		browsertest.See(t, ctx, chromedp.CaptureScreenshot()))
	shown := browsertest.See(t, ctx, chromedp.Evaluate[string](`(b => [b.lang, b.getAttribute("aria-label") == b.querySelector("p").textContent, getComputedStyle(b).position,
		b.querySelector("[role=status][aria-live=polite]").textContent != "", document.querySelectorAll("#vestibule-wait").length, broken.join()].join())(document.getElementById("vestibule-wait"))`))
	if shown != "en-US,true,fixed,true,1," && shown != "de-DE,true,fixed,true,1," {
		t.Errorf("the box is %s", shown)
	}
	edit(t, tree, "total_active_users: 1", "total_active_users: 2")
	eventually(t, "the order is placed and the box is gone", func() bool {
		return browsertest.See(t, ctx,
			chromedp.Evaluate[bool](`answer == "Ordered." && !document.getElementById("vestibule-wait")`))
	})
}

// TestAnAppOfAnotherOriginInABrowser: without cookies the ticket is in a header and survives a reload, if
// cors_origins is *; a page of another origin gets an error at once instead of a wait.
func TestAnAppOfAnotherOriginInABrowser(t *testing.T) {
	t.Parallel()
	var orders testkit.Log
	app := browsertest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, //nolint:errcheck // the browser tells
			"<!doctype html><link rel=icon href=data:,><title>app</title>")
	}))
	open := httptest.NewServer(before(t, newShop(t, &orders),
		func(h http.Header) { h.Set("Access-Control-Allow-Origin", "*") }))
	t.Cleanup(open.Close)
	tree, edge := appRoom(t, open.URL, "    cors_origins: \"*\"\n")
	ctx := browsertest.Open(t)
	browsertest.Do(t, ctx, chromedp.Navigate(app))
	order := fmt.Sprintf(`window.state = null, window.answer = "", import(%[1]q + "/.well-known/vestibule/client.js").then(m => {
		m.onWait(s => state = s);
		m.waitingFetch(%[1]q + "/api/orders", {method: "POST", body: "one"}).then(r => r.json()).then(j => answer = j.message, e => answer = String(e));
		return true })`, edge)
	joined := func() (at string) {
		t.Helper()
		browsertest.See(t, ctx, chromedp.Evaluate[bool](order, chromedp.EvalAwaitPromise))
		eventually(t, "the order waits", func() bool {
			at = browsertest.See(t, ctx, chromedp.Evaluate[string](`state?.joinedAt ?? ""`))
			return at != ""
		})
		return at
	}
	first := joined()
	browsertest.Do(t, ctx, chromedp.Reload())
	if again := joined(); again != first {
		t.Errorf("joined at %s, after a reload at %s", first, again)
	}
	edit(t, tree, "total_active_users: 1", "total_active_users: 2")
	eventually(t, "the order is placed",
		func() bool { return browsertest.See(t, ctx, chromedp.Evaluate[string](`answer`)) == "Ordered." })
	if got := orders.String(); got != "one\n" {
		t.Errorf("the site received %q, want one order", got)
	}
	edit(t, tree, "cors_origins: \"*\"", "cors_origins: https://other.example")
	other, _ := browsertest.Tab(t, ctx, chromedp.WithNewBrowserContext())
	browsertest.Do(t, other, chromedp.Navigate(app))
	eventually(t, "a page that the room does not name gets an error", func() bool {
		return browsertest.See(t, other, chromedp.Evaluate[string](fmt.Sprintf(`import(%[1]q + "/.well-known/vestibule/client.js").then(m =>
			m.waitingFetch(%[1]q + "/api/orders", {method: "POST", body: "two", signal: AbortSignal.timeout(1000)})).then(r => "answered", e => e.name)`, edge), chromedp.EvalAwaitPromise)) == "TypeError"
	})
}

// before returns a proxy that modifies responses with change.
func before(t *testing.T, to string, change func(http.Header)) http.Handler {
	t.Helper()
	u := testkit.Must(url.Parse(to))(t)
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(u) },
		ModifyResponse: func(r *http.Response) error {
			change(r.Header)
			return nil
		},
		ErrorLog: log.New(io.Discard, "", 0), // a browser that disconnects
	}
}

// TestReactInABrowser: the React example of the docs, unchanged, with React from npm.
func TestReactInABrowser(t *testing.T) {
	t.Parallel()
	umd := map[string]string{
		"react.production.min.js":     npm(t, "react", "umd/react.production.min.js"),
		"react-dom.production.min.js": npm(t, "react-dom", "umd/react-dom.production.min.js"),
	}
	var orders testkit.Log
	shop := before(t, newShop(t, &orders), func(http.Header) {})
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch name := strings.TrimPrefix(r.URL.Path, "/npm/"); {
		case r.URL.Path == "/react/":
			w.Header().Set("X-Demo-Origin", "1")
			page, err := os.ReadFile("../../docs/examples/react/index.html")
			if err != nil {
				t.Error(err)
			}
			html := strings.NewReplacer("https://esm.sh/react@18.3.1", "/npm/react.js", "https://esm.sh/react-dom@18.3.1/client",
				"/npm/client.js").Replace(string(page))
			io.WriteString(w, strings.Replace(html, "<script type=\"importmap\"", //nolint:errcheck // the browser tells
				"<script src=/npm/react.production.min.js></script><script src=/npm/react-dom.production.min.js></script><script "+
					"type=\"importmap\"", 1))
		case name == "react.js" || name == "client.js": // modules from the files of npm, which are not modules
			w.Header().Set("Content-Type", "text/javascript")
			io.WriteString(w, map[string]string{ //nolint:errcheck // as above
				"react.js":  "export const { createElement, useEffect, useState } = window.React;",
				"client.js": "export const { createRoot } = window.ReactDOM;",
			}[name])
		case name != r.URL.Path:
			http.ServeFile(w, r, umd[name])
		default:
			shop.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(site.Close)
	tree, edge := appRoom(t, site.URL, "")
	ctx := browsertest.Open(t)
	browsertest.Do(t, ctx, chromedp.Navigate(edge+"/react/"))
	eventually(t, "the component shows the line",
		func() bool { return strings.HasPrefix(text(t, ctx, "#line"), "Waiting room: ") })
	edit(t, tree, "total_active_users: 1", "total_active_users: 2")
	eventually(t, "the component shows the answer",
		func() bool { return text(t, ctx, "#result") == "7 left" && text(t, ctx, "#line") == "" })
}

// npm returns a file of a package of npm/package-lock.json.
func npm(t *testing.T, pack, entry string) (file string) {
	t.Helper()
	file = testkit.Must(filepath.Abs(filepath.Join("../../.tools/npm/node_modules", pack, entry)))(t)
	if _, err := os.Stat(file); err != nil {
		t.Fatalf("%s of npm is not installed: run make packages: %v", pack, err)
	}
	return file
}
