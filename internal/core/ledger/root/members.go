package root

import (
	"slices"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
)

// This file decides which data centres belong to the fleet, and prevents the harm that a list of them
// that is too old could do.
//
// The list has versions. What must never happen: a coordinator with an older list calls its books
// complete while a data centre that is not in its list holds permits; it would lend those once more.
// Four rules prevent it (decision 30):
//
//   - A data centre reports the newest version that is stored for it. A coordinator that hears of a
//     newer version than its own from a data centre of its list lends nothing and calls no books
//     complete, until its list is as new.
//   - A data centre that was added is lent permits only once every older one that is heard, and at
//     least half of all older ones, reported that the version which lists it is stored. So of the data
//     centres whose books a coordinator with an older list must know, one reports the newer version;
//     where none does, they were silent for so long that under partition_policy cap no session from
//     before is valid.
//   - A data centre that is not listed is heard like any other, and its permits count. Where the books
//     were complete without it before, its own are voided instead, as those of a data centre that was
//     given up. So they are where it is taken off without having been heard for long; a data centre
//     that is heard drains.
//   - A data centre that is to go leaves the list when all its permits were returned and it knows that
//     it drains. So no older list lends to it unheard.
//   - A data centre that was removed by force stays in the list, as removed, until it reported that nothing
//     of it is out, or nothing of it can be valid. A new coordinator waits for it as long as that, so
//     that a takeover gives none of its permits to others.

// maxStrangers bounds the data centres that are heard without being listed.
const maxStrangers = 64

// SetMembers replaces the list of data centres. An older version than the one in
// use changes nothing.
func (a *Allocator) SetMembers(now fleettime.Mono, m ledger.Members) {
	if m.Version < a.centres.members {
		return
	}
	a.centres.members = m.Version
	for _, d := range a.centres.all {
		d.removed = false
		if d.listed && !m.Has(d.name, d.clusterID) {
			d.listed, d.draining, d.recorded = false, false, 0
			if newest, _ := a.centres.newest(); newest <= m.Version && now.Sub(d.recv) > a.cfg.Params.RegionalLease {
				a.disown(d) // else its permits go on to count, as those of a data centre that is not listed
			}
		}
	}
	for _, member := range m.List {
		d := a.centres.of(member.Name, member.ClusterID)
		isNew := d == nil
		if isNew {
			d = a.meet(now, member.Name)
		}
		if member.ClusterID != 0 {
			d.clusterID = member.ClusterID
		}
		if a.centres.counted && !d.listed && !d.adopted && (isNew || !member.Removed) {
			a.disown(d) // the books were complete without it
		}
		if d.removed = member.Removed; d.removed {
			continue
		}
		d.listed, d.draining, d.since, d.recorded = true, member.Draining, member.Since, member.ClusterID
	}
	a.centres.all = slices.DeleteFunc(a.centres.all, func(d *centre) bool {
		gone := !d.listed && !d.heard && !d.removed
		if gone {
			a.pools.drop(d)
		}
		return gone
	})
	for _, d := range a.centres.all {
		d.push = true
	}
	a.pools.markAllStale()
	a.due = now
}

// stranger opens the books of a data centre that nobody listed, or that is not the one
// of its name that is; nil where there are too many.
func (a *Allocator) stranger(now fleettime.Mono, name string, clusterID uint64) *centre {
	n := 0
	for _, d := range a.centres.all {
		if !d.listed {
			n++
		}
	}
	if n >= maxStrangers {
		return nil
	}
	d := a.meet(now, name)
	if d.clusterID = clusterID; a.centres.counted {
		a.disown(d)
	}
	a.pools.markAllStale()
	return d
}

// meet opens the books of a data centre, and tells it which tickets are accepted nowhere.
func (a *Allocator) meet(now fleettime.Mono, name string) *centre {
	d := a.centres.add(now, name)
	for _, p := range a.pools.list {
		p.relays.sendAllTo(d, p.queueEnd)
	}
	return d
}

// disown voids the permits that a data centre holds or may yet report: they were, or may be, lent to
// others.
func (a *Allocator) disown(d *centre) {
	d.void = true
	for p, l := range a.pools.loans(d) {
		p.void(l, true)
	}
}
