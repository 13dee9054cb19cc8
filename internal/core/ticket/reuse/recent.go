package reuse

// Recent remembers one value per ticket, for the limit tickets most recently put. The zero value of V means none; a
// Recent without a limit remembers nothing. Unlike golang-lru it does not allocate once it is full (decision 1).
type Recent[V any] struct {
	limit   int
	index   map[uint64]int32
	entries []recentEntry[V]
	newest  int32
}

// recentEntry is part of a ring: the oldest entry follows the newest.
type recentEntry[V any] struct {
	id           uint64
	older, newer int32
	value        V
}

// NewRecent returns a Recent for limit tickets.
func NewRecent[V any](limit int) Recent[V] { return Recent[V]{limit: limit} }

// Get returns the value of the ticket, or the zero value.
func (r *Recent[V]) Get(id uint64) (v V) {
	if i, ok := r.index[id]; ok {
		return r.entries[i].value
	}
	return v
}

// Drop forgets the ticket.
func (r *Recent[V]) Drop(id uint64) {
	if i, ok := r.index[id]; ok {
		var none V
		r.entries[i].value = none // the entry stays until its space is needed
	}
}

// Put sets the value of the ticket.
func (r *Recent[V]) Put(id uint64, v V) {
	i, ok := r.index[id]
	switch {
	case ok:
		r.renew(i)
	case r.limit == 0:
		return
	case len(r.entries) < r.limit: // memory grows with use: most rooms are small
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
