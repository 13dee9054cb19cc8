//go:build mutants

package mutant

import (
	"fmt"
	"os"
)

var active = chosen(os.Getenv(Variable))

// chosen panics on an unknown name: a test that fails without a mutant would look like a kill.
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

// On reports whether the rule of id is removed.
func On(id ID) bool { return id == active }

// Set selects the mutant, or None. Nothing else may run meanwhile.
func Set(id ID) { active = id }

// Built reports whether this build has mutants.
const Built = true
