package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/wire"
)

// membership is the operators of the fleet: they change the membership list, and leaders read it.
type membership struct {
	*fleet
	*memberList
	oracle *oracle
	slow   bool // a change of the list reaches most nodes late

	readmitting int64 // until then a data centre is removed and added again
}

// memberList holds all versions of the membership list, and the stored one.
type memberList struct {
	versions []ledger.Members // version n at n-1
	store    int              // stored version
}

// at returns a version.
func (m *memberList) at(version int) ledger.Members { return m.versions[version-1] }

func newMemberList(k *kernel, centres int) *memberList {
	first := ledger.Members{Version: 1}
	for i := range centres {
		first.List = append(first.List, ledger.Member{Name: centreName(i), ClusterID: k.clusterIDOf(int32(i), 0)})
	}
	return &memberList{versions: []ledger.Members{first}, store: 1}
}

// write stores a change of the stored list, as a command does, under a version above all others, since versions
// are never below the date.
func (ms *membership) write(change func(m *ledger.Members)) {
	next := ms.at(ms.store)
	next.List = slices.Clone(next.List)
	next.Version = uint64(len(ms.versions)) + 1
	change(&next)
	ms.versions = append(ms.versions, next)
	ms.store = len(ms.versions)
	ms.publish()
}

// publish sends the stored list to every node, with separate delays, some long.
func (ms *membership) publish() {
	version, slow := ms.store, ms.slow
	delay := func() time.Duration {
		mean := 300 * time.Millisecond
		if (ms.chaos.IntN(3) == 0 || slow) && !ms.calm {
			mean = 5 * time.Second
		}
		return time.Duration(ms.chaos.ExpFloat64() * float64(mean))
	}
	for _, n := range ms.globals.all {
		if !n.gone {
			ms.in(delay(), func() { ms.globals.tell(n, version) })
		}
	}
	for _, n := range ms.centres.aggs {
		if !n.gone {
			ms.in(delay(), func() { ms.centres.tell(n, version) })
		}
	}
}

// tell makes a node read a version of the list. It refuses one older than its own.
func (gs *coordinators) tell(n *globalProc, version int) {
	gs.deliver(&n.proc, func() {
		if version > n.members {
			n.members = version
			n.core.SetMembers(n.clock.read(gs.now), gs.list.at(version))
			gs.wake(n)
		}
	})
}

func (cs *centres) tell(n *regionProc, version int) {
	r := n.centre
	if until := max(r.cutUp, r.cutDown); until > cs.now { // the store is unreachable too
		cs.in(time.Duration(until-cs.now), func() { cs.tell(n, version) })
		return
	}
	cs.deliver(&n.proc, func() {
		if version > n.members {
			n.members = version
			r.members = max(r.members, version)
			n.core.SetMembers(n.clock.read(cs.now), cs.list.at(version))
			cs.store(n)
			cs.wake(n)
		}
	})
}

// listed returns the data centres of the stored list, and those that do not drain.
func (ms *membership) listed() (all, active []int) {
	list := ms.at(ms.store)
	for i, r := range ms.centres.all[:ms.cfg.Centres] {
		switch list.Standing(r.name, 0) {
		case wire.Listed:
			all, active = append(all, i), append(active, i)
		case wire.Draining:
			all = append(all, i)
		case wire.Unlisted:
		}
	}
	return all, active
}

// drain drains a data centre, unless it is the last.
func (ms *membership) drain(i int) bool {
	if _, active := ms.listed(); len(active) < 2 || !slices.Contains(active, i) {
		return false
	}
	ms.tracef("#%d %s is to drain, by version %d of the list", ms.telling, centreName(i), len(ms.versions)+1)
	ms.write(func(m *ledger.Members) {
		m.List[memberNamed(m, centreName(i))].Draining = true
	})
	return true
}

// add adds an unlisted data centre, or cancels a drain.
func (ms *membership) add(i int) bool {
	_, active := ms.listed()
	if slices.Contains(active, i) {
		return false
	}
	version := uint64(len(ms.versions)) + 1
	ms.tracef("#%d %s is added, by version %d of the list", ms.telling, centreName(i), version)
	ms.write(func(m *ledger.Members) {
		k := memberNamed(m, centreName(i))
		switch {
		case k < 0:
			m.List = append(m.List, ledger.Member{Name: centreName(i), Since: version})
		case m.List[k].Removed:
			m.List[k].Removed, m.List[k].Since = false, version
		default:
			m.List[k].Draining = false
		}
	})
	return true
}

// readmit is a fault: a data centre is removed by force and added again, often while it is cut off, and coordinators and
// aggregators are replaced before, between and after.
func (ms *membership) readmit(f *fault) {
	i := f.who % ms.cfg.Centres
	r, rng := ms.centres.all[i], rand.New(rand.NewPCG(ms.cfg.Seed, uint64(f.number)<<8|0x7265))
	span := time.Duration(5+rng.IntN(110)) * time.Second
	at := func() time.Duration { return time.Duration(rng.Int64N(int64(span))) }
	does := func(after time.Duration, what func()) {
		ms.in(after, func() {
			if !ms.calm && !r.lost && ms.store == len(ms.versions) {
				what()
			}
		})
	}
	if ms.now < ms.readmitting { // whether the data centre is away must be known
		return
	}
	ms.readmitting = ms.now + int64(2*span)
	cut := rng.IntN(3) > 0
	if cut {
		begin, end := at()/4, span/4+at()
		ms.in(begin, func() {
			if ms.calm {
				return
			}
			long := fault{number: f.number, last: end, up: true, down: true}
			ms.tracef("#%d %s is cut off for %v", f.number, r.name, end)
			ms.cut(&long, &r.cutUp, &r.cutDown)
		})
	}
	remove := at() / 2
	does(remove, func() { ms.remove(i, true, cut || ms.cfg.Faults.cutsCentres()) })
	does(remove+at(), func() { ms.add(i) })
	for range rng.IntN(3) {
		does(at(), func() { ms.globals.crashLeader(f) })
	}
	if rng.IntN(4) == 0 {
		does(at(), func() { ms.centres.crashLeader(&fault{number: f.number, who: i, last: f.last, after: f.after}) })
	}
}

// remove removes a data centre from the list. forsaken means by force, with permits outstanding: under serve its sessions
// may then exceed T if it is out of reach, and the oracle ignores them until it was reachable for long.
func (ms *membership) remove(i int, forsaken, away bool) {
	all, active := ms.listed()
	if !slices.Contains(all, i) || (forsaken && (len(active) < 2 || !slices.Contains(active, i))) {
		return
	}
	ms.tracef("#%d %s is taken off, by version %d of the list (by force: %v)", ms.telling, centreName(i),
		len(ms.versions)+1, forsaken)
	if forsaken && away && !ms.cfg.Cap {
		for k, r := range ms.centres.all { // a copy may be the listed one
			if r.name == centreName(i) {
				ms.oracle.forsake(k)
				r.removed = len(ms.versions) + 1
				for _, e := range r.edges {
					e.back = false
				}
			}
		}
	}
	ms.write(func(m *ledger.Members) {
		k := memberNamed(m, centreName(i))
		if forsaken {
			m.List[k].Draining, m.List[k].Removed = false, true
			return
		}
		m.List = slices.Delete(m.List, k, k+1)
	})
}

func memberNamed(m *ledger.Members, name string) int {
	return slices.IndexFunc(m.List, func(o ledger.Member) bool { return o.Name == name })
}

// tend does the work of the leader's shell: it removes drained data centres, stores proven cluster IDs, and ends
// the waits for data centres removed by force.
func (ms *membership) tend(n *globalProc) {
	if n != ms.globals.newest() || n.members != ms.store {
		return
	}
	known := n.core.Census(n.clock.read(ms.now))
	for _, name := range known.Drained {
		ms.telling = 0
		ms.remove(slices.IndexFunc(ms.centres.all, func(r *dataCentre) bool { return r.name == name }), false, false)
	}
	if len(known.Drained) > 0 {
		known = n.core.Census(n.clock.read(ms.now))
	}
	if proofs := known.Enrolled; len(proofs) > 0 && n.members == ms.store {
		for _, p := range proofs {
			ms.tracef("the list holds the cluster ID of %s", p.Name)
		}
		ms.write(func(m *ledger.Members) {
			for _, p := range proofs {
				k := memberNamed(m, p.Name)
				m.List[k].ClusterID, m.List[k].Since = p.ClusterID, m.Version
			}
		})
	}
	if names := known.Released; len(names) > 0 && n.members == ms.store {
		ms.tracef("nobody waits any more for %v, removed by force", names)
		ms.write(func(m *ledger.Members) {
			m.List = slices.DeleteFunc(m.List, func(o ledger.Member) bool { return o.Removed && slices.Contains(names, o.Name) })
		})
	}
}

// forsakeOften returns the probability that a change of the list is a forced removal.
func (ms *membership) forsakeOften() float64 {
	switch {
	case !ms.cfg.Faults.Forsake:
		return 0
	case !ms.cfg.Faults.cutsCentres():
		return 0.4
	}
	return 0.1
}

// change is a fault: the list changes.
func (ms *membership) change(f *fault) {
	i := f.who % ms.cfg.Centres
	switch {
	case ms.store != len(ms.versions): // the commands refuse a store that was rolled back
	case f.x < ms.forsakeOften() && !ms.centres.all[i].lost:
		ms.remove(i, true, ms.cfg.Faults.cutsCentres())
	case f.x < 0.55:
		_ = ms.drain(i) || ms.add(i)
	default:
		for k := range ms.cfg.Centres {
			if ms.add((i + k) % ms.cfg.Centres) {
				return
			}
		}
		ms.drain(i)
	}
}

// oldLeader is a fault: the coordinator crashes, and its successor uses an older list for a while, like a candidate
// with a restored store. In half of the cases a data centre was added just before, unknown to most nodes.
func (ms *membership) oldLeader(f *fault) {
	if f.x < 0.5 && !f.alone {
		soon := *f
		soon.x, soon.y = 1, f.y/2
		before := ms.store
		ms.slow = true
		ms.change(&fault{who: f.who, x: 1})
		ms.slow = false
		if ms.store > before {
			ms.in(time.Second+time.Duration(f.y*float64(2*time.Second)), func() {
				if !ms.calm {
					ms.oldLeader(&soon)
				}
			})
			return
		}
	}
	if ms.globals.newest().gone {
		return
	}
	version := len(ms.versions) - f.other%3
	ms.globals.older, ms.globals.olderFor = max(1, version), f.last
	ms.tracef("#%d the next coordinator goes by version %d of the list", f.number, ms.globals.older)
	ms.globals.crashLeader(f)
}

// rollBack is a fault: the store is rolled back to an older list for a while. Nodes with a newer one refuse it.
func (ms *membership) rollBack(f *fault) {
	old := max(1, ms.store-1-f.other%2)
	if old == ms.store {
		return
	}
	lost := ms.store
	ms.tracef("#%d the store comes back with version %d of the list for %v", f.number, old, f.last)
	ms.store = old
	ms.in(f.last, func() {
		if ms.store == old {
			ms.tracef("the store is given back version %d of the list", lost)
			ms.store = lost
			ms.publish()
		}
	})
}

// mend lists every remaining data centre.
func (ms *membership) mend() {
	ms.store = len(ms.versions)
	for i, r := range ms.centres.all[:ms.cfg.Centres] {
		if !r.lost {
			ms.telling = 0
			ms.add(i)
		}
	}
	ms.publish()
}

// clusterIDOf returns the cluster ID that an aggregator creates if it knows none.
func (k *kernel) clusterIDOf(i int32, aggregator int) uint64 {
	return rand.New(rand.NewPCG(k.cfg.Seed^uint64(i+1)<<32, uint64(aggregator))).Uint64() | 1
}

// mostCopies bounds the number of copied data centres at a time.
const mostCopies = 2

// copyCentre is a fault: the configuration of a data centre is used for another one, with its names, on a separate
// NATS. It ends with the fault. A list without the cluster ID of that data centre cannot tell the copy from the
// original.
func (ms *membership) copyCentre(f *fault) {
	i := f.who % ms.cfg.Centres
	r, list := ms.centres.all[i], ms.at(ms.store)
	k := memberNamed(&list, r.name)
	if r.lost || ms.centres.copies >= mostCopies || !list.Has(r.name, 0) || list.List[k].ClusterID == 0 {
		return
	}
	ms.centres.copies++
	c := &dataCentre{id: int32(len(ms.centres.all)), name: r.name, copied: true, members: ms.store}
	if f.other%3 > 0 { // its terms are of a later date; else of an earlier one
		c.before = r.newest().term + uint64(f.other%2)
	}
	ms.centres.all = append(ms.centres.all, c)
	ms.oracle.add(r.name)
	ms.tracef("#%d %s is copied, for %v (bootstrap %v, terms from %d)", f.number, r.name, f.last, f.x < 0.5, c.before+1)
	ms.centres.start(c, f.x < 0.5)
	for k := range 1 + f.other%2 {
		ms.edges.add(c, fmt.Sprintf("edge%d", k+1), fleettime.Lives{}, false)
	}
	ms.in(f.last, func() { ms.centres.endCopy(c) })
}

// endCopy ends a copied data centre.
func (cs *centres) endCopy(c *dataCentre) {
	if c.lost {
		return
	}
	cs.tracef("the copy of %s ends", c.name)
	cs.copies--
	c.lost = true
	for _, n := range c.procs {
		n.gone = true
	}
	cs.telling = 0
	for _, n := range c.edges {
		cs.edges.crash(n, 0, true)
	}
}

// rejoinAfter is the time from the start of a leader until an operator confirms its data centre as the listed one.
const rejoinAfter = 20 * time.Second

// rejoin is the operator's reaction to a data centre that lost its store and all nodes that knew its cluster ID.
func (cs *centres) rejoin(r *dataCentre) {
	n := r.newest()
	if r.copied || r.lost || n.gone || n.asleep > cs.now || r.failing > cs.now || cs.otherListed(r, n) ||
		n.core.Rejoin() != nil {
		return
	}
	cs.tracef("%s is said to be the data centre of the list", r.name)
	cs.rejoined = cs.now
	r.stored, n.gone = n.core.Durable(), true
	// Terms are dates: a new one exceeds all earlier ones of this name.
	for _, o := range cs.all {
		if o.name == r.name && o != r {
			r.before = max(r.before, o.newest().term)
		}
	}
	cs.start(r, false)
}

// otherListed reports whether the listed data centre of this name lives, and is another one.
func (cs *centres) otherListed(r *dataCentre, n *regionProc) bool {
	list := cs.list.at(n.members)
	k := memberNamed(&list, r.name)
	return k >= 0 && slices.ContainsFunc(cs.all, func(o *dataCentre) bool {
		return o != r && !o.lost && o.name == r.name && o.stored.ClusterID == list.List[k].ClusterID
	})
}
