package match

// Exports for the external tests, which compare the package with a twin through sets of rooms.
var (
	CompatOf   = compatOf
	Ignorable  = ignorable
	IsOrdinary = isOrdinary
	Spellings  = spellings
)

// Steps returns the number of reading steps.
func Steps() int { return len(steps) }

// WithoutStep removes step i until restore is called.
func WithoutStep(i int) (restore func()) {
	kept := steps[i].when
	steps[i].when = 0
	return func() { steps[i].when = kept }
}
