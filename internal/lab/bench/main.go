// Command bench runs the benchmarks of docs/FIGURES.md and prints each figure next to its goal. It never fails on a
// figure, which depends on the machine.
package main

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/lab/figures"
	"vestibule/internal/page"
)

// figure is one benchmark and its goal.
type figure struct {
	name string // of the benchmark, without the prefix Benchmark
	what string
	goal string
}

var known = []figure{
	{"DecideAdmitted", "decision of an admitted ticket, cookie in to cookie out", "<= 500 ns/op, <= 0 allocs/op (aim 400 ns)"},
	{"DecideRenewal", "the same, with a renewal", "<= 500 ns/op, <= 0 allocs/op"},
	{"DecideNew", "decision of a new visitor, without rendering", "<= 500 ns/op, <= 0 allocs/op"},
	{"DecideWaiting", "decision of a waiting ticket, without rendering", "<= 500 ns/op, <= 0 allocs/op"},
	{"DecideAdmission", "admission of a new visitor", "<= 500 ns/op, <= 0 allocs/op"},
	{"DecideBesides/alone", "decisions alone by so many procs, waits for the engine's lock (more procs than cores put each other off)", "-"},
	{"DecideBesides/working", "the same with 20 us of other work between two", "lock p50 <= 200 ns at 8 procs"},
	{"DecideBesides/held", "taking the engine's lock, and what is done with it", "-"},
	{"RoomsChange", "one change of 1,000 rooms at an edge, once it is read", "-"},
	{"OpenSeal", "a ticket opened and sealed", "(part of the above)"},
	{"Match", "host and path to room, 1,000 rooms", "<= 300 ns/op, <= 0 allocs/op"},
	{"Match/odd", "the same, of odd spellings: rare and refused or folded", "(none: attackers pay too)"},
	{"Rules/three-terms", "a rule of three terms, a request with cookies", "<= 200 ns/op, <= 0 allocs/op"},
	{"Rules/twenty", "twenty rules on it", "<= 2000 ns/op, <= 0 allocs/op"},
	{"RulesWorst", "the worst rule on the largest request", "<= 50 worst-us"},
	{"ServeAdmitted", "a whole admitted request through the edge", "-"},
	{"Proof/remembered", "what the proof for the site adds to a request, for all but a session's first of some minutes", "<= 1000 ns/op"},
	{"Proof/made", "signing one", "-"},
	{"Proof/request", "a whole admitted request through the edge, with its proof", "-"},
	{"ServeQueued", "a whole waiting page", "-"},
	{"Pages", "waiting pages with a fresh ticket from one core, to newcomers and to who is back, beside nginx and a file of that size", ">= 0.3 of nginx"},
	{"FrontAuth", "questions of fronts about who is inside, read by either front, from one core, beside a 200 by net/http", ">= 0.8 of it"},
	{"Fronts", "nginx and HAProxy, that ask the edge and that do not, with edge and site on one core", "-"},
	{"RenderPage", "rendering the waiting page for one visitor", "<= 5000 ns/op, <= 3 allocs/op"},
	{"Gzip", "the same with gzip, to the bytes on the wire", "0 allocs"},
	{"RenderJSON", "the same as JSON", "-"},
	{"EventStreams/plain", "20,000 event streams, or what the file limit allows, HTTP/1.1", "<= 4 KiB/stream (aim 1), <= 250 ms-last-client, <= 8 us-cpu/message"},
	{"EventStreams/tls", "the same over TLS", "<= 14 KiB/stream"},
	{"FreedSlot/stream", "a free slot to the next visitor inside, 50 slots, 300 in line, two data centres: on the event stream", "<= 2 s-p99"},
	{"FreedSlot/polling", "the same without script", "<= 1.5 refreshes-p99"},
	{"GlobalSync", "global: one sync, 20 data centres x 100 rooms x 120 buckets", "linear in what changed"},
	{"Idle", "1,000 rooms x 50 edges, nobody comes: the cores' share of a core", "<= 1 % each (%edge, %regional, %global)"},
	{"SessionMemory", "regional: memory per session, one million of them", "<= 64 B/session"},
	{"WaitingMemory", "all servers: memory per person who waits, a million against ten thousand", "0 B"},
	{"SyncSize", "report of a data centre to global, a million people waiting", "<= 65536 B/sync"},
	{"EdgesComeAndGo", "1,000 edges come and go in an hour, 100 rooms, sessions of 30 min: largest value stored, longest wait for a lease", "<= 256 KiB-largest, <= 5 s-to-a-lease"},
	{"Takeover", "nobody leads after a leader of three died", "<= 2 s"},
	{"FirstPage", "API: first page of a list of 10,000 rooms", "<= 50000000 ns/op"},
	{"ChangeOverThreeServers", "API: changes of one global over three nats-servers that write to disk first", ">= 50 changes/s"},
	{"ChangeInForce", "a change accepted to in force at every edge, two data centres, 100 ms between", "<= 1000 p50-ms, <= 2000 p99-ms"},
	{"AgeOfNumbers", "let in at an edge to counted in the status of every one of two candidates", "<= 2000 p99-ms"},
	{"World", "simulator", ">= 1,000,000 events/s"},
}

var packages = []string{"./internal/core/admission", "./internal/allinone", "./internal/global/control", "./internal/edge", "./internal/edge/gate", "./internal/global", "./internal/node/natsbus", "./internal/core/room", "./internal/global/roomstore", "./internal/lab/sim", "./internal/core/ledger", "./internal/core/ticket", "./internal/page"}

func main() {
	benchtime := flag.String("benchtime", "1s", "as for go test")
	rooms := flag.Int("scale", 0, "instead: what so many rooms cost the built binaries")
	edges := flag.Int("edges", 50, "with -scale: of the data centre")
	file := flag.String("json", "", "also write the figures to this file, for docs/FIGURES.md")
	watch := flag.Duration("watch", 30*time.Second, "with -scale: for how long idle nodes are watched")
	flag.Parse()
	err := error(nil)
	if *rooms > 0 {
		err = scale(context.Background(), os.Stdout, *rooms, *edges, *watch)
	} else {
		err = run(context.Background(), os.Stdout, *benchtime, *file)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, benchtime, file string) error {
	fmt.Fprintf(out, "%s, %s\n\n", figures.Machine(), runtime.Version())
	args := append([]string{"test", "-run", "^$", "-bench", ".", "-benchmem", "-benchtime", benchtime}, packages...)
	cmd := exec.CommandContext(ctx, "go", args...)
	var stdout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, stdout.String())
	}
	lines := bufio.NewScanner(&stdout)
	seen := map[string]bool{}
	var measured []figures.Measured
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, "Benchmark") {
			continue
		}
		fields := strings.Fields(line)
		name := strings.TrimPrefix(fields[0], "Benchmark")
		if i := strings.LastIndexByte(name, '-'); i > 0 {
			name = name[:i] // the number of cores
		}
		what, goal := name, "-"
		for _, f := range known { // the longest matching name is last
			if rest, ok := strings.CutPrefix(name+"/", f.name+"/"); ok {
				seen[f.name] = true
				what, goal = strings.TrimSuffix(f.what+": "+rest, "/"), f.goal
				what = strings.TrimSuffix(what, ": ")
			}
		}
		m := metrics(fields[2:])
		measured = append(measured, figures.Measured{Key: "bench " + name, Seen: m.String(), Missed: m.misses(goal)})
		fmt.Fprintf(out, "%-72s %s\n%-72s goal: %s\n", what, m, "", goal)
	}
	for _, f := range known {
		if !seen[f.name] {
			fmt.Fprintf(out, "%-72s not measured: go test -v -run '^$' -bench '%s' ./internal/... says why\n%-72s goal: %s\n", f.what, f.name, "", f.goal)
		}
	}
	if file != "" {
		if err := figures.Write(file, measured); err != nil {
			return err
		}
	}
	weigh(out)
	return size(ctx, out)
}

// metrics are the values of a benchmark, each followed by its unit.
type metrics []string

func (m metrics) String() string {
	var out []string
	for i := 0; i+1 < len(m); i += 2 {
		out = append(out, m[i]+" "+m[i+1])
	}
	return strings.Join(out, ", ")
}

// goalForm is a goal that the program understands: bounds with the units of the benchmark, such as "<= 500 ns/op".
var goalForm = regexp.MustCompile(`([<>])= ([0-9.,]+) (\S+)`)

// misses reports whether a value is out of a bound of the goal.
func (m metrics) misses(goal string) bool {
	for _, g := range goalForm.FindAllStringSubmatch(goal, -1) {
		bound, err := strconv.ParseFloat(strings.ReplaceAll(strings.TrimSuffix(g[2], ","), ",", ""), 64)
		for i := 0; i+1 < len(m) && err == nil; i += 2 {
			v, err := strconv.ParseFloat(m[i], 64)
			if err == nil && m[i+1] == strings.TrimSuffix(g[3], ",") && (g[1] == "<" && v > bound || g[1] == ">" && v < bound) {
				return true
			}
		}
	}
	return false
}

// weigh prints the size of the waiting page in its heaviest language.
func weigh(out io.Writer) {
	plain, zipped := 0, 0
	var packer page.Packer
	for lang := range room.Languages {
		for _, s := range page.Samples {
			s.Lang = page.Lang(lang)
			built := page.Builtin().Render(nil, &s.Visitor)
			plain, zipped = max(plain, len(built)), max(zipped, len(page.Builtin().RenderGzip(nil, &s.Visitor, &packer)))
		}
	}
	fmt.Fprintf(out, "%-72s %.1f KB, %.1f KB gzip\n%-72s goal: <= 30 KB, <= 10 KB gzip\n", "built-in waiting page, all in, heaviest of all languages", float64(plain)/1e3, float64(zipped)/1e3, "")
}

// size builds the edge as deployed and prints its size.
func size(ctx context.Context, out io.Writer) error {
	dir, err := os.MkdirTemp("", "vestibule-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) // a temporary directory
	file := filepath.Join(dir, "edge")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", file, "./cmd/edge")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build the edge: %w", err)
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%-72s %.2f MB\n%-72s goal: <= 15 MB\n", "bin/edge, stripped", float64(info.Size())/1e6, "")
	return nil
}
