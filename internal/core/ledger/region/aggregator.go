// Package region is the ledger of one data centre: an [Aggregator] borrows permits from the
// coordinator and divides them among its edges.
//
// Its roster identifies the edges, their lives decide when an edge is heard, silent or gone, and
// the books of every room have the permits and counters of its edges. Stored has the data for a
// successor; the uplink is the session with global. The snapshot are the state of all these at
// one moment; by them the free permits of a room are divided among edges. An Aggregator belongs
// to one goroutine.
package region

import (
	"math"
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// Config configures an aggregator.
type Config struct {
	DC     string
	Term   wire.Term // fencing number; every predecessor had a lower one
	Params wire.Params

	// Bootstrap asserts that this data centre is new: that no edge of it ever admitted a visitor, and
	// nothing was ever stored. Without it, or once an edge tells otherwise, an aggregator that finds
	// nothing stored waits until all sessions that there may be have expired.
	Bootstrap bool

	// Own is the Durable that the process which leads now would have stored when it led last, under
	// the term OwnTerm; the zero Durable for nothing. It matters only where nothing is
	// stored: see witness.
	Own     wire.Durable
	OwnTerm uint64

	// Known is the site that the process which leads now has read from the store before, while
	// it led or another did; 0 for none. It matters only where the store holds none.
	Known uint64

	// Site is a random number that tells this data centre from others of its name where nothing
	// stored and no edge knows one. With 0 it is not told apart.
	Site uint64

	// Time is fleet time as this process knows it when the term begins, the zero value for not at all.
	Time fleettime.Known

	// GoneAbove is the number of seconds of sessions of edges that left which stand on the roster
	// one by one before they are summed; 0 for the default.
	CompactAbove int

	// Strict makes a transition of an edge that the table of edge states does not have
	// panic. Tests set it.
	Strict bool
}

// Aggregator is the core of one data centre's regional: the child of global
// and the parent of its edges. It keeps the head-count of the data centre and
// divides its permits among the edges.
//
// Invariant, per room: sessions that may be valid anywhere and were admitted
// here, and unspent permits of edges, and free ones, sum to no more than the
// permits of the data centre. In every doubt it counts too many.
type Aggregator struct {
	cfg   Config
	until fleettime.Mono // own leadership: nothing is sent from here on

	clock  clock
	rooms  rooms      // the books of every room
	roster roster     // which edges there are
	lifecycle  lifecycle      // their states
	stored stored     // the data for a successor
	member membership // of the list of data centres
	up     uplink     // to global

	fencedBy uint64         // term of a successor that exists: nothing is sent any more
	due      fleettime.Mono // of the next Grants
	lastReturn     lastSnapshot         // everywhere for permits to return
}

// New returns the aggregator of a data centre under a new term.
// old is the Durable of the predecessor, read after this term was won;
// the zero Durable if there was none. Until SetLease the aggregator sends
// nothing.
func New(now fleettime.Mono, cfg Config, old wire.Durable) *Aggregator {
	told, site := old.Members, old.Site // a value that is not stored may not be told
	own := old.Version == 0 && cfg.Own.Version > 0 && !cfg.Bootstrap
	if own {
		old = cfg.Own.Clone()
		// A process that did not know everything then cannot know it now.
		own = !slices.ContainsFunc(old.Roster, func(r wire.RosterEntry) bool { return r.Edge == wire.UnknownPast })
		old.LoseTrack()
	}
	a := &Aggregator{cfg: cfg, rooms: rooms{home: wire.HomeOf(cfg.DC), byID: map[room.ID]*roomLedger{}, passed: math.MaxInt64}, stored: stored{durable: old.Clone()}, clock: clock{started: now}, due: now}
	a.clock.restore(now, cfg.Time)
	a.stored.durable.Version++
	a.member = membership{dc: cfg.DC, freshID: cfg.Site, stored: &a.stored}
	a.up.seen = old.Promise
	a.stored.members = told
	switch {
	case site != 0:
		a.stored.durable.Site, a.stored.site = site, site
	case old.Site != 0: // as this process remembers it
		a.stored.siteNeeds = a.stored.durable.Version
	case cfg.Known != 0:
		a.stored.setSite(cfg.Known)
	case old.Version > 0 || cfg.Bootstrap:
		a.member.makeSite(old.Version == 0)
	}
	a.rooms.pastLife = old.Life
	// The predecessor and its edges may have gone on for a while.
	a.rooms.pastTill = now.Add(fleettime.Stretch(time.Duration(a.rooms.pastLife)*time.Second + time.Minute))
	a.up.params, a.up.blank = cfg.Params, true
	a.roster.ownTerm, a.roster.strict = cfg.OwnTerm, cfg.Strict
	a.lifecycle = newLifecycle(&registry{params: cfg.Params, rooms: &a.rooms, roster: &a.roster, stored: &a.stored, clock: &a.clock}, cfg.compactAbove())
	if a.lifecycle.movedIn = old.MovedIn; old.Version == 0 && cfg.Bootstrap {
		a.lifecycle.movedIn, a.stored.durable.MovedIn = 1, 1
	} else if old.MovedIn == 0 {
		a.lifecycle.movedIn = movedInUnknown
	}
	a.roster.bootstrap = old.Version == 0 && cfg.Bootstrap
	if old.Version == 0 && !cfg.Bootstrap {
		// Nothing stored: a new data centre, or a store that lost its memory. It
		// goes on the roster: a successor that finds some edges there must not take
		// them for all there were.
		a.roster.add(wire.UnknownPast, 0).receivedAt = now
		a.stored.durable.LoseTrack()
	}
	a.lifecycle.restore(now, &old, own)
	return a
}

func (c *Config) compactAbove() int {
	if c.CompactAbove > 0 {
		return c.CompactAbove
	}
	return compactAbove
}

// SetRooms replaces the room set. Books of a room that went stay open until
// everything in them has gone back to global.
func (a *Aggregator) SetRooms(now fleettime.Mono, rooms []ledger.RoomConfig) {
	a.rooms.set(now, rooms)
	a.stored.raiseLife(uint32(a.rooms.longestLife(now) / time.Second))
	for _, b := range a.rooms.list {
		for _, e := range a.roster.edges {
			if acc := b.accounts.of(e); acc != nil || e.state == alive {
				b.account(e).markChanged()
			}
		}
	}
	a.up.reportSoon(now, 1)
	a.due = now
}

// SetMembers tells the aggregator of a list of data centres. An older version than
// the newest known changes nothing.
func (a *Aggregator) SetMembers(now fleettime.Mono, m ledger.Members) {
	if m.Version < a.member.list.Version {
		return
	}
	a.member.list = m
	a.stored.setMembers(&m)
	a.up.reportSoon(now, 1)
	a.due = now
	a.rooms.markAllStale()
}

// Durable returns the data for a successor, stored or not.
func (a *Aggregator) Durable() wire.Durable { return a.stored.durable.Clone() }

// SetLease tells until when this aggregator leads its data centre, by its own
// clock. From then on it sends nothing.
func (a *Aggregator) SetLease(until fleettime.Mono) { a.until = until }

// Fenced reports whether a successor has been seen, and a term that it cannot
// be below: the shell is to stop.
func (a *Aggregator) Fenced() (by uint64, fenced bool) { return a.fencedBy, a.fencedBy != 0 }

func (a *Aggregator) leads(now fleettime.Mono) bool {
	return a.fencedBy == 0 && !a.member.rejoins && now < a.until
}

// Unsaved returns the Durable that has to be stored before the aggregator goes on. The shell stores it
// and calls Saved.
func (a *Aggregator) Unsaved() (wire.Durable, bool) {
	return a.stored.unsaved()
}

// Saved tells that version is stored.
func (a *Aggregator) Saved(now fleettime.Mono, version uint64) {
	if version <= a.stored.saved {
		return
	}
	if a.stored.save(version) {
		a.rooms.markAllStale()
	}
	a.lifecycle.activateStored()
	a.due = now
	a.up.reportSoon(now, 1)
}

// snapshot returns how the data centre stands at now.
func (a *Aggregator) snapshot(now fleettime.Mono) *snapshot {
	u := &a.up
	return &snapshot{
		blank: u.blank, recovering: a.roster.recovering(), returning: a.lifecycle.returning, isolated: u.isolated(now), unanswered: u.unanswered(now, unansweredWait),
		leased: u.leased(now), closed: a.member.standing(u) != wire.Listed, life: a.stored.life, since: a.roster.countsSince(), term: a.cfg.Term,
	}
}
