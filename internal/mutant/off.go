//go:build !mutants

package mutant

// On reports whether the rule that id removes is missing: never, in a build
// without the tag.
func On(ID) bool { return false }
