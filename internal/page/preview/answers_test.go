package preview

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/wire"
	"vestibule/internal/lab/browsertest"
	"vestibule/internal/lab/figures"
	"vestibule/internal/page"
)

// fast makes the time of a page pass faster, for at least n polls.
const fast = `{
	const later = setTimeout, clock = Date.now, start = clock();
	window.setTimeout = (f, ms) => later(f, ms / 25);
	Date.now = () => start + (clock() - start) * 25;
}`

// At the head of the line, a screen reader hears that the visitor is next, and nothing else for 75 s in which nothing
// changes. Where the state changes to and fro and the numbers do not, it hears each state once.
func TestAScreenReaderHearsNothingTwice(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		next  func(answer int32) bool
		texts int // of the whole time; 0 for one of each state after the first seconds
	}{
		"nothing changes": {func(int32) bool { return true }, 1},
		"to and fro":      {func(answer int32) bool { return answer%2 == 0 }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, s, url := open(t)
			var n atomic.Int32
			s.play(func(s *site) {
				s.news = func() []byte {
					v := page.Samples[0].Visitor
					v.Decision.Ahead, v.Decision.Wait, v.Decision.Low, v.Decision.High = 0, 0, 0, 0
					v.Decision.Retry = 1
					v.Decision.Next = c.next(n.Add(1))
					return page.AppendJSON(nil, &v)
				}
			})
			browsertest.See(t, ctx, atStart(fast))
			browsertest.See(t, ctx, atStart(`window.spoken = []; const from = Date.now();
				addEventListener("DOMContentLoaded", () => new MutationObserver(() => spoken.push(document.getElementById("say").textContent)).observe(document.getElementById("say"), {childList: true, characterData: true, subtree: true}))`))
			do(t, ctx, chromedp.Navigate(url+"/queued"))
			waitFor(t, ctx, `Date.now() - from > 10000`)
			first := browsertest.See(t, ctx, chromedp.Evaluate[[]string](`spoken.splice(0)`)) // the visitor came from far behind
			waitFor(t, ctx, `Date.now() - from > 85000`)
			for n.Load() < 10 { // on a busy machine
				waitFor(t, ctx, `(window.again ||= Date.now()) < Date.now() - 1000 && !(window.again = 0)`)
			}
			said := browsertest.See(t, ctx, chromedp.Evaluate[[]string](`spoken`))
			t.Logf("%d answers; %q before, then %q", n.Load(), first, said)
			if all := len(first) + len(said); c.texts > 0 && all != c.texts {
				t.Errorf("%d texts, want %d", all, c.texts)
			}
			slices.Sort(said)
			if len(said) > 2 || len(slices.Compact(said)) < len(said) {
				t.Errorf("the page said %q", said)
			}
		})
	}
}

// A page takes no waiting answer for the site, whatever a server on the way has made of it.
func TestAWaitingAnswerIsNotTheSite(t *testing.T) {
	s := &site{Handler: New("", "", slog.New(slog.DiscardHandler))}
	var loads, polls atomic.Int32
	url := browsertest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Vestibule-Poll") != "" {
			polls.Add(1)
			w.Header().Set("Vestibule-Decision", "wait")
			w.Header().Set("Content-Type", "text/html")
			_, _ = w.Write([]byte("<!doctype html><title>One moment</title>"))
			return
		}
		if r.URL.Path == "/queued" {
			loads.Add(1)
		}
		s.ServeHTTP(w, r)
	}))
	ctx := browsertest.Open(t)
	browsertest.See(t, ctx, atStart(fast))
	do(t, ctx, chromedp.Navigate(url+"/queued"))
	poll(t, "the page has asked three times", func() bool { return polls.Load() >= 3 })
	if n := loads.Load(); n != 1 {
		t.Errorf("the page was loaded %d times", n)
	}
	waitFor(t, ctx, `document.getElementById("vr").dataset.state == "offline"`)
}

// Whatever keeps the script from running, from starting or from asking, a visitor comes in without a click.
func TestTheWayInNeedsNoScript(t *testing.T) {
	type way struct {
		name, policy string
		html         func(text string) string // of a server in front; nil leaves the page as it is
		start        string                   // a script that runs before
	}
	ways := []way{
		{name: "untouched"},
		{name: "scripts of its own", policy: "script-src 'self'"},
		{name: "everything of its own", policy: "default-src 'self'"},
		{name: "no script", policy: "script-src 'none'"},
		{name: "nothing", policy: "default-src 'none'"},
		{name: "scripts with a nonce", policy: "script-src 'nonce-abc' 'strict-dynamic'"},
		{name: "trusted types", policy: "require-trusted-types-for 'script'; trusted-types 'none'"},
		{name: "no connections", policy: "connect-src 'none'"},
		{name: "a CDN that keeps scripts for later", html: func(text string) string {
			return strings.ReplaceAll(text, "<script src", "<script type=later src")
		}},
		{name: "a CDN that has scripts wait", html: func(text string) string {
			return strings.ReplaceAll(text, "<script src", "<script defer src")
		}},
		{name: "a CDN that moves scripts", html: func(text string) string {
			return strings.Replace(text, "/.well-known/vestibule/page.", "/cdn/page.", 1)
		}},
		{name: "polls that throw", start: `window.fetch = () => { throw new Error("no") }`},
		{name: "polls that fail", start: `window.fetch = () => Promise.reject(new TypeError("no"))`},
		{name: "answers that throw", start: `Response.prototype.json = () => Promise.resolve({vestibule: {get state() { throw 1 }}})`},
	}
	for _, missing := range []string{"fetch", "AbortController", "Intl", "Promise", "EventSource", "BroadcastChannel"} {
		ways = append(ways, way{name: "without " + missing, start: "window." + missing + " = undefined"})
	}
	var in atomic.Int32
	t.Cleanup(func() {
		figures.Check(t, "page: visitors who are not in after 90 s without a click", "", float64(len(ways)-int(in.Load())))
	})
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			s := &site{Handler: New("", "", slog.New(slog.DiscardHandler))}
			s.news = func() []byte { return page.AppendNews(nil, "entering", true) }
			url := browsertest.Serve(t, http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
				rec := httptest.NewRecorder()
				s.ServeHTTP(rec, r)
				maps.Copy(out.Header(), rec.Header())
				text := rec.Body.String()
				if r.URL.Path == "/next" && r.Header.Get("Vestibule-Poll") == "" {
					if w.policy != "" {
						out.Header().Add("Content-Security-Policy", w.policy)
					}
					if w.html != nil {
						text = w.html(text)
					}
					s.play(func(s *site) { s.in = true })
				}
				out.WriteHeader(rec.Code)
				io.WriteString(out, text) //nolint:errcheck // the page shows it
			}))
			ctx := browsertest.Open(t)
			browsertest.See(t, ctx, atStart(fast))
			if w.start != "" {
				browsertest.See(t, ctx, atStart(w.start))
			}
			do(t, ctx, chromedp.Navigate(url+"/next#part"))
			waitFor(t, ctx, `document.title == "The site"`)
			in.Add(1)
		})
	}
}

// With its script, a page loads once, whatever the refresh in it says.
func TestARunningPageDoesNotReload(t *testing.T) {
	t.Parallel()
	s := &site{Handler: New("", "", slog.New(slog.DiscardHandler))}
	var loads atomic.Int32
	s.play(func(s *site) {
		s.news = func() []byte {
			v := page.Samples[0].Visitor
			v.Decision.Retry = 2 * time.Second
			return page.AppendJSON(nil, &v)
		}
	})
	mux := http.NewServeMux()
	mux.Handle("/", s)
	mux.HandleFunc("/next", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Vestibule-Poll") == "" {
			loads.Add(1)
		}
		s.ServeHTTP(w, r)
	})
	url := browsertest.Serve(t, mux)
	ctx := browsertest.Open(t)
	browsertest.See(t, ctx, atStart(fast))
	do(t, ctx, chromedp.Navigate(url+"/next"))
	browsertest.See(t, ctx, chromedp.Evaluate[bool](`(window.from = Date.now()) > 0`))
	waitFor(t, ctx, `Date.now() - from > 600000`)
	if n := loads.Load(); n != 1 {
		t.Errorf("the page was loaded %d times in ten minutes", n)
	}
	check(t, ctx, "a running page")
}

// A page that answers a form asks by GET at the turn, whatever its address: the form would be sent again.
func TestAFormIsNotSentAgain(t *testing.T) {
	t.Parallel()
	custom := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(custom, []byte("<!doctype html><title>wait</title>{{{liveScript}}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"", custom} {
		for _, address := range []string{"/queued", "/queued?a=b", "/queued#gf_1", "/queued?a=b#gf_1", "/queued#", "/queued?#"} {
			t.Run(strings.TrimPrefix(filepath.Base(file), ".")+address, func(t *testing.T) {
				s := &site{Handler: New(file, "", slog.New(slog.DiscardHandler))}
				s.news = func() []byte { return page.AppendNews(nil, "entering", true) }
				var posts atomic.Int32
				streams := make(chan chan []byte, 8)
				mux := http.NewServeMux()
				mux.Handle("/.well-known/vestibule/events", listener(streams))
				mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodPost && r.URL.Path == "/queued" {
						posts.Add(1)
						r.Method = http.MethodGet // a preview answers only this
						defer s.play(func(s *site) { s.in = true })
					}
					s.ServeHTTP(w, r)
				})
				url := browsertest.Serve(t, mux)
				ctx := browsertest.Open(t)
				browsertest.See(t, ctx, atStart(fast))
				do(t, ctx, chromedp.Navigate(url+"/"))
				browsertest.See(t, ctx, chromedp.Evaluate[bool](fmt.Sprintf(
					`document.body.innerHTML = "<form method=post action='%s'></form>"; document.forms[0].submit(); true`, address)))
				if file != "" {
					everybody := &wire.View{Park: estimate.Open, Paces: []estimate.Pace{{Mu: 1}}}
					<-streams <- append(page.AppendBroadcast(nil, &page.Broadcast{View: everybody}), "\n\n"...)
				}
				waitFor(t, ctx, `document.title == "The site"`)
				figures.Check(t, "page: forms sent again", "", float64(posts.Load()-1))
				if got := browsertest.See(t, ctx, chromedp.Evaluate[string](`location.href`)); got != url+address {
					t.Errorf("the site is shown at %s, want %s", got, address)
				}
			})
		}
	}
}

// A library that puts the waiting page into the document of the site gets a page that works.
func TestAPageInAnotherDocument(t *testing.T) {
	s := &site{Handler: New("", "", slog.New(slog.DiscardHandler))}
	url := browsertest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/shop" {
			w.Header().Set("Content-Type", "text/html")
			_, _ = w.Write([]byte("<!doctype html><link rel=icon href=data:,><title>shop</title><h1>shop</h1>"))
			return
		}
		s.ServeHTTP(w, r)
	}))
	ctx := browsertest.Open(t)
	do(t, ctx, chromedp.Navigate(url+"/shop"))
	browsertest.See(t, ctx, chromedp.Evaluate[bool](`fetch("/queued").then(r => r.text()).then(text => {
		const page = new DOMParser().parseFromString(text, "text/html");
		const again = s => { const c = document.createElement("script"); for (const a of s.attributes) c.setAttribute(a.name, a.value); c.textContent = s.textContent; s.replaceWith(c) };
		document.head.replaceWith(document.adoptNode(page.head));
		document.body.replaceWith(document.adoptNode(page.body));
		document.querySelectorAll("script").forEach(again);
		return true;
	})`, chromedp.EvalAwaitPromise))
	waitFor(t, ctx, `window.vestibule && document.title == "(1,234) You are in line"`)
}
