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

// writeMembers stores a change of the stored list, as a command does, under a version above all others, since versions
// are never below the date.
func (w *World) writeMembers(change func(m *ledger.Members)) {
	next := w.members.at(w.members.store)
	next.List = slices.Clone(next.List)
	next.Version = uint64(len(w.members.versions)) + 1
	change(&next)
	w.members.versions = append(w.members.versions, next)
	w.members.store = len(w.members.versions)
	w.publishMembers()
}

// publishMembers sends the stored list to every node, with separate delays, some long.
func (w *World) publishMembers() {
	version, slow := w.members.store, w.slowDocs
	delay := func() time.Duration {
		mean := 300 * time.Millisecond
		if (w.chaos.IntN(3) == 0 || slow) && !w.calm {
			mean = 5 * time.Second
		}
		return time.Duration(w.chaos.ExpFloat64() * float64(mean))
	}
	for i := range w.globals.all {
		if !w.globals.all[i].gone {
			w.in(delay(), func() { w.globals.tell(int32(i), version) })
		}
	}
	for i := range w.centres.aggs {
		if !w.centres.aggs[i].gone {
			w.in(delay(), func() { w.centres.tell(int32(i), version) })
		}
	}
}

// tell and tellRegion make a node read a version of the list. It refuses one older than its own.
func (gs *coordinators) tell(i int32, version int) {
	n := gs.all[i]
	gs.deliver(&n.proc, func() {
		if version > n.members {
			n.members = version
			n.core.SetMembers(n.clock.read(gs.now), gs.list.at(version))
			gs.wake(i)
		}
	})
}

func (cs *centres) tell(i int32, version int) {
	n := cs.aggs[i]
	r := cs.all[n.region]
	if until := max(r.cutUp, r.cutDown); until > cs.now { // the store is unreachable too
		cs.in(time.Duration(until-cs.now), func() { cs.tell(i, version) })
		return
	}
	cs.deliver(&n.proc, func() {
		if version > n.members {
			n.members = version
			r.members = max(r.members, version)
			n.core.SetMembers(n.clock.read(cs.now), cs.list.at(version))
			cs.store(i)
			cs.wake(i)
		}
	})
}

// listed returns the data centres of the stored list, and those that do not drain.
func (w *World) listed() (all, active []int) {
	list := w.members.at(w.members.store)
	for i, r := range w.centres.all[:w.cfg.Centres] {
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

// drainCentre drains a data centre, unless it is the last.
func (w *World) drainCentre(i int) bool {
	if _, active := w.listed(); len(active) < 2 || !slices.Contains(active, i) {
		return false
	}
	w.tracef("#%d %s is to drain, by version %d of the list", w.telling, centreName(i), len(w.members.versions)+1)
	w.writeMembers(func(m *ledger.Members) {
		m.List[memberNamed(m, centreName(i))].Draining = true
	})
	return true
}

// addCentre adds an unlisted data centre, or cancels a drain.
func (w *World) addCentre(i int) bool {
	_, active := w.listed()
	if slices.Contains(active, i) {
		return false
	}
	version := uint64(len(w.members.versions)) + 1
	w.tracef("#%d %s is added, by version %d of the list", w.telling, centreName(i), version)
	w.writeMembers(func(m *ledger.Members) {
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

// removeCentre removes a data centre from the list. forsaken means by force, with permits outstanding: its sessions may
// then exceed T, and the oracle ignores them until it was reachable for long. Without disconnections they are always
// counted.
func (w *World) removeCentre(i int, forsaken bool) {
	all, active := w.listed()
	if !slices.Contains(all, i) || (forsaken && (len(active) < 2 || !slices.Contains(active, i))) {
		return
	}
	w.tracef("#%d %s is taken off, by version %d of the list (by force: %v)", w.telling, centreName(i), len(w.members.versions)+1, forsaken)
	if forsaken && w.cfg.Faults.cutsCentres() {
		w.oracle.forsake(i)
	}
	w.writeMembers(func(m *ledger.Members) {
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

// tendMembers does the work of the leader's shell: it removes drained data centres, stores proven cluster IDs, and ends
// the waits for data centres removed by force.
func (w *World) tendMembers(n *globalProc) {
	if n != w.globals.newest() || n.members != w.members.store {
		return
	}
	known := n.core.Census(n.clock.read(w.now))
	for _, name := range known.Drained {
		w.telling = 0
		w.removeCentre(slices.IndexFunc(w.centres.all, func(r *dataCentre) bool { return r.name == name }), false)
	}
	if len(known.Drained) > 0 {
		known = n.core.Census(n.clock.read(w.now))
	}
	if proofs := known.Enrolled; len(proofs) > 0 && n.members == w.members.store {
		for _, p := range proofs {
			w.tracef("the list holds the cluster ID of %s", p.Name)
		}
		w.writeMembers(func(m *ledger.Members) {
			for _, p := range proofs {
				k := memberNamed(m, p.Name)
				m.List[k].ClusterID, m.List[k].Since = p.ClusterID, m.Version
			}
		})
	}
	if names := known.Released; len(names) > 0 && n.members == w.members.store {
		w.tracef("nobody waits any more for %v, removed by force", names)
		w.writeMembers(func(m *ledger.Members) {
			m.List = slices.DeleteFunc(m.List, func(o ledger.Member) bool { return o.Removed && slices.Contains(names, o.Name) })
		})
	}
}

// forsakeOften returns the probability that a change of the list is a forced removal.
func (w *World) forsakeOften() float64 {
	switch {
	case !w.cfg.Faults.Forsake:
		return 0
	case !w.cfg.Faults.cutsCentres():
		return 0.4
	}
	return 0.1
}

// changeMembers is a fault: the list changes.
func (w *World) changeMembers(f *fault) {
	i := f.who % w.cfg.Centres
	switch {
	case w.members.store != len(w.members.versions): // the commands refuse a store that was rolled back
	case f.x < w.forsakeOften() && !w.centres.all[i].lost:
		w.removeCentre(i, true)
	case f.x < 0.55:
		_ = w.drainCentre(i) || w.addCentre(i)
	default:
		for k := range w.cfg.Centres {
			if w.addCentre((i + k) % w.cfg.Centres) {
				return
			}
		}
		w.drainCentre(i)
	}
}

// oldLeader is a fault: the coordinator crashes, and its successor uses an older list for a while, like a candidate
// with a restored store. In half of the cases a data centre was added just before, unknown to most nodes.
func (w *World) oldLeader(f *fault) {
	if f.x < 0.5 && !f.alone {
		soon := *f
		soon.x, soon.y = 1, f.y/2
		before := w.members.store
		w.slowDocs = true
		w.changeMembers(&fault{who: f.who, x: 1})
		w.slowDocs = false
		if w.members.store > before {
			w.in(time.Second+time.Duration(f.y*float64(2*time.Second)), func() {
				if !w.calm {
					w.oldLeader(&soon)
				}
			})
			return
		}
	}
	n := w.globals.newest()
	if n.gone {
		return
	}
	version := len(w.members.versions) - f.other%3
	w.globals.older, w.globals.olderFor = max(1, version), f.last
	w.tracef("#%d the next coordinator goes by version %d of the list", f.number, w.globals.older)
	w.globals.pending++
	w.replace(f, &n.proc, n.core, "the coordinator", w.globals.next)
}

// chooseMembers gives a new coordinator its list.
func (gs *coordinators) chooseMembers(i int32) {
	n := gs.all[i]
	version := gs.list.store
	if gs.older > 0 {
		version = gs.older
		gs.older = 0
		newest := gs.list.store
		gs.in(gs.olderFor, func() { gs.tell(i, newest) })
	}
	n.members = version
	n.core.SetMembers(n.clock.read(gs.now), gs.list.at(version))
}

// rollBackMembers is a fault: the store is rolled back to an older list for a while. Nodes with a newer one refuse it.
func (w *World) rollBackMembers(f *fault) {
	old := max(1, w.members.store-1-f.other%2)
	if old == w.members.store {
		return
	}
	lost := w.members.store
	w.tracef("#%d the store comes back with version %d of the list for %v", f.number, old, f.last)
	w.members.store = old
	w.in(f.last, func() {
		if w.members.store == old {
			w.tracef("the store is given back version %d of the list", lost)
			w.members.store = lost
			w.publishMembers()
		}
	})
}

// mendMembers lists every remaining data centre.
func (w *World) mendMembers() {
	w.members.store = len(w.members.versions)
	for i, r := range w.centres.all[:w.cfg.Centres] {
		if !r.lost {
			w.telling = 0
			w.addCentre(i)
		}
	}
	w.publishMembers()
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
func (w *World) copyCentre(f *fault) {
	i := f.who % w.cfg.Centres
	r, list := w.centres.all[i], w.members.at(w.members.store)
	k := memberNamed(&list, r.name)
	if r.lost || w.centres.copies >= mostCopies || !list.Has(r.name, 0) || list.List[k].ClusterID == 0 {
		return
	}
	w.centres.copies++
	c := &dataCentre{name: r.name, copied: true, members: w.members.store}
	if f.other%3 > 0 { // its terms are of a later date; else of an earlier one
		c.before = r.newest().term + uint64(f.other%2)
	}
	n := int32(len(w.centres.all))
	w.centres.all = append(w.centres.all, c)
	w.isTouched = append(w.isTouched, false)
	w.oracle.copied(r.name)
	w.tracef("#%d %s is copied, for %v (bootstrap %v, terms from %d)", f.number, r.name, f.last, f.x < 0.5, c.before+1)
	w.centres.start(n, f.x < 0.5)
	for k := range 1 + f.other%2 {
		w.edges.add(n, c, fmt.Sprintf("edge%d", k+1), fleettime.Lives{}, false)
	}
	w.in(f.last, func() { w.centres.endCopy(n) })
}

// endCopy ends a copied data centre.
func (cs *centres) endCopy(i int32) {
	c := cs.all[i]
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
	for _, k := range c.edges {
		cs.edges.crash(k, 0, true)
	}
}

// rejoinAfter is the time from the start of a leader until an operator confirms its data centre as the listed one.
const rejoinAfter = 20 * time.Second

// rejoin is the operator's reaction to a data centre that lost its store and all nodes that knew its cluster ID.
func (cs *centres) rejoin(i int32) {
	r := cs.all[i]
	n := r.newest()
	if r.copied || r.lost || n.gone || n.asleep > cs.now || r.failing > cs.now || n.core.Rejoin() != nil {
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
	cs.start(i, false)
}
