package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"strings"
	"sync"
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
	const checks, patient = "option httpchk GET /readyz\n  http-check expect status 200\n  default-server inter 500ms fall 2 rise 1\n", "retries 30\n  option redispatch\n"
	for _, tc := range []struct {
		name            string
		sockets, backup bool
		backend         string
		judged          bool
	}{
		{"health checks only", false, false, checks, false},
		{"health checks, and the same edges as backup with retries", false, true, checks + patient, true},
		{"health checks, and the same edges as backup, which have passed sockets", true, true, checks, true},
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
			balance(t, front, "haproxy", "-db", "-f", file(t, f.dir, "haproxy.cfg", `
global
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 120s
  timeout server 120s
  timeout check 5s
frontend visitors
  bind %s
  default_backend edges
backend edges
  balance roundrobin
  %s
%s%s`, front, tc.backend, servers.String(), backup.String()))
			l := f.restart("http://" + front)
			l.report(t, tc.name)
			if n := len(l.faults[http.MethodGet]) + len(l.faults[http.MethodPost]); n > 0 && tc.judged {
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
	f.nats, f.nodes = fleet(t, build(t), f.dir, fmt.Sprintf("rooms: [{name: sale, host: 127.0.0.1, total_active_users: 10000, new_users_per_minute: 100000, session_duration: 5m, origin: %q}]\n", site), "nairobi")
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
	config := edgeFile(t, f.dir, f.nats, "nairobi", name, fmt.Sprintf("listen: %s\ndrain_delay: 2s\nmetrics: {listen: %q}\n", addr, metrics))
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
	if err != nil {
		t.Fatal(err)
	}
	return addr, health
}

// restart stops every process with SIGTERM and restarts all, while active visitors continue.
func (f *restarted) restart(url string) *load {
	t := f.t
	t.Helper()
	l := &load{asked: map[string]int{}, faults: map[string][]string{}}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	const people = 20
	for i := range people {
		jar, err := cookiejar.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		c := &http.Client{Transport: &http.Transport{}, Jar: jar, Timeout: testkit.Patience}
		until(t, "somebody is inside", func() bool { return visitOnce(c, http.MethodGet, url) == nil })
		all.Go(func() { l.visit(ctx, c, url, i, people, 100) })
	}
	l.begun = time.Now()
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
	stop()
	all.Wait()
	l.took = time.Since(l.begun)
	return l
}
