//go:build !race

// As in browser_test.go.

package allinone

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"vestibule/internal/core/wire"
	"vestibule/internal/lab/browsertest"
	"vestibule/internal/lab/testkit"
)

// TestPartsOfPagesInABrowser: pictures, scripts, styles and fonts of a room on a page elsewhere take no place, also
// with the ticket of a visitor that waits. The visitor's own next request does.
func TestPartsOfPagesInABrowser(t *testing.T) {
	t.Parallel()
	// Nobody is held meanwhile.
	tree, _ := grow(t, 1, 60000, 10*time.Minute, func(o *Options) {
		o.DataCenters, o.Edges, o.Params.Hold = []string{"nairobi"}, 1, 100*time.Millisecond
	})
	edge := tree.Info.Edges[0].URL
	newBrowser(t).stays(edge)
	app := browsertest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, //nolint:errcheck // the browser tells
			"<!doctype html><link rel=icon href=data:,><title>elsewhere</title>")
	}))
	// On the edge's host, whatever the port, so that the browser sends the ticket.
	to := testkit.Must(url.Parse(edge))(t)
	app = "http://" + to.Hostname() + app[strings.LastIndexByte(app, ':'):]
	ctx := browsertest.Open(t)
	browsertest.Do(t, ctx, chromedp.Navigate(edge))
	eventually(t, "the browser waits", func() bool { s := pageShows(ctx); return s == "queued" || s == "next" })
	browsertest.Do(t, ctx, chromedp.Navigate(app))
	edit(t, tree, "total_active_users: 1", "total_active_users: 2")
	everywhere(t, tree, "a place is free", func(v *wire.View) bool { return v.Free > 0 })
	browsertest.See(t, ctx, chromedp.Evaluate[bool](fmt.Sprintf(`Promise.allSettled([
		["img", "src"], ["script", "src"], ["link", "href"], ["video", "src"], ["img", "src"],
	].map(([name, address], i) => new Promise(done => {
		const e = document.createElement(name);
		e.onload = e.onerror = done;
		if (name == "link") e.rel = "stylesheet";
		e[address] = %[1]q + "/part" + i;
		document.head.append(e);
	})).concat(new FontFace("f", "url(" + %[1]q + "/font)").load())).then(() => true)`, edge), chromedp.EvalAwaitPromise))
	if n := tree.edges[0].Status().Rooms["demo"].Admitted; n != 1 {
		t.Errorf("parts of pages took %d places", n-1)
	}
	browsertest.Do(t, ctx, chromedp.Navigate(edge))
	eventually(t, "the visitor is in", func() bool { return pageShows(ctx) == "You are in" })
	if n := tree.edges[0].Status().Rooms["demo"].Admitted; n != 2 {
		t.Errorf("%d were let in, want 2", n)
	}
}
