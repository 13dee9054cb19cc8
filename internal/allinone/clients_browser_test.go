//go:build !race

// As in browser_test.go.

package allinone

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"vestibule/internal/lab/browsertest"
	"vestibule/internal/lab/testkit"
)

// csrf is a site that a bank returns to, with a service worker, and with changes that only the site's pages may order:
// each has one defence alone.
type csrf struct {
	mu       sync.Mutex
	returned []string // bodies of returns from a bank
	changed  []string // defences that a change has passed
	worker   int      // version of the service worker
}

func (s *csrf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("X-Demo-Origin", "1")
	w.Header().Set("Content-Type", "text/html")
	self := "https://" + r.Host
	switch r.URL.Path {
	case "/return":
		body, _ := io.ReadAll(r.Body) // of the test's form
		s.returned = append(s.returned, r.Method+" "+string(body))
	case "/change/lax":
		if _, err := r.Cookie("login"); err == nil && r.Method == http.MethodPost {
			s.changed = append(s.changed, r.URL.Path)
		}
	case "/change/origin":
		if o := r.Header.Get("Origin"); (o == "" || o == self) && r.Method == http.MethodPost {
			s.changed = append(s.changed, r.URL.Path)
		}
	case "/change/metadata":
		if site := r.Header.Get("Sec-Fetch-Site"); (site == "same-origin" || site == "none" || site == "") &&
			r.Method == http.MethodPost {
			s.changed = append(s.changed, r.URL.Path)
		}
	case "/sw.js":
		w.Header().Set("Content-Type", "text/javascript")
		fmt.Fprintf(w, `const version = %d;
			addEventListener("install", e => { skipWaiting(); e.waitUntil(caches.open("v" + version).then(c => c.add("/?cached"))) });
			addEventListener("activate", e => e.waitUntil(clients.claim()));
			addEventListener("fetch", e => e.respondWith(fetch(e.request).then(r => {
				const copy = r.clone();
				if (r.ok && e.request.method == "GET") caches.open("seen").then(c => c.put(e.request, copy)).catch(() => {});
				return r;
			})));`, s.worker)
		return
	}
	w.Header().Set("Set-Cookie", "login=1; Path=/; Secure; HttpOnly; SameSite=Lax")
	io.WriteString(w, //nolint:errcheck // the browser tells
		"<!doctype html><link rel=icon href=data:,><title>shop</title><h1>You are in</h1>")
}

// TestClientsInABrowser: what browsers do to waiting rooms elsewhere, see the names. Each case is played -runs times.
func TestClientsInABrowser(t *testing.T) {
	t.Parallel()
	site := &csrf{}
	origin := browsertest.Serve(t, site)
	tree, _ := grow(t, 1, 60000, 10*time.Minute,
		func(o *Options) { o.DataCenters, o.Edges, o.Origin = []string{"nairobi"}, 1, origin })
	edit(t, tree, `host: "localhost"`, "host: shop.test")
	edit(t, tree, "    total_active_users:", "    cookie_secure: always\n    total_active_users:")
	edge := testkit.Must(url.Parse(tree.Info.Edges[0].URL))(t)
	var mu sync.Mutex
	prefetches := 0
	way := tlsServer(t, &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(edge)
			p.Out.Host = p.In.Host
			if strings.Contains(p.In.Header.Get("Sec-Purpose"), "prefetch") {
				mu.Lock()
				prefetches++
				mu.Unlock()
			}
		},
		ErrorLog: log.New(io.Discard, "", 0),
	})
	eventually(t, "the edge serves the host of the edited room", func() bool {
		// A request of the waiting page's own: it takes no place.
		r := testkit.Must(http.NewRequestWithContext(t.Context(), http.MethodGet,
			tree.Info.Edges[0].URL+"/.well-known/vestibule/events?room=demo", http.NoBody))(t)
		r.Host = "shop.test"
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode != http.StatusMisdirectedRequest
	})
	port := way[strings.LastIndexByte(way, ':'):]
	shop := "https://shop.test" + port
	// A page of another site: a bank, or an attacker.
	foreign := tlsServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<!doctype html><link rel=icon href=data:,><title>other</title>")
		switch to := r.URL.Query().Get("to"); r.URL.Path {
		case "/form":
			fmt.Fprintf(w,
				`<form method=post action=%q><input name=result value=paid></form><script>document.forms[0].submit()</script>`,
				shop+to)
		case "/rules":
			fmt.Fprintf(w,
				`<script type=speculationrules>{%q: [{"urls": [%q], "eagerness": "immediate"}]}</script><a id=go href=%[2]q>shop</a>`, r.URL.Query().Get("do"), shop+to)
		}
	}))
	foreign = "https://other.test" + foreign[strings.LastIndexByte(foreign, ':'):]

	browserOf := browsertest.OpenWith(t, chromedp.Flag("host-resolver-rules", "MAP *.test 127.0.0.1"),
		chromedp.IgnoreCertErrors)
	right := map[string]int{}
	defer func() {
		if t.Failed() {
			t.Logf("the room: %+v", tree.edges[0].Status().Rooms["demo"])
		}
	}()
	play := func(t *testing.T) { // and closes its tabs
		visitor := func() *browser {
			jar := testkit.Must(cookiejar.New(nil))(t)
			transport := &http.Transport{
				TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // of this test
				DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
					return (&net.Dialer{}).DialContext(ctx, network, "127.0.0.1"+port)
				},
			}
			t.Cleanup(transport.CloseIdleConnections)
			return &browser{Client: http.Client{Jar: jar, Transport: transport, Timeout: 2 * patience}, t: t}
		}
		admitted := func() uint64 { return tree.edges[0].Status().Rooms["demo"].Admitted }
		fresh := func() context.Context {
			tab, _ := browsertest.Tab(t, browserOf, chromedp.WithNewBrowserContext())
			return tab
		}
		in := func(ctx context.Context) bool { return pageShows(ctx) == "You are in" }
		waits := func(ctx context.Context) bool {
			s := pageShows(ctx)
			return s == "queued" || s == "next" || s == "moment"
		}
		enters := func(ctx context.Context) {
			t.Helper()
			browsertest.Do(t, ctx, chromedp.Navigate(shop))
			eventually(t, "the browser is in", func() bool { return in(ctx) })
			browsertest.Do(t, ctx, chromedp.Navigate(shop)) // it stays
		}
		leaves := func(ctx context.Context) {
			t.Helper()
			browsertest.See(t, ctx,
				chromedp.Evaluate[bool](`fetch("/.well-known/vestibule/leave?room=demo", {method: "POST"}).then(r => r.ok)`,
					chromedp.EvalAwaitPromise))
		}
		// The visitor is inside a full room, pays at a bank, and comes back by a form of the bank's page.
		ctx := fresh()
		enters(ctx)
		browsertest.Do(t, ctx, chromedp.Navigate(foreign+"/form?to=/return"))
		eventually(t, "the visitor comes back from the bank", func() bool { return in(ctx) || waits(ctx) })
		site.mu.Lock()
		if len(site.returned) == 1 && site.returned[0] == "POST result=paid" && in(ctx) {
			right["return from a bank"]++
		}
		site.returned = nil
		site.mu.Unlock()

		// Foreign forms, while the visitor is inside.
		for _, defence := range []string{"lax", "origin", "metadata"} {
			browsertest.Do(t, ctx, chromedp.Navigate(foreign+"/form?to=/change/"+defence))
			eventually(t, "the form was sent", func() bool { return in(ctx) })
		}
		// A visitor whose session is over sends them while it waits, and enters then.
		leaves(ctx)
		other := visitor()
		other.stays(shop)
		for _, defence := range []string{"lax", "origin", "metadata"} {
			browsertest.Do(t, ctx, chromedp.Navigate(foreign+"/form?to=/change/"+defence))
			eventually(t, "the form waits", func() bool { return waits(ctx) })
		}
		leave(t, &other.Client, shop, "demo")
		eventually(t, "the visitor enters after the form", func() bool { return in(ctx) })
		site.mu.Lock()
		if len(site.changed) == 0 {
			right["foreign forms change nothing"]++
		} else {
			t.Errorf("foreign forms were let through by %v", site.changed)
		}
		site.changed = nil
		site.mu.Unlock()
		leaves(ctx)

		// Two to four tabs are restored at once, without a ticket, where there is one place.
		for n := 2; n <= 4; n++ {
			first := fresh()
			tabs := []context.Context{first}
			for range n - 1 {
				tab, _ := browsertest.Tab(t, first)
				tabs = append(tabs, tab)
			}
			before := admitted()
			var all sync.WaitGroup
			for _, tab := range tabs {
				all.Go(func() {
					if _, err := browsertest.Look(tab, chromedp.Navigate(shop)); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			for i, tab := range tabs {
				eventually(t, fmt.Sprintf("tab %d of %d is in", i, n), func() bool { return in(tab) })
			}
			stay := true
			for _, tab := range tabs {
				browsertest.Do(t, tab, chromedp.Reload())
				stay = stay && in(tab)
			}
			if stay && admitted() == before+1 {
				right[fmt.Sprintf("%d tabs restored at once", n)]++
			}
			leaves(first)
		}

		// The site's service worker updates while its visitor waits.
		ctx = fresh()
		enters(ctx)
		const ready = `navigator.serviceWorker.register("/sw.js").then(() => navigator.serviceWorker.ready).then(() => navigator.serviceWorker.controller || new Promise(r => navigator.serviceWorker.oncontrollerchange = r)).then(() => true)`
		browsertest.See(t, ctx, chromedp.Evaluate[bool](ready, chromedp.EvalAwaitPromise))
		leaves(ctx)
		other = visitor()
		other.stays(shop)
		site.mu.Lock()
		site.worker++
		site.mu.Unlock()
		browsertest.Do(t, ctx, chromedp.Navigate(shop))
		eventually(t, "the visitor with a service worker waits", func() bool { return waits(ctx) })
		updated := browsertest.See(t, ctx,
			chromedp.Evaluate[string](`navigator.serviceWorker.getRegistration().then(r => r.update()).then(r => r.installing ? "updates" : "same", e => e.name)`, chromedp.EvalAwaitPromise))
		kept := browsertest.See(t, ctx,
			chromedp.Evaluate[bool](`navigator.serviceWorker.getRegistration().then(r => !!r && !!r.active && r.active.state == "activated")`, chromedp.EvalAwaitPromise))
		leave(t, &other.Client, shop, "demo")
		eventually(t, "the visitor with a service worker enters", func() bool { return in(ctx) })
		// A cache may keep the script: its address names its content.
		const stored = `caches.keys().then(async names => { const bad = []; for (const n of names) { const c = await caches.open(n); for (const q of await c.keys()) { const r = await c.match(q); if (/\.well-known\/vestibule\/page\.\d+\.[0-9a-f]+\.js$/.test(q.url) && /immutable/.test(r.headers.get("Cache-Control"))) continue; if (r.headers.get("Vestibule-Decision") || !(await r.text()).includes("You are in")) bad.push(q.url) } } return bad.join() })`
		bad := browsertest.See(t, ctx, chromedp.Evaluate[string](stored, chromedp.EvalAwaitPromise))
		after := browsertest.See(t, ctx,
			chromedp.Evaluate[string](`navigator.serviceWorker.getRegistration().then(r => r.update()).then(r => "fine", e => e.name)`, chromedp.EvalAwaitPromise))
		// The new worker fetches a page while it is installed: after the visitor has left, that would be a new visitor.
		eventually(t, "the new worker is installed", func() bool {
			return browsertest.See(t, ctx,
				chromedp.Evaluate[bool](`navigator.serviceWorker.getRegistration().then(r => !r.installing && !r.waiting && r.active.state == "activated")`, chromedp.EvalAwaitPromise))
		})
		if updated == "TypeError" && kept && bad == "" && after == "fine" {
			right["service worker that updates"]++
		} else {
			t.Errorf("service worker: update %s, kept %v, in caches waits %q, then %s", updated, kept, bad, after)
		}
		leaves(ctx)

		// Speculation rules of a foreign page take nothing; the click then enters.
		for _, do := range []string{"prefetch", "prerender"} {
			ctx := fresh()
			before := admitted()
			mu.Lock()
			prefetches = 0
			mu.Unlock()
			browsertest.Do(t, ctx, chromedp.Navigate(foreign+"/rules?to=/&do="+do))
			if do == "prefetch" { // not every Chromium prerenders a page of another site
				eventually(t, "the browser loads the shop in advance", func() bool {
					mu.Lock()
					defer mu.Unlock()
					return prefetches > 0
				})
			}
			l := tree.edges[0].Status().Rooms["demo"]
			taken, waiting := l.Admitted-before, l.Waiting
			click(t, ctx, "#go")
			eventually(t, "the visitor enters with a click", func() bool { return in(ctx) })
			if taken == 0 && waiting == 0 {
				right[do+" by rules of a foreign page"]++
			} else {
				t.Errorf("a %s took %d permits, and %d wait", do, taken, waiting)
			}
			leaves(ctx)
		}
	}
	for run := 1; run <= *runs && t.Run(fmt.Sprint("run ", run), play); run++ {
	}
	for _, name := range []string{
		"return from a bank", "foreign forms change nothing", "2 tabs restored at once", "3 tabs restored at once",
		"4 tabs restored at once",
		"service worker that updates", "prefetch by rules of a foreign page", "prerender by rules of a foreign page",
	} {
		t.Logf("%-40s right in %d of %d", name, right[name], *runs)
		if right[name] != *runs {
			t.Errorf("%s: right in %d of %d runs", name, right[name], *runs)
		}
	}
}
