package sim

import (
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/ledger/region"
	"vestibule/internal/core/wire"
	"vestibule/internal/lab/mutant"
)

// centres are the data centres, with their stores and aggregators.
type centres struct {
	*base
	edges  *edges
	report func(n *regionProc, m *wire.Report) // delivers a report

	all      []*dataCentre
	aggs     []*regionProc                              // all aggregators ever, by number
	copies   int                                        // copied data centres
	rejoined int64                                      // when an operator last confirmed a data centre as the listed one
	sees     func(n *regionProc, reports []wire.Report) // is called with every report to the coordinator
}

// dataCentre is a data centre: its aggregators, newest last, and its store.
type dataCentre struct {
	id      int32
	name    string
	procs   []*regionProc
	edges   []*edgeNode // all ever
	stored  wire.Durable
	owner   uint64 // term that owns the store
	cutUp   int64  // messages to global are lost until then
	cutDown int64  // messages from global are lost until then
	lost    bool   // it never returns
	members int    // version of the membership list on its disk
	failing int64  // until then no write succeeds, and no leader begins
	copied  bool   // a copy with the name of another one
	before  uint64 // its lease terms begin above this
	again   *proc  // machine of the next aggregator; nil for a new one
	removed int    // version of the list from which it was removed by force
}

// newest returns the aggregator with the highest term.
func (r *dataCentre) newest() *regionProc { return r.procs[len(r.procs)-1] }

type regionProc struct {
	proc
	centre *dataCentre
	term   uint64
	roomSet
	members int // version of its membership list
	core    *region.Aggregator
	writing uint64       // version being written
	kept    wire.Durable // in its data folder: at least the stored one
}

// start starts a leading aggregator: it claims the store, which fences its predecessors, and reads their data.
func (cs *centres) start(r *dataCentre, bootstrap bool) {
	n := &regionProc{
		centre: r, term: r.before + uint64(len(r.procs)) + 1, roomSet: roomSet{edition: cs.doc.edition},
	}
	cs.newMachine(&n.proc, &r.again)
	n.read = func(look bool) { cs.read(n, look) }
	n.known = func() fleettime.Known { return n.core.Known(n.clock.read(cs.now)) }
	n.run = func() { cs.run(n) }
	r.owner = n.term
	if cs.cfg.Faults.Wipe && !bootstrap && !cs.calm && cs.chaos.IntN(3) == 0 {
		cs.tracef("the store of %s is lost", r.name)
		r.stored = wire.Durable{}
	}
	if cs.cfg.Faults.Torn && !bootstrap && !cs.calm && cs.chaos.IntN(3) == 0 {
		cs.tear(r)
	}
	own, ownTerm := cs.ownMemory(r)
	n.core = region.New(n.clock.read(cs.now), region.Config{
		Time: cs.remembers(&n.proc),
		DC:   r.name, Term: wire.Term{N: n.term, Nonce: cs.rng.Uint64()}, Params: cs.cfg.Params, Bootstrap: bootstrap,
		CompactAbove: cs.cfg.GoneAbove, Own: own, OwnTerm: ownTerm,
		ClusterID: cs.clusterIDOf(r.id, len(r.procs)),
	}, r.stored.Clone())
	n.core.SetLease(fleettime.Never)
	n.told = cs.rooms(n)
	n.core.SetRooms(n.clock.read(cs.now), n.told)
	if n.members = max(r.members, 1); bootstrap {
		r.members = 1
	}
	n.core.SetMembers(n.clock.read(cs.now), cs.list.at(n.members))
	r.procs = append(r.procs, n)
	cs.aggs = append(cs.aggs, n)
	cs.in(rejoinAfter, func() { cs.rejoin(r) })
	if n.members < cs.list.store {
		cs.in(time.Duration(cs.chaos.ExpFloat64()*float64(300*time.Millisecond)), func() { cs.tell(n, cs.list.store) })
	}
	cs.store(n)
	cs.wake(n)
}

// ownMemory returns the memory of the next leader of a data centre with an empty store: often it has led there before,
// in this process or in one that was killed, whose data folder has the promises that it was storing.
func (cs *centres) ownMemory(r *dataCentre) (wire.Durable, uint64) {
	if r.stored.Version != 0 || len(r.procs) == 0 || cs.chaos.IntN(4) == 0 {
		return wire.Durable{}, 0
	}
	n := r.procs[len(r.procs)-1-cs.chaos.IntN(min(3, len(r.procs)))]
	if n.kept.Version > 0 && cs.chaos.IntN(2) == 0 {
		return n.kept.Clone(), n.term
	}
	return n.core.Durable(), n.term
}

// rooms returns the room set as read by an aggregator: by fleet time if known, else by its machine's clock, which
// is right.
func (cs *centres) rooms(n *regionProc) []ledger.RoomConfig {
	at, known := n.core.Clock(n.clock.read(cs.now))
	if !known {
		at = cs.fleetTime()
	}
	return cs.doc.ledgerRooms(at, 0)
}

func (cs *centres) read(n *regionProc, look bool) {
	cs.deliver(&n.proc, func() {
		if rooms := cs.rooms(n); n.take(cs.doc.edition, rooms, look) {
			n.core.SetRooms(n.clock.read(cs.now), rooms)
			cs.wake(n)
		}
	})
}

func (cs *centres) wake(n *regionProc) {
	cs.due(&n.proc, min(n.core.GrantsDue(), n.core.ReportDue()))
}

// run is the pump of a regional.
func (cs *centres) run(n *regionProc) {
	r := n.centre
	if by, fenced := n.core.Fenced(); fenced {
		cs.tracef("%s: the aggregator of term %d has seen term %d and stops", r.name, n.term, by)
		n.gone = true
		return
	}
	if n.core.Rejoins() && !r.lost {
		cs.tracef("%s goes on under another site", r.name)
		r.stored, n.gone = n.core.Durable(), true
		cs.start(r, false)
		return
	}
	now := n.clock.read(cs.now)
	cs.touch(r.id)
	if n.core.GrantsDue() <= now {
		list := cs.list.at(n.members)
		back := n.members > r.removed && list.Standing(r.name, r.stored.ClusterID) == wire.Listed
		grants := n.core.Grants(now)
		for k := range grants {
			g := &grants[k]
			for _, to := range r.edges { // all edges of the name
				if to.name == g.To && !to.lost {
					send(cs.net, g, cs.cfg.Network.LAN, to.cutDown, func(g *wire.Grant) {
						to.back = back
						cs.edges.takeGrant(n, to, g)
					})
				}
			}
		}
	}
	if n.core.ReportDue() <= now {
		reports := n.core.Report(now)
		cs.sees(n, reports)
		for k := range reports {
			send(cs.net, &reports[k], cs.cfg.Network.WAN, r.cutUp, func(m *wire.Report) { cs.report(n, m) })
		}
	}
	cs.store(n)
	cs.wake(n)
}

// take delivers the report of an edge, or the grant of a coordinator, to the aggregators of a data centre.
func (cs *centres) take(from *proc, r *dataCentre, hear func(core *region.Aggregator, now fleettime.Mono)) {
	for _, n := range r.procs {
		if !n.gone {
			cs.net.pass(from, &n.proc, func() {
				hear(n.core, n.clock.read(cs.now))
				cs.answer(&n.proc)
			})
		}
	}
}

func (cs *centres) takeReport(from *edgeNode, m *wire.Report) {
	cs.take(&from.proc, from.centre, func(core *region.Aggregator, now fleettime.Mono) { core.Observe(now, *m) })
}

func (cs *centres) takeGrant(from *globalProc, r *dataCentre, g *wire.Grant) {
	cs.take(&from.proc, r, func(core *region.Aggregator, now fleettime.Mono) { core.Apply(now, *g) })
}

// store starts to write a regional's promises.
func (cs *centres) store(n *regionProc) {
	if n.writing != 0 || n.gone {
		return
	}
	if d, ok := n.core.Unsaved(); ok {
		cs.write(n, d, int64(time.Millisecond))
	}
}

// write begins to write d, and plans the completion.
func (cs *centres) write(n *regionProc, d wire.Durable, delay int64) {
	if cs.cfg.Network.Encode {
		d = *cs.net.travel(&d).(*wire.Durable)
	}
	n.writing, n.kept = d.Version, d
	delay += cs.rng.Int64N(int64(4*time.Millisecond)) + cs.slowDisk()
	cs.in(time.Duration(delay), func() { cs.takeStored(n, d) })
}

// takeStored completes or refuses a write.
func (cs *centres) takeStored(n *regionProc, d wire.Durable) {
	r := n.centre
	if n.gone && cs.chaos.IntN(2) == 0 {
		return // it died during the write
	}
	if r.owner != n.term && !mutant.On("store-not-fencing") {
		if !n.gone {
			cs.tracef("%s: a write of term %d is refused, it stops", r.name, n.term)
		}
		n.gone = true
		return
	}
	failing := cs.cfg.Faults.Disk && !cs.calm && cs.chaos.IntN(10) == 0
	if r.failing > cs.now {
		failing = true
	} else if !failing || cs.chaos.IntN(2) == 0 { // else it failed, or its success was not reported
		r.stored = d
	}
	if n.gone {
		return
	}
	if failing { // retried with the newest state
		if newer, ok := n.core.Unsaved(); ok {
			d = newer
		}
		cs.write(n, d, int64(50*time.Millisecond))
		return
	}
	n.writing = 0
	n.core.Saved(n.clock.read(cs.now), d.Version)
	cs.store(n)
	cs.wake(n)
}

// next returns a function that starts an aggregator in a data centre as soon as its store is readable.
func (cs *centres) next(r *dataCentre) (next func() bool) {
	return func() bool {
		if r.failing > cs.now { // it cannot open the promises
			cs.succeed(time.Duration(r.failing-cs.now)+time.Second, r.name+"'s aggregator", cs.next(r))
			return false
		}
		if r.lost {
			return false
		}
		cs.start(r, false)
		return true
	}
}

// of returns the data centre of a fault.
func (cs *centres) of(f *fault) *dataCentre { return cs.all[f.who%len(cs.all)] }

// crashLeader ends the leading aggregator of a data centre; another one takes over.
func (cs *centres) crashLeader(f *fault) {
	r := cs.of(f)
	n := r.newest()
	if n.gone || r.lost {
		return
	}
	cs.replace(f, &n.proc, n.core, r.name+"'s aggregator", cs.next(r))
}

// tear makes the store lose sections of dead edges, read back by the same code as in nodes.
func (cs *centres) tear(r *dataCentre) {
	p, torn := wire.Promises{Durable: r.stored.Clone()}, ""
	for i := range p.Durable.Roster {
		if e := &p.Durable.Roster[i]; len(e.Rooms) > 0 && cs.chaos.IntN(2) == 0 {
			e.Rooms, torn = nil, e.Edge
		}
	}
	if torn != "" {
		cs.tracef("the store of %s loses what it held of %s, and maybe others", r.name, torn)
		p.Lose()
		r.stored = p.Durable
	}
}
