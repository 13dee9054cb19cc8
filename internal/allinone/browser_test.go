package allinone

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"vestibule/internal/wire"
)

// chromium returns a new profile of a real browser.
func chromium(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed (Debian package chromium): the waiting page was not seen in a browser")
	}
	alloc, cancel := chromedp.NewExecAllocator(t.Context(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(900, 700))...)
	ctx, stop := chromedp.NewContext(alloc)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits until the browser has ended
		stop()
		cancel()
	})
	return ctx
}

// TestBrowser: a real browser that comes to a full room sees the waiting page,
// in light and in dark, and comes in by itself when a slot is free.
func TestBrowser(t *testing.T) {
	t.Parallel()
	ctx := chromium(t)
	tree, _ := grow(t, 1, 60, 5*time.Second)
	first, second := newBrowser(t), newBrowser(t)
	if !first.open(tree.Info.Edges[0].URL).inside {
		t.Fatal("the first visitor is not in")
	}
	if second.open(tree.Info.Edges[0].URL).inside {
		t.Fatal("came in beyond T")
	}
	if err := chromedp.Do(ctx); err != nil { // starts it; a deadline of that call would end the browser
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	var ahead sync.WaitGroup
	defer ahead.Wait()
	defer cancel()
	ahead.Go(func() {
		if _, err := second.wait(ctx, tree.Info.Edges[0].URL); err != nil {
			t.Errorf("the second visitor: %v", err)
		}
	})
	everywhere(t, tree, "every edge counts who waits", func(v *wire.View) bool { return v.Line.Total() > .9 })
	screens := os.Getenv("VESTIBULE_SCREENS") // a folder in which pictures are kept, for who wants to look
	if screens == "" {
		screens = t.TempDir()
	}

	if err := chromedp.Do(ctx, chromedp.Navigate(tree.Info.Edges[1].URL), chromedp.WaitVisible(chromedp.CSS("dl"))); err != nil {
		t.Fatal(err)
	}
	title, text := see(t, ctx, chromedp.Title()), see(t, ctx, chromedp.Text(chromedp.CSS("main")))
	background := map[string]string{}
	for _, scheme := range []string{"light", "dark"} {
		see(t, ctx, func(ctx context.Context, target *chromedp.Target) (cdp.Empty, error) {
			return cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
			})
		})
		background[scheme] = see(t, ctx, chromedp.Evaluate[string](`getComputedStyle(document.documentElement).backgroundColor`))
		keep(t, filepath.Join(screens, "waiting-"+scheme+".png"), see(t, ctx, chromedp.FullScreenshot(100)))
	}
	t.Logf("%q: %s", title, strings.Join(strings.Fields(text), " "))
	for _, want := range []string{`People ahead of you\s+1`, `Estimated wait\s+\S`, `In line since\s+\d`, `Last update\s+\d`} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("the waiting page does not say %q", want)
		}
	}
	if background["light"] == background["dark"] {
		t.Errorf("the page is %s in light and in dark", background["light"])
	}

	// Nobody touches the browser from here on.
	begun := time.Now()
	eventually(t, "the browser is in", func() bool {
		heading, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.querySelector("h1")?.textContent ?? ""`))
		return err == nil && heading == "You are in" // an error: the page is just being replaced
	})
	t.Logf("the browser came in by itself after %v", time.Since(begun).Round(100*time.Millisecond))
	keep(t, filepath.Join(screens, "inside.png"), see(t, ctx, chromedp.FullScreenshot(100)))
	s := tree.Origin.Stats()
	if s.Peak > 1 || s.Total != 3 {
		t.Errorf("the site counted %d sessions, %d at once; want 3 and 1", s.Total, s.Peak)
	}
}

// see runs an action in the browser and returns its value.
func see[T any](t *testing.T, ctx context.Context, a chromedp.Action[T]) T {
	t.Helper()
	v, err := chromedp.Run(ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func keep(t *testing.T, name string, picture []byte) {
	t.Helper()
	if err := os.WriteFile(name, picture, 0o600); err != nil {
		t.Fatal(err)
	}
}
