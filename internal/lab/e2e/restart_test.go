package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vestibule/internal/lab/figures"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/lab/visitor"
)

// restartPeople is the number of visitors in TestRestartUnderLoad; 0 skips it.
var restartPeople = flag.Int("restart-people", 0,
	"people who come to a fleet that is started again meanwhile (`make restart`)")

// restartSession is its session_duration.
var restartSession = flag.Duration("restart-session", 15*time.Second, "session_duration of TestRestartUnderLoad")

var restartLimit = flag.Duration("restart-limit", 7*time.Minute, "within which everybody is to come in")

// TestRestartOfAll: two visitors are inside a full room, one of them in place of one that left, and another one
// waits. Every process is stopped and restarted. One of the visitors inside leaves, and the waiting one enters.
func TestRestartOfAll(t *testing.T) {
	t.Parallel()
	bin, dir := build(t), t.TempDir()
	rooms := sale(2, 60, "2m", startSite(t, bin).at["url"], ", probation: 2m")
	nodes, edges := restartable(t, bin, dir, rooms, 1, "nairobi")

	come := func() *guest { return newGuest(t, edges[0], &http.Transport{}) }
	gone, first, second, third := come(), come(), come(), come()
	until(t, "two are inside", func() bool { return first.inside() && gone.inside() })
	if code := gone.leave(t); code != http.StatusNoContent {
		t.Fatalf("the goodbye is answered with status %d", code)
	}
	until(t, "somebody is inside in place of who said goodbye", second.inside)
	for range 2 { // counted with the second request
		if third.inside() {
			t.Fatal("another one is inside a room for two")
		}
	}
	restart(t, nodes)
	took := until(t, "one of those inside is served again", first.inside)
	t.Logf("served %.1f s after the last process was started", took.Seconds())
	if code := first.leave(t); code != http.StatusNoContent {
		t.Fatalf("the goodbye is answered with status %d", code)
	}
	// Tickets live for more than two minutes: without the departure the third does not enter within this time.
	took = until(t, "the next visitor is inside", third.inside)
	figures.CheckTime(t, leaveToNext, "", took)
	if first.inside() {
		t.Error("who said goodbye is inside all the same")
	}

	// A goodbye that one aggregator counted is not forgotten by its successor, and the next one counts too.
	fourth := come()
	for range 2 { // counted with the second question
		if fourth.inside() {
			t.Fatal("another one is inside a room for two")
		}
	}
	nodes[1].stop(t)
	nodes[1] = nodes[1].again(t)
	until(t, "one of those inside is served again", second.inside)
	if code := second.leave(t); code != http.StatusNoContent {
		t.Fatalf("the goodbye is answered with status %d", code)
	}
	took = until(t, "the next visitor is inside", fourth.inside)
	figures.CheckTime(t, leaveToNext, "under a new aggregator", took)
}

// leaveToNext is a goal.
const leaveToNext = "restart: from a leave to the next admission"

// TestRestartUnderLoad: visitors fill a room in two data centres with two edges each and wait in front of it, and
// every process is stopped and restarted. It judges the pause of admissions and the wrong forecasts.
func TestRestartUnderLoad(t *testing.T) {
	if *restartPeople == 0 {
		t.Skip("`make restart` runs it")
	}
	bin, dir := build(t), t.TempDir()
	rooms := sale(20, 6000, restartSession.String(), startSite(t, bin).at["url"])
	nodes, edges := restartable(t, bin, dir, rooms, 2, "nairobi", "dublin")
	ctx, cancel := context.WithTimeout(t.Context(), *restartLimit)
	defer cancel()
	crowd := &crowd{edges: edges, begun: time.Now()}
	var all sync.WaitGroup
	for i := range *restartPeople {
		g, rng := newGuest(t, edges[i%len(edges)], &http.Transport{}), rand.New(rand.NewPCG(1, uint64(i)))
		all.Go(func() {
			pause(ctx, time.Duration(rng.Int64N(int64(5*time.Second))))
			crowd.visit(ctx, g, rng, *restartSession)
		})
	}
	pause(ctx, 20*time.Second+min(*restartSession, longSession/2)*2)
	stopped := crowd.since()
	up := restart(t, nodes)
	started := crowd.since()
	all.Wait()
	if ctx.Err() != nil {
		t.Error("not everybody came in")
		for _, p := range nodes {
			var said json.RawMessage
			if err := get(p.at["metrics"]+"/status", &said); err == nil {
				t.Logf("%s: %s", p.name, said)
			}
		}
	}
	crowd.report(t, stopped, started, up)
}

// restartable starts a fleet, and returns its processes and the addresses of its edges.
func restartable(t *testing.T, bin, dir, rooms string, each int, dcs ...string) (nodes []*command, edges []string) {
	t.Helper()
	b, nodes := fleet(t, bin, dir, rooms, dcs...)
	started, at := startEdges(t, bin, dir, b, each, "", dcs...)
	areReady(t, started...)
	return append(nodes, started...), slices.Concat(at...)
}

// restart stops every process, edges first and global last, and restarts them. It returns the duration.
func restart(t *testing.T, nodes []*command) time.Duration {
	t.Helper()
	begun := time.Now()
	for _, p := range slices.Backward(nodes) {
		p.stop(t)
	}
	for i, p := range nodes {
		nodes[i] = p.again(t)
	}
	return time.Since(begun)
}

// guest is a visitor of one edge.
type guest struct {
	visitor.Visitor
	url string
}

func newGuest(t *testing.T, url string, transport *http.Transport) *guest {
	t.Helper()
	t.Cleanup(transport.CloseIdleConnections)
	return &guest{visitor.Visitor{
		Client: &http.Client{Transport: transport, Timeout: testkit.Patience},
		Site:   "X-Demo-Origin",
	}, url}
}

// inside requests the page and reports whether the site answered.
func (g *guest) inside() bool {
	req, err := g.Request(context.Background(), g.url+"/")
	if err != nil {
		return false
	}
	a, err := g.Do(req)
	return err == nil && a.Inside
}

// leave leaves and returns the status.
func (g *guest) leave(t *testing.T) int {
	t.Helper()
	return testkit.Must(g.Leave(t.Context(), g.url, "sale"))(t)
}

// heard is what a waiting visitor was shown.
type heard struct {
	at time.Duration
	visitor.Shown
}

// crowd is visitors with the forecasts of each.
type crowd struct {
	edges []string
	begun time.Time

	mu    sync.Mutex
	waits []wait
}

// wait is one visitor's wait.
type wait struct {
	edge            string
	joined, entered time.Duration
	forecasts       []heard
}

func (c *crowd) since() time.Duration { return time.Since(c.begun) }

// visit waits for the turn and stays for a while. With long sessions it leaves explicitly.
func (c *crowd) visit(ctx context.Context, g *guest, rng *rand.Rand, session time.Duration) {
	w := wait{edge: g.url, joined: c.since()}
	for ctx.Err() == nil {
		a, err := g.AskJSON(ctx, g.url+"/", "")
		if a.Inside {
			break
		}
		next := time.Second
		if err == nil {
			if a.Shown.State != "moment" { // the page shows no number then
				w.forecasts = append(w.forecasts, heard{c.since(), a.Shown})
			}
			next = max(time.Second, a.Shown.Retry())
		}
		pause(ctx, min(next, 20*time.Second))
	}
	if ctx.Err() != nil {
		return
	}
	w.entered = c.since()
	c.mu.Lock()
	c.waits = append(c.waits, w)
	c.mu.Unlock()
	long := session > longSession
	length := min(session, longSession)
	stay := time.Now().Add(time.Duration(rng.Float64() * float64(length)))
	for left := time.Until(stay); left > 0 && ctx.Err() == nil; left = time.Until(stay) {
		pause(ctx, min(left, length/5)) // whole steps would let all who entered at once leave at once
		g.inside()
	}
	if long {
		if _, err := g.Leave(ctx, g.url, "sale"); err != nil && ctx.Err() == nil {
			pause(ctx, 3*time.Second) // the edge was away
			_, _ = g.Leave(ctx, g.url, "sale")
		}
	}
}

// longSession is the longest session that visitors let expire: they leave longer ones explicitly.
const longSession = time.Minute

// report prints the figures.
func (c *crowd) report(t *testing.T, stopped, started, up time.Duration) {
	t.Helper()
	if len(c.waits) == 0 {
		t.Fatal("nobody came in")
	}
	var entered []time.Duration
	for _, w := range c.waits {
		entered = append(entered, w.entered)
	}
	slices.Sort(entered)
	longest := func(from, till time.Duration) (gap time.Duration) {
		last := from
		for _, at := range entered {
			if at > from && at < till {
				gap, last = max(gap, at-last), at
			}
		}
		return gap
	}
	i, _ := slices.BinarySearch(entered, started)
	first, end := time.Duration(0), entered[len(entered)-1]
	if i < len(entered) {
		first = entered[i] - started
	}
	var falseNone, answers, counting, wrong, estimates int
	var worst struct{ shown, actual float64 } // seconds
	for _, w := range c.waits {
		for _, h := range w.forecasts {
			if h.at < started {
				continue
			}
			answers++
			if h.Counting {
				counting++
				continue
			}
			front := 0
			for _, o := range c.waits {
				if o.joined < w.joined && o.entered > h.at {
					front++
				}
			}
			if h.PeopleAhead == 0 && front > 2 {
				falseNone++
				t.Logf("%s showed 0 ahead (%s), %.0f s, %.1f s after the start, to a visitor with %d in front: joined at "+
					"%.1f s, entered at %.1f s", w.edge, h.State, h.WaitTimeSeconds, (h.at - started).Seconds(), front,
					w.joined.Seconds(), w.entered.Seconds())
			}
			if actual := (w.entered - h.at).Seconds(); h.WaitTimeKnown && h.at < started+2*time.Minute {
				estimates++
				shown := h.WaitTimeSeconds
				if off := math.Abs(shown - actual); (shown > 2*actual || shown < actual/2) && off > 5 {
					wrong++
					t.Logf("%s showed %d ahead, %.0f s, %.1f s after the start, to a visitor with %d in front that entered "+
						"after %.1f s: joined at %.1f s", w.edge, h.PeopleAhead, shown, (h.at - started).Seconds(), front, actual,
						w.joined.Seconds())
					if off > math.Abs(worst.shown-worst.actual) {
						worst.shown, worst.actual = shown, actual
					}
				}
			}
		}
	}
	var b strings.Builder
	row := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "  %-62s "+format+"\n", append([]any{what}, args...)...)
	}
	fmt.Fprintf(&b, "\n  %d people, four edges in two data centres, sessions of %v\n\n", len(c.waits), *restartSession)
	row("every process ended and started again within", "%.1f s", up.Seconds())
	row("admissions before, after", "%d, %d", i, len(entered)-i)
	row("longest time without an admission before, and after", "%.1f s, %.1f s", longest(0, stopped).Seconds(),
		longest(started, end).Seconds())
	row("answers to those who wait afterwards, of which counting", "%d, %d", answers, counting)
	row("estimates off by more than 2 times and 5 s, of those shown",
		"%d of %d; the worst: %.0f s, really %.0f s", wrong, estimates, worst.shown, worst.actual)
	t.Log(b.String())
	figures.CheckTime(t, "restart: from the last start to the next admission", "", first)
	figures.Check(t, "restart: wrong answers with 0 ahead", "", float64(falseNone))
	if estimates == 0 {
		t.Fatal("no forecast was shown after the restart")
	}
	figures.Check(t, "restart: forecasts off by over two times and 5 s", "", 100*float64(wrong)/float64(estimates))
}
