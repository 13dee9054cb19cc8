package ticket

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/lab/testkit"
)

// TestRevokedKeysNeverReturn: nodes on all sides of partitions rotate, revoke, lose and merge their rings in any order.
// A ring that has heard of a revocation has no key from before it, and every node follows it.
func TestRevokedKeysNeverReturn(t *testing.T) {
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 67))
		src := &stream{n: byte(seed)}
		now := day
		first := ringOf(t, day.Add(-time.Duration(rng.IntN(30))*time.Hour), rng.IntN(8), byte(seed))
		first = testkit.Must(first.Advance(max(now, first.newest().SealFrom), 0, src))(t)
		rings := []Keyring{first, first, first, {}}
		revoked := map[Key]bool{}         // without the time of sealing
		heard := make([]bool, len(rings)) // of the revocation
		plain := func(k Key) Key { k.SealFrom = 0; return k }
		for range 30 {
			now = now.Add(MinRotation + time.Duration(rng.IntN(3600))*time.Second)
			i, j := rng.IntN(len(rings)), rng.IntN(len(rings))
			switch n := rng.IntN(10); {
			case n < 3: // the leader of one side rotates, or founds a ring
				if r, err := rings[i].Rotate(now, MinRotation, src); err == nil {
					rings[i] = r
				}
			case n == 3:
				if r, err := rings[i].Advance(now, MinRotation, src); err == nil && len(rings[i].Keys) > 0 {
					rings[i] = r
				}
			case n == 4 && len(revoked) == 0:
				for _, r := range rings {
					for _, k := range r.Keys {
						revoked[plain(k)] = true
					}
				}
				old := rings[i]
				rings[i] = testkit.Must(old.Revoke(now, MinRotation, src))(t)
				if !rings[i].Newer(old) || !rings[i].Continues(old) {
					t.Fatalf("seed %d: a node refuses the new keys", seed)
				}
				heard[i] = true
			default:
				rings[i], heard[i] = rings[i].Join(rings[j], now), heard[i] || heard[j]
			}
			for n, r := range rings {
				for _, k := range r.Keys {
					if heard[n] && revoked[plain(k)] {
						t.Fatalf("seed %d: key %d is back: %v", seed, k.ID, r.Keys)
					}
				}
				for m := 1; m < len(r.Keys); m++ {
					if r.Keys[m].ID <= r.Keys[m-1].ID {
						t.Fatalf("seed %d: the numbers do not grow: %v", seed, r.Keys)
					}
				}
			}
		}
	}
}

// TestTicketsOfRevokedKeys: they are as those of dropped keys, and new ones as those of keys that a cut-off edge lacks.
func TestTicketsOfRevokedKeys(t *testing.T) {
	old := ringOf(t, day.Add(-5*time.Hour), 5, 1)
	now := day.Add(time.Minute)
	ring := testkit.Must(old.Revoke(now, 0, &stream{n: 90}))(t)
	if ring.Push != old.Push || len(ring.Keys) != 2 || ring.Keys[0].SealFrom != now {
		t.Errorf("%v", ring.Keys)
	}
	s := scratch(5)
	before := string(testCodec(t, old, "tickets").Seal(nil, now, &Ticket{ID: 1, Joined: now}, s))
	after := string(testCodec(t, ring, "tickets").Seal(nil, now, &Ticket{ID: 1, Joined: now}, s))
	var got Ticket
	if err := testCodec(t, ring, "tickets").Open(&got, before, s); !errors.Is(err, ErrOldKey) {
		t.Errorf("a ticket of before: %v", err)
	}
	if err := testCodec(t, old, "tickets").Open(&got, after, s); !errors.Is(err, ErrKey) {
		t.Errorf("a new ticket at an edge that is cut off: %v", err)
	}
	if err := testCodec(t, ring, "tickets").Open(&got, after, s); err != nil {
		t.Errorf("a new ticket: %v", err)
	}
}

// TestRotationOnDemand: the announced key seals at once, unless a node may lack it; all tickets stay valid.
func TestRotationOnDemand(t *testing.T) {
	ring := testkit.Must(Keyring{}.Rotate(day, 24*time.Hour, &stream{}))(t)
	if _, err := ring.Advance(day.Add(MinRotation-1), 24*time.Hour, &stream{}); !errors.Is(err, ErrTooSoon) {
		t.Errorf("an announced key of less than %v: %v", MinRotation, err)
	}
	now := day.Add(MinRotation)
	next := testkit.Must(ring.Advance(now, 24*time.Hour, &stream{n: 60}))(t)
	if !next.Newer(ring) || !next.Continues(ring) || next.sealing(now) != 1 || next.newest().SealFrom != now.Add(24*time.Hour) {
		t.Errorf("%+v", next)
	}
	if joined := ring.Join(next, now); !slices.Equal(joined.Keys, next.Keys) {
		t.Errorf("it does not replace the ring of before: %v", joined.Keys)
	}
	s := scratch(5)
	for what, at := range map[string]fleettime.Time{"before": day, "just before": now.Add(-1)} {
		var got Ticket
		value := string(testCodec(t, ring, "tickets").Seal(nil, at, &Ticket{ID: 1, Joined: at}, s))
		if err := testCodec(t, next, "tickets").Open(&got, value, s); err != nil {
			t.Errorf("a ticket of %s: %v", what, err)
		}
	}
	if _, err := next.Advance(now.Add(time.Minute), 24*time.Hour, &stream{}); !errors.Is(err, ErrTooSoon) {
		t.Errorf("twice within a minute: %v", err)
	}
	single := testkit.Must(Keyring{}.Rotate(day, 0, &stream{}))(t) // a fleet without rotation
	if r, err := single.Advance(now, 0, &stream{n: 30}); err != nil || len(r.Keys) != 2 || r.Keys[1].SealFrom != now.Add(MinRotation) {
		t.Errorf("without rotation: %+v, %v", r, err)
	}
}
