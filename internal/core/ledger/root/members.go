package root

import (
	"slices"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
)

// This file decides which data centres belong to the fleet, and prevents an outdated list from lending a permit twice.
//
// The list has versions. A coordinator with an older list must never take its ledger for complete while a data centre
// outside of its list holds permits: it would lend those once more. Five rules prevent it (decision 30):
//
//   - A data centre reports the newest version that is stored for it. A coordinator that gets a newer version than
//     its own from a data centre of its list lends nothing and takes no ledger for complete, until its list is as new.
//   - A data centre that was added is lent permits only once every older one that is heard, and at
//     least half of all older ones, reported that the version which lists it is stored. So of the data
//     centres whose permits a coordinator with an older list must know, one reports the newer version.
//     If none does, they were silent for so long that under partition_policy cap no session from
//     before is valid.
//   - The reports of an unlisted data centre are accepted, and its permits count. If the ledger was complete without it,
//     or it was removed after a long silence, they are voided, as those of a data centre that was given up. A data
//     centre that is heard drains.
//   - A data centre that is to go leaves the list when all its permits were returned and it knows that
//     it drains. So no older list lends to it while it is silent.
//   - A data centre that was removed by force stays in the list, as removed, until it reported that nothing
//     of it is out, or nothing of it can be valid. A new coordinator waits for it as long as that, so
//     that a takeover gives none of its permits to others. So does the one that leads, if a room has
//     partition_policy cap: an operator's word must not exceed its limit.

// maxUnlisted bounds the unlisted data centres.
const maxUnlisted = 64

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
			newest, _ := a.centres.newest()
			if newest <= m.Version && now.Sub(d.recv) > a.cfg.Params.RegionalLease && !a.pools.caps(now, d) {
				a.voidAll(d) // else its permits still count, as those of any unlisted data centre
			}
		}
	}
	for _, member := range m.List {
		d := a.centres.of(member.Name, member.ClusterID)
		isNew := d == nil
		if isNew {
			d = a.addCentre(now, member.Name)
		}
		if member.ClusterID != 0 {
			d.clusterID = member.ClusterID
		}
		if a.centres.counted && !d.listed && !d.adopted && (isNew || !member.Removed) {
			a.voidAll(d) // the ledger was complete without it
		}
		d.since, d.recorded = member.Since, member.ClusterID
		if d.removed = member.Removed; !d.removed {
			d.listed, d.draining = true, member.Draining
		}
		a.renew(d) // before any grant names the new membership
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

// addUnlisted adds an unlisted data centre, or a second one under a listed name. It returns nil at the limit.
func (a *Allocator) addUnlisted(now fleettime.Mono, name string, clusterID uint64) *centre {
	n := 0
	for _, d := range a.centres.all {
		if !d.listed {
			n++
		}
	}
	if n >= maxUnlisted {
		return nil
	}
	d := a.addCentre(now, name)
	if d.clusterID = clusterID; a.centres.counted {
		a.voidAll(d)
	}
	a.pools.markAllStale()
	return d
}

// addCentre adds a data centre, and queues for it the tickets that are accepted nowhere.
func (a *Allocator) addCentre(now fleettime.Mono, name string) *centre {
	d := a.centres.add(now, name)
	for _, p := range a.pools.list {
		p.relays.sendAllTo(d, p.queueEnd)
	}
	return d
}

// renew voids the permits that a data centre got under an earlier membership, once for each. It keeps as many back from the others as
// the data centre may still use: they were lent to others only if the data centre was out of reach.
func (a *Allocator) renew(d *centre) {
	switch {
	case d.readmitted() && d.renewed == d.named(), !d.readmitted() && d.renewed == 0:
		return
	case !d.readmitted(): // it was adopted anew
		d.renewed = 0
		a.pools.markAllStale()
		return
	}
	d.renewed = d.named()
	for _, l := range a.pools.loans(d) {
		l.uncovered.Sessions += max(0, l.permits.Sessions.Held())
		l.uncovered.Rate += max(0, l.permits.Rate.Held())
	}
	a.voidAll(d)
	d.uses = !d.reported()
}

// voidAll voids the permits that a data centre holds or may yet report: they were, or may be, lent to others.
func (a *Allocator) voidAll(d *centre) {
	d.void = true
	for p, l := range a.pools.loans(d) {
		p.void(l, true)
	}
}
