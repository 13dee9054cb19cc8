package wire

// Allocation counts the permits of one kind that a parent allocates to a child. Both sides of every hop keep one for
// permits of T, one for permits of R and one for passes. A grant carries Granted and Keep, a report carries Granted, as
// applied, and Returned.
//
// Granted and Returned are cumulative, and each has one writer. The parent never takes permits back: it lowers Keep,
// and the child returns its unused permits above Keep.
type Allocation struct {
	Granted  uint64 // permits ever granted; written by the parent
	Returned uint64 // permits ever returned unused; written by the child
	Keep     uint64 // idle target: unused permits that the child may keep; written by the parent
}

// Held returns the permits that the child has, used or unused. It is negative only in the ledger of a parent that
// granted them before they were reset.
func (a *Allocation) Held() int64 { return int64(a.Granted) - int64(a.Returned) }

// Unused returns the permits that the child has not used, at least 0.
func (a *Allocation) Unused(used uint64) uint64 {
	if gone := a.Returned + used; gone < a.Granted {
		return a.Granted - gone
	}
	return 0
}

// Surplus returns the part of unused above the idle target.
func (a *Allocation) Surplus(unused uint64) uint64 { return unused - min(unused, a.Keep) }

// Apply applies a grant at the child. It reports whether the grant adds permits, and whether it lowers the idle target.
func (a *Allocation) Apply(g Allocation) (more, lower bool) {
	more, lower = g.Granted > a.Granted, g.Keep < a.Keep
	a.Granted, a.Keep = max(a.Granted, g.Granted), g.Keep
	return more, lower
}

// Recover raises the counters at the parent to those of a report: a predecessor may have granted more than this parent
// knows.
func (a *Allocation) Recover(r Allocation) {
	a.Granted, a.Returned = max(a.Granted, r.Granted), max(a.Returned, r.Returned)
}

// Reset sets the counters to 0. The idle target stays.
func (a *Allocation) Reset() { a.Granted, a.Returned = 0, 0 }

// Offered returns the fields that a parent writes.
func (a *Allocation) Offered() Allocation { return Allocation{Granted: a.Granted, Keep: a.Keep} }

// Reported returns the fields that a report carries.
func (a *Allocation) Reported() Allocation {
	return Allocation{Granted: a.Granted, Returned: a.Returned}
}

// MaxPermits bounds every number of permits, and stands for no limit.
const MaxPermits = 1 << 40

// PermitCounts are numbers of permits of both kinds.
type PermitCounts struct{ Sessions, Rate int64 }

// Permits are the permits of one room on one hop: an admission uses one of each kind.
type Permits struct {
	Sessions Allocation // of T, one per session
	Rate     Allocation // of R, in use for [RateWindow] after an admission
}

// Apply applies a grant at the child; see [Allocation.Apply].
func (p *Permits) Apply(g *Permits) (more, lower bool) {
	more, lower = p.Sessions.Apply(g.Sessions)
	moreRate, lowerRate := p.Rate.Apply(g.Rate)
	return more || moreRate, lower || lowerRate
}

// SetKeep sets the idle targets. It reports whether any of them changed.
func (p *Permits) SetKeep(sessions, rate uint64) (changed bool) {
	changed = p.Sessions.Keep != sessions || p.Rate.Keep != rate
	p.Sessions.Keep, p.Rate.Keep = sessions, rate
	return changed
}

// Recover raises the counters at the parent; see [Allocation.Recover].
func (p *Permits) Recover(r *Permits) {
	p.Sessions.Recover(r.Sessions)
	p.Rate.Recover(r.Rate)
}

// Reset sets the counters to 0. The idle targets stay.
func (p *Permits) Reset() {
	p.Sessions.Reset()
	p.Rate.Reset()
}

// Offered returns the fields that a parent writes.
func (p *Permits) Offered() Permits { return Permits{p.Sessions.Offered(), p.Rate.Offered()} }

// Reported returns the fields that a report carries.
func (p *Permits) Reported() Permits { return Permits{p.Sessions.Reported(), p.Rate.Reported()} }
