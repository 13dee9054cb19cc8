package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"vestibule/internal/allinone"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node/natsbus"
)

// TestMain lets tests run this binary as the command vestibule.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"vestibule": main,
	})
}

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{Dir: "testdata", RequireExplicitExec: false})
}

// freePorts returns the first of n ports that are free at the moment.
func freePorts(t *testing.T, n int) int {
	t.Helper()
	for {
		first := netip.MustParseAddrPort(testkit.FreeAddr(t)).Port()
		var taken []net.Listener
		for i := range n {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", int(first)+i))
			if err != nil {
				break
			}
			taken = append(taken, l)
		}
		for _, l := range taken {
			testkit.NoError(t, l.Close())
		}
		if len(taken) == n {
			return int(first)
		}
	}
}

// startDemo starts the demo and returns what its READY line says.
func startDemo(t *testing.T, args ...string) (cmd *exec.Cmd, stderr *testkit.Log, info allinone.Info, ok bool) {
	t.Helper()
	// the last of two flags counts
	cmd = exec.Command("vestibule", append([]string{"demo", "--data-dir", t.TempDir()}, args...)...)
	stderr = &testkit.Log{}
	cmd.Stderr = stderr
	stdout := testkit.Must(cmd.StdoutPipe())(t)
	testkit.NoError(t, cmd.Start())
	stuck := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() {
		stuck.Stop()
		_ = cmd.Process.Kill()
	})
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		text, found := strings.CutPrefix(lines.Text(), "READY ")
		if !found {
			continue
		}
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&info); err != nil {
			t.Fatalf("READY line: %v", err)
		}
		return cmd, stderr, info, true
	}
	return cmd, stderr, info, false
}

// readyDemo starts the demo, or fails the test.
func readyDemo(t *testing.T, args ...string) (*exec.Cmd, allinone.Info) {
	t.Helper()
	cmd, stderr, info, ok := startDemo(t, args...)
	if !ok {
		t.Fatalf("no READY line: %s", stderr)
	}
	return cmd, info
}

// TestDemo: everything answers where the READY line says, Ctrl-C ends it, and in the normal course of things
// nothing is warned of. Where the machine stands still leases are lost, which is no normal course: then once more.
func TestDemo(t *testing.T) {
	t.Parallel()
	for try := 1; ; try++ {
		warned, stood := playDemo(t)
		switch {
		case warned == "":
			return
		case stood < natsbus.LeaseLength/4 || try == 5:
			t.Fatalf("it warned of something in the normal course of things; the machine stood still for at most %v:\n%s", stood,
				warned)
		}
		t.Logf("the machine stood still for %v: once more, after\n%s", stood, warned)
	}
}

// playDemo runs the demo once. It returns what was written to standard error, and for how long the
// machine stood still meanwhile.
func playDemo(t *testing.T) (warned string, stood time.Duration) {
	t.Helper()
	var (
		cmd    *exec.Cmd
		stderr *testkit.Log
		info   allinone.Info
		first  int
	)
	ctx, ended := context.WithCancel(t.Context())
	still := make(chan time.Duration, 1)
	go func() { still <- testkit.Still(ctx) }()
	defer func() {
		ended()
		stood = <-still
	}()
	for ok, try := false, 0; !ok; try++ { // somebody else may take a port meanwhile
		first = freePorts(t, 4)
		cmd, stderr, info, ok = startDemo(t, "--listen", fmt.Sprintf("127.0.0.1:%d", first), "--visitors", "3",
			"--total-active-users", "3", "--new-users-per-minute", "60", "--session-duration", "60s", "--data-centers",
			"nairobi,dublin", "--edges", "2")
		if !ok && (try == 5 || !strings.Contains(stderr.String(), "address already in use")) {
			t.Fatalf("no READY line: %s", stderr)
		}
	}
	want := []string{"nairobi edge-1", "nairobi edge-2", "dublin edge-1", "dublin edge-2"}
	if len(info.Edges) != len(want) {
		t.Fatalf("READY tells of %d edges", len(info.Edges))
	}
	pages := []string{info.Origin + "/stats", info.Metrics + "/metrics", info.Metrics + "/readyz"}
	for i, e := range info.Edges {
		if got := e.DC + " " + e.Name; got != want[i] || e.URL != fmt.Sprintf("http://127.0.0.1:%d", first+i) {
			t.Errorf("edge %d is %s at %s, want %s at port %d", i, got, e.URL, want[i], first+i)
		}
		pages = append(pages, e.URL)
	}
	for _, url := range pages {
		resp, err := http.Get(url)
		if err != nil {
			t.Error(err)
			continue
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("%s answers %s", url, resp.Status)
		}
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(info.NATS, "nats://"))
	if err != nil {
		t.Error(err)
	} else if err := conn.Close(); err != nil {
		t.Error(err)
	}
	begun := time.Now()
	testkit.NoError(t, cmd.Process.Signal(os.Interrupt))
	if err := cmd.Wait(); err != nil {
		t.Errorf("Ctrl-C: %v", err)
	}
	t.Logf("Ctrl-C ended it within %v", time.Since(begun).Round(time.Millisecond))
	return stderr.String(), 0
}

// TestDemoPortTaken: an edge that cannot listen ends the demo with the reason.
func TestDemoPortTaken(t *testing.T) {
	t.Parallel()
	l := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	out, err := exec.Command("vestibule", "demo", "--listen", l.Addr().String(), "--data-dir",
		t.TempDir()).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), "vestibule demo: listen: ") ||
		!strings.Contains(string(out), "address already in use") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestAStartAfterOneThatFailed: the first start of a folder fails after it made its store; the next one admits visitors
// all the same.
func TestAStartAfterOneThatFailed(t *testing.T) {
	t.Parallel()
	l := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	dir := t.TempDir()
	out, err := exec.Command("vestibule", "demo", "--listen", l.Addr().String(), "--data-dir", dir).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "address already in use") {
		t.Fatalf("at an address that is taken: %v: %s", err, out)
	}
	cmd, _ := readyDemo(t, "--listen", "127.0.0.1:0", "--data-dir", dir)
	interrupt(t, cmd)
}

// TestDemoTerminated: what stops services does the same, also before all is
// ready.
func TestDemoTerminated(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("vestibule", "demo", "--listen", "127.0.0.1:0", "--data-dir", t.TempDir(), "--log-level", "info")
	stderr := testkit.Must(cmd.StderrPipe())(t)
	testkit.NoError(t, cmd.Start())
	defer cmd.Process.Kill() //nolint:errcheck // ended already when all went well
	lines := bufio.NewScanner(stderr)
	for lines.Scan() && !strings.Contains(lines.Text(), "edge up") {
	}
	testkit.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	for lines.Scan() { // to its end
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
}
