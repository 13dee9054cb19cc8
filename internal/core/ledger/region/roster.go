package slots

import (
	"slices"

	"vestibule/internal/fleet"
	"vestibule/internal/mutant"
	"vestibule/internal/wire"
)

// roster is which incarnations of edges are in the books of an aggregator, and what it knows
// of who they are.
type roster struct {
	edges     []*edge // by name and incarnation
	nums      edgeNum // newest short name
	unadopted []unadopted
	said      uint64 // Seq of the newest grant to any edge: who is forgotten and returns hears no older one

	ownTerm        uint64          // under which this process led last
	witnesses      []wire.GoneEdge // edges that are yet to tell whom they followed
	recoveredEdges int             // how many there were
	rival          bool            // an edge followed somebody else since we led last
	begins         bool            // the data centre is new, as the operator says

	unknownEdges uint64 // edges that came with what nothing stored tells of
	lastUnknown  string // the last of them
	twins        uint64 // how often an edge was found to live beside another one of its name
}

// unadopted is somebody who is owed an answer without being in the books.
type unadopted struct {
	name     string
	inc      uint64
	tenure   uint64
	echo     fleet.Mono
	recv     fleet.Mono
	adoption wire.Adoption
}

const maxUnadopted = 256

// add opens the books of an incarnation.
func (r *roster) add(name string, inc uint64) *edge {
	r.nums++
	e := &edge{name: name, inc: inc, num: r.nums}
	i, _ := slices.BinarySearchFunc(r.edges, e, compareEdges)
	r.edges = slices.Insert(r.edges, i, e)
	return e
}

// find returns an incarnation, nil where it is not in the books.
func (r *roster) find(name string, inc uint64) *edge {
	i, ok := slices.BinarySearchFunc(r.edges, inc, func(e *edge, inc uint64) int { return e.compare(name, inc) })
	if !ok {
		return nil
	}
	return r.edges[i]
}

// answer owes a reply to somebody who is not in the books, or not yet.
func (r *roster) answer(now fleet.Mono, m wire.Report, v wire.Adoption) {
	s := unadopted{name: m.From, inc: m.Inc, tenure: m.Tenure, echo: m.Sent, recv: now, adoption: v}
	if i := slices.IndexFunc(r.unadopted, func(o unadopted) bool { return o.name == m.From && o.inc == m.Inc }); i >= 0 {
		r.unadopted[i] = s
	} else if len(r.unadopted) < maxUnadopted {
		r.unadopted = append(r.unadopted, s)
	}
}

// forgotten tells an edge whose books are gone to end its tenure, or when it has,
// to begin anew.
func (r *roster) forgotten(now fleet.Mono, m wire.Report) {
	verdict := wire.Fenced
	if m.Final {
		verdict = wire.Dead
	}
	r.answer(now, m, verdict)
}

// ask numbers the next grant, whose answer may tell fleet time.
func (r *roster) ask(now fleet.Mono, c *clock) (seq uint64) {
	r.said++
	c.ask(now, r.said)
	return r.said
}

// recovering reports whether edges of a predecessor are still awaited.
func (r *roster) recovering() bool {
	return !mutant.On(mutant.NoHold) && slices.ContainsFunc(r.edges, func(e *edge) bool {
		return e.state == awaiting || (e.state == lost && !e.lostHold && !mutant.On(mutant.LostIsFree))
	})
}

// anyHeard reports whether any edge is heard: silence of all is our own isolation.
func (r *roster) anyHeard() bool {
	return slices.ContainsFunc(r.edges, func(o *edge) bool { return o.state == alive })
}

// wentBefore reports whether sessions of a process that an edge has succeeded may be in
// the sum of those that are gone.
func (r *roster) wentBefore(e *edge, now int64) bool {
	sum := r.find(wire.Gone, 0)
	return sum != nil && slices.ContainsFunc(sum.gone, func(g wire.GoneEdge) bool {
		return g.Edge == e.name && g.Until >= now
	})
}

// summed reports whether an incarnation's sessions are in the sum: whatever is heard of
// it now was said long ago.
func (r *roster) summed(name string, inc uint64) bool {
	sum := r.find(wire.Gone, 0)
	return sum != nil && slices.ContainsFunc(sum.gone, func(g wire.GoneEdge) bool { return g.Edge == name && g.Inc == inc })
}

// marked returns up to which number every edge that may act knows the terminations.
// One that is silent, or still awaited, knows nothing.
func (r *roster) marked(b *books) uint64 {
	known := b.terminations.n
	for _, e := range r.edges {
		acc := b.of(e)
		switch {
		case e.state == left:
		case e.state != alive || acc == nil || acc.report == nil:
			return 0
		default:
			acc.ends.Acked(e.told)
			if n, ok := acc.ends.First(); ok {
				known = min(known, n-1)
			}
		}
	}
	return known
}

// remove takes incarnations out of the books.
func (r *roster) remove(gone func(e *edge) bool) { r.edges = slices.DeleteFunc(r.edges, gone) }

// newest returns the newest time that any edge has told, which may have been under way for
// long.
func (r *roster) newest(now fleet.Mono) (t fleet.Time) {
	for _, e := range r.edges {
		if e.asOf > 0 {
			t = max(t, e.latest.Add(fleet.Stretch(now.Sub(e.recv))))
		}
	}
	return t
}

// Leave notes that the process was told to end, and tells global.
func (a *Aggregator) Leave(now fleet.Mono) {
	if !a.up.leaving {
		a.up.leaving = true
		a.up.hurry(now, 1)
	}
}

// EdgeTotals are the edges of a data centre, counted.
type EdgeTotals struct {
	Reporting   int
	Leaving     int      // of those: they were told to end, and have yet to say goodbye
	Unknown     uint64   // that came with sessions or rights that nothing stored tells of, ever: the shell is to raise an alarm
	LastUnknown string   // the last of them
	Met         uint64   // how often one was found to live beside another one of its name: the shell is to raise an alarm
	Twins       []string // names of those that do now
}

// Edges returns the totals of the edges.
func (a *Aggregator) Edges() EdgeTotals {
	r := &a.roster
	t := EdgeTotals{Unknown: r.unknownEdges, LastUnknown: r.lastUnknown, Met: r.twins}
	for _, e := range r.edges {
		if e.heard() {
			t.Reporting++
			if e.leaving {
				t.Leaving++
			}
		}
		if e.twin && !slices.Contains(t.Twins, e.name) {
			t.Twins = append(t.Twins, e.name)
		}
	}
	return t
}
