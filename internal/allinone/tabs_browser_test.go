//go:build !race

// As in browser_test.go.

package allinone

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"vestibule/internal/lab/browsertest"
	"vestibule/internal/lab/figures"
	"vestibule/internal/lab/testkit"
)

// TestEightTabsInABrowser: over HTTP/1.1 a browser has six connections to a site. Eight waiting tabs of one room, and
// of eight rooms, share a stream, so that a page outside the rooms answers, and so do polls; then all tabs enter.
func TestEightTabsInABrowser(t *testing.T) {
	t.Parallel()
	const tabs = 8
	tree, _ := grow(t, 1, 60000, 10*time.Minute, func(o *Options) { o.DataCenters, o.Edges = []string{"nairobi"}, 1 })
	data := testkit.Must(os.ReadFile(tree.Info.Rooms))(t)
	head, room, _ := strings.Cut(string(data), "  - name: demo\n")
	all := strings.TrimSuffix(head, "\n") + "\n"
	for i := range tabs + 1 {
		all += fmt.Sprintf("  - name: demo%d\n", i) + strings.ReplaceAll(strings.TrimSuffix(room, "\n"), "path: /",
			fmt.Sprintf("path: /r%d", i)) + "\n"
	}
	testkit.NoError(t, os.WriteFile(tree.Info.Rooms, []byte(all), 0o600))
	edge := tree.Info.Edges[0].URL
	to := testkit.Must(url.Parse(edge))(t)
	var mu sync.Mutex
	open, most := 0, 0 // streams
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	proxy := &httputil.ReverseProxy{
		Transport: transport, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(to)
			p.Out.Host = p.In.Host
		},
	}
	way := browsertest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/events") {
			mu.Lock()
			open++
			most = max(most, open)
			mu.Unlock()
			defer func() {
				mu.Lock()
				open--
				mu.Unlock()
			}()
		}
		proxy.ServeHTTP(w, r)
	}))
	for name, path := range map[string]func(i int) string{
		"one room":    func(int) string { return fmt.Sprintf("/r%d", tabs) },
		"eight rooms": func(i int) string { return fmt.Sprintf("/r%d", i) },
	} {
		full := map[string]*browser{}
		for i := range tabs {
			p := path(i)
			if full[p] != nil {
				continue
			}
			full[p] = newBrowser(t)
			eventually(t, "the room covers "+p+" and is full", func() bool {
				a, err := full[p].Get(edge + p)
				if err != nil {
					return false
				}
				defer a.Body.Close()
				return a.Header.Get("X-Demo-Origin") != "" && slices.ContainsFunc(full[p].Jar.Cookies(a.Request.URL),
					func(c *http.Cookie) bool {
						return c.Name == "vestibule-demo"+strings.TrimPrefix(p, "/r")
					})
			})
			a, err := full[p].Get(edge + p) // it stays
			testkit.NoError(t, err)
			testkit.NoError(t, a.Body.Close())
		}
		ctx := browsertest.Open(t)
		watch := `window.polls = []; { const send = fetch; window.fetch = (u, o) => { const p = {at: performance.now()}; polls.push(p); return send(u, o).finally(() => { p.took = performance.now() - p.at }) } }`
		var waiting []context.Context
		for i := range tabs {
			tab, _ := browsertest.Tab(t, ctx)
			browsertest.See(t, tab,
				func(ctx context.Context, target *chromedp.Target) (cdppage.AddScriptToEvaluateOnNewDocumentResult, error) {
					return cdp.Call(ctx, target, cdppage.AddScriptToEvaluateOnNewDocument,
						cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: watch})
				})
			browsertest.Do(t, tab, chromedp.Navigate(way+path(i)))
			eventually(t, fmt.Sprintf("tab %d waits", i),
				func() bool { s := pageShows(tab); return s == "queued" || s == "next" })
			waiting = append(waiting, tab)
		}
		// For as long as a poll is held at the head of the line, and longer.
		slowest := 0.
		browsertest.Do(t, ctx, chromedp.Navigate(way+"/outside"))
		tick := time.NewTicker(time.Second)
		for range 15 {
			took := browsertest.See(t, ctx,
				chromedp.Evaluate[float64](`(async () => { const at = performance.now(); await fetch("/outside", {cache: "no-store"}); return performance.now() - at })()`, chromedp.EvalAwaitPromise))
			slowest = max(slowest, took)
			<-tick.C
		}
		tick.Stop()
		unanswered, held := 0, 0
		for _, tab := range waiting {
			pending := browsertest.See(t, tab,
				chromedp.Evaluate[float64](`(p => p && p.took === undefined ? performance.now() - p.at : 0)(window.polls?.at(-1))`))
			if pending > 5000 {
				held++ // by the tab with the stream
			}
		}
		if held > 1 {
			unanswered = held - 1
		}
		mu.Lock()
		t.Logf("%s: %d streams at once, %d polls unanswered, a page outside takes %.0f ms", name, most, unanswered, slowest)
		if most > 2 || open > 1 { // two while a tab takes over
			t.Errorf("%s: %d streams at once, %d now", name, most, open)
		}
		most = 0
		mu.Unlock()
		figures.Check(t, "browser: page outside beside eight waiting tabs", name, slowest/1e3)
		if slowest > 5000 || unanswered > 0 { // without a free connection it waits for a poll, for more than ten seconds
			t.Errorf("%s: a page outside takes %.0f ms, and %d polls are unanswered", name, slowest, unanswered)
		}
		for p, b := range full {
			leave(t, &b.Client, edge, "demo"+strings.TrimPrefix(p, "/r"))
		}
		begun := time.Now()
		for i, tab := range waiting {
			eventually(t, fmt.Sprintf("%s: tab %d is in", name, i), func() bool { return pageShows(tab) == "You are in" })
		}
		t.Logf("%s: all are in after %v", name, time.Since(begun).Round(100*time.Millisecond))
	}
}
