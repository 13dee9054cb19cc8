package clientaddr

import (
	"container/heap"
	"net/netip"
)

// Tally counts how much each prefix holds of something bounded, and finds the prefix that holds the most. Once the bound
// is reached, that prefix gives way: see [Tally.GivesWay]. It is not safe for concurrent use.
type Tally struct {
	by    map[netip.Prefix]*holding
	order holdings
}

// holding is what one prefix holds.
type holding struct {
	prefix netip.Prefix
	n      int
	at     int // index in the heap
}

// NewTally returns an empty tally.
func NewTally() *Tally { return &Tally{by: map[netip.Prefix]*holding{}} }

// Add adds one to what p holds.
func (t *Tally) Add(p netip.Prefix) {
	h := t.by[p]
	if h == nil {
		h = &holding{prefix: p}
		t.by[p] = h
		heap.Push(&t.order, h)
	}
	h.n++
	heap.Fix(&t.order, h.at)
}

// Remove takes one from what p holds.
func (t *Tally) Remove(p netip.Prefix) {
	h := t.by[p]
	if h == nil {
		return
	}
	if h.n--; h.n > 0 {
		heap.Fix(&t.order, h.at)
		return
	}
	heap.Remove(&t.order, h.at)
	delete(t.by, p)
}

// GivesWay returns the prefix that gives one up for p: the one that holds the most, if it still holds as many as p then.
func (t *Tally) GivesWay(p netip.Prefix) (most netip.Prefix, ok bool) {
	own := 0
	if h := t.by[p]; h != nil {
		own = h.n
	}
	if len(t.order) == 0 || t.order[0].n < own+2 {
		return most, false
	}
	return t.order[0].prefix, true
}

// holdings has the prefix with the most first.
type holdings []*holding

func (h holdings) Len() int           { return len(h) }
func (h holdings) Less(i, k int) bool { return h[i].n > h[k].n }

func (h holdings) Swap(i, k int) {
	h[i], h[k] = h[k], h[i]
	h[i].at, h[k].at = i, k
}

func (h *holdings) Push(x any) {
	x.(*holding).at = len(*h)
	*h = append(*h, x.(*holding))
}

func (h *holdings) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return x
}
