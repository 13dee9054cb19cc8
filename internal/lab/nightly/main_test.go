package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vestibule/internal/lab/figures"
	"vestibule/internal/lab/testkit"
)

// TestEveryGoalIsShown: the command of each goal is a part, or `make test`, which runs before every commit.
func TestEveryGoalIsShown(t *testing.T) {
	targets := map[string]bool{"make test": true}
	makefile := string(testkit.Must(os.ReadFile("../../../Makefile"))(t))
	for _, p := range parts {
		targets["make "+p.target] = true
		if !strings.Contains(makefile, "\n"+p.target+":") {
			t.Errorf("the Makefile has no target %s", p.target)
		}
	}
	for _, g := range testkit.Must(figures.Goals())(t) {
		if !targets[g.Command] {
			t.Errorf("%s: no part of nightly runs %q", g.Name, g.Command)
		}
	}
}

func TestPartsAreChosen(t *testing.T) {
	all := testkit.Must(chosen("", nil))(t)
	if len(all) != len(parts) {
		t.Errorf("%d parts, want %d", len(all), len(parts))
	}
	rest := testkit.Must(chosen("siege", nil))(t)
	if rest[0].target != "siege" || len(rest) == len(parts) {
		t.Errorf("from siege: %v", rest)
	}
	two := testkit.Must(chosen("drain", []string{"h2spec", "scale", "drain"}))(t)
	if len(two) != 2 || two[0].target != "drain" || two[1].target != "scale" {
		t.Errorf("from drain: %v", two)
	}
	for _, from := range []string{"nothing", "sieg"} {
		if _, err := chosen(from, nil); err == nil {
			t.Errorf("%s is a part", from)
		}
		if _, err := chosen("", []string{from}); err == nil {
			t.Errorf("%s is a part", from)
		}
	}
}

// TestAPartIsRunAndKept: a part that fails, or misses a goal, is an error; the newest result of another stays.
func TestAPartIsRunAndKept(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	testkit.WriteFile(t, dir, "Makefile", `drain:
	@printf '{"name":"drain: failed requests","value":3,"verdict":"MISSED","text":"MISSED drain"}\n' >>$$FIGURES_FILE
	@exit 1
lost:
	@printf '{"name":"lost: until visitors enter everywhere","value":9,"verdict":"kept","text":"kept lost"}\n' >>$$FIGURES_FILE
`)
	file := filepath.Join(dir, "results.json")
	var out strings.Builder
	if err := run(t.Context(), file, "", []string{"lost"}, &out); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	err := run(t.Context(), file, "", []string{"drain"}, &out)
	if err == nil || !strings.Contains(err.Error(), "1 parts failed, 1 goals are missed") {
		t.Errorf("%v", err)
	}
	for _, line := range []string{"\nlost: passed", "  kept lost", "\ndrain: failed: exit status 2", "  MISSED drain", "\nsiege: not run\n  not run "} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("no line %q in\n%s", line, out.String())
		}
	}
}

// TestAPartHasAnEnd: what takes too long is killed with its children.
func TestAPartHasAnEnd(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	testkit.WriteFile(t, dir, "Makefile", "hang:\n\t@sleep 1000\n")
	r := part{"hang", 500 * time.Millisecond, nil}.run(t.Context(), dir, &strings.Builder{})
	if !strings.Contains(r.Ended, "longer than 500ms") {
		t.Errorf("%+v", r)
	}
}
