// Command gate removes the rules of the hard limit one by one, and requires that tests detect each removal: a named
// test, and for most of them a simulated world with a broken promise (see package mutant and decision 17). It
// prints the detection of each mutant and fails if one survives, or if a test fails with all rules in force. Build
// it with the tag mutants, with the files of command overlay (make mutants does both):
//
//	go run ./internal/lab/mutant/overlay -out .tools/mutants
//	go run -tags mutants -overlay .tools/mutants/overlay.json ./internal/lab/mutant/gate
//	... -mutant nothing-reserved -target expiry -seed 3
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"vestibule/internal/lab/mutant"
	"vestibule/internal/lab/sim"
)

func main() {
	g := gate{out: os.Stdout, proof: map[string]int{}}
	flag.StringVar(&g.only, "mutant", "", "one mutant, by its name; none for all rules in force")
	flag.StringVar(&g.overlay, "overlay", ".tools/mutants/overlay.json",
		"overlay that the tests are built with, the same as this program's")
	flag.IntVar(&g.seeds, "seeds", 64, "seeds of every target, from 1")
	target := flag.String("target", "", "with -mutant: play one world of this target and tell what happens in it")
	seed := flag.Uint64("seed", 1, "with -target: which")
	flag.Parse()
	debug.SetGCPercent(400) // worlds are small and short-lived
	err := errors.New("built without the tag mutants: use make mutants")
	switch {
	case !mutant.Built:
	case *target != "":
		err = g.replay(*target, *seed)
	default:
		err = g.run(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

type gate struct {
	out   io.Writer
	only  string
	seeds int
	dir   string // of the test binaries

	overlay string
	folders map[string]string // folders of packages by name

	proof map[string]int // by target: the last seed that killed a mutant
}

// replay runs one world and prints its fault.
func (g *gate) replay(target string, seed uint64) error {
	if g.only != "none" {
		mutant.Set(g.only)
	}
	h, err := find(target)
	if err != nil {
		return err
	}
	w := sim.New(h.Draw(seed))
	w.Trace(func(format string, args ...any) { fmt.Fprintf(g.out, format, args...) })
	fmt.Fprintln(g.out, w.Run().Table())
	return nil
}

func find(name string) (sim.Target, error) {
	i := slices.IndexFunc(sim.Targets, func(h sim.Target) bool { return h.Name == name })
	if i < 0 {
		return sim.Target{}, fmt.Errorf("no target is called %q", name)
	}
	return sim.Targets[i], nil
}

func (g *gate) run(ctx context.Context) (err error) {
	if g.dir, err = os.MkdirTemp("", "vestibule-mutants-"); err != nil {
		return err
	}
	defer os.RemoveAll(g.dir) // a temporary directory
	start := time.Now()
	tests := map[string][]string{}
	for _, m := range mutant.All() {
		for _, t := range m.Tests {
			pkg, test, _ := strings.Cut(t, ".")
			tests[pkg] = append(tests[pkg], test)
		}
	}
	if g.folders, err = folders(ctx); err != nil {
		return err
	}
	build := []string{
		"test", "-c", "-tags", "mutants", "-overlay", g.overlay, "-ldflags", "-s -w", "-o",
		g.dir + string(filepath.Separator),
	}
	for _, pkg := range slices.Sorted(maps.Keys(tests)) {
		build = append(build, g.folders[pkg])
	}
	cmd := exec.CommandContext(ctx, "go", build...)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build the tests: %w", err)
	}
	var faults []error
	if g.only == "" || g.only == "none" {
		faults = g.cleanTests(ctx, tests)
	}
	var all []mutant.Mutant
	for _, m := range mutant.All() {
		if g.only == "" || g.only == m.Name {
			all = append(all, m)
		}
	}
	// Tests are separate processes, one per core at a time. Worlds run in this process, which can have one mutant
	// at a time.
	verdicts := g.runTests(ctx, all)
	killed := 0
	fmt.Fprintf(g.out, "%-24s %-4s  %-70s %s\n", "mutant", "rule", "test", "worlds")
	for i, m := range all {
		if err := g.kill(m, verdicts[i]); err != nil {
			faults = append(faults, err)
			continue
		}
		killed++
	}
	if g.only == "" || g.only == "none" {
		faults = append(faults, g.cleanWorlds()...)
	}
	fmt.Fprintf(g.out, "%d mutants killed in %v, %d seeds of %v in each world\n", killed,
		time.Since(start).Round(time.Second), g.seeds, 8*time.Minute)
	return errors.Join(faults...)
}

// folders returns the folders of all packages by name.
func folders(ctx context.Context) (map[string]string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Name}} {{.Dir}}", "./internal/...").Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages: %w", err)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		all[name] = dir
	}
	return all, nil
}

// verdict is the result of a mutant's tests.
type verdict struct {
	failed   []string // failed tests by package
	survived bool     // some tests passed
	err      error
}

// runTests runs the tests of all mutants.
func (g *gate) runTests(ctx context.Context, all []mutant.Mutant) []verdict {
	out := make([]verdict, len(all))
	parallel(len(all), func(i int) {
		v := &out[i]
		for _, t := range all[i].Tests {
			pkg, test, _ := strings.Cut(t, ".")
			failed, err := g.test(ctx, all[i].Name, pkg, test)
			if err != nil {
				v.err = fmt.Errorf("%s: %w", all[i].Name, err)
				return
			}
			v.survived = v.survived || failed == ""
			v.failed = append(v.failed, pkg+"."+failed)
		}
	})
	return out
}

// parallel calls f with every number below n, with one call per core at a time.
func parallel(n int, f func(i int)) {
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), n) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	workers.Wait()
}

// cleanTests requires that every test passes with all rules in force.
func (g *gate) cleanTests(ctx context.Context, tests map[string][]string) []error {
	packages := slices.Sorted(maps.Keys(tests))
	found := make([]error, len(packages))
	parallel(len(packages), func(i int) {
		pkg := packages[i]
		failed, err := g.test(ctx, "", pkg, strings.Join(slices.Compact(slices.Sorted(slices.Values(tests[pkg]))), "|"))
		if err == nil && failed != "" {
			err = fmt.Errorf("%s of %s fails with all rules in force", failed, pkg)
		}
		found[i] = err
	})
	return found
}

// cleanWorlds requires the same of the worlds that killed mutants, or of all if nothing else was requested.
func (g *gate) cleanWorlds() (faults []error) {
	for _, h := range sim.Targets {
		seeds := g.seeds
		if g.only == "" {
			seeds = g.proof[h.Name]
		}
		kills := g.target(h, seeds, true)
		for _, k := range kills {
			faults = append(faults, fmt.Errorf("%s breaks a promise with all rules in force: seed %d: %s", h.Name, k.seed,
				k.fault))
		}
		fmt.Fprintf(g.out, "%-24s %-4s  %-70s %s: %d of %d seeds broken\n", "none", "-", "-", h.Name, len(kills), seeds)
	}
	return faults
}

// kill requires that its tests and its worlds detect m; v is the result of the tests.
func (g *gate) kill(m mutant.Mutant, v verdict) error {
	if v.err != nil {
		return v.err
	}
	if v.survived {
		return fmt.Errorf("%s survives: %s, and of %s only these noticed: %v", m.Name, m.Says, m.Tests, v.failed)
	}
	worlds := ""
	if m.Target != "" {
		h, err := find(m.Target)
		if err != nil {
			return err
		}
		mutant.Set(m.Name)
		defer mutant.Set("")
		kills := g.target(h, g.seeds, false)
		if len(kills) == 0 {
			return fmt.Errorf("%s survives: %s, and %s does not notice", m.Name, m.Says, m.Target)
		}
		worlds = fmt.Sprintf("%s seed %d: %s", h.Name, kills[0].seed, kills[0].fault)
		g.proof[h.Name] = max(g.proof[h.Name], kills[0].seed)
	}
	fmt.Fprintf(g.out, "%-24s %-4d  %-70s %s\n", m.Name, m.Rule, strings.Join(v.failed, " "), worlds)
	return nil
}

var failure = regexp.MustCompile(`--- FAIL: (\S+)`)

// test runs tests of a package against a mutant, "" for none, and returns the last failed one, the most specific, or "".
func (g *gate) test(ctx context.Context, m, pkg, pattern string) (failed string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(g.dir, pkg+".test"), "-test.run", "^("+pattern+")", "-test.failfast")
	cmd.Dir = g.folders[pkg]
	cmd.Env = append(os.Environ(), mutant.Variable+"="+m)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	if bytes.Contains(out.Bytes(), []byte("no tests to run")) {
		return "", fmt.Errorf("%s has no test %s", pkg, pattern)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return "", err
	}
	all := failure.FindAllSubmatch(out.Bytes(), -1)
	if err != nil && len(all) == 0 {
		return "", fmt.Errorf("%s of %s: %w\n%s", pattern, pkg, err, out.Bytes())
	}
	for _, f := range all {
		if name := string(f[1]); len(name) > len(failed) {
			failed = name
		}
	}
	return failed, nil
}

// noted is a world with a broken promise.
type noted struct {
	seed  int
	fault string
}

// target runs worlds of h in parallel, from seed 1, and returns those with a broken promise. Without all it stops
// at the first.
func (g *gate) target(h sim.Target, seeds int, all bool) []noted {
	found := make([]noted, seeds)
	var stop atomic.Bool
	parallel(seeds, func(i int) {
		if stop.Load() {
			return
		}
		if fault := play(h, uint64(i+1)); fault != "" {
			found[i] = noted{i + 1, fault}
			stop.Store(!all)
		}
	})
	return slices.DeleteFunc(found, func(n noted) bool { return n.fault == "" })
}

// play runs one world and returns the broken promise. A panic of a node counts too.
func play(h sim.Target, seed uint64) (fault string) {
	defer func() {
		if p := recover(); p != nil {
			fault = fmt.Sprintf("panic: %v", p)
		}
	}()
	return sim.New(h.Draw(seed)).Run().Fault
}
