//go:build mutants

package mutant

import (
	"fmt"
	"os"
)

var active = chosen(os.Getenv(Variable))

// chosen panics on an unknown name: a test that fails without a mutant would look like a kill.
func chosen(name string) string {
	if _, ok := Named(name); !ok && name != "" {
		panic(fmt.Sprintf("%s=%s: there is no such mutant", Variable, name))
	}
	return name
}

// On reports whether the rule of the mutant is removed.
func On(name string) bool { return name == active }

// Set selects a mutant, "" for none. Nothing else may run meanwhile.
func Set(name string) { active = chosen(name) }

// Built reports whether this build has mutants.
const Built = true
