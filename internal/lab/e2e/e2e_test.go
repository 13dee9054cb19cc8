package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vestibule/internal/lab/figures"
	"vestibule/internal/lab/process"
	"vestibule/internal/lab/testkit"
)

// The room of the run. The first T enter at once; then T limits (with 4 to 5 s inside and 7 s until a permit is
// free again, it admits about 200 a minute) until R is used up, then R until the first minute is over.
const (
	total    = 40
	rate     = 150
	session  = 6 * time.Second
	visitors = 300
	length   = 66 * time.Second // duration of the visits: more than a minute, so that R becomes free again
	seed     = 2
)

// TestEndToEnd runs a deployment: a nats-server of global and one of each of two data centres, with client
// certificates, global, a regional and two edges in each, and a site with its own counts, all as separate
// processes; then some hundred visitors come.
func TestEndToEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes more than a minute; `make e2e` runs it")
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Fatal("curl is not installed: run make packages as root")
	}
	// Not in parallel: where a regional answers late for want of processors, its edges refuse renewals, and short sessions
	// end early.
	bin := build(t)
	begun := time.Now()
	tree := deploy(t, bin)
	t.Logf("ready %.1f s after the first process was started", time.Since(begun).Seconds())
	figures.CheckTime(t, "e2e: from start to ready of one more edge", "", tree.another(t, bin))

	ctx, cancel := context.WithTimeout(t.Context(), length+testkit.Patience)
	defer cancel()
	var all sync.WaitGroup
	rng := rand.New(rand.NewPCG(seed, seed))
	people := make([]*curlVisitor, visitors)
	faults := make([]error, visitors)
	var counts tally
	jars := t.TempDir()
	for i := range people {
		v := &curlVisitor{n: i, dir: jars, site: tree.site, rng: rand.New(rand.NewPCG(seed, uint64(i))), tally: &counts}
		people[i] = v
		// Two thirds come at the opening, the others within the first 50 s.
		after := time.Duration(rng.Int64N(int64(10 * time.Second)))
		if i%3 == 0 {
			after = time.Duration(rng.Int64N(int64(50 * time.Second)))
		}
		all.Go(func() {
			pause(ctx, after)
			if ctx.Err() == nil {
				faults[i] = v.visit(ctx, session)
			}
		})
	}
	robots := make(chan string, 1)
	go func() { robots <- hammer(ctx, tree.site[0][0]) }()
	// A slow machine has more time to reach T and R.
	pause(ctx, length)
	until(t, "T and R are used", func() bool {
		s, err := tree.stats()
		return err == nil && s.Peak >= total*9/10 && s.PeakRate >= rate*9/10
	})
	cancel()
	all.Wait()
	played := time.Since(begun)

	own := testkit.Must(tree.stats())(t)
	refused := 0
	for _, p := range tree.nodes[len(tree.nodes)-4:] { // the edges
		refused += gauge(t, p, `vestibule_edge_renewals_refused_total{room="sale"}`)
	}
	for _, p := range slices.Backward(tree.nodes) {
		p.stop(t)
	}
	for _, err := range faults {
		if err != nil {
			t.Error(err)
		}
	}
	seen := judgeVisits(read(t, tree.journal), session, rate)
	inside, waits := 0, []float64{}
	for _, v := range people {
		if v.inside.Load() {
			inside++
			waits = append(waits, v.waited.Seconds())
		}
	}
	slices.Sort(waits)
	at := func(q float64) float64 {
		if len(waits) == 0 {
			return 0
		}
		return waits[int(q*float64(len(waits)-1))]
	}

	var b strings.Builder
	row := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "  %-34s "+format+"\n", append([]any{what}, args...)...)
	}
	fmt.Fprintf(&b, "\n  T %d, R %d/min, session_duration %v; 2 data centres, 4 edges, %.0f s\n\n", total, rate, session,
		played.Seconds())
	row("visitors (curl, a jar each)", "%d", visitors)
	row("came in, by their own account", "%d", inside)
	row("sessions, by the site's", "%d", seen.admitted)
	row("peak of sessions / T", "%d / %d", seen.peak, total)
	row("worst 60 s of admissions / R", "%d / %d", seen.rate, rate)
	row("R+1 admissions took at least", "%.2f s", seen.tightest.Seconds())
	row("mean use of T after the peak", "%.2f", seen.use/total)
	row("wait: half, 90 %, longest", "%.1f s, %.1f s, %.1f s", at(.5), at(.9), at(1))
	row("waiting pages, pages of the site", "%d, %d", counts.waitingPages.Load(), counts.pages.Load())
	row("requests in parallel with one jar", "%d", counts.parallel.Load())
	row("old jars shown elsewhere, came in", "%d, %d", counts.replays.Load(), counts.replaysIn.Load())
	row("renewals refused", "%d (a session without one may end early)", refused)
	row("curl processes", "%d", counts.curls.Load())
	row("robots without cookies", "%s", <-robots)
	t.Log(b.String())

	if seen.peak > total {
		t.Errorf("overshoot of T: %d sessions at once, T is %d", seen.peak, total)
	}
	if seen.rate > rate {
		t.Errorf("overshoot of R: %d admissions in a minute, R is %d", seen.rate, rate)
	}
	// The site's own count is exact about the minute, and independent.
	if own.Peak != seen.peak || own.PeakRate != seen.rate || own.Total != seen.admitted {
		t.Errorf("the site counted %+v itself, its journal says %+v", own, seen)
	}
	if counts.waitingPages.Load() == 0 {
		t.Error("nobody had to wait: the run shows nothing")
	}
}

// tree is the deployment.
type tree struct {
	site    site
	origin  string
	journal string
	nats    *bus
	dir     string
	nodes   []*command // in the order of their start
}

// another adds a new edge and returns the time from its start until it can admit.
func (tr *tree) another(t *testing.T, bin string) time.Duration {
	t.Helper()
	begun := time.Now()
	e := startEdge(t, bin, tr.dir, tr.nats, "nairobi", "edge-3", quickEdge)
	areReady(t, e)
	took := time.Since(begun)
	e.stop(t)
	return took
}

func deploy(t *testing.T, bin string) *tree {
	t.Helper()
	tr := &tree{dir: t.TempDir()}
	origin, journal := journaled(t, bin, tr.dir, session)
	tr.origin, tr.journal = origin.at["url"], journal
	tr.nats = withUsers(t, bin, tr.dir, 1, "nairobi", "dublin")
	nodes := fleetOver(t, tr.nats, bin, tr.dir, sale(total, rate, session.String(), tr.origin), "", "nairobi", "dublin")
	edges, at := startEdges(t, bin, tr.dir, tr.nats, 2, "", "nairobi", "dublin")
	tr.nodes, tr.site = slices.Concat([]*command{origin}, nodes, edges), at
	areReady(t, edges...)
	return tr
}

func file(t *testing.T, dir, name, format string, args ...any) string {
	t.Helper()
	name = filepath.Join(dir, name)
	testkit.NoError(t, os.WriteFile(name, fmt.Appendf(nil, format, args...), 0o600))
	return name
}

// ready reports whether an edge can admit.
func ready(metrics string) bool {
	var r struct{ Ready, Isolated bool }
	return get(metrics+"/readyz", &r) == nil && r.Ready && !r.Isolated
}

// stats returns the counts of the site.
func (tr *tree) stats() (s struct {
	Peak, Total int
	PeakRate    int `json:"peak_rate"`
}, err error,
) {
	return s, get(tr.origin+"/stats", &s)
}

// client sends one request, with a long timeout.
var client = &http.Client{Timeout: testkit.Patience}

// fetched is a response that was read.
type fetched struct {
	*http.Response
	body string
}

// fetch sends one request, with pairs of header names and values, and reads the response.
func fetch(ctx context.Context, c *http.Client, method, url, body string, header ...string) (f fetched, err error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return f, err
	}
	if body == "" {
		r.Body, r.ContentLength = http.NoBody, 0
	}
	r.GetBody = nil // net/http does not repeat a POST on an idle connection that the server closes
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	if f.Response, err = c.Do(r); err != nil {
		return f, err
	}
	text, err := io.ReadAll(f.Body)
	f.body = string(text)
	return f, errors.Join(err, f.Body.Close())
}

// page gets a page, also after the test.
func page(c *http.Client, url string) (fetched, error) {
	return fetch(context.Background(), c, http.MethodGet, url, "")
}

func get(url string, to any) error {
	f, err := page(client, url)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(f.body), to)
}

// hammer sends requests of robots without cookies to one edge as fast as possible for some seconds while others
// wait, and returns a summary.
func hammer(ctx context.Context, url string) string {
	wrk, err := exec.LookPath("wrk")
	if err != nil {
		return "none: wrk is not installed"
	}
	pause(ctx, 25*time.Second)
	cmd := exec.CommandContext(ctx, wrk, "-t1", "-c8", "-d4s", url+"/")
	cmd.SysProcAttr = process.Group()
	out, err := cmd.Output()
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "requests in") {
			return "wrk: " + strings.TrimSpace(line)
		}
	}
	return "wrk said nothing"
}
