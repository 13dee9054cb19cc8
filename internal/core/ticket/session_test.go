package ticket

import (
	"crypto/rand"
	"slices"
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/lab/testkit"
)

// A session's key seals for a day and opens on the next, over a rotation too; then it is gone.
func TestSessionKeysLastTwoDays(t *testing.T) {
	now := fleettime.Time(100 * secondsOfDay * 1000)
	ring := testkit.Must(Keyring{}.Rotate(now-1, 24*time.Hour, rand.Reader))(t)
	keys := func(ring Keyring, at fleettime.Time) [][32]byte {
		out := testkit.Must(ring.SessionKeys(at))(t)
		return out
	}
	first := keys(ring, now)[0]
	next := testkit.Must(ring.Rotate(now+secondsOfDay*1000, 24*time.Hour, rand.Reader))(t)
	for _, c := range []struct {
		ring   Keyring
		days   fleettime.Time
		seals  bool
		opened bool
	}{
		{ring, 0, true, true},
		{ring, 1, false, true},
		{next, 1, false, true},
		{ring, 2, false, false},
		{next, 2, false, false},
	} {
		all := keys(c.ring, now+c.days*secondsOfDay*1000)
		if (all[0] == first) != c.seals || slices.Contains(all, first) != c.opened {
			t.Errorf("after %d days it seals: %v, opens: %v", c.days, all[0] == first, slices.Contains(all, first))
		}
		if len(all) != 2*len(c.ring.Keys) {
			t.Errorf("%d keys of %d", len(all), len(c.ring.Keys))
		}
	}
	if none := keys(Keyring{}, now); none != nil {
		t.Errorf("%d keys without a ring", len(none))
	}
}
