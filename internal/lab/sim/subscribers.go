package sim

import (
	"math"
	"time"

	"vestibule/internal/core/push"
	"vestibule/internal/core/wire"
)

// subscribers are the visitors that have closed the page and are told when they are called.
type subscribers struct {
	*visitors
	book *push.Book       // nil before the first
	of   map[uint64]int32 // by ticket
}

// subscribes decides at the waiting page of a visitor whether it subscribes, and closes the page of one that does.
func (s *subscribers) subscribes(i int32) bool {
	v, p := &s.all[i], &s.cfg.People
	if p.Subscribe == 0 || v.queued || v.kept || s.rng.Float64() >= p.Subscribe {
		return false
	}
	if s.book == nil {
		s.book, s.of = push.NewBook(math.MaxInt), map[uint64]int32{}
		s.each(time.Second, s.call)
	}
	v.kept = true
	n := v.edge
	t, _ := s.ticketOf(n, v)
	n.core.Away(n.clock.read(s.now), s.room, t, t.Answer)
	s.edges.wake(n)
	s.of[t.ID] = i
	s.book.Set(s.fleetTime(), s.room, t.ID, 1, &push.Record{
		Place: t.Place(), Told: push.Confirmed,
		Sealed: []byte{1},
	})
	return true
}

// call tells who is called. It comes back half a minute later on average, or never.
func (s *subscribers) call() {
	view := s.globals.newest().core.Totals(s.room).View
	if view == nil {
		return
	}
	c := push.CallOf(s.room, view, s.fleetTime())
	for shard := range wire.OutboxShards {
		for _, j := range s.book.Due(s.fleetTime(), shard, c, math.MaxInt) {
			if j.Stage != push.Called {
				continue
			}
			i := s.of[j.Visitor]
			s.book.Set(0, j.Room, j.Visitor, 1, nil)
			delete(s.of, j.Visitor)
			if s.rng.Float64() < s.cfg.People.Never {
				s.end(i)
				continue
			}
			v := &s.all[i]
			v.gen++
			later := int64(min(s.rng.ExpFloat64()*30, 9*60) * 1e9) // claim is ten minutes
			v.came = s.now + later
			s.next(i, v.came)
		}
	}
}
