package admission

// recent remembers one value per ticket, for the last so many tickets, so that a
// request repeated with an older cookie (a lost reply, parallel requests of one page,
// a copy) is answered as what it is, and counted once. Bounded: the oldest entry makes
// room. The zero value of V stands for nothing.
type recent[V any] struct {
	limit int
	index map[uint64]int32
	ring  []recentEntry[V]
	next  int
}

type recentEntry[V any] struct {
	id    uint64
	value V
}

// get returns what is remembered of the ticket, the zero value for nothing.
func (r *recent[V]) get(id uint64) (v V) {
	if i, ok := r.index[id]; ok {
		return r.ring[i].value
	}
	return v
}

// drop makes the ticket unknown.
func (r *recent[V]) drop(id uint64) {
	if i, ok := r.index[id]; ok {
		var none V
		r.ring[i].value = none // keeps its place until that is needed
	}
}

func (r *recent[V]) put(id uint64, v V) {
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
