package sim

import (
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/ledger/root"
	"vestibule/internal/core/wire"
)

// coordinators are all coordinators ever.
type coordinators struct {
	*base
	edges   *edges
	centres *centres

	all     []*globalProc // the last is the newest
	lease   uint64        // highest term in the lease
	pending int           // coordinators about to begin
	rolled  uint64        // next term after a rollback of the lease; 0 for one above all

	// The next coordinator.
	again    *proc         // its machine; nil for a new one
	older    int           // version of its membership list; 0 for the stored one
	olderFor time.Duration // until then

	tend func(n *globalProc) // does the work of a coordinator's shell on the documents
}

// globalProc is one process that leads, or believes that it leads.
type globalProc struct {
	proc
	id    int32
	term  uint64
	nonce uint64
	began int64
	roomSet
	writing uint64 // release that it is about to claim
	members int    // version of its membership list
	core    *root.Allocator
}

// newest returns the coordinator with the highest term.
func (gs *coordinators) newest() *globalProc { return gs.all[len(gs.all)-1] }

// start starts a leading coordinator, with a term above all in its lease.
func (gs *coordinators) start(bootstrap bool) {
	names, version, i := []string{}, gs.list.store, int32(len(gs.all))
	if gs.older > 0 {
		version, gs.older = gs.older, 0
		newest := gs.list.store
		gs.in(gs.olderFor, func() { gs.tell(gs.all[i], newest) })
	}
	for _, m := range gs.list.at(version).List {
		if !m.Removed {
			names = append(names, m.Name)
		}
	}
	// Terms count up from the newest in the lease. A lease restored from a backup may lack some.
	term := gs.lease + 1
	if gs.rolled > 0 {
		term, gs.rolled = gs.rolled, 0
	}
	gs.lease = term
	n := &globalProc{id: i, term: term, began: gs.now, roomSet: roomSet{edition: gs.doc.edition}, members: version}
	if !bootstrap {
		n.offset = gs.cfg.Faults.wall(gs.chaos)
	}
	gs.newMachine(&n.proc, &gs.again)
	n.nonce = gs.rng.Uint64()
	n.read = func(look bool) { gs.read(n, look) }
	n.known = func() fleettime.Known { return n.core.Known(n.clock.read(gs.now)) }
	n.run = func() { gs.run(n) }
	n.core = root.New(n.clock.read(gs.now), root.Config{
		Time: gs.remembers(&n.proc),
		Term: wire.Term{N: term, Nonce: n.nonce}, Centres: names, Params: gs.cfg.Params, Bootstrap: bootstrap,
	})
	n.core.SetLease(fleettime.Never)
	n.told = gs.rooms(n)
	n.core.SetRooms(n.clock.read(gs.now), n.told)
	gs.all = append(gs.all, n)
	n.core.SetMembers(n.clock.read(gs.now), gs.list.at(version))
	gs.wake(n)
}

// rooms returns the room set as read by a coordinator.
func (gs *coordinators) rooms(n *globalProc) []ledger.RoomConfig {
	return gs.doc.ledgerRooms(n.core.Clock(n.clock.read(gs.now), gs.fleetTime().Add(n.offset)))
}

// read makes a node read a newer room set; look makes it look at the clock, and read the present one again if a new
// phase has begun by it.
func (gs *coordinators) read(n *globalProc, look bool) {
	gs.deliver(&n.proc, func() {
		if rooms := gs.rooms(n); n.take(gs.doc.edition, rooms, look) {
			n.core.SetRooms(n.clock.read(gs.now), rooms)
			gs.wake(n)
		}
	})
}

func (gs *coordinators) wake(n *globalProc) {
	gs.due(&n.proc, n.core.GrantsDue())
}

func (gs *coordinators) run(n *globalProc) {
	if n.gone {
		return
	}
	if by, fenced := n.core.Fenced(); fenced {
		gs.tracef("the coordinator of term %d has seen term %d and stops", n.term, by)
		n.gone = true
		// Its lease was older than the fleet: the next candidate knows better.
		gs.lease = max(gs.lease, by)
		if n == gs.newest() && gs.pending == 0 {
			gs.pending++
			gs.succeed(gs.takeover(), "the coordinator", gs.next)
		}
		return
	}
	gs.rootMoved = true
	now := n.clock.read(gs.now)
	if n.offset != 0 && n.core.Time(now) == 0 && !gs.timeKnown() {
		n.offset = 0 // the whole fleet starts anew: then the machine's clock has to be right
	}
	unknown := n.core.Time(now) == 0
	n.core.SetTime(now, gs.fleetTime().Add(n.offset))
	if t := n.core.Time(now); unknown && (t > gs.fleetTime().Add(time.Second) || t < gs.fleetTime().Add(-time.Second)) &&
		t != 0 {
		gs.tracef("coordinator %d hears nobody who knows the time, and goes by its own clock, %v off", n.id+1,
			t.Sub(gs.fleetTime()))
		gs.guess = true
	}
	if n.core.GrantsDue() <= now {
		grants := n.core.Grants(now)
		for m := range grants {
			g := &grants[m]
			for k, r := range gs.centres.all {
				if r.name == g.To {
					gs.cfg.Faults.vague(g, k)
					send(gs.net, g, gs.cfg.Network.WAN, r.cutDown, func(g *wire.Grant) { gs.centres.takeGrant(n, r, g) })
				}
			}
		}
	}
	gs.tend(n)
	gs.wake(n)
}

// timeKnown reports whether any node that could tell a new coordinator knows fleet time: an aggregator, or an edge
// connected to its aggregator. Disconnected data centres count: they report later, and may receive a guess until then.
func (gs *coordinators) timeKnown() bool {
	for _, r := range gs.centres.all {
		if n := r.newest(); !n.gone && n.asleep <= gs.now && n.core.Synced(n.clock.read(gs.now)) {
			return true
		}
	}
	for _, n := range gs.edges.all {
		if up := n.centre.newest(); !up.gone && up.asleep <= gs.now && n.synced && gs.edges.connected(n) {
			return true
		}
	}
	return false
}

// takeReport delivers the report of an aggregator to the coordinators.
func (gs *coordinators) takeReport(from *regionProc, m *wire.Report) {
	for _, n := range gs.all {
		if n.gone {
			continue
		}
		gs.net.pass(&from.proc, &n.proc, func() {
			n.core.Observe(n.clock.read(gs.now), *m)
			gs.answer(&n.proc)
		})
	}
}

// next starts the next coordinator.
func (gs *coordinators) next() bool {
	gs.pending--
	gs.start(false)
	return true
}

// crashLeader ends the leading coordinator; another one takes over.
func (gs *coordinators) crashLeader(f *fault) {
	if n := gs.newest(); !n.gone {
		gs.pending++
		gs.replace(f, &n.proc, n.core, "the coordinator", gs.next)
	}
}
