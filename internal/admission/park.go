package admission

import (
	"container/heap"

	"vestibule/internal/fleet"
	"vestibule/internal/room"
	"vestibule/internal/ticket"
)

// Visit is one request that is held open. The shell makes it, hands it to
// [Engine.Hold], and waits until [Engine.Release] returns it or its own
// patience ends ([Engine.GiveUp], or [Engine.Abandon] where the visitor is gone).
// Between those it belongs to the engine.
type Visit struct {
	Room     room.ID
	Ticket   ticket.Ticket // as the decision to hold returned it
	Brought  ticket.Ticket // as the request brought it, for Abandon
	Decision Decision      // set when the engine has decided
	Data     any           // the shell's own

	index int // in the heap, -1 when not held
}

// parked holds visits ordered by who joined first; the ticket's random id
// breaks ties, so that the order does not depend on arrival at this edge.
type parked []*Visit

func (p parked) Len() int { return len(p) }
func (p parked) Less(i, j int) bool {
	a, b := &p[i].Ticket, &p[j].Ticket
	if a.Joined != b.Joined {
		return a.Joined < b.Joined
	}
	return a.ID < b.ID
}

func (p parked) Swap(i, j int) {
	p[i], p[j] = p[j], p[i]
	p[i].index, p[j].index = i, j
}

func (p *parked) Push(x any) {
	v := x.(*Visit)
	v.index = len(*p)
	*p = append(*p, v)
}

func (p *parked) Pop() any {
	old := *p
	v := old[len(old)-1]
	old[len(old)-1] = nil
	*p = old[:len(old)-1]
	v.index = -1
	return v
}

func (p *parked) remove(v *Visit) { heap.Remove(p, v.index) }

// oldest appends the join times of the n visitors who joined first, ascending: each
// once, however many requests of one ticket are held.
func (p parked) oldest(out []fleet.Time, n int) []fleet.Time {
	if len(p) == 0 || n == 0 {
		return out
	}
	// Walk the heap from its root with a small heap of candidates.
	front := candidates{p: p, at: make([]int, 0, 2*n+1)}
	heap.Push(&front, 0)
	last := uint64(0) // requests of one ticket come one after the other
	for len(out) < n && front.Len() > 0 {
		i := heap.Pop(&front).(int)
		if t := &p[i].Ticket; len(out) == 0 || t.ID != last {
			out, last = append(out, t.Joined), t.ID
		}
		for c := 2*i + 1; c <= 2*i+2 && c < len(p); c++ {
			heap.Push(&front, c)
		}
	}
	return out
}

// heldPerTicket is how many requests of one ticket are held at once: the tabs of one
// visitor. The others ask again.
const heldPerTicket = 8

// tabs counts the requests that are held, by ticket.
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
	p  parked
	at []int
}

func (c *candidates) Len() int           { return len(c.at) }
func (c *candidates) Less(i, j int) bool { return c.p.Less(c.at[i], c.at[j]) }
func (c *candidates) Swap(i, j int)      { c.at[i], c.at[j] = c.at[j], c.at[i] }
func (c *candidates) Push(x any)         { c.at = append(c.at, x.(int)) }
func (c *candidates) Pop() any {
	x := c.at[len(c.at)-1]
	c.at = c.at[:len(c.at)-1]
	return x
}
