package console_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"vestibule/internal/global/control"
	"vestibule/internal/global/control/api"
	"vestibule/internal/lab/browsertest"
	"vestibule/internal/lab/testkit"
)

// inZone moves a browser to a time zone, and keeps the texts that a page draws on canvases in window.drawn.
func inZone(t *testing.T, ctx context.Context, zone string) {
	t.Helper()
	browsertest.See(t, ctx, func(ctx context.Context, target *chromedp.Target) (cdp.Empty, error) {
		return cdp.Call(ctx, target, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: zone})
	})
	browsertest.See(t, ctx, func(ctx context.Context, target *chromedp.Target) (page.AddScriptToEvaluateOnNewDocumentResult, error) {
		return cdp.Call(ctx, target, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: `
			window.drawn = [];
			const text = CanvasRenderingContext2D.prototype.fillText;
			CanvasRenderingContext2D.prototype.fillText = function (what, ...at) { drawn.push(what); return text.call(this, what, ...at); };`})
	})
}

func textOf(t *testing.T, ctx context.Context, expression string) string {
	t.Helper()
	return browsertest.See(t, ctx, chromedp.Evaluate[string](expression))
}

// Forms, sentences, and charts have each time in UTC and in the zone of the browser; a typed time is said in both.
func TestTimesInTheZoneOfABrowser(t *testing.T) {
	f := start(t)
	id := f.sale()
	f.plan(id)
	var e api.Event
	testkit.NoError(t, f.api.call(http.MethodPost, "/zones/"+control.Zone+"/waiting_rooms/"+id+"/events", map[string]any{
		"name": "new-year", "description": "“from 20:00 UTC”", "event_start_time": "2029-12-31T20:15:00Z",
		"event_end_time": "2029-12-31T23:00:00Z",
	}, &e))
	url := browsertest.Serve(t, f)
	ctx := browsertest.Open(t)
	const zone = "Asia/Kathmandu" // UTC+5:45 all year
	inZone(t, ctx, zone)
	room := url + "/console/rooms/" + id

	do(t, ctx, chromedp.Navigate(room+"/events/"+e.Id))
	const start, end = `document.querySelector("#f-event_start_time-zones")`, `document.querySelector("#f-event_end_time-zones")`
	waitFor(t, ctx, `!!`+end)
	for _, c := range []struct{ of, want string }{
		{start + `.textContent`, "31 Dec 2029, 20:15:00 UTC (1 Jan, 02:00:00 GMT+5:45)"},
		{end + `.textContent`, "31 Dec 2029, 23:00:00 UTC (1 Jan, 04:45:00 GMT+5:45)"},
		{`document.querySelector(".event .hint").textContent + "."`, "“from 20:00 UTC”."}, // words of a person
		{`document.querySelector(".steps").textContent`, "31 Dec 2029, 20:15 UTC (1 Jan, 02:00 GMT+5:45)"},
	} {
		if got := textOf(t, ctx, c.of); !strings.Contains(got, c.want) {
			t.Errorf("%s is %q, want %q", c.of, got, c.want)
		}
	}
	browsertest.See(t, ctx, chromedp.Evaluate[bool](`(() => { const at = document.querySelector("#f-event_start_time");
		at.value = "2029-12-31T10:00"; return at.dispatchEvent(new Event("input", { bubbles: true })); })()`))
	if got := textOf(t, ctx, start+`.textContent`); got != "31 Dec 2029, 10:00:00 UTC (15:45:00 GMT+5:45)" {
		t.Errorf("a typed time is said as %q", got)
	}
	if got := textOf(t, ctx, `document.querySelector("#f-event_start_time").value`); got != "2029-12-31T10:00" {
		t.Errorf("the field has %q: it is sent as UTC", got)
	}

	// The consequence of temporary limits: a sentence of the server.
	until := time.Now().Add(20 * time.Minute)
	do(t, ctx, chromedp.Navigate(room+"/actions/limits?total=2000&rate=800&minutes=20&for=minutes"))
	kathmandu := testkit.Must(time.LoadLocation(zone))(t)
	said := textOf(t, ctx, `document.querySelector(".consequence").textContent`)
	if !strings.Contains(said, "UTC (") || !strings.Contains(said, " GMT+5:45)") {
		t.Errorf("the consequence has no time of the browser's zone: %q", said)
	}
	for _, at := range []time.Time{until, until.Add(time.Minute)} { // a minute may pass meanwhile
		said = strings.ReplaceAll(said, at.UTC().Format("15:04 UTC")+" ("+at.In(kathmandu).Format("15:04")+" GMT+5:45)", "-")
		said = strings.ReplaceAll(said, at.UTC().Format("15:04 UTC")+" ("+at.In(kathmandu).Format("2 Jan, 15:04")+" GMT+5:45)", "-")
	}
	if strings.Contains(said, "UTC") {
		t.Errorf("a time of %q is not that of %v", said, until.UTC())
	}

	// Charts: the axis, the legend, the table, and the stream of numbers.
	do(t, ctx, chromedp.Navigate(room))
	waitFor(t, ctx, `document.querySelectorAll(".chart canvas").length >= 8 && drawn.includes("UTC, below it "+Intl.DateTimeFormat().resolvedOptions().timeZone)`)
	if got := textOf(t, ctx, `drawn.filter((text) => /^\d\d:\d\d$/.test(text)).join()`); !strings.Contains(got, ":15") && !strings.Contains(got, ":45") ||
		len(strings.Split(got, ",")) < 4 {
		t.Errorf("the axis has %q", got)
	}
	if got := textOf(t, ctx, `document.querySelector(".chart .u-legend tr").textContent`); !strings.Contains(got, "UTC (Asia/Kat") ||
		!strings.Contains(got, " GMT+5:45)") {
		t.Errorf("the legend has %q", got)
	}
	if got := textOf(t, ctx, `document.querySelector(".charts details tbody th").textContent`); !strings.Contains(got, " GMT+5:45)") {
		t.Errorf("the table has %q", got)
	}
	f.count("autumn-sale", control.Numbers{Active: 1987, Waiting: 12399, Longest: 61 * 60})
	waitFor(t, ctx, `document.querySelector("[data-field=waiting]").textContent === "12,399" &&
		/^\d\d:\d\d:\d\d UTC \(.*\d\d:\d\d:\d\d GMT\+5:45\)$/.test(document.querySelector("[data-field=at]").textContent)`)

	// A browser in UTC has each time once.
	inZone(t, ctx, "Etc/UTC")
	do(t, ctx, chromedp.Navigate(room+"/events/"+e.Id))
	if got := textOf(t, ctx, `document.querySelector("main").textContent`); strings.Contains(got, "UTC (") {
		t.Errorf("a browser in UTC has times twice: %q", got)
	}
}
