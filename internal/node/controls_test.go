package node

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"vestibule/internal/fleet"
	"vestibule/internal/room"
	"vestibule/internal/testkit"
)

func controls(t *testing.T, version uint64, until int64) []byte {
	t.Helper()
	data, err := room.EncodeControls(&room.Controls{Version: version, Rooms: map[string]*room.Control{
		room.PublicID("sale"): {Limits: &room.Limits{Mark: room.Mark{Since: 1, Until: until}, TotalActiveUsers: 3}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestControlsGoBeforeTheRooms: a node goes by them until they end by fleet time, whatever is published of the
// rooms meanwhile, after a restart too; an older or a broken document changes nothing.
func TestControlsGoBeforeTheRooms(t *testing.T) {
	dir := t.TempDir()
	f := follow(t, dir, shelf{})
	now := &atomic.Int64{}
	now.Store(1000)
	tell := func(f *follower) { f.Tell(func() fleet.Time { return fleet.Time(now.Load()) }) }
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
	f = follow(t, dir, shelf{})
	tell(f)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	testkit.Eventually(t, "the controls are in force again", func() bool { return total() == 3 }) // by the machine's clock they had ended
	now.Store(2000)
	testkit.Eventually(t, "they have ended", func() bool { return total() == published })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
