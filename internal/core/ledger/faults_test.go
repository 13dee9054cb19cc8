package ledger_test

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vestibule/internal/core/wire"
)

// TestFaultsBreakNoPromise runs two data centres with two edges each through random faults: messages lost, doubled
// and late, links cut in one direction or both, crashes, leaders beside their successors, stalled stores, changed
// limits, a room that is removed and added again. The judge checks every step. Then all faults end, and all permits
// must be usable again.
func TestFaultsBreakNoPromise(t *testing.T) {
	// A world takes some tens of milliseconds: fewer of them than of small values.
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		set := func(checks string) {
			if err := f.Value.Set(checks); err != nil {
				t.Fatal(err)
			}
		}
		set("20")
		t.Cleanup(func() { set(f.DefValue) })
	}
	rapid.Check(t, func(t *rapid.T) {
		params := wire.DefaultParams()
		params.EdgeLease, params.ReportIdle = time.Second, 300*time.Millisecond // a lease outlives several reports
		params.RegionalLease = 8 * time.Second
		w := newWorld(params, []string{"dublin", "nairobi"}, 2)
		w.rooms.cap = rapid.Bool().Draw(t, "cap")
		w.rooms.probation = rapid.SampledFrom([]time.Duration{0, 2 * time.Second}).Draw(t, "probation")
		r := w.rooms.add("sale", rapid.Uint64Range(1, 12).Draw(t, "T"), rapid.Uint64Range(1, 60).Draw(t, "R"),
			rapid.SampledFrom([]time.Duration{5, 10}).Draw(t, "session")*time.Second)
		for _, e := range w.edges {
			e.drift = rapid.SampledFrom([]float64{0, 90e-6, -90e-6}).Draw(t, "drift")
		}
		w.net.chaos = chaos{
			loss:   rapid.SampledFrom([]float64{0, 0.02, 0.3}).Draw(t, "loss"),
			double: rapid.SampledFrom([]float64{0, 0.2}).Draw(t, "double"),
			late:   rapid.SampledFrom([]float64{0, 0.1, 0.3}).Draw(t, "late"),
			most:   rapid.SampledFrom([]time.Duration{100 * time.Millisecond, 4 * time.Second}).Draw(t, "most"),
		}
		w.people.clicking = 2 * time.Second
		var story []string
		w.tell = func(format string, args ...any) {
			story = append(story, fmt.Sprintf("%8.3f  ", time.Duration(w.now).Seconds())+fmt.Sprintf(format, args...))
		}
		check := func() {
			if w.oracle.broken != "" {
				for _, line := range story {
					t.Log(line)
				}
				t.Fatal(w.oracle.broken)
			}
		}
		edge := func() *edgeProc { return w.edges[rapid.IntRange(0, 3).Draw(t, "edge")] }
		aCentre := func() *dataCentre { return w.centres[rapid.IntRange(0, 1).Draw(t, "cluster_id")] }
		links := func(up, down *link, name string) {
			which := rapid.IntRange(0, 2).Draw(t, "direction")
			cut := rapid.Bool().Draw(t, "cut")
			w.tell("%s: cut %v (%d)", name, cut, which)
			if which != 1 {
				up.cut = cut
			}
			if which != 2 {
				down.cut = cut
			}
		}
		visitors := 0
		unknown := false // an aggregator began without the room: what it reserves for lost edges may count for hours
		w.begin(true)
		w.run(time.Second)
		for range rapid.IntRange(5, 40).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{
				"wait", "wait", "arrive", "arrive", "arrive", "crash edge", "start edge", "cut edge", "cut centre",
				"new aggregator", "new leader", "zombie", "disk", "limits", "roam", "leave", "quit", "copy", "room", "long wait",
			}).Draw(t, "what") {
			case "wait":
			case "arrive":
				e := edge()
				for range rapid.IntRange(1, 6).Draw(t, "n") {
					visitors++
					w.people.arrive(fmt.Sprint(visitors), r, e)
				}
			case "crash edge":
				e := edge()
				w.tell("%s crashes", e.name)
				e.stop(w)
			case "start edge":
				if e := edge(); e.gone {
					w.tell("%s starts", e.name)
					e.start(w)
				}
			case "cut edge":
				e := edge()
				links(&e.up, &e.down, e.name)
			case "cut centre":
				s := aCentre()
				links(&s.up, &s.down, s.name)
			case "new aggregator":
				s := aCentre()
				w.tell("%s: a new aggregator", s.name)
				s.newest().gone = true
				w.startAgg(s, false)
				unknown = unknown || r.gone
			case "new leader":
				w.tell("a new leader")
				w.root().gone = true
				w.startRoot(false)
			case "zombie":
				if s := aCentre(); rapid.Bool().Draw(t, "root") {
					w.tell("a new leader beside the old one")
					w.startRoot(false)
				} else {
					w.tell("%s: a new aggregator beside the old one", s.name)
					w.startAgg(s, false)
					unknown = unknown || r.gone
				}
			case "disk":
				s := aCentre()
				s.diskless = !s.diskless
				w.tell("%s: store stands still: %v", s.name, s.diskless)
				for _, n := range s.procs {
					n.store(w)
				}
			case "limits":
				w.setLimits(r, rapid.Uint64Range(1, 12).Draw(t, "T"), rapid.Uint64Range(1, 60).Draw(t, "R"))
				w.tell("limits %d/%d", r.total, r.rate)
			case "room":
				if r.gone = !r.gone; r.gone {
					w.tell("the room is removed")
					w.setRooms()
				} else {
					w.tell("the room is added again; edges with it: %d", w.having())
					w.setLimits(r, r.total, r.rate)
				}
			case "long wait": // nodes may drop a room
				w.run(70 * time.Second)
			case "roam":
				if w.rooms.cap { // under serve a visitor that leaves a cut-off edge may exceed T: that is expected and counted
					for _, p := range w.people.all {
						if p.visit == nil {
							p.edge = edge()
						}
					}
				}
			case "leave":
				w.people.leave(false)
			case "quit":
				for range rapid.IntRange(1, 6).Draw(t, "n") {
					if len(w.people.all) > 0 {
						w.people.quit(w.people.all[rapid.IntRange(0, len(w.people.all)-1).Draw(t, "who")])
					}
				}
			case "copy":
				if n := len(w.people.all); n > 0 && n < 40 && w.rooms.cap {
					w.people.copyOf(w.people.all[rapid.IntRange(0, n-1).Draw(t, "who")], edge())
				}
			}
			w.run(time.Duration(rapid.SampledFrom([]int{1, 30, 300, 1500, 6000}).Draw(t, "ms")) * time.Millisecond)
			check()
		}
		// Everything is mended.
		w.net.chaos = chaos{}
		w.people.leave(false)
		w.tell("everything is mended")
		if r.gone {
			r.gone = false
			w.setLimits(r, r.total, r.rate)
		}
		for _, s := range w.centres {
			s.up.cut, s.down.cut, s.diskless = false, false, false
			if s.newest().gone {
				w.startAgg(s, false)
			}
			s.newest().store(w)
		}
		for _, e := range w.edges {
			e.up.cut, e.down.cut = false, false
			if e.gone {
				e.start(w)
			}
		}
		w.run(10 * time.Second)
		check()
		for _, e := range w.edges {
			if st := e.core.Status(e.read(w.now)); !st.Leased || st.Follows.N != e.dc.newest().term {
				w.oracle.broken = fmt.Sprintf("%s follows %d of %d, leased %v", e.name, st.Follows.N, e.dc.newest().term, st.Leased)
				for _, o := range e.dc.newest().core.Status(e.dc.newest().read(w.now)).Edges {
					w.tell("%s: %+v", e.dc.name, o)
				}
				w.tell("%s: %+v, its lease ended %v ago", e.name, st, e.read(w.now).Sub(st.LeaseEnd))
				check()
			}
		}
		w.run(130 * time.Second) // sessions of edges that were lost end, and R drains
		check()
		from := w.now
		for range r.total {
			visitors++
			w.people.arrive(fmt.Sprint(visitors), r, w.edges[visitors%len(w.edges)])
		}
		w.run(60 * time.Second)
		check()
		if want, got := min(int(r.total), int(r.rate)), r.since(from); got < want && !unknown {
			root := w.root().core.Ledger(r.id)
			w.tell("root: free %d/%d, lent %+v", root.Free, root.RateFree, root.Centres)
			for _, s := range w.centres {
				l := s.newest().core.Ledger(r.id)
				w.tell("%s: granted %d/%d returned %d/%d free %d/%d active %d reserved %d credit %d", s.name, l.Granted,
					l.RateGranted, l.Returned, l.RateReturned, l.Free, l.RateFree, l.Active, l.Reserved, l.Credit)
			}
			for _, s := range w.centres {
				w.tell("%s: %+v", s.name, s.newest().core.Status(s.newest().read(w.now)))
			}
			for _, e := range w.edges {
				w.tell("%s: %+v %+v", e.name, e.core.Status(e.read(w.now)), e.core.Ledger(e.read(w.now), r.id))
			}
			w.tell("view %+v", root.View)
			w.oracle.broken = fmt.Sprintf("%d were let in once everything was mended, want %d of %d", got, want, r.total)
			check()
		}
	})
}

// having returns the number of edges that have any room, also a removed one.
func (w *world) having() (n int) {
	for _, e := range w.edges {
		if !e.gone && e.core.Rooms.Len() > 0 {
			n++
		}
	}
	return n
}

// since returns the number of admissions at or after at.
func (r *roomTruth) since(at int64) int {
	n := 0
	for _, x := range r.admitted {
		if x >= at {
			n++
		}
	}
	return n
}
