package node

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/lab/testkit"
)

func controls(t *testing.T, version uint64, until int64) []byte {
	t.Helper()
	data := testkit.Must(room.EncodeControls(&room.Controls{Version: version, Rooms: map[string]*room.Control{
		room.PublicID("sale"): {Limits: &room.Limits{Mark: room.Mark{Since: 1, Until: until}, TotalActiveUsers: 3}},
	}}))(t)
	return data
}

// TestControlsGoBeforeTheRooms: controls apply until they end by fleet time, across new versions of the rooms and
// restarts; an older or invalid document has no effect.
func TestControlsGoBeforeTheRooms(t *testing.T) {
	dir := t.TempDir()
	f := follow(t, dir, memoryStore{})
	now := &atomic.Int64{}
	now.Store(1000)
	tell := func(f *follower) {
		f.Tell(func() (fleettime.Time, time.Duration) { return fleettime.Time(now.Load()), 0 })
	}
	tell(f)
	published := 0
	total := func() int { return f.Set().ByName("sale").TotalActiveUsers }
	f.Offer(t.Context(), RoomsDocument, rooms(t, 1, "", "sale", "other"))
	if published = total(); published == 3 {
		t.Fatal("the room has three already")
	}
	other := f.Set().ByName("other")
	f.Offer(t.Context(), ControlsDocument, controls(t, 5, 2000))
	if total() != 3 || f.Set().ByName("other") != other || f.Set().Version() != 1 {
		t.Errorf("under controls: %d of %d", total(), published)
	}
	for _, bad := range [][]byte{controls(t, 4, 9000), controls(t, 5, 9000), []byte("{"), nil} {
		if f.Offer(t.Context(), ControlsDocument, bad); total() != 3 || f.Alarm(ControlsDocument) == "" {
			t.Errorf("%s: %d, alarm %q", bad, total(), f.Alarm(ControlsDocument))
		}
	}
	f.Offer(t.Context(), ControlsDocument, controls(t, 5, 2000))
	if why := f.Alarm(ControlsDocument); why != "" {
		t.Errorf("the store holds it again: %s", why)
	}
	f.Offer(t.Context(), RoomsDocument, rooms(t, 2, "", "sale", "third"))
	if total() != 3 || f.Set().Version() != 2 {
		t.Errorf("rooms were published: %d", total())
	}
	f = follow(t, dir, memoryStore{})
	tell(f)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	// by the machine's clock they had ended
	testkit.Eventually(t, "the controls are in force again", func() bool { return total() == 3 })
	now.Store(2000)
	testkit.Eventually(t, "they have ended", func() bool { return total() == published })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestPhasesBeginByThemselves: the phases of an event begin by fleet time, with the smaller limits during the clock
// uncertainty, without any message. Pages of events are loaded from the start.
func TestPhasesBeginByThemselves(t *testing.T) {
	f := follow(t, t.TempDir(), memoryStore{})
	now, bound := &atomic.Int64{}, &atomic.Int64{}
	start := time.Date(2026, 11, 22, 20, 0, 0, 0, time.UTC).UnixMilli()
	now.Store(start - 1000)
	f.Tell(func() (fleettime.Time, time.Duration) { return fleettime.Time(now.Load()), time.Duration(bound.Load()) })
	s := room.Settings{
		Name: "sale", Host: "shop.example", Origin: "http://10.0.0.1", TotalActiveUsers: 10,
		NewUsersPerMinute: 10,
	}
	s.Events = []room.Event{{
		Name: "launch", Start: start, End: start + 60_000,
		Overrides: room.Overrides{"total_active_users": 50, "new_users_per_minute": 40},
	}}
	data := testkit.Must(roomdoc.EncodeRooms(1, room.Document{Rooms: []room.Settings{s}}))(t)
	f.Offer(t.Context(), RoomsDocument, data)
	total := func() int { return f.Set().ByName("sale").TotalActiveUsers }
	if total() != 10 {
		t.Fatalf("before the event T is %d", total())
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	now.Store(start)
	testkit.Eventually(t, "the event has begun", func() bool { return total() == 50 })
	bound.Store(int64(2 * time.Second))
	testkit.Eventually(t, "the clock is not sure of that", func() bool { return total() == 10 })
	now.Store(start + 2000)
	testkit.Eventually(t, "now it is", func() bool { return total() == 50 })
	now.Store(start + 58_000)
	testkit.Eventually(t, "it may be over", func() bool { return total() == 10 })
	now.Store(start + 70_000)
	testkit.Eventually(t, "it is over", func() bool { return f.Set() == f.base })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
