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
	"vestibule/internal/lab/testkit"
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
func TestScale(t *testing.T) {
	if *scaleRooms == 0 {
		t.Skip("`make scale` runs it")
	}
	t.Log(figures.Machine())
	cost := map[int]time.Duration{}
	for _, n := range []int{room.MaxRooms, 1, *scaleRooms} {
		t.Run(fmt.Sprint(n), func(t *testing.T) { cost[n] = scale(t, n) })
	}
	if cost[1] == 0 {
		t.Fatal("the cost beside one room was not measured")
	}
	figures.Check(t, "scale: CPU of a request beside an edge of one room", "", float64(cost[*scaleRooms])/float64(cost[1]))
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
	people, regional := guests(t, edge, paths), nodes[1]
	perRequest = costOfTraffic(t, edge, people)
	storeWrites(t, regional, "idle", func() { costOfIdleness(t, append(nodes, edge)) })
	storeWrites(t, regional, fmt.Sprintf("newcomers in %d rooms", scaleBusy), func() { costOfNewcomers(t, regional, people) })
	if !leased() {
		t.Error("Leases lapsed meanwhile: this machine was too busy, the figures are not those of an idle fleet. Repeat it.")
	}
	return perRequest
}

// guests returns visitors of the first rooms at an edge.
func guests(t *testing.T, edge *command, paths []string) []*guest {
	t.Helper()
	people := make([]*guest, scaleBusy)
	for i := range people {
		people[i] = newGuest(t, edge.at["url"]+paths[i%len(paths)], &http.Transport{})
		people[i].Host = fmt.Sprintf("a-%d.example", i%len(paths))
	}
	return people
}

// askOften lets all people ask every scaleEvery for scaleLength, and returns how many requests that were, and the time.
func askOften(people []*guest, ask func(g *guest)) (asked int64, passed time.Duration) {
	var n atomic.Int64
	var all sync.WaitGroup
	begun := time.Now()
	for _, g := range people {
		all.Go(func() {
			tick := time.NewTicker(scaleEvery)
			defer tick.Stop()
			for time.Since(begun) < scaleLength {
				<-tick.C
				ask(g)
				n.Add(1)
			}
		})
	}
	all.Wait()
	return n.Load(), time.Since(begun)
}

// costOfTraffic lets visitors in, and returns the edge's CPU time for each of their requests.
func costOfTraffic(t *testing.T, edge *command, people []*guest) time.Duration {
	t.Helper()
	for _, g := range people {
		until(t, "somebody is let in", g.inside)
	}
	var outside atomic.Int64
	before := cpuOf(t, edge)
	asked, passed := askOften(people, func(g *guest) {
		if !g.inside() {
			outside.Add(1)
		}
	})
	cost := (cpuOf(t, edge) - before) / time.Duration(asked)
	t.Logf("CPU of the edge, %d people inside who ask: %.1f us per request at %.0f/s", scaleBusy, float64(cost)/1e3,
		float64(asked)/passed.Seconds())
	if n := outside.Load(); n > 0 {
		t.Errorf("%d requests of people inside did not reach the site", n)
	}
	return cost
}

// storeWrites judges how often the regional writes to its store while something happens.
func storeWrites(t *testing.T, regional *command, what string, happens func()) {
	t.Helper()
	const name = "vestibule_regional_promises_stored_total"
	before, begun := gauge(t, regional, name), time.Now()
	happens()
	figures.Check(t, "scale: store writes a second", what,
		float64(gauge(t, regional, name)-before)/time.Since(begun).Seconds())
}

// costOfNewcomers makes every request one of a newcomer, more than the rooms admit, and prints the use of the processor by
// the regional.
func costOfNewcomers(t *testing.T, regional *command, people []*guest) {
	t.Helper()
	before := cpuOf(t, regional)
	asked, passed := askOften(people, func(g *guest) {
		g.Forget()
		g.inside()
	})
	t.Logf("%.0f newcomers a second, %s: %.2f %% of a core", float64(asked)/passed.Seconds(), regional.name,
		100*(cpuOf(t, regional)-before).Seconds()/passed.Seconds())
}

// costOfIdleness judges the use of the processor by idle nodes.
func costOfIdleness(t *testing.T, nodes []*command) {
	t.Helper()
	before, begun := map[*command]time.Duration{}, time.Now()
	for _, p := range nodes {
		before[p] = cpuOf(t, p)
	}
	pause(t.Context(), scaleLength)
	for _, p := range nodes {
		figures.Check(t, "scale: idle CPU of a node", strings.SplitN(p.name, "-", 2)[0],
			100*float64(cpuOf(t, p)-before[p])/float64(time.Since(begun)))
	}
}

// cpuOf returns the CPU time of a process.
func cpuOf(t *testing.T, p *command) time.Duration {
	t.Helper()
	data := testkit.Must(os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID())))(t)
	_, rest, _ := strings.Cut(string(data), ") ")
	ticks := 0
	for _, field := range strings.Fields(rest)[11:13] { // in the program and in the kernel
		ticks += testkit.Must(strconv.Atoi(field))(t)
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
