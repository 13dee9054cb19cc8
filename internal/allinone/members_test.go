package allinone

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vestibule/internal/core/wire"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
)

// list is the list of data centres, changed like by commands.
type list struct {
	t    *testing.T
	docs *natsbus.Documents
}

func (l *list) get() (*node.Members, uint64) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	data, revision, err := l.docs.Get(ctx, node.MembersDocument)
	testkit.NoError(l.t, err)
	if data == nil {
		return nil, 0
	}
	m := testkit.Must(node.DecodeMembers(data))(l.t)
	return m, revision
}

func (l *list) names() []string {
	var out []string
	if m, _ := l.get(); m != nil {
		for _, d := range m.List {
			out = append(out, d.Name)
		}
	}
	return out
}

func (l *list) change(f func(m *node.Members) (*node.Members, error)) {
	l.t.Helper()
	m, revision := l.get()
	next := testkit.Must(f(m))(l.t)
	data := testkit.Must(node.EncodeMembers(next))(l.t)
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	testkit.Must(l.docs.Put(ctx, node.MembersDocument, data, revision))(l.t)
}

// readyz returns the readiness of a tree.
func readyz(t *testing.T, tree *Tree) (status int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, tree.Info.Metrics+"/readyz", http.NoBody)
	testkit.NoError(t, err)
	resp := testkit.Must(http.DefaultClient.Do(req))(t)
	defer resp.Body.Close()
	body := testkit.Must(io.ReadAll(resp.Body))(t)
	return resp.StatusCode, string(body)
}

// A data centre is added and drained under load, while new globals with only the initial list take over: the limits
// hold at the site. Until it is listed its nodes are not ready, with the reason, and so is global.
func TestADataCentreIsAddedAndDrainedUnderLoad(t *testing.T) {
	t.Parallel()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	const total, rate = 12, 600
	var o Options
	tree, logged := grow(t, total, rate, 5*time.Second, func(opts *Options) { o = *opts })
	conn := testkit.Must(tree.connect("operator", "", slog.New(slog.DiscardHandler)))(t)
	eventually(t, "the operator is connected", conn.Connected)
	l := &list{t, natsbus.NewDocuments(conn, 0)}
	eventually(t, "the list is founded", func() bool { m, _ := l.get(); return m != nil && len(m.List) == 2 })

	// Visitors come all the while, also to the new data centre.
	regionals, edges := tree.tier("regional of lima"), tree.tier("edge of lima")
	testkit.NoError(t, tree.startRegional(regionals, &o, "lima", true))
	testkit.NoError(t, tree.startEdge(edges, &o, "lima", "edge-1", "127.0.0.1:0"))
	lima := tree.edges[len(tree.edges)-1]
	ctx, cancel := context.WithCancel(t.Context())
	var crowd sync.WaitGroup
	defer crowd.Wait()
	defer cancel()
	people := Visitors{
		N: 60, Think: 500 * time.Millisecond, Pause: time.Second, Rand: rand.New(rand.NewPCG(1, 2)),
		Log: slog.New(slog.DiscardHandler),
	}
	for _, e := range tree.Info.Edges {
		people.URLs = append(people.URLs, e.URL)
	}
	crowd.Go(func() { people.Run(ctx) })

	const why = "data centre lima is not in the fleet's list"
	for _, name := range []string{"regional-lima", "edge-lima-edge-1"} {
		eventually(t, name+" is not ready and says why", func() bool {
			status, text := readyz(t, tree)
			return status == http.StatusServiceUnavailable && strings.Contains(text, name+": "+why)
		})
	}
	const heard = "data centre lima reports but is not listed"
	eventually(t, "global says so", func() bool {
		_, text := readyz(t, tree)
		return strings.Contains(text, heard) && strings.Contains(logged.String(), heard)
	})
	if n := lima.Status().Rooms["demo"].Granted; n != 0 {
		t.Errorf("it was lent %d permits", n)
	}

	// takeOver replaces the global by one that has seen no list.
	takeovers := 0
	takeOver := func() {
		t.Helper()
		old := slices.IndexFunc(tree.tiers,
			func(x *tier) bool { return x.name == fmt.Sprint("global", strings.Repeat("'", takeovers)) })
		tree.tiers[old].stop()
		testkit.NoError(t, tree.tiers[old].g.Wait())
		takeovers++
		next := o
		next.DataDir = filepath.Join(o.DataDir, fmt.Sprint("next", takeovers))
		testkit.NoError(t, tree.startGlobal(tree.tier(fmt.Sprint("global", strings.Repeat("'", takeovers))), &next,
			false))
	}
	l.change(func(m *node.Members) (*node.Members, error) { return m.Add(time.Now(), "lima") })
	eventually(t, "it is ready and lets people in",
		func() bool { return lima.Ready().Ready && lima.Status().Rooms["demo"].Admitted > 0 })
	takeOver()
	before := lima.Status().Rooms["demo"].Admitted
	eventually(t, "it lets people in under the next global",
		func() bool { return lima.Status().Rooms["demo"].Admitted > before+3 })

	l.change(func(m *node.Members) (*node.Members, error) { return m.Drain(time.Now(), "lima") })
	eventually(t, "it drains", func() bool { return lima.Status().Standing == wire.Draining })
	takeOver()
	drained := time.Now()
	after := lima.Status().Rooms["demo"].Admitted
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for slices.Contains(l.names(), "lima") { // permits of R return after a minute
		if time.Since(drained) > wire.RateWindow+2*patience {
			t.Fatalf("not off the list: %+v", lima.Status())
		}
		<-tick.C
	}
	t.Logf("off the list %v after it was asked to drain", time.Since(drained).Round(time.Second))
	if n := lima.Status().Rooms["demo"].Admitted; n > after {
		t.Errorf("%d were let in while it drained", n-after)
	}
	eventually(t, "it is not ready again", func() bool { return !lima.Ready().Ready })
	if s := tree.Origin.Stats(); s.Peak > total || s.PeakRate > rate || s.Total < 2*total {
		t.Errorf("the site saw %+v, T %d, R %d", s, total, rate)
	} else {
		t.Logf("the site saw %+v, T %d, R %d", s, total, rate)
	}
}
