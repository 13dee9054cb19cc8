package root

import (
	"cmp"
	"math"
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/wire"
)

// centres are the data centres that a coordinator knows: those of the list, and others that were heard
// beside it. They identify data centres, know which are heard, and decide how far each may be lent to.
// The permits that a data centre holds of a room are in the pool of that room.
//
// Invariants: name and cluster ID identify at most one; the version of the list and counted only grow.
type centres struct {
	cfg       *Config
	all       []*centre      // by name; of one name the oldest comes first
	members   uint64         // version of the list in use
	started   fleettime.Mono // of the term
	bootstrap bool           // nothing was ever lent: the operator says so, and no report differs
	counted   bool           // the ledger was complete in this term, and permits were lent by it
}

// centreTime is the time that a data centre reports.
type centreTime struct {
	probes []ledger.Probe // grants sent while the coordinator could learn the time
	trips  ledger.Trips   // of their answers
	other  bool           // its fleet time differs
	known  bool           // it knows fleet time
	bound  time.Duration
}

// centre is the record of one data centre. Its loans are in the pools.
type centre struct {
	name string

	// Its newest report; Observe writes them. A new aggregator begins parts and acked anew.
	instance uint64 // term of its aggregator; never falls: a report of a lower one is ignored
	parts    wire.Parts
	recv     fleettime.Mono // arrival; the time of its addition before the first
	echo     fleettime.Mono // Sent
	heard    bool           // it has reported in this term; never cleared
	before   time.Duration  // its silence in earlier terms, from RecallSilence; 0 once it is heard
	counting fleettime.Time // since when its edges count waiting visitors; 0 for unknown
	leaving  bool           // its aggregator is shutting down
	stored   uint64         // newest version of the list that is stored for it
	promise  bool           // it has yet to promise to follow this term
	reads    wire.Reader

	membership wire.Membership // under which its ledger was adopted; 0 for unknown
	renewed    wire.Membership // the one for which this coordinator voided its permits
	uses       bool            // it has yet to report what it uses of them: until then, the ledger is not complete
	time       centreTime      // written by the clock

	// Its newest report under this term.
	acked      uint64 // newest grant that it has applied
	blank      bool   // its aggregator has no ledger: reported permits do not count
	recovering bool   // its aggregator awaits edges, and can do nothing with more permits yet

	// Its ledger. Both are set once.
	adopted bool // known in this term; its reports count from then on
	void    bool // it begins in this term: the permits that it held before were lent to others

	// As the list of data centres has it; SetMembers writes them.
	listed   bool
	draining bool   // it is to leave the list
	removed  bool   // by force: it is in the list as removed, and may hold permits
	since    uint64 // version of the list that added it, or its cluster ID; kept while it is removed by force
	recorded uint64 // its cluster ID; 0 for unknown

	clusterID uint64 // recorded, or reported while that is unknown; 0 for unknown

	// The next grant; grant clears due and push.
	grantSeq uint64 // of the newest grant
	due      bool   // a report is unanswered
	push     bool   // a change cannot wait for the next report
	dropping int    // its loans in rooms that it has to drop
}

// standing returns the data centre's membership state.
func (d *centre) standing() wire.Standing {
	switch {
	case d.draining, d.removed:
		return wire.Draining
	case !d.listed, d.since != 0 && d.clusterID != d.recorded: // it was lent nothing yet as a member
		return wire.Unlisted
	}
	return wire.Listed
}

// named returns the membership of a data centre by the list in use, once the list has its cluster ID; 0 for unknown.
func (d *centre) named() wire.Membership {
	if !d.listed && !d.removed || d.clusterID != d.recorded {
		return 0
	}
	return wire.Membership(d.since + 1)
}

// readmitted reports whether a data centre was removed from the list and added again since its ledger was adopted. What
// it holds from before may be lent to others, whoever leads.
func (d *centre) readmitted() bool { return d.membership != 0 && d.membership < d.named() }

// reported reports whether a data centre has reported its permits in this term.
func (d *centre) reported() bool { return d.adopted && !d.blank && !d.recovering && !d.promise }

// silence returns the time since its last report, in this term and in earlier ones that are known.
func (d *centre) silence(now fleettime.Mono) time.Duration { return d.before + now.Sub(d.recv) }

// search returns where the data centres of a name begin.
func (c *centres) search(name string) (i int, ok bool) {
	return slices.BinarySearchFunc(c.all, name, func(d *centre, name string) int { return cmp.Compare(d.name, name) })
}

// add takes up a data centre, which was heard no later than now.
func (c *centres) add(now fleettime.Mono, name string) *centre {
	d := &centre{name: name, recv: now}
	i, _ := c.search(name)
	c.all = slices.Insert(c.all, i+len(c.named(name)), d)
	return d
}

// of returns the data centre with a name and cluster ID; nil for none. A member is added to the list by its name alone,
// so an ID that is not known, here or there, stands for the member.
func (c *centres) of(name string, clusterID uint64) *centre {
	var best *centre
	for _, d := range c.named(name) {
		switch {
		case clusterID != 0 && d.clusterID == clusterID:
			return d
		case (clusterID == 0 || d.clusterID == 0) && (best == nil || d.listed):
			best = d
		}
	}
	return best
}

// awaitsClusterID reports whether a member reports a cluster ID that is not in the list yet: it may be a copy of the
// data centre whose ledger is awaited, so nothing is lent to it.
func (c *centres) awaitsClusterID(d *centre) bool {
	return c.members != 0 && d.listed && d.clusterID != d.recorded
}

// unknown reports whether a data centre has yet to report its permits. Nothing was lent to a copy.
func (c *centres) unknown(d *centre) bool {
	return !d.adopted && !d.void && (!c.bootstrap || d.heard) && !c.isCopy(d)
}

// hasBegun reports whether a data centre was lent permits before, or knows a list of data centres that
// this coordinator does not know, as it tells on joining.
func (c *centres) hasBegun(m *wire.Report) bool {
	return (m.Members > 0 && c.members == 0) ||
		slices.ContainsFunc(m.Rooms, func(r wire.RoomReport) bool { return r.Permits.Sessions.Granted > 0 || r.Active > 0 })
}

// isEntered reports whether a coordinator with a list without d would learn of a newer one before it
// took its ledger for complete.
func (c *centres) isEntered(now fleettime.Mono, d *centre) bool {
	if d.since == 0 {
		return true
	}
	older, know := 0, 0
	for _, o := range c.all {
		if o == d || !o.listed {
			continue
		}
		if o.since < d.since {
			older++
		}
		switch {
		case o.stored < d.since && o.heard && now.Sub(o.recv) < c.cfg.Params.RegionalLease:
			return false
		case o.stored >= d.since && o.since < d.since:
			know++
		}
	}
	return 2*know >= older
}

// firstViewWait is the time in which a new leader sends no views while data centres have yet to report
// their waiting visitors: the views of its predecessor know more.
const firstViewWait = 2 * time.Second

// awaitsWaiting reports whether a new leader must still wait for reports of waiting visitors before its first view.
func (c *centres) awaitsWaiting(now fleettime.Mono) bool {
	return !c.bootstrap && now.Sub(c.started) < firstViewWait &&
		slices.ContainsFunc(c.all, func(d *centre) bool { return d.listed && !d.reported() })
}

// countsSince returns since when waiting visitors have been counted in every data centre that is heard; 0 for unknown.
func (c *centres) countsSince() fleettime.Time {
	since := fleettime.Time(math.MaxInt64)
	for _, d := range c.all {
		if d.heard && d.reported() {
			since = min(since, d.counting)
		}
	}
	if since == math.MaxInt64 {
		return 0
	}
	return since
}

// alone reports whether a data centre has been silent for as long as a new leader waits for a child that
// knows the time, while others were heard. Silence of all may be the coordinator's own isolation.
func (c *centres) alone(now fleettime.Mono, d *centre) bool {
	return now.Sub(d.recv) >= ledger.TimeWait &&
		slices.ContainsFunc(c.all, func(o *centre) bool { return now.Sub(o.recv) < ledger.TimeWait })
}

// othersHeard reports whether any other data centre was heard lately: silence
// of all is our own isolation.
func (c *centres) othersHeard(now fleettime.Mono, d *centre) bool {
	return slices.ContainsFunc(c.all, func(o *centre) bool {
		return o != d && o.heard && now.Sub(o.recv) < c.cfg.Params.RegionalLease
	})
}

// only reports whether a data centre is the only one of the list, which cannot be removed.
func (c *centres) only(name string) bool {
	return !slices.ContainsFunc(c.all, func(d *centre) bool { return d.listed && d.name != name })
}

// outdated reports whether a newer list exists than the one in use: permits that are lent by the newer
// list are not known here.
func (c *centres) outdated() bool {
	newest, _ := c.newest()
	return newest > c.members
}

// newest returns the newest version of the list that a data centre of the list
// reported, and which one did.
func (c *centres) newest() (version uint64, by string) {
	for _, d := range c.all {
		if d.listed && d.stored > version {
			version, by = d.stored, d.name
		}
	}
	return version, by
}

// isCopy reports whether a data centre has the name of a member whose cluster ID is in the list, and another ID.
func (c *centres) isCopy(d *centre) bool {
	return !d.listed && slices.ContainsFunc(c.named(d.name), func(o *centre) bool { return o.listed && o.recorded != 0 })
}

// named returns the data centres of a name.
func (c *centres) named(name string) []*centre {
	i, _ := c.search(name)
	k := i
	for k < len(c.all) && c.all[k].name == name {
		k++
	}
	return c.all[i:k]
}
