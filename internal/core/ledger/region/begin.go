package region

import (
	"errors"
	"fmt"
	"slices"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// This file begins a data centre that never admitted anybody, on an operator's word (vestibule init). Global carries it
// to all data centres once no node has a ticket key: without one, no ticket of before can be valid.

// ErrBegun means that visitors may have been admitted in this data centre.
var ErrBegun = errors.New("it has permits, sessions or a list of data centres, or its store is not new")

// Uninitialized reports whether the aggregator waits for an unknown past, and nothing shows that there was one: the
// store was empty, no list of data centres is known, and there are no permits, sessions or edges with a past.
func (c *centre) Uninitialized() bool {
	e := c.roster.find(wire.UnknownPast, 0)
	return e != nil && e.missing() && !e.reservedLost && c.up.blank && c.roster.unknownEdges == 0 &&
		c.member.list.Version == 0 && c.up.members == 0 && c.stored.durable.Members == 0 &&
		!slices.ContainsFunc(c.rooms.list,
			func(b *roomLedger) bool { return b.active() != 0 || b.loan.certain() != wire.PermitCounts{} })
}

// Begin declares, on an operator's word, that nobody was ever admitted in the fleet: the aggregator waits for no edge
// of before once that is stored. It can be repeated.
func (a *Aggregator) Begin(now fleettime.Mono) error {
	switch {
	case a.beginNeeds != 0:
		return nil
	case !a.leads(now):
		return fmt.Errorf("data centre %s: %w", a.cfg.DC, ErrReplaced)
	case !a.Uninitialized():
		return fmt.Errorf("data centre %s: %w", a.cfg.DC, ErrBegun)
	}
	for _, e := range a.roster.edges {
		if e.missing() {
			a.stored.removeEntry(e)
		}
	}
	a.lifecycle.movedIn = 1
	a.beginNeeds = a.stored.change(func(d *wire.Durable) { d.MovedIn = 1 })
	// An edge that followed a leader before this term knows better, unless leaders of this store waited before.
	a.roster.bootstrap = a.first
	return nil
}

// begins ends the waits for edges of before, once the word of the operator is stored.
func (a *Aggregator) begins(now fleettime.Mono) {
	if a.beginNeeds == 0 || a.begun || a.stored.saved < a.beginNeeds {
		return
	}
	a.begun = true
	for _, e := range a.roster.edges {
		if e.missing() {
			e.become(left)
		}
	}
	a.lifecycle.silence.holdUntil = 0
	a.rooms.markAllStale()
	a.up.reportSoon(now, 0)
}
