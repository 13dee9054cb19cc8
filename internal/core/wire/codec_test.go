package wire

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/stop"
	"vestibule/internal/core/ticket/reuse"
	"vestibule/internal/core/wire/wirepb"
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
		{"edge-1", "v0.1.1", "alive", 740 * time.Millisecond, 2260 * time.Millisecond, 1800000000},
		{"edge-2", "", "awaiting", time.Hour, 0, 0},
	},
	CertificateEnd: 1900000000,
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
		Copied: []Line{{ID: 79, Stamp: 0xa1}},
		Movers: 2, Bound: PermitCounts{Sessions: 900, Rate: 400}, Overcommit: 3, Callable: 3, SiteDown: 2, Removed: true,
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
	Dwell: 3 * time.Millisecond, At: day, AtBound: 41 * time.Millisecond, Guess: true, Twin: true, Lease: time.Minute,
	Baseline:  true,
	Handshake: Adopted, Watermark: day - 250, Stop: stop.Stop{Reason: stop.AwaitsCentre, Edge: "dublin"},
	Rooms: []RoomGrant{
		{
			Room: room.IDOf("tickets"), Gen: 1, Permits: Permits{
				Sessions: Allocation{Granted: 600, Keep: 20, Returned: 44},
				Rate:     Allocation{Granted: 300, Keep: 10, Returned: 2},
			}, RenewCeil: 12, Life: 330, Confirmed: true, Drop: true,
			Bound: PermitCounts{Sessions: 900, Rate: 400}, Ends: []End{{ID: 82, Home: 9, Until: 1622133301, Kind: Cleared}},
			Lines:  []Line{{ID: 79, Stamp: 0xa1}},
			Passes: Passes{Release: 1622133200000, Allocation: Allocation{Granted: 12, Keep: 5}}, View: &View{
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

func TestGoldenMessages(t *testing.T) {
	report, err := EncodeReport(&goldenReport)
	if err != nil {
		t.Fatal(err)
	}
	grant, err := EncodeGrant(&goldenGrant)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := encodeHead(&goldenPromises)
	if err != nil {
		t.Fatal(err)
	}
	promises, err := inflate(stored)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range []struct {
		name string
		data []byte
		msg  proto.Message
	}{
		{"report", report, &wirepb.Report{}},
		{"grant", grant, &wirepb.Grant{}},
		{"promises", promises, &wirepb.Promises{}},
	} {
		bin := filepath.Join("testdata", g.name+".v1.binpb")
		if *rewrite {
			if err := proto.Unmarshal(g.data, g.msg); err != nil {
				t.Fatal(err)
			}
			// The text is for readers only; prototext varies its spaces on purpose.
			text := strings.ReplaceAll(prototext.MarshalOptions{Multiline: true}.Format(g.msg), ":  ", ": ")
			for file, data := range map[string][]byte{bin: g.data, filepath.Join("testdata", g.name+".v1.txtpb"): []byte(text)} {
				if err := os.WriteFile(file, data, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		want, err := os.ReadFile(bin)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(g.data, want) {
			t.Errorf("%s is not encoded as in %s: a change that old nodes will not understand?", g.name, bin)
		}
		// The text equals the bytes.
		text, err := os.ReadFile(filepath.Join("testdata", g.name+".v1.txtpb"))
		if err != nil {
			t.Fatal(err)
		}
		golden := g.msg.ProtoReflect().New().Interface()
		if err := prototext.Unmarshal(text, golden); err != nil {
			t.Fatal(err)
		}
		if err := proto.Unmarshal(want, g.msg); err != nil || !proto.Equal(golden, g.msg) {
			t.Errorf("%s: text and bytes tell different things (%v)", g.name, err)
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
	p := &wirepb.Report{
		Version: Version, From: "dublin", Parts: 1, Build: strings.Repeat("v", 100),
		Edges: []*wirepb.ToldEdge{
			{Name: "a b"}, {Name: "edge-1", Build: "v1\x1b[2J", State: "alive", HeardMs: 7},
		},
	}
	for i := range 2 * MaxReportedEdges {
		p.Edges = append(p.Edges, &wirepb.ToldEdge{Name: fmt.Sprint("more-", i)})
	}
	data, err := proto.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	m, err := DecodeReport(data)
	if err != nil || len(m.Build) != maxShown || len(m.Edges) != MaxReportedEdges-1 ||
		m.Edges[0] != (EdgeStatus{Name: "edge-1", State: "alive", Heard: 7 * time.Millisecond}) {
		t.Fatalf("%v: %+v", err, m)
	}
}

// altered decodes a message into p, changes it, and encodes it again. err is the one of the first encoding.
func altered(data []byte, err error, p proto.Message, change func()) ([]byte, error) {
	if err == nil {
		err = proto.Unmarshal(data, p)
	}
	if err != nil {
		return nil, err
	}
	change()
	return proto.Marshal(p)
}

func TestForeignMessagesAreRefused(t *testing.T) {
	report := func(change func(*wirepb.Report)) func() error {
		return func() error {
			var p wirepb.Report
			data, err := EncodeReport(&goldenReport)
			if data, err = altered(data, err, &p, func() { change(&p) }); err == nil {
				_, err = DecodeReport(data)
			}
			return err
		}
	}
	grant := func(change func(*wirepb.Grant)) func() error {
		return func() error {
			var p wirepb.Grant
			data, err := EncodeGrant(&goldenGrant)
			if data, err = altered(data, err, &p, func() { change(&p) }); err == nil {
				_, err = DecodeGrant(data)
			}
			return err
		}
	}
	nan := float32(0)
	nan /= nan
	for _, tc := range []struct {
		name   string
		decode func() error
		want   string // in the error; "" for none
	}{
		{"nothing changed", report(func(*wirepb.Report) {}), ""},
		{"nothing changed", grant(func(*wirepb.Grant) {}), ""},
		{
			"a round without fleet time",
			grant(func(p *wirepb.Grant) { p.Rooms[0].View.RoundCalledMs[0] = 0 }), "",
		},
		{"report of version 2", report(func(p *wirepb.Report) { p.Version = 2 }), "unsupported version: 2"},
		{"grant of version 0", grant(func(p *wirepb.Grant) { p.Version = 0 }), "unsupported version: 0"},
		{"no name", report(func(p *wirepb.Report) { p.From = "" }), "name"},
		{"part out of range", report(func(p *wirepb.Report) { p.Part = 1 }), "part"},
		{"no parts", grant(func(p *wirepb.Grant) { p.Parts = 0 }), "part"},
		{
			"unequal columns", report(func(p *wirepb.Report) { p.Rooms[0].Sessions.Stamped = p.Rooms[0].Sessions.Stamped[1:] }),
			"sessions: columns",
		},
		{"the same second twice", report(func(p *wirepb.Report) { p.Rooms[0].Sessions.Until[1] = 0 }), "must ascend"},
		{
			"seconds beyond 32 bits", report(func(p *wirepb.Report) { p.Rooms[0].Sessions.Until[1] = 1<<32 - 1 }),
			"must ascend",
		},
		{"moves without ids", report(func(p *wirepb.Report) { p.Rooms[0].Moves.Id = nil }), "moves: columns"},
		{
			"too many seconds of R", report(func(p *wirepb.Report) { p.Rooms[0].RateUsed = make([]uint32, MaxRateUsed+1) }),
			"rate_used: at most",
		},
		{
			"too many held visitors", report(func(p *wirepb.Report) { p.Rooms[0].HeldJoinedMs = make([]int64, MaxHeld+1) }),
			"held_joined: at most",
		},
		{
			"held visitors in disorder", report(func(p *wirepb.Report) { p.Rooms[0].HeldJoinedMs[1] = -1 }),
			"held_joined: join times",
		},
		{"slices that overlap", report(func(p *wirepb.Report) { p.Rooms[0].Waiting.StartMs[1] = -1 }), "slices must ascend"},
		{"an empty slice", report(func(p *wirepb.Report) { p.Rooms[0].Waiting.WidthMs[1] = 0 }), "at least 1 ms"},
		{"no number of people", report(func(p *wirepb.Report) { p.Rooms[0].Waiting.N[1] = nan }), "must be a number"},
		{"minutes without numbers", report(func(p *wirepb.Report) { p.Rooms[0].ArrivalsN = nil }), "arrivals"},
		{"no handshake", grant(func(p *wirepb.Grant) { p.Handshake = 0 }), "handshake"},
		{"a handshake of tomorrow", grant(func(p *wirepb.Grant) { p.Handshake = 9 }), "handshake"},
		{"a lease of centuries", grant(func(p *wirepb.Grant) { p.LeaseNs = 1 << 63 }), "lease"},
		{"a negative rate", grant(func(p *wirepb.Grant) { p.Rooms[0].View.Mu = -1 }), "mu"},
		{
			"too many outcomes", report(func(p *wirepb.Report) { p.Rooms[0].Outcomes = make([]uint64, estimate.OutcomesLen+1) }),
			"outcomes: at most",
		},
		{"paces without times", grant(func(p *wirepb.Grant) { p.Rooms[0].View.PaceMs = nil }), "paces: columns"},
		{"too many paces", grant(func(p *wirepb.Grant) {
			p.Rooms[0].View.PaceMs, p.Rooms[0].View.PaceMu = make([]uint64, estimate.MaxPaces+1),
				make([]float64, estimate.MaxPaces+1)
		}), "at most 32 phases"},
		{"a pace for centuries", grant(func(p *wirepb.Grant) { p.Rooms[0].View.PaceMs[0] = 1 << 63 }), "paces[0]"},
		{"a pace that is no number", grant(func(p *wirepb.Grant) { p.Rooms[0].View.PaceMu[1] = float64(nan) }), "paces[1]"},
		{
			"ranges of some classes", grant(func(p *wirepb.Grant) { p.Rooms[0].View.RangeHigh = p.Rooms[0].View.RangeHigh[1:] }),
			"ranges: columns",
		},
		{"a range that descends", grant(func(p *wirepb.Grant) { p.Rooms[0].View.RangeLow[1] = 3 }), "ranges[1]"},
		{"no message", func() error { _, err := DecodeReport([]byte("x")); return err }, "report"},
		{"no message", func() error { _, err := DecodeGrant([]byte("x")); return err }, "grant"},
	} {
		err := tc.decode()
		if (tc.want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: error %v, want one that says %q", tc.name, err, tc.want)
		}
	}
	if err := report(func(p *wirepb.Report) { p.Version = 7 })(); !errors.Is(err, ErrVersion) {
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
		data, err := EncodeReport(&want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeReport(data)
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
	data, err := EncodeReport(&Report{From: "dublin", Parts: 1, Rooms: []RoomReport{r}})
	if err != nil {
		t.Fatal(err)
	}
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
		data, err := EncodeReport(&m)
		if err != nil {
			t.Fatal(err)
		}
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
	check := func(what string, n, rooms int, part, parts uint32, data []byte, err error, p *Parts) {
		if err != nil {
			t.Fatal(err)
		}
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
		var err error
		if i%100 == 0 || i == len(reports)-1 { // all are equal
			data, err = EncodeReport(&reports[i])
		}
		check("report", i, len(reports[i].Rooms), reports[i].Part, reports[i].Parts, data, err, &p)
	}
	for i := range grants {
		var data []byte
		var err error
		if i%100 == 0 || i == len(grants)-1 {
			data, err = EncodeGrant(&grants[i])
		}
		check("grant", i, len(grants[i].Rooms), grants[i].Part, grants[i].Parts, data, err, &q)
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
func fuzzRoundTrip[M any](f *testing.F, golden *M, encode func(*M) ([]byte, error), decode func([]byte) (*M, error),
	equal ...cmp.Option,
) {
	data, err := encode(golden)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := decode(data)
		if err != nil {
			return
		}
		again, err := encode(m)
		if err != nil {
			t.Skip("a name that is not UTF-8 cannot be sent")
		}
		back, err := decode(again)
		if diff := cmp.Diff(m, back, equal...); diff != "" || err != nil {
			t.Fatalf("%v\n%s", err, diff)
		}
	})
}
