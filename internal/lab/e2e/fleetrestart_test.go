package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"vestibule/internal/lab/testkit"
)

// TestRestartOfAllBehindHAProxy stops a whole fleet with SIGTERM at once and restarts it, behind a real HAProxy.
// With the backups of docs/INTEGRATIONS.md the site answers every request of active visitors, late; without it,
// HAProxy answers 503 while no edge listens.
func TestRestartOfAllBehindHAProxy(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes a minute; `make e2e` runs it")
	}
	t.Parallel()
	testkit.Program(t, "haproxy")
	site := plainSite(t)
	const patient = "  retries 30\n  option redispatch\n"
	for _, tc := range []struct {
		name            string
		sockets, backup bool
		backend         string
		judged          bool
	}{
		{"health checks only", false, false, healthChecks, false},
		{"health checks, and the same edges as backup with retries", false, true, healthChecks + patient, true},
		{"health checks, and the same edges as backup, which have passed sockets", true, true, healthChecks, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newRestarted(t, site.URL)
			var servers, backup strings.Builder
			for i := range 2 {
				name := fmt.Sprintf("edge-%d", i+1)
				addr, port := f.addEdge(name, tc.sockets)
				fmt.Fprintf(&servers, "  server %s %s check port %s\n", name, addr, port)
				if tc.backup {
					fmt.Fprintf(&backup, "  server %s-starting %s backup\n", name, addr)
				}
			}
			front := testkit.FreeAddr(t)
			haproxy(t, f.dir, front, 5*time.Second, tc.backend+servers.String()+backup.String())
			l := f.restart("http://" + front)
			l.report(t, tc.name)
			if n := l.failed(); n > 0 && tc.judged {
				t.Errorf("%d requests failed", n)
			}
		})
	}
}

// restarted is a fleet that restarts as a whole.
type restarted struct {
	t     *testing.T
	dir   string
	nats  *bus
	nodes []*command
	begin []func() *command // in the order of nodes
}

func newRestarted(t *testing.T, site string) *restarted {
	t.Helper()
	f := &restarted{t: t, dir: t.TempDir()}
	f.nats, f.nodes = fleet(t, build(t), f.dir, bigSale(site), "nairobi")
	for _, p := range f.nodes {
		f.begin = append(f.begin, func() *command { return p.again(t) })
	}
	return f
}

// addEdge starts an edge, and returns its address and its health port. Its listener may outlive it.
func (f *restarted) addEdge(name string, passed bool) (addr, health string) {
	t := f.t
	t.Helper()
	metrics, edge := testkit.FreeAddr(t), filepath.Join(build(t), "edge")
	var socket *os.File
	if addr = testkit.FreeAddr(t); passed {
		addr, socket = listening(t)
	}
	config := edgeFile(t, f.dir, f.nats, "nairobi", name,
		fmt.Sprintf("listen: %s\ndrain_delay: 2s\nmetrics: {listen: %q}\n", addr, metrics))
	begin := func() *command {
		if !passed {
			return start(t, edge, "--config", config)
		}
		p := withSocket(t, socket, edge, "--config", config)
		p.listens(t)
		return p
	}
	f.begin, f.nodes = append(f.begin, begin), append(f.nodes, begin())
	until(t, name+" is ready", func() bool { return ready("http://" + metrics) })
	_, health, err := net.SplitHostPort(metrics)
	testkit.NoError(t, err)
	return addr, health
}

// restart stops every process with SIGTERM and restarts all, while active visitors continue.
func (f *restarted) restart(url string) *load {
	t := f.t
	t.Helper()
	return underLoad(t, url, 20, 100, &http.Transport{MaxIdleConnsPerHost: 20}, func(ctx context.Context) {
		pause(ctx, time.Second)
		for _, p := range f.nodes {
			p.kill(t, syscall.SIGTERM)
		}
		for _, p := range f.nodes {
			p.ends(t)
		}
		pause(ctx, time.Second)
		for i := range f.nodes {
			f.nodes[i] = f.begin[i]()
		}
		pause(ctx, 5*time.Second)
	})
}
