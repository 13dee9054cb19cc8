package slots

import (
	"slices"
	"time"

	"vestibule/internal/fleet"
	"vestibule/internal/mutant"
	"vestibule/internal/room"
	"vestibule/internal/wire"
)

// This file is about which data centres there are, and what a list of them that is
// too old could do.
//
// The list has versions. What must never happen: a coordinator that goes by an older
// list calls its books complete while a data centre that is not in its list holds
// rights; it would lend those once more. Four rules keep that from happening
// (decision 30):
//
//   - A data centre tells the newest version that is stored for it. A coordinator
//     that hears of a newer version than its own from a data centre of its list
//     lends nothing and calls no books complete, until its list is as new.
//   - A data centre that was added is lent rights only once every older one that is
//     heard, and at least half of all older ones, told that the version which lists
//     it is stored. So of the data centres whose books a coordinator with an older
//     list must know, one tells the newer version; where none does, they were
//     silent for so long that under partition_policy cap nothing of before is valid.
//   - A data centre that nobody listed is heard like any other, and what it holds
//     counts. Where the books were complete without it before, its own are voided
//     instead, as for one that was given up. So they are where it is taken off
//     without having been heard for long; one that is heard drains.
//   - One that is to go leaves the list when all that it held has come back and it
//     knows that it drains. So no older list lends to it unheard.
//   - One that was taken off by force is named beside the list until it told that
//     nothing of it is out, or nothing of it can be valid. A new coordinator waits for
//     it as long as that, so that a takeover gives nothing of it to others.
//
// A coordinator of release 0.1.0 knows no versions. A data centre whose list was
// changed does not promise to follow one that tells none (see Aggregator.Apply).

// Members are the data centres of a fleet as a node knows them.
type Members struct {
	Version uint64 // grows with every change; 0 for the list of a configuration
	Changed bool   // not what every configuration of global lists: who tells no version is not followed
	List    []Member
	Forced  []Member // taken off by force, and may hold rights; names and sites
}

// Member is one data centre of the list.
type Member struct {
	Name     string
	Draining bool   // nobody is let in; it leaves the list when all that it holds has come back
	Since    uint64 // version that added it, or told its site; 0 for those that founded the fleet
	Site     uint64 // tells it from others of its name; 0 where it was not heard yet
}

// Site returns the site of a data centre in the list, 0 for unknown.
func (m *Members) Site(name string) uint64 {
	if i := slices.IndexFunc(m.List, func(o Member) bool { return o.Name == name }); i >= 0 {
		return m.List[i].Site
	}
	return 0
}

// Standing returns that of the data centre which has a site, 0 for unknown: another one
// of its name is not listed.
func (m *Members) Standing(name string, site uint64) wire.Standing {
	if s := m.Site(name); s != 0 && site != 0 && s != site {
		return wire.Unlisted
	}
	return m.Find(name)
}

// Find returns the standing of a data centre.
func (m *Members) Find(name string) wire.Standing {
	i := slices.IndexFunc(m.List, func(o Member) bool { return o.Name == name })
	switch {
	case i < 0:
		return wire.Unlisted
	case m.List[i].Draining:
		return wire.Draining
	}
	return wire.Listed
}

// maxStrangers bounds the data centres that are heard without being listed.
const maxStrangers = 64

// SetMembers replaces the list of data centres. An older version than the one in
// use changes nothing.
func (a *Allocator) SetMembers(now fleet.Mono, m Members) {
	if m.Version < a.members {
		return
	}
	a.members = m.Version
	for _, d := range a.centres {
		d.forced = false
		if d.listed && m.Standing(d.name, d.site) == wire.Unlisted {
			d.listed, d.draining, d.recorded = false, false, 0
			if newest, _ := a.Newest(); newest <= m.Version && now.Sub(d.recv) > a.cfg.Params.RegionalLease {
				a.disown(d) // else what it holds goes on to count, as of one that nobody listed
			}
		}
	}
	for _, member := range m.Forced {
		if mutant.On(mutant.ForcedForgotten) {
			break
		}
		d := a.of(member.Name, member.Site)
		if d == nil {
			d = a.newCentre(now, member.Name)
			if a.counted {
				a.disown(d)
			}
		}
		d.forced = true
		if member.Site != 0 {
			d.site = member.Site
		}
	}
	a.centres = slices.DeleteFunc(a.centres, func(d *centre) bool { return !d.listed && !d.heard && !d.forced })
	for _, member := range m.List {
		d := a.of(member.Name, member.Site)
		if d == nil {
			d = a.newCentre(now, member.Name)
		}
		if d.recorded = member.Site; member.Site != 0 {
			d.site = member.Site
		}
		if !d.listed && !d.adopted && a.counted {
			a.disown(d) // the books were complete without it
		}
		d.listed, d.draining, d.since = true, member.Draining, member.Since
	}
	for _, d := range a.centres {
		d.push = true
	}
	a.restale()
	a.due = now
}

// newCentre opens the books of a data centre. It is told which tickets are to be
// accepted nowhere.
func (a *Allocator) newCentre(now fleet.Mono, name string) *centre {
	d := &centre{name: name, recv: now, loans: map[room.ID]*loan{}}
	i, _ := a.search(name)
	i += len(a.named(name)) // the oldest comes first
	a.centres = slices.Insert(a.centres, i, d)
	for _, p := range a.order {
		for _, r := range p.relays {
			if r.end.Kind == wire.Left {
				a.pass(p, d, r.end)
			}
		}
	}
	return d
}

// stranger opens the books of a data centre that nobody listed, or that is not the one
// of its name that is; nil where there are too many.
func (a *Allocator) stranger(now fleet.Mono, name string, site uint64) *centre {
	n := 0
	for _, d := range a.centres {
		if !d.listed {
			n++
		}
	}
	if n >= maxStrangers || mutant.On(mutant.UnlistedIgnored) {
		return nil
	}
	d := a.newCentre(now, name)
	if d.site = site; a.counted {
		a.disown(d)
	}
	a.restale()
	return d
}

// disown voids what a data centre holds or may yet say that it holds: its rights
// were, or may be, lent to others.
func (a *Allocator) disown(d *centre) {
	d.void = true
	for id, l := range d.loans {
		a.void(a.pool(id), l, true)
	}
}

// void closes the books of a loan; what comes of older ones does not count. inUse
// says that the data centre may be alive all the same.
func (a *Allocator) void(p *pool, l *loan, inUse bool) {
	l.reclaimed = true
	if inUse {
		l.unreturned += max(0, l.held())
	}
	l.gen = max(l.gen, a.cfg.Term.N<<16) + 1 // above every one of an earlier term
	l.granted, l.returned, l.rateGranted, l.rateReturned = 0, 0, 0, 0
	l.idle, l.idleSeen, l.rateIdle, l.rateSeen = 0, 0, 0, 0
	l.want, l.heldPeople, l.heldJoined, l.movers, l.active = 0, 0, nil, 0, 0
	l.waiting, l.pending = nil, nil
	l.dirty = true
	p.stale = true
}

// Newest returns the newest version of the list that a data centre of the list
// told, and which one did.
func (a *Allocator) Newest() (version uint64, by string) {
	for _, d := range a.centres {
		if d.listed && d.stored > version {
			version, by = d.stored, d.name
		}
	}
	return version, by
}

// outdated reports whether a newer list exists than the one in use: what is lent by
// it is not known here.
func (a *Allocator) outdated() bool {
	newest, _ := a.Newest()
	return newest > a.members && !mutant.On(mutant.OldListLeads)
}

// entered reports whether a coordinator that goes by a list without d would be told
// of a newer one before it called its books complete.
func (a *Allocator) entered(now fleet.Mono, d *centre) bool {
	if d.since == 0 || mutant.On(mutant.NewcomerLentEarly) {
		return true
	}
	older, know := 0, 0
	for _, o := range a.centres {
		if o == d || !o.listed {
			continue
		}
		if o.since < d.since {
			older++
		}
		switch {
		case o.stored < d.since && o.heard && now.Sub(o.recv) < a.cfg.Params.RegionalLease:
			return false
		case o.stored >= d.since && o.since < d.since:
			know++
		}
	}
	return 2*know >= older
}

// standing is what a data centre is told of its place in the list.
func (d *centre) standing() wire.Standing {
	switch {
	case !d.listed:
		return wire.Unlisted
	case d.draining:
		return wire.Draining
	}
	return wire.Listed
}

// lending is how far rights may be lent to a data centre.
type lending uint8

const (
	lendAll    lending = iota
	lendMovers         // it drains: rights of T for those who are inside elsewhere and move there, while anything is out
	lendKept           // it keeps what it has
	lendNone           // what lies idle there is to come back
)

// lendingTo returns how far rights of a room may be lent to a data centre, of which l is out.
// Once one that drains has given back everything, whoever goes by a list without it need not
// know it: it is lent nothing more.
func (a *Allocator) lendingTo(now fleet.Mono, d *centre, l *loan) lending {
	switch {
	case a.outdated() && !d.draining:
		return lendKept
	case a.outdated() || !d.listed:
		return lendNone
	case d.draining && !l.out() && !mutant.On(mutant.DrainedLent):
		return lendNone
	case d.draining:
		return lendMovers
	case !a.entered(now, d), a.unproven(d):
		return lendKept
	}
	return lendAll
}

// Strangers returns the data centres that are heard and in no list, by name.
func (a *Allocator) Strangers() []string {
	var out []string
	for _, d := range a.centres {
		if !d.listed && d.heard && a.copyOf(d) == nil {
			out = append(out, d.name)
		}
	}
	return out
}

// Drained returns the data centres that may leave the list, by name: they drain,
// they know it, and they told that nothing of them is out.
func (a *Allocator) Drained(now fleet.Mono) []string {
	var out []string
	for _, d := range a.centres {
		switch {
		case !d.listed || !d.draining || a.outdated():
		case mutant.On(mutant.DrainForgets), d.told() && now.Sub(d.recv) < quiet && d.stored >= a.members && a.nothingOut(d):
			out = append(out, d.name)
		}
	}
	return out
}

// Released returns the data centres that were taken off by force and need not be
// named any more: they told that nothing of them is out, or were silent for so long
// that nothing can be.
func (a *Allocator) Released(now fleet.Mono) []string {
	var out []string
	for _, d := range a.centres {
		if !d.forced || a.outdated() {
			continue
		}
		told := d.told() && now.Sub(d.recv) < quiet && a.nothingOut(d)
		over := len(a.order) > 0 && !slices.ContainsFunc(a.order, func(p *pool) bool { return now.Sub(d.recv) <= a.reclaimAfter(p) })
		if told || over {
			out = append(out, d.name)
		}
	}
	return out
}

// told reports whether a data centre says in this term what it holds.
func (d *centre) told() bool { return d.adopted && !d.blank && !d.recovering && !d.promise }

func (a *Allocator) nothingOut(d *centre) bool {
	for _, p := range a.order {
		if l := d.loans[p.ID]; l != nil && l.out() {
			return false
		}
	}
	return true
}

// Unfounded reports whether no list of this fleet was ever stored, as far as its
// data centres know, and all of them were heard: the list of the configuration may
// become the first.
func (a *Allocator) Unfounded() bool {
	newest, _ := a.Newest()
	return a.members == 0 && newest == 0 && !slices.ContainsFunc(a.centres, func(d *centre) bool {
		return d.listed && !d.told()
	})
}

// CentreTotals is what one data centre has out, summed over all rooms.
type CentreTotals struct {
	Name           string
	Site           uint64 // 0 for unknown
	Standing       wire.Standing
	Told           bool          // it says what it holds, and was heard lately
	Heard          time.Duration // how long ago; since the term began or it was added, where it was not
	Held, RateHeld int64
	Idle, RateIdle int64
	Sessions       uint64
	Excess         int64         // sessions that may be valid beyond what it holds
	Term           uint64        // of its aggregator, 0 before it was heard
	Adopted        bool          // its books are known in this term
	Stored         uint64        // newest version of the list of data centres that is stored for it
	Bound          time.Duration // what its fleet time may be wrong by, [fleet.Unsynced] where it knows none
}

// Centres returns what every data centre has out, by name.
func (a *Allocator) Centres(now fleet.Mono) []CentreTotals {
	out := make([]CentreTotals, 0, len(a.centres))
	for _, d := range a.centres {
		t := CentreTotals{Name: d.name, Site: d.site, Standing: d.standing(), Told: d.told() && now.Sub(d.recv) < quiet, Heard: now.Sub(d.recv), Term: d.inc, Adopted: d.adopted, Stored: d.stored, Bound: fleet.Unsynced}
		if d.timed {
			t.Bound = d.timeBound
		}
		for _, l := range d.loans {
			t.Held += l.held()
			t.RateHeld += l.rateHeld()
			t.Idle += l.idleNow()
			t.RateIdle += l.rateIdleNow()
			t.Sessions += l.active
			t.Excess += l.unreturned + int64(l.excess)
		}
		out = append(out, t)
	}
	return out
}

// Members returns the version of the list in use, 0 for that of the configuration.
func (a *Allocator) Members() uint64 { return a.members }
