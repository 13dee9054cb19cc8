package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"vestibule/internal/allinone"
	"vestibule/internal/lab/testkit"
)

// interrupt ends a demo and waits until it has ended.
func interrupt(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	testkit.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	if err := cmd.Wait(); err != nil {
		t.Errorf("Ctrl-C: %v", err)
	}
}

// TestDemoIsWhereItWas: a demo that is started again has the same addresses and the same token, and
// nobody else can use its folder meanwhile.
func TestDemoIsWhereItWas(t *testing.T) {
	t.Parallel()
	const listeners = 10 + 10 // edges, what may be left free, and the rest
	dir := t.TempDir()
	for try := 0; ; try++ { // somebody else may take a port meanwhile
		args := []string{"--data-dir", dir, "--listen", fmt.Sprintf("127.0.0.1:%d", freePorts(t, listeners))}
		cmd, before := readyDemo(t, args...)
		if out, err := exec.Command("vestibule", "demo", "--data-dir", dir, "--listen",
			"127.0.0.1:0").CombinedOutput(); err == nil || !strings.Contains(string(out), "in use by another process") {
			t.Errorf("a second demo in the same folder: %v: %s", err, out)
		}
		interrupt(t, cmd)
		cmd, info := readyDemo(t, args...)
		interrupt(t, cmd)
		if info.Control.Token == "" || info.Control.Token != before.Control.Token {
			t.Errorf("the token is %q, before %q", info.Control.Token, before.Control.Token)
		}
		if info.Control.Console == "" || info.Control.Console == before.Control.Console {
			t.Errorf("the link to the console is %q, before %q", info.Control.Console, before.Control.Console)
		}
		info.Control.Console = before.Control.Console // each is valid once
		if reflect.DeepEqual(info, before) {
			return
		}
		if try == 5 {
			t.Fatalf("it is at\n%+v, before at\n%+v", info, before)
		}
	}
}

// TestDemoMakesWay: where the ports of a demo are taken and none were asked for, it takes others and says so.
func TestDemoMakesWay(t *testing.T) {
	t.Parallel()
	taken := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	o := allinone.Options{DataCenters: []string{"nairobi", "dublin"}, Edges: 2}
	var said strings.Builder
	chooseListen(&o, port, &said)
	want := fmt.Sprintf("Port %d is taken by another program: trying from %d on", port, port+100)
	if !strings.HasPrefix(said.String(), want) || o.Listen == fmt.Sprintf("localhost:%d", port) ||
		!strings.HasPrefix(o.Listen, "localhost:") {
		t.Errorf("it listens at %s and says %q, want %q", o.Listen, &said, want)
	}
}

// TestDemoOfYourSite: a demo in front of somebody's own site, under its own name.
func TestDemoOfYourSite(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "my site at %s", r.Host)
	}))
	defer site.Close()
	cmd, info := readyDemo(t, "--listen", "localhost:0", "--origin", site.URL, "--host", "shop.example",
		"--total-active-users", "100")
	if info.Busy != "" || info.Origin != site.URL {
		t.Errorf("READY tells of %+v", info)
	}
	for _, host := range []string{"shop.example", "localhost", "127.0.0.1", "[::1]"} {
		testkit.Eventually(t, "a visitor of "+host+" is on the site", func() bool {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, info.Edges[0].URL, http.NoBody)
			testkit.NoError(t, err)
			r.Host = host
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				return false
			}
			body, err := io.ReadAll(res.Body)
			return errors.Join(err, res.Body.Close()) == nil && string(body) == "my site at "+host
		})
	}
	interrupt(t, cmd)
}
