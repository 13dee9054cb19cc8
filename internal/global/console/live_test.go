package console_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"vestibule/internal/global/control"
	"vestibule/internal/lab/browsertest"
	"vestibule/internal/lab/figures"
)

// An operator watches a room, pauses it with the keyboard, and resumes it; numbers and charts come without a reload.
func TestAnOperatorWatchesAndPausesInABrowser(t *testing.T) {
	f := start(t)
	id := f.api.make("sale", 2000, 200, nil)
	f.count("sale", control.Numbers{Active: 1900, Waiting: 12400, Longest: 61 * 60})
	url := browsertest.Serve(t, f)
	ctx := browsertest.Open(t)
	do(t, ctx, chromedp.Navigate(url+"/console/rooms/"+id))
	waitFor(t, ctx, `document.querySelectorAll(".chart canvas").length >= 8`)
	browsertest.See(t, ctx, chromedp.Evaluate[bool](`window.here = true`))
	f.count("sale", control.Numbers{Active: 1900, Waiting: 12345, Longest: 61 * 60})
	waitFor(t, ctx, `document.querySelector("[data-field=waiting]").textContent === "12,345"`)
	if !browsertest.See(t, ctx, chromedp.Evaluate[bool](`window.here === true`)) {
		t.Error("the page was loaded again")
	}
	// Somebody else changes the room: the page is loaded again, but not while the operator fills in a form.
	browsertest.See(t, ctx, chromedp.Evaluate[bool](`document.querySelector("details").open = true`))
	f.api.patch(id, map[string]any{"message": map[string]any{"text": "Soon"}})
	f.count("sale", control.Numbers{Active: 1900, Waiting: 12344, Longest: 61 * 60})
	waitFor(t, ctx, `document.querySelector("[data-field=waiting]").textContent === "12,344"`)
	if !browsertest.See(t, ctx,
		chromedp.Evaluate[bool](`window.here === true && document.querySelector("details").open`)) {
		t.Error("the page was loaded again while a form was open")
	}
	browsertest.See(t, ctx, chromedp.Evaluate[bool](`document.querySelector("details").open = false; true`))
	waitFor(t, ctx, `window.here !== true && document.body.innerText.includes("set the message “Soon”")`)

	browsertest.See(t, ctx, chromedp.Evaluate[bool](`document.querySelector("summary").focus(), true`))
	do(t, ctx, chromedp.KeyEvent("\r"))
	waitFor(t, ctx, `document.querySelector("details").open`)
	do(t, ctx, chromedp.KeyEvent("\t"), chromedp.KeyEvent("Back at noon"), chromedp.KeyEvent("\t"),
		chromedp.KeyEvent("\r"))
	waitFor(t, ctx, `location.pathname.endsWith("/actions/pause") && document.activeElement.name === "reason"`)
	do(t, ctx, chromedp.KeyEvent("power cut"), chromedp.KeyEvent("\r"))
	waitFor(t, ctx, `document.body.innerText.includes("The room is paused.")`)
	if c := f.api.controls(id); c.Pause == nil || *c.Pause.Message != "Back at noon" || c.Pause.Reason != "power cut" {
		t.Errorf("%+v", c.Pause)
	}
	f.play(func() { f.leader = false })
	waitFor(t, ctx, `document.querySelector("[data-field=waiting]").textContent === "–"`)
}

// The first points of a new room are recorded between the page and its question for charts: they are drawn.
func TestChartsOfANewRoomInABrowser(t *testing.T) {
	f := start(t)
	id := f.api.make("sale", 2000, 200, nil)
	f.count("sale", control.Numbers{Active: 1900})
	room := "/console/rooms/" + id
	first := true
	url := browsertest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == room && first {
			first = false
			f.past.unknown.Store(true)
			defer f.past.unknown.Store(false)
		}
		f.ServeHTTP(w, r)
	}))
	ctx := browsertest.Open(t)
	do(t, ctx, chromedp.Navigate(url+room))
	waitFor(t, ctx, `document.querySelectorAll(".chart canvas").length >= 8`)
}

// A page that is to be loaded again does not cancel a link that was followed, nor a form that was sent: it begins to
// unload with either.
func TestAFollowedLinkIsNotCancelledInABrowser(t *testing.T) {
	f := start(t)
	id := f.api.make("sale", 2000, 200, nil)
	f.count("sale", control.Numbers{Active: 1900, Waiting: 12400})
	room := "/console/rooms/" + id
	asked, seen, answer := make(chan struct{}), make(chan struct{}), make(chan struct{})
	url := browsertest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/seen":
			close(seen)
			return
		case room + "/events":
			close(asked)
			select {
			case <-r.Context().Done():
			case <-answer:
			}
		}
		f.ServeHTTP(w, r)
	}))
	ctx := browsertest.Open(t)
	do(t, ctx, chromedp.Navigate(url+room))
	waitFor(t, ctx, `document.querySelector("[data-field=waiting]").textContent === "12,400"`)
	browsertest.See(t, ctx, chromedp.Evaluate[bool](`new MutationObserver(() => fetch("/seen")).observe(document.querySelector("[data-field=waiting]"), {childList: true, characterData: true, subtree: true}),
		document.querySelector("a[href$='/events']").click(), true`))
	<-asked
	f.api.patch(id, map[string]any{"message": map[string]any{"text": "Soon"}})
	f.count("sale", control.Numbers{Active: 1900, Waiting: 12345})
	<-seen
	close(answer)
	waitFor(t, ctx, `location.pathname.endsWith("/events")`)
}

// The first view of a room over a slow line: what is loaded until the first chart is drawn, and when that is. The
// stream of numbers begins meanwhile.
func TestTheFirstChartOverASlowLineInABrowser(t *testing.T) {
	const rate, latency = 1.6e6 / 8, 150
	f := start(t)
	id := f.sale()
	f.plan(id)
	url := browsertest.Serve(t, f)
	ctx := browsertest.Open(t)
	browsertest.See(t, ctx,
		func(ctx context.Context, target *chromedp.Target) (page.AddScriptToEvaluateOnNewDocumentResult, error) {
			type conditions struct {
				network.EmulateNetworkConditionsByRuleParams
				Offline bool `json:"offline"` // Chromium 148 demands it
			}
			slow := conditions{network.EmulateNetworkConditionsByRuleParams{MatchedNetworkConditions: []*network.Conditions{{
				Latency: latency, DownloadThroughput: rate, UploadThroughput: rate,
			}}}, false}
			emulate := cdp.Command[conditions,
				network.EmulateNetworkConditionsByRuleResult]{Method: network.CommandEmulateNetworkConditionsByRule}
			if _, err := cdp.Call(ctx, target, emulate, slow); err != nil {
				return page.AddScriptToEvaluateOnNewDocumentResult{}, err
			}
			if _, err := cdp.Call(ctx, target, network.SetCacheDisabled,
				network.SetCacheDisabledParams{CacheDisabled: true}); err != nil {
				return page.AddScriptToEvaluateOnNewDocumentResult{}, err
			}
			return cdp.Call(ctx, target, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
				Source: `new MutationObserver((_, o) => document.querySelector(".chart canvas") && (o.disconnect(),
				requestAnimationFrame(() => setTimeout(() => window.drawn = performance.now())))).observe(document, {childList: true, subtree: true})`,
			})
		})
	do(t, ctx, chromedp.Navigate("about:blank"), chromedp.Navigate(url+"/console/rooms/"+id))
	waitFor(t, ctx, `window.drawn > 0`)
	drawn := time.Duration(browsertest.See(t, ctx, chromedp.Evaluate[float64](`window.drawn`)) * float64(time.Millisecond))
	loaded := browsertest.See(t, ctx,
		chromedp.Evaluate[int64](`performance.getEntriesByType("navigation").concat(performance.getEntriesByType("resource")).reduce((n, e) => n + e.transferSize, 0)`))
	figures.CheckTime(t, "console: room page over a slow line, first chart", "", drawn)
	figures.Check(t, "console: room page over a slow line, loaded", "", float64(loaded)/1000)
	if least := time.Duration(float64(loaded)/rate*float64(time.Second)) + latency*time.Millisecond; drawn < least {
		t.Errorf("the line is not slow: %v is less than %v", drawn, least)
	}
}

// Without script the same page has its numbers, its actions and its tables.
func TestARoomWithoutScriptInABrowser(t *testing.T) {
	f := start(t)
	id := f.api.make("sale", 2000, 200, nil)
	f.count("sale", control.Numbers{Active: 1900, Waiting: 12400, Longest: 61 * 60})
	url := browsertest.Serve(t, f)
	ctx := browsertest.Open(t)
	browsertest.See(t, ctx, func(ctx context.Context, target *chromedp.Target) (cdp.Empty, error) {
		return cdp.Call(ctx, target, emulation.SetScriptExecutionDisabled,
			emulation.SetScriptExecutionDisabledParams{Value: true})
	})
	do(t, ctx, chromedp.Navigate(url+"/console/rooms/"+id))
	text := browsertest.See(t, ctx, chromedp.Text("main"))
	for _, want := range []string{"12,400", "Queueing", "Pause…", "Let in per minute", "Table"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing: %s", want, text)
		}
	}
}
