package sim

import (
	"reflect"
	"slices"
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// edges are the processes of all edges.
type edges struct {
	*base

	all     []*edgeNode // data centre by data centre
	folders uint64      // data folders ever
	renewed int         // edges that replaced others
	twins   int         // additional edges of twins

	report func(n *edgeNode, m *wire.Report)             // delivers a report
	answer func(n *edgeNode, decided []*admission.Visit) // answers long-polled visitors
	hangUp func(n *edgeNode)                             // drops the connections of long-polled visitors
}

type edgeNode struct {
	proc
	id        int32
	name      string
	centre    *dataCentre
	folder    fleettime.Lives // its data folder, which lies at place
	place     fleettime.Place
	ended     admission.Ended // in the folder too
	pasts     pasts           // in the folder too
	edition   uint64
	core      *admission.Engine
	keys      *ticket.Codec // nil if tickets are not sealed
	lost      bool          // for good
	forgotten bool          // declared dead, and silent since
	misjudged bool          // was declared dead while alive
	synced    bool          // knows fleet time in this life: visitors are sent here
	back      bool          // it heard from an aggregator that knows that the data centre is a member again
	cutUp     int64         // messages to the regional are lost until then
	cutDown   int64         // messages from it are lost until then

	told admission.Room // the edge's state of the room
	off  bool           // the room is suspended, as known to the edge

	rules []bypass // the edge's rules of the room
}

func (n *edgeNode) String() string { return n.name + " of " + n.centre.name }

// add adds and starts an edge, in its own data folder, which may be a copy, or on a clone of the machine, which is
// indistinguishable.
func (es *edges) add(centre *dataCentre, name string, folder fleettime.Lives, clone bool) *edgeNode {
	n := &edgeNode{id: int32(len(es.all)), name: name, centre: centre, folder: folder, place: es.newPlace()}
	if clone {
		n.place = folder.Place
	}
	es.newMachine(&n.proc, new(*proc))
	n.read = func(look bool) { es.read(n, look) }
	n.known = func() fleettime.Known { return n.core.Clock.Known(n.clock.read(es.now)) }
	n.run = func() {
		if !n.down {
			es.run(n)
		}
	}
	es.all = append(es.all, n)
	centre.edges = append(centre.edges, n)
	es.start(n)
	return n
}

// newPlace returns the place of a new data folder.
func (es *edges) newPlace() fleettime.Place {
	es.folders++
	return fleettime.Place{Inode: es.folders, Boot: "boot"}
}

// start begins a life of an edge.
func (es *edges) start(n *edgeNode) {
	past, _ := n.folder.Succeed(n.place)
	n.down, n.synced, n.forgotten, n.edition = false, false, false, es.doc.edition
	n.keys = es.keys.newest
	n.core = admission.New(admission.Config{
		Edge: n.name, DC: n.centre.name, Params: es.cfg.Params, Limits: admission.DefaultLimits(), Past: past, Ended: n.ended,
		Rand:   es.fork(),
		Stores: es.cfg.Faults.Pasts,
	})
	n.keep()
	n.settleBefore(es)
	now := n.clock.read(es.now)
	n.core.Clock.Restore(now, es.remembers(&n.proc))
	n.core.Clock.Guess(now, es.fleetTime().Add(es.cfg.Faults.wall(es.chaos)))
	es.tell(n, now)
	es.wake(n)
}

// keep stores the edge's instances in its data folder.
func (n *edgeNode) keep() { n.folder = fleettime.Lives{Place: n.place, Instances: n.core.Instances()} }

// rooms returns the room set as read by an edge.
func (es *edges) rooms(n *edgeNode) []admission.Room {
	if es.doc.removed {
		return nil
	}
	r := admission.RoomOf(es.doc.inForce(n.core.Clock.Time(n.clock.read(es.now)), 0))
	r.Epoch, r.Cap, r.Probation, r.Session = es.doc.epoch, es.cfg.Cap, es.cfg.Probation, es.cfg.Session
	return []admission.Room{r}
}

// tell makes an edge read the room set.
func (es *edges) tell(n *edgeNode, now fleettime.Mono) {
	rooms := es.rooms(n)
	if n.core.SetRooms(now, rooms); len(rooms) == 1 {
		n.told = rooms[0]
	}
	n.off, n.rules = es.doc.suspended && !es.doc.removed, nil
	if !es.doc.removed {
		n.rules = es.compiled(es.doc.inForce(n.core.Clock.Time(now), 0).Rules)
	}
}

func (es *edges) read(n *edgeNode, look bool) {
	es.deliver(&n.proc, func() {
		if n.down || look != (n.edition == es.doc.edition) {
			return
		}
		if rooms := es.rooms(n); look && (len(rooms) == 0 || reflect.DeepEqual(rooms[0], n.told)) {
			return
		}
		n.edition = es.doc.edition
		es.tell(n, n.clock.read(es.now))
		es.release(n)
		es.wake(n)
	})
}

func (es *edges) wake(n *edgeNode) {
	es.due(&n.proc, min(n.core.Due(), n.pastDue()))
}

// run is the pump of an edge: it reports when due.
func (es *edges) run(n *edgeNode) {
	n.runPasts(es)
	now := n.clock.read(es.now)
	if n.core.Due() <= now {
		es.send(n, n.core.Report(now))
		es.touch(n.centre.id)
	}
	es.wake(n)
}

// send sends reports of an edge.
func (es *edges) send(n *edgeNode, reports []wire.Report) {
	for k := range reports {
		send(es.net, &reports[k], es.cfg.Network.LAN, n.cutUp, func(m *wire.Report) { es.report(n, m) })
	}
}

// takeGrant delivers a grant of an aggregator to an edge.
func (es *edges) takeGrant(from *regionProc, n *edgeNode, g *wire.Grant) {
	if n.down {
		return
	}
	es.net.pass(&from.proc, &n.proc, func() {
		if n.down {
			return
		}
		n.core.Apply(n.clock.read(es.now), *g)
		n.applyBefore(n.clock.read(es.now), g)
		n.keep()
		n.synced = n.synced || n.core.Clock.Bound(n.clock.read(es.now)) != fleettime.Unsynced
		es.touch(n.centre.id)
		es.release(n)
		es.run(n)
	})
}

// release answers the long-polled visitors that an edge admits.
func (es *edges) release(n *edgeNode) {
	es.answer(n, n.core.Rooms.Release(n.clock.read(es.now), nil))
}

// connected reports whether an edge runs, and its messages reach the newest aggregator, and back.
func (es *edges) connected(n *edgeNode) bool {
	up := n.centre.newest()
	return !n.down && n.asleep <= es.now && max(n.cutUp, n.cutDown) <= es.now && es.net.meet(&n.proc, &up.proc)
}

// accepted reports whether any edge accepts a ticket.
func (es *edges) accepted(id uint64, home ticket.DC, until uint32) bool {
	t := ticket.Ticket{ID: id, Home: home, Until: until}
	return slices.ContainsFunc(es.all, func(e *edgeNode) bool {
		if e.down || !e.synced {
			return false
		}
		oracle := home
		switch e.core.Rooms.Ended(es.room, t) {
		case wire.Left:
			return false
		case wire.Moved:
			oracle = ticket.Nobody
		case wire.Cleared: // not a revocation
		}
		return t.Valid(e.core.ExpiryTime(e.clock.read(es.now), oracle))
	})
}

// of returns the edge of a fault.
func (es *edges) of(f *fault) *edgeNode { return es.all[f.who%len(es.all)] }

// leave shuts an edge down with a goodbye.
func (es *edges) leave(n *edgeNode) {
	es.tracef("%s ends", n)
	now := n.clock.read(es.now)
	es.answer(n, n.core.Rooms.Drain(now))
	reports := n.core.Leave(now)
	if es.cfg.Faults.Pasts {
		if data := n.snapshot(es); n.pasts.failing <= es.now {
			n.keepPast(es, data)
		}
	}
	es.send(n, reports)
	n.down = true
	n.ended = n.core.Rooms.AllEnded()
}

// crash ends the life of an edge, for a while or for good.
func (es *edges) crash(n *edgeNode, d time.Duration, forever bool) {
	if n.lost || (n.down && !forever) {
		return
	}
	if n.lost = forever; forever {
		es.tracef("#%d %s ends and never comes back", es.telling, n)
	} else {
		es.tracef("#%d %s crashes for %v", es.telling, n, d)
	}
	n.down = true
	es.hangUp(n)
	if forever {
		return
	}
	es.in(d, func() { es.revive(n) })
}

func (es *edges) revive(n *edgeNode) {
	if n.down && !n.lost {
		es.tracef("%s starts anew", n)
		es.start(n)
	}
}

func (es *edges) cutOff(f *fault, n *edgeNode) {
	es.tracef("#%d %s is cut off for %v (up %v, down %v)", f.number, n, f.last, f.up, f.down)
	es.cut(f, &n.cutUp, &n.cutDown)
}

// mostTwins bounds the number of twins.
const mostTwins = 3
