//go:build !mutants

package mutant

// On reports whether the rule of id is removed: never, in a build without the tag.
func On(ID) bool { return false }

// Built reports whether this build has mutants.
const Built = false

// Set selects a mutant. There are none in this build.
func Set(ID) { panic("built without the tag mutants") }
