package region

import (
	"slices"
	"strings"
)

// This file is about processes with the name of one edge. The name is a label: the instance ID identifies a process.
// An instance is the successor of another one only if the data folder proves it; otherwise both count as edges.

// named returns the instances with a name.
func (es edges) named(name string) []*edge {
	i, _ := slices.BinarySearchFunc(es, name, func(e *edge, name string) int { return strings.Compare(e.name, name) })
	n := i
	for n < len(es) && es[n].name == name {
		n++
	}
	return es[i:n]
}

// hasEnded reports whether an edge has ended: a successor in its data folder or an operator reported so, to this
// aggregator or to a predecessor, and the edge has not reported since.
func (es edges) hasEnded(e *edge) bool {
	if e.contradicted {
		return false
	}
	return e.declaredEnded || e.ended != 0 || slices.ContainsFunc(es.named(e.name), func(o *edge) bool {
		return o.state != awaiting && o.state != lost && o.proves(e)
	})
}

// proves reports whether o has reported that e ended before it began.
func (o *edge) proves(e *edge) bool {
	return o != e && slices.Contains(o.succeeds, e.instance)
}

// hasTwin reports whether two instances run under the name of an edge: each has answered a grant that was sent after
// the other one joined.
func (es edges) hasTwin(e *edge) bool {
	return e.state == alive && slices.ContainsFunc(es.named(e.name), func(o *edge) bool {
		return o != e && o.state == alive && o.acked > e.first && e.acked > o.first
	})
}
