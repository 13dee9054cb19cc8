package region

import (
	"math"
	"slices"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// roster has the instances of edges in the books of an aggregator, and identifies them.
type roster struct {
	edges     []*edge // by name and instance
	nums      edgeNum // newest short name
	strict    bool    // of every edge
	replies []reply
	lastSeq      uint64 // Seq of the newest grant to any edge: a forgotten edge that returns hears no older one

	ownTerm        uint64          // under which this process led last
	witnesses      []wire.GoneEdge // edges that have yet to report which leader they followed
	recoveredEdges int             // how many there were
	rival          bool            // an edge followed somebody else since we led last
	bootstrap         bool            // the data centre is new, as the operator says

	unknownEdges uint64 // edges that came with sessions or permits that nothing stored knows
	lastUnknown  string // the last of them
	twins        uint64 // how often an edge was found to live beside another one of its name
}

// reply is a process without books that is owed an answer.
type reply struct {
	name       string
	instance   uint64
	leaseEpoch uint64
	echo       fleettime.Mono
	recv       fleettime.Mono
	handshake  wire.Handshake
}

const maxReplies = 256

// queueReply owes a reply to a process that is not in the books, or not yet.
func (r *roster) queueReply(now fleettime.Mono, m *report, v wire.Handshake) {
	s := reply{name: m.From, instance: m.Instance, leaseEpoch: m.LeaseEpoch, echo: m.Sent, recv: now, handshake: v}
	if i := slices.IndexFunc(r.replies, func(o reply) bool { return o.name == m.From && o.instance == m.Instance }); i >= 0 {
		r.replies[i] = s
	} else if len(r.replies) < maxReplies {
		r.replies = append(r.replies, s)
	}
}

// nextSeq numbers the next grant, whose answer may tell fleet time.
func (r *roster) nextSeq(now fleettime.Mono, c *clock) (seq uint64) {
	r.lastSeq++
	c.recordProbe(now, r.lastSeq)
	return r.lastSeq
}

// recovering reports whether edges of a predecessor are still awaited.
func (r *roster) recovering() bool {
	return slices.ContainsFunc(r.edges, func(e *edge) bool {
		return e.state == awaiting || (e.state == lost && !e.reservedLost)
	})
}

// countsSince returns since when every edge that may count waiting visitors has counted; 0 for unknown.
func (r *roster) countsSince() fleettime.Time {
	since := fleettime.Time(math.MaxInt64)
	for _, e := range r.edges {
		switch {
		case e.reporting():
			since = min(since, e.since)
		case e.missing() && !r.hasEnded(e):
			return 0
		}
	}
	if since == math.MaxInt64 {
		return 0
	}
	return since
}

// anyReporting reports whether any edge is heard: silence of all is our own isolation.
func (r *roster) anyReporting() bool {
	return slices.ContainsFunc(r.edges, func(o *edge) bool { return o.state == alive })
}

// mayHavePredecessor reports whether sessions of a process that an edge has succeeded may be in
// the sum of those that are gone.
func (r *roster) mayHavePredecessor(e *edge, now int64) bool {
	sum := r.find(wire.Gone, 0)
	return sum != nil && slices.ContainsFunc(sum.summary, func(g wire.GoneEdge) bool {
		return g.Edge == e.name && g.Until >= now
	})
}

// acknowledgedEnds returns up to which number every edge that may act knows the terminations.
// One that is silent, or still awaited, knows nothing.
func (r *roster) acknowledgedEnds(b *roomLedger) uint64 {
	known := b.terminations.n
	for _, e := range r.edges {
		acc := b.accounts.of(e)
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

// remove takes instances out of the books.
func (r *roster) remove(gone func(e *edge) bool) { r.edges = slices.DeleteFunc(r.edges, gone) }

// newestTime returns the newest time that any edge has told, which may have been under way for
// long.
func (r *roster) newestTime(now fleettime.Mono) (t fleettime.Time) {
	for _, e := range r.edges {
		if e.asOf > 0 {
			t = max(t, e.latest.Add(fleettime.Stretch(now.Sub(e.receivedAt))))
		}
	}
	return t
}

// closeUnknownPast takes the unknown past off the roster once it is known. Before that, edges that
// nobody here knows have the time to turn up: late says that it is over.
func (r *roster) closeUnknownPast(late bool) {
	if r.recoveredEdges == 0 || r.rival || len(r.witnesses) > 0 || !late {
		return
	}
	if e := r.find(wire.UnknownPast, 0); e != nil && !e.reservedLost {
		e.become(left)
	}
}
