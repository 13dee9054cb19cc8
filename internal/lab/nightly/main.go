// Command nightly runs the commands that show a goal, and those that are too long for a commit, one after the other. It
// keeps the newest result of each with its commit in a file, and ends with a table of all goals.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"vestibule/internal/lab/figures"
	"vestibule/internal/lab/process"
)

// part is a target of make with a bound of its time.
type part struct {
	target string
	limit  time.Duration
	args   []string // variables of make
}

const m = time.Minute

// parts are in the order of running.
var parts = []part{
	{"h2spec", 10 * m, nil},
	{"k8s-check", 30 * m, nil},
	{"first-page", 10 * m, nil},
	{"drain", 10 * m, nil},
	{"draw", 15 * m, nil},
	{"restart", 20 * m, nil},
	{"takeover", 20 * m, nil},
	{"lost", 10 * m, nil},
	{"removal", 10 * m, nil},
	{"closures", 45 * m, nil},
	{"upgrade", 15 * m, nil},
	{"release-twice", 30 * m, nil},
	{"history", 20 * m, nil},
	{"scale", 20 * m, nil},
	{"siege", 35 * m, nil},
	{"machine", 10 * m, nil},
	{"fronts", 25 * m, nil},
	{"crowd", 45 * m, nil},
	{"notify", 50 * m, nil},
	{"lighthouse", 20 * m, nil},
	{"compare", 35 * m, nil},
	{"bench", 60 * m, nil},
	{"figures", 120 * m, nil},
	{"times", 10 * m, nil},
	{"browser-runs", 60 * m, []string{"RUNS=20"}},
	{"nethttp", 15 * m, nil},
	{"worlds", 20 * m, nil},
	{"race", 25 * m, nil},
	{"fuzz", 60 * m, nil},
	{"chaos", 60 * m, []string{"LENGTH=30m"}},
	{"k8s", 60 * m, nil},
	{"changes", 120 * m, nil},
	{"mutants", 180 * m, nil},
	{"sim", 240 * m, []string{"SMALL=100000"}},
}

// result is the newest run of a part.
type result struct {
	Commit  string           `json:"commit"`
	Began   time.Time        `json:"began"`
	Seconds int              `json:"seconds"`
	Ended   string           `json:"ended"` // passed, or why it failed
	Load    string           `json:"load"`  // beside the part
	Figures []figures.Judged `json:"figures"`
}

// passed is how a part ends well.
const passed = "passed"

func main() {
	file := flag.String("results", "", "file of the newest results")
	from := flag.String("from", "", "the first part to run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *file, *from, flag.Args(), os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "nightly:", err)
		os.Exit(1)
	}
}

// chosen returns the named parts, all for none, without those before from.
func chosen(from string, names []string) ([]part, error) {
	index := func(name string) int {
		return slices.IndexFunc(parts, func(p part) bool { return p.target == name })
	}
	out := parts
	if from != "" {
		if index(from) < 0 {
			return nil, fmt.Errorf("there is no part %q: %s", from, known())
		}
		out = parts[index(from):]
	}
	if len(names) == 0 {
		return out, nil
	}
	for _, name := range names {
		if index(name) < 0 {
			return nil, fmt.Errorf("there is no part %q: %s", name, known())
		}
	}
	return slices.DeleteFunc(slices.Clone(out), func(p part) bool { return !slices.Contains(names, p.target) }), nil
}

// known returns the names of all parts.
func known() string {
	var names []string
	for _, p := range parts {
		names = append(names, p.target)
	}
	return strings.Join(names, " ")
}

func run(ctx context.Context, file, from string, names []string, out io.Writer) error {
	these, err := chosen(from, names)
	if err != nil {
		return err
	}
	results, err := read(file)
	if err != nil {
		return err
	}
	failed := 0
	for _, p := range these {
		r := p.run(ctx, filepath.Dir(file), out)
		if ctx.Err() != nil {
			return fmt.Errorf("%s was interrupted: FROM=%s goes on there", p.target, p.target)
		}
		if results[p.target] = r; r.Ended != passed {
			failed++
		}
		if err := write(file, results); err != nil {
			return err
		}
		fmt.Fprintf(out, "== %s: %s after %d s; %s\n", p.target, r.Ended, r.Seconds, r.Load)
	}
	missed, err := table(results, out)
	if err == nil && (failed > 0 || missed > 0) {
		err = fmt.Errorf("%d parts failed, %d goals are missed", failed, missed)
	}
	return err
}

// run runs a part. Its output goes to out and to a file beside the results.
func (p part) run(ctx context.Context, dir string, out io.Writer) result {
	r := result{Began: time.Now().UTC().Truncate(time.Second), Commit: commit(ctx)}
	fmt.Fprintf(out, "== %s, at most %v\n", p.target, p.limit)
	logs := filepath.Join(dir, "nightly")
	shown := filepath.Join(logs, p.target+".figures")
	err := errors.Join(os.MkdirAll(logs, 0o755), os.RemoveAll(shown))
	if err == nil {
		err = p.make(ctx, filepath.Join(logs, p.target+".log"), shown, out)
	}
	var readErr error
	r.Figures, readErr = judged(shown)
	r.Seconds, r.Load, r.Ended = int(time.Since(r.Began).Seconds()), figures.LoadNow().String(), passed
	if err := errors.Join(err, readErr); err != nil {
		r.Ended = "failed: " + strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return r
}

// make calls make for a part, and kills it with what it started when its time is over.
func (p part) make(ctx context.Context, log, shown string, out io.Writer) error {
	f, err := os.Create(log)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.limit, fmt.Errorf("it took longer than %v", p.limit))
	defer cancel()
	cmd := exec.CommandContext(ctx, "make", append([]string{"--no-print-directory", p.target}, p.args...)...)
	cmd.Env = append(os.Environ(), figures.FiguresFile+"="+shown)
	cmd.Stdout = io.MultiWriter(out, f)
	cmd.Stderr, cmd.SysProcAttr = cmd.Stdout, process.Group()
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	err = cmd.Run()
	if ctx.Err() != nil && cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what is left of it
		err = context.Cause(ctx)
	}
	return errors.Join(err, f.Close())
}

// commit describes the commit of the working tree.
func commit(ctx context.Context) string {
	text, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--exclude=*").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(text))
}

// judged reads what a part has judged; nothing if it has no goals.
func judged(file string) (all []figures.Judged, err error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for line := range bytes.Lines(data) {
		var r figures.Judged
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, r)
	}
	return all, err
}

// read reads the newest results by part; none without a file.
func read(file string) (map[string]result, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return map[string]result{}, nil
	}
	results := map[string]result{}
	if err == nil {
		err = json.Unmarshal(data, &results)
	}
	return results, err
}

// write stores the results at once.
func write(file string, results map[string]result) error {
	data, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(file+".new", append(data, '\n'), 0o600), os.Rename(file+".new", file))
}

// table prints each part with its goals, and returns how many goals are missed. A goal without a figure was not run.
func table(results map[string]result, out io.Writer) (missed int, err error) {
	goals, err := figures.Goals()
	if err != nil {
		return 0, err
	}
	count := map[figures.Verdict]int{}
	fmt.Fprintln(out, "\nThe newest result of each part, and of each of its goals:")
	for _, p := range parts {
		r, ran := results[p.target]
		if !ran {
			r.Ended = string(notRun)
		}
		fmt.Fprintf(out, "\n%s: %s", p.target, r.Ended)
		if ran {
			fmt.Fprintf(out, " (%s, %s, %d s)", r.Commit, r.Began.Format(time.DateOnly), r.Seconds)
		}
		fmt.Fprintln(out)
		for i := range goals {
			if goals[i].Command != "make "+p.target {
				continue
			}
			n := 0
			for _, f := range r.Figures {
				if f.Name == goals[i].Name {
					fmt.Fprintf(out, "  %s\n", f.Text)
					count[f.Verdict]++
					n++
				}
			}
			if n == 0 {
				fmt.Fprintf(out, "  %-10s %s (goal: %s)\n", notRun, goals[i].Name, &goals[i])
				count[notRun]++
			}
		}
	}
	fmt.Fprintf(out, "\n%d kept, %d known misses, %d missed, %d not judged, %d not run\n", count[figures.Kept],
		count[figures.KnownMiss], count[figures.Missed], count[figures.NotJudged], count[notRun])
	return count[figures.Missed], nil
}

// notRun is the verdict of a goal without a figure.
const notRun figures.Verdict = "not run"
