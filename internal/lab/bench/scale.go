package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	mrand "math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	"vestibule/internal/lab/figures"
	"vestibule/internal/lab/process"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
)

// scale starts bin/global, bin/regional and bin/edge as separate processes, with the cores of 49 more edges in this
// one. It measures the cost of many rooms without visitors, and of traffic in some of them.
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
	for _, many := range []int{room.MaxRooms, rooms} {
		f, took, err := startFleet(ctx, dir, many, "")
		if err != nil {
			return err
		}
		row(out, fmt.Sprintf("%d rooms: start of all to an edge that is ready", many), fmt.Sprintf("%.1f s", took.Seconds()), "works")
		if many == rooms {
			err = f.measure(ctx, out, rooms, edges, watch)
		}
		f.stop()
		if err != nil {
			return err
		}
	}
	return traffic(ctx, out, dir, rooms, edges, watch)
}

func row(out io.Writer, what, got, goal string) {
	fmt.Fprintf(out, "%-72s %s\n%-72s goal: %s\n", what, got, "", goal)
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
	site  string   // of the first busy rooms; empty to have none
	paths []string // of the rooms
}

func (f *nodes) stop() {
	for _, p := range f.order {
		if err := p.End(syscall.SIGKILL, time.Minute); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// writeRooms writes n rooms with the hosts of a generation.
func (f *nodes) writeRooms(n int, generation string) error {
	var b strings.Builder
	b.WriteString("rooms:\n")
	f.paths = f.paths[:0]
	for i := range n {
		noise, err := rand.Int(rand.Reader, big.NewInt(1<<40))
		if err != nil {
			return err
		}
		path, site := fmt.Sprintf("/p%x", noise), fmt.Sprintf("http://10.0.%d.%d:8080", i/250, i%250)
		if f.paths = append(f.paths, path); f.site != "" && i < busy {
			site = f.site
		}
		fmt.Fprintf(&b, "- name: room-%d\n  host: %s-%d.example\n  path: %s\n  total_active_users: 1000\n  new_users_per_minute: 600\n  session_duration: 5m\n  origin: %s\n", i, generation, i, path, site)
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
	if err := f.writeRooms(rooms, "a"); err != nil {
		return nil, 0, err
	}
	begun := time.Now()
	common := func(name string) []string {
		return []string{"--data-dir", filepath.Join(dir, name), "--metrics-listen", "127.0.0.1:0", "--log-level", "warn"}
	}
	for _, start := range []func() error{
		func() error {
			p, err := f.start(bin, "global", append(common("global"), "--rooms", f.file, "--data-centers", "dublin", "--nats-embedded", "--nats-listen", "127.0.0.1:0", "--bootstrap"))
			if err == nil {
				f.nats = p.at["nats"]
			}
			return err
		},
		func() error {
			_, err := f.start(bin, "regional", append(common("regional"), "--data-center", "dublin", "--nats-url", f.nats, "--bootstrap"))
			return err
		},
		func() (err error) {
			f.edge, err = f.start(bin, "edge", append(common("edge"), "--data-center", "dublin", "--name", "edge-0", "--nats-url", f.nats, "--listen", "127.0.0.1:0"))
			return err
		},
		func() error {
			return until(ctx, "the edge is ready", func() bool { return answers(f.edge.at["metrics"]+"/readyz", "") == http.StatusOK })
		},
	} {
		if err := start(); err != nil {
			f.stop()
			return nil, 0, err
		}
	}
	return f, time.Since(begun), nil
}

func (f *nodes) start(bin, name string, args []string) (*program, error) {
	child, err := process.Start(process.Options{Name: name, Argv: append([]string{filepath.Join(bin, name)}, args...), Stderr: os.Stderr})
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

// answers returns the status of a response, 0 for none.
func answers(url, host string) int {
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 0
	}
	r.Host = host
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0
	}
	defer a.Body.Close() // the body is not used
	return a.StatusCode
}

// knows reports whether the edge decides requests for a host.
func (f *nodes) knows(host string) bool {
	code := answers(f.edge.at["url"]+"/nowhere", host)
	return code != 0 && code != http.StatusMisdirectedRequest
}

func (f *nodes) measure(ctx context.Context, out io.Writer, rooms, edges int, watch time.Duration) error {
	stop, err := others(f.nats, rooms, edges-1)
	if err != nil {
		return err
	}
	defer stop()
	leased := func() bool {
		text, _, err := get(f.order[1].at["metrics"] + "/metrics")
		return err == nil && strings.Contains(text, fmt.Sprintf("vestibule_regional_edges{state=\"alive\"} %d\n", edges)) && !strings.Contains(text, `state="dead"`)
	}
	if err := until(ctx, "all edges have a lease", leased); err != nil {
		return err
	}
	select { // first permits, first views
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(10 * time.Second):
	}
	if err := f.measureIdleCPU(ctx, out, rooms, edges, watch); err != nil {
		return err
	}
	if err := f.measureScrapes(out, rooms); err != nil {
		return err
	}
	if !leased() {
		fmt.Fprintln(out, "Leases lapsed meanwhile, so this machine was too busy: the figures above are not those of an idle fleet.")
	}
	return f.measureChanges(ctx, out, rooms)
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
		what := fmt.Sprintf("idle CPU of bin/%s, %d rooms x %d edges", p.name, rooms, edges)
		if p.name == "global" {
			what += ", with the embedded NATS"
		}
		row(out, what, fmt.Sprintf("%.2f %% of a core", 100*float64(after-before[i])/float64(passed)), "<= 1 %")
	}
	return nil
}

// measureScrapes prints the size and the time of a scrape of every process.
func (f *nodes) measureScrapes(out io.Writer, rooms int) error {
	for _, p := range f.order {
		size, took, err := scrape(p.at["metrics"] + "/metrics")
		if err != nil {
			return err
		}
		row(out, fmt.Sprintf("scrape of bin/%s, %d idle rooms", p.name, rooms), fmt.Sprintf("%.1f KB, %.1f ms", float64(size)/1e3, took.Seconds()*1e3), "<= 500 KB, <= 50 ms")
	}
	return nil
}

// roomsVersion returns the version of the rooms that a process follows, "" if it does not answer.
func (p *program) roomsVersion() string {
	text, _, err := get(p.at["metrics"] + "/metrics")
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(text, `vestibule_document_version{document="rooms"} `)
	value, _, _ := strings.Cut(rest, "\n")
	return value
}

// measureChanges prints the time from a change of the rooms file until every process follows it.
func (f *nodes) measureChanges(ctx context.Context, out io.Writer, rooms int) error {
	for _, change := range []struct {
		what, know, miss string
		rooms            int
		generation       string
	}{
		{"changed", "b-0.example", "a-0.example", rooms, "b"},
		{"less nine of ten", "c-0.example", fmt.Sprintf("b-%d.example", rooms-1), rooms / 10, "c"},
		{"again", fmt.Sprintf("d-%d.example", rooms-1), "c-0.example", rooms, "d"},
	} {
		old := make([]string, len(f.order))
		for i, p := range f.order {
			old[i] = p.roomsVersion()
		}
		if err := f.writeRooms(change.rooms, change.generation); err != nil {
			return err
		}
		begun := time.Now()
		if err := until(ctx, "every node follows", func() bool {
			if !f.knows(change.know) || f.knows(change.miss) {
				return false
			}
			for i, p := range f.order[:2] {
				if p.roomsVersion() == old[i] {
					return false
				}
			}
			return true
		}); err != nil {
			return err
		}
		row(out, fmt.Sprintf("%d rooms, %s: to every node", rooms, change.what), fmt.Sprintf("%.2f s", time.Since(begun).Seconds()), "<= 2 s")
	}
	return nil
}

// scrape returns the size of a node's metrics, and the best time of five.
func scrape(url string) (size int, best time.Duration, err error) {
	best = time.Hour
	for range 5 {
		text, took, err := get(url)
		if err != nil {
			return 0, 0, err
		}
		size, best = len(text), min(best, took)
	}
	return size, best, nil
}

func get(url string) (string, time.Duration, error) {
	begun := time.Now()
	a, err := http.Get(url)
	if err != nil {
		return "", 0, err
	}
	defer a.Body.Close() // read completely
	data, err := io.ReadAll(a.Body)
	return string(data), time.Since(begun), err
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

// others runs the cores of idle edges in this process.
func others(url string, rooms, n int) (stop func(), err error) {
	conn, err := natsbus.Connect(natsbus.Options{Name: "others", URL: url, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	var doors []admission.Room
	for i := range rooms {
		doors = append(doors, admission.Room{ID: room.IDOf(fmt.Sprint("room-", i)), Session: 5 * time.Minute})
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	stop = func() {
		cancel()
		running.Wait()
		conn.Close()
	}
	clock := node.NewClock()
	for i := range n {
		name := fmt.Sprint("other-", i)
		eng := admission.New(admission.Config{Edge: name, DC: "dublin", Params: wire.DefaultParams(), Limits: admission.DefaultLimits(), Rand: mrand.New(mrand.NewPCG(mrand.Uint64(), uint64(i)))})
		eng.SetRooms(clock.Now(), doors)
		inbox := make(chan *wire.Grant, 64)
		end, err := conn.Subscribe(wire.GrantSubject("dublin", name), func(_ string, data []byte) {
			if g, err := wire.DecodeGrant(data); err == nil {
				select {
				case inbox <- g:
				default: // the next one has the same content
				}
			}
		})
		if err != nil {
			stop()
			return nil, err
		}
		running.Go(func() {
			defer end()
			runEdge(ctx, conn, name, eng, clock, inbox)
		})
	}
	return stop, nil
}

func runEdge(ctx context.Context, conn *natsbus.Conn, name string, eng *admission.Engine, clock *node.Clock, inbox <-chan *wire.Grant) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case g := <-inbox:
			eng.Apply(clock.Now(), *g)
		case <-timer.C:
		}
		now := clock.Now()
		if eng.Due() <= now {
			for _, m := range eng.Report(now) {
				data, err := wire.EncodeReport(&m)
				if err == nil {
					err = conn.Publish(wire.ReportSubject("dublin", name), data)
				}
				if err != nil && ctx.Err() == nil {
					fmt.Fprintln(os.Stderr, name, err)
				}
			}
		}
		timer.Reset(max(time.Millisecond, eng.Due().Sub(now)))
	}
}
