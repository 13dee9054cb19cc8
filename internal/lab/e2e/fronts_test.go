package e2e

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"vestibule/internal/lab/figures"
	"vestibule/internal/lab/process"
	"vestibule/internal/lab/testkit"
)

// allFronts makes the tests of servers in front complete, as `make fronts` does: eight minutes. Without it edges fail
// behind nginx alone, and clients are played through each server with two edges.
var allFronts = flag.Bool("fronts", false,
	"each server in front with one and two edges, and edges that hang for a minute")

// TestEdgesFailBehindFronts kills and hangs edges behind nginx, HAProxy and Caddy with the files of deploy/fronts,
// while visitors are inside. With one edge left no request fails, and none waits for more than its timeout. Without any
// the front says when to come back, and is right as soon as the edges are.
func TestEdgesFailBehindFronts(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes a minute; `make e2e` runs it")
	}
	site := plainSite(t)
	bin, dir := build(t), t.TempDir()
	nats, _ := fleet(t, bin, dir, bigSale(site.URL), "nairobi")
	fronts, hang := testkit.Fronts[:1], 5*time.Second
	if *allFronts {
		fronts, hang = testkit.Fronts, time.Minute
	}
	for _, f := range fronts {
		t.Run(f.Name, func(t *testing.T) {
			testkit.Program(t, f.Name)
			var edges [2]*fronted
			at := testkit.FrontPlaces{Visitors: testkit.FreeAddr(t), Site: site.Listener.Addr().String()}
			for i := range edges {
				edges[i] = startFronted(t, bin, dir, nats, fmt.Sprintf("%s-%d", f.Name, i+1), f.Form, `listen: ""`)
				at.Edges = append(at.Edges, edges[i].addr)
			}
			startFront(t, &f, &at)
			l := newOutage(t, "http://"+at.Visitors)

			edges[0].kill(t, syscall.SIGKILL)
			<-edges[0].Done()
			pause(t.Context(), 3*time.Second)
			edges[0].restart(t)
			pause(t.Context(), time.Second)
			l.judge(t, f.Name+", one edge killed", time.Time{})

			edges[1].kill(t, syscall.SIGSTOP)
			pause(t.Context(), hang)
			edges[1].kill(t, syscall.SIGCONT)
			pause(t.Context(), time.Second)
			l.judge(t, f.Name+fmt.Sprintf(", one edge hung for %v", hang), time.Time{})

			for _, e := range edges {
				e.kill(t, syscall.SIGKILL)
				<-e.Done()
			}
			pause(t.Context(), 2*time.Second)
			for _, e := range edges {
				e.restart(t)
			}
			back := time.Now()
			pause(t.Context(), 3*time.Second)
			l.judge(t, f.Name+", both edges killed", back)
		})
	}
}

// fronted is an edge behind a front.
type fronted struct {
	*command
	addr, metrics string
}

// startFronted starts an edge that servers in front ask. own has its other listeners.
func startFronted(t *testing.T, bin, dir string, b *bus, name, form, own string) *fronted {
	t.Helper()
	e := &fronted{addr: testkit.FreeAddr(t), metrics: testkit.FreeAddr(t)}
	e.command = startEdge(t, bin, dir, b, "nairobi", name, fmt.Sprintf(`
front_auth: {listen: %q, form: %s}
metrics: {listen: %q}
trusted_proxies: [127.0.0.1]
%s`, e.addr, form, e.metrics, own))
	areReady(t, e.command)
	return e
}

func (e *fronted) restart(t *testing.T) {
	t.Helper()
	e.command = e.again(t)
	areReady(t, e.command)
}

// startFront runs a front until the test ends.
func startFront(t *testing.T, f *testkit.Front, at *testkit.FrontPlaces) {
	t.Helper()
	cmd := f.Command(t, t.TempDir(), at)
	log := &testkit.Log{}
	cmd.SysProcAttr, cmd.Stdout, cmd.Stderr = process.Group(), log, log
	testkit.NoError(t, cmd.Start())
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) //nolint:errcheck // it may have ended
		cmd.Wait()                                      //nolint:errcheck // it was killed
		if t.Failed() {
			t.Logf("%s:\n%s", f.Name, tail(log.String(), 20))
		}
	})
}

// outage are visitors of a site whose edges fail.
type outage struct {
	mu   sync.Mutex
	asks []ask // since the last judgement

	stop  context.CancelFunc
	stood chan time.Duration // the machine's longest pause, after stop
}

// watch begins to measure the pauses of the machine.
func (l *outage) watch() {
	var ctx context.Context
	ctx, l.stop = context.WithCancel(context.Background())
	l.stood = make(chan time.Duration, 1)
	go func(stood chan<- time.Duration) { stood <- testkit.Still(ctx) }(l.stood)
}

// ask is one request.
type ask struct {
	at    time.Time
	took  time.Duration
	right bool // the site answered
	says  bool // the front says when to come back
	what  string
}

// newOutage lets visitors in, who then ask 50 times a second until the test ends.
func newOutage(t *testing.T, url string) *outage {
	t.Helper()
	const people = 20
	l := &outage{}
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	t.Cleanup(stop)
	l.watch()
	t.Cleanup(func() { l.stop() })
	for i, c := range insiders(t, url, people, &http.Transport{MaxIdleConnsPerHost: people}) {
		all.Go(func() {
			pause(ctx, time.Duration(i)*20*time.Millisecond)
			for n := i; ctx.Err() == nil; n++ {
				next := time.Now().Add(people * 20 * time.Millisecond)
				l.ask(ctx, c, map[bool]string{true: http.MethodPost, false: http.MethodGet}[n%10 == 0], url)
				pause(ctx, time.Until(next))
			}
		})
	}
	return l
}

func (l *outage) ask(ctx context.Context, c *http.Client, method, url string) {
	a := ask{at: time.Now()}
	f, err := fetch(ctx, c, method, url+"/", "")
	if err == nil {
		a.right = f.StatusCode == http.StatusOK && f.body == "the site"
		a.says = f.StatusCode == http.StatusServiceUnavailable && f.Header.Get("Retry-After") != "" && f.body != ""
		a.what = fmt.Sprintf("%s: %d %.80q", method, f.StatusCode, f.body)
	} else {
		a.what = fmt.Sprintf("%s: %v", method, err)
	}
	a.took = time.Since(a.at)
	if ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asks = append(l.asks, a)
}

// judge judges the requests since the last judgement. If back is not zero, no edge was there until then.
func (l *outage) judge(t *testing.T, what string, back time.Time) {
	t.Helper()
	l.stop()
	slack := <-l.stood
	defer l.watch()
	l.mu.Lock()
	asks := l.asks
	l.asks = nil
	l.mu.Unlock()
	failed, refused, slowest, wrong := 0, 0, time.Duration(0), time.Duration(0)
	for _, a := range asks {
		slowest = max(slowest, a.took)
		switch {
		case a.right:
			continue
		case a.says && !back.IsZero():
			refused++
			wrong = max(wrong, a.at.Sub(back))
			continue
		}
		if failed++; failed <= 5 {
			t.Logf("  after %.2f s %s", a.took.Seconds(), a.what)
		}
	}
	t.Logf("%s: %d requests, %d got the time to come back; the machine paused for %.2f s", what, len(asks), refused,
		slack.Seconds())
	if len(asks) == 0 {
		t.Errorf("%s: nobody asked", what)
	}
	// The longest pause of the machine is no fault of a front.
	figures.Check(t, "fronts: failed requests", what, float64(failed))
	figures.CheckTime(t, "fronts: slowest answer", what, slowest-slack)
	figures.CheckTime(t, "fronts: right after edges are back", what, wrong-slack)
}
