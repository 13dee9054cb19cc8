package sim

// agenda is a 4-ary heap of event times, earliest first. Events of the same time happen in the order of planning.
type agenda struct {
	heap   []moment
	events []func() // indexed by moment.event
	free   []int32  // free indices of events
	seq    uint64
}

// moment is the time of an event. It holds no pointer, since moments are moved around all the time.
type moment struct {
	at    int64
	seq   uint64
	event int32
}

func (m *moment) before(o *moment) bool { return m.at < o.at || m.at == o.at && m.seq < o.seq }

func (a *agenda) plan(at int64, do func()) {
	a.seq++
	m := moment{at: at, seq: a.seq, event: int32(len(a.events))}
	if n := len(a.free); n > 0 {
		m.event, a.free = a.free[n-1], a.free[:n-1]
		a.events[m.event] = do
	} else {
		a.events = append(a.events, do)
	}
	i := len(a.heap)
	a.heap = append(a.heap, m)
	for i > 0 {
		p := (i - 1) / 4
		if !m.before(&a.heap[p]) {
			break
		}
		a.heap[i] = a.heap[p]
		i = p
	}
	a.heap[i] = m
}

// next takes the first event; do is nil for none.
func (a *agenda) next() (at int64, do func()) {
	if len(a.heap) == 0 {
		return 0, nil
	}
	at, place := a.heap[0].at, a.heap[0].event
	do, a.events[place] = a.events[place], nil
	a.free = append(a.free, place)
	last := len(a.heap) - 1
	moved := a.heap[last]
	a.heap = a.heap[:last]
	if last == 0 {
		return at, do
	}
	i := 0
	for {
		first := 4*i + 1
		if first >= last {
			break
		}
		best := first
		for c := first + 1; c < min(first+4, last); c++ {
			if a.heap[c].before(&a.heap[best]) {
				best = c
			}
		}
		if !a.heap[best].before(&moved) {
			break
		}
		a.heap[i] = a.heap[best]
		i = best
	}
	a.heap[i] = moved
	return at, do
}
