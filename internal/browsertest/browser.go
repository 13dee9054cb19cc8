// Package browsertest opens a real browser for tests of what people see. Tests
// that need one are skipped where it is not installed, and say so.
package browsertest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
)

// Open returns a new profile of a real browser, started.
func Open(t *testing.T) context.Context {
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
	if err := chromedp.Do(ctx); err != nil { // starts it; a deadline of that call would end the browser
		t.Fatal(err)
	}
	return ctx
}

// See runs an action in the browser and returns its value.
func See[T any](t *testing.T, ctx context.Context, a chromedp.Action[T]) T {
	t.Helper()
	v, err := chromedp.Run(ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Keep writes a picture to a folder, for who wants to look; "" is no folder.
func Keep(t *testing.T, folder, name string, picture []byte) {
	t.Helper()
	if folder == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(folder, name), picture, 0o600); err != nil {
		t.Fatal(err)
	}
}
