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

// network carries the messages of nodes.
type network struct {
	*kernel
	pairs []pairCut
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
func (nw *network) deaf(from, to nodeID) bool {
	for _, p := range nw.pairs {
		if p.from == from && p.to == to && p.until > nw.now {
			return true
		}
	}
	return false
}

// send delivers a message after half to twice the mean delay, or loses it; under faults also much later, or twice.
func (nw *network) send(e event, mean time.Duration, cut int64) {
	if cut > nw.now || (nw.cfg.Network.Loss > 0 && nw.rng.Float64() < nw.cfg.Network.Loss && !nw.calm) {
		return
	}
	if nw.cfg.Network.Encode {
		e.msg = nw.travel(e.msg)
	}
	e.at = nw.now + int64(float64(mean)*(0.5+1.5*nw.rng.Float64()*nw.rng.Float64()))
	if nw.calm {
		nw.plan(e)
		return
	}
	if nw.cfg.Faults.doubled(nw.chaos) {
		again := e
		again.at += nw.chaos.Int64N(int64(nw.cfg.Faults.Late) + 1)
		nw.plan(again)
	}
	if nw.cfg.Faults.late(nw.chaos) {
		e.at += nw.chaos.Int64N(int64(nw.cfg.Faults.Late) + 1)
	}
	nw.plan(e)
}

// travel returns a message after encoding and decoding.
func (nw *network) travel(msg any) any {
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
		nw.fail("a message does not survive the wire: %v", err)
	}
	return msg
}

// takeReport delivers the report of an aggregator to the coordinators.
func (gs *coordinators) takeReport(e *event) {
	m, from := e.msg.(*wire.Report), nodeID{1, int32(e.gen)}
	for i, n := range gs.all {
		if n.gone || gs.net.deaf(from, nodeID{2, int32(i)}) {
			continue
		}
		if n.asleep > gs.now {
			gs.deliver(&n.proc, func() { gs.hear(int32(i), m) })
		} else {
			gs.hear(int32(i), m)
		}
	}
}

// takeReport delivers the report of an edge to the aggregators of its data centre.
func (cs *centres) takeReport(e *event) {
	m, from := e.msg.(*wire.Report), nodeID{0, int32(e.gen)}
	for _, n := range cs.all[e.node].procs {
		if n.gone || cs.net.deaf(from, nodeID{1, n.id}) {
			continue
		}
		if n.asleep > cs.now {
			cs.deliver(&n.proc, func() { cs.hear(n, m) })
		} else {
			cs.hear(n, m)
		}
	}
}

func (gs *coordinators) hear(i int32, m *wire.Report) {
	n := gs.all[i]
	n.core.Observe(n.clock.read(gs.now), *m)
	gs.run(i)
}

func (cs *centres) hear(n *regionProc, m *wire.Report) {
	n.core.Observe(n.clock.read(cs.now), *m)
	cs.run(n.id)
}

// deliver delivers a message to a process: now, after it is continued, or never. Frequent messages to running processes
// bypass it, to save a closure each.
func (k *kernel) deliver(p *proc, take func()) {
	switch {
	case p.gone:
	case p.asleep > k.now:
		k.plan(event{at: p.asleep, kind: evDo, msg: func() { k.deliver(p, take) }})
	default:
		take()
	}
}

// takeGrant delivers a grant of a coordinator to the aggregators of a data centre.
func (cs *centres) takeGrant(e *event) {
	g, from := e.msg.(*wire.Grant), nodeID{2, int32(e.gen)}
	for _, n := range cs.all[-1-e.node].procs {
		if n.gone || cs.net.deaf(from, nodeID{1, n.id}) {
			continue
		}
		if n.asleep > cs.now {
			cs.deliver(&n.proc, func() { cs.apply(n, g) })
		} else {
			cs.apply(n, g)
		}
	}
}

// takeGrant delivers a grant of an aggregator to an edge.
func (es *edges) takeGrant(e *event) {
	g, from := e.msg.(*wire.Grant), nodeID{1, int32(e.gen)}
	i, n := e.node, es.all[e.node]
	if n.down || es.net.deaf(from, nodeID{0, i}) {
		return
	}
	if n.asleep > es.now {
		es.deliver(&n.proc, func() { es.apply(i, g) })
	} else {
		es.apply(i, g)
	}
}

func (cs *centres) apply(n *regionProc, g *wire.Grant) {
	n.core.Apply(n.clock.read(cs.now), *g)
	cs.run(n.id)
}

func (es *edges) apply(i int32, g *wire.Grant) {
	n := es.all[i]
	if n.down {
		return
	}
	n.core.Apply(n.clock.read(es.now), *g)
	n.applyBefore(n.clock.read(es.now), g)
	n.keep()
	n.synced = n.synced || n.core.TimeBound(n.clock.read(es.now)) != fleettime.Unsynced
	es.touch(n.region)
	es.release(i)
	es.run(i)
}
