package admission

import (
	"container/heap"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// Visit is one held request. The shell makes it, passes it to [Rooms.Hold], and waits until [Rooms.Release]
// returns it or the shell ends the hold ([Rooms.GiveUp], or [Rooms.Abandon] if the client has disconnected). In
// between the engine owns it.
type Visit struct {
	Room     room.ID
	Ticket   ticket.Ticket // as returned by the decision to hold
	Brought  ticket.Ticket // as brought by the request, for Abandon
	Decision Decision      // set by the engine
	Data     any           // for the shell

	turn  fleettime.Time // see Room.turn
	index int            // in the heap, -1 when not held
}

// held are the held requests of a room.
type held struct {
	visits visitHeap
	tabs   tabs
}

// add starts the hold of v.
func (h *held) add(v *Visit) {
	heap.Push(&h.visits, v)
	h.tabs.add(v.Ticket.ID)
}

// remove ends the hold of v. It returns false if v is not held.
func (h *held) remove(v *Visit) bool {
	if v.index < 0 || v.index >= len(h.visits) || h.visits[v.index] != v {
		return false
	}
	h.tabs.remove(v.Ticket.ID)
	heap.Remove(&h.visits, v.index)
	return true
}

// full reports whether no further request of a ticket can be held.
func (h *held) full(id uint64, limit int) bool {
	return len(h.visits) >= limit || h.tabs[id] >= heldPerTicket
}

// called returns the number of held visitors with a turn up to upTo.
func (h *held) called(upTo fleettime.Time) uint64 {
	if upTo == estimate.Open {
		return uint64(len(h.tabs))
	}
	return uint64(len(h.visits.oldest(len(h.visits), upTo)))
}

// before reports whether a held visitor's turn is before that of the ticket with this ID.
func (h *held) before(turn fleettime.Time, id uint64) bool {
	if len(h.visits) == 0 {
		return false
	}
	return h.visits[0].before(turn, id)
}

// before reports whether the turn of v is earlier.
func (v *Visit) before(turn fleettime.Time, id uint64) bool {
	return v.turn < turn || (v.turn == turn && v.Ticket.ID < id)
}

// renew gives held visitors new places.
func (h *held) renew(place func(in ticket.Network) ticket.Ticket) {
	h.tabs = nil
	for _, v := range h.visits {
		v.Ticket = place(v.Ticket.Network)
		h.tabs.add(v.Ticket.ID)
	}
}

// order sorts held visitors by turn.
func (h *held) order(in *Room, view *wire.View) {
	for _, v := range h.visits {
		v.turn = in.turn(view, &v.Ticket)
	}
	heap.Init(&h.visits)
}

// visitHeap is ordered by turn. The ticket's random ID breaks ties, so that the order is independent of arrival at
// this edge.
type visitHeap []*Visit

func (h visitHeap) Len() int           { return len(h) }
func (h visitHeap) Less(i, j int) bool { return h[i].before(h[j].turn, h[j].Ticket.ID) }

func (h visitHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *visitHeap) Push(x any) {
	v := x.(*Visit)
	v.index = len(*h)
	*h = append(*h, v)
}

func (h *visitHeap) Pop() any {
	old := *h
	v := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	v.index = -1
	return v
}

// oldest returns the turns of the first n visitors up to a turn, ascending, each once even if several requests of a
// ticket are held.
func (h visitHeap) oldest(n int, upTo fleettime.Time) (out []fleettime.Time) {
	if len(h) == 0 || n == 0 {
		return nil
	}
	// Walk the heap from its root with a small heap of candidates.
	front := candidates{h: h, at: make([]int, 0, min(2*n+1, len(h)))}
	heap.Push(&front, 0)
	last := uint64(0) // requests of one ticket are adjacent
	for len(out) < n && front.Len() > 0 {
		i := heap.Pop(&front).(int)
		if h[i].turn > upTo {
			break
		}
		if t := &h[i].Ticket; len(out) == 0 || t.ID != last {
			out, last = append(out, h[i].turn), t.ID
		}
		for c := 2*i + 1; c <= 2*i+2 && c < len(h); c++ {
			heap.Push(&front, c)
		}
	}
	return out
}

// silent returns the number of held visitors with a turn before called that asked before the second since. A held
// request is open, so they are not overdue.
func (h *held) silent(called fleettime.Time, since int64) (n int64) {
	for _, v := range h.visits {
		if v.turn.Second() < called.Second() && int64(v.Ticket.Seen) < since {
			n++
		}
	}
	return n
}

// heldPerTicket is the maximum number of held requests per ticket, the tabs of one visitor. Further ones poll.
const heldPerTicket = 8

// tabs counts held requests by ticket.
type tabs map[uint64]int

func (m *tabs) add(id uint64) {
	if *m == nil {
		*m = tabs{}
	}
	(*m)[id]++
}

func (m tabs) remove(id uint64) {
	if m[id]--; m[id] <= 0 {
		delete(m, id)
	}
}

type candidates struct {
	h  visitHeap
	at []int
}

func (c *candidates) Len() int           { return len(c.at) }
func (c *candidates) Less(i, j int) bool { return c.h.Less(c.at[i], c.at[j]) }
func (c *candidates) Swap(i, j int)      { c.at[i], c.at[j] = c.at[j], c.at[i] }
func (c *candidates) Push(x any)         { c.at = append(c.at, x.(int)) }
func (c *candidates) Pop() any {
	x := c.at[len(c.at)-1]
	c.at = c.at[:len(c.at)-1]
	return x
}
