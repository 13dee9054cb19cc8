package sim

import (
	"math"
	"time"

	"vestibule/internal/core/push"
	"vestibule/internal/core/wire"
)

// awayUntilCalled has half of a long line subscribe and close the page, and half of those never come back. It compares
// the waits of the others with those in a fleet where these never came, and with what they were told. One run differs
// from another by 2 %, so it takes the mean of two.
func awayUntilCalled(f *Finding) {
	run := func(seed uint64, subscribe, never, perMinute float64) (*meters, *Result) {
		c := busy(seed)
		c.Length, c.People.Patience, c.People.Stay, c.WebPush = 25*time.Minute, 0, 1, true
		c.Demand = Demand{
			PerMinute: perMinute,
			Spikes:    []Spike{{At: 2 * time.Minute, Length: time.Minute, PerMinute: 3 * perMinute}},
		}
		w := filled(c, func(w *World) { w.meters.listen() })
		w.visitors.closes = (&subscribers{visitors: w.visitors, share: subscribe, never: never}).subscribes
		return w.meters, f.run(w)
	}
	mean := func(x []float64) (m float64) {
		for _, s := range x {
			m += s / float64(len(x))
		}
		return m
	}
	var a, b float64
	for seed := range uint64(2) {
		with, r := run(seed+1, 0.5, 0.5, 2000)
		without, _ := run(seed+1, 1.0/3, 0, 1500)
		a, b = a+mean(with.waits)/2, b+mean(without.waits)/2
		f.judge("subscribers that close the page: use of T", "", r.UseT)
		f.happened(r.Peak <= r.Config.Total && len(with.back) > 1000, "T was exceeded, or fewer than 1,000 came back")
		f.add(", ", "%.4f", r.UseT)
		f.note("the others: %s; %d came back and were in after p50 / p99 %.0f / %.0f s; peak sessions / T %.4f", with.words,
			len(with.back), quantile(with.back, 0.5), quantile(with.back, 0.99), float64(r.Peak)/float64(r.Config.Total))
	}
	off := a/b - 1
	f.judge("subscribers that close the page: waits of others", "", 100*off)
	f.add("; ", "%+.1f %% (%.0f s, %.0f s without them)", 100*off, a, b)
}

// subscribers are the visitors that have closed the page and are told when they are called.
type subscribers struct {
	*visitors
	share, never float64          // of the waiting visitors, and of the subscribers that do not come when they are called
	book         *push.Book       // nil before the first
	of           map[uint64]int32 // by ticket
}

// subscribes decides at the waiting page of a visitor whether it subscribes, and closes the page of one that does.
func (s *subscribers) subscribes(i int32) bool {
	v := &s.all[i]
	if v.queued || v.kept || s.rng.Float64() >= s.share {
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
	s.book.Set(s.fleetTime(), s.room, t.ID, 1, "", &push.Record{
		Place: t.Place(), Notified: push.Confirmed,
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
	c := push.CallOf(s.room, view, 10*time.Minute, s.fleetTime())
	for shard := range wire.OutboxShards {
		for _, j := range s.book.Due(s.fleetTime(), shard, c) {
			if j.Stage != push.Called {
				continue
			}
			i := s.of[j.Visitor]
			s.book.Set(0, j.Room, j.Visitor, 1, "", nil)
			delete(s.of, j.Visitor)
			if s.rng.Float64() < s.never {
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
