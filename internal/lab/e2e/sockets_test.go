package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"vestibule/internal/lab/process"
	"vestibule/internal/lab/testkit"
)

// TestRestartWithPassedSockets: with the listening socket in a supervisor, like systemd, an edge restarts under
// load and no connection is refused or reset. Active visitors get the site, late.
func TestRestartWithPassedSockets(t *testing.T) {
	t.Parallel()
	site := plainSite(t)
	bin, dir := build(t), t.TempDir()
	nats, _ := fleet(t, bin, dir, bigSale(site.URL), "nairobi")
	addr, socket := listening(t)
	url, metrics := "http://"+addr, testkit.FreeAddr(t)
	config := edgeFile(t, dir, nats, "nairobi", "edge-1",
		fmt.Sprintf("listen: %s\ndrain_delay: 0s\nmetrics: {listen: %q}\n", addr, metrics))
	begin := func() *command { return withSocket(t, socket, filepath.Join(bin, "edge"), "--config", config) }
	edge := begin()
	until(t, "the edge is ready", func() bool { return ready("http://" + metrics) })

	newcomers := &answers{codes: map[int]int{}}
	var all sync.WaitGroup
	const people, perSecond, restarts = 20, 200, 4
	inside := underLoad(t, url, people, perSecond, &http.Transport{DisableKeepAlives: true}, func(ctx context.Context) {
		for range people {
			all.Go(func() { newcomers.come(ctx, url) })
		}
		for range restarts {
			pause(ctx, time.Second)
			edge.stop(t)
			pause(ctx, 300*time.Millisecond) // like a supervisor with RestartSec
			edge = begin()
			until(t, "the edge is ready again", func() bool { return ready("http://" + metrics) })
		}
		pause(ctx, time.Second)
	})
	all.Wait()
	inside.report(t, fmt.Sprintf("a passed socket, %d times", restarts))
	t.Logf("newcomers: answers by status %v, connections refused or reset: %d (goal: 0), slowest answer %v",
		newcomers.codes, len(newcomers.faults), newcomers.slowest.Round(time.Millisecond))
	if n := inside.failed(); n > 0 {
		t.Errorf("%d requests of people inside failed", n)
	}
	for _, err := range newcomers.faults[:min(5, len(newcomers.faults))] {
		t.Errorf("a newcomer: %v", err)
	}
	if newcomers.codes[http.StatusOK] < 100 {
		t.Errorf("%d newcomers were answered by 200: it was no load", newcomers.codes[http.StatusOK])
	}
}

// listening returns a listening socket, which is open until the test ends, and its address.
func listening(t *testing.T) (addr string, socket *os.File) {
	t.Helper()
	l := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	socket, err := l.(*net.TCPListener).File()
	testkit.NoError(t, errors.Join(err, l.Close())) // the file is a duplicate
	t.Cleanup(func() {
		if err := socket.Close(); err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String(), socket
}

// withSocket launches a command with a passed listening socket, like systemd.
func withSocket(t *testing.T, socket *os.File, bin string, args ...string) *command {
	t.Helper()
	const passed = `LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@"` // the process ID is not known before
	return launch(t, process.Options{Files: []*os.File{socket}}, "/bin/sh",
		append([]string{"-c", passed, bin}, args...)...)
}

// TestSystemdPassesSockets: the edge accepts sockets passed by systemd's own program, and so does vestibule serve.
func TestSystemdPassesSockets(t *testing.T) {
	t.Parallel()
	program := testkit.Program(t, "systemd-socket-activate")
	bin, dir, addr := build(t), t.TempDir(), testkit.FreeAddr(t)
	config := file(t, dir, "edge.yaml",
		"name: edge-1\ndata_center: nairobi\ndata_dir: %s\nlisten: %s\nnats: {url: \"nats://127.0.0.1:1\"}\n",
		filepath.Join(dir, "edge"), addr)
	p := launch(t, process.Options{}, program, "--listen="+addr, filepath.Join(bin, "edge"), "--config", config)
	code := 0
	until(t, "the edge that systemd-socket-activate starts answers", func() bool {
		code = statusOf("http://" + addr)
		return code != 0
	})
	p.listens(t)
	if p.at["url"] != "http://"+addr || code != http.StatusServiceUnavailable {
		t.Errorf("it listens at %v and answers %d without rooms", p.at, code)
	}
	p.stop(t)

	site := testkit.FreeAddr(t)
	p = launch(t, process.Options{}, program, "--listen="+site, filepath.Join(bin, "vestibule"), "serve", "--origin",
		"http://127.0.0.1:1", "--listen", site,
		"--control", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--data-dir", filepath.Join(dir, "serve"))
	until(t, "vestibule serve answers", func() bool {
		return statusOf("http://"+site) != 0
	})
	p.listens(t)
	if !strings.Contains(p.at["edges"], "http://"+site) {
		t.Errorf("it listens at %v", p.at["edges"])
	}
	p.stop(t)

	// A socket for an unknown address is a mistake in the unit.
	other := testkit.FreeAddr(t)
	p = launch(t, process.Options{}, program, "--listen="+other, filepath.Join(bin, "edge"), "--config", config)
	until(t, "it ends", func() bool {
		statusOf("http://" + other) // no response is expected
		select {
		case <-p.Done():
			return true
		default:
			return false
		}
	})
	if p.Err() == nil || !strings.Contains(p.log.String(), "a socket was passed for "+other) {
		t.Errorf("it ended with %v and said:\n%s", p.Err(), p.log.String())
	}
}

// answers are the responses to newcomers.
type answers struct {
	mu      sync.Mutex
	codes   map[int]int
	faults  []error
	slowest time.Duration
}

// come sends newcomers, one after the other, each with a new connection.
func (a *answers) come(ctx context.Context, url string) {
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testkit.Patience}
	for ctx.Err() == nil {
		begun := time.Now()
		f, err := page(c, url+"/") // every request must be answered
		a.mu.Lock()
		if err != nil {
			a.faults = append(a.faults, err)
		} else {
			a.codes[f.StatusCode]++
		}
		a.slowest = max(a.slowest, time.Since(begun))
		a.mu.Unlock()
		pause(ctx, 100*time.Millisecond)
	}
}
