package region

import (
	"slices"
)

// This file tells processes apart that bear one edge's name: successors, and other edges.

// hasEnded reports whether an edge has ended: a process of its name told that it uses
// the data folder which that edge used, or an operator told so, to us or to a predecessor,
// and the edge was not heard since. The name alone proves nothing: two processes may have
// got one by mistake.
func (r *roster) hasEnded(e *edge) bool {
	if e.contradicted {
		return false
	}
	return e.declaredEnded || e.ended != 0 || slices.ContainsFunc(r.edges, func(o *edge) bool {
		return o.name == e.name && o.state != awaiting && o.state != lost && o.proves(e)
	})
}

// proves reports whether o has told that e ended before it began.
func (o *edge) proves(e *edge) bool {
	return o != e && slices.Contains(o.succeeds, e.instance)
}

// findTwins finds the edges of one name that live beside each other: each has answered
// a grant that was sent after the other one was known.
func (r *roster) findTwins() {
	for i, n := 0, 0; i < len(r.edges); i = n {
		for n = i + 1; n < len(r.edges) && r.edges[n].name == r.edges[i].name; {
			n++
		}
		same := r.edges[i:n]
		for _, e := range same {
			was := e.twin
			e.twin = e.state == alive && slices.ContainsFunc(same, func(o *edge) bool {
				return o != e && o.state == alive && o.acked > e.first && e.acked > o.first
			})
			if e.twin && !was {
				r.twins++
				e.replyDue = true // it hears of it at once
			}
		}
	}
}
