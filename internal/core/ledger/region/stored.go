package region

import (
	"slices"

	"vestibule/internal/core/ledger"
	"vestibule/internal/core/wire"
)

// stored has the Durable for the successor and the version that is stored. An action that depends on a part of the
// Durable waits until that part is stored.
type stored struct {
	durable wire.Durable
	saved   uint64 // newest stored version

	holdNeeds      uint64 // version with the end of the hold for a guessed time
	lifeNeeds      uint64 // version with the longest life of tickets
	life           uint32 // its stored value
	movedNeeds     uint64 // version with the end of the old tickets of sessions that moved in
	membersNeeds   uint64 // version with the version of the list of data centres
	members        uint64 // the one that is stored
	clusterIDNeeds uint64 // version that tells the cluster ID
	clusterID      uint64 // the one that is stored, and reported; 0 for none
	roomsNeeds     uint64 // version with the newest bounds, floors and ceilings

	membershipNeeds uint64          // version that tells the membership
	membership      wire.Membership // the one that is stored, and reported; 0 for unknown
}

// unsaved returns the Durable to store, if any.
func (s *stored) unsaved() (wire.Durable, bool) {
	if s.durable.Version <= s.saved {
		return wire.Durable{}, false
	}
	return s.durable.Clone(), true
}

// save records that a version is stored. It reports whether tickets can live longer now.
func (s *stored) save(version uint64) (longer bool) {
	s.saved = version
	if longer = s.saved >= s.lifeNeeds && s.life < s.durable.Life; longer {
		s.life = s.durable.Life
	}
	if s.saved >= s.membersNeeds {
		s.members = s.durable.Members
	}
	if s.saved >= s.clusterIDNeeds {
		s.clusterID = s.durable.ClusterID
	}
	if s.saved >= s.membershipNeeds {
		s.membership = s.durable.Membership
	}
	return longer
}

// raiseLife stores a longer life of tickets. No ticket is stamped for longer than the stored life.
func (s *stored) raiseLife(life uint32) {
	if life > s.durable.Life {
		s.lifeNeeds = s.change(func(d *wire.Durable) { d.Life = life })
	}
}

// movedInMargin is added to the stored end of old tickets, in seconds, so that one write covers many sessions.
const movedInMargin = 60

// raiseMovedIn stores the second until which old tickets of sessions that moved here are valid.
func (s *stored) raiseMovedIn(until int64) {
	if until > s.durable.MovedIn {
		s.movedNeeds = s.change(func(d *wire.Durable) { d.MovedIn = until + movedInMargin })
	}
}

// setMembers stores the version of the list of data centres.
func (s *stored) setMembers(m *ledger.Members) {
	if m.Version > s.durable.Members {
		s.membersNeeds = s.change(func(d *wire.Durable) { d.Members = m.Version })
	}
}

// setClusterID notes a new cluster ID, which is not reported before it is stored.
func (s *stored) setClusterID(clusterID uint64) {
	s.clusterIDNeeds = s.change(func(d *wire.Durable) { d.ClusterID = clusterID })
	s.clusterID = 0
}

// setMembership stores the membership under which the ledger was adopted. Until then the earlier one is reported.
func (s *stored) setMembership(m wire.Membership) {
	if m != s.durable.Membership {
		s.membershipNeeds = s.change(func(d *wire.Durable) { d.Membership = m })
	}
}

// putEntry stores the roster entry of an instance and returns the version with it. No ticket lives for longer than
// life seconds.
func (s *stored) putEntry(entry wire.RosterEntry, life uint32) uint64 {
	return s.change(func(d *wire.Durable) {
		if s.saved >= s.lifeNeeds && life < d.Life {
			d.Life, s.life = life, life // tickets with a longer life have expired
		}
		d.Ceilings = slices.Clone(d.Ceilings)
		for i := range d.Ceilings {
			if d.Ceilings[i].Edge == entry.Edge { // of an earlier lease, or of a process whose visitors may come to this one
				d.Ceilings[i] = wire.CeilingEdge{}
			}
		}
		i := s.index(entry.Edge, entry.Instance)
		if i < 0 {
			d.Roster = append(d.Roster, entry)
			return
		}
		entry.Keep(&d.Roster[i])
		d.Roster[i] = entry
	})
}

// patchEntry changes the roster entry of an instance, without a change of its state.
func (s *stored) patchEntry(e *edge, change func(r *wire.RosterEntry)) {
	if i := s.index(e.name, e.instance); i >= 0 {
		s.change(func(d *wire.Durable) { change(&d.Roster[i]) })
	}
}

// removeEntry removes the roster entry of an instance: nothing of it counts any more.
func (s *stored) removeEntry(e *edge) {
	if i := s.index(e.name, e.instance); i >= 0 {
		s.change(func(d *wire.Durable) { d.Roster = slices.Delete(d.Roster, i, i+1) })
	}
}

// change makes a new version and returns its number. It changes the Durable in place: callers outside get copies.
func (s *stored) change(f func(d *wire.Durable)) uint64 {
	f(&s.durable)
	s.durable.Version++
	return s.durable.Version
}

func (s *stored) index(name string, instance uint64) int {
	return slices.IndexFunc(s.durable.Roster,
		func(r wire.RosterEntry) bool { return r.Edge == name && r.Instance == instance })
}
