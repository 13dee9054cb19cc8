package sim

// eventKind is the kind of an event.
type eventKind uint8

const (
	evVisit   eventKind = iota // a visitor acts
	evGiveUp                   // a long-polled visitor's patience at the edge ends
	evEdge                     // an edge's timer
	evRegion                   // a regional's timer
	evGlobal                   // global's timer
	evReport                   // a report of an edge arrives
	evSummary                  // a report of a regional arrives
	evLoan                     // a grant of global arrives
	evGrant                    // a grant of a regional arrives
	evStored                   // a regional's store has completed a write
	evFault                    // a fault begins
	evDo                       // a function, such as the end of a fault
	evSecond                   // a second of true time begins
	evArrival                  // the next visitor comes
)

// event is one entry of the agenda. Events of the same time happen in the order of planning.
type event struct {
	at   int64 // nanoseconds of true time
	kind eventKind
	node int32  // the node or visitor
	msg  any    // *wire.Report, *wire.Grant, wire.Durable, func()
	gen  uint64 // of the timer
	from *proc  // of a message
}

// agenda is a 4-ary heap of event times, earliest first.
type agenda struct {
	heap   []moment
	events []event // indexed by moment.event
	free   []int32 // free indices of events
	seq    uint64
}

// moment is the time of an event. It holds no pointer, since moments are moved around all the time.
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
