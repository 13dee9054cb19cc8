package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"vestibule/internal/core/history"
	"vestibule/internal/core/wire"
)

// The history has the admissions of all edges: a coordinator and an aggregator continue the sums of those before, and
// what edges tell nobody, or only a silent regional, is reported to the next.
func TestHistoryHasWhatHappenedBetweenLeaders(t *testing.T) {
	for name, x := range map[string]struct {
		change func(w *world, s *dataCentre, sell func(time.Duration))
		off    int // for each change: what an aggregator or an edge had not heard
	}{
		"coordinators crash": {func(w *world, _ *dataCentre, sell func(time.Duration)) {
			w.root().gone = true
			sell(2 * time.Second)
			w.startRoot(false)
		}, 0},
		"aggregators crash": {func(w *world, s *dataCentre, sell func(time.Duration)) {
			s.newest().gone = true
			sell(2500 * time.Millisecond)
			w.startAgg(s, false)
		}, 2},
		"aggregators are replaced": {func(w *world, s *dataCentre, sell func(time.Duration)) {
			s.up.caught = true // its last reports arrive when its successor is heard
			w.startAgg(s, false)
			sell(time.Second)
			pile := s.up.pile
			s.up = link{}
			sell(time.Second)
			for _, take := range pile {
				w.net.send(&s.up, take)
			}
		}, 2},
		"a data centre is cut off": {func(w *world, s *dataCentre, sell func(time.Duration)) {
			s.up.cut, s.down.cut = true, true
			sell(4 * time.Second)
			s.up.cut, s.down.cut = false, false
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			params := wire.DefaultParams()
			params.SyncFast, params.SyncIdle = 100*time.Millisecond, 100*time.Millisecond
			w := newWorld(params, []string{"dublin", "nairobi"}, 2)
			r := w.rooms.add("sale", 5000, 6000, 10*time.Minute)
			w.begin(true)
			recorders := map[*rootProc]*history.Recorder{}
			var log []history.State
			w.history = func(n *rootProc, m wire.Report) {
				if recorders[n] == nil {
					recorders[n] = history.NewRecorder(log)
				}
				for i := range m.Rooms {
					c := &m.Rooms[i]
					recorders[n].Observe(m.From, uint64(c.Room),
						history.Report{Term: m.Instance, Joined: c.Joined, Admitted: c.Admitted, Entered: c.Entered, Counts: c.Counts})
				}
				recorders[n].Heard(m.From)
			}
			record := func() (admitted int) {
				if past := recorders[w.root()]; past != nil {
					s, _ := past.Record(w.now/1e9, uint64(r.id), &history.Gauges{})
					log = []history.State{s}
				}
				return int(log[0].Point.Values[history.Admitted])
			}
			crowd := 0
			sell := func(d time.Duration) {
				for end := w.now + int64(d); w.now < end; w.run(100 * time.Millisecond) {
					w.people.arrive(fmt.Sprint("guest", crowd), r, w.edges[crowd%len(w.edges)])
					crowd++
				}
			}
			w.run(3 * time.Second)
			for i := range 10 {
				sell(4*time.Second + time.Duration(i)*70*time.Millisecond)
				record()
				was := len(r.admitted)
				x.change(w, w.centres[i%2], sell)
				sell(3 * time.Second)
				w.run(3 * time.Second)
				if off := record() - len(r.admitted); off > x.off*(i+1) || -off > x.off*(i+1) {
					t.Fatalf("change %d: the history differs by %d of %d admissions, %d before the change", i, off, len(r.admitted),
						was)
				}
			}
			if w.oracle.broken != "" {
				t.Fatal(w.oracle.broken)
			}
			t.Logf("%d admissions, %d in the history", len(r.admitted), record())
		})
	}
}
