package preview

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/chromedp/chromedp"

	"vestibule/internal/browsertest"
	"vestibule/internal/line"
	"vestibule/internal/waiting"
	"vestibule/internal/wire"
)

// A page with an event stream works out its own place from what everybody is
// told, does not ask while nothing concerns it, and asks at once when its turn
// is near.
func TestTheStreamInABrowser(t *testing.T) {
	ctx := browsertest.Open(t)
	s := &site{Handler: New("", "", slog.New(slog.DiscardHandler))}
	messages := make(chan []byte)
	mux := http.NewServeMux()
	mux.Handle("/", s)
	mux.HandleFunc("/.well-known/vestibule/events", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("room") != "sale" {
			t.Errorf("the page listens to %s", r.URL)
		}
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

	me := waiting.Samples[0].Visitor
	joined := me.Decision.Ticket.Joined
	// Of 800 people half joined before me, and 210 long before.
	b := waiting.Broadcast{Now: me.Now, View: &wire.View{
		At:      me.Now,
		Horizon: joined - 60_000, Park: joined - 30_000, Slots: 10, Paces: []line.Pace{{Mu: 2}}, Line: line.NewDigest(line.Histogram{
			{Start: joined - 600_000, Width: 1000, N: 210}, {Start: joined - 20_000, Width: 40_000, N: 800},
		}),
	}}
	say := func(change func()) {
		change()
		messages <- waiting.AppendBroadcast(nil, &b)
	}
	asked := func() (n int) {
		s.play(func(s *site) { n = s.asked })
		return n
	}
	shown := func(id, want string) {
		t.Helper()
		waitFor(t, ctx, fmt.Sprintf(`document.getElementById(%q).textContent == %q`, id, want))
	}

	do(t, ctx, phone(), chromedp.Navigate(srv.URL+"/queued"))
	say(func() {})
	shown("ahead", "600")
	shown("total", "1,010")
	shown("wait", "4–6 minutes") // half of the wait that the page came with: 8 to 11
	if got := browsertest.See(t, ctx, chromedp.Evaluate[float64](`document.getElementById("bar").value`)); got != 56 {
		t.Errorf("the progress is %v %%", got)
	}
	say(func() { b.View.Slots, b.View.Theta = 0, .001 })
	say(func() { b.PausedBy = waiting.PausedBySystem })
	shown("head", "The line is paused")
	shown("ahead", "600") // ten more are no reason to take back what was told
	say(func() { b.PausedBy, b.View.Slots = "", 700 })
	shown("ahead", "0") // and yet not next: it is nobody's turn who joined then
	if n := asked(); n != 0 {
		t.Errorf("the page asked %d times although nothing concerned it", n)
	}

	s.play(func(s *site) {
		s.news = func() []byte { return waiting.AppendNews(nil, "entering", true) }
		s.in = true
	})
	say(func() { b.View.Park = joined })
	waitFor(t, ctx, `document.querySelector("h1.in")`+` != null`)
	if n := asked(); n != 1 {
		t.Errorf("the page asked %d times", n)
	}
}
