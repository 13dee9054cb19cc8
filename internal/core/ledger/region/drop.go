package region

import (
	"slices"

	"vestibule/internal/core/wire"
)

// This file drops removed rooms: first the edges, then the data centre. The parent tells the child to drop a room of
// which nothing is left. It grants nothing of the room until the child has answered, and then starts with the counters
// of the child, or none: see wire.RoomGrant.Drop. So both sides have the same counters whenever a room with this ID is
// added again.

// dropRemoved tells the edges to drop the removed rooms, and deletes the accounts that no edge needs.
func (r *rooms) dropRemoved(at *snapshot) {
	if at.unknown() {
		return
	}
	for _, b := range r.list {
		if !b.gone {
			continue
		}
		for _, acc := range slices.Clone(b.accounts) {
			e := acc.edge
			if acc.drops || acc.counts() || acc.reserved.silent {
				continue
			}
			if e.over() || e.state == alive && acc.report == nil {
				acc.close()
			} else if e.state == alive && acc.isUnused() {
				acc.drops, e.dropping, e.urgent = true, e.dropping+1, true
				acc.markChanged()
			}
		}
	}
}

// isUnused reports whether the edge holds nothing of the room, and has nothing to tell.
func (a *account) isUnused() bool {
	p := &a.permits
	return a.report.Removed && a.credit() == 0 && p.Rate.Held() == 0
}

// answered reports whether the edge has applied the grant that drops the room.
func (a *account) answered() bool { return a.dropAt != 0 && a.dropAt <= a.edge.acked }

// reported returns the account of an edge that reports the room. If the edge has dropped the room, the account
// starts anew: its counters are those of the report.
func (b *roomLedger) reported(e *edge) *account {
	if acc := e.account(b.ID); acc != nil && acc.answered() {
		acc.close()
	}
	return b.account(e)
}

// closeDropped deletes the accounts of the rooms that the edge has dropped: its complete report does not have them.
func (e *edge) closeDropped() {
	if e.dropping == 0 {
		return
	}
	for _, acc := range slices.Clone(e.accounts) {
		if !acc.answered() {
			continue
		}
		acc.close()
		if b := acc.ledger; !b.gone && e.state == alive {
			b.account(e) // for its view and revocations, once the edge has the room again
		}
	}
}

// mayDrop reports whether a room is removed and nothing of it is left in the data centre, nor in its store.
func (c *centre) mayDrop(at *snapshot, b *roomLedger) bool {
	none := wire.PermitCounts{}
	h, ts := &b.loan, &b.terminations
	return b.gone && b.moves.empty() && !at.unknown() && !at.returning && len(b.accounts) == 0 && !c.roster.anyMissing() &&
		b.counts.sum == 0 && b.counts.total() == 0 && len(b.rates)+len(b.overcommit)+len(ts.order)+ts.up.Len() == 0 &&
		int64(max(ts.movedIn, ts.dropped)) < max(b.counts.freed, 1) &&
		!h.reconstructed && h.permits.Sessions.Held() == 0 && h.permits.Rate.Held() == 0 &&
		b.bound == none && b.storedBound == none && h.floor == none && h.guard == none &&
		c.stored.saved >= c.stored.roomsNeeds
}

// anyMissing reports whether an edge has not reported since a predecessor led.
func (es edges) anyMissing() bool { return slices.ContainsFunc(es, (*edge).missing) }
