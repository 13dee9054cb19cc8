package notices

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/global/audit"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/lab/testkit/fakes"
)

// desk is a fleet whose leader sends notices, in a bubble of synctest.
type desk struct {
	testing.TB
	docs  *fakes.Documents
	audit *fakes.Stream
	began time.Time

	mu    sync.Mutex
	seen  *Seen
	reply func(w *Webhook, n *Notice) Result // nil for success
	got   []string                           // "time after the beginning, name of the target, kind"
	ids   []string
	count map[string]int
}

func newDesk(t testing.TB, hooks ...*Webhook) *desk {
	t.Helper()
	d := &desk{
		TB: t, docs: fakes.NewDocuments(), audit: &fakes.Stream{}, began: time.Now(),
		seen: &Seen{Rooms: []Room{quietRoom()}}, count: map[string]int{},
	}
	for i, w := range hooks {
		testkit.NoError(t, (Webhooks{d.docs}).Put(t.Context(), fmt.Sprintf("HOOK%08d", i), w, 0))
	}
	return d
}

// lead runs a leader until stop returns.
func (d *desk) lead() (s *Sender, stop func()) {
	o := Options{
		Name: "one", Docs: d.docs, Journal: audit.NewJournal(d.audit), Log: slog.New(slog.DiscardHandler),
		Time: func() fleettime.Time { return fleettime.TimeOf(time.Now()) },
		Look: func() *Seen {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.seen == nil {
				return nil
			}
			return &Seen{Rooms: slices.Clone(d.seen.Rooms), Alarms: slices.Clone(d.seen.Alarms)}
		},
		Post: func(_ context.Context, _ time.Time, w *Webhook, n *Notice) Result { return d.take(w, n) },
		Count: func(result string, n int) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.count[result] += n
		},
	}
	s = NewSender(o)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	return s, func() { cancel(); running.Wait() }
}

func (d *desk) take(w *Webhook, n *Notice) Result {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.got = append(d.got, fmt.Sprint(time.Since(d.began).Round(time.Second), " ", w.Name, " ", n.Kind))
	d.ids = append(d.ids, n.ID)
	if d.reply == nil {
		return Result{}
	}
	return d.reply(w, n)
}

func (d *desk) change(f func(r *Room, all *Seen)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(&d.seen.Rooms[0], d.seen)
}

func (d *desk) pause() {
	d.change(func(r *Room, _ *Seen) { r.Pause = &Pause{Since: fleettime.TimeOf(time.Now())} })
}

func (d *desk) taken() []string {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	defer func() { d.got = nil }()
	return d.got
}

// TestEachTargetGetsWhatItTakes: all targets get a notice once, except those limited to other kinds or rooms, and
// those that are off.
func TestEachTargetGetsWhatItTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		off := hook(t, "https://a.example")
		off.Name, off.Off = "off", &Off{Why: "x"}
		kinds, rooms := hook(t, "https://a.example"), hook(t, "https://a.example")
		kinds.Name, kinds.Kinds = "kinds", []Kind{RoomResumed}
		rooms.Name, rooms.Rooms = "rooms", []string{"another"}
		d := newDesk(t, hook(t, "https://a.example"), off, kinds, rooms)
		_, stop := d.lead()
		defer stop()
		time.Sleep(10*time.Second + time.Millisecond)
		d.pause()
		time.Sleep(10 * time.Second)
		d.change(func(r *Room, _ *Seen) { r.Pause = nil })
		time.Sleep(10 * time.Second)
		got := d.taken()
		slices.Sort(got)
		if diff := cmp.Diff([]string{
			"11s pager room.paused", "21s kinds room.resumed", "21s pager room.resumed",
		}, got); diff != "" {
			t.Error(diff)
		}
	})
}

// TestRetries: a notice is tried again after the delays of the schedule, with up to a fifth more, and then given up.
func TestRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, hook(t, "https://a.example"))
		d.reply = func(*Webhook, *Notice) Result { return Result{Err: errors.New("no")} }
		_, stop := d.lead()
		defer stop()
		time.Sleep(time.Second)
		d.pause()
		time.Sleep(48 * time.Hour)
		got := d.taken()
		if len(got) != 1+len(delays) || d.count["given_up"] != 1 || d.count["retry"] != len(delays) ||
			len(slices.Compact(d.ids)) != 1 {
			t.Fatalf("%v %v", got, d.count)
		}
		last := time.Duration(0)
		for i, text := range got {
			when := testkit.Must(time.ParseDuration(strings.Fields(text)[0]))(t)
			if i > 0 {
				if wait := when - last; wait < delays[i-1] || wait > delays[i-1]*6/5+2*time.Second {
					t.Errorf("attempt %d came %v after the one before", i, wait)
				}
			}
			last = when
		}
	})
}

// TestAReceiverAsksForTime: Retry-After is honoured, up to a day, if it is longer than the schedule's delay.
func TestAReceiverAsksForTime(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, tt := range []struct{ ask, want time.Duration }{
		{0, 5 * time.Second}, {time.Second, 5 * time.Second}, {time.Hour, time.Hour}, {1000 * time.Hour, 24 * time.Hour},
	} {
		var o Outbox
		o.Keep([]string{"a"})
		n := newNotice(RoomClear, "r", "c", t0, Data{})
		o.Add(t0, "a", &n)
		if got := o.Done(t0, "a", n.ID, Result{Err: errors.New("no"), RetryAfter: tt.ask}, random); got != Retry {
			t.Errorf("%v: %v", tt.ask, got)
		}
		if o.Due(t0.Add(tt.want-time.Millisecond), "a") != nil || o.Due(t0.Add(tt.want*6/5), "a") == nil {
			t.Errorf("%v: %+v", tt.ask, o.Queues["a"].Items)
		}
	}
}

// TestAWebhookThatFailsForDaysIsTurnedOff: with an audit entry and an alarm.
func TestAWebhookThatFailsForDaysIsTurnedOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, hook(t, "https://a.example"))
		d.reply = func(*Webhook, *Notice) Result { return Result{Err: errors.New("the receiver answered 500")} }
		s, stop := d.lead()
		defer stop()
		for day := range 6 { // something to tell each day
			d.pause()
			time.Sleep(23 * time.Hour)
			d.change(func(r *Room, _ *Seen) { r.Pause = nil })
			time.Sleep(time.Hour)
			if alarms := s.Alarms(); len(alarms) != day/5 {
				t.Fatalf("day %d: %v", day, alarms)
			}
		}
		alarm := s.Alarms()[0]
		if !strings.Contains(alarm, "pager") || !strings.Contains(alarm, "the receiver answered 500") ||
			!strings.Contains(alarm, "vestibule webhooks enable HOOK00000000") {
			t.Error(alarm)
		}
		w, revision, err := s.hooks.Get(t.Context(), "HOOK00000000")
		if err != nil || w.Off == nil || !w.Off.Failed || len(d.audit.Entries()) != 1 {
			t.Fatalf("%+v, %v, %d entries", w, err, len(d.audit.Entries()))
		}
		if n := len(d.taken()); n > 15*(1+len(delays)) {
			t.Errorf("%d attempts for at most 15 notices", n)
		}
		d.taken()
		time.Sleep(24 * time.Hour)
		if got := d.taken(); len(got) > 0 {
			t.Errorf("%v of a webhook that is off", got)
		}
		w.Off = nil // by an operator
		testkit.NoError(t, s.hooks.Put(t.Context(), "HOOK00000000", w, revision))
		d.reply = nil
		time.Sleep(listEvery + 2*time.Second)
		d.pause()
		time.Sleep(5 * time.Second)
		if got := d.taken(); len(s.Alarms()) != 0 ||
			!slices.ContainsFunc(got, func(s string) bool { return strings.HasSuffix(s, "pager room.paused") }) {
			t.Errorf("%v, alarms %v", got, s.Alarms())
		}
	})
}

func TestAReceiverThatIsGoneIsTurnedOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, hook(t, "https://a.example"))
		d.reply = func(*Webhook, *Notice) Result { return Result{Err: errors.New("410"), Gone: true} }
		s, stop := d.lead()
		defer stop()
		time.Sleep(time.Second)
		d.change(func(r *Room, _ *Seen) { // two notices at once
			r.Pause, r.Release = &Pause{Since: 1}, &Release{ID: 1, Over: true}
		})
		time.Sleep(24 * time.Hour)
		if got := d.taken(); len(got) != 1 || len(s.Alarms()) != 1 {
			t.Errorf("%v %v", got, s.Alarms())
		}
	})
}

// TestNothingIsSentBeforeItIsStored: while the store is down, notices wait; afterwards each is sent once.
func TestNothingIsSentBeforeItIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, hook(t, "https://a.example"))
		_, stop := d.lead()
		defer stop()
		time.Sleep(2 * time.Second)
		d.docs.Lock()
		d.docs.Down = errors.New("no store")
		d.docs.Unlock()
		d.pause()
		time.Sleep(time.Minute)
		if got := d.taken(); len(got) > 0 {
			t.Fatalf("%v", got)
		}
		d.docs.Lock()
		d.docs.Down = nil
		d.docs.Unlock()
		time.Sleep(time.Minute)
		if got := d.taken(); len(got) != 1 {
			t.Errorf("%v", got)
		}
	})
}

// TestASuccessorGoesOn: at any second of a story, another leader takes over, after a crash or while the old one still
// works. Each notice is delivered, and what is delivered twice has the same ID.
func TestASuccessorGoesOn(t *testing.T) {
	story := func(d *desk) {
		d.change(func(r *Room, _ *Seen) { r.Waiting = 2 })
		time.Sleep(20 * time.Second)
		d.pause()
		time.Sleep(20 * time.Second)
		d.change(func(r *Room, all *Seen) { r.Pause, r.Total, all.Alarms = nil, 7, []string{"short of space"} })
		time.Sleep(5 * time.Minute)
	}
	want := []string{"alarm.raised", "limit.changed", "room.paused", "room.queueing", "room.resumed"}
	for _, both := range []bool{false, true} {
		for second := range 60 {
			synctest.Test(t, func(t *testing.T) {
				d := newDesk(t, hook(t, "https://a.example"))
				failed := map[string]bool{}
				d.reply = func(_ *Webhook, n *Notice) Result { // each first attempt fails
					if failed[n.ID] {
						return Result{}
					}
					failed[n.ID] = true
					return Result{Err: errors.New("no")}
				}
				_, stop := d.lead()
				var others []func()
				defer func() {
					for _, stop := range others {
						stop()
					}
				}()
				time.AfterFunc(time.Duration(second)*time.Second+500*time.Millisecond, func() {
					if !both {
						stop()
					}
					_, next := d.lead()
					others = append(others, next)
				})
				time.Sleep(time.Millisecond)
				story(d)
				stop()
				kinds := map[string]map[string]bool{}
				for i, text := range d.taken() {
					kind := strings.Fields(text)[2]
					if kinds[kind] == nil {
						kinds[kind] = map[string]bool{}
					}
					kinds[kind][d.ids[i]] = true
				}
				var got []string
				for kind, ids := range kinds {
					for range ids {
						got = append(got, kind)
					}
				}
				slices.Sort(got)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("takeover after %d s, both %v: %s", second, both, diff)
				}
			})
		}
	}
}

// TestAQueueIsBounded: of too many undelivered notices the oldest is dropped; others are kept.
func TestAQueueIsBounded(t *testing.T) {
	var o Outbox
	o.Keep([]string{"a", "b"})
	for i := range maxPending + 3 {
		n := newNotice(RoomClear, "r", fmt.Sprint(i), at(float64(i)), Data{})
		if lost := o.Add(n.At, "a", &n); (lost == 1) != (i >= maxPending) {
			t.Fatalf("%d: %d are lost", i, lost)
		}
		o.Add(n.At, "a", &n) // again
	}
	if first := o.Due(1<<60, "a"); len(o.Notices) != maxPending || first.At != at(3) || o.Due(1<<60, "b") != nil {
		t.Errorf("%d notices, the oldest of %v", len(o.Notices), first.At)
	}
	if o.Keep([]string{"b"}); len(o.Notices) != 0 {
		t.Errorf("%d notices for nobody", len(o.Notices))
	}
}

// TestALaterWebhookGetsNoEarlierChanges: without a webhook nothing is followed.
func TestALaterWebhookGetsNoEarlierChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		s, stop := d.lead()
		defer stop()
		time.Sleep(10 * time.Second)
		d.change(func(r *Room, _ *Seen) { r.Total = 9 })
		time.Sleep(10 * time.Second)
		if d.docs.Puts > 0 {
			t.Errorf("%d documents are written for nobody", d.docs.Puts)
		}
		testkit.NoError(t, s.hooks.Put(t.Context(), "HOOK00000001", hook(t, "https://a.example"), 0))
		time.Sleep(10 * time.Second)
		d.change(func(r *Room, _ *Seen) { r.Total = 8 })
		time.Sleep(10 * time.Second)
		if got := d.taken(); len(got) != 1 || !strings.HasSuffix(got[0], "limit.changed") {
			t.Errorf("%v", got)
		}
	})
}
