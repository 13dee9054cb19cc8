package reuse

// Recent remembers one value per ticket, for the tickets of the last so many that were
// put. Bounded: the one that was put longest ago makes room. The zero value of V stands
// for nothing; a Recent without a limit remembers nothing. Unlike golang-lru it allocates
// nothing once it is full (decision 1).
type Recent[V any] struct {
	limit   int
	index   map[uint64]int32
	entries []recentEntry[V]
	newest  int32
}

// recentEntry is part of a circle: newer than the newest entry is the oldest.
type recentEntry[V any] struct {
	id           uint64
	older, newer int32
	value        V
}

// NewRecent returns a memory of limit tickets.
func NewRecent[V any](limit int) Recent[V] { return Recent[V]{limit: limit} }

// Get returns what is remembered of the ticket, the zero value for nothing.
func (r *Recent[V]) Get(id uint64) (v V) {
	if i, ok := r.index[id]; ok {
		return r.entries[i].value
	}
	return v
}

// Drop makes the ticket unknown.
func (r *Recent[V]) Drop(id uint64) {
	if i, ok := r.index[id]; ok {
		var none V
		r.entries[i].value = none // keeps its place until that is needed
	}
}

// Put remembers v of the ticket from now on.
func (r *Recent[V]) Put(id uint64, v V) {
	i, ok := r.index[id]
	switch {
	case ok:
		r.renew(i)
	case r.limit == 0:
		return
	case len(r.entries) < r.limit: // memory comes with use: most rooms are small
		if r.index == nil {
			r.index = make(map[uint64]int32)
		}
		i = int32(len(r.entries))
		r.entries = append(r.entries, recentEntry[V]{older: i, newer: i})
		r.link(i)
	default:
		i = r.entries[r.newest].newer
		delete(r.index, r.entries[i].id)
		r.newest = i
	}
	e := &r.entries[i]
	if e.value = v; !ok {
		e.id, r.index[id] = id, i
	}
}

// renew makes entry i the newest.
func (r *Recent[V]) renew(i int32) {
	if i == r.newest {
		return
	}
	e := &r.entries[i]
	r.entries[e.older].newer, r.entries[e.newer].older = e.newer, e.older
	r.link(i)
}

// link puts entry i behind the newest.
func (r *Recent[V]) link(i int32) {
	if len(r.entries) > 1 {
		n := &r.entries[r.newest]
		r.entries[i].older, r.entries[i].newer = r.newest, n.newer
		r.entries[n.newer].older = i
		n.newer = i
	}
	r.newest = i
}
