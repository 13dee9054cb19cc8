package preview

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	"vestibule/internal/lab/browsertest"
	"vestibule/internal/page"
)

// A page with an event stream computes its own position from broadcasts, does not poll without a reason, and polls
// at once when its turn is near.
func TestTheStreamInABrowser(t *testing.T) {
	t.Parallel()
	ctx := browsertest.Open(t)
	s := &site{Handler: New("", "", slog.New(slog.DiscardHandler))}
	streams := make(chan chan []byte, 8) // one for each opened stream
	mux := http.NewServeMux()
	mux.Handle("/", s)
	mux.HandleFunc("/.well-known/vestibule/events", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("room") != "sale" {
			t.Errorf("the page listens to %s", r.URL)
		}
		messages := make(chan []byte, 8)
		streams <- messages
		w.Header().Set("Content-Type", "text/event-stream")
		rc := http.NewResponseController(w)
		for err := rc.Flush(); err == nil; err = rc.Flush() {
			select {
			case m := <-messages:
				_, _ = w.Write(m)
			case <-r.Context().Done():
				return
			}
		}
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	t.Cleanup(srv.CloseClientConnections)

	me := page.Samples[0].Visitor
	joined := me.Decision.Ticket.Joined
	// Of 800 visitors half joined before this one, and 210 long before.
	b := page.Broadcast{Now: me.Now.Add(-3 * time.Second), View: &wire.View{
		At:     me.Now,
		Cutoff: joined - 60_000, Park: joined - 30_000, Free: 10, Paces: []estimate.Pace{{Mu: 2}},
		Line: estimate.NewDigest(estimate.Histogram{
			{Start: joined - 600_000, Width: 1000, N: 210}, {Start: joined - 20_000, Width: 40_000, N: 800},
		}),
	}}
	var stream chan []byte // of the open page
	path := "/queued"
	visit := func() {
		t.Helper()
		do(t, ctx, chromedp.Navigate(srv.URL+path))
		poll(t, "the page listens", func() bool {
			select {
			case stream = <-streams:
				return true
			default:
				return false
			}
		})
	}
	say := func(change func()) { // sent so late that the previous message has no effect any more
		change()
		b.Now = b.Now.Add(3 * time.Second)
		stream <- page.AppendBroadcast(nil, &b)
	}
	asked := func() (n int) {
		s.play(func(s *site) { n = s.asked })
		return n
	}
	shown := func(id, want string) {
		t.Helper()
		waitFor(t, ctx, fmt.Sprintf(`document.getElementById(%q).textContent == %q`, id, want))
	}

	// Pages poll every 20 seconds, which may happen here. At most ten such polls.
	browsertest.See(t, ctx, atStart(`{
		const later = setTimeout, clock = Date.now, start = clock();
		window.setTimeout = (f, ms) => ms < 10000 ? later(f, ms) : 0;
		Date.now = () => Math.min(clock(), start + 10000);
	}`))
	do(t, ctx, phone())
	visit()
	say(func() {})
	shown("ahead", "600")
	shown("total", "1,010")
	shown("wait", "4–\u20606 minutes") // half of the initial wait of the page: 8 to 11
	if got := browsertest.See(t, ctx, chromedp.Evaluate[float64](`document.getElementById("bar").value`)); got != 56 {
		t.Errorf("the progress is %v %%", got)
	}
	say(func() { b.View.Free, b.View.Theta = 0, .001 })
	say(func() { b.PausedBy = page.PausedBySystem })
	shown("head", "The line is paused")
	shown("ahead", "600") // ten more are no reason to raise the shown number
	say(func() { b.PausedBy, b.View.Free = "", 700 })
	shown("ahead", "0") // and still not next: its turn has not come

	// A message that lacks most of the visitors in front has no effect. If many do, and they come back, the page
	// explains a longer wait, at most the earlier one.
	visit()
	whole := b.View.Line
	say(func() { b.View.Free, b.View.Theta = 10, 0 })
	shown("ahead", "600")
	b.View.Line, b.Now = estimate.NewDigest(estimate.Histogram{{Start: joined - 600_000, Width: 1000, N: 20}}),
		b.Now.Add(-2*time.Second)
	say(func() {})
	b.View.Line, b.Now = whole, b.Now.Add(-2*time.Second)
	say(func() {})
	shown("total", "1,010")
	shown("wait", "4–\u20606 minutes")
	shown("ahead", "600")
	say(func() {
		b.View.Line = estimate.NewDigest(estimate.Histogram{{Start: joined - 600_000, Width: 1000, N: 20}})
	})
	shown("wait", "Less than a minute")
	shown("ahead", "10")
	bar := browsertest.See(t, ctx, chromedp.Evaluate[float64](`document.getElementById("bar").value`))
	say(func() { b.View.Line = whole })
	shown("wait", "4–\u20606 minutes")
	shown("ahead", "600")
	if said := browsertest.See(t, ctx,
		chromedp.Evaluate[string](`document.getElementById("text").textContent`)); !strings.Contains(said, "more slowly") {
		t.Errorf("the wait has grown, and the page says %q", said)
	}
	if now := browsertest.See(t, ctx, chromedp.Evaluate[float64](`document.getElementById("bar").value`)); now < bar ||
		bar < 90 {
		t.Errorf("the progress is %v %% after %v %%", now, bar)
	}
	if n := asked(); n != 0 {
		t.Errorf("the page asked %d times although nothing concerned it", n)
	}

	s.play(func(s *site) {
		s.news = func() []byte { return page.AppendNews(nil, "entering", true) }
		s.in = true
	})
	say(func() { b.View.Park = joined })
	waitFor(t, ctx, `document.querySelector("h1.in")`+` != null`)
	if n := asked(); n != 1 {
		t.Errorf("the page asked %d times", n)
	}

	// The record of a draw is published: a page polls once for its place, a page of a late visitor does not.
	s.play(func(s *site) { s.news, s.in, s.asked = nil, false, 0 })
	browsertest.See(t, ctx, atStart(`Math.random = () => 0`))
	path, b.View.Cutoff, b.View.Park = "/before-draw", 0, 0
	visit()
	say(func() { b.Drawn = joined })
	say(func() {})
	if n := asked(); n != 0 {
		t.Errorf("a page of somebody who came later asked %d times", n)
	}
	say(func() { b.Drawn = joined + 1 })
	poll(t, "the page asks", func() bool { return asked() == 1 })
	// There is no second poll while one is pending: the turn comes with its answer.
	waitFor(t, ctx, `performance.getEntriesByType("resource").some(e => e.initiatorType == "fetch" && e.responseEnd > 0)`)
	say(func() {})
	say(func() { b.View.Cutoff = joined })
	poll(t, "the page asks at the turn", func() bool { return asked() == 2 })
}

// TestALostConnectionIsFoundAgain: a page without a connection polls at once when the event stream reconnects, even
// with a hanging poll, and otherwise at least every 12.5 seconds.
func TestALostConnectionIsFoundAgain(t *testing.T) {
	t.Parallel()
	s := &site{Handler: New("", "", slog.New(slog.DiscardHandler))}
	var hangs, hung, streams atomic.Bool
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Vestibule-Poll") != "" && hangs.Load() {
			hung.Store(true)
			<-r.Context().Done()
			return
		}
		s.ServeHTTP(w, r)
	})
	mux.HandleFunc("/.well-known/vestibule/events", func(w http.ResponseWriter, r *http.Request) {
		if !streams.Load() {
			panic(http.ErrAbortHandler)
		}
		hangs.Store(false)
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	url := browsertest.Serve(t, mux)
	ctx := browsertest.Open(t)

	do(t, ctx, phone(), chromedp.Navigate(url+"/queued"))
	browsertest.See(t, ctx,
		chromedp.Evaluate[bool](`window.timers = [], window.later = setTimeout, window.setTimeout = (f, ms) => (timers.push(ms), later(f, ms)), true`))
	s.play(func(s *site) { s.down = true })
	const retries = `timers.filter(ms => ms > 1000 && ms < 45000)`
	poll(t, "the page has asked in vain six times", func() bool {
		return browsertest.See(t, ctx, chromedp.Evaluate[bool](`dispatchEvent(new Event("online")), `+retries+`.length >= 6`))
	})
	waitFor(t, ctx, `document.title == "Connection lost"`)
	if longest := browsertest.See(t, ctx, chromedp.Evaluate[float64](`Math.max(...`+retries+`)`)); longest > 12_500 ||
		longest < 7500 {
		t.Errorf("the page asks after %v ms", longest)
	}
	hangs.Store(true)
	s.play(func(s *site) { s.down = false })
	poll(t, "a question hangs", func() bool {
		browsertest.See(t, ctx, chromedp.Evaluate[bool](`dispatchEvent(new Event("online"))`))
		return hung.Load()
	})
	streams.Store(true)
	waitFor(t, ctx, `document.title == "(1,234) You are in line"`)
}

// TestARefusedStreamIsOpenedAgain: a page whose event stream is refused tries again after 3 s, and then less and less
// often: a load balancer answers 502 for a moment, a full edge 503 for long.
func TestARefusedStreamIsOpenedAgain(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("/", &site{Handler: New("", "", slog.New(slog.DiscardHandler))})
	mux.HandleFunc("/.well-known/vestibule/events", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "full", http.StatusServiceUnavailable)
	})
	url := browsertest.Serve(t, mux)
	ctx := browsertest.Open(t)
	browsertest.See(t, ctx, atStart(`{
		const later = setTimeout, waits = window.waits = [];
		Math.random = () => .5;
		window.setTimeout = (f, ms) => [3, 6, 12, 24, 48].includes(ms / 1000) ? (waits.push(ms / 1000), later(f, 0)) : later(f, ms);
	}`))
	do(t, ctx, phone(), chromedp.Navigate(url+"/queued"))
	waitFor(t, ctx, `waits.length >= 6`)
	if got := browsertest.See(t, ctx, chromedp.Evaluate[string](`waits.slice(0, 6).join(" ")`)); got != "3 6 12 24 48 48" {
		t.Errorf("the page opens its stream again after %s s, want 3 6 12 24 48 48", got)
	}
}

// TestAPageOfAnOperatorFollowsTheLine: a custom page with our script loads again near its turn and when the line is
// closed, paused or opened. It does not while nobody can enter: every load would be answered at once.
func TestAPageOfAnOperatorFollowsTheLine(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(file, []byte("<!doctype html><title>wait</title><h1>{{state}}</h1>{{{liveScript}}}"),
		0o600); err != nil {
		t.Fatal(err)
	}
	streams := make(chan chan []byte, 8)
	mux := http.NewServeMux()
	mux.Handle("/", New(file, "", slog.New(slog.DiscardHandler)))
	mux.HandleFunc("/.well-known/vestibule/events", listener(streams))
	url := browsertest.Serve(t, mux)
	ctx := browsertest.Open(t)
	browsertest.See(t, ctx, atStart(`{ // loads counts the loads that the page sets out for
		window.heard = window.loads = 0;
		window.setTimeout = () => loads++;
		const Source = EventSource;
		window.EventSource = class extends Source {
			constructor(url) { super(url); this.addEventListener("message", () => heard++) }
		};
	}`))

	for _, tc := range followed {
		do(t, ctx, chromedp.Navigate(url+"/"+tc.state))
		if got := follow(t, ctx, <-streams, tc.messages); got != tc.loads {
			t.Errorf("%s: the page sets out for %s loads, want %s", tc.name, got, tc.loads)
		}
	}
}

// following are messages of a stream to a visitor in a state.
type following struct {
	name, state string
	messages    []page.Broadcast
	loads       string // that a page has set out for after each message
}

var followed = func() []following {
	everybody := &wire.View{Park: estimate.Open, Paces: []estimate.Pace{{Mu: 1}}} // of a short line is held when it polls
	open, paused, stopped := page.Broadcast{View: everybody},
		page.Broadcast{View: everybody, PausedBy: page.PausedByOperator},
		page.Broadcast{View: everybody, PausedBy: page.PausedBySystem}
	closed, gathers := page.Broadcast{View: everybody, Closed: true}, page.Broadcast{View: everybody, Starts: 1}
	far := page.Broadcast{View: &wire.View{Paces: everybody.Paces}}
	return []following{
		{"in a short line", "queued", []page.Broadcast{open}, "1"},
		{"far back", "queued", []page.Broadcast{far, far}, "0 0"},
		{"closed", "rejected", []page.Broadcast{closed, closed, open}, "0 0 1"},
		{"closed at an edge that is cut off", "closed", []page.Broadcast{stopped, stopped, far}, "0 0 1"},
		{"the line is closed", "queued", []page.Broadcast{far, closed}, "0 1"},
		{"before an event", "before", []page.Broadcast{gathers, gathers}, "0 0"},
		{"paused", "paused-operator", []page.Broadcast{paused, paused, far}, "0 0 1"},
		{"the line is paused", "queued", []page.Broadcast{far, paused}, "0 1"},
	}
}()

// follow sends messages to an open page, and returns window.loads after each.
func follow(t *testing.T, ctx context.Context, stream chan<- []byte, messages []page.Broadcast) string {
	t.Helper()
	var got []string
	for i, m := range messages {
		stream <- page.AppendBroadcast(nil, &m)
		waitFor(t, ctx, fmt.Sprintf(`window.heard == %d`, i+1))
		got = append(got, browsertest.See(t, ctx, chromedp.Evaluate[string](`String(loads)`)))
	}
	return strings.Join(got, " ")
}

// listener serves event streams: each gets its messages from a channel that it announces.
func listener(streams chan<- chan []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		messages := make(chan []byte)
		streams <- messages
		w.Header().Set("Content-Type", "text/event-stream")
		rc := http.NewResponseController(w)
		for err := rc.Flush(); err == nil; err = rc.Flush() {
			select {
			case m := <-messages:
				_, _ = w.Write(m)
			case <-r.Context().Done():
				return
			}
		}
	}
}

// newApp serves a page of an app and the browser module.
func newApp() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<!doctype html><link rel=icon href=data:,><title>app</title>"))
	})
	mux.HandleFunc("/.well-known/vestibule/client.js", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript")
		_, _ = w.Write([]byte(page.Client))
	})
	mux.HandleFunc("/.well-known/vestibule/words.json", func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(page.LangOf(r.URL.Query().Get("lang")).Words()))
	})
	mux.HandleFunc("/.well-known/vestibule/away", func(http.ResponseWriter, *http.Request) {})
	return mux
}

// tell answers a request of an app that waits.
func tell(w http.ResponseWriter, v *page.Visitor) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Vestibule-Decision", "wait")
	_, _ = w.Write(page.AppendJSON(nil, v))
}

// TestTheModuleFollowsTheLine: the browser module polls near its turn, and when the line is closed, paused or opened,
// but not while nobody can enter. While its place is counted no poll is held: the answer would show nothing new.
func TestTheModuleFollowsTheLine(t *testing.T) {
	streams, polls := make(chan chan []byte, 8), make(chan string, 8)
	counting := following{name: "counting", state: "queued-counting"}
	mux := newApp()
	mux.HandleFunc("/api/{state}", func(w http.ResponseWriter, r *http.Request) {
		if how := r.Header.Get("Vestibule-Poll"); how != "" && r.PathValue("state") == counting.state {
			select {
			case polls <- how:
			case <-r.Context().Done():
			}
		}
		for i := range page.Samples {
			if s := &page.Samples[i]; s.Name == r.PathValue("state") {
				tell(w, &s.Visitor)
			}
		}
	})
	mux.HandleFunc("/.well-known/vestibule/events", listener(streams))
	url := browsertest.Serve(t, mux)
	ctx := browsertest.Open(t)
	browsertest.See(t, ctx, atStart(`{ // loads counts the polls that the module sets out for
		window.heard = window.loads = 0;
		const later = setTimeout;
		window.setTimeout = (f, ms) => ms <= 1500 ? loads++ : later(f, ms == 2000 ? 0 : ms);
		const Source = EventSource, clock = Date.now;
		Date.now = () => clock() + 10000 * heard; // the last poll is long ago
		window.EventSource = class extends Source {
			constructor(url) { super(url); this.addEventListener("message", () => heard++) }
		};
	}`))
	for _, tc := range append(slices.Clip(followed), counting) {
		do(t, ctx, chromedp.Navigate(url+"/"))
		browsertest.See(t, ctx, chromedp.Evaluate[bool](fmt.Sprintf(`import("/.well-known/vestibule/client.js").then(m => {
			m.onWait(() => {});
			m.waitingFetch("/api/%s");
			return true })`, tc.state), chromedp.EvalAwaitPromise))
		if tc.messages == nil {
			for range 4 {
				if how := <-polls; how != "now" {
					t.Errorf("%s: the module polls %q, want now", tc.name, how)
				}
			}
			continue
		}
		if got := follow(t, ctx, <-streams, tc.messages); got != tc.loads {
			t.Errorf("%s: the module sets out for %s polls, want %s", tc.name, got, tc.loads)
		}
	}
}

// TestTheBoxSpeaksAsThePage: the box of the module tells the wait in the words of the page, in every language.
func TestTheBoxSpeaksAsThePage(t *testing.T) {
	t.Parallel()
	waits := [][2]time.Duration{
		{8 * time.Minute, 11 * time.Minute},
		{time.Minute, 2 * time.Minute},
		{3 * time.Hour, 5 * time.Hour},
	}
	visitor := func(lang string, wait int) *page.Visitor {
		v := page.Samples[0].Visitor
		v.Lang = page.LangOf(lang)
		v.Decision.Low, v.Decision.Wait, v.Decision.High = waits[wait][0], waits[wait][0], waits[wait][1]
		return &v
	}
	mux := newApp()
	mux.HandleFunc("/api/{lang}/{wait}", func(w http.ResponseWriter, r *http.Request) {
		wait, err := strconv.Atoi(r.PathValue("wait"))
		if err != nil {
			t.Error(err)
		}
		tell(w, visitor(r.PathValue("lang"), wait))
	})
	mux.HandleFunc("/.well-known/vestibule/events",
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	url := browsertest.Serve(t, mux)
	ctx := browsertest.Open(t)
	do(t, ctx, chromedp.Navigate(url))
	for _, lang := range room.Languages {
		for i := range waits {
			_, after, _ := strings.Cut(string(page.Builtin().Render(nil, visitor(lang, i))), "<dd id=wait>")
			want, _, _ := strings.Cut(after, "</div>")
			got := browsertest.See(t, ctx, chromedp.Evaluate[string](fmt.Sprintf(`import("/.well-known/vestibule/client.js").then(async m => {
				const quit = new AbortController(), box = () => document.getElementById("vestibule-wait"), until = async ok => {
					for (let i = 0; i < 300 && !ok(); i++) await new Promise(done => setTimeout(done, 10));
				};
				m.waitingFetch("/api/%s/%d", {signal: quit.signal}).catch(() => {});
				await until(() => box()?.firstChild.textContent);
				const text = box()?.innerText;
				quit.abort();
				await until(() => !box());
				return text || "";
			})`, lang, i), chromedp.EvalAwaitPromise))
			if want == "" || !strings.Contains(got, want) {
				t.Errorf("%s: the box says %q, the page %q", lang, got, want)
			}
		}
	}
}
