package admission

// recent remembers the newest expiry second stamped for a ticket, for the last
// so many tickets, so that a request repeated with the old cookie (a lost
// reply, parallel requests of one page) is answered with the same new ticket
// and counted once. Bounded: the oldest entry makes room.
type recent struct {
	limit int
	index map[uint64]int32
	ring  []recentEntry
	next  int
}

type recentEntry struct {
	id    uint64
	until uint32
}

// get returns the newest expiry second known for the ticket, 0 for none.
func (r *recent) get(id uint64) uint32 {
	if i, ok := r.index[id]; ok {
		return r.ring[i].until
	}
	return 0
}

// drop makes the ticket unknown.
func (r *recent) drop(id uint64) {
	if i, ok := r.index[id]; ok {
		r.ring[i].until = 0 // keeps its place until that is needed
	}
}

func (r *recent) put(id uint64, until uint32) {
	if i, ok := r.index[id]; ok {
		r.ring[i].until = until
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
		r.ring = append(r.ring, recentEntry{id: id, until: until})
		return
	}
	e := &r.ring[r.next]
	delete(r.index, e.id)
	*e = recentEntry{id: id, until: until}
	r.index[id] = int32(r.next)
	r.next = (r.next + 1) % len(r.ring)
}
