package sim

import (
	"slices"
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// pasts are the snapshots in an edge's data folder.
type pasts struct {
	place fleettime.Place // as of the write
	data  [][]byte        // of earlier processes that are not settled, and of the newest one

	room    []byte // encoded, as of the newest snapshot of the process; nil for none
	before  []past // earlier processes that are not settled
	failing int64  // writes fail or take long until then
	image   image  // of the disk
}

// image is a copy of the snapshots in a folder, as an image of the machine's disk has it.
type image struct {
	at   int64
	data [][]byte
}

// imageEvery is the age after which a newer image is taken.
const imageEvery = time.Minute

type past struct {
	*admission.Predecessor
	data []byte
}

// settleBefore makes a starting process settle the earlier ones in its data folder.
func (n *edgeNode) settleBefore(es *edges) {
	p := &n.pasts
	p.room, p.before = nil, nil
	if old := &p.image; es.cfg.Faults.OldImages && old.data != nil && n.centre.refuses(es.kernel, old) &&
		es.chaos.IntN(2) == 0 {
		es.tracef("the disk of %s is as it was %v before", n, time.Duration(es.now-old.at))
		p.data, old.data = old.data, nil
	}
	if !es.cfg.Faults.Pasts || !p.place.Same(n.place) {
		p.data = nil
		return
	}
	for _, data := range p.data {
		read, err := wire.DecodePast(data)
		if err != nil {
			es.fail("a snapshot does not survive the data folder: %v", err)
			return
		}
		p.before = append(p.before, past{admission.NewPredecessor(read, es.cfg.Params), data})
	}
}

// refuses reports whether the store of a data centre has newer numbers than the snapshots of an image. Without them the
// image would settle its edges, which is excepted (docs/decisions/0103).
func (r *dataCentre) refuses(k *kernel, old *image) bool {
	find := func(name string, instance uint64) *wire.RosterEntry {
		i := slices.IndexFunc(r.stored.Roster,
			func(e wire.RosterEntry) bool { return e.Edge == name && e.Instance == instance })
		if i < 0 {
			return nil
		}
		return &r.stored.Roster[i]
	}
	for _, data := range old.data {
		read, err := wire.DecodePast(data)
		if err != nil {
			k.fail("a snapshot does not survive an image: %v", err)
			return false
		}
		if e := find(read.Head.From, read.Head.Instance); e == nil && find(wire.UnknownPast, 0) != nil || e != nil &&
			e.Stored != 0 && e.Stored <= read.Number {
			return false
		}
	}
	return true
}

// applyBefore applies a grant to the earlier processes.
func (n *edgeNode) applyBefore(now fleettime.Mono, g *wire.Grant) {
	var left []past
	for _, p := range n.pasts.before {
		if p.Apply(now, *g); !p.Settled() {
			left = append(left, p)
		}
	}
	n.pasts.before = left
}

// pastDue returns when the edge has a snapshot to take, or a report of an earlier process to send.
func (n *edgeNode) pastDue() fleettime.Mono {
	due := n.core.Snapshots.Due()
	for _, p := range n.pasts.before {
		due = min(due, p.Due())
	}
	return due
}

// runPasts sends the due reports of earlier processes, and takes a due snapshot.
func (n *edgeNode) runPasts(es *edges) {
	now := n.clock.read(es.now)
	for _, p := range n.pasts.before {
		if p.Due() <= now {
			es.send(n, p.Report(now))
		}
	}
	if n.core.Snapshots.Due() <= now {
		n.takeSnapshot(es)
	}
}

// snapshot returns a snapshot of the edge for its data folder.
func (n *edgeNode) snapshot(es *edges) [][]byte {
	now := n.clock.read(es.now)
	number, head, dropped := n.core.Snapshots.Begin(now)
	if len(dropped) > 0 {
		n.pasts.room = nil
	}
	changed, _, _ := n.core.Snapshots.Take(now, 0, true, make([]wire.RoomPast, 1))
	for k := range changed {
		n.pasts.room = wire.AppendRoomPast(nil, &changed[k])
	}
	var rooms, all [][]byte
	if n.pasts.room != nil {
		rooms = [][]byte{n.pasts.room}
	}
	data := wire.AppendPast(nil, number, &head, rooms)
	for _, p := range n.pasts.before {
		all = append(all, p.data)
	}
	return append(all, data)
}

// takeSnapshot takes a snapshot and plans the end of its write. The folder has it from some time in between on.
func (n *edgeNode) takeSnapshot(es *edges) {
	core, data := n.core, n.snapshot(es)
	took, fails, lands := time.Millisecond+time.Duration(es.chaos.Int64N(int64(4*time.Millisecond))), false, true
	if n.pasts.failing > es.now {
		switch es.chaos.IntN(3) {
		case 0:
			fails, lands = true, es.chaos.IntN(2) == 0
		case 1:
			took += time.Duration(es.chaos.Int64N(int64(3 * time.Second)))
		}
	}
	then := func(d time.Duration, do func()) {
		es.in(d, func() {
			if n.core == core && !n.down {
				es.deliver(&n.proc, func() {
					if n.core == core && !n.down {
						do()
					}
				})
			}
		})
	}
	if lands {
		then(time.Duration(es.chaos.Int64N(int64(took))), func() { n.keepPast(es, data) })
	}
	if lag := 300 * time.Millisecond; took > lag {
		then(lag, func() {
			core.Snapshots.Lag(n.clock.read(es.now))
			es.wake(n)
		})
	}
	then(took, func() {
		now := n.clock.read(es.now)
		if emptied := false; fails {
			if emptied = es.chaos.IntN(2) == 0; emptied {
				n.pasts.data = nil
			}
			core.Snapshots.Failed(now, emptied)
		} else {
			core.Snapshots.Written(now)
			es.release(n)
		}
		es.touch(n.centre.id)
		es.wake(n)
	})
}

// keepPast stores snapshots in the data folder.
func (n *edgeNode) keepPast(es *edges, data [][]byte) {
	if old := &n.pasts.image; es.cfg.Faults.OldImages && (old.data == nil || es.now-old.at > int64(imageEvery)) {
		*old = image{es.now, data}
	}
	n.pasts.place, n.pasts.data = n.place, data
}
