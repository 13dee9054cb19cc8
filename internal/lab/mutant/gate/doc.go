// Package gate tests that every mutant is noticed; see package mutant. Its tests need the tag mutants.
package gate
