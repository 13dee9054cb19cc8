package e2e

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"vestibule/internal/lab/figures"
	"vestibule/internal/lab/process"
	"vestibule/internal/lab/testkit"
)

// drainRate is the number of requests a second in TestDrain; `make drain` sends more.
var drainRate = flag.Int("drain-rate", 200, "requests per second that TestDrain makes")

// balancer is the address of HAProxy's connections to edges, by the PROXY protocol.
const balancer = "127.0.0.2"

// TestStopOfEverything stops every process of a fleet at once, like a machine's shutdown, and restarts them.
// Sessions last for five minutes. The edge's final report arrives, so no permits stay reserved, and newcomers need
// not wait for possible sessions.
func TestStopOfEverything(t *testing.T) {
	t.Parallel()
	site := plainSite(t)
	bin, dir := build(t), t.TempDir()
	nats, nodes := fleet(t, bin, dir, sale(10, 100, "5m", site.URL), "nairobi")
	addr := testkit.FreeAddr(t)
	nodes = append(nodes,
		startEdge(t, bin, dir, nats, "nairobi", "edge-1", fmt.Sprintf("listen: %s\ndrain_delay: 2s\n", addr)))
	newcomer := func() bool {
		f, err := page(client, "http://"+addr)
		return err == nil && f.body == "the site"
	}
	until(t, "a visitor is let in", newcomer)
	for range 2 {
		for _, p := range nodes {
			p.kill(t, syscall.SIGTERM)
		}
		for _, p := range nodes {
			p.ends(t)
		}
		begun := time.Now()
		for i, p := range nodes {
			nodes[i] = p.again(t)
		}
		until(t, "a newcomer is let in after everything was stopped", newcomer)
		figures.CheckTime(t, "restart: a newcomer is inside after all was stopped", "", time.Since(begun))
	}
}

// TestDrain stops edges with SIGTERM and restarts them, one after the other, behind load balancers and under load.
// Behind HAProxy, with health checks and without retries, no request fails. nginx has no health checks and learns
// from refused connections; it retries a GET, so no GET fails. POSTs that may be lost on a paused machine are
// reported, not judged. If the balancer is not scheduled within drain_delay, the edge cannot prevent failures: such
// a run is repeated once with a long delay.
func TestDrain(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes half a minute; `make e2e` runs it")
	}
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if from := r.Header.Get("X-Forwarded-For"); from == balancer {
			t.Errorf("a visitor has the address of the balancer")
		}
		io.WriteString(w, "the site") //nolint:errcheck // the client checks the answer
	}))
	t.Cleanup(site.Close)
	bin, dir := build(t), t.TempDir()
	nats, _ := fleet(t, bin, dir, bigSale(site.URL), "nairobi")
	var edges [2]drained
	for i := range edges {
		e := &edges[i]
		e.addr, e.metrics = testkit.FreeAddr(t), testkit.FreeAddr(t)
		e.start = func(delay time.Duration) {
			e.delay = delay
			e.command = startEdge(t, bin, dir, nats, "nairobi", fmt.Sprintf("edge-%d", i+1), fmt.Sprintf(
				"listen: %s\nmetrics: {listen: %q}\ndrain_delay: %s\nproxy_protocol: {trusted: [%s]}\n", e.addr, e.metrics, delay,
				balancer))
			areReady(t, e.command)
		}
		e.start(2 * time.Second)
	}
	// play rolls the edges behind a balancer; failed returns the number of failures that must not occur.
	play := func(t *testing.T, addr, behind string, failed func(l *load) int) {
		t.Helper()
		l := roll(t, "http://"+addr, *drainRate, edges[:])
		l.report(t, behind)
		if failed(l) > 0 {
			for i := range edges {
				edges[i].stop(t)
				edges[i].start(30 * time.Second)
			}
			balanced(t, addr, behind)
			l = roll(t, "http://"+addr, *drainRate, edges[:])
			l.report(t, behind+", with 30 s to notice")
		}
		figures.Check(t, "drain: failed requests", behind, float64(failed(l)))
	}

	t.Run("HAProxy", func(t *testing.T) {
		addr := testkit.FreeAddr(t)
		var servers strings.Builder
		for i, e := range edges {
			_, port, err := net.SplitHostPort(e.metrics)
			testkit.NoError(t, err)
			fmt.Fprintf(&servers, "  server edge-%d %s source %s send-proxy-v2 check port %s\n", i+1, e.addr, balancer, port)
		}
		haproxy(t, dir, addr, time.Minute, healthChecks+"  retries 0\n"+servers.String())
		play(t, addr, "HAProxy with health checks, retries 0", (*load).failed)
	})
	t.Run("nginx", func(t *testing.T) {
		addr := testkit.FreeAddr(t)
		servers := ""
		for _, e := range edges {
			servers += "server " + e.addr + " max_fails=1 fail_timeout=1s; "
		}
		balance(t, addr, "nginx", testkit.Nginx(t, t.TempDir(), fmt.Sprintf(`upstream edges { %s keepalive 64; }
	server {
		listen %s;
		location / {
			proxy_pass http://edges; proxy_http_version 1.1;
			proxy_set_header Connection ""; proxy_set_header Host $host;
		}
	}`, servers, addr))...)
		play(t, addr, "nginx, which asks for no health", func(l *load) int { return len(l.faults[http.MethodGet]) })
	})
}

// drained is an edge that stops and restarts at the same addresses.
type drained struct {
	*command
	addr, metrics string
	delay         time.Duration
	start         func(delay time.Duration)
}

// healthChecks are lines of a backend of HAProxy that asks edges for their health.
const healthChecks = `  option httpchk GET /readyz
  http-check expect status 200
  default-server inter 500ms fall 2 rise 1
`

// haproxy runs HAProxy until the test ends, with lines of its backend.
func haproxy(t *testing.T, dir, addr string, timeout time.Duration, backend string) {
	t.Helper()
	balance(t, addr, "haproxy", "-db", "-f", file(t, dir, "haproxy.cfg", `
global
  nbthread 1
defaults
  mode http
  timeout connect %[1]v
  timeout client 120s
  timeout server 120s
  timeout check %[1]v
frontend visitors
  bind %[2]s
  default_backend edges
backend edges
  balance roundrobin
%[3]s`, timeout, addr, backend))
}

// balance runs a load balancer until the test ends.
func balance(t *testing.T, addr, program string, args ...string) {
	t.Helper()
	serve(t, program, args...)
	balanced(t, addr, program)
}

func balanced(t *testing.T, addr, program string) {
	t.Helper()
	until(t, program+" passes requests on", func() bool {
		f, err := page(client, "http://"+addr+"/")
		return err == nil && f.StatusCode == http.StatusOK
	})
}

// serve runs an external server until the test ends.
func serve(t *testing.T, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(testkit.Program(t, program), args...)
	cmd.SysProcAttr = process.Group()
	cmd.Stderr = os.Stderr
	testkit.NoError(t, cmd.Start())
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) //nolint:errcheck // it may have ended
		cmd.Wait()                                      //nolint:errcheck // it was killed
	})
}

// plainSite starts a site that answers everything with "the site".
func plainSite(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "the site") //nolint:errcheck // the client checks the answer
	}))
	t.Cleanup(s.Close)
	return s
}

// load is the result of the requests of active visitors.
type load struct {
	mu     sync.Mutex
	begun  time.Time
	asked  map[string]int      // by method
	faults map[string][]string // by method
	took   time.Duration
}

// failed returns the number of failed requests.
func (l *load) failed() int { return len(l.faults[http.MethodGet]) + len(l.faults[http.MethodPost]) }

// browser returns a client that keeps cookies.
func browser(t *testing.T, tr *http.Transport) *http.Client {
	t.Helper()
	jar := testkit.Must(cookiejar.New(nil))(t)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Jar: jar, Timeout: testkit.Patience}
}

// insiders returns browsers that are inside.
func insiders(t *testing.T, url string, people int, tr *http.Transport) []*http.Client {
	t.Helper()
	clients := make([]*http.Client, people)
	for i := range clients {
		clients[i] = browser(t, tr)
		until(t, "somebody is inside", func() bool { return visitOnce(clients[i], http.MethodGet, url) == nil })
	}
	return clients
}

// underLoad does something while people inside send rate requests a second, every tenth a POST.
func underLoad(t *testing.T, url string, people, rate int, tr *http.Transport, do func(ctx context.Context)) *load {
	t.Helper()
	l := &load{asked: map[string]int{}, faults: map[string][]string{}}
	clients := insiders(t, url, people, tr)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	l.begun = time.Now()
	for i, c := range clients {
		all.Go(func() { l.visit(ctx, c, url, i, people, rate) })
	}
	do(ctx)
	stop()
	all.Wait()
	l.took = time.Since(l.begun)
	return l
}

// roll stops and restarts every edge, one after the other, under load.
func roll(t *testing.T, url string, rate int, edges []drained) *load {
	t.Helper()
	people := max(10, rate/20)
	return underLoad(t, url, people, rate, &http.Transport{MaxIdleConnsPerHost: people}, func(ctx context.Context) {
		const calm = 2 * time.Second
		pause(ctx, calm)
		for i := range edges {
			edges[i].stop(t)
			pause(ctx, calm)
			edges[i].start(edges[i].delay)
			pause(ctx, calm)
		}
	})
}

// visit sends the requests of the i-th visitor until ctx ends.
func (l *load) visit(ctx context.Context, c *http.Client, url string, i, people, rate int) {
	every := time.Duration(people) * time.Second / time.Duration(rate)
	next := time.Now().Add(every * time.Duration(i) / time.Duration(people))
	for n := i; ; n++ {
		pause(ctx, time.Until(next))
		if ctx.Err() != nil {
			return
		}
		next = next.Add(every)
		method := http.MethodGet
		if n%10 == 0 {
			method = http.MethodPost
		}
		err := visitOnce(c, method, url)
		l.mu.Lock()
		l.asked[method]++
		if err != nil {
			l.faults[method] = append(l.faults[method], fmt.Sprintf("%.3f s: %v", time.Since(l.begun).Seconds(), err))
		}
		l.mu.Unlock()
	}
}

func visitOnce(c *http.Client, method, url string) error {
	body := ""
	if method == http.MethodPost {
		body = "a cart"
	}
	f, err := fetch(context.Background(), c, method, url+"/", body) // every request must be answered
	if err == nil && (f.StatusCode != http.StatusOK || f.body != "the site") {
		err = fmt.Errorf("%s: %.60q", f.Status, f.body)
	}
	return err
}

func (l *load) report(t *testing.T, what string) {
	t.Helper()
	get, post := l.asked[http.MethodGet], l.asked[http.MethodPost]
	t.Logf("ended with SIGTERM behind %s:\n"+
		"  %d requests in %.1f s (%.0f/s); failed: %d of %d GET, %d of %d POST", what,
		get+post, l.took.Seconds(), float64(get+post)/l.took.Seconds(), len(l.faults[http.MethodGet]), get,
		len(l.faults[http.MethodPost]), post)
	for method, faults := range l.faults {
		for _, f := range faults[:min(len(faults), 5)] {
			t.Logf("  %s failed at %s", method, f)
		}
	}
}
