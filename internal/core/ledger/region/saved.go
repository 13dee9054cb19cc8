package region

import (
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// Durable returns the data for a successor, stored or not.
func (c *centre) Durable() wire.Durable { return c.stored.durable.Clone() }

// Unsaved returns the Durable to store before the aggregator can continue. The shell stores it and calls Saved.
func (c *centre) Unsaved() (wire.Durable, bool) {
	return c.stored.unsaved()
}

// Saved records that a version is stored.
func (a *Aggregator) Saved(now fleettime.Mono, version uint64) {
	if version <= a.stored.saved {
		return
	}
	before, was := a.stored.saved, a.stored.membership
	if a.stored.save(version) || a.stored.membership != was {
		a.rooms.markAllStale()
	}
	if before < a.stored.roomsNeeds && a.stored.roomsNeeds <= version {
		a.lifecycle.storedCeilings()
	}
	for _, b := range a.rooms.list {
		b.savedMoves(version)
	}
	a.lifecycle.activateStored()
	a.begins(now)
	a.due = now
	a.up.reportSoon(now, 1)
}
