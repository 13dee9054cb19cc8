package wire

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"vestibule/internal/core/room"
	"vestibule/internal/core/wire/pb"
	"vestibule/internal/lab/testkit"
)

var goldenPromises = Promises{
	Owner: Term{N: 1_763_800_000, Nonce: 0xfeed}, Write: 12,
	Durable: Durable{
		Version: 7, Promise: Term{N: 9, Nonce: 0xbeef}, Life: 330, Members: 3, Membership: 3, HoldUntil: 1622133400,
		Rooms: []StoredRoom{{
			Room: room.IDOf("tickets"), Bound: PermitCounts{Sessions: 900, Rate: 400},
			Floor: PermitCounts{Sessions: 590, Rate: 270}, Ceilings: []PermitCounts{{Sessions: 310, Rate: 150}, {}},
		}},
		FloorsUntil: 1622133255, Ceilings: []CeilingEdge{{Edge: "d1", Instance: 0xfeed}, {}}, CeilingsUntil: 1622133270,
		Roster: []RosterEntry{
			{
				Edge: Gone, Dead: true, Left: true, Gone: []GoneEdge{{Edge: "edge-0", Instance: 1, Until: 1622133500}},
				Rooms: []RosterRoom{
					{Room: room.IDOf("tickets"), Sessions: []Expiry{
						{Until: 1622133300, Stamped: 20},
						{Until: 1622133301, Consumed: 3},
					}},
				},
			},
			{Edge: "edge-1", Instance: 0x1122334455667788, LeaseEpoch: 2},
			{
				Edge: "edge-1", Instance: 0x1122334455667789, LeaseEpoch: 3, Leased: 1622133205, Until: 1622133540,
				Ended: 1622133210,
			},
			{Edge: "edge-2", Instance: 5, LeaseEpoch: 1, Dead: true, Waited: 40, Rooms: []RosterRoom{{
				Room: room.IDOf("tickets"), Sessions: []Expiry{{Until: 1622133310, Stamped: 9, Consumed: 1}},
				Reserved: 4, ReservedUntil: 1622133540, Silent: true, ReservedRate: 2, RateUntil: 1622133270,
				Rates: []RosterRate{{1622133240, 1}, {1622133270, 1}},
				Left:  []Stay{{ID: 84, Home: 9, Until: 1622133420, Marked: 1622133410}, {ID: 85, Home: 7, Marked: 1622133411}},
			}}},
		},
	},
	Sections: []Section{{Key: "dublin.1763800000-000000000000feed.1", Sum: sha256.Sum256([]byte("content"))}},
}

// TestFieldsOfANewerVersionStay: unknown fields are preserved on rewrite.
func TestFieldsOfANewerVersionStay(t *testing.T) {
	news := protowire.AppendString(protowire.AppendTag(nil, 999, protowire.BytesType), "news")
	p := goldenPromises
	p.Unknown = news
	p.Durable = p.Durable.Clone()
	p.Durable.Unknown = news
	p.Durable.Roster[1].Unknown = news
	data := testkit.Must(EncodeHead(&p))(t)
	got, err := DecodePromises(data)
	if err != nil || !bytes.Equal(got.Unknown, news) || !bytes.Equal(got.Durable.Unknown, news) ||
		!bytes.Equal(got.Durable.Roster[1].Unknown, news) {
		t.Errorf("fields of a newer version are lost: %+v, %v", got, err)
	}
}

// TestAnEntryThatIsWrittenAnewKeepsThem: the same for a rewritten entry and each of its rooms.
func TestAnEntryThatIsWrittenAnewKeepsThem(t *testing.T) {
	old := RosterEntry{Edge: "d1", Unknown: []byte("entry"), Rooms: []RosterRoom{
		{Room: 1, Unknown: []byte("one")},
		{Room: 2},
		{Room: 3, Unknown: []byte("three")},
	}}
	next := RosterEntry{Edge: "d1", Dead: true, Rooms: []RosterRoom{{Room: 3, Reserved: 1}, {Room: 4}, {Room: 2}}}
	next.Keep(&old)
	want := RosterEntry{
		Edge: "d1", Dead: true, Unknown: []byte("entry"),
		Rooms: []RosterRoom{{Room: 3, Reserved: 1, Unknown: []byte("three")}, {Room: 4}, {Room: 2}},
	}
	if diff := cmp.Diff(want, next); diff != "" {
		t.Error(diff)
	}
}

// large returns promises with the given number of edges, rooms per edge and session seconds per room.
func large(edges, rooms, seconds int) *Promises {
	rng := rand.New(rand.NewPCG(1, 2))
	p := &Promises{Owner: Term{N: 4, Nonce: 5}, Durable: Durable{Version: 3, Life: 1820}}
	for e := range edges {
		r := RosterEntry{Edge: "pod-" + strings.Repeat("x", e%20), Instance: uint64(e) + 1, Dead: true, Left: true}
		for range rooms {
			rr := RosterRoom{Room: room.ID(rng.Uint64())}
			for s := range seconds {
				rr.Sessions = append(rr.Sessions, Expiry{
					Until: 1622133300 + uint32(s), Stamped: rng.Uint64N(40),
					Consumed: rng.Uint64N(2),
				})
			}
			r.Rooms = append(r.Rooms, rr)
		}
		p.Durable.Roster = append(p.Durable.Roster, r)
	}
	return p
}

// TestLargePromisesLieInSections: values stay below the limit, the round trip is exact, and a wrong section is refused.
func TestLargePromisesLieInSections(t *testing.T) {
	for _, p := range []*Promises{large(1, 100, 1820), large(40, 100, 30), large(2, 2, 16000)} {
		var pieces [][]byte
		for i := range p.Durable.Roster {
			pieces = append(pieces, Pieces(&p.Durable.Roster[i])...)
		}
		var stored [][]byte
		for i, content := range CutSections(pieces) {
			data, sum, err := PackSection(content)
			if err != nil || len(data) > MaxStored {
				t.Fatalf("section %d has %d bytes: %v", i, len(data), err)
			}
			stored = append(stored, data)
			p.Sections = append(p.Sections, Section{Key: string(rune('a' + i)), Sum: sum})
		}
		head, err := EncodeHead(p)
		if err != nil || len(head) > MaxStored {
			t.Fatalf("the head has %d bytes: %v", len(head), err)
		}
		got := testkit.Must(DecodePromises(head))(t)
		for i, s := range got.Sections {
			if len(stored) > 1 {
				if err := got.Join(s, stored[(i+1)%len(stored)]); err == nil {
					t.Error("a section with another checksum is accepted")
				}
			}
			if err := got.Join(s, stored[i][:len(stored[i])-1]); err == nil {
				t.Error("a truncated section is accepted")
			}
			testkit.NoError(t, got.Join(s, stored[i]))
		}
		want := testkit.Must(EncodeWhole(p))(t)
		if again, err := EncodeWhole(got); err != nil || !bytes.Equal(again, want) {
			t.Errorf("%d edges changed in the round trip: %v", len(got.Durable.Roster), err)
		}
	}
	many := large(30_000, 0, 0)
	for i := range many.Durable.Roster {
		many.Durable.Roster[i].Edge = strings.Repeat("abcdefgh", i%8) + string(rune('a'+i%26))
		many.Durable.Roster[i].Instance = rand.New(rand.NewPCG(uint64(i), 1)).Uint64()
	}
	if _, err := EncodeHead(many); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a head that is too large is stored: %v", err)
	}
}

func TestForeignValuesAreRefused(t *testing.T) {
	for rule, data := range map[string][]byte{
		"wrong prefix":   []byte("VSP2 of another time"),
		"unexpected EOF": []byte(storedMagic),
		"decompressed":   deflate(make([]byte, maxInflated+1)),
	} {
		if _, err := DecodePromises(data); err == nil || !strings.Contains(err.Error(), rule) {
			t.Errorf("%q: %v", rule, err)
		}
	}
}

// What could not be read is not stored.
func TestPromisesThatCannotBeReadAreNotEncoded(t *testing.T) {
	p := &Promises{Durable: Durable{Version: 1, Roster: []RosterEntry{{Edge: "", Instance: 1}}}}
	if _, err := EncodeHead(p); err == nil || !strings.Contains(err.Error(), "roster[0]: edge: must have 1") {
		t.Errorf("a head: %v", err)
	}
	if _, err := EncodeWhole(p); err == nil {
		t.Error("a whole value is encoded")
	}
}

// A floor that was stored before a part of the store was lost proves nothing.
func TestLostStateHasNoFloors(t *testing.T) {
	d := Durable{
		Version: 3, Rooms: []StoredRoom{{Room: 1, Floor: PermitCounts{Sessions: 5}, Ceilings: []PermitCounts{{Sessions: 2}}}},
		FloorsUntil: 1_700_000_000, Ceilings: []CeilingEdge{{Edge: "d1", Instance: 1}}, CeilingsUntil: 1_700_000_000,
	}
	before := d.Rooms[0].Ceilings
	if d.LoseTrack(); d.FloorsUntil != 0 || d.CeilingsUntil != 0 {
		t.Errorf("the floors bind until %d, the ceilings until %d", d.FloorsUntil, d.CeilingsUntil)
	}
	data := testkit.Must(EncodeWhole(&Promises{Durable: d}))(t)
	got, err := DecodePromises(data)
	if err != nil || !reflect.DeepEqual(got.Durable, d) {
		t.Errorf("stored %+v, read %+v, %v", d, got, err)
	}
	// Builds of November 27 stored the ceilings of rooms without their edges.
	d.Rooms[0].Ceilings = before
	data = testkit.Must(EncodeWhole(&Promises{Durable: d}))(t)
	if got, err = DecodePromises(data); err != nil || got.Durable.Rooms[0].Ceilings != nil {
		t.Errorf("read %+v, %v", got, err)
	}
}

// A release that does not know the stored rooms keeps them, and raises the version beside them.
func TestStoredRoomsOfAnOlderReleaseAreNone(t *testing.T) {
	d := Durable{
		Version: 3,
		Rooms: []StoredRoom{{
			Room: 7, Bound: PermitCounts{Sessions: 20, Rate: 60},
			Floor: PermitCounts{Sessions: 9, Rate: 50}, Ceilings: []PermitCounts{{Sessions: 4, Rate: 20}},
		}}, FloorsUntil: 1_700_000_000, Ceilings: []CeilingEdge{{Edge: "d1", Instance: 1}}, CeilingsUntil: 1_700_000_015,
	}
	back := func(d Durable) Durable {
		data := testkit.Must(EncodeHead(&Promises{Durable: d}))(t)
		p := testkit.Must(DecodePromises(data))(t)
		return p.Durable
	}
	if got := back(d); !reflect.DeepEqual(got.Rooms, d.Rooms) || got.FloorsUntil != d.FloorsUntil ||
		!reflect.DeepEqual(got.Ceilings, d.Ceilings) || got.CeilingsUntil != d.CeilingsUntil {
		t.Errorf("got %+v until %d", got.Rooms, got.FloorsUntil)
	}
	unknown := pb.Sized(nil, 20, func(b []byte) []byte {
		m := packDurable(&d)
		return storedRoomsFields.Append(b, &m.rooms)
	})
	if got := back(Durable{Version: 4, Unknown: unknown}); got.Rooms != nil || got.FloorsUntil != 0 {
		t.Errorf("rooms of version 3 in version 4: got %+v until %d", got.Rooms, got.FloorsUntil)
	}
}
