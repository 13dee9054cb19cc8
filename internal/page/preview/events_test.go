package preview

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/wire"
	"vestibule/internal/lab/browsertest"
	"vestibule/internal/page"
)

// A page with an event stream computes its own position from broadcasts, does not poll without a reason, and polls
// at once when its turn is near.
func TestTheStreamInABrowser(t *testing.T) {
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
		Cutoff: joined - 60_000, Park: joined - 30_000, Slots: 10, Paces: []estimate.Pace{{Mu: 2}},
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
	say(func() { b.View.Slots, b.View.Theta = 0, .001 })
	say(func() { b.PausedBy = page.PausedBySystem })
	shown("head", "The line is paused")
	shown("ahead", "600") // ten more are no reason to raise the shown number
	say(func() { b.PausedBy, b.View.Slots = "", 700 })
	shown("ahead", "0") // and still not next: its turn has not come

	// A message that lacks most of the visitors in front has no effect. If many do, and they come back, the page
	// explains a longer wait, at most the earlier one.
	visit()
	whole := b.View.Line
	say(func() { b.View.Slots, b.View.Theta = 10, 0 })
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
