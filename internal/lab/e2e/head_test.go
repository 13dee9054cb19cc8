package e2e

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vestibule/internal/lab/figures"
	"vestibule/internal/lab/testkit"
)

// TestTheHeadOfTheLine: a request that is no visit takes no permit, and the head of the queue sees a page on every
// load. Two visitors fit in; before them come the preflights, icons and robots.txt requests that browsers and
// crawlers send by themselves.
func TestTheHeadOfTheLine(t *testing.T) {
	t.Parallel()
	site := plainSite(t)
	bin, dir := build(t), t.TempDir()
	nats, _ := fleet(t, bin, dir, sale(2, 1000, "1h", site.URL, ", probation: 1h"), "nairobi")
	edge := startEdge(t, bin, dir, nats, "nairobi", "edge-1", quickEdge)
	areReady(t, edge)

	const each = 30
	navigation := []string{"Accept", "text/html", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}
	for range each {
		for _, by := range []struct {
			method, path string
			header       []string
		}{
			{http.MethodOptions, "/cart", []string{"Origin", "https://app.example", "Access-Control-Request-Method", "POST"}},
			{http.MethodGet, "/favicon.ico", []string{
				"Accept", "image/*", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest",
				"image",
			}},
			{http.MethodGet, "/robots.txt", []string{"User-Agent", "Robot/1.0"}},
		} {
			browse(t, client, by.method, edge.at["url"]+by.path, by.header...)
		}
	}
	permits := func() int {
		var s struct {
			Rooms map[string]struct {
				Admitted int `json:"visitors_admitted"`
			}
		}
		testkit.NoError(t, get(edge.at["metrics"]+"/status", &s))
		return s.Rooms["sale"].Admitted
	}
	if n := permits(); n != 0 {
		t.Errorf("%d permits were taken before anybody came", n)
	}
	for range 2 {
		v := browser(t, &http.Transport{})
		until(t, "a visitor is inside",
			func() bool { return browse(t, v, http.MethodGet, edge.at["url"], navigation...) == "the site" })
	}
	if n := permits(); n != 2 {
		t.Errorf("two visitors took %d permits", n)
	}

	// Ten waiting visitors load the page ten times each: the first of them are at the head.
	var all sync.WaitGroup
	took := make([][]time.Duration, 10)
	for i := range took {
		v := browser(t, &http.Transport{})
		browse(t, v, http.MethodGet, edge.at["url"], navigation...) // the first load joins the queue
		all.Go(func() {
			for range 10 {
				begun := time.Now()
				if text := browse(t, v, http.MethodGet, edge.at["url"], navigation...); !strings.HasPrefix(text,
					"<!doctype html>") {
					t.Errorf("a load of the page is answered %.60q", text)
				}
				took[i] = append(took[i], time.Since(begun))
			}
		})
	}
	all.Wait()
	loads := slices.Concat(took...)
	slices.Sort(loads)
	t.Logf("%d loads of the page at the head: half within %v, slowest %v", len(loads),
		loads[len(loads)/2].Round(time.Millisecond), loads[len(loads)-1].Round(time.Millisecond))
	figures.CheckTime(t, "e2e: p99 of loads at the head of the line", "", loads[len(loads)*99/100])
}

// browse sends one request and returns the body, "" for none.
func browse(t *testing.T, c *http.Client, method, url string, header ...string) string {
	t.Helper()
	f, err := fetch(t.Context(), c, method, url, "", header...)
	if err != nil {
		t.Error(err)
	}
	return f.body
}
