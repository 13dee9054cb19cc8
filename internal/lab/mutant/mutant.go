// Package mutant holds the switches that remove a rule of the hard limit. A rule that nothing would miss is not
// tested: `make mutants` builds the nodes with the tag `mutants`, removes the rules one by one, and requires that a
// named test or a simulated fleet detects each removal. mutants.txt lists them.
//
// The mutants themselves are patches to the product's files (patches), which command overlay applies for such a
// build; no product file names one. In every other build [On] is the constant false. See decision 17.
package mutant

import (
	_ "embed"
	"strconv"
	"strings"
)

// Variable is the environment variable that selects a mutant, in builds that have them.
const Variable = "VESTIBULE_MUTANT"

// Mutant describes a mutant and what must detect it.
type Mutant struct {
	Name   string
	Rule   int      // of docs/GUARANTEES.md
	Tests  []string // packages and prefixes of test names, such as "ledger.TestRule1"
	Target string   // name of the simulated worlds, "" for none
	Says   string   // what a node does
}

//go:embed mutants.txt
var table string

// All returns the mutants of mutants.txt.
func All() (out []Mutant) {
	for line := range strings.Lines(table) {
		f := strings.Split(strings.TrimSpace(line), " | ")
		if strings.HasPrefix(line, "#") || len(f) == 1 {
			continue
		}
		rule, err := strconv.Atoi(f[1])
		if err != nil || len(f) != 5 {
			panic("mutants.txt: " + line)
		}
		out = append(out, Mutant{f[0], rule, strings.Fields(f[2]), strings.Trim(f[3], "-"), f[4]})
	}
	return out
}

// Named returns the mutant of a name.
func Named(name string) (m Mutant, ok bool) {
	for _, m := range All() {
		if m.Name == name {
			return m, true
		}
	}
	return Mutant{}, false
}
