package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/lab/figures"
	"vestibule/internal/lab/visitor"
)

var (
	scaleRooms = flag.Int("scale", 0, "rooms whose cost TestScale measures; 0 skips it (`make scale`)")
	scaleEdges = flag.Int("edges", 50, "edges of its data centre")
)

const (
	scaleBusy   = 20                    // rooms with traffic, and visitors inside
	scaleEvery  = 20 * time.Millisecond // between two requests of a visitor
	scaleLength = 30 * time.Second      // of each measurement
)

// TestScale measures the start of a fleet with the most rooms, and compares an edge with many rooms to one with one.
// The figures depend on the machine: it fails on none.
func TestScale(t *testing.T) {
	if *scaleRooms == 0 {
		t.Skip("`make scale` runs it")
	}
	t.Log(figures.Machine())
	cost := map[int]time.Duration{}
	for _, n := range []int{room.MaxRooms, 1, *scaleRooms} {
		t.Run(fmt.Sprint(n), func(t *testing.T) { cost[n] = scale(t, n) })
	}
	t.Logf("%d rooms, %d with traffic, beside one room, CPU per request: %.3f (goal: 1.1)", *scaleRooms,
		min(scaleBusy, *scaleRooms), float64(cost[*scaleRooms])/float64(cost[1]))
}

// scale starts a fleet with so many rooms, and returns the edge's CPU time per request; 0 with the most rooms.
func scale(t *testing.T, rooms int) (perRequest time.Duration) {
	bin, dir := build(t), t.TempDir()
	site := startSite(t, bin).at["url"]
	var text strings.Builder
	var paths []string
	text.WriteString("rooms:\n")
	for i := range rooms {
		paths = append(paths, fmt.Sprintf("/p%x", rand.Uint64N(1<<40)))
		origin := site
		if i >= scaleBusy {
			origin = fmt.Sprintf("http://10.0.%d.%d:8080", i/250, i%250)
		}
		fmt.Fprintf(&text, "- {name: room-%d, host: a-%[1]d.example, path: %s, origin: %q, "+
			"total_active_users: 1000, new_users_per_minute: 600, session_duration: 5m}\n", i, paths[i], origin)
	}
	begun := time.Now()
	nats, nodes := fleet(t, bin, dir, text.String(), "dublin")
	edge := startEdge(t, bin, dir, nats, "dublin", "edge-1", quickEdge)
	areReady(t, edge)
	t.Logf("start of all to an edge that is ready: %.1f s", time.Since(begun).Seconds())
	if rooms == room.MaxRooms {
		return 0
	}
	for i := range *scaleEdges - 1 {
		startEdge(t, bin, dir, nats, "dublin", fmt.Sprint("edge-", i+2), quickEdge)
	}
	leased := func() bool {
		return gauge(t, nodes[1], `vestibule_regional_edges{state="alive"}`) == *scaleEdges &&
			gauge(t, nodes[1], `vestibule_regional_edges{state="dead"}`) == 0
	}
	until(t, "all edges have a lease", leased)
	pause(t.Context(), 10*time.Second) // first permits, first views
	perRequest = costOfTraffic(t, edge, paths)
	storeWrites(t, nodes[1], "idle", func() { costOfIdleness(t, append(nodes, edge)) })
	storeWrites(t, nodes[1], fmt.Sprintf("newcomers in %d rooms", scaleBusy), func() { costOfNewcomers(t, edge, nodes[1], paths) })
	if !leased() {
		t.Log("Leases lapsed meanwhile: this machine was too busy, the figures are not those of an idle fleet.")
	}
	return perRequest
}

// costOfTraffic lets visitors into the first rooms, and returns the edge's CPU time for each of their requests.
func costOfTraffic(t *testing.T, edge *command, paths []string) time.Duration {
	t.Helper()
	people := make([]*guest, scaleBusy)
	for i := range people {
		g := newGuest(t, edge.at["url"]+paths[i%len(paths)], &http.Transport{})
		g.Host = fmt.Sprintf("a-%d.example", i%len(paths))
		until(t, "somebody is let in", g.inside)
		people[i] = g
	}
	var asked, outside atomic.Int64
	var all sync.WaitGroup
	before, begun := cpuOf(t, edge), time.Now()
	for _, g := range people {
		all.Go(func() {
			tick := time.NewTicker(scaleEvery)
			defer tick.Stop()
			for time.Since(begun) < scaleLength {
				<-tick.C
				if asked.Add(1); !g.inside() {
					outside.Add(1)
				}
			}
		})
	}
	all.Wait()
	cost, passed := (cpuOf(t, edge)-before)/time.Duration(asked.Load()), time.Since(begun)
	t.Logf("CPU of the edge, %d people inside who ask: %.1f us per request at %.0f/s", scaleBusy, float64(cost)/1e3,
		float64(asked.Load())/passed.Seconds())
	if n := outside.Load(); n > 0 {
		t.Errorf("%d requests of people inside did not reach the site", n)
	}
	return cost
}

// storeWrites prints how often the regional writes to its store while something happens.
func storeWrites(t *testing.T, regional *command, what string, happens func()) {
	t.Helper()
	const name = "vestibule_regional_promises_stored_total"
	before, begun := gauge(t, regional, name), time.Now()
	happens()
	t.Logf("store writes of the data centre, %s: %.1f per second (goal: 10)", what,
		float64(gauge(t, regional, name)-before)/time.Since(begun).Seconds())
}

// costOfNewcomers lets more newcomers into the first rooms than the rooms admit, and prints the use of the processor by the
// regional.
func costOfNewcomers(t *testing.T, edge, regional *command, paths []string) {
	t.Helper()
	before, begun := cpuOf(t, regional), time.Now()
	var asked atomic.Int64
	var all sync.WaitGroup
	for i := range scaleBusy {
		g := newGuest(t, edge.at["url"]+paths[i%len(paths)], &http.Transport{})
		all.Go(func() {
			tick := time.NewTicker(scaleEvery)
			defer tick.Stop()
			for time.Since(begun) < scaleLength {
				<-tick.C
				stranger := guest{visitor.Visitor{Client: g.Client, Site: g.Site}, g.url}
				stranger.Host = fmt.Sprintf("a-%d.example", i%len(paths))
				stranger.inside()
				asked.Add(1)
			}
		})
	}
	all.Wait()
	passed := time.Since(begun).Seconds()
	t.Logf("%.0f newcomers a second, %s: %.2f %% of a core", float64(asked.Load())/passed, regional.name,
		100*(cpuOf(t, regional)-before).Seconds()/passed)
}

// costOfIdleness prints the use of the processor by idle nodes.
func costOfIdleness(t *testing.T, nodes []*command) {
	t.Helper()
	before, begun := map[*command]time.Duration{}, time.Now()
	for _, p := range nodes {
		before[p] = cpuOf(t, p)
	}
	pause(t.Context(), scaleLength)
	for _, p := range nodes {
		t.Logf("idle, %s: %.2f %% of a core (goal: 1, of an edge 0.5)", p.name,
			100*float64(cpuOf(t, p)-before[p])/float64(time.Since(begun)))
	}
}

// cpuOf returns the CPU time of a process.
func cpuOf(t *testing.T, p *command) time.Duration {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	ticks := 0
	for _, field := range strings.Fields(rest)[11:13] { // in the program and in the kernel
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
