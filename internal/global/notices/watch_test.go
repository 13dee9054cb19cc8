package notices

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vestibule/internal/core/compress"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/lab/testkit"
)

// t0 is when the tables begin.
const t0 fleettime.Time = 1_795_000_000_000

func at(s float64) fleettime.Time { return t0 + fleettime.Time(s*1000) }

// quietRoom is a room in which nothing happens.
func quietRoom() Room {
	return Room{ID: "r1", Name: "shop", Limits: Limits{200, 100}, Complete: true, Controlled: true, Wait: -1}
}

// sent runs a watch over seconds from to to, with a state from see, and returns what is sent: "second kind".
func sent(w *Watch, from, to int, see func(second int, r *Room, s *Seen)) (out []string) {
	for second := from; second <= to; second++ {
		r, s := quietRoom(), &Seen{}
		see(second, &r, s)
		s.Rooms = append(s.Rooms, r)
		due, _ := w.Step(at(float64(second)), s)
		for _, n := range due {
			out = append(out, fmt.Sprint(second, " ", n.Kind))
		}
	}
	return out
}

func TestWhatIsSent(t *testing.T) {
	event := func(change func(*Event)) Event {
		e := Event{ID: "e1", Name: "sale", Prequeue: at(10), Start: at(100), Opens: at(100), End: at(200)}
		change(&e)
		return e
	}
	paused := func(from, to int) func(int, *Room, *Seen) {
		return func(s int, r *Room, _ *Seen) {
			if s >= from && s < to {
				r.Pause = &Pause{Since: at(float64(from)), By: "ops", Reason: "a fault"}
			}
		}
	}
	within := func(s, from, to int) bool { return s >= from && s < to }
	for _, tt := range []struct {
		name string
		see  func(s int, r *Room, all *Seen)
		want []string
	}{
		{"nothing", func(int, *Room, *Seen) {}, nil},
		{"a site that does not answer", func(s int, r *Room, _ *Seen) {
			if within(s, 5, 100) {
				r.SiteDown = 2
			}
			r.Complete = !within(s, 100, 110) // a data centre that is not heard says nothing
		}, []string{"6 site.down", "112 site.up"}},
		{"a site that answers fewer and fewer edges", func(s int, r *Room, _ *Seen) {
			if within(s, 5, 100) {
				r.SiteDown, r.SiteGone = 2, s >= 50
			}
		}, []string{"6 site.down", "51 site.down", "102 site.up"}},
		{"a site that no edge reaches", func(s int, r *Room, _ *Seen) {
			if within(s, 5, 100) {
				r.SiteDown, r.SiteGone = 2, true
			}
		}, []string{"6 site.down", "102 site.up"}},
		{"a site that restarts within a second", func(s int, r *Room, _ *Seen) {
			if s == 5 {
				r.SiteDown = 1
			}
		}, nil},
		{"a line that lasts", func(s int, r *Room, _ *Seen) {
			if within(s, 5, 100) {
				r.Waiting = 3
			}
		}, []string{"15 room.queueing", "160 room.clear"}},
		{"a line that is called", func(s int, r *Room, _ *Seen) {
			r.Called, r.Soon = at(float64(s-5)), at(float64(s+300)) // without a line too
			if within(s, 5, 100) {
				r.Waiting = 3
			}
		}, []string{"15 room.queueing", "15 room.called", "75 room.called", "135 room.called", "160 room.clear"}},
		{"a line of a moment", func(s int, r *Room, _ *Seen) {
			if s%10 < 9 {
				r.Waiting = 3
			}
		}, nil},
		{"a line that flaps after its notice", func(s int, r *Room, _ *Seen) {
			if s < 20 || s%50 == 0 {
				r.Waiting = 1
			}
		}, []string{"10 room.queueing"}},
		{"a line of which a data centre is unknown", func(s int, r *Room, _ *Seen) {
			if r.Complete = s < 20; s < 20 {
				r.Waiting = 1
			}
		}, []string{"10 room.queueing"}},
		{"a pause", paused(7, 50), []string{"7 room.paused", "50 room.resumed"}},
		{"controls that are unknown for a while", func(s int, r *Room, _ *Seen) {
			r.Pause = &Pause{Since: at(1)}
			if within(s, 20, 30) {
				r.Controlled, r.Pause = false, nil
			}
		}, []string{"0 room.paused"}},
		{"a limit", func(s int, r *Room, _ *Seen) {
			if s >= 10 {
				r.Total = 50
			}
		}, []string{"15 limit.changed"}},
		{"limits that are smaller for a moment", func(s int, r *Room, _ *Seen) {
			if within(s, 10, 13) {
				r.Rate = 5
			}
		}, nil},
		{"overcommit", func(s int, r *Room, _ *Seen) {
			if within(s, 10, 20) {
				r.Overcommit = 4
			}
		}, []string{"15 room.overcommit", "80 room.overcommit_ended"}},
		{"a slow site", func(s int, r *Room, _ *Seen) {
			r.Origin = Origin{Requests: 100, P95: time.Second}
			if within(s, 10, 100) {
				r.Origin.P95 = 3 * time.Second
			}
		}, []string{"40 origin.slow", "220 origin.recovered"}},
		{"a failing site that gets half well", func(s int, r *Room, _ *Seen) {
			if r.Origin = (Origin{Requests: 100, Errors: 7}); s < 50 {
				r.Origin.Errors = 10
			}
		}, []string{"30 origin.slow"}},
		{
			"a slow site that is hardly asked", func(_ int, r *Room, _ *Seen) { r.Origin = Origin{Requests: 19, Errors: 19} },
			nil,
		},
		{"alarms", func(s int, _ *Room, all *Seen) {
			if within(s, 10, 60) {
				all.Alarms = []string{fmt.Sprintf("the lease is refused for %v", time.Duration(s)*time.Second), "short of space"}
			}
			if s == 90 {
				all.Alarms = []string{"a moment"}
			}
		}, []string{"20 alarm.raised", "20 alarm.raised", "120 alarm.ended", "120 alarm.ended"}},
		{
			"an alarm with other reasons, and one of another data centre", func(s int, _ *Room, all *Seen) {
				all.Alarms = []string{
					fmt.Sprintf("the rooms cannot be published: error %d", s), "data centre a is silent: look",
					"data centre b is silent: look",
				}
			}, []string{"10 alarm.raised", "10 alarm.raised", "10 alarm.raised"},
		},
		{
			"an event", func(_ int, r *Room, _ *Seen) { r.Events = []Event{event(func(*Event) {})} },
			[]string{"10 event.prequeue", "100 event.started", "200 event.ended"},
		},
		{"an event with a draw that is late", func(s int, r *Room, _ *Seen) {
			r.Events = []Event{event(func(e *Event) {
				if e.Opens = 1 << 62; s >= 90 {
					e.Drawn, e.Opens = at(90), at(118)
				}
			})}
		}, []string{"10 event.prequeue", "90 event.drawn", "118 event.started", "200 event.ended"}},
		{"an event that is removed", func(s int, r *Room, _ *Seen) {
			if s < 150 {
				r.Events = []Event{event(func(*Event) {})}
			}
		}, []string{"10 event.prequeue", "100 event.started", "150 event.ended"}},
		{"an event that is moved before it starts", func(s int, r *Room, _ *Seen) {
			r.Events = []Event{event(func(e *Event) {
				if s >= 50 {
					e.Prequeue, e.Start, e.Opens, e.End = at(60), at(160), at(160), at(210)
				}
			})}
		}, []string{"10 event.prequeue", "60 event.prequeue", "160 event.started", "210 event.ended"}},
		{"an event of long ago", func(_ int, r *Room, _ *Seen) {
			r.Events = []Event{event(func(e *Event) { e.Prequeue, e.Start, e.Opens, e.End = 0, at(-1000), at(-1000), at(-901) })}
		}, nil},
		{"an event that began long ago", func(_ int, r *Room, _ *Seen) {
			r.Events = []Event{event(func(e *Event) { e.Prequeue, e.Start, e.Opens, e.End = 0, at(-1000), at(-1000), at(30) })}
		}, []string{"30 event.ended"}},
		{"a release", func(s int, r *Room, _ *Seen) {
			paused(0, 200)(s, r, nil)
			if s >= 10 {
				r.Release = &Release{ID: 7, People: 3, LetIn: min(3, s-10), Over: s >= 13}
			}
		}, []string{"0 room.paused", "13 release.done", "200 room.resumed"}},
		{"releases that others replace", func(s int, r *Room, _ *Seen) {
			paused(0, 60)(s, r, nil)
			if s < 60 {
				r.Release = &Release{ID: uint64(1 + s/30), People: 3, LetIn: 1}
			}
		}, []string{"0 room.paused", "30 release.done", "60 room.resumed", "60 release.done"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, sent(&Watch{}, 0, 230, tt.see)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestASuccessorTellsNothingTwice: a watch that was stored and read at any second tells each notice once, with the ID
// that an undisturbed one gives it where the cause has a time of its own.
func TestASuccessorTellsNothingTwice(t *testing.T) {
	see := func(s int, r *Room, all *Seen) {
		if s >= 5 && s < 100 {
			r.Waiting, all.Alarms = 3, []string{"short of space"}
		}
		if s >= 20 && s < 60 {
			r.Pause = &Pause{Since: at(20)}
			r.Release = &Release{ID: 9, People: 2, LetIn: 2, Over: s > 30}
		}
		if s >= 40 {
			r.Total = 50
		}
		r.Events = []Event{{ID: "e", Name: "sale", Prequeue: at(15), Start: at(55), Opens: at(55), End: at(80)}}
	}
	run := func(change func(s int, w *Watch) *Watch) (kinds, ids []string) {
		w := &Watch{}
		for s := range 230 {
			r, all := quietRoom(), &Seen{}
			see(s, &r, all)
			all.Rooms = []Room{r}
			due, _ := w.Step(at(float64(s)), all)
			for _, n := range due {
				kinds, ids = append(kinds, string(n.Kind)), append(ids, n.ID)
			}
			w = change(s, w)
		}
		slices.Sort(kinds)
		return kinds, ids
	}
	want, first := run(func(_ int, w *Watch) *Watch { return w })
	if len(slices.Compact(slices.Sorted(slices.Values(first)))) != len(first) || len(first) != 11 {
		t.Fatalf("%v %v", want, first)
	}
	for turn := range 225 {
		got, ids := run(func(s int, w *Watch) *Watch {
			if s != turn {
				return w
			}
			d := &document{Watch: *w}
			data := testkit.Must(d.encode())(t)
			return &testkit.Must(decodeDocument(data))(t).Watch
		})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("leaders change after second %d: %s", turn, diff)
		}
		same := 0
		for _, id := range ids {
			if slices.Contains(first, id) {
				same++
			}
		}
		if same < 6 { // pause and its end, release, phases of the event
			t.Errorf("leaders change after second %d: only %d IDs are those of one leader", turn, same)
		}
	}
}

// TestAStateOfManyRoomsFits: the document of the most rooms fits into a message of the store.
func TestAStateOfManyRoomsFits(t *testing.T) {
	w, seen := &Watch{}, &Seen{}
	for i := range 10_000 {
		r := quietRoom()
		r.ID = room.PublicID(fmt.Sprint(i))
		r.Total, r.Waiting = 100+i*7%9000, 1
		seen.Rooms = append(seen.Rooms, r)
	}
	w.Step(at(0), seen)
	w.Step(at(11), seen)
	d := &document{Watch: *w}
	data, err := d.encode()
	if err != nil || len(data) > 900_000 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	t.Logf("10,000 rooms that queue: %d bytes", len(data))
	again, err := decodeDocument(data)
	if err != nil || len(again.Watch.Rooms) != 10_000 {
		t.Errorf("%v", err)
	}
}

func FuzzStoredDocument(f *testing.F) {
	w := Watch{}
	r := quietRoom()
	r.Waiting = 1
	n, _ := w.Step(at(0), &Seen{Rooms: []Room{r}, Alarms: []string{"a"}})
	f.Add([]byte(`{"watch":{"rooms":{"r1":null,"r2":{"e":{"x":null}}},"alarms":{"a":null}},"outbox":{"queues":{"q":null,"p":{"items":[{"id":"gone"},{"id":"n","tries":99}]}}}}`))
	f.Add(fmt.Appendf(nil, `{"watch":{"rooms":{"r1":{"l":{"total_active_users":%d}}}}}`, len(n)))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := decodeDocument(compress.Gzip(text))
		if err != nil {
			return
		}
		d.Watch.Step(at(100), &Seen{Rooms: []Room{r}, Alarms: []string{"a"}})
		d.Outbox.Keep([]string{"p", "q"})
		d.Outbox.Due(1<<62, "p")
		if _, err := d.encode(); err != nil {
			t.Error(err)
		}
	})
}
