package sim

import "time"

// moveOut moves all visitors of a disconnected data centre to another one.
func moveOut(f *Finding) {
	c := busy(1)
	c.People.Think = 5 * time.Second
	w := New(c)
	moved, metric := 0, int64(0)
	w.in(fill, func() { w.cutFor(w.centres.all[0], 10*time.Minute) })
	w.in(fill+10*time.Second, func() {
		for i := range w.visitors.all {
			if v := &w.visitors.all[i]; v.inside && v.centre == 0 {
				v.centre = 1 + int32(i)%2
				v.edge = w.visitors.anyEdge(v.centre)
				moved++
			}
		}
	})
	w.each(time.Second, func() { metric = max(metric, w.overcommitTold()) })
	r := f.run(w)
	peak := float64(r.Peak) / float64(c.Total)
	f.judge("visitors that move: peak of sessions / T", "", peak)
	f.judge("visitors that move: possible overcommit", "", float64(metric))
	f.happened(moved > 0, "nobody moved")
	f.add("", "%.3f / %d, %d moved", peak, metric, moved)
}

// awayAndBack moves the visitors of a disconnected edge under serve to other edges, which count their sessions, and
// back, where they are not counted: the only way for T to be exceeded.
func awayAndBack(f *Finding) {
	c := busy(1)
	c.People.Stay, c.People.Think, c.People.Pages = 1, 5*time.Second, 100
	w := New(c)
	n := w.edges.all[0]
	var went []int32
	metric := int64(0)
	w.in(fill, func() {
		until := w.now + int64(10*time.Minute)
		n.cutUp, n.cutDown = until, until
	})
	w.in(fill+10*time.Second, func() {
		for i := range w.visitors.all {
			if v := &w.visitors.all[i]; v.inside && v.edge == n {
				v.edge = w.edges.all[1+i%3]
				went = append(went, int32(i))
			}
		}
	})
	w.in(fill+40*time.Second, func() {
		for _, i := range went {
			w.visitors.all[i].edge = n
		}
	})
	w.each(time.Second, func() { metric = max(metric, w.overcommitTold()) })
	r := f.run(w)
	over := max(0, r.Peak-c.Total)
	f.judge("edge cut off: sessions above T beside those reported", "", float64(over)/float64(metric))
	f.judge("edge cut off: sessions reported beside those moved", "", float64(metric)/float64(len(went)))
	f.happened(over > 0, "no session was above T")
	f.add("", "%d above T, %d told, %d moved", over,
		metric, len(went))
}

// drainFull takes a data centre away from a full room of 20,000 sessions.
func drainFull(f *Finding) {
	x := drain(20_000, time.Minute)
	f.take(&Result{Config: Defaults(), Fault: x.fault})
	f.judge("drain of a full room: people put out", "", float64(x.out))
	f.judge("drain of a full room: permits lost", "", float64(x.lost))
	f.judge("drain of a full room: seconds counted twice", "", x.twice.Seconds())
	f.happened(x.moved > 5000, "few sessions moved")
	f.add("", "%d / %d / %.1f s, %d moved", x.out, x.lost, x.twice.Seconds(), x.moved)
}

// overcommitTold returns the possible overcommit of T that the nodes report.
func (fl *fleet) overcommitTold() int64 {
	root := fl.globals.newest().core.Ledger(fl.room)
	if root.Overcommit > 0 {
		return root.Overcommit
	}
	n := int64(0)
	for _, r := range fl.centres.all {
		n += r.newest().core.Ledger(fl.room).Overcommit
	}
	return n
}
