package ticket

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/lab/testkit"
)

// day is a fixed time for tests: 27 May 2021, 16:33:20 UTC.
const day = fleettime.Time(1622133200_000)

// stream is a deterministic source of key bytes.
type stream struct{ n byte }

func (s *stream) Read(p []byte) (int, error) {
	for i := range p {
		s.n++
		p[i] = s.n
	}
	return len(p), nil
}

func testCodec(t testing.TB, ring Keyring, name string) *Codec {
	t.Helper()
	c := testkit.Must(NewCodec(ring, room.IDOf(name), CookieName(name, true)))(t)
	return c
}

func scratch(seed byte) *Scratch { return NewScratch(sha256.Sum256([]byte{seed})) }

func genTicket(t *rapid.T) Ticket {
	tk := Ticket{
		ID:     rapid.Uint64Min(1).Draw(t, "id"),
		Joined: fleettime.Time(rapid.Int64Range(0, joinedMax).Draw(t, "joined")),
		Seen:   rapid.Uint32().Draw(t, "seen"),
		Home:   DC(rapid.Uint32().Draw(t, "home")),
		Epoch:  rapid.Uint32().Draw(t, "epoch"),
		Flags:  Flags(rapid.Uint8Max(uint8(criticalEnd-1)).Draw(t, "critical")) | Flags(rapid.Uint8Max(15).Draw(t, "ignorable"))*ignorable,
	}
	step := rapid.IntRange(1, 120)
	for n := ignorableField - 1 + step.Draw(t, "field"); n < 256 && len(tk.Others) < maxFields-5; n += step.Draw(t, "step") {
		data := rapid.StringN(0, 3, 3).Draw(t, "data")
		tk.Others += string([]byte{byte(n), byte(len(data))}) + data
	}
	values := [4]uint32{
		rapid.Uint32().Draw(t, "forecast or stamp"), rapid.Uint32().Draw(t, "wait or parent"),
		rapid.Uint32().Draw(t, "high or root"), rapid.Uint32().Draw(t, "longer or net"),
	}
	if rapid.Bool().Draw(t, "admitted") {
		tk.Admitted = rapid.Uint32Min(1).Draw(t, "at")
		tk.Until = rapid.Uint32Min(1).Draw(t, "until")
		tk.Stamp, tk.Parent, tk.Root, tk.Net = values[0], values[1], values[2], values[3]
	} else { // only waiting visitors are shown a wait, at most a day
		const day = 1<<waitBits - 1
		tk.Forecast, tk.Wait, tk.High, tk.Longer = values[0], values[1]&day, values[2]&day, values[3]
		tk.Ahead = rapid.Uint32Max(MaxAhead).Draw(t, "ahead")
		tk.Low = rapid.Uint16Max(lowParts).Draw(t, "low")
		if rapid.Bool().Draw(t, "placed") {
			tk.SetPlace(fleettime.Time(rapid.Int64Range(0, joinedMax).Draw(t, "place")))
		}
	}
	return tk
}

func TestTicketComesBackAsItWasSealed(t *testing.T) {
	c, s := testCodec(t, testRing(t, 3), "tickets"), scratch(1)
	rapid.Check(t, func(t *rapid.T) {
		want := genTicket(t)
		value := string(c.Seal(nil, day, &want, s))
		size := ValueSize
		switch {
		case want.Others != "":
			size = ((rawSize-maxFields+len(want.Others))*8 + 5) / 6
		case want.Place() != want.Joined:
			size = PlacedSize
		}
		if len(value) != size {
			t.Fatalf("value has %d characters, want %d", len(value), size)
		}
		var got Ticket
		if err := c.Open(&got, value, s); err != nil || got != want {
			t.Fatalf("Open = %+v, %v; want %+v", got, err, want)
		}
	})
}

func TestEverySingleBitChangeIsRefused(t *testing.T) {
	c, s := testCodec(t, testRing(t, 2), "tickets"), scratch(2)
	tk := Ticket{ID: 7, Joined: day, Seen: 1, Flags: Returned}
	value := c.Seal(nil, day, &tk, s)
	raw := testkit.Must(encoding.DecodeString(string(value)))(t)
	for bit := range len(raw) * 8 {
		forged := slices.Clone(raw)
		forged[bit/8] ^= 1 << (bit % 8)
		var got Ticket
		if err := c.Open(&got, encoding.EncodeToString(forged), s); err == nil || got != (Ticket{}) {
			t.Errorf("bit %d flipped: Open = %+v, %v; want no ticket", bit, got, err)
		}
	}
	// The same for the characters as sent: no ticket has a second spelling.
	for i := range value {
		for _, ch := range []byte("AB_-zZ09=.+/ \x00") {
			if value[i] == ch {
				continue
			}
			forged := slices.Clone(value)
			forged[i] = ch
			var got Ticket
			if err := c.Open(&got, string(forged), s); err == nil {
				t.Errorf("character %d as %q: opened", i, ch)
			}
		}
	}
}

func TestTicketOpensOnlyWhereItBelongs(t *testing.T) {
	ring := testRing(t, 2)
	s := scratch(3)
	tk := Ticket{ID: 7, Joined: day}
	value := string(testCodec(t, ring, "tickets").Seal(nil, day, &tk, s))

	plainHTTP := testkit.Must(NewCodec(ring, room.IDOf("tickets"), CookieName("tickets", false)))(t)
	other := testRing(t, 1)
	for i := range other.Keys {
		other.Keys[i].ID = ring.Keys[len(ring.Keys)-1].ID
		other.Keys[i].Secret[0] ^= 1
	}
	for _, tc := range []struct {
		name  string
		codec *Codec
		value string
		want  error
	}{
		{"its own room and cookie", testCodec(t, ring, "tickets"), value, nil},
		{"another room", testCodec(t, ring, "vaccine"), value, ErrSeal},
		{"another cookie of the room", plainHTTP, value, ErrSeal},
		{"same key id, another secret", testCodec(t, other, "tickets"), value, ErrSeal},
		{"a ring that dropped the key", testCodec(t, Keyring{Keys: ring.Keys[:1]}, "tickets"), value, ErrKey},
		{"an empty ring", testCodec(t, Keyring{}, "tickets"), value, ErrKey},
		{"empty value", testCodec(t, ring, "tickets"), "", ErrMalformed},
		{"one character short", testCodec(t, ring, "tickets"), value[1:], ErrMalformed},
		{"one character long", testCodec(t, ring, "tickets"), value + "A", ErrMalformed},
		{"no base64", testCodec(t, ring, "tickets"), strings.Repeat("!", ValueSize), ErrMalformed},
		{"another version", testCodec(t, ring, "tickets"), "Ag" + value[2:], ErrMalformed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got Ticket
			if err := tc.codec.Open(&got, tc.value, s); !errors.Is(err, tc.want) {
				t.Errorf("Open: %v, want %v", err, tc.want)
			}
		})
	}
}

func TestCodecWithoutKeysCannotSeal(t *testing.T) {
	c := testCodec(t, Keyring{}, "tickets")
	if c.Ready(day) {
		t.Error("a codec without keys says it is ready")
	}
	if got := c.Seal(nil, day, &Ticket{ID: 1}, scratch(4)); got != nil {
		t.Errorf("Seal without keys = %q, want nothing", got)
	}
	// A first key is not used before its time either.
	ring := Keyring{Version: 1, Keys: []Key{{ID: 1, Secret: Secret{1}, SealFrom: day + 1}}}
	c = testCodec(t, ring, "tickets")
	if c.Ready(day) || !c.Ready(day+1) {
		t.Error("readiness does not follow SealFrom")
	}
}

// TestFormatIsPinned: tickets in browsers must open after an upgrade. Neither the number of a data centre nor the
// layout may change within a version.
func TestFormatIsPinned(t *testing.T) {
	if got := DCOf("nairobi"); got != 0x1ab64bd9 {
		t.Errorf("DCOf(nairobi) = %#x", uint32(got))
	}
	want := Ticket{
		ID: 0x0123456789abcdef, Joined: day + 250, Seen: 1, Admitted: 2, Until: 3, Home: DCOf("nairobi"),
		Epoch: 4, Stamp: 5, Parent: 6, Root: 7, Net: 8, Flags: Returned,
	}
	const value = "AQAAAAHmQPf0vrAjmG_-wUxpIfZZd6AfpI6R4pD8BQubPpRdAUQ1JVvCsNP2dDwNtpDfXE_ZCkpKo7ibVmphnHpnPgJmcmIPnHyupGvNuzxkEMPvAA"
	ring := testRing(t, 1)
	for i := range ring.Keys {
		ring.Keys[i].ID = uint32(i + 1)
	}
	if got := string(testCodec(t, ring, "tickets").Seal(nil, day.Add(-24*time.Hour), &want, scratch(8))); got != value {
		t.Errorf("sealed as %q", got)
	}
	var got Ticket
	if err := testCodec(t, ring, "tickets").Open(&got, value, scratch(8)); err != nil || got != want {
		t.Errorf("Open = %+v, %v; want %+v", got, err, want)
	}
}

// TestAPlaceOfItsOwnIsTheSecondVersion: a ticket with a place other than Joined has version 2, which is pinned like the
// first; neither can be read as the other.
func TestAPlaceOfItsOwnIsTheSecondVersion(t *testing.T) {
	ring := testRing(t, 1)
	for i := range ring.Keys {
		ring.Keys[i].ID = uint32(i + 1)
	}
	c, sealedAt := testCodec(t, ring, "tickets"), day.Add(-24*time.Hour)
	want := Ticket{
		ID: 0x0123456789abcdef, Joined: day + 250, Seen: 1, Home: DCOf("nairobi"), Epoch: 4, Forecast: 5,
		Wait: 6, High: 7, Ahead: 8, Low: 9, Longer: 10, Answer: 11, Flags: Returned,
	}
	want.SetPlace(day - 1800_001)
	const value = "AgAAAAHmQPf0vrAjmG_-wUxpIfZZd6AfpI6R4pD8BQubPpRdAUQ3JVvCs9P2dDwNtpDfXE_ZCkpKo7i7RGphnHpnPAlmSAIZSTNgW202j_yXlTyhq-CTA7GabQ"
	if got := string(c.Seal(nil, sealedAt, &want, scratch(8))); got != value {
		t.Errorf("sealed as %q", got)
	}
	var got Ticket
	if err := c.Open(&got, value, scratch(8)); err != nil || got != want || got.Place() != day-1800_001 {
		t.Errorf("Open = %+v, %v; want %+v", got, err, want)
	}
	raw := testkit.Must(encoding.DecodeString(value))(t)
	raw[0] = plain
	for _, forged := range []string{
		encoding.EncodeToString(raw),
		encoding.EncodeToString(raw[:len(raw)-placedSize+plainSize]),
	} {
		if err := c.Open(&got, forged, scratch(8)); !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrSeal) {
			t.Errorf("as a ticket of the first version: %v", err)
		}
	}

	// A ticket without its own place is shorter.
	for _, tk := range []Ticket{
		{ID: 1, Joined: day},
		{ID: 1, Joined: day, Placed: day},
		{ID: 1, Joined: day, Placed: day - 1, Admitted: 1, Until: 2}, // a session has no place
	} {
		if got := c.Seal(nil, sealedAt, &tk, scratch(8)); len(got) != ValueSize {
			t.Errorf("%+v is sealed in %d characters", tk, len(got))
		}
	}
	back := want
	if back.SetPlace(back.Joined); back.Placed != 0 || back.Place() != back.Joined {
		t.Errorf("placed where it joined: %+v", back)
	}
}

// TestWhatASessionIsBoundToIsInThePlaceOfLonger: Net replaces Longer, which a session does not use.
func TestWhatASessionIsBoundToIsInThePlaceOfLonger(t *testing.T) {
	const here, there, strict = Network(0x5eed0001_00000002), Network(0x5eed0003_00000004), Network(0x5eed0001_00000003)
	tk := Ticket{ID: 7, Admitted: 2, Until: 3, Longer: 8, Network: here}
	tk.BindSession()
	if tk.Net != Bind(7, here) || tk.Net < bound || tk.Longer != 0 {
		t.Fatalf("bound as %+v", tk)
	}
	var p [maxSize]byte
	if version, size := tk.encode(&p); version != plain || size != plainSize {
		t.Errorf("sealed as version %d in %d bytes", version, size)
	}
	if n := binary.BigEndian.Uint32(p[46:]); n != tk.Net {
		t.Errorf("sealed as %#x, want %#x", n, tk.Net)
	}
	var got Ticket
	tk.Network = 0
	if !got.decode(plain, p[:plainSize]) || got != tk {
		t.Errorf("opened as %+v, want %+v", got, tk)
	}
	for _, tc := range []struct {
		net  uint32
		in   Network
		want bool
	}{
		{tk.Net, here, false},
		{tk.Net, there, true},
		{tk.Net, 0, false},      // tickets are no longer bound
		{tk.Net, strict, false}, // another kind of binding
		{0, there, false},       // the session began before binding
	} {
		if got := Elsewhere(7, tc.net, tc.in); got != tc.want {
			t.Errorf("bound to %#x, shown in %#x: elsewhere %v", tc.net, tc.in, got)
		}
	}
	if a, b := Derive(7, here), Derive(7, there); a == b || a == 7 || a != Derive(7, here) || a == Derive(8, here) {
		t.Errorf("derived %d and %d", a, b)
	}
	same := 0
	for n := range Network(1 << 16) {
		if Bind(7, n<<1|2) == Bind(7, here) {
			same++
		}
	}
	if same > 1 {
		t.Errorf("%d of 65,536 networks collide", same)
	}
}

func FuzzOpen(f *testing.F) {
	c, s := testCodec(f, testRing(f, 2), "tickets"), scratch(6)
	f.Add("")
	f.Add(string(c.Seal(nil, day, &Ticket{ID: 1, Joined: day}, s)))
	f.Add(string(c.Seal(nil, day, &Ticket{ID: 1, Joined: day, Admitted: 5, Until: 9}, s)))
	f.Add(string(c.Seal(nil, day, &Ticket{ID: 1, Joined: day, Placed: day - 1}, s)))
	f.Add(string(c.Seal(nil, day, &Ticket{ID: 1, Joined: day, Flags: ignorable, Others: "\x80\x01x"}, s)))
	f.Fuzz(func(t *testing.T, value string) {
		var got Ticket
		if err := c.Open(&got, value, s); err != nil {
			if got != (Ticket{}) {
				t.Fatalf("error %v with ticket %+v", err, got)
			}
			return
		}
		if got.ID == 0 || got.Flags%ignorable >= criticalEnd || len(got.Others) > maxFields {
			t.Fatalf("opened a ticket that cannot be issued: %+v", got)
		}
	})
}

func FuzzLayout(f *testing.F) {
	f.Add(bytes.Repeat([]byte{1}, plainSize))
	f.Add(append(bytes.Repeat([]byte{1}, 18), make([]byte, placedSize-18)...)) // a waiting ticket
	f.Add(append(append(bytes.Repeat([]byte{1}, 18), make([]byte, placedSize-18)...), 128, 1, 7, 255, 0))
	f.Fuzz(func(t *testing.T, data []byte) {
		version := byte(plain)
		switch n := len(data); {
		case n == placedSize:
			version = placed
		case n > placedSize && n <= maxSize:
			version = extended
		case n != plainSize:
			return
		}
		var tk Ticket
		var back [maxSize]byte
		if !tk.decode(version, data) {
			return
		}
		if again, size := tk.encode(&back); again != version || !bytes.Equal(back[:size], data) {
			t.Fatalf("version %d, %x read as %+v, written as version %d, %x", version, data, tk, again, back)
		}
	})
}

// TestWhatANewerReleaseAdds: ignorable flags and fields stay in a ticket that this release seals again, as a place and as
// a session; critical ones, and fields that nobody writes, make it no ticket. Version 3 is pinned like the others.
func TestWhatANewerReleaseAdds(t *testing.T) {
	ring := testRing(t, 1)
	for i := range ring.Keys {
		ring.Keys[i].ID = uint32(i + 1)
	}
	c, s, sealedAt := testCodec(t, ring, "tickets"), scratch(8), day.Add(-24*time.Hour)
	newer := Ticket{ID: 7, Joined: day, Flags: Returned | 1<<6, Others: "\x80\x02hi\xff\x00"}
	const value = "AwAAAAHmQPf0vrAjmG_-wUxoArM-_gvSTI6R4pD9_wubPpVdAUQ3JVvCs8lAP-UNtpDbXE_ZD0pKo76bVmpmnHpnNgImSXu32e5fZDd72uzcErSK_bFPFj14eNQBLNpiSA"
	if got := string(c.Seal(nil, sealedAt, &newer, s)); got != value {
		t.Errorf("sealed as %q", got)
	}
	var got Ticket
	if err := c.Open(&got, value, s); err != nil || got != newer {
		t.Fatalf("Open = %+v, %v; want %+v", got, err, newer)
	}
	got.Admitted, got.Until, got.Stamp = 5, 9, 3
	got.Flags &^= Returned
	want := got
	if err := c.Open(&got, string(c.Seal(nil, day, &got, s)), s); err != nil || got != want || got.Flags != 1<<6 ||
		got.Others != newer.Others {
		t.Errorf("as a session: %+v, %v; want %+v", got, err, want)
	}
	for name, tk := range map[string]Ticket{
		"a critical flag":                  {ID: 7, Joined: day, Flags: criticalEnd},
		"the last critical flag":           {ID: 7, Joined: day, Flags: ignorable >> 1},
		"a critical field":                 {ID: 7, Joined: day, Others: "\x7f\x00"},
		"a critical field, then ignorable": {ID: 7, Joined: day, Others: "\x01\x01x\x80\x00"},
		"field 0":                          {ID: 7, Joined: day, Others: "\x00\x00"},
		"a field twice":                    {ID: 7, Joined: day, Others: "\x80\x00\x80\x00"},
		"a field without its length":       {ID: 7, Joined: day, Others: "\x80\x00\x81"},
		"a field without its data":         {ID: 7, Joined: day, Others: "\x80\x02x"},
	} {
		if err := c.Open(&got, string(c.Seal(nil, day, &tk, s)), s); !errors.Is(err, ErrMalformed) || got != (Ticket{}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	long := Ticket{ID: 7, Joined: day, Others: "\x80\x3e" + strings.Repeat("x", maxFields-2)}
	full := string(c.Seal(nil, day, &long, s))
	if err := c.Open(&got, full, s); err != nil || got != long || len(full) != MaxValueSize {
		t.Errorf("as many fields as there may be: %d characters, %v", len(full), err)
	}
	if err := c.Open(&got, full+"AA", s); !errors.Is(err, ErrMalformed) {
		t.Errorf("more fields than there may be: %v", err)
	}
}

// TestShownValuesFitBesideTheWait: the values are read back, also with a wait alone.
func TestShownValuesFitBesideTheWait(t *testing.T) {
	for _, want := range []Ticket{
		{ID: 1, Wait: 600, High: 700, Ahead: 1201, Low: 400},
		{ID: 1, Wait: 86400, High: 86400},
	} {
		got := Ticket{ID: 1}
		got.Wait, got.High = want.packShown()
		if got.unpackShown(); got != want {
			t.Errorf("%+v becomes %+v", want, got)
		}
	}
}

// TestTheLowEndStaysAsShown: storing it again does not change it, and it never exceeds the given value.
func TestTheLowEndStaysAsShown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tk := Ticket{Wait: rapid.Uint32Range(0, 86400).Draw(t, "wait")}
		want := time.Duration(rapid.Int64Range(0, int64(tk.Wait)).Draw(t, "low")) * time.Second
		got := tk.PutLowEnd(want)
		if got > want || got < want-time.Duration(tk.Wait)*time.Second/lowParts-time.Second {
			t.Fatalf("%v of %d s is stored as %v", want, tk.Wait, got)
		}
		if again := tk.PutLowEnd(got); again != got || tk.LowEnd() != got {
			t.Fatalf("%v becomes %v", got, again)
		}
	})
}

// TestTheSecretOfNotificationsStays in a ring that rotates, joins another, or is stored; a ring without one is stored
// as before.
func TestTheSecretOfNotificationsStays(t *testing.T) {
	now := fleettime.Time(1_800_000_000_000)
	ring := testkit.Must(Keyring{}.Rotate(now, time.Hour, rand.Reader))(t)
	if data, err := EncodeKeyring(ring); err != nil || strings.Contains(string(data), "push") {
		t.Errorf("%v %v", err, strings.Contains(string(data), "push"))
	}
	with := ring
	with.Push, with.Version = Secret{7}, ring.Version+1
	if with.Equal(ring) || !with.Newer(ring) || !with.Continues(ring) {
		t.Error("a ring with the secret does not follow the one without")
	}
	next := testkit.Must(with.Rotate(now.Add(time.Hour), time.Hour, rand.Reader))(t)
	data := testkit.Must(EncodeKeyring(next))(t)
	back, err := DecodeKeyring(data)
	if err != nil || !back.Equal(next) || back.Push != with.Push {
		t.Errorf("%v %v", back.Version, err)
	}
	without := next // as an older global would make it
	without.Push = Secret{}
	without.Version += 5
	other := testkit.Must(Keyring{}.Rotate(now.Add(time.Minute), time.Hour, rand.Reader))(t)
	for name, pair := range map[string][2]Keyring{
		"older": {ring, with}, "newer": {with, without},
		"foreign": {with, other},
	} {
		for _, j := range []Keyring{pair[0].Join(pair[1], now), pair[1].Join(pair[0], now)} {
			if j.Push != with.Push || j.Version < max(pair[0].Version, pair[1].Version) {
				t.Errorf("%s: %v of %v and %v", name, j.Version, pair[0].Version, pair[1].Version)
			}
		}
	}
}
