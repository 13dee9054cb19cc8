package match

// What the external tests need: they compare the package with a twin, through sets of rooms.
var (
	CompatOf   = compatOf
	Ignorable  = ignorable
	IsOrdinary = isOrdinary
	Spellings  = spellings
)

// Steps returns how many steps of reading a path there are.
func Steps() int { return len(steps) }

// WithoutStep takes step i away until restore is called.
func WithoutStep(i int) (restore func()) {
	kept := steps[i].when
	steps[i].when = 0
	return func() { steps[i].when = kept }
}
