//go:build mutants

package mutant

import (
	"fmt"
	"os"
)

var active = chosen(os.Getenv(Variable))

// chosen panics on a name that no mutant has: a test that fails for want of a
// mutant would look like one that kills it.
func chosen(name string) ID {
	if name == "" {
		return None
	}
	for _, m := range All() {
		if m.Name == name {
			return m.ID
		}
	}
	panic(fmt.Sprintf("%s=%s: there is no such mutant", Variable, name))
}

// On reports whether the rule that id removes is missing.
func On(id ID) bool { return id == active }

// Set chooses the mutant, None for the rules as they are. Nothing else may run
// meanwhile.
func Set(id ID) { active = id }

// Built reports whether this build has mutants.
const Built = true
