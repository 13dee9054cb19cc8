package ticket

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/lab/testkit"
)

func testRing(t testing.TB, rotations int) Keyring {
	t.Helper()
	var (
		r   Keyring
		now = day.Add(-24 * time.Hour)
		src = &stream{}
	)
	for range rotations {
		r = testkit.Must(r.Rotate(now, MinRotation, src))(t)
		now = now.Add(MinRotation)
	}
	return r
}

// TestNoPlaceIsLostOverTwentyRotations: a polling visitor keeps the place through any number of rotations, even if
// every other edge gets each new key just before it seals, one rotation after it was made.
func TestNoPlaceIsLostOverTwentyRotations(t *testing.T) {
	var (
		s     = scratch(5)
		src   = &stream{}
		now   = day
		rings []Keyring // one per rotation
	)
	first := Ticket{ID: 42, Joined: now}
	value := ""
	for poll := 0; len(rings) < 21; poll++ {
		var last Keyring
		if len(rings) > 0 {
			last = rings[len(rings)-1]
		}
		if last.Due(now, MinRotation) {
			ring := testkit.Must(last.Rotate(now, MinRotation, src))(t)
			rings = append(rings, ring)
		}
		holder := rings[len(rings)-1]
		if poll%2 == 1 && len(rings) > 1 {
			holder = rings[len(rings)-2] // until the next rotation
		}
		c := testCodec(t, holder, "tickets")
		if value == "" {
			value = string(c.Seal(nil, now, &first, s))
		}
		var got Ticket
		if err := c.Open(&got, value, s); err != nil || got.Joined != first.Joined || got.ID != first.ID {
			t.Fatalf("poll %d after %d rotations: %+v, %v", poll, len(rings)-1, got, err)
		}
		value = string(c.Seal(nil, now, &got, s))
		now = now.Add(20 * time.Second)
	}
}

// TestATicketOutlivesItsKeyByTwoRotations: tickets open for two rotations after their key stopped sealing, which is the
// time to seal them again.
func TestATicketOutlivesItsKeyByTwoRotations(t *testing.T) {
	s, src := scratch(5), &stream{}
	ring := testkit.Must(Keyring{}.Rotate(day, MinRotation, src))(t)
	sealed := map[fleettime.Time]string{}
	for now := day; now < day.Add(12*MinRotation); now = now.Add(MinRotation / 4) {
		if ring.Due(now, MinRotation) {
			ring = testkit.Must(ring.Rotate(now, MinRotation, src))(t)
		}
		c := testCodec(t, ring, "tickets")
		sealed[now] = string(c.Seal(nil, now, &Ticket{ID: 1, Joined: now}, s))
		for at, value := range sealed {
			var got Ticket
			err := c.Open(&got, value, s)
			if age := now.Sub(at); age <= 2*MinRotation && err != nil {
				t.Errorf("a ticket of %v before does not open: %v", age, err)
			} else if age > 4*MinRotation && !errors.Is(err, ErrOldKey) {
				t.Errorf("a ticket of %v before: %v", age, err)
			}
		}
	}
}

// TestWhoMissesAKeyKnowsIt: a ring as of the last rotation opens every ticket; an older ring knows that it may lack a
// key.
func TestWhoMissesAKeyKnowsIt(t *testing.T) {
	s, src := scratch(5), &stream{}
	var rings []Keyring
	for i := range 8 {
		var ring Keyring
		if i > 0 {
			ring = rings[i-1]
		}
		ring = testkit.Must(ring.Rotate(day.Add(time.Duration(i)*MinRotation), MinRotation, src))(t)
		rings = append(rings, ring)
	}
	for have, ring := range rings {
		c := testCodec(t, ring, "tickets")
		for now := day.Add(time.Duration(have) * MinRotation); now < day.Add(8*MinRotation); now = now.Add(MinRotation / 10) {
			current := int(now.Sub(day) / MinRotation)
			value := string(testCodec(t, rings[current], "tickets").Seal(nil, now, &Ticket{ID: 1, Joined: now}, s))
			var got Ticket
			err := c.Open(&got, value, s)
			if known := current <= have+1; known != (err == nil) || !known && !errors.Is(err, ErrKey) {
				t.Errorf("ring %d at rotation %d: %v", have, current, err)
			}
			if err != nil && !c.Behind(now) {
				t.Errorf("ring %d at rotation %d takes a key that it lacks for none", have, current)
			}
			if current == have && c.Behind(now) {
				t.Errorf("the ring of rotation %d does not know that it is the newest", have)
			}
		}
	}
}

func TestRotationTooSoonIsRefused(t *testing.T) {
	r := testkit.Must(Keyring{}.Rotate(day, time.Hour, &stream{}))(t)
	if len(r.Keys) != 2 || r.Keys[0].SealFrom != day || r.Keys[1].SealFrom != day.Add(time.Hour) ||
		r.Keys[0].Secret == r.Keys[1].Secret || r.Version != 1 {
		t.Errorf("a ring begins as %+v", r)
	}
	if _, err := r.Rotate(day.Add(time.Hour-1), time.Hour, &stream{}); !errors.Is(err, ErrTooSoon) {
		t.Errorf("Rotate = %v, want ErrTooSoon", err)
	}
	if _, err := r.Rotate(day.Add(time.Hour), MinRotation-1, &stream{}); !errors.Is(err, ErrInterval) {
		t.Errorf("Rotate = %v, want ErrInterval", err)
	}
	r2 := testkit.Must(r.Rotate(day.Add(time.Hour), MinRotation, &stream{n: 9}))(t)
	if got := r2.Keys[2].SealFrom; got != day.Add(time.Hour+MinRotation) {
		t.Errorf("the third key seals from %v", got)
	}
	if !r2.Newer(r) || r.Newer(r2) || r.Newer(r) || (Keyring{Version: 99}).Newer(r) {
		t.Error("Newer believes an older or an empty ring")
	}
	never, err := Keyring{}.Rotate(day, 0, &stream{})
	if err != nil || len(never.Keys) != 1 || never.Due(day.Add(1e6*time.Hour), 0) {
		t.Errorf("without rotation a ring begins as %+v, %v", never, err)
	}
}

func TestKeyMaterialIsNotPrinted(t *testing.T) {
	r := testRing(t, 1)
	secret := r.Keys[0].Secret
	for _, out := range []string{
		fmt.Sprint(r), fmt.Sprintf("%+v %#v", r, r), fmt.Sprintf("%v", secret),
		secret.LogValue().String(),
	} {
		if strings.Contains(out, hex.EncodeToString(secret[:4])) || strings.Contains(out, "1, 2, 3") ||
			strings.Contains(out, "1 2 3") || strings.Contains(out, "0x1, 0x2") {
			t.Errorf("key material in %q", out)
		}
	}
}

// ringOf returns a ring begun at a time and rotated the given number of times.
func ringOf(t *testing.T, begun fleettime.Time, rotations int, secrets byte) Keyring {
	t.Helper()
	src := &stream{n: secrets}
	r, err := Keyring{}.Rotate(begun, time.Hour, src)
	for i := range rotations {
		if err == nil {
			r, err = r.Rotate(begun.Add(time.Duration(i+1)*time.Hour), time.Hour, src)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestTwoRingsBecomeOne: of two unrelated rings the older one continues to seal, and tickets of both open, also after
// the next rotation.
func TestTwoRingsBecomeOne(t *testing.T) {
	now := day.Add(30 * time.Minute)
	for name, tc := range map[string]struct{ older, younger Keyring }{
		"a new one beside an old one":   {ringOf(t, day.Add(-20*time.Hour), 20, 1), ringOf(t, day, 0, 101)},
		"beside one that never rotated": {ringOf(t, day.Add(-time.Hour/3), 0, 1), ringOf(t, day, 0, 101)},
		"keys that are not numbered by the date": {
			func() Keyring {
				r := ringOf(t, day.Add(-5*time.Hour), 5, 1)
				for i := range r.Keys {
					r.Keys[i].ID = uint32(3 + i)
				}
				return r
			}(), ringOf(t, day, 0, 101),
		},
		"the younger one is": {ringOf(t, day.Add(-2*time.Hour), 2, 1), func() Keyring {
			r := ringOf(t, day, 0, 101)
			r.Keys[0].ID, r.Keys[1].ID = 1, 2
			return r
		}()},
	} {
		joined := tc.younger.Join(tc.older, now)
		if other := tc.older.Join(tc.younger, now); !slices.Equal(joined.Keys, other.Keys) ||
			joined.Version != other.Version {
			t.Errorf("%s: Join is not symmetric", name)
		}
		if joined.Keys[joined.sealing(now)] != tc.older.Keys[tc.older.sealing(now)] {
			t.Errorf("%s: the older ring does not go on sealing", name)
		}
		data, err := EncodeKeyring(joined)
		if err == nil {
			_, err = DecodeKeyring(data)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		rotated, err := joined.Rotate(joined.newest().SealFrom, time.Hour, &stream{n: 200})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, r := range []Keyring{tc.older, tc.younger} {
			if !joined.Newer(r) || !joined.Continues(r) {
				t.Errorf("%s: a node refuses what two rings became", name)
			}
			if again := joined.Join(r, now); again.Version != joined.Version {
				t.Errorf("%s: they are joined again", name)
			}
			value := string(testCodec(t, r, "tickets").Seal(nil, now, &Ticket{ID: 7, Joined: now}, scratch(9)))
			for when, ring := range map[string]Keyring{"joined": joined, "and rotated": rotated} {
				if r.Keys[0].ID == 1 && when != "joined" {
					continue // the lowest numbers are dropped first
				}
				var got Ticket
				if err := testCodec(t, ring, "tickets").Open(&got, value, scratch(9)); err != nil || got.ID != 7 {
					t.Errorf("%s, %s: a ticket of one of the rings is lost: %v", name, when, err)
				}
			}
		}
		if c := testCodec(t, joined, "tickets"); c.Behind(now) || !c.Behind(joined.newest().SealFrom) {
			t.Errorf("%s: a key that only opens counts as the newest sealing key", name)
		}
	}
}

// TestARingIsNotJoinedWithItsPast: a ring is not joined with an ancestor of any age.
func TestARingIsNotJoinedWithItsPast(t *testing.T) {
	ring := ringOf(t, day.Add(-20*time.Hour), 20, 1)
	for n := range 20 {
		past := ringOf(t, day.Add(-20*time.Hour), n, 1)
		if got := ring.Join(past, day); !slices.Equal(got.Keys, ring.Keys) {
			t.Errorf("joined with itself of %d rotations ago", 20-n)
		}
		if got := past.Join(ring, day); !slices.Equal(got.Keys, ring.Keys) {
			t.Errorf("of %d rotations ago it does not become what it is", 20-n)
		}
	}
	for _, r := range []Keyring{ring.Join(Keyring{}, day), Keyring{}.Join(ring, day)} {
		if !slices.Equal(r.Keys, ring.Keys) {
			t.Error("an empty ring changes it")
		}
	}
}

// TestARingContinuesAnother: a ring that lacks the newest key of another, and cannot have dropped it, was begun anew.
func TestARingContinuesAnother(t *testing.T) {
	rings := func(secret byte) (out []Keyring) {
		r := Keyring{}
		out = append(out, r)
		for i := range 9 {
			var err error
			if r, err = r.Rotate(day.Add(time.Duration(i)*time.Hour), time.Hour,
				bytes.NewReader(bytes.Repeat([]byte{secret, byte(i + 1)}, 32))); err != nil {
				t.Fatal(err)
			}
			out = append(out, r)
		}
		return out
	}
	ours, other := rings('a'), rings('b')
	for i := range ours {
		for j := i; j < len(ours); j++ {
			if !ours[j].Continues(ours[i]) {
				t.Errorf("version %d does not continue version %d", j, i)
			}
			// After four rotations this is undecidable.
			if want := i == 0 || j >= i+MaxKeys; other[j].Continues(ours[i]) != want {
				t.Errorf("version %d of other keys continues version %d: %v", j, i, !want)
			}
		}
	}
}

func TestKeyringIsStoredWhole(t *testing.T) {
	r := testRing(t, MaxKeys+2)
	if len(r.Keys) != MaxKeys {
		t.Fatalf("ring holds %d keys, want %d", len(r.Keys), MaxKeys)
	}
	data := testkit.Must(EncodeKeyring(r))(t)
	back := testkit.Must(DecodeKeyring(data))(t)
	if back.Version != r.Version || !slices.Equal(back.Keys, r.Keys) {
		t.Errorf("decoded %+v, want %+v", back, r)
	}
	for _, tc := range []struct{ name, data, want string }{
		{"empty", ``, "EOF"},
		{"unknown field", `{"version":1,"kees":[]}`, "kees"},
		{"trailing data", `{"version":1,"keys":[]} x`, "after"},
		{"short secret", `{"version":1,"keys":[{"id":1,"secret":"AAAA","seal_from":0}]}`, "32 bytes"},
		{
			"empty secret",
			`{"version":1,"keys":[{"id":1,"secret":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","seal_from":0}]}`,
			"secret: must not be empty",
		},
		{"ids in disorder", strings.Replace(string(data), fmt.Sprintf(`"id":%d`, r.Keys[1].ID),
			fmt.Sprintf(`"id":%d`, r.Keys[0].ID), 1), "must grow"},
		{"too many keys", `{"keys":[` + strings.Repeat(`{"id":1},`, MaxKeys) + `{"id":1}]}`, "at most 4"},
	} {
		if _, err := DecodeKeyring([]byte(tc.data)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want one that says %q", tc.name, err, tc.want)
		}
	}
}

func FuzzDecodeKeyring(f *testing.F) {
	data := testkit.Must(EncodeKeyring(testRing(f, 2)))(f)
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := DecodeKeyring(data)
		if err != nil {
			return
		}
		again := testkit.Must(EncodeKeyring(r))(t)
		if back, err := DecodeKeyring(again); err != nil || back.Version != r.Version || !slices.Equal(back.Keys, r.Keys) {
			t.Fatalf("%+v came back as %+v, %v", r, back, err)
		}
	})
}
