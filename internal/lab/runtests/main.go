// Command runtests runs `go test` with its arguments, prints what failed, and keeps the time of each test in a file. A
// skipped test is a failure, unless its reason names the command that runs it.
// Goals of real time are not judged.
// With -slowest it prints the slowest tests of such files.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"vestibule/internal/lab/figures"
)

func main() {
	times := flag.String("times", "", "file for the time of each test")
	all := flag.Bool("print", false, "print the output of tests that pass as well")
	slowest := flag.Int("slowest", 0, "print so many of the slowest tests of the files that the arguments name")
	flag.Parse()
	var err error
	if *slowest > 0 {
		err = printSlowest(os.Stdout, *slowest, flag.Args())
	} else {
		err = run(*times, *all, flag.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "runtests:", err)
		os.Exit(1)
	}
}

// run runs `go test -json` with args.
func run(times string, all bool, args []string) error {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr, cmd.Env = os.Stderr, append(os.Environ(), figures.Crowded+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	o := outcome{all: all, out: os.Stdout, output: map[string][]string{}}
	readErr := o.read(out)
	err = errors.Join(readErr, cmd.Wait())
	if times != "" {
		err = errors.Join(err, os.WriteFile(times, o.times.Bytes(), 0o644))
	}
	if err == nil && o.times.Len() == 0 {
		err = errors.New("no test ran")
	}
	if err == nil && len(o.skipped) > 0 {
		err = fmt.Errorf("tests were skipped, which is a failure: %s", strings.Join(o.skipped, ", "))
	}
	return err
}

// elsewhere is in the reason of a test that another command runs: "`make siege` runs it".
var elsewhere = regexp.MustCompile("`make [a-z0-9-]+` runs it")

// event is a line of `go test -json`.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64 // seconds
}

// outcome collects what a run of `go test -json` tells.
type outcome struct {
	all    bool
	out    io.Writer
	output map[string][]string // of tests and packages that have not ended
	times  bytes.Buffer        // lines of seconds, package and test

	skipped []string // tests that no other command runs
}

func (o *outcome) read(r io.Reader) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				fmt.Fprintf(o.out, "%s", line) // of the go command
			} else {
				o.take(e)
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

func (o *outcome) take(e event) {
	key := e.Package + e.ImportPath + " " + e.Test
	switch e.Action {
	case "output", "build-output":
		switch {
		case o.all:
			fmt.Fprint(o.out, e.Output)
		case e.Test == "" && (strings.HasPrefix(e.Output, "ok  \t") || strings.HasPrefix(e.Output, "FAIL\t")):
			fmt.Fprint(o.out, e.Output)
		default:
			o.output[key] = append(o.output[key], e.Output)
		}
	case "fail", "build-fail":
		for _, line := range o.output[key] {
			fmt.Fprint(o.out, line)
		}
		delete(o.output, key)
	case "skip":
		if text := strings.Join(o.output[key], ""); e.Test != "" && !elsewhere.MatchString(text) {
			o.skipped = append(o.skipped, e.Package+" "+e.Test)
			fmt.Fprint(o.out, text)
		}
		delete(o.output, key)
	case "pass":
		delete(o.output, key)
	}
	if ended := e.Action == "pass" || e.Action == "fail"; ended && e.Test != "" && !strings.Contains(e.Test, "/") {
		fmt.Fprintf(&o.times, "%.2f %s %s\n", e.Elapsed, e.Package, e.Test)
	}
}

// printSlowest prints the n slowest tests of files that run has written.
func printSlowest(out io.Writer, n int, files []string) error {
	type test struct {
		seconds   float64
		pkg, name string
	}
	var tests []test
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(data)) {
			var t test
			if _, err := fmt.Sscan(line, &t.seconds, &t.pkg, &t.name); err != nil {
				return fmt.Errorf("%s: %q: %w", f, line, err)
			}
			tests = append(tests, t)
		}
	}
	slices.SortFunc(tests, func(a, b test) int { return cmp.Compare(b.seconds, a.seconds) })
	for _, t := range tests[:min(n, len(tests))] {
		fmt.Fprintf(out, "%7.1f s  %s %s\n", t.seconds, t.pkg, t.name)
	}
	return nil
}
