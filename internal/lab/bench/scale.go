package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/lab/figures"
	"vestibule/internal/lab/process"
	"vestibule/internal/lab/site"
)

// scale starts global, a regional and an edge as separate processes, with the cores of more edges in this one: with the
// maximum of rooms, and then with one room and with some to compare idle nodes and traffic.
func scale(ctx context.Context, out io.Writer, rooms, edges int, watch time.Duration) error {
	fmt.Fprintf(out, "%s; %d rooms, %d edges\n\n", figures.Machine(), rooms, edges)
	dir, err := os.MkdirTemp("", "vestibule-scale-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) // a temporary directory
	if err := process.Build(ctx, dir, "vestibule/cmd/..."); err != nil {
		return err
	}
	begun := time.Now()
	shop, err := site.Open("127.0.0.1", func() time.Duration { return time.Since(begun) })
	if err != nil {
		return err
	}
	defer shop.Close() // the run is over
	var perRequest []time.Duration
	for _, n := range []int{room.MaxRooms, 1, rooms} {
		f, took, err := startFleet(ctx, dir, n, shop.URL())
		if err != nil {
			return err
		}
		row(out, fmt.Sprintf("%d rooms: start of all to an edge that is ready", n), fmt.Sprintf("%.1f s", took.Seconds()),
			"works")
		if n != room.MaxRooms {
			var cost time.Duration
			cost, err = f.measure(ctx, out, n, edges, watch)
			perRequest = append(perRequest, cost)
		}
		f.stop()
		if err != nil {
			return err
		}
	}
	row(out, fmt.Sprintf("%d rooms, %d with traffic, beside one room, CPU per request", rooms, min(busy, rooms)),
		fmt.Sprintf("%.3f", float64(perRequest[1])/float64(perRequest[0])), "<= 1.1")
	return nil
}

// program is a running node.
type program struct {
	*process.Process
	name string
	at   map[string]string // its addresses
}

// nodes are the processes of one fleet.
type nodes struct {
	dir   string // of this fleet
	file  string // its rooms
	order []*program
	edge  *program
	nats  string
	site  string   // of the first busy rooms
	paths []string // of the rooms
}

func (f *nodes) stop() {
	for _, p := range f.order {
		if err := p.End(syscall.SIGKILL, time.Minute); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// writeRooms writes n rooms.
func (f *nodes) writeRooms(n int) error {
	var b strings.Builder
	b.WriteString("rooms:\n")
	for i := range n {
		noise, err := rand.Int(rand.Reader, big.NewInt(1<<40))
		if err != nil {
			return err
		}
		path, site := fmt.Sprintf("/p%x", noise), fmt.Sprintf("http://10.0.%d.%d:8080", i/250, i%250)
		if f.paths = append(f.paths, path); i < busy {
			site = f.site
		}
		fmt.Fprintf(&b, `- name: room-%d
  host: a-%d.example
  path: %s
  total_active_users: 1000
  new_users_per_minute: 600
  session_duration: 5m
  origin: %s
`, i, i, path, site)
	}
	return os.WriteFile(f.file, []byte(b.String()), 0o600)
}

// startFleet starts a new fleet and waits until its edge is ready.
func startFleet(ctx context.Context, bin string, rooms int, site string) (*nodes, time.Duration, error) {
	dir, err := os.MkdirTemp(bin, "fleet-")
	if err != nil {
		return nil, 0, err
	}
	f := &nodes{dir: dir, file: filepath.Join(dir, "rooms.yaml"), site: site}
	if err := f.writeRooms(rooms); err != nil {
		return nil, 0, err
	}
	begun := time.Now()
	start := func(name string, args ...string) (p *program, err error) {
		args = append(args, "--data-dir", filepath.Join(dir, name), "--metrics-listen", "127.0.0.1:0", "--log-level", "warn")
		return f.start(bin, name, args)
	}
	global, err := start("global", "--rooms", f.file, "--data-centers", "dublin", "--nats-embedded", "--nats-listen",
		"127.0.0.1:0", "--bootstrap")
	if err == nil {
		f.nats = global.at["nats"]
		_, err = start("regional", "--data-center", "dublin", "--nats-url", f.nats, "--bootstrap")
	}
	if err == nil {
		f.edge, err = start("edge", "--data-center", "dublin", "--name", "edge-0", "--nats-url", f.nats, "--listen",
			"127.0.0.1:0")
	}
	if err == nil {
		err = until(ctx, "the edge is ready", f.ready)
	}
	if err != nil {
		f.stop()
		return nil, 0, err
	}
	return f, time.Since(begun), nil
}

func (f *nodes) start(bin, name string, args []string) (*program, error) {
	child, err := process.Start(process.Options{
		Name: name, Argv: append([]string{filepath.Join(bin, name)}, args...),
		Stderr: os.Stderr,
	})
	if err != nil {
		return nil, err
	}
	p := &program{Process: child, name: name}
	f.order = append(f.order, p)
	return p, p.Addresses(time.Minute, &p.at)
}

// until polls for at most a minute.
func until(ctx context.Context, what string, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("never: %s", what)
		case <-tick.C:
		}
	}
	return nil
}

// ready reports whether the edge says that it is ready.
func (f *nodes) ready() bool {
	a, err := http.Get(f.edge.at["metrics"] + "/readyz")
	if err != nil {
		return false
	}
	defer a.Body.Close() // the body is not used
	return a.StatusCode == http.StatusOK
}

// measure prints the figures of a fleet, and returns the edge's CPU time per request.
func (f *nodes) measure(ctx context.Context, out io.Writer, rooms, edges int,
	watch time.Duration,
) (perRequest time.Duration, err error) {
	stop, err := others(f.nats, rooms, edges-1)
	if err != nil {
		return 0, err
	}
	defer stop()
	alive := fmt.Sprintf("vestibule_regional_edges{state=\"alive\"} %d\n", edges)
	leased := func() bool {
		text, err := get(f.order[1].at["metrics"] + "/metrics")
		return err == nil && strings.Contains(text, alive) && !strings.Contains(text, `state="dead"`)
	}
	if err := until(ctx, "all edges have a lease", leased); err != nil {
		return 0, err
	}
	select { // first permits, first views
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(10 * time.Second):
	}
	if perRequest, err = f.measureTraffic(ctx, out, rooms, watch); err != nil {
		return 0, err
	}
	if err := f.measureIdleCPU(ctx, out, rooms, edges, watch); err != nil {
		return 0, err
	}
	if !leased() {
		fmt.Fprintln(out,
			"Leases lapsed meanwhile, so this machine was too busy: the figures above are not those of an idle fleet.")
	}
	return perRequest, nil
}

// measureIdleCPU prints the CPU use of every process over watch.
func (f *nodes) measureIdleCPU(ctx context.Context, out io.Writer, rooms, edges int, watch time.Duration) (err error) {
	before := make([]time.Duration, len(f.order))
	for i, p := range f.order {
		if before[i], err = used(p.PID()); err != nil {
			return err
		}
	}
	begun := time.Now()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(watch):
	}
	passed := time.Since(begun)
	for i, p := range f.order {
		after, err := used(p.PID())
		if err != nil {
			return err
		}
		what, goal := fmt.Sprintf("idle CPU of bin/%s, %d rooms x %d edges", p.name, rooms, edges), "<= 1 %"
		switch p.name {
		case "global":
			what += ", with the embedded NATS"
		case "edge":
			what, goal = what+fmt.Sprintf(", %d people inside who do nothing", busy), "<= 0.5 %"
		}
		row(out, what, fmt.Sprintf("%.2f %% of a core", 100*float64(after-before[i])/float64(passed)), goal)
	}
	return nil
}

func get(url string) (string, error) {
	a, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer a.Body.Close() // read completely
	data, err := io.ReadAll(a.Body)
	return string(data), err
}

// used returns the CPU time of a process.
func used(pid int) (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat: %q", pid, data)
	}
	user, err := strconv.Atoi(fields[11])
	if err != nil {
		return 0, err
	}
	system, err := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond, err
}
