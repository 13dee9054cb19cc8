package region

import (
	"slices"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// roster lists the instances of edges and identifies them.
type roster struct {
	edges
	nums    edgeNum // newest short ID
	strict  bool    // of every edge
	replies []reply
	lastSeq uint64 // Seq of the newest grant to any edge

	ownTerm        uint64          // previous term of this process
	witnesses      []wire.GoneEdge // edges that have not yet reported which leader they followed
	recoveredEdges int             // initial number of witnesses
	rival          bool            // an edge followed another leader after that term
	bootstrap      bool            // the operator declared the data centre as new

	unknownEdges uint64 // edges with sessions or permits that are not in the store
	lastUnknown  string // the last of them
}

// edges are the instances of edges, by name and instance.
type edges []*edge

// reply is the address of a process without a roster entry that gets a reply.
type reply struct {
	name       string
	instance   uint64
	leaseEpoch uint64
	echo       fleettime.Mono
	recv       fleettime.Mono
	handshake  wire.Handshake
}

const maxReplies = 256

// queueReply queues a reply to a process without a roster entry.
func (r *roster) queueReply(now fleettime.Mono, m *report, v wire.Handshake) {
	s := reply{name: m.From, instance: m.Instance, leaseEpoch: m.LeaseEpoch, echo: m.Sent, recv: now, handshake: v}
	isSame := func(o reply) bool { return o.name == s.name && o.instance == s.instance }
	if i := slices.IndexFunc(r.replies, isSame); i >= 0 {
		r.replies[i] = s
	} else if len(r.replies) < maxReplies {
		r.replies = append(r.replies, s)
	}
}

// nextSeq returns the number of the next grant. The answer to it may tell fleet time.
func (r *roster) nextSeq(now fleettime.Mono, c *clock) (seq uint64) {
	r.lastSeq++
	c.recordProbe(now, r.lastSeq)
	return r.lastSeq
}

// recovering reports whether edges of a predecessor have not reported yet.
func (es edges) recovering() bool {
	return slices.ContainsFunc(es, func(e *edge) bool {
		return e.state == awaiting || (e.state == lost && !e.reservedLost)
	})
}

// anyReporting reports whether any edge reports. If none does, the aggregator itself may be cut off.
func (es edges) anyReporting() bool {
	return slices.ContainsFunc(es, func(o *edge) bool { return o.state == alive })
}

// mayHavePredecessor reports whether the summary may have sessions of an earlier process of the edge's name.
func (es edges) mayHavePredecessor(e *edge, now int64) bool {
	sum := es.find(wire.Gone, 0)
	return sum != nil && slices.ContainsFunc(sum.summary, func(g wire.GoneEdge) bool {
		return g.Edge == e.name && g.Until >= now
	})
}

// acknowledgedEnds returns the number up to which every edge that may act knows the terminations; 0 if an edge is
// silent.
func (es edges) acknowledgedEnds(b *roomLedger) uint64 {
	known := b.terminations.n
	for _, e := range es {
		acc := e.account(b.ID)
		switch {
		case e.state == left:
		case e.state != alive || acc == nil || acc.report == nil:
			return 0
		default:
			acc.ends.Acked(e.ackedReported)
			if n, ok := acc.ends.First(); ok {
				known = min(known, n-1)
			}
		}
	}
	return known
}

// add adds an instance.
func (r *roster) add(name string, instance uint64) *edge {
	r.nums++
	e := &edge{name: name, instance: instance, num: r.nums, strict: r.strict}
	i, _ := slices.BinarySearchFunc(r.edges, e, compareEdges)
	r.edges = slices.Insert(r.edges, i, e)
	return e
}

// movesEdge returns the pseudo-edge of sessions that moved, and adds it if needed.
func (r *roster) movesEdge(now fleettime.Mono) *edge {
	e := r.find(movesName, 0)
	if e == nil {
		e = r.add(movesName, 0)
		e.receivedAt, e.recovered = now, true
		e.become(left)
	}
	return e
}

// find returns an instance, or nil.
func (es edges) find(name string, instance uint64) *edge {
	i, ok := slices.BinarySearchFunc(es, instance,
		func(e *edge, instance uint64) int { return e.compare(name, instance) })
	if !ok {
		return nil
	}
	return es[i]
}

// inSummary reports whether the sessions of an instance are in the summary.
func (es edges) inSummary(name string, instance uint64) bool {
	sum := es.find(wire.Gone, 0)
	return sum != nil &&
		slices.ContainsFunc(sum.summary, func(g wire.GoneEdge) bool { return g.Edge == name && g.Instance == instance })
}

// markEnded records that another process or an operator reported the end of an instance; latest is the upper bound of
// fleet time.
func (r *roster) markEnded(e *edge, latest fleettime.Time) {
	if e.endedAtGrant == 0 {
		e.endedAtGrant, e.endedAtTime = r.lastSeq+1, latest
	}
}

// remove deletes instances.
func (es *edges) remove(gone func(e *edge) bool) { *es = slices.DeleteFunc(*es, gone) }

// newestTime returns the latest possible time of the newest report of any edge.
func (es edges) newestTime(now fleettime.Mono) (t fleettime.Time) {
	for _, e := range es {
		if e.asOf > 0 {
			t = max(t, e.latest.Add(fleettime.Stretch(now.Sub(e.receivedAt))))
		}
	}
	return t
}

// closeUnknownPast ends the wait for edges that the store may have lost, once all witnesses have reported. late says
// that the time in which unknown edges could report is over.
func (r *roster) closeUnknownPast(late bool) {
	if r.recoveredEdges == 0 || r.rival || len(r.witnesses) > 0 || !late {
		return
	}
	if e := r.find(wire.UnknownPast, 0); e != nil && !e.reservedLost {
		e.become(left)
	}
}
