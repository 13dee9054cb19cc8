package root_test

import (
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// inside reports a data centre's sessions: the rest of its grants is idle.
func (l *lender) inside(dc string, active, want uint64) {
	l.seq[dc]++
	g := l.last[dc]
	p := kept(&g)
	p.Sessions.Returned, p.Rate.Returned = l.back[dc], l.rateBack[dc]
	l.root.Observe(l.now, wire.Report{
		From: dc, Instance: 1, Seq: l.seq[dc], Parts: 1, Sent: l.now, Seen: l.term, Acked: l.acked[dc], Join: l.seq[dc] == 1,
		Rooms: []wire.RoomReport{{
			Room: sale, Permits: p, Idle: uint64(p.Sessions.Held()) - active, RateIdle: uint64(p.Rate.Held()) - active,
			Active: active, Want: want,
		}},
	})
}

// returns has a data centre give back the permits beyond its target.
func (l *lender) returns(dc string, active uint64) {
	g := l.last[dc]
	back := func(a *wire.Allocation, returned map[string]uint64) {
		idle := a.Granted - returned[dc] - active
		returned[dc] += idle - min(a.Keep, idle)
	}
	back(&g.Permits.Sessions, l.back)
	back(&g.Permits.Rate, l.rateBack)
}

func (l *lender) set(change func(*ledger.RoomConfig)) {
	change(&l.rooms[0])
	l.root.SetRooms(l.now, l.rooms)
}

// TestPassthroughLendsWhateverIsWanted: no limit binds, nobody has to wait, and all sessions are in the ledger. Once
// a limit binds again nothing is lent, and nobody enters, until enough sessions have ended.
func TestPassthroughLendsWhateverIsWanted(t *testing.T) {
	l := newLender(t, "16:33:20", 20, 20)
	l.set(func(r *ledger.RoomConfig) { r.Unbound = true })
	active := uint64(0)
	for range 20 {
		l.inside("dublin", active, 30)
		l.inside("nairobi", 0, 0)
		l.grants()
		g := l.last["dublin"]
		idle := min(g.Permits.Sessions.Granted, g.Permits.Rate.Granted) - active
		if idle < 30 || idle > 60 {
			t.Fatalf("%d are inside, 30 are wanted, %d lie idle; want them, and 20 more at most besides the reserve", active,
				idle)
		}
		if l.view.Queues() {
			t.Fatalf("%d are inside, and people are made to wait: %+v", active, l.view)
		}
		active += 30
	}
	if led := l.root.Ledger(sale); led.Beyond != int64(active-30)-20 || led.Free >= 0 {
		t.Errorf("%d are inside: %d are reported beyond the limit of 20, free is %d", active-30, led.Beyond, led.Free)
	}
	l.set(func(r *ledger.RoomConfig) { r.Unbound = false })
	most := l.last["dublin"].Permits.Sessions.Granted
	for ; active > 0; active -= 30 {
		l.returns("dublin", active)
		l.inside("dublin", active, 30)
		l.inside("nairobi", 0, 0)
		l.grants()
		if g := l.last["dublin"]; active > 20 &&
			(g.Permits.Sessions.Granted > most || l.last["nairobi"].Permits.Sessions.Granted > 60 || l.view.Cutoff != 0) {
			t.Fatalf("%d are inside, the limit is 20: %d are lent, of before %d; who joined up to %d may enter", active,
				g.Permits.Sessions.Granted, most, l.view.Cutoff)
		}
	}
	l.returns("dublin", 0)
	for range 3 {
		l.inside("dublin", 0, 5)
		l.inside("nairobi", 0, 0)
		l.returns("nairobi", 0)
		l.grants()
	}
	if led := l.root.Ledger(sale); l.view.Cutoff == 0 || led.Free < 0 || led.Beyond != 0 {
		t.Errorf("everybody has gone, and nobody may enter: %+v", led)
	}
}

// TestWhatPassthroughLentIsNotLentAgain: a coordinator that misses the ledger of a data centre lends only returned
// permits, also if more than T was lent meanwhile.
func TestWhatPassthroughLentIsNotLentAgain(t *testing.T) {
	l := newLender(t, "16:33:20", 20, 20)
	l.lead(2) // it knows no ledger, and nairobi is not heard
	l.set(func(r *ledger.RoomConfig) { r.Unbound = true })
	exchange := func() {
		l.inside("dublin", 0, 30)
		l.grants()
	}
	exchange() // the promise
	exchange()
	exchange()
	lent := l.last["dublin"].Permits.Sessions.Granted
	if lent < 30 {
		t.Fatalf("%d were lent", lent)
	}
	l.set(func(r *ledger.RoomConfig) { r.Unbound = false })
	exchange()
	l.back["dublin"], l.rateBack["dublin"] = lent, l.last["dublin"].Permits.Rate.Granted
	for range 5 {
		exchange()
	}
	if g := l.last["dublin"]; g.Permits.Sessions.Granted > lent {
		t.Errorf("%d permits are lent anew, although nairobi may hold them all", g.Permits.Sessions.Granted-lent)
	}
	if led := l.root.Ledger(sale); led.Complete {
		t.Fatalf("the ledger is complete: %+v", led)
	}
}

// TestNobodyIsCalledToARoomThatIsShut: the admission cutoff stays before all waiting visitors, so that they enter in
// order once the room opens.
func TestNobodyIsCalledToARoomThatIsShut(t *testing.T) {
	l := newLender(t, "16:33:20", 20, 20)
	l.set(func(r *ledger.RoomConfig) { r.Shut = true })
	for range 3 {
		l.crowd("dublin", 1, false, 30, 0)
		l.crowd("nairobi", 1, false, 0, 0)
		l.grants()
	}
	if l.view.Cutoff != fleettime.Time(0) {
		t.Errorf("who joined up to %d is called", l.view.Cutoff)
	}
	l.set(func(r *ledger.RoomConfig) { r.Shut = false })
	for range 3 {
		l.crowd("dublin", 1, false, 30, 0)
		l.crowd("nairobi", 1, false, 0, 0)
		l.grants()
	}
	if l.view.Cutoff == 0 {
		t.Error("nobody is called once it is open")
	}
}

// TestIdlePermitsPayADebtFirst: while more is lent than a lowered limit allows, nobody is called, although enough
// permits are idle. A visitor might use them before they are returned.
func TestIdlePermitsPayADebtFirst(t *testing.T) {
	l := newLender(t, "16:33:20", 20, 60)
	for range 3 {
		l.inside("dublin", 5, 10)
		l.inside("nairobi", 0, 0)
		l.grants()
	}
	l.set(func(r *ledger.RoomConfig) { r.Total = 10 })
	l.inside("dublin", 5, 10)
	l.inside("nairobi", 0, 0)
	l.grants()
	if led := l.root.Ledger(sale); led.Free >= 0 || !l.view.Queues() {
		t.Errorf("free %d, with %d sessions of 10; visitors queue: %v", led.Free, 5, l.view.Queues())
	}
	for range 3 {
		l.returns("dublin", 5)
		l.returns("nairobi", 0)
		l.inside("dublin", 5, 10)
		l.inside("nairobi", 0, 0)
		l.grants()
	}
	if led := l.root.Ledger(sale); led.Free < 0 || l.view.Queues() {
		t.Errorf("free %d once they are returned; visitors queue: %v", led.Free, l.view.Queues())
	}
}

// TestTheForecastKnowsTheNextEvent: in a full room visitors are reported to wait until an event raises the limits, and
// not until the sessions of before have ended. Nobody enters by the forecast while visitors gather for an event.
func TestTheForecastKnowsTheNextEvent(t *testing.T) {
	l := newLender(t, "16:33:20", 40, 6000)
	settings := room.Settings{
		Name: "sale", TotalActiveUsers: 40, NewUsersPerMinute: 6000, SessionDuration: 5 * time.Minute,
	}
	event := room.Event{
		Start: int64(l.wall) + 600_000, End: int64(l.wall) + 3_600_000,
		Overrides: room.Overrides{"total_active_users": 2000, "new_users_per_minute": 6000},
	}
	wait := func(prequeue time.Duration) (time.Duration, bool) {
		t.Helper()
		if prequeue > 0 {
			event.Prequeue = event.Start - prequeue.Milliseconds()
		}
		settings.Events = []room.Event{event}
		l.set(func(r *ledger.RoomConfig) {
			r.Coming = ledger.ConfigOf(&room.Room{ID: sale, Settings: settings, Plan: settings.Plan()}).Coming
		})
		for range 8 {
			l.crowd("dublin", 1, false, 1000, 20)
			l.crowd("nairobi", 1, false, 0, 20)
			l.grants()
		}
		return l.view.Wait(999)
	}
	if w, ok := wait(0); !ok || w < 9*time.Minute || w > 11*time.Minute {
		t.Errorf("the last of 1,000 is forecast to wait %v %v, want the 10 minutes until an event lets it in", w, ok)
	}
	if w, ok := l.view.Wait(50); !ok || w > 9*time.Minute {
		t.Errorf("the 50th is forecast to wait %v %v, want less than until the event", w, ok)
	}
	wait(570 * time.Second)
	if w, ok := l.view.Wait(10); !ok || w < 9*time.Minute || w > 11*time.Minute {
		t.Errorf("the tenth is forecast to wait %v %v, want the 10 minutes until visitors have gathered", w, ok)
	}
	event.Overrides = room.Overrides{"queueing_method": room.MethodReject}
	event.Prequeue = 0
	if w, ok := wait(0); ok && w < 50*time.Minute {
		t.Errorf("the last is forecast to wait %v, want longer than the event that lets nobody in", w)
	}
	for name, r := range map[string]room.Room{
		"limits for now": {Control: &room.Control{Limits: &room.Limits{}}},
		"an event":       {Phase: room.Phase{Kind: room.Active}},
		"a prequeue":     {Phase: room.Phase{Kind: room.Prequeue}, Closed: true},
	} {
		r.Settings, r.Plan = settings, settings.Plan()
		if coming := ledger.ConfigOf(&r).Coming; coming != nil {
			t.Errorf("under %s the limits are to change: %v", name, coming)
		}
	}
}
