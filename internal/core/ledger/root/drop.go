package root

import (
	"maps"
	"slices"

	"vestibule/internal/core/wire"
)

// This file drops removed rooms, as package region does with its edges: see wire.RoomGrant.Drop.

// dropRemoved tells the data centres to drop the removed rooms, and deletes the pools that no data centre needs.
func (ps *pools) dropRemoved() {
	ps.list = slices.DeleteFunc(ps.list, func(p *pool) bool {
		if !p.isOver() {
			return false
		}
		maps.DeleteFunc(p.loans, func(d *centre, l *loan) bool { return p.drop(d, l) })
		if len(p.loans) > 0 {
			return false
		}
		delete(ps.byID, p.ID)
		return true
	})
}

// isOver reports whether the room is removed, and no permit of it is out anywhere. A room with a release of this
// coordinator stays: otherwise the release could be lent again.
func (p *pool) isOver() bool {
	return p.gone && len(p.relays) == 0 && p.passes.Release == 0 && p.bound == (wire.PermitCounts{}) && p.complete() &&
		!slices.ContainsFunc(p.centres.all, func(d *centre) bool { l := p.loans[d]; return l != nil && l.outstanding() })
}

// drop reports whether data centre d never had the room. It gets the order to drop the room if it has nothing of it.
func (p *pool) drop(d *centre, l *loan) (never bool) {
	switch {
	case l.drops:
	case !l.heard && d.reported():
		return l.permits.Sessions.Granted == 0 && l.permits.Rate.Granted == 0
	case l.removed && !d.blank && !d.promise:
		l.drops, l.dirty, d.push, d.dropping = true, true, true, d.dropping+1
	}
	return false
}

// answered reports whether a data centre has applied the grant that drops the room.
func (l *loan) answered(d *centre) bool { return l.dropAt != 0 && l.dropAt <= d.acked }

// close deletes the loan of a data centre that has answered.
func (p *pool) close(d *centre) {
	delete(p.loans, d)
	d.dropping--
	p.stale = true
}

// closeDropped deletes the loans of the rooms that a data centre has dropped: its complete report does not have them.
func (ps *pools) closeDropped(d *centre) {
	if d.dropping == 0 {
		return
	}
	for p, l := range ps.loans(d) {
		if l.answered(d) {
			p.close(d)
		}
	}
}
