//go:build !race

package allinone

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"vestibule/internal/core/draw"
	"vestibule/internal/lab/browsertest"
)

// entrant takes part in a draw with a program that asks after each Retry-After.
type entrant struct {
	*browser
	edge string

	mu    sync.Mutex
	ahead []int         // visitors ahead, before the start, if shown
	proof *draw.Receipt // once it exists
}

func (e *entrant) run(ctx context.Context, start time.Time) {
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.edge+"/", http.NoBody)
		if err != nil {
			e.t.Error(err)
			return
		}
		req.Header.Set("Accept", "application/json")
		resp, err := e.Do(req)
		if err != nil {
			return // the test has ended
		}
		var answer struct {
			Vestibule struct {
				State       string
				PeopleAhead int
				Draw        struct{ Receipt *draw.Receipt }
			}
		}
		err = json.NewDecoder(resp.Body).Decode(&answer)
		resp.Body.Close()
		if err != nil || answer.Vestibule.State == "" {
			return // inside
		}
		e.mu.Lock()
		if v := &answer.Vestibule; v.State == "before" && time.Now().Before(start) {
			if v.PeopleAhead >= 0 {
				e.ahead = append(e.ahead, v.PeopleAhead)
			}
			if v.Draw.Receipt != nil {
				e.proof = v.Draw.Receipt
			}
		}
		e.mu.Unlock()
		s, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		if err != nil {
			e.t.Errorf("no Retry-After: %v", resp.Header)
			return
		}
		sleep(ctx, time.Duration(s)*time.Second)
	}
}

// TestADrawInABrowser: pages show the place in the draw before the start, even one that was open before the event was
// announced; no visitor sees too low a number, and the start is noticed at once.
func TestADrawInABrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("a draw takes a minute")
	}
	t.Parallel()
	const people, pages, permits = 30, 4, 5
	tree, _ := grow(t, 1, 600, 10*time.Minute)
	newBrowser(t).stays(tree.Info.Edges[0].URL)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()

	var tabs []context.Context
	for range pages {
		tabs = append(tabs, browsertest.Open(t)) // a browser that starts beside others may take longer than entries are open
	}
	// The first page is open before the event is announced.
	browsertest.Do(t, tabs[0], chromedp.Navigate(tree.Info.Edges[0].URL), chromedp.WaitVisible(chromedp.CSS("#vr")))
	start := time.Now().Add(75 * time.Second).Truncate(time.Second).UTC()
	edit(t, tree, "    new_users_per_minute: 600\n",
		fmt.Sprintf("    new_users_per_minute: 600\n    events:\n"+
			"      - {name: launch, prequeue_start_time: %q, event_start_time: %q, event_end_time: %q, "+
			"shuffle_at_event_start: true}\n",
			start.Add(-6*time.Minute).Format(time.RFC3339), start.Format(time.RFC3339),
			start.Add(time.Hour).Format(time.RFC3339)))
	eventually(t, "people gather", func() bool { return newBrowser(t).asks(tree.Info.Edges[0].URL) == "before" })
	edit(t, tree, "total_active_users: 1\n", fmt.Sprintf("total_active_users: %d\n", permits+1))
	for i, tab := range tabs[1:] {
		browsertest.Do(t, tab, chromedp.Navigate(tree.Info.Edges[i%len(tree.Info.Edges)].URL),
			chromedp.WaitVisible(chromedp.CSS("#vr")))
		t.Logf("page %d: open %v before the start", i+1, time.Until(start).Round(100*time.Millisecond))
	}

	all := make([]*entrant, people)
	for i := range all {
		all[i] = &entrant{browser: newBrowser(t), edge: tree.Info.Edges[i%len(tree.Info.Edges)].URL}
		running.Go(func() { all[i].run(ctx, start) })
	}
	until(t, tabs[0], "the page from before the event shows that it gathers",
		func(s shows) bool { return s.State == "before" })
	for _, tab := range tabs {
		s := browsertest.See(t, tab, chromedp.Evaluate[shows](look))
		if s.State != "before" || strings.Contains(s.Text, "{") {
			t.Fatalf("before the draw: %+v", s)
		}
	}
	for i, tab := range tabs {
		until(t, tab, "the page tells the place in the draw",
			func(s shows) bool { return strings.Contains(s.Place, "/") && !strings.HasPrefix(s.Place, "0/") })
		s := browsertest.See(t, tab, chromedp.Evaluate[shows](look))
		t.Logf("page %d: %s, %v before the start", i, s.Place, time.Until(start).Round(100*time.Millisecond))
	}
	var left sync.WaitGroup
	for i, tab := range tabs {
		left.Go(func() {
			until(t, tab, "the page sees the start", func(s shows) bool { return s.State != "before" && s.State != "" })
			t.Logf("page %d: not before any more %v after the start", i, time.Since(start).Round(100*time.Millisecond))
		})
	}
	left.Wait()
	eventually(t, "the first are in", func() bool { return tree.Origin.Stats().Total > permits })
	t.Logf("%d are in %v after the start", permits, time.Since(start).Round(100*time.Millisecond))
	stop()
	running.Wait()

	// The visitors in front follow from the receipts; pages are not among them.
	var places []int64
	for _, e := range all {
		if e.proof != nil {
			places = append(places, e.proof.Place.UnixMilli())
		}
	}
	slices.Sort(places)
	numbers, off := 0, 0
	for _, e := range all {
		if e.proof == nil {
			continue
		}
		ahead, _ := slices.BinarySearch(places, e.proof.Place.UnixMilli())
		for _, n := range e.ahead {
			numbers++
			off = max(off, ahead-n)
		}
	}
	t.Logf("%d of %d entrants have a receipt; %d numbers were shown before the start, too low by %d at most", len(places),
		people, numbers, off)
	if off > 2 {
		t.Errorf("a visitor saw a number that is too low by %d", off)
	}
}
