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
	seq  uint64
	kind eventKind
	node int32  // the node or visitor concerned
	msg  any    // *wire.Report, *wire.Grant, wire.Durable, func()
	gen  uint64 // of the timer; of a message, who sent it
}

// agenda is a 4-ary heap of events, earliest first.
type agenda struct {
	heap []event
	seq  uint64
}

func (a *agenda) plan(e event) {
	a.seq++
	e.seq = a.seq
	a.heap = append(a.heap, e)
	i := len(a.heap) - 1
	for i > 0 {
		p := (i - 1) / 4
		if !before(&a.heap[i], &a.heap[p]) {
			break
		}
		a.heap[i], a.heap[p] = a.heap[p], a.heap[i]
		i = p
	}
}

func before(x, y *event) bool {
	if x.at != y.at {
		return x.at < y.at
	}
	return x.seq < y.seq
}

func (a *agenda) next() (event, bool) {
	if len(a.heap) == 0 {
		return event{}, false
	}
	top := a.heap[0]
	last := len(a.heap) - 1
	moved := a.heap[last]
	a.heap[last] = event{}
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
			if before(&a.heap[c], &a.heap[best]) {
				best = c
			}
		}
		if !before(&a.heap[best], &moved) {
			break
		}
		a.heap[i] = a.heap[best]
		i = best
	}
	a.heap[i] = moved
	return top, true
}
