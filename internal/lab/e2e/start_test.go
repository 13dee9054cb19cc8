package e2e

import (
	"bufio"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"vestibule/internal/allinone"
	"vestibule/internal/lab/browsertest"
	"vestibule/internal/lab/figures"
	"vestibule/internal/lab/process"
	"vestibule/internal/lab/testkit"
)

// makeRun makes TestFirstPage start with `make run`, which builds; `make first-page` sets it.
var makeRun = flag.Bool("make-run", false, "TestFirstPage begins with `make run`")

// screens is a folder for screenshots.
var screens = os.Getenv("VESTIBULE_SCREENS")

// TestFirstPage: a user that has just started the demo opens the first printed address, and sees a waiting page
// with a number, and then the site. The printed command works as it is.
func TestFirstPage(t *testing.T) {
	t.Parallel()
	testkit.Program(t, "chromium")
	dir := t.TempDir()
	args := []string{"--listen", "localhost:0", "--data-dir", filepath.Join(dir, "var")}
	var cmd *exec.Cmd
	if *makeRun {
		cmd = exec.Command("make", "-C", "../../..", "run", "ARGS="+strings.Join(args, " "))
	} else {
		cmd = exec.Command(filepath.Join(build(t), "vestibule"), append([]string{"demo"}, args...)...)
	}
	begun := time.Now()
	said, info := demo(t, cmd)
	up := time.Since(begun)

	ctx := browsertest.Open(t)
	browsertest.Do(t, ctx, chromedp.Navigate(info.Busy))
	number, look := regexp.MustCompile(`^\d+$`),
		chromedp.Evaluate[string](`document.getElementById("ahead")?.textContent ?? ""`)
	ahead := ""
	until(t, "the waiting page shows a number", func() bool {
		ahead, _ = browsertest.Look(ctx, look)
		return number.MatchString(ahead)
	})
	figures.CheckTime(t, "first-page: from make run to a page with a number", filepath.Base(cmd.Path), time.Since(begun))
	t.Logf("%.1f s of them until the address was printed. It says %s people ahead", up.Seconds(), ahead)
	browsertest.Keep(t, screens, "first-page.png", browsertest.See(t, ctx, chromedp.FullScreenshot(100)))
	until(t, "the browser is in", func() bool {
		heading, err := browsertest.Look(ctx, chromedp.Evaluate[string](`document.querySelector("h1")?.textContent ?? ""`))
		return err == nil && heading == "You are in" // an error: the page is being replaced
	})
	t.Logf("in %.1f s after the start", time.Since(begun).Seconds())

	m := regexp.MustCompile(`(?m)^  API +(.*)$`).FindStringSubmatch(said)
	if m == nil {
		t.Fatalf("no command for the API in:\n%s", said)
	}
	c := exec.CommandContext(testkit.Within(t), "sh", "-c", m[1])
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "demo") || !strings.Contains(string(out), "busy") {
		t.Errorf("%s: %v\n%s", m[1], err, out)
	}
}

// demo starts a demo that ends with the test, and returns its output for people and for scripts.
func demo(t *testing.T, cmd *exec.Cmd) (said string, info allinone.Info) {
	t.Helper()
	cmd.SysProcAttr = process.Group()
	stderr := &testkit.Log{}
	cmd.Stderr = stderr
	stdout := testkit.Must(cmd.StdoutPipe())(t)
	testkit.NoError(t, cmd.Start())
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) //nolint:errcheck // it may have ended
		cmd.Wait()                                      //nolint:errcheck // make says that it was interrupted
		if t.Failed() {
			t.Logf("it said:\n%s%s", said, stderr)
		}
	})
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		text, ok := strings.CutPrefix(lines.Text(), "READY ")
		if !ok {
			said += lines.Text() + "\n"
			continue
		}
		testkit.NoError(t, json.Unmarshal([]byte(text), &info))
		return said, info
	}
	t.Fatalf("it did not start:\n%s%s", said, stderr)
	return "", info
}
