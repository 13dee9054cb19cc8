//go:build mutants

package gate

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
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
	"testing"
	"time"

	"vestibule/internal/lab/mutant"
	"vestibule/internal/lab/sim"
)

// The rules of the hard limit are removed one by one. Tests must detect each removal: a named test, and for most of
// them a simulated world with a broken promise (see package mutant and decision 17). `make mutants` runs all of it.
//
//	go run ./internal/lab/mutant/overlay -out .tools/mutants
//	go test -tags mutants -overlay .tools/mutants/overlay.json -v ./internal/lab/mutant/gate -run '/no-permit$'
//	VESTIBULE_MUTANT=no-permit go test ... -run TestReplay -args -target expiry -seed 3
var (
	overlay = flag.String("tests-overlay", ".tools/mutants/overlay.json", "overlay that the tests are built with")
	seeds   = flag.Int("seeds", 256, "seeds of every target, from 1")
	replay  = flag.String("target", "", "target of TestReplay")
	seed    = flag.Uint64("seed", 1, "its seed")
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // worlds are small and short-lived
	os.Exit(m.Run())
}

// TestReplay runs one world and prints its fault.
func TestReplay(t *testing.T) {
	if *replay == "" {
		t.Skip("it needs -target")
	}
	w := sim.New(find(t, *replay).Draw(*seed))
	w.Trace(func(format string, args ...any) { fmt.Printf(format, args...) })
	t.Log(w.Run().Table())
}

func find(t *testing.T, name string) sim.Target {
	i := slices.IndexFunc(sim.Targets, func(h sim.Target) bool { return h.Name == name })
	if i < 0 {
		t.Fatalf("no target is called %q", name)
	}
	return sim.Targets[i]
}

// Each mutant fails its named tests, which pass with all rules in force.
func TestTests(t *testing.T) {
	t.Chdir("../../../..")
	b := build(t)
	for pkg, tests := range b.tests {
		t.Run("none "+pkg, func(t *testing.T) {
			t.Parallel()
			if failed := b.run(t, "", pkg, strings.Join(tests, "|")); failed != "" {
				t.Errorf("%s fails with all rules in force", failed)
			}
		})
	}
	for _, m := range mutant.All() {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			for _, name := range m.Tests {
				pkg, test, _ := strings.Cut(name, ".")
				failed := b.run(t, m.Name, pkg, test)
				if failed == "" {
					t.Errorf("it survives %s: %s", name, m.Says)
				}
				t.Logf("rule %d: %s.%s", m.Rule, pkg, failed)
			}
		})
	}
}

// Each mutant with a target breaks a promise in one of its worlds. None of the worlds up to that one does with all
// rules in force; without a mutant, none of all.
func TestWorlds(t *testing.T) {
	proof := map[string]int{} // by target: the last seed that was needed
	for _, m := range mutant.All() {
		if m.Target == "" {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			mutant.Set(m.Name)
			defer mutant.Set("")
			kills := play(find(t, m.Target), *seeds, false)
			if len(kills) == 0 {
				t.Fatalf("%s does not notice: %s", m.Target, m.Says)
			}
			proof[m.Target] = max(proof[m.Target], kills[0].seed)
			t.Logf("rule %d: %s seed %d: %s", m.Rule, m.Target, kills[0].seed, kills[0].fault)
		})
	}
	t.Run("none", func(t *testing.T) {
		for _, h := range sim.Targets {
			n := proof[h.Name]
			if len(proof) == 0 {
				n = *seeds
			}
			for _, k := range play(h, n, true) {
				t.Errorf("%s breaks a promise with all rules in force: seed %d: %s", h.Name, k.seed, k.fault)
			}
		}
	})
}

// built is the test binaries of the packages with named tests.
type built struct {
	dir     string
	folders map[string]string   // of packages by name
	tests   map[string][]string // by package
}

func build(t *testing.T) *built {
	b := &built{dir: t.TempDir(), folders: map[string]string{}, tests: map[string][]string{}}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Name}} {{.Dir}}", "./internal/...").Output()
	if err != nil {
		t.Fatalf("list the packages: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		name, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		b.folders[name] = dir
	}
	for _, m := range mutant.All() {
		for _, name := range m.Tests {
			pkg, test, _ := strings.Cut(name, ".")
			if !slices.Contains(b.tests[pkg], test) {
				b.tests[pkg] = append(b.tests[pkg], test)
			}
		}
	}
	args := []string{"test", "-c", "-tags", "mutants", "-overlay", *overlay, "-ldflags", "-s -w", "-o", b.dir + "/"}
	for pkg := range maps.Keys(b.tests) {
		args = append(args, b.folders[pkg])
	}
	if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
		t.Fatalf("build the tests: %v\n%s", err, out)
	}
	return b
}

var failure = regexp.MustCompile(`--- FAIL: (\S+)`)

// run runs tests of a package against a mutant, "" for none, and returns the last failed one, the most specific, or "".
func (b *built) run(t *testing.T, m, pkg, pattern string) (failed string) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(b.dir, pkg+".test"), "-test.run", "^("+pattern+")", "-test.failfast")
	cmd.Dir = b.folders[pkg]
	cmd.Env = append(os.Environ(), mutant.Variable+"="+m)
	out, err := cmd.CombinedOutput()
	all := failure.FindAllSubmatch(out, -1)
	exit := new(exec.ExitError)
	switch {
	case bytes.Contains(out, []byte("no tests to run")):
		t.Fatalf("%s has no test %s", pkg, pattern)
	case err != nil && (len(all) == 0 || !errors.As(err, &exit)):
		t.Fatalf("%s of %s: %v\n%s", pattern, pkg, err, out)
	}
	for _, f := range all {
		if name := string(f[1]); len(name) > len(failed) {
			failed = name
		}
	}
	return failed
}

// broken is a world with a broken promise.
type broken struct {
	seed  int
	fault string
}

// play runs worlds in parallel, from seed 1, and returns those with a broken promise. Without all it stops at the
// first.
func play(h sim.Target, seeds int, all bool) []broken {
	found := make([]broken, seeds)
	var next atomic.Int64
	var stop atomic.Bool
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := int(next.Add(1)); i <= seeds && !stop.Load(); i = int(next.Add(1)) {
				if fault := playOne(h, uint64(i)); fault != "" {
					found[i-1] = broken{i, fault}
					stop.Store(!all)
				}
			}
		})
	}
	workers.Wait()
	return slices.DeleteFunc(found, func(k broken) bool { return k.fault == "" })
}

// playOne runs one world and returns the broken promise. A panic of a node counts too.
func playOne(h sim.Target, seed uint64) (fault string) {
	defer func() {
		if p := recover(); p != nil {
			fault = fmt.Sprintf("panic: %v", p)
		}
	}()
	return sim.New(h.Draw(seed)).Run().Fault
}
