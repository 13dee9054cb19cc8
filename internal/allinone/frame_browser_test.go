//go:build !race

// As in browser_test.go.

package allinone

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"vestibule/internal/lab/browsertest"
	"vestibule/internal/lab/testkit"
)

// TestAFrameOfAnotherSiteInABrowser: in a frame on a page of another site, in a browser that only accepts
// partitioned third-party cookies, the waiting page keeps its place and opens the site at the turn. Without
// Partitioned it cannot, and pages of other origins show no waiting page.
func TestAFrameOfAnotherSiteInABrowser(t *testing.T) {
	t.Parallel()
	var orders testkit.Log
	tree, _ := grow(t, 1, 600, 10*time.Minute,
		func(o *Options) { o.DataCenters, o.Edges, o.Origin = []string{"nairobi"}, 1, newShop(t, &orders) })
	edge := testkit.Must(url.Parse(tree.Info.Edges[0].URL))(t)
	newBrowser(t).stays(tree.Info.Edges[0].URL)

	var plain atomic.Bool // cookies without Partitioned
	var frames, streams, with, without, inside atomic.Int32
	shop := tlsServer(t, &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(edge)
			p.Out.Host = p.In.Host
			switch cookie := strings.Contains(p.In.Header.Get("Cookie"), "__Host-vestibule-demo.place="); {
			case p.In.Header.Get("Sec-Fetch-Dest") == "iframe":
				frames.Add(1)
			case strings.HasSuffix(p.In.URL.Path, "/events"):
				streams.Add(1)
			case p.In.Header.Get("Vestibule-Poll") == "":
			case cookie:
				with.Add(1)
			default:
				without.Add(1)
			}
		},
		ModifyResponse: func(r *http.Response) error {
			if r.Header.Get("X-Demo-Origin") != "" && r.Request.Header.Get("Sec-Fetch-Dest") == "iframe" {
				inside.Add(1)
			}
			if line := r.Header.Get("Set-Cookie"); plain.Load() {
				r.Header.Set("Set-Cookie", strings.ReplaceAll(line, "; Partitioned", ""))
			}
			return nil
		},
		ErrorLog: log.New(io.Discard, "", 0),
	})
	shop = "https://shop.test:" + shop[strings.LastIndexByte(shop, ':')+1:]
	partner := tlsServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w,
			"<!doctype html><title>partner</title><link rel=icon href=data:,><iframe src=%q onload='window.loaded = "+
				"true'></iframe>", shop)
	}))
	partner = "https://partner.test:" + partner[strings.LastIndexByte(partner, ':')+1:]

	edit(t, tree, `host: "localhost"`, "host: shop.test")
	edit(t, tree, "    total_active_users:",
		"    cookie_samesite: none\n    cookie_secure: always\n    cookie_partitioned: true\n"+
			"    frame_ancestors: "+partner+"\n    total_active_users:")
	ticket := "new" // requests for the policy must be from one visitor
	policy := func(want string) func() bool {
		return func() bool {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, tree.Info.Edges[0].URL, http.NoBody)
			testkit.NoError(t, err)
			req.Host = "shop.test"
			req.Header.Set("Vestibule-Ticket", ticket)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return false
			}
			defer resp.Body.Close()
			if newest := resp.Header.Get("Vestibule-Ticket"); newest != "" {
				ticket = newest
			}
			return strings.Contains(resp.Header.Get("Content-Security-Policy")+";", want)
		}
	}
	eventually(t, "the edge names the partner", policy("frame-ancestors 'self' "+partner+";"))

	open := func() {
		t.Helper()
		ctx := browsertest.OpenWith(t, chromedp.Flag("host-resolver-rules", "MAP *.test 127.0.0.1"),
			chromedp.IgnoreCertErrors,
			chromedp.Flag("enable-features", "ForceThirdPartyCookieBlocking,ThirdPartyStoragePartitioning"))
		browsertest.Do(t, ctx, chromedp.Navigate(partner))
		eventually(t, "the frame is loaded",
			func() bool { return browsertest.See(t, ctx, chromedp.Evaluate[bool](`!!window.loaded`)) })
	}
	plain.Store(true)
	open()
	eventually(t, "the page in the frame asks without a ticket", func() bool { return without.Load() > 0 })
	if n := with.Load(); n != 0 {
		t.Errorf("it asked %d times with a cookie that is not partitioned", n)
	}
	plain.Store(false)
	open()
	eventually(t, "the page in the frame asks with its ticket",
		func() bool { return with.Load() > 0 && streams.Load() > 0 })
	edit(t, tree, "total_active_users: 1", "total_active_users: 3")
	eventually(t, "the frame shows the site", func() bool { return inside.Load() > 0 })

	edit(t, tree, "total_active_users: 3", "total_active_users: 1")
	edit(t, tree, "    frame_ancestors: "+partner+"\n", "")
	names := policy("frame-ancestors 'self';")
	eventually(t, "the edge names nobody", func() bool {
		ticket = "new" // an earlier visitor may be admitted by now
		return names()
	})
	loads, asked := frames.Load(), streams.Load()
	open()
	if frames.Load() == loads || streams.Load() != asked {
		t.Errorf("a frame that is not allowed: %d loads, %d streams", frames.Load()-loads, streams.Load()-asked)
	}
}

// tlsServer serves with a test certificate until the test ends, and returns its address.
func tlsServer(t *testing.T, h http.Handler) (url string) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(func() {
		if err := s.Config.Close(); err != nil {
			t.Error(err)
		}
		s.Close()
	})
	return s.URL
}
