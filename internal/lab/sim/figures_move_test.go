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
	f.add("", peak <= 1 && metric == 0 && moved > 0, "%.3f / %d, %d moved", peak, metric, moved)
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
	f.add("", int64(over) <= metric && metric <= int64(len(went)) && over > 0, "%d above T, %d told, %d moved", over,
		metric, len(went))
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
