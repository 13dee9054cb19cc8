//go:build !race

package allinone

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"vestibule/internal/lab/browsertest"
	"vestibule/internal/lab/figures"
	"vestibule/internal/lab/testkit"
)

// shows is the visible state of a page.
type shows struct {
	State, Head, Text, Ahead, Place string
}

const look = `(() => {
	const text = id => (document.getElementById(id)?.textContent ?? "");
	return {State: document.getElementById("vr")?.dataset.state ?? (document.querySelector("h1") ? "in" : ""), Head: text("head"), Text: text("text"), Ahead: text("ahead"), Place: text("place")};
})()`

// until waits for a state of a page, and returns how long that took.
func until(t *testing.T, ctx context.Context, what string, ok func(shows) bool) time.Duration {
	t.Helper()
	var last shows
	defer func() {
		if t.Failed() {
			t.Logf("the page shows %+v", last)
		}
	}()
	return eventually(t, what, func() bool {
		s, err := browsertest.Look(ctx, chromedp.Evaluate[shows](look)) // an error: the page is being replaced
		last = s
		return err == nil && ok(s)
	})
}

// first reports whether the page shows nobody in front.
func first(s shows) bool {
	return s.State == "next" || s.State == "queued" && s.Ahead == "0" && !strings.Contains(s.Text, "being counted")
}

// asks polls an edge like a program, and returns the state, "inside" for the site.
func (b *browser) asks(edge string) (state string) {
	b.t.Helper()
	req := testkit.Must(http.NewRequestWithContext(b.t.Context(), http.MethodGet, edge+"/", http.NoBody))(b.t)
	req.Header.Set("Accept", "application/json")
	if len(b.Jar.Cookies(req.URL)) > 0 {
		req.Header.Set("Vestibule-Poll", "now") // not held
	}
	resp := testkit.Must(b.Do(req))(b.t)
	defer resp.Body.Close()
	var answer struct{ Vestibule struct{ State string } }
	if resp.Header.Get("Vestibule-Decision") == "" {
		return "inside"
	}
	testkit.NoError(b.t, json.NewDecoder(resp.Body).Decode(&answer))
	return answer.Vestibule.State
}

// TestThePageIsSoonRight: the page is right within seconds for the first visitor of an empty queue, after a pause,
// a closure and a lost connection.
func TestThePageIsSoonRight(t *testing.T) {
	t.Parallel()
	tree, _ := grow(t, 1, 60, 10*time.Minute)
	edge := tree.Info.Edges[0].URL
	newBrowser(t).stays(edge)
	w := newWay(t, edge)
	ctx := browsertest.Open(t)
	right := func(ctx context.Context, after, what string, ok func(s shows) bool) {
		t.Helper()
		figures.CheckTime(t, "browser: until the page is right", after, until(t, ctx, what, ok))
	}

	browsertest.Do(t, ctx, chromedp.Navigate(fmt.Sprintf("http://%s/", w.Addr())),
		chromedp.WaitVisible(chromedp.CSS("dl.big")))
	s := browsertest.See(t, ctx, chromedp.Evaluate[shows](look))
	if strings.Contains(s.Text, "Many people") {
		t.Errorf("the first visitor of an empty line reads %q", s.Text)
	}
	right(ctx, "first visitor", "the first visitor is shown as the first", first)

	// A failed network carries no stream either: the connection is cut, and the browser knows.
	offline := func(off bool) {
		w.set(off)
		browsertest.See(t, ctx, func(ctx context.Context, target *chromedp.Target) (cdp.Empty, error) {
			return cdp.Call(ctx, target, network.OverrideNetworkState,
				network.OverrideNetworkStateParams{Offline: off, DownloadThroughput: -1, UploadThroughput: -1})
		})
	}
	for range 2 {
		offline(true)
		until(t, ctx, "the page says that the connection is lost", func(s shows) bool { return s.State == "offline" })
		offline(false)
		right(ctx, "offline", "the page is right after it was offline", first)
	}

	// An operator pauses the room and resumes it.
	other := newBrowser(t)
	for range 2 {
		edit(t, tree, "new_users_per_minute: 60", "new_users_per_minute: 60\n    queue_all: true")
		eventually(t, "the edge knows of the pause", func() bool { return other.asks(edge) == "paused" })
		right(ctx, "pause", "the page says so", func(s shows) bool { return s.State == "paused" })
		edit(t, tree, "\n    queue_all: true", "")
		eventually(t, "the edge knows that the line goes on", func() bool { return other.asks(edge) != "paused" })
		right(ctx, "resume", "the page says that the line goes on", first)
	}

	// The room is closed, and opened.
	edit(t, tree, "new_users_per_minute: 60", "new_users_per_minute: 60\n    queueing_method: reject")
	late := browsertest.Open(t)
	eventually(t, "the edge knows that the room is closed", func() bool { return newBrowser(t).asks(edge) == "closed" })
	browsertest.Do(t, late, chromedp.Navigate(edge))
	until(t, late, "the page says that the room is closed", func(s shows) bool { return s.State == "closed" })
	edit(t, tree, "\n    queueing_method: reject", "")
	third := newBrowser(t)
	eventually(t, "the edge knows that the room is open", func() bool { return third.asks(edge) != "closed" })
	right(late, "reopening", "the page is in line",
		func(s shows) bool { return s.State == "queued" || s.State == "next" })
	t.Logf("after reopening, until it is counted: %v more",
		until(t, late, "the place is shown", func(s shows) bool { return s.Ahead != "–" }).Round(10*time.Millisecond))
}

// way is a connection to an edge that can be cut.
type way struct {
	net.Listener
	mu    sync.Mutex
	to    string
	conns []net.Conn
	cut   bool
}

func newWay(t *testing.T, to string) *way {
	t.Helper()
	l := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	w := &way{Listener: l, to: strings.TrimPrefix(to, "http://")}
	var open sync.WaitGroup
	t.Cleanup(func() { l.Close(); w.set(true); open.Wait() })
	open.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() { w.carry(c) })
		}
	})
	return w
}

func (w *way) carry(c net.Conn) {
	defer c.Close()
	to, err := net.Dial("tcp", w.to)
	if err != nil {
		return
	}
	defer to.Close()
	w.mu.Lock()
	if w.cut {
		w.mu.Unlock()
		return
	}
	w.conns = append(w.conns, c, to)
	w.mu.Unlock()
	var back sync.WaitGroup
	back.Go(func() { io.Copy(c, to); c.Close() }) //nolint:errcheck // it is cut
	io.Copy(to, c)                                //nolint:errcheck // likewise
	to.Close()
	back.Wait()
}

// set cuts the connection, like a killed edge, or restores it.
func (w *way) set(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	for _, c := range w.conns {
		c.Close()
	}
	w.conns = nil
}

// TestNumbersOfALostEdgeAreOld: after the loss of the edge the page shows within seconds that its numbers are old.
func TestNumbersOfALostEdgeAreOld(t *testing.T) {
	t.Parallel()
	tree, _ := grow(t, 1, 60, 10*time.Minute)
	newBrowser(t).stays(tree.Info.Edges[0].URL)
	w := newWay(t, tree.Info.Edges[0].URL)
	ctx := browsertest.Open(t)
	browsertest.Do(t, ctx, chromedp.Navigate(fmt.Sprintf("http://%s/", w.Addr())))
	until(t, ctx, "the page tells the place", first)
	w.set(true)
	t.Logf("the edge is gone: said after %v", until(t, ctx, "the page says that it is old",
		func(s shows) bool { return s.State == "offline" }).Round(10*time.Millisecond))
	w.set(false)
	t.Logf("the edge is back: right after %v", until(t, ctx, "the page is right", first).Round(10*time.Millisecond))
}
