// Package browsertest opens a real browser for tests of pages. If none is installed, these tests fail.
package browsertest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"vestibule/internal/lab/testkit"
)

// shared is the browser of all tests of a package, if [Main] runs them.
var shared struct {
	sync.Mutex
	on  bool
	ctx context.Context // nil before the first test that needs it
	end func()
}

// Main runs the tests of a package in one browser with a profile for each, and returns the exit code.
func Main(m *testing.M) int {
	shared.on = true
	defer func() {
		if shared.end != nil {
			shared.end()
		}
	}()
	return m.Run()
}

// Open returns a started browser with a new profile. It has no deadline: [See], [Do] and [Look] have one each.
func Open(t *testing.T) context.Context {
	t.Helper()
	if !shared.on {
		return OpenWith(t)
	}
	browser, err := ofAll(testkit.Program(t, "chromium"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, _ := Tab(t, browser, chromedp.WithNewBrowserContext())
	return ctx
}

// OpenWith returns a new browser for this test only, started with extra options.
func OpenWith(t *testing.T, o ...chromedp.ExecAllocatorOption) context.Context {
	t.Helper()
	ctx, end, err := start(testkit.Program(t, "chromium"), t.TempDir(), o...)
	t.Cleanup(end)
	if err != nil {
		t.Fatal(err)
	}
	return ctx
}

// ofAll returns the shared browser, and starts it on first use.
func ofAll(path string) (context.Context, error) {
	shared.Lock()
	defer shared.Unlock()
	if shared.ctx != nil {
		return shared.ctx, nil
	}
	dir, err := os.MkdirTemp("", "vestibule-browser-")
	if err != nil {
		return nil, err
	}
	ctx, stop, err := start(path, dir)
	end := func() {
		stop()
		_ = os.RemoveAll(dir) // a temporary directory
	}
	if err != nil {
		end()
		return nil, err
	}
	shared.ctx, shared.end = ctx, end
	return ctx, nil
}

// Tab opens another tab in the browser of ctx. leave, or the end of the test, closes it.
func Tab(t *testing.T, ctx context.Context, o ...chromedp.ContextOption) (tab context.Context, leave func()) {
	t.Helper()
	tab, leave = chromedp.NewContext(ctx, o...)
	t.Cleanup(leave)
	if err := first(tab, leave); err != nil {
		t.Fatal(err)
	}
	return tab, leave
}

// first runs the first action of a browser or a tab. Its resources live as long as its context, so that has no
// deadline; a slow start is cancelled by end.
func first(ctx context.Context, end func()) error {
	late := time.AfterFunc(testkit.Patience, end)
	err := chromedp.Do(ctx)
	if !late.Stop() {
		return fmt.Errorf("the browser does not start within %v: %w", testkit.Patience, err)
	}
	return err
}

// start starts a browser with a profile in dir. end is not nil, and waits for its exit; after a while it kills it.
func start(path, dir string, o ...chromedp.ExecAllocatorOption) (ctx context.Context, end func(), err error) {
	alloc, cancel := chromedp.NewExecAllocator(context.Background(), append(append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.UserDataDir(dir), chromedp.WindowSize(900, 700)), o...)...)
	ctx, stop := chromedp.NewContext(alloc)
	end = func() {
		patient, done := context.WithTimeout(ctx, 10*time.Second)
		defer done()
		_ = chromedp.Cancel(patient) // it saves nothing
		stop()
		cancel()
	}
	return ctx, end, first(ctx, stop)
}

// Serve serves h at the returned address until the test ends. It closes open connections before it waits for its
// handlers, since a page keeps a stream open. Call Serve before opening the browser, so that the browser is closed
// first.
func Serve(t *testing.T, h http.Handler) (url string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		if err := s.Config.Close(); err != nil {
			t.Error(err)
		}
		s.Close()
	})
	return s.URL
}

// Look runs an action in the browser and returns its value, or an error after [testkit.Patience].
func Look[T any](ctx context.Context, a chromedp.Action[T]) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, testkit.Patience)
	defer cancel()
	return chromedp.Run(ctx, a)
}

// See is Look, but an error fails the test.
func See[T any](t *testing.T, ctx context.Context, a chromedp.Action[T]) T {
	t.Helper()
	v, err := Look(ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Do runs steps in the browser, each with [testkit.Patience].
func Do(t *testing.T, ctx context.Context, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	for _, s := range steps {
		See(t, ctx, s)
	}
}

// Keep writes a screenshot to a folder, for inspection; "" is no folder.
func Keep(t *testing.T, folder, name string, picture []byte) {
	t.Helper()
	if folder == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(folder, name), picture, 0o600); err != nil {
		t.Fatal(err)
	}
}

// WaitFor waits until an expression is true in the current page.
func WaitFor(t *testing.T, ctx context.Context, expression string) {
	t.Helper()
	testkit.Eventually(t, expression, func() bool {
		ok, err := Look(ctx, chromedp.Evaluate[bool](expression))
		return err == nil && ok // an error: the page is being replaced
	})
}

// Shot returns a screenshot of the whole page in a viewport of this size, or higher.
func Shot(t *testing.T, ctx context.Context, width, height int64) []byte {
	t.Helper()
	Do(t, ctx, chromedp.EmulateViewport(width, height))
	whole := See(t, ctx, chromedp.Evaluate[int64](`document.documentElement.scrollHeight`))
	Do(t, ctx, chromedp.EmulateViewport(width, max(height, whole)))
	return See(t, ctx, chromedp.CaptureScreenshot())
}

// Violations runs axe-core, a script, on the open page, with all rules, including best practices.
func Violations(t *testing.T, ctx context.Context, axe string) []string {
	t.Helper()
	See(t, ctx, chromedp.Evaluate[bool](axe+`;true`))
	return See(t, ctx, chromedp.Evaluate[[]string](`axe.run(document, {resultTypes: ["violations"]}).then(r =>
		r.violations.flatMap(v => v.nodes.map(n => v.id + ": " + v.help + ": " + n.html)))`, chromedp.EvalAwaitPromise))
}
