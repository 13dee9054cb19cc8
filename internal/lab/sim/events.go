package sim

// eventKind is what happens at an event.
type eventKind uint8

const (
	evVisit   eventKind = iota // a visitor acts
	evGiveUp                   // a held visitor's patience at the edge ends
	evEdge                     // an edge's timer
	evRegion                   // a regional's timer
	evGlobal                   // global's timer
	evReport                   // a report arrives
	evGrant                    // a grant arrives
	evStored                   // a regional's store has written
	evFault                    // something goes wrong
	evDo                       // something is done: the end of a fault
	evSecond                   // a second of true time begins
	evArrival                  // the next visitor comes
)

// event is one entry of the agenda. Events of the same moment happen in the
// order in which they were planned.
type event struct {
	at   int64 // nanoseconds of true time
	kind eventKind
	node int32  // the node or visitor concerned
	msg  any    // *wire.Report, *wire.Grant, wire.Durable, func()
	gen  uint64 // of the timer; of a message, who sent it
}

// agenda is a 4-ary heap of the moments of events, earliest first.
type agenda struct {
	heap   []moment
	events []event // by moment.event
	free   []int32 // places in events
	seq    uint64
}

// moment is when an event happens. It holds no pointer: moments are moved about all the time.
type moment struct {
	at    int64
	seq   uint64
	event int32
}

func (m *moment) before(o *moment) bool { return m.at < o.at || m.at == o.at && m.seq < o.seq }

func (a *agenda) plan(e event) {
	a.seq++
	m := moment{at: e.at, seq: a.seq, event: int32(len(a.events))}
	if n := len(a.free); n > 0 {
		m.event, a.free = a.free[n-1], a.free[:n-1]
		a.events[m.event] = e
	} else {
		a.events = append(a.events, e)
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

func (a *agenda) next() (event, bool) {
	if len(a.heap) == 0 {
		return event{}, false
	}
	place := a.heap[0].event
	top := a.events[place]
	a.events[place].msg = nil
	a.free = append(a.free, place)
	last := len(a.heap) - 1
	moved := a.heap[last]
	a.heap = a.heap[:last]
	if last == 0 {
		return top, true
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
	return top, true
}
