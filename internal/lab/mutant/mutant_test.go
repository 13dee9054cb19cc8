package mutant_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vestibule/internal/lab/mutant"
	"vestibule/internal/lab/sim"
)

// Every mutant has a unique name, a rule of the document, tests and a sentence, and every rule has a mutant.
func TestEveryRuleHasMutants(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/GUARANTEES.md")
	if err != nil {
		t.Fatal(err)
	}
	first := bytes.Index(doc, []byte("\n| 1 | "))
	numRules := bytes.Count(doc[first:][:bytes.Index(doc[first:], []byte("\n\n"))], []byte("\n| "))
	rules, names := map[int]bool{}, map[string]bool{}
	for _, m := range mutant.All() {
		world := m.Target == "" || slices.ContainsFunc(sim.Targets, func(w sim.Target) bool { return w.Name == m.Target })
		if m.Says == "" || len(m.Tests) == 0 || !world || m.Rule < 1 || m.Rule > numRules || names[m.Name] {
			t.Errorf("missing, or twice: %+v", m)
		}
		rules[m.Rule], names[m.Name] = true, true
	}
	for rule := 1; rule <= numRules; rule++ {
		if !rules[rule] {
			t.Errorf("rule %d has no mutant", rule)
		}
	}
}

// Without the tag a program contains nothing of a mutant: neither the switch nor its name.
func TestNoMutantIsInAProgram(t *testing.T) {
	if mutant.Built {
		t.Skip("built with the tag mutants")
	}
	file := filepath.Join(t.TempDir(), "edge")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", file,
		"../../../cmd/edge").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	symbols, err := exec.CommandContext(t.Context(), "go", "tool", "nm", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	if len(symbols) == 0 || strings.Contains(string(symbols), "internal/lab/mutant") {
		t.Errorf("%d bytes of symbols, some of them of internal/lab/mutant", len(symbols))
	}
	program, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{mutant.Variable, "no-handshake"} {
		if bytes.Contains(program, []byte(text)) {
			t.Errorf("%s is in the program", text)
		}
	}
}
