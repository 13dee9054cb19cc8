package region

import (
	"slices"

	"vestibule/internal/core/ledger"
	"vestibule/internal/core/wire"
)

// stored has the Durable for the successor of an aggregator, and its stored version. An action that
// relies on a part of it waits until that part is stored.
type stored struct {
	durable wire.Durable
	saved   uint64 // newest version known to be stored

	holdNeeds    uint64 // version that tells until when a guessed time is waited out
	lifeNeeds    uint64 // version that tells the longest life of tickets
	life         uint32 // the longest that is stored
	movedNeeds   uint64 // version that tells until when tickets of sessions are valid that moved in
	membersNeeds uint64 // version that tells which list of data centres is known
	members      uint64 // the one that is stored
	siteNeeds    uint64 // version that tells the site
	site         uint64 // the one that is stored, and told; 0 for none
}

// unsaved returns the Durable that has to be stored, if any.
func (s *stored) unsaved() (wire.Durable, bool) {
	if s.durable.Version <= s.saved {
		return wire.Durable{}, false
	}
	return s.durable.Clone(), true
}

// save records that a version is stored. It reports whether tickets may live longer now.
func (s *stored) save(version uint64) (longer bool) {
	s.saved = version
	if longer = s.saved >= s.lifeNeeds && s.life < s.durable.Life; longer {
		s.life = s.durable.Life
	}
	if s.saved >= s.membersNeeds {
		s.members = s.durable.Members
	}
	if s.saved >= s.siteNeeds {
		s.site = s.durable.Site
	}
	return longer
}

// raiseLife has the successor know the longest life of tickets: none is stamped for longer than is
// stored.
func (s *stored) raiseLife(life uint32) {
	if life > s.durable.Life {
		s.lifeNeeds = s.change(func(d *wire.Durable) { d.Life = life })
	}
}

// movedInMargin is for how many seconds more than needed it is stored that sessions moved in: one write is for many.
const movedInMargin = 60

// raiseMovedIn has the successor know the second until which old tickets of sessions that moved here are
// valid.
func (s *stored) raiseMovedIn(until int64) {
	if until > s.durable.MovedIn {
		s.movedNeeds = s.change(func(d *wire.Durable) { d.MovedIn = until + movedInMargin })
	}
}

// setMembers notes the version of the list of data centres.
func (s *stored) setMembers(m *ledger.Members) {
	if m.Version > s.durable.Members {
		s.membersNeeds = s.change(func(d *wire.Durable) { d.Members = m.Version })
	}
}

// setSite notes a new site, which is not told before it is stored.
func (s *stored) setSite(site uint64) {
	s.siteNeeds = s.change(func(d *wire.Durable) { d.Site = site })
	s.site = 0
}

// putEntry writes an instance's place on the roster, and returns the version that tells
// it. No ticket lives for longer than life seconds.
func (s *stored) putEntry(entry wire.RosterEntry, life uint32) uint64 {
	return s.change(func(d *wire.Durable) {
		if s.saved >= s.lifeNeeds && life < d.Life {
			d.Life, s.life = life, life // tickets of a longer life are over
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

// patchEntry changes the entry of an instance on the roster, without a change of its state.
func (s *stored) patchEntry(e *edge, change func(r *wire.RosterEntry)) {
	if i := s.index(e.name, e.instance); i >= 0 {
		s.change(func(d *wire.Durable) { change(&d.Roster[i]) })
	}
}

// removeEntry takes an instance off the roster: nothing of it is counted any more.
func (s *stored) removeEntry(e *edge) {
	if i := s.index(e.name, e.instance); i >= 0 {
		s.change(func(d *wire.Durable) { d.Roster = slices.Delete(d.Roster, i, i+1) })
	}
}

// change makes a new version, and returns its number. It changes in place: callers outside get a copy of
// a version.
func (s *stored) change(f func(d *wire.Durable)) uint64 {
	f(&s.durable)
	s.durable.Version++
	return s.durable.Version
}

func (s *stored) index(name string, instance uint64) int {
	return slices.IndexFunc(s.durable.Roster, func(r wire.RosterEntry) bool { return r.Edge == name && r.Instance == instance })
}
