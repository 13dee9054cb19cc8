// Command bench runs the benchmarks of docs/FIGURES.md and prints each figure next to its goal. It never fails on a
// figure, which depends on the machine.
package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"vestibule/internal/lab/figures"
)

// figure is one benchmark and its goal.
type figure struct{ name, what, goal string }

//go:embed figures.txt
var table string

// known returns the benchmarks of figures.txt.
func known() (out []figure) {
	for line := range strings.Lines(table) {
		if f := strings.Split(strings.TrimSpace(line), " | "); len(f) == 3 && !strings.HasPrefix(line, "#") {
			out = append(out, figure{f[0], f[1], f[2]})
		}
	}
	return out
}

// packages have benchmarks of figures.
var packages = []string{
	"allinone", "core/admission", "core/ledger", "core/room", "core/ticket", "edge", "edge/gate", "global",
	"global/console",
	"global/control", "global/roomstore", "lab/bench", "lab/sim", "node/natsbus", "page",
}

func main() {
	benchtime := flag.String("benchtime", "1s", "as for go test")
	file := flag.String("json", "", "also write the figures to this file, for docs/FIGURES.md")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, *benchtime, *file); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, benchtime, file string) error {
	fmt.Fprintf(out, "%s, %s\n\n", figures.Machine(), runtime.Version())
	args := []string{"test", "-run", "^$", "-bench", ".", "-benchmem", "-benchtime", benchtime}
	for _, p := range packages {
		args = append(args, "./internal/"+p)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	var stdout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, stdout.String())
	}
	lines := bufio.NewScanner(&stdout)
	all, seen := known(), map[string]bool{}
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
		for _, f := range all {
			if rest, ok := strings.CutPrefix(name+"/", f.name+"/"); ok {
				seen[f.name] = true
				what, goal = strings.TrimSuffix(f.what+": "+rest, "/"), f.goal
				what = strings.TrimSuffix(what, ": ")
			}
		}
		m := metrics(fields[2:])
		measured = append(measured, figures.Measured{Key: "bench " + name, Seen: m.String(), Missed: m.misses(goal)})
		row(out, what, m.String(), goal)
	}
	for _, f := range all {
		if !seen[f.name] {
			row(out, f.what, fmt.Sprintf("not measured: go test -v -run '^$' -bench '%s' ./internal/... says why", f.name),
				f.goal)
		}
	}
	if file == "" {
		return nil
	}
	return figures.Write(file, measured)
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

// bounds are the parts of a goal with a unit of the benchmark, such as "<= 500 ns/op". Others are for people.
var bounds = regexp.MustCompile(`([<>])= ([0-9.,]+) ([^ ,]+)`)

// misses reports whether a value is out of a bound of the goal.
func (m metrics) misses(goal string) bool {
	for _, b := range bounds.FindAllStringSubmatch(goal, -1) {
		bound, err := strconv.ParseFloat(strings.ReplaceAll(b[2], ",", ""), 64)
		for i := 0; i+1 < len(m) && err == nil; i += 2 {
			v, err := strconv.ParseFloat(m[i], 64)
			if err == nil && m[i+1] == b[3] && (b[1] == "<" && v > bound || b[1] == ">" && v < bound) {
				return true
			}
		}
	}
	return false
}

// row prints a figure next to its goal.
func row(out io.Writer, what, got, goal string) {
	fmt.Fprintf(out, "%-72s %s\n%-72s goal: %s\n", what, got, "", goal)
}
