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

// shared is the browser of all tests of a package, where [Main] runs them.
var shared struct {
	on  bool
	ctx context.Context // nil before the first test that needs it
	end func()
}

// Main runs the tests of a package, in one browser with a profile for each, and returns what
// m.Run does. For tests that do not run beside each other.
func Main(m *testing.M) int {
	shared.on = true
	defer func() {
		if shared.end != nil {
			shared.end()
		}
	}()
	return m.Run()
}

// Open returns a new profile of a real browser, started.
func Open(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed (Debian package chromium): the waiting page was not seen in a browser")
	}
	if !shared.on {
		ctx, end, err := start(path, t.TempDir())
		t.Cleanup(end)
		if err != nil {
			t.Fatal(err)
		}
		return ctx
	}
	if shared.ctx == nil {
		dir, err := os.MkdirTemp("", "vestibule-browser-") //nolint:usetesting // it outlives the test
		if err != nil {
			t.Fatal(err)
		}
		ctx, end, err := start(path, dir)
		shared.end = func() {
			end()
			_ = os.RemoveAll(dir) // the system's folder of temporary files
		}
		if err != nil {
			t.Fatal(err)
		}
		shared.ctx = ctx
	}
	ctx, leave := chromedp.NewContext(shared.ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(leave)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// start starts a browser with a profile in dir. end is not nil, and waits until it has ended.
func start(path, dir string) (ctx context.Context, end func(), err error) {
	alloc, cancel := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.UserDataDir(dir), chromedp.WindowSize(900, 700))...)
	ctx, stop := chromedp.NewContext(alloc)
	end = func() {
		_ = chromedp.Cancel(ctx) // waits until the browser has ended
		stop()
		cancel()
	}
	return ctx, end, chromedp.Do(ctx) // starts it; a deadline of that call would end the browser
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
