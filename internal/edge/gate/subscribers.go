package gate

import (
	"container/list"
	"net/netip"
	"sync"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
	"vestibule/internal/edge/clientaddr"
)

const (
	// A subscription whose browser has not answered the first message for this long gives way in a full room.
	confirmWithin = 20 * time.Second

	// looksPerTake are the subscriptions that a new one in a full room looks at, for those that have lapsed.
	looksPerTake = 64
)

// subscribers are the visitors of a room that have subscribed to notifications at this edge, one for each ticket. The
// zero value has none. It is safe for concurrent use.
type subscribers struct {
	mu    sync.Mutex
	by    map[uint64]*subscriber // by ticket
	of    map[netip.Prefix]*list.List
	tally *clientaddr.Tally
	order list.List // of all, by when they were looked at
}

// subscriber is one of them.
type subscriber struct {
	ticket    ticket.Ticket // Kept: its browser has answered the first message
	prefix    netip.Prefix
	since     fleettime.Time
	all, near *list.Element // in order, and in the list of the prefix
}

// take takes a place for the ticket of a visitor from a prefix; another of the ticket is replaced. most is how many may
// be taken. In a full room another gives its place up: one whose place in line has lapsed, else the newest of the prefix
// with the most, else one that was not confirmed in time. gone is the one that is to be ended. It reports whether there
// was a place.
func (s *subscribers) take(
	now fleettime.Time, t *ticket.Ticket, from netip.Prefix, most int, waits func(*ticket.Ticket) bool,
) (gone *subscriber, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by, s.of, s.tally = map[uint64]*subscriber{}, map[netip.Prefix]*list.List{}, clientaddr.NewTally()
	}
	if had := s.by[t.ID]; had != nil {
		s.remove(had)
	} else if len(s.by) >= most {
		if gone = s.oneToGo(now, from, waits); len(s.by) >= most {
			return nil, false
		}
	}
	x := &subscriber{ticket: *t, prefix: from, since: now}
	x.ticket.Kept = false
	near := s.of[from]
	if near == nil {
		near = list.New()
		s.of[from] = near
	}
	x.all, x.near = s.order.PushBack(x), near.PushBack(x)
	s.tally.Add(from)
	s.by[t.ID] = x
	return gone, true
}

// oneToGo removes the lapsed ones among those looked at longest ago, or another that gives way to one from a prefix and
// is to be ended.
func (s *subscribers) oneToGo(
	now fleettime.Time, from netip.Prefix, waits func(*ticket.Ticket) bool,
) (gone *subscriber) {
	lapsed, late := 0, (*subscriber)(nil)
	for range min(looksPerTake, s.order.Len()) {
		x := s.order.Front().Value.(*subscriber)
		if !waits(&x.ticket) {
			s.remove(x)
			lapsed++
			continue
		}
		s.order.MoveToBack(x.all)
		if late == nil && !x.ticket.Kept && now.Sub(x.since) > confirmWithin {
			late = x
		}
	}
	if lapsed > 0 {
		return nil
	}
	gone = late
	if most, ok := s.tally.GivesWay(from); ok {
		gone = s.of[most].Back().Value.(*subscriber)
	}
	if gone != nil {
		s.remove(gone)
	}
	return gone
}

// confirm records that the browser of a visitor has answered the first message: it gives way after those that have not.
func (s *subscribers) confirm(visitor uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.by[visitor]; x != nil {
		x.ticket.Kept = true
		s.of[x.prefix].MoveToFront(x.near)
	}
}

// drop gives the place of a visitor back. It reports whether it had one.
func (s *subscribers) drop(visitor uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.by[visitor]
	if x != nil {
		s.remove(x)
	}
	return x != nil
}

func (s *subscribers) remove(x *subscriber) {
	delete(s.by, x.ticket.ID)
	s.order.Remove(x.all)
	s.tally.Remove(x.prefix)
	near := s.of[x.prefix]
	if near.Remove(x.near); near.Len() == 0 {
		delete(s.of, x.prefix)
	}
}
