package sim

import (
	"time"

	"vestibule/internal/core/room"
)

// useOf measures the use of T in a busy room in which something happens, and judges it by a goal, "" for none.
func useOf(f *Finding, goal string, capped bool, happen func(w *World)) {
	c := busy(1)
	c.Cap = capped
	r := f.run(filled(c, happen))
	if goal != "" {
		f.judge(goal, "", r.UseT)
	}
	f.add("", "%.4f", r.UseT)
}

// crashEveryEdge ends every edge once within ten minutes, evenly spread; each restarts after later.
func crashEveryEdge(later time.Duration) func(w *World) {
	return func(w *World) {
		for i, n := range w.edges.all {
			at := 10 * time.Minute * time.Duration(i) / time.Duration(len(w.edges.all))
			w.in(at, func() { w.edges.end(n) })
			w.in(at+later, func() { w.edges.start(n) })
		}
	}
}

func cutOneCentre(w *World) { w.cutFor(w.centres.all[0], 12*time.Minute) }

func loseGlobal(w *World) { w.globals.end(10 * time.Minute) }

// hourWithoutGlobal has no coordinator for so long that no data centre is certain of the time any more.
func hourWithoutGlobal(f *Finding) {
	c := busy(1)
	c.Length = fill + time.Hour + 5*time.Minute
	w := filled(c, func(w *World) { w.globals.end(time.Hour) })
	r := f.run(w)
	f.judge(useAlone, "", r.UseT)
	f.judge("visitors put out, no coordinator", "", float64(w.meters.early))
	f.add("", "%.4f; %d", r.UseT, w.meters.early)
}

// spikeIntoOne starts without visitors, then raises demand to 4,000 per minute within ten seconds, all in the second
// of four data centres.
func spikeIntoOne(f *Finding, peak bool) {
	var came, early, most int
	const total = 2000
	for seed := range uint64(5) {
		c := busy(seed + 1)
		c.Centres, c.Length = 4, 5*time.Minute
		c.Demand = Demand{Spikes: []Spike{{
			At: time.Minute, Ramp: 10 * time.Second, Length: 3 * time.Minute, PerMinute: 4000,
			Centre: 2,
		}}}
		r := f.run(New(c))
		came, early, most = came+r.Arrived, early+r.QueuedFree, max(most, r.Peak)
	}
	if peak {
		f.judge("spike: peak of sessions / T", "", float64(most)/total)
		f.add("", "%d / %d = %.4f", most, total, float64(most)/total)
		return
	}
	part := float64(early) / float64(came)
	f.judge("spike: queued while permits were free", "", 100*part)
	f.add("", "%d of %d = %.3f %%", early, came, 100*part)
}

func orderStrict(f *Finding) {
	r := f.run(filled(busy(1), nil))
	f.judge("order: p50 off the order of arrival", "", r.OrderP50)
	f.judge("order: p99 off the order of arrival", "", r.OrderP99)
	f.add("", "%.2f s / %.2f s at use %.4f", r.OrderP50, r.OrderP99, r.UseT)
}

// restartedEdge crashes an edge in a full room whose visitors all leave then; the edge restarts two seconds later. It
// measures when the room is full again.
func restartedEdge(f *Finding) {
	for _, d := range []time.Duration{time.Minute, 5 * time.Minute} {
		c := busy(1)
		c.Session, c.Length = d, fill+3*d+4*time.Minute
		c.Demand.PerMinute = 4000
		w := New(c)
		took := time.Duration(-1)
		left := map[uint64]bool{}
		w.in(fill+d, func() {
			for _, v := range w.inside() {
				left[v.pass.ticket.ID] = true
			}
			w.edges.end(w.edges.all[0])
			w.goHome()
			w.in(2*time.Second, func() { w.edges.start(w.edges.all[0]) })
			began := w.now
			var look func()
			look = func() {
				others := w.sessions()
				for id := range left {
					if w.oracle.tickets[id] != nil {
						others--
					} else {
						delete(left, id)
					}
				}
				if took < 0 && float64(others) >= 0.999*float64(c.Total) {
					took = time.Duration(w.now - began)
					return
				}
				w.in(100*time.Millisecond, look)
			}
			look()
		})
		f.run(w)
		f.happened(took >= 0, "the room did not fill again")
		f.judge("permits in use again after session_duration and", d.String(), (took - d).Seconds())
		f.add(", ", "%v + %.1f s", d, (took - d).Seconds())
	}
}

// hourAlone lets visitors continue for an hour without any message between nodes.
func hourAlone(f *Finding) {
	c := busy(1)
	c.Length = fill + time.Hour + time.Minute
	c.Session = 5 * time.Minute
	c.People.Pages, c.People.Think = 400, 20*time.Second
	c.Demand.PerMinute = 1000
	people, stayed := 0, 0
	w := filled(c, func(w *World) { people = len(w.inside()); w.isolate(time.Hour) })
	w.in(fill+time.Hour, func() { stayed = len(w.inside()) })
	f.run(w)
	f.judge("an hour without NATS: errors inside", "", float64(w.meters.early))
	f.add("", "%d of %d people, %d of whom were still there after the hour", w.meters.early,
		people, stayed)
}

// abandoners adds visitors that abandon to a room that is four fifths full.
func abandoners(f *Finding) {
	run := func(leavers bool) (people float64) {
		c := Defaults()
		c.Length, c.Total, c.Rate, c.Probation = 20*time.Minute, 20_000, 100_000, room.DefaultProbation
		c.Demand.PerMinute = 2400
		w := New(c)
		w.in(10*time.Minute, w.meters.begin)
		if leavers {
			w.bring(&crowd{from: 5 * time.Minute, until: c.Length, perSecond: 50, behave: oneLook})
		}
		f.run(w)
		return float64(w.meters.Inside - w.meters.robots)
	}
	without := run(false)
	part := run(true) / without
	f.judge("abandoned permits: throughput left", "", 100*part)
	f.add("", "%.1f %%", 100*part)
}
