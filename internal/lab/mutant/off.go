//go:build !mutants

package mutant

// On reports whether the rule of the mutant is removed: never, in a build without the tag.
func On(string) bool { return false }

// Built reports whether this build has mutants.
const Built = false

// Set selects a mutant. There are none in this build.
func Set(string) { panic("built without the tag mutants") }
