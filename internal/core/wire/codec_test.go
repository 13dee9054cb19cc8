package wire

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"pgregory.net/rapid"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/stop"
	"vestibule/internal/core/ticket/reuse"
	"vestibule/internal/core/wire/pb"
	"vestibule/internal/lab/testkit"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

const day = fleettime.Time(1622133200_000) // 27 May 2021, 16:33:20 UTC

var goldenReport = Report{
	From: "edge-1", Instance: 0x1122334455667788, LeaseEpoch: 2, Seq: 41, Part: 0, Parts: 1, Sent: 987654321, AsOf: day,
	AsOfBound: 21 * time.Millisecond, Succeeds: []uint64{0x0102030405060708, 0x1112131415161718},
	Seen: Term{N: 3, Nonce: 0xabcdef}, Acked: 40, Join: true, Build: "v0.2.0", EdgesN: 1200, TellsEdges: true,
	Stop: stop.Stop{
		Reason: stop.AwaitsEdge, Since: day - 9000, Until: day + 60_000, Centre: "nairobi",
		Edge: "edge-2", Instance: 1<<63 + 5, Ended: true,
	},
	Edges: []EdgeStatus{
		{"edge-1", "v0.1.1", "alive", 740 * time.Millisecond, 2260 * time.Millisecond, 1800000000, "10.0.0.7:8080 10.0.0.7:8443"},
		{"edge-2", "", "awaiting", time.Hour, 0, 0, ""},
	},
	CertificateEnd: 1900000000, Reads: 5, Listens: "10.0.0.5:9100",
	Membership: 1622133100001,
	Rooms: []RoomReport{{
		Room: room.IDOf("tickets"), Reconstructed: true, Permits: Permits{
			Sessions: Allocation{Granted: 60, Returned: 4},
			Rate:     Allocation{Granted: 30, Returned: 2},
		}, Spent: 50, RateIdle: 7, RateOwed: 5, RateUsed: []uint32{3, 0, 18},
		Renewed: 9, RenewCeil: 12,
		Sessions: []Expiry{
			{Until: 1622133300, Stamped: 20, Consumed: 3},
			{Until: 1622133301, Stamped: 30, Consumed: 0},
			{Until: 1622133310, Stamped: 9, Consumed: 1},
		},
		FirstMove: 58,
		Moves: []Move{
			{ID: 77, Until: 1622133310},
			{ID: 78, From: 1622133280, Until: 1622133310},
			{ID: 79, From: 1622133310, Until: 1622133311, Shown: reuse.Version{
				Stamp: 0xa1, Parent: 0xa0, Root: 0x9f,
				Seen: 1622133250,
			}},
		},
		Want: 5, HeldJoined: []fleettime.Time{day - 90_000, day - 89_999, day - 10}, HeldPeople: 3,
		Ends: []End{
			{ID: 80, Home: 0xd0b11, Until: 1622133290, Kind: Moved},
			{ID: 81, Home: 7, Until: 1622133300, Kind: Left},
		},
		Copied:    []Line{{ID: 79, Stamp: 0xa1}},
		Asks:      []Ask{{ID: 83, Home: 9, For: 7, Shown: 1622133290, Until: 1622133400}},
		Stays:     []Stay{{ID: 84, Home: 9, Until: 1622133420, Marked: 1622133410}},
		Transfers: []Transfer{{ID: 84, From: 7, To: 9, Tag: 1622133000, N: 3, Until: 1622133420}},
		Taken:     []Taken{{From: 9, To: 7, Tag: 1622133001, N: 8}},
		Movers:    2, Bound: PermitCounts{Sessions: 900, Rate: 400}, Overcommit: 3, Uncovered: PermitCounts{Sessions: 6, Rate: 2}, Callable: 3, SiteDown: 2, SiteDownAt: []string{"edge-3", "edge-4"}, Removed: true,
		Passes:   Passes{Release: 1622133200000, Allocation: Allocation{Granted: 12, Returned: 4}, Spent: 7},
		Admitted: 50, Joined: 12, Entered: 4,
		Forwarded: &Sums{Admitted: 49, Joined: 11, Entered: 3, Counts: []uint64{1, 0, 2}},
		Waiting: estimate.Histogram{
			{Start: day - 120_000, Width: 1000, N: 2},
			{Start: day - 119_000, Width: 60_000, N: -1.5},
			{Start: day - 30_000, Width: 1, N: 7},
		},
		Arrivals: []Minute{{Start: day.Minute() - 60_000, N: 45}, {Start: day.Minute(), N: 55}},
		Pending:  estimate.Histogram{{Start: day, Width: 1000, N: 4}, {Start: day + 1000, Width: 250, N: -1.5}},
		Outcomes: estimate.Outcomes(nil).Add(time.Minute, time.Minute).Add(time.Minute, time.Hour),
	}},
}

var goldenGrant = Grant{
	To: "nairobi", Instance: 4, From: Term{N: 9, Nonce: 0xfeed}, Seq: 12, Part: 1, Parts: 2, Acked: 40, Forwarded: 39,
	Echo:  987654321,
	Dwell: 3 * time.Millisecond, At: day, AtBound: 41 * time.Millisecond, Guess: true, Twin: true, Lease: time.Minute, Reads: 6, Membership: 1,
	Baseline:  true,
	Handshake: Adopted, Watermark: day - 250, Stop: stop.Stop{Reason: stop.AwaitsCentre, Edge: "dublin"},
	Rooms: []RoomGrant{
		{
			Room: room.IDOf("tickets"), Gen: 1, Permits: Permits{
				Sessions: Allocation{Granted: 600, Keep: 20, Returned: 44},
				Rate:     Allocation{Granted: 300, Keep: 10, Returned: 2},
			}, RenewCeil: 12, Life: 330, Confirmed: true, Drop: true,
			Bound: PermitCounts{Sessions: 900, Rate: 400}, Ends: []End{{ID: 82, Home: 9, Until: 1622133301, Kind: Cleared}},
			Lines:     []Line{{ID: 79, Stamp: 0xa1}},
			Asks:      []Ask{{ID: 83, Home: 7, For: 9, Shown: 1622133290, Until: 1622133400}},
			Stays:     []Stay{{ID: 85, Home: 7, Until: 1622133420}},
			Transfers: []Transfer{{ID: 86, From: 9, To: 7, Tag: 1622133001, N: 9, Until: 1622133430}},
			Taken:     []Taken{{From: 7, To: 9, Tag: 1622133000, N: 2}},
			Passes:    Passes{Release: 1622133200000, Allocation: Allocation{Granted: 12, Keep: 5}}, View: &View{
				Version: 8, At: day, Cutoff: day - 90_000, Park: estimate.Open, Free: -1, Active: 201, Mu: 0.5, Theta: 1.0 / 1800,
				Line:    estimate.NewDigest(estimate.Histogram{{Start: day - 120_000, Width: 60_000, N: 2}}),
				Joining: 2.25, Called: 1622133190000, Changed: 1622133180000, Rounds: draw.Rounds{
					{Seed: 7, Called: 1622133180005},
					{Seed: 1 << 63, Called: 1622133200000},
				}, Waits: estimate.Waits{1e9, 2e9, 4e9, 9e9, 60e9},
				Paces:  []estimate.Pace{{For: 90 * time.Second, Mu: 2}, {Mu: 0.5}},
				Ranges: estimate.Ranges{{Low: 0.5, High: 2}, {Low: 0.8, High: 1.2}, {Low: 0.9, High: 1.1}, {Low: 0.95, High: 1.05}},
			},
		},
		{Room: room.IDOf("vaccine")},
	},
}

// schema returns the descriptor of wire.proto.
var schema = sync.OnceValues(func() (protoreflect.FileDescriptor, error) {
	var set descriptorpb.FileDescriptorSet
	data, err := os.ReadFile(filepath.Join("testdata", "schema.binpb"))
	if err == nil {
		err = proto.Unmarshal(data, &set)
	}
	if err != nil {
		return nil, err
	}
	return protodesc.NewFile(set.File[0], nil)
})

// message returns an empty message of wire.proto.
func message(t testing.TB, name string) *dynamicpb.Message {
	t.Helper()
	file := testkit.Must(schema())(t)
	return dynamicpb.NewMessage(file.Messages().ByName(protoreflect.Name(name)))
}

// golden returns a message of wire.proto with the text of its golden file.
func golden(t testing.TB, name string, edit func(text string) string) *dynamicpb.Message {
	t.Helper()
	text := testkit.Must(os.ReadFile(filepath.Join("testdata", strings.ToLower(name)+".v1.txtpb")))(t)
	m := message(t, name)
	testkit.NoError(t, prototext.Unmarshal([]byte(edit(string(text))), m))
	return m
}

// altered returns the encoded golden message after text was replaced in it.
func altered(t testing.TB, name, before, after string) []byte {
	t.Helper()
	data := testkit.Must(proto.MarshalOptions{Deterministic: true}.Marshal(golden(t, name, func(text string) string {
		if before != "" && !strings.Contains(text, before) {
			t.Fatalf("%s has no %q", name, before)
		}
		return strings.Replace(text, before, after, 1)
	})))(t)
	return data
}

// TestFieldsAreThoseOfTheSchema holds the tables of fields against wire.proto, by number and kind.
func TestFieldsAreThoseOfTheSchema(t *testing.T) {
	kinds := map[protoreflect.Kind]pb.Kind{
		protoreflect.Sint32Kind: pb.Zigzag, protoreflect.Sint64Kind: pb.Zigzag, protoreflect.Fixed32Kind: pb.Fixed32,
		protoreflect.FloatKind: pb.Fixed32, protoreflect.Fixed64Kind: pb.Fixed64, protoreflect.DoubleKind: pb.Fixed64,
	}
	for name, table := range map[string]any{
		"Term": termFields, "Report": reportFields, "Stop": stopFields, "ToldEdge": edgeFields,
		"RoomReport": roomReportFields, "Sums": sumsFields, "Passes": passesFields, "Ends": endFields,
		"Sessions": sessionFields, "Moves": moveFields, "Lines": lineFields, "Line": histogramFields,
		"Grant": grantFields, "RoomGrant": roomGrantFields, "View": viewFields,
		"Promises": promisesFields, "Section": sectionFields, "PromiseSection": roomsFields, "Durable": durableFields,
		"StoredRooms": storedRoomsFields, "CeilingEdge": ceilingEdgeFields, "RosterEntry": rosterFields,
		"RosterRoom": rosterRoomFields, "GoneEdge": goneEdgeFields, "EdgePast": pastFields, "RoomPast": roomPastFields,
	} {
		want := message(t, name).Descriptor().Fields()
		last, n := protoreflect.FieldNumber(0), 0
		for fields, i := reflect.ValueOf(table), 0; i < fields.Len(); i++ {
			field := fields.Index(i)
			number := protoreflect.FieldNumber(field.FieldByName("number").Int())
			if number == 0 {
				continue // the unknown fields
			}
			n++
			f := want.ByNumber(number)
			if f == nil || number <= last {
				t.Errorf("%s: field %d is unknown, or not in order", name, number)
				continue
			}
			last = number
			bytes := f.Kind() == protoreflect.StringKind || f.Kind() == protoreflect.BytesKind || f.Message() != nil
			if takes, sets := !field.FieldByName("take").IsNil(), !field.FieldByName("set").IsNil(); takes != (bytes || f.IsList()) ||
				sets == bytes || pb.Kind(field.FieldByName("kind").Uint()) != kinds[f.Kind()] {
				t.Errorf("%s: %s is not encoded as %v", name, f.Name(), f.Kind())
			}
		}
		if n != want.Len() {
			t.Errorf("%s: %d fields, wire.proto has %d", name, n, want.Len())
		}
	}
}

func TestGoldenMessages(t *testing.T) {
	report, grant := EncodeReport(&goldenReport), EncodeGrant(&goldenGrant)
	stored := testkit.Must(EncodeWhole(&goldenPromises))(t)
	promises := testkit.Must(inflate(stored))(t)
	for name, data := range map[string][]byte{"Report": report, "Grant": grant, "Promises": promises} {
		bin := filepath.Join("testdata", strings.ToLower(name)+".v1.binpb")
		msg := message(t, name)
		if *rewrite {
			testkit.NoError(t, proto.Unmarshal(data, msg))
			// The text is for readers only; prototext varies its spaces on purpose.
			text := strings.ReplaceAll(prototext.MarshalOptions{Multiline: true}.Format(msg), ":  ", ": ")
			for file, data := range map[string][]byte{
				bin: data, filepath.Join("testdata", strings.ToLower(name)+".v1.txtpb"): []byte(text),
			} {
				testkit.NoError(t, os.WriteFile(file, data, 0o644))
			}
		}
		want := testkit.Must(os.ReadFile(bin))(t)
		if !bytes.Equal(data, want) {
			t.Errorf("%s is not encoded as in %s: a change that old nodes will not understand?", name, bin)
		}
		// The text equals the bytes.
		text := golden(t, name, func(text string) string { return text })
		if err := proto.Unmarshal(want, msg); err != nil || !proto.Equal(text, msg) {
			t.Errorf("%s: text and bytes tell different things (%v)", name, err)
		}
	}
	gotReport, err := DecodeReport(report)
	if diff := cmp.Diff(&goldenReport, gotReport); diff != "" || err != nil {
		t.Errorf("report changed in the round trip (%v):\n%s", err, diff)
	}
	gotGrant, err := DecodeGrant(grant)
	if diff := cmp.Diff(&goldenGrant, gotGrant, cmp.AllowUnexported(estimate.Digest{})); diff != "" || err != nil {
		t.Errorf("grant changed in the round trip (%v):\n%s", err, diff)
	}
	gotPromises, err := DecodePromises(stored)
	if diff := cmp.Diff(&goldenPromises, gotPromises); diff != "" || err != nil {
		t.Errorf("promises changed in the round trip (%v):\n%s", err, diff)
	}
}

// TestWhatPeopleLookAtIsNoReasonToRefuseAReport: bad display texts are cut or left out.
func TestWhatPeopleLookAtIsNoReasonToRefuseAReport(t *testing.T) {
	edges := `edges { name: "a b" } edges { name: "edge-1" build: "v1\033[2J" state: "alive" heard_ms: 7 }`
	for i := range 2 * MaxReportedEdges {
		edges += fmt.Sprintf(` edges { name: "more-%d" }`, i)
	}
	p := golden(t, "Report", func(string) string {
		return fmt.Sprintf(`version: 1 from: "dublin" parts: 1 build: %q %s rooms { room: 9 %s }`, strings.Repeat("v", 100), edges,
			strings.Repeat(`site_down_at: "e\033" `, MaxNamed+2))
	})
	data := testkit.Must(proto.MarshalOptions{Deterministic: true}.Marshal(p))(t)
	m, err := DecodeReport(data)
	if err != nil || len(m.Build) != maxShown || len(m.Edges) != MaxReportedEdges-1 ||
		m.Edges[0] != (EdgeStatus{Name: "edge-1", State: "alive", Heard: 7 * time.Millisecond}) {
		t.Fatalf("%v: %+v", err, m)
	}
	if at := m.Rooms[0].SiteDownAt; len(at) != MaxNamed || at[0] != "" {
		t.Errorf("edges without their site: %q", at)
	}
}

func TestForeignMessagesAreRefused(t *testing.T) {
	decode := map[string]func([]byte) error{
		"Report":   func(data []byte) error { _, err := DecodeReport(data); return err },
		"Grant":    func(data []byte) error { _, err := DecodeGrant(data); return err },
		"Promises": func(data []byte) error { _, err := DecodePromises(deflate(data)); return err },
	}
	for _, tc := range []struct {
		name, message string
		before, after string // in the text of the golden message
		want          string // in the error; "" for none
	}{
		{"nothing changed", "Report", "", "", ""},
		{"nothing changed", "Grant", "", "", ""},
		{"nothing changed", "Promises", "", "", ""},
		{"a round without fleet time", "Grant", "round_called_ms: 1622133180005", "round_called_ms: 0", ""},
		{"report of version 2", "Report", "version: 1", "version: 2", "unsupported version: 2"},
		{"grant of version 0", "Grant", "version: 1", "", "unsupported version: 0"},
		{"promises of version 2", "Promises", "version: 1", "version: 2", "unsupported version: 2"},
		{"no name", "Report", `from: "edge-1"`, "", "name"},
		{"part out of range", "Report", "parts: 1", "part: 1 parts: 1", "part"},
		{"no parts", "Grant", "parts: 2", "", "part"},
		{"unequal columns", "Report", "stamped: 20", "", "sessions: columns"},
		{"the same second twice", "Report", "until: 1\n", "until: 0\n", "must ascend"},
		{"seconds beyond 32 bits", "Report", "until: 1\n", "until: 4294967295\n", "must ascend"},
		{"a move without an id", "Report", "id: 77", "", "moves: columns"},
		{
			"too many seconds of R", "Report", "rate_used: 3",
			strings.Repeat("rate_used: 0 ", MaxRateUsed), "rate_used: at most",
		},
		{
			"too many held visitors", "Report", "held_joined_ms: 1\n",
			strings.Repeat("held_joined_ms: 0 ", MaxHeld), "held_joined: at most",
		},
		{"held visitors in disorder", "Report", "held_joined_ms: 1\n", "held_joined_ms: -1\n", "held_joined: join times"},
		{"slices that overlap", "Report", "start_ms: 0\n", "start_ms: -1\n", "slices must ascend"},
		{"an empty slice", "Report", "width_ms: 60000", "width_ms: 0", "at least 1 ms"},
		{"no number of people", "Report", "n: -1.5", "n: nan", "must be a number"},
		{"minutes without numbers", "Report", "arrivals_n: 45", "", "arrivals"},
		{"no handshake", "Grant", "handshake: HANDSHAKE_ADOPTED", "handshake: 0", "handshake"},
		{"a handshake of tomorrow", "Grant", "handshake: HANDSHAKE_ADOPTED", "handshake: 9", "handshake"},
		{"a lease of centuries", "Grant", "lease_ns: 60000000000", "lease_ns: 9223372036854775808", "lease"},
		{"a negative rate", "Grant", "mu: 0.5", "mu: -1", "mu"},
		{
			"too many outcomes", "Report", "outcomes: 0",
			strings.Repeat("outcomes: 0 ", estimate.OutcomesLen), "outcomes: at most",
		},
		{"paces without times", "Grant", "pace_ms: 90000", "", "paces: columns"},
		{
			"too many paces", "Grant", "pace_ms: 90000",
			strings.Repeat("pace_ms: 0 pace_mu: 0 ", estimate.MaxPaces-1) + "pace_ms: 90000", "at most 32 phases",
		},
		{"a pace for centuries", "Grant", "pace_ms: 90000", "pace_ms: 9223372036854775808", "paces[0]"},
		{"a pace that is no number", "Grant", "pace_mu: 0.5", "pace_mu: nan", "paces[1]"},
		{"ranges of some classes", "Grant", "range_high: 2\n", "", "ranges: columns"},
		{"a range that descends", "Grant", "range_low: 0.8", "range_low: 3", "ranges[1]"},
		{"a section without a sum", "Promises", `key: "dublin`, `key: "a" } sections: { key: "dublin`, "sections[0]: must have a key"},
		{"an edge without a name", "Promises", `edge: "edge-1"`, "", "roster[1]: edge: must have 1"},
		{"a stored second twice", "Promises", "until: 1\n", "until: 0\n", "sessions: seconds must ascend"},
	} {
		err := decode[tc.message](altered(t, tc.message, tc.before, tc.after))
		if (tc.want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: error %v, want one that says %q", tc.name, err, tc.want)
		}
	}
	for name, decode := range decode {
		if err := decode([]byte("x")); err == nil || !strings.Contains(err.Error(), strings.ToLower(name)) {
			t.Errorf("no %s: %v", name, err)
		}
	}
	if err := decode["Report"](altered(t, "Report", "version: 1", "version: 7")); !errors.Is(err, ErrVersion) {
		t.Errorf("another version: %v, want ErrVersion", err)
	}
}

func genReport(t *rapid.T) Report {
	u := func(name string) uint64 { return rapid.Uint64().Draw(t, name) }
	m := Report{
		From: rapid.StringMatching(`[a-z0-9-]{1,20}`).Draw(t, "from"), Instance: u("instance"), LeaseEpoch: u("lease epoch"),
		Seq: u("seq"), Parts: 1,
		Sent: fleettime.Mono(rapid.Int64().Draw(t, "sent")), AsOf: fleettime.Time(rapid.Int64().Draw(t, "asof")),
		Seen: Term{N: u("n"), Nonce: u("nonce")}, Acked: u("acked"), Join: rapid.Bool().Draw(t, "join"),
		Final: rapid.Bool().Draw(t, "final"),
	}
	for range rapid.IntRange(0, 3).Draw(t, "rooms") {
		r := RoomReport{
			Room: room.ID(u("room")), Gen: u("gen"),
			Permits: Permits{Sessions: Allocation{Granted: u("g"), Returned: u("r")}}, Spent: u("s"), Idle: u("i"),
			FirstMove: u("first"), Want: u("want"),
		}
		until := uint32(0)
		for range rapid.IntRange(0, 10).Draw(t, "sessions") {
			until += rapid.Uint32Range(1, 1<<27).Draw(t, "until")
			r.Sessions = append(r.Sessions, Expiry{Until: until, Stamped: u("p"), Consumed: u("n")})
		}
		for range rapid.IntRange(0, 10).Draw(t, "moves") {
			r.Moves = append(r.Moves, Move{
				ID: u("id"), From: rapid.Uint32Range(0, 1<<30).Draw(t, "from"),
				Until: rapid.Uint32Range(0, 1<<30).Draw(t, "until"),
			})
		}
		at := fleettime.Time(0)
		for range rapid.IntRange(0, 10).Draw(t, "held") {
			at += fleettime.Time(rapid.Int64Range(0, 1e9).Draw(t, "ms"))
			r.HeldJoined = append(r.HeldJoined, at)
		}
		at = 0
		for range rapid.IntRange(0, 10).Draw(t, "line") {
			at += fleettime.Time(rapid.Int64Range(0, 1e9).Draw(t, "gap"))
			s := estimate.Slice{
				Start: at, Width: rapid.Int64Range(1, 1e9).Draw(t, "width"),
				N: float64(rapid.Float32Range(-1e6, 1e6).Draw(t, "people")),
			}
			r.Waiting = append(r.Waiting, s)
			at = s.End()
		}
		m.Rooms = append(m.Rooms, r)
	}
	return m
}

func TestReportsComeBackAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := genReport(t)
		got, err := DecodeReport(EncodeReport(&want))
		if diff := cmp.Diff(&want, got); diff != "" || err != nil {
			t.Fatalf("%v\n%s", err, diff)
		}
	})
}

// TestALargeRoomStaysSmallOnTheWire encodes a million visitors in a queue of hours, and ten thousand sessions of half
// an hour: the largest room that a data centre reports.
func TestALargeRoomStaysSmallOnTheWire(t *testing.T) {
	r := RoomReport{Room: 1, Active: 10_000, FirstMove: 1 << 40}
	for i := range MaxSlices {
		r.Waiting = append(r.Waiting, estimate.Slice{
			Start: day + fleettime.Time(i*28_000), Width: 28_000,
			N: 1e6 / MaxSlices,
		})
		r.Pending = append(r.Pending, estimate.Slice{
			Start: day + fleettime.Time(i*28_000), Width: 28_000,
			N: -1e6 / MaxSlices,
		})
	}
	for range MaxRateUsed {
		r.RateUsed = append(r.RateUsed, 10_000)
	}
	for i := range MaxHeld {
		r.HeldJoined = append(r.HeldJoined, day+fleettime.Time(i*500))
	}
	data := EncodeReport(&Report{From: "dublin", Parts: 1, Rooms: []RoomReport{r}})
	if len(data) > 64<<10 {
		t.Errorf("%d bytes", len(data))
	}
	if size := reportSize(&r); len(data) > size {
		t.Errorf("%d bytes, estimated at most %d", len(data), size)
	}
}

func TestPackersCutAtTheBound(t *testing.T) {
	p := NewReportPacker(Report{From: "e", Seq: 7})
	big := RoomReport{Moves: make([]Move, MaxMoves), FirstMove: 1}
	for i := range 9 {
		big.Room = room.ID(i)
		p.Add(big)
	}
	parts := p.Reports()
	if len(parts) < 2 {
		t.Fatalf("%d parts", len(parts))
	}
	var rooms int
	var tracker Parts
	for i, m := range parts {
		data := EncodeReport(&m)
		if len(data) > MaxMessage {
			t.Errorf("part %d has %d bytes", i, len(data))
		}
		rooms += len(m.Rooms)
		fresh, complete := tracker.Take(m.Seq, m.Part, m.Parts)
		if !fresh || complete != (i == len(parts)-1) {
			t.Errorf("part %d: fresh %v, complete %v", i, fresh, complete)
		}
	}
	if rooms != 9 {
		t.Errorf("%d of 9 rooms went out", rooms)
	}
	if empty := NewGrantPacker(Grant{To: "e"}).Grants(); len(empty) != 1 || empty[0].Parts != 1 {
		t.Errorf("a grant without rooms: %+v", empty)
	}
}

// TestAsManyRoomsAsThereMayBeFit: with full rooms no part exceeds the message limit, and no part counts as the whole.
func TestAsManyRoomsAsThereMayBeFit(t *testing.T) {
	report, grant := NewReportPacker(Report{From: "e", Seq: 7}), NewGrantPacker(Grant{To: "e", Seq: 7})
	moves := make([]Move, MaxMoves)
	for i := range moves {
		moves[i] = Move{ID: 1 << 63, From: 1 << 30, Until: 1 << 31}
	}
	ends := make([]End, MaxEnds)
	for i := range ends {
		ends[i] = End{ID: 1 << 63, Home: 1 << 31, Until: 1 << 31, Kind: Left}
	}
	for i := range room.MaxRooms {
		report.Add(RoomReport{Room: room.ID(i), FirstMove: 1, Moves: moves})
		grant.Add(RoomGrant{Room: room.ID(i), Ends: ends})
	}
	check := func(what string, n, rooms int, part, parts uint32, data []byte, p *Parts) {
		fresh, complete := p.Take(7, part, parts)
		if !fresh || complete != (n == int(parts)-1) || len(data) > MaxMessage {
			t.Fatalf("%s: part %d of %d has %d rooms and %d bytes; fresh %v, complete %v", what, part+1, parts, rooms, len(data),
				fresh, complete)
		}
	}
	var p, q Parts
	reports, grants := report.Reports(), grant.Grants()
	for i := range reports {
		var data []byte
		if i%100 == 0 || i == len(reports)-1 { // all are equal
			data = EncodeReport(&reports[i])
		}
		check("report", i, len(reports[i].Rooms), reports[i].Part, reports[i].Parts, data, &p)
	}
	for i := range grants {
		var data []byte
		if i%100 == 0 || i == len(grants)-1 {
			data = EncodeGrant(&grants[i])
		}
		check("grant", i, len(grants[i].Rooms), grants[i].Part, grants[i].Parts, data, &q)
	}
}

func TestPartsAreTakenOnceAndInAnyOrder(t *testing.T) {
	type step struct {
		seq             uint64
		part, parts     uint32
		fresh, complete bool
	}
	for _, tc := range []struct {
		name  string
		steps []step
		done  uint64
	}{
		{"single parts", []step{{1, 0, 1, true, true}, {2, 0, 1, true, true}}, 2},
		{"a double", []step{{1, 0, 1, true, true}, {1, 0, 1, false, false}}, 1},
		{"an older one", []step{{5, 0, 1, true, true}, {4, 0, 1, false, false}}, 5},
		{"two parts in disorder", []step{{1, 1, 2, true, false}, {1, 1, 2, false, false}, {1, 0, 2, true, true}}, 1},
		{"one part lost", []step{{1, 0, 2, true, false}, {2, 0, 1, true, true}, {1, 1, 2, false, false}}, 2},
		{
			"a part of an incomplete older one",
			[]step{{1, 0, 2, true, false}, {2, 0, 2, true, false}, {1, 1, 2, false, false}},
			0,
		},
		{"nonsense", []step{{1, 0, 0, false, false}, {1, 2, 2, false, false}, {1, 0, MaxParts + 1, false, false}}, 0},
	} {
		var p Parts
		for i, s := range tc.steps {
			if fresh, complete := p.Take(s.seq, s.part, s.parts); fresh != s.fresh || complete != s.complete {
				t.Errorf("%s, step %d: fresh %v, complete %v", tc.name, i, fresh, complete)
			}
		}
		if p.Done() != tc.done {
			t.Errorf("%s: done %d, want %d", tc.name, p.Done(), tc.done)
		}
	}
	var full Parts
	for i := range uint32(MaxParts) {
		if _, complete := full.Take(1, i, MaxParts); complete != (i == MaxParts-1) {
			t.Fatalf("part %d of %d: complete %v", i, MaxParts, complete)
		}
	}
}

func TestNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"dublin": true, "edge-1": true, "a": true, "dc_2": true, strings.Repeat("x", 64): true,
		"": false, "global": false, "Dublin": false, "a.b": false, "a b": false, "*": false, ">": false,
		strings.Repeat("x", 65): false, "é": false,
	} {
		if err := CheckName(name); (err == nil) != ok {
			t.Errorf("CheckName(%q) = %v", name, err)
		}
	}
}

// TestNobodyGetsLessThanTheSessionDuration: Life must give every visitor the whole session duration after any request,
// renewed or not.
func TestNobodyGetsLessThanTheSessionDuration(t *testing.T) {
	for d := 5 * time.Second; d <= time.Hour; d += time.Second {
		life := Life(d)
		// Just not renewed: a renewal would have added one second less than RenewAfter.
		if left := life - (RenewAfter(life) - 1); time.Duration(left)*time.Second < d {
			t.Fatalf("session %v: life %d, renewed after %d: %d s may be left", d, life, RenewAfter(life), left)
		}
		if float64(life) > d.Seconds()*1.1+1 {
			t.Fatalf("session %v: life %d", d, life)
		}
	}
}

func FuzzDecodeReport(f *testing.F) {
	fuzzRoundTrip(f, &goldenReport, EncodeReport, DecodeReport)
}

func FuzzDecodeGrant(f *testing.F) {
	fuzzRoundTrip(f, &goldenGrant, EncodeGrant, DecodeGrant, cmp.AllowUnexported(estimate.Digest{}))
}

// fuzzRoundTrip holds that each message that can be decoded is encoded to the same message.
func fuzzRoundTrip[M any](f *testing.F, golden *M, encode func(*M) []byte, decode func([]byte) (*M, error),
	equal ...cmp.Option,
) {
	f.Add(encode(golden))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := decode(data)
		if err != nil {
			return
		}
		back, err := decode(encode(m))
		if diff := cmp.Diff(m, back, equal...); diff != "" || err != nil {
			t.Fatalf("%v\n%s", err, diff)
		}
	})
}
