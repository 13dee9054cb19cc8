package sim

import (
	"time"

	"vestibule/internal/core/wire"
)

// Network configures the delivery of messages without faults.
type Network struct {
	LAN, WAN time.Duration // mean one-way delay; single messages take half to twice as long
	Loss     float64       `without:"loss"`   // fraction of lost messages
	Encode   bool          `without:"encode"` // messages and promises pass through the wire codec; slower
	Sealed   bool          `without:"sealed"` // tickets pass through the ticket codec as cookies; slower
}

// network carries the messages of nodes.
type network struct {
	*kernel
	pairs []pairCut
}

// pairCut is a pair of processes with a cut direction between them.
type pairCut struct {
	from, to *proc
	until    int64
}

// deaf reports whether messages from a process to another are cut.
func (nw *network) deaf(from, to *proc) bool {
	for _, p := range nw.pairs {
		if p.from == from && p.to == to && p.until > nw.now {
			return true
		}
	}
	return false
}

// send delivers a message after half to twice the mean delay, or loses it; under faults also much later, or twice.
func send[M wire.Report | wire.Grant](nw *network, m *M, mean time.Duration, cut int64, take func(*M)) {
	if cut > nw.now || (nw.cfg.Network.Loss > 0 && nw.rng.Float64() < nw.cfg.Network.Loss && !nw.calm) {
		return
	}
	if nw.cfg.Network.Encode {
		m = nw.travel(m).(*M)
	}
	do := func() { take(m) }
	at := nw.now + int64(float64(mean)*(0.5+1.5*nw.rng.Float64()*nw.rng.Float64()))
	if nw.calm {
		nw.plan(at, do)
		return
	}
	if nw.cfg.Faults.doubled(nw.chaos) {
		nw.plan(at+nw.chaos.Int64N(int64(nw.cfg.Faults.Late)+1), do)
	}
	if nw.cfg.Faults.late(nw.chaos) {
		at += nw.chaos.Int64N(int64(nw.cfg.Faults.Late) + 1)
	}
	nw.plan(at, do)
}

// travel returns a message, or promises, after encoding and decoding.
func (nw *network) travel(msg any) any {
	var err error
	switch m := msg.(type) {
	case *wire.Report:
		msg, err = wire.DecodeReport(wire.EncodeReport(m))
	case *wire.Grant:
		msg, err = wire.DecodeGrant(wire.EncodeGrant(m))
	case *wire.Durable:
		var data []byte
		if data, err = wire.EncodeWhole(&wire.Promises{Durable: *m}); err == nil {
			var p *wire.Promises
			if p, err = wire.DecodePromises(data); err == nil {
				msg = &p.Durable
			}
		}
	}
	if err != nil {
		nw.fail("a message does not survive the wire: %v", err)
	}
	return msg
}

// meet reports whether two processes hear each other.
func (nw *network) meet(p, o *proc) bool { return !nw.deaf(p, o) && !nw.deaf(o, p) }

// pass delivers a message of one process to another, unless the link is cut.
func (nw *network) pass(from, to *proc, take func()) {
	if !nw.deaf(from, to) {
		nw.deliver(to, take)
	}
}

// deliver delivers a message to a process: now, after it is continued, or never.
func (k *kernel) deliver(p *proc, take func()) {
	switch {
	case p.gone:
	case p.asleep > k.now:
		k.plan(p.asleep, func() { k.deliver(p, take) })
	default:
		take()
	}
}
