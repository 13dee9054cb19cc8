// Command bench runs the benchmarks of docs/FIGURES.md and judges their figures by the goals of docs/figures.json. It
// fails if a goal is missed.
package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"

	"vestibule/internal/lab/figures"
)

// figure is one benchmark.
type figure struct{ name, what string }

//go:embed figures.txt
var table string

// known returns the benchmarks of figures.txt.
func known() (out []figure) {
	for line := range strings.Lines(table) {
		if f := strings.Split(strings.TrimSpace(line), " | "); len(f) == 2 && !strings.HasPrefix(line, "#") {
			out = append(out, figure{f[0], f[1]})
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
	judge := figures.Judge{Out: out}
	var errs []error
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
		what, of := name, ""
		for _, f := range all {
			if rest, ok := strings.CutPrefix(name+"/", f.name+"/"); ok {
				seen[f.name] = true
				what, of = strings.TrimSuffix(f.what+": "+rest, "/"), f.name
				what = strings.TrimSuffix(what, ": ")
			}
		}
		m := metrics(fields[2:])
		fmt.Fprintf(out, "%-72s %s\n", what, m)
		missed, err := m.judge(&judge, of)
		errs = append(errs, err)
		measured = append(measured, figures.Measured{Key: "bench " + name, Seen: m.String(), Missed: missed})
	}
	for _, f := range all {
		if !seen[f.name] {
			errs = append(errs, fmt.Errorf("%s was not measured: go test -v -run '^$' -bench '%s' ./internal/... says why", f.name,
				f.name))
		}
	}
	if err := errors.Join(append(errs, judge.Err())...); err != nil {
		return err
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

// judge judges each value that has a goal, and reports whether one is below it, although a decision may accept that.
func (m metrics) judge(j *figures.Judge, benchmark string) (below bool, err error) {
	for i := 0; i+1 < len(m); i += 2 {
		name := fmt.Sprintf("bench %s, %s", benchmark, m[i+1])
		if _, err := figures.GoalOf(name, ""); err != nil {
			continue // not every value has one
		}
		v, err := strconv.ParseFloat(m[i], 64)
		if err != nil {
			return below, err
		}
		r, err := j.Figure(name, "", v)
		if err != nil {
			return below, err
		}
		below = below || r.Verdict != figures.Kept
	}
	return below, nil
}
