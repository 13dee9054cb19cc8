package region

import (
	"fmt"
	"slices"

	"vestibule/internal/core/fleettime"
)

// Overlooked returns a due message or a due return of permits that the aggregator misses because it visits only
// changed rooms and accounts; "" for none. Tests call it after Grants, with reported if Report was called just
// before.
func (c *centre) Overlooked(now fleettime.Mono, reported bool) string {
	for _, b := range c.rooms.list {
		n, rate := b.loan.aboveFloor(c.snapshot(now).surplus(b))
		if reported && (n > 0 || rate > 0) {
			return fmt.Sprintf("%d and %d permits of room %x are not returned", n, rate, uint64(b.ID))
		}
		for _, acc := range b.accounts {
			if acc.edge.account(b.ID) != acc {
				return fmt.Sprintf("%s does not list its account of room %x", acc.edge.name, uint64(b.ID))
			}
		}
	}
	for _, e := range c.roster.edges {
		listed := map[*account]bool{}
		for _, acc := range e.changed {
			listed[acc] = true
		}
		for _, acc := range e.accounts {
			b, id := acc.ledger, acc.ledger.ID
			if acc.queued != listed[acc] || acc.edge != e || c.rooms.byID[id] != b || !slices.Contains(b.accounts, acc) {
				return fmt.Sprintf("%s, room %x: open %v, listed %v", e.name, uint64(id), acc.queued, listed[acc])
			}
			if !acc.queued &&
				(acc.changed || acc.viewChanged || acc.changedAt > e.acked || acc.viewAt > e.acked || acc.ends.Len() > 0) {
				return fmt.Sprintf("%s did not get the changes of room %x", e.name, uint64(id))
			}
			if acc.reserved.silent && (e.state == alive || e.state == joining) {
				return fmt.Sprintf("%s reports and counts as silent in room %x", e.name, uint64(id))
			}
		}
	}
	return ""
}
