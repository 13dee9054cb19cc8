package region

import "vestibule/internal/core/wire"

// This file holds a data centre that was removed from the list and added again. Others may have got its permits
// meanwhile, by a coordinator that is no more. So every coordinator voids those that the data centre got under an earlier
// membership, and the data centre admits nobody until permits of the new one cover the sessions and permits that it has.

// adopted handles the membership in a complete grant, which comes with, or after, the void of permits of earlier ones.
// Without a membership of before, or under a coordinator of an older release, the ledger counts as it is.
func (m *membership) adopted(u *uplink, g *wire.Grant) {
	switch u.granted = g.Membership; {
	case !u.tells:
		m.stored.setMembership(0)
	case g.Membership != 0 && m.stored.durable.Membership == 0:
		m.stored.setMembership(g.Membership)
	}
}

// voided notes that the permits in use are, or soon will be, void. It outlasts the list that said so: a coordinator with a
// list that was rolled back has to keep them from the others too.
func (rs *rooms) voided() {
	for _, b := range rs.list {
		b.voided, b.dirty = true, true
	}
}

// adoptAnew stores the new membership of a readmitted data centre once its permits cover all sessions, permits of edges,
// and permits of R in use. Until then, global is told what is uncovered.
func (a *Aggregator) adoptAnew(at *snapshot) {
	u, known := &a.up, !at.unknown() && !at.returning
	readmitted := a.member.readmitted(u)
	covered := readmitted && known && u.granted > a.stored.membership
	for _, b := range a.rooms.list {
		if b.voided = b.voided || readmitted; !b.voided {
			continue
		}
		b.dirty = true
		switch {
		case b.uncovered() != wire.PermitCounts{}:
			covered = false
		case known && !readmitted:
			b.voided = false
		}
	}
	if covered {
		a.stored.setMembership(u.granted)
	}
}

// uncovered returns the permits of T and of R that sessions and edges hold beyond those of the data centre, because they
// were voided with an earlier membership.
func (b *roomLedger) uncovered() wire.PermitCounts {
	if !b.voided {
		return wire.PermitCounts{}
	}
	t, rate := b.unallocated()
	return wire.PermitCounts{Sessions: max(0, -t), Rate: max(0, -rate)}
}
