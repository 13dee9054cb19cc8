// Package region is the ledger of one data centre. An [Aggregator] borrows permits from the coordinator and lends
// them to its edges.
//
// The roster lists the instances of edges. The lifecycle decides which of them report, are silent or have ended. A
// roomLedger holds the permits and counters of one room. Stored keeps the data that a successor needs. The uplink is
// the session with the coordinator. A snapshot is the state of the data centre at one moment, by which the free
// permits of every room are divided. An Aggregator belongs to one goroutine.
package region

import (
	"fmt"
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

	// Bootstrap asserts that this data centre is new: no edge of it ever admitted a visitor, and nothing was
	// ever stored. Without it, or once an edge contradicts it, an aggregator that finds an empty store waits
	// until every possible session has expired.
	Bootstrap bool

	// Own is the last Durable of this process, or of one before it in its data folder, from its previous term, OwnTerm;
	// the zero Durable for none. It is used only if the store is empty: see recordWitness.
	Own     wire.Durable
	OwnTerm uint64

	// ClusterID is a random number, not 0. It becomes the cluster ID if neither the store nor an edge has one.
	ClusterID uint64

	// Time is fleet time at the start of the term; the zero value for unknown.
	Time fleettime.Known

	// CompactAbove is the number of expiry seconds of departed edges that the roster lists one by one before
	// it sums them; 0 for the default.
	CompactAbove int

	// Strict makes an invalid transition of an edge panic. Tests set it.
	Strict bool
}

// Aggregator is the core of one regional. It is the child of global and the parent of its edges: it counts the
// sessions of the data centre and divides its permits among the edges.
//
// Invariant, per room: the sessions admitted here that may be valid anywhere, the unspent permits of edges and the
// free permits sum to no more than the permits of the data centre. If a number is uncertain, the higher one counts.
type Aggregator struct {
	centre

	// See Begin, which sets beginNeeds once.
	first      bool   // the store was empty at the start of this term; constant
	beginNeeds uint64 // version of the Durable without edges of before; 0 before Begin
	begun      bool   // it is stored, and nothing waits for those edges

	due        fleettime.Mono // of the next Grants; every message and change sets it to now
	lastReturn lastSnapshot   // at the last search for permits to return; written by Report
}

// centre is what an aggregator knows of its data centre. Its methods answer questions and change nothing.
type centre struct {
	cfg Config // constant
	ledger.Leadership

	// Each part writes its own state. The lifecycle also writes the clock, the rooms, the roster and the stored data;
	// the member also writes the stored data.
	clock     clock
	rooms     rooms      // the ledger of every room
	roster    roster     // the instances of edges
	lifecycle lifecycle  // their states
	stored    stored     // the data for a successor
	member    membership // of the list of data centres
	up        uplink     // to global
}

// New returns the aggregator of a data centre for a new term. old is the Durable of the predecessor, read after the
// term was won; the zero Durable for none. Until SetLease the aggregator sends nothing.
func New(now fleettime.Mono, cfg Config, old wire.Durable) *Aggregator {
	members, clusterID, adoptedAs := old.Members, old.ClusterID, old.Membership // only stored values are reported
	own := old.Version == 0 && cfg.Own.Version > 0 && !cfg.Bootstrap
	if own {
		old = cfg.Own.Clone()
		// If the process had an unknown past then, it has one now.
		own = !slices.ContainsFunc(old.Roster, func(r wire.RosterEntry) bool { return r.Edge == wire.UnknownPast })
		old.LoseTrack()
	}
	a := &Aggregator{due: now, first: old.Version == 0, centre: centre{
		cfg: cfg, rooms: rooms{home: wire.HomeOf(cfg.DC), byID: map[room.ID]*roomLedger{}, passed: math.MaxInt64},
		stored: stored{durable: old.Clone()}, clock: clock{started: now},
	}}
	a.clock.restore(now, cfg.Time)
	a.stored.durable.Version++
	a.member = membership{dc: cfg.DC, freshID: cfg.ClusterID, stored: &a.stored}
	a.up.seen = old.Promise
	a.stored.members, a.stored.membership = members, adoptedAs
	if own {
		a.stored.membership = old.Membership // an earlier one costs no more than a while
	}
	switch {
	case clusterID != 0:
		a.stored.durable.ClusterID, a.stored.clusterID = clusterID, clusterID
	case old.ClusterID != 0: // from the memory of this process
		a.stored.clusterIDNeeds = a.stored.durable.Version
	default:
		a.up.standing = wire.Unlisted // until the coordinator or an edge says otherwise: this may be a copy
		if old.Version == 0 && cfg.Bootstrap {
			a.member.makeClusterID()
		}
	}
	a.rooms.pastLife = old.Life
	// The predecessor and its edges may have continued for a while.
	a.rooms.pastTill = now.Add(fleettime.Stretch(time.Duration(a.rooms.pastLife)*time.Second + time.Minute))
	a.rooms.moverEdge = func() *edge { return a.roster.movesEdge(now) }
	a.rooms.lostStore = (own || old.Version == 0) && !cfg.Bootstrap
	a.rooms.recall(&old)
	a.up.params, a.up.blank = cfg.Params, true
	a.roster.ownTerm, a.roster.strict = cfg.OwnTerm, cfg.Strict
	reg := &registry{params: cfg.Params, rooms: &a.rooms, roster: &a.roster, stored: &a.stored, clock: &a.clock}
	a.lifecycle = newLifecycle(reg, cfg.compactAbove())
	if a.lifecycle.movedIn = old.MovedIn; old.Version == 0 && cfg.Bootstrap {
		a.lifecycle.movedIn, a.stored.durable.MovedIn = 1, 1
	} else if old.MovedIn == 0 {
		a.lifecycle.movedIn = movedInUnknown
	}
	a.roster.bootstrap = old.Version == 0 && cfg.Bootstrap
	if old.Version == 0 && !cfg.Bootstrap {
		// The store is empty: the data centre is new, or the store lost its data. The roster records that,
		// so that a successor does not take the listed edges for all edges.
		a.roster.add(wire.UnknownPast, 0).receivedAt = now
		a.stored.durable.LoseTrack()
	}
	a.lifecycle.restore(now, &old, own)
	a.lifecycle.recallCeilings(&old)
	return a
}

func (c *Config) compactAbove() int {
	if c.CompactAbove > 0 {
		return c.CompactAbove
	}
	return compactAbove
}

// SetRooms replaces the room set. The ledger of a removed room stays until its edges and global have dropped the room.
func (a *Aggregator) SetRooms(now fleettime.Mono, rooms []ledger.RoomConfig) {
	a.rooms.set(now, rooms)
	a.stored.raiseLife(uint32(a.rooms.longestLife(now) / time.Second))
	for _, b := range a.rooms.list {
		for _, e := range a.roster.edges {
			if acc := e.account(b.ID); acc != nil || e.state == alive && !b.gone {
				b.account(e).markChanged()
			}
		}
	}
	a.up.reportSoon(now, 1)
	a.due = now
}

// SetMembers sets the list of data centres. A list older than the current one is ignored.
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

func (c *centre) leads(now fleettime.Mono) bool {
	return !c.member.rejoins && c.Leads(now)
}

// snapshot returns the state of the data centre at now.
func (c *centre) snapshot(now fleettime.Mono) *snapshot {
	u := &c.up
	return &snapshot{
		blank: u.blank, recovering: c.roster.recovering(), returning: c.lifecycle.returning, isolated: u.isolated(now),
		unanswered: u.unanswered(now, unansweredWait), leased: u.leased(now), closed: c.member.standing(u) != wire.Listed,
		life: c.stored.life, since: c.roster.countsSince(), term: c.cfg.Term,
	}
}

// Rejoin declares on an operator's word that this data centre is the listed one: its store was lost, with all edges
// that knew its cluster ID. Once the result of Unsaved is stored, the shell leads anew: see Rejoins.
func (a *Aggregator) Rejoin() error {
	if !a.member.isCopy() {
		return fmt.Errorf("data centre %s: %w", a.cfg.DC, ErrNoCopy)
	}
	a.member.rejoin(a.member.list.ClusterID(a.cfg.DC))
	return nil
}

// Rejoins reports whether the data centre continues under another cluster ID. This aggregator does nothing any more.
func (a *Aggregator) Rejoins() bool { return a.member.rejoins }
