package lineage

import "iter"

// Recent remembers one value per ticket, for the last so many tickets. Bounded: the
// oldest entry makes room. The zero value of V stands for nothing; a Recent without
// a limit remembers nothing.
type Recent[V any] struct {
	limit int
	index map[uint64]int32
	ring  []recentEntry[V]
	next  int
}

type recentEntry[V any] struct {
	id    uint64
	value V
}

// NewRecent returns a memory of limit tickets.
func NewRecent[V any](limit int) Recent[V] { return Recent[V]{limit: limit} }

// Get returns what is remembered of the ticket, the zero value for nothing.
func (r *Recent[V]) Get(id uint64) (v V) {
	if i, ok := r.index[id]; ok {
		return r.ring[i].value
	}
	return v
}

// Drop makes the ticket unknown.
func (r *Recent[V]) Drop(id uint64) {
	if i, ok := r.index[id]; ok {
		var none V
		r.ring[i].value = none // keeps its place until that is needed
	}
}

// All yields what is remembered, always in the same order for the same past.
func (r *Recent[V]) All() iter.Seq2[uint64, V] {
	return func(yield func(uint64, V) bool) {
		for i := range r.ring {
			if e := &r.ring[i]; !yield(e.id, e.value) {
				return
			}
		}
	}
}

// Put remembers v of the ticket from now on.
func (r *Recent[V]) Put(id uint64, v V) {
	if i, ok := r.index[id]; ok {
		r.ring[i].value = v
		return
	}
	if r.limit == 0 {
		return
	}
	if len(r.ring) < r.limit { // memory comes with use: most rooms are small
		if r.index == nil {
			r.index = make(map[uint64]int32)
		}
		r.index[id] = int32(len(r.ring))
		r.ring = append(r.ring, recentEntry[V]{id: id, value: v})
		return
	}
	e := &r.ring[r.next]
	delete(r.index, e.id)
	*e = recentEntry[V]{id: id, value: v}
	r.index[id] = int32(r.next)
	r.next = (r.next + 1) % len(r.ring)
}
