package sim

import (
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// Network configures the delivery of messages without faults.
type Network struct {
	LAN, WAN time.Duration // mean one-way delay; single messages take half to twice as long
	Loss     float64       // fraction of lost messages
	Encode   bool          // messages pass through the wire codec; slower
	Sealed   bool          // tickets pass through the ticket codec as cookies; slower
}

// pairCut is a pair of processes with a cut direction between them.
type pairCut struct {
	from, to nodeID
	until    int64
}

// nodeID is one process: the number of an edge, an aggregator or a coordinator.
type nodeID struct {
	tier uint8 // 0 edge, 1 regional, 2 global
	n    int32
}

// deaf reports whether messages from a process to another are cut.
func (w *World) deaf(from, to nodeID) bool {
	for _, p := range w.pairs {
		if p.from == from && p.to == to && p.until > w.now {
			return true
		}
	}
	return false
}

// send delivers a message after half to twice the mean delay, or loses it; under faults also much later, or twice.
func (w *World) send(e event, mean time.Duration, cut int64) {
	if cut > w.now || (w.cfg.Network.Loss > 0 && w.rng.Float64() < w.cfg.Network.Loss && !w.calm) {
		return
	}
	if w.cfg.Network.Encode {
		e.msg = w.travel(e.msg)
	}
	e.at = w.now + int64(float64(mean)*(0.5+1.5*w.rng.Float64()*w.rng.Float64()))
	if w.calm {
		w.plan(e)
		return
	}
	if w.cfg.Faults.doubled(w.chaos) {
		again := e
		again.at += w.chaos.Int64N(int64(w.cfg.Faults.Late) + 1)
		w.plan(again)
	}
	if w.cfg.Faults.late(w.chaos) {
		e.at += w.chaos.Int64N(int64(w.cfg.Faults.Late) + 1)
	}
	w.plan(e)
}

// travel returns a message after encoding and decoding.
func (w *World) travel(msg any) any {
	var data []byte
	var err error
	switch m := msg.(type) {
	case *wire.Report:
		if data, err = wire.EncodeReport(m); err == nil {
			msg, err = wire.DecodeReport(data)
		}
	case *wire.Grant:
		if data, err = wire.EncodeGrant(m); err == nil {
			msg, err = wire.DecodeGrant(data)
		}
	}
	if err != nil {
		w.oracle.fail(w, "a message does not survive the wire: %v", err)
	}
	return msg
}

// takeReport delivers a report to all its subscribers.
func (w *World) takeReport(e *event) {
	m := e.msg.(*wire.Report)
	from := nodeID{0, int32(e.gen)}
	if e.node < 0 {
		from.tier = 1
		w.hearLastWord(w.aggs[e.gen], m)
		for i, n := range w.globals {
			if n.gone || w.deaf(from, nodeID{2, int32(i)}) {
				continue
			}
			if n.asleep > w.now {
				w.deliver(&n.proc, func() { w.globalHears(int32(i), m) })
			} else {
				w.globalHears(int32(i), m)
			}
		}
		return
	}
	for _, n := range w.regions[e.node].procs {
		if n.gone || w.deaf(from, nodeID{1, n.id}) {
			continue
		}
		if n.asleep > w.now {
			w.deliver(&n.proc, func() { w.regionHears(n, m) })
		} else {
			w.regionHears(n, m)
		}
	}
}

func (w *World) globalHears(i int32, m *wire.Report) {
	n := w.globals[i]
	n.core.Observe(n.clock.read(w.now), *m)
	w.runGlobal(i)
}

func (w *World) regionHears(n *regionProc, m *wire.Report) {
	n.core.Observe(n.clock.read(w.now), *m)
	w.runRegion(n.id)
}

// deliver delivers a message to a process: now, after it is continued, or never. Frequent messages to running processes
// bypass it, to save a closure each.
func (w *World) deliver(p *proc, take func()) {
	switch {
	case p.gone:
	case p.asleep > w.now:
		w.plan(event{at: p.asleep, kind: evDo, msg: func() { w.deliver(p, take) }})
	default:
		take()
	}
}

func (w *World) takeGrant(e *event) {
	g := e.msg.(*wire.Grant)
	from := nodeID{1, int32(e.gen)}
	if e.node < 0 {
		from.tier = 2
		for _, n := range w.regions[-1-e.node].procs {
			if n.gone || w.deaf(from, nodeID{1, n.id}) {
				continue
			}
			if n.asleep > w.now {
				w.deliver(&n.proc, func() { w.regionApplies(n, g) })
			} else {
				w.regionApplies(n, g)
			}
		}
		return
	}
	i, n := e.node, w.edges[e.node]
	if n.down || w.deaf(from, nodeID{0, i}) {
		return
	}
	if n.asleep > w.now {
		w.deliver(&n.proc, func() { w.edgeApplies(i, g) })
	} else {
		w.edgeApplies(i, g)
	}
}

func (w *World) regionApplies(n *regionProc, g *wire.Grant) {
	n.core.Apply(n.clock.read(w.now), *g)
	w.runRegion(n.id)
}

func (w *World) edgeApplies(i int32, g *wire.Grant) {
	n := w.edges[i]
	if n.down {
		return
	}
	n.core.Apply(n.clock.read(w.now), *g)
	n.applyBefore(n.clock.read(w.now), g)
	n.keep()
	n.synced = n.synced || n.core.TimeBound(n.clock.read(w.now)) != fleettime.Unsynced
	w.touch(n.region)
	w.release(i)
	w.runEdge(i)
}
