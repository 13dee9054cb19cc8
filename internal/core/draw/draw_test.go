package draw

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/lab/testkit"
)

var closes = time.Date(2026, 12, 1, 9, 59, 30, 0, time.UTC)

// record returns a record with a secret made of n.
func record(n byte) *Record {
	s := Secret{0: n, 31: 1}
	return &Record{
		Algorithm: Algorithm, Room: "699d98642c564d2e855e9661899b7252", Event: "25756b2dfe6e378a06b033b670413757",
		Commit: s.Commit(), Committed: closes.Add(-48 * time.Hour), Closes: closes, Secret: Hash(s), Entrants: 3,
	}
}

func noBeacon(*Beacon, time.Time) error { return errors.New("none") }

// Fixed places of one record: an implementation in another language must give these, and so must every build of
// ours.
func TestPlacesAreThese(t *testing.T) {
	d := record(7).Draw()
	for _, tt := range []struct {
		ticket uint64
		joined time.Time
		class  uint8
		want   string
	}{
		{0, closes.Add(-time.Hour), 0, "2026-12-01T09:37:10.019Z"},
		{0x0123456789abcdef, closes.Add(-time.Millisecond), 0, "2026-12-01T09:09:21.249Z"},
		{0x0123456789abcdef, closes.Add(-72 * time.Hour), 2, "2026-12-01T07:09:21.249Z"},
		{math.MaxUint64, closes, 3, "2026-12-01T09:59:30.000Z"}, // too late: the class has no effect
		{5, closes.Add(time.Minute), 0, "2026-12-01T10:00:30.000Z"},
	} {
		got := time.UnixMilli(int64(d.Place(tt.ticket, fleettime.TimeOf(tt.joined), tt.class))).UTC().Format(TimeFormat)
		if got != tt.want {
			t.Errorf("ticket %x of class %d: place %s, want %s", tt.ticket, tt.class, got, tt.want)
		}
	}
}

// All drawn visitors are before later ones, a higher class is before a lower one, and later visitors are in order.
func TestWhoComesLaterIsBehind(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := record(rapid.Byte().Draw(t, "secret")).Draw()
		at := fleettime.TimeOf(closes)
		draw := func(class uint8) fleettime.Time {
			ago := time.Duration(rapid.Int64Range(1, int64(6*time.Hour/time.Millisecond)).Draw(t, "ago")) * time.Millisecond
			return d.Place(rapid.Uint64().Draw(t, "ticket"), at.Add(-ago), class)
		}
		class := rapid.Uint8Range(0, MaxClass).Draw(t, "class")
		p := draw(class)
		if from := at.Add(-Window * time.Duration(1+class)); p < from || p >= from.Add(Window) {
			t.Fatalf("class %d: place %d is outside of its window", class, p)
		}
		if class < MaxClass && draw(class+1) >= p {
			t.Fatalf("class %d is not before class %d", class+1, class)
		}
		late := at.Add(time.Duration(rapid.Int64Range(0, 1e6).Draw(t, "late")) * time.Millisecond)
		if got := d.Place(rapid.Uint64().Draw(t, "late ticket"), late, class); got != late {
			t.Fatalf("who joined at %d has place %d", late, got)
		}
	})
}

// deviation returns by how many standard deviations the sum of chi-square over draws exceeds its expectation, for
// tables that count the members of a group with a place in each tenth.
func deviation(draws int, groups int, groupOf func(i int) int, place func(draw, i int) float64, people int) float64 {
	sum, freedom := 0.0, 0.0
	for n := range draws {
		table := make([][10]float64, groups)
		var rows [10]float64
		sizes := make([]float64, groups)
		for i := range people {
			g, k := groupOf(i), min(9, int(10*place(n, i)))
			table[g][k]++
			rows[k]++
			sizes[g]++
		}
		for g := range groups {
			for k := range rows {
				if want := sizes[g] * rows[k] / float64(people); want > 0 {
					sum += (table[g][k] - want) * (table[g][k] - want) / want
				}
			}
		}
		freedom += float64(9 * (groups - 1))
	}
	return (sum - freedom) / math.Sqrt(2*freedom)
}

// A hundred draws of ten thousand: neither the join time, nor the data centre, nor the edge predicts the place.
// Edges assign random ticket numbers; here they count up, which must not show either.
func TestTheDrawIsFair(t *testing.T) {
	const draws, people = 100, 10_000
	at := fleettime.TimeOf(closes)
	var places [draws][people]float64
	for n := range places {
		d := record(byte(n)).Draw()
		for i := range people {
			p := d.Place(uint64(i), at.Add(-time.Duration(people-i)*time.Millisecond), 0)
			places[n][i] = float64(p-at.Add(-Window)) / float64(Window.Milliseconds())
		}
	}
	place := func(n, i int) float64 { return places[n][i] }
	const unlikely = 2.33 // one percent of fair draws deviate by more
	for _, tt := range []struct {
		by      string
		groups  int
		groupOf func(i int) int
	}{
		{"time of joining", 10, func(i int) int { return i * 10 / people }},
		{"data centre", 5, func(i int) int { return i % 5 }},
		{"edge", 40, func(i int) int { return i * 7 % 40 }},
	} {
		if d := deviation(draws, tt.groups, tt.groupOf, place, people); d > unlikely {
			t.Errorf("by %s places deviate by %.2f from chance", tt.by, d)
		}
		// A draw that moves one group in a hundred slightly forward is detected.
		unfair := func(n, i int) float64 {
			if tt.groupOf(i) == 0 {
				return place(n, i) * .95
			}
			return place(n, i)
		}
		if d := deviation(draws, tt.groups, tt.groupOf, unfair, people); d <= unlikely {
			t.Errorf("by %s an unfair draw deviates by %.2f only", tt.by, d)
		}
	}
}

func TestRecordsAreChecked(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Record)
		want   string
	}{
		"a record":          {func(*Record) {}, ""},
		"another secret":    {func(r *Record) { r.Secret[5]++ }, "secret: it is not the one that commit was made of"},
		"another algorithm": {func(r *Record) { r.Algorithm = "dice" }, `algorithm: must be "vestibule draw 1", got "dice"`},
		"a commit too late": {
			func(r *Record) { r.Committed = r.Closes },
			"committed: must be before closes, got 2026-12-01T09:59:30Z",
		},
		"half milliseconds": {
			func(r *Record) { r.Closes = r.Closes.Add(1) },
			"closes: must be a time in whole milliseconds",
		},
		"a beacon that lies": {func(r *Record) { r.Beacon = &Beacon{} }, "beacon: none"},
	} {
		r := record(1)
		tt.change(r)
		if got := fmt.Sprint(errors.Join(r.Check(noBeacon)...)); got != tt.want && (tt.want != "" || got != "<nil>") {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// Encoded records and receipts are decoded, and unknown fields are rejected.
func TestRecordsAndReceiptsAreRead(t *testing.T) {
	r := record(1)
	r.Beacon = &Beacon{Round: 5, Signature: []byte{1, 2, 255}}
	data := testkit.Must(EncodeRecord(r))(t)
	again := testkit.Must(DecodeRecord(data))(t)
	if again.seed() != r.seed() || again.Entrants != 3 || !again.Committed.Equal(r.Committed) {
		t.Errorf("%+v was read of %s", again, data)
	}
	for _, bad := range []string{
		``, `{"algorithm": 1}`, strings.Replace(string(data), `"room"`, `"colour":1,"room"`, 1),
		strings.Replace(string(data), `"0102ff"`, `"0102f"`, 1),
		strings.Replace(string(data), `"commit":"`, `"commit":"zz`, 1), string(data) + "{}",
	} {
		if _, err := DecodeRecord([]byte(bad)); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

// A thousand receipts are valid, and none with any change is.
func TestForgedReceiptsAreFound(t *testing.T) {
	d, rng := record(3).Draw(), rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		joined := closes.Add(-time.Duration(rng.Int64N(7_200_000)) * time.Millisecond)
		r := Receipt{Ticket: Ticket(rng.Uint64()), Joined: joined, Class: uint8(rng.IntN(3))}
		r.Place = time.UnixMilli(int64(d.Place(uint64(r.Ticket), fleettime.TimeOf(joined), r.Class)))
		text := testkit.Must(json.Marshal(r))(t)
		var read Receipt
		testkit.NoError(t, json.Unmarshal(text, &read))
		if err := d.Check(&read); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for name, change := range map[string]func(*Receipt){
			"place":         func(r *Receipt) { r.Place = r.Place.Add(-time.Millisecond) },
			"ticket":        func(r *Receipt) { r.Ticket ^= 1 << rng.IntN(64) },
			"class":         func(r *Receipt) { r.Class++ },
			"too late":      func(r *Receipt) { r.Joined = closes.Add(time.Second) },
			"commit":        func(r *Receipt) { r.Commit = Hash{1} },
			"no class":      func(r *Receipt) { r.Class = MaxClass + 1 },
			"half a second": func(r *Receipt) { r.Place = r.Place.Add(time.Microsecond) },
		} {
			forged := read
			change(&forged)
			if d.Check(&forged) == nil {
				t.Fatalf("%s: a receipt with another %s is right", text, name)
			}
		}
	}
}

// FuzzRecord: a decoded record encodes and decodes to the same.
func FuzzRecord(f *testing.F) {
	r := record(1)
	data := testkit.Must(EncodeRecord(r))(f)
	f.Add(data)
	r.Beacon = &Beacon{Round: 5, Signature: []byte{1, 2, 255}}
	data = testkit.Must(EncodeRecord(r))(f)
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := DecodeRecord(data)
		if err != nil {
			return
		}
		r.Check(noBeacon)
		text, err := EncodeRecord(r)
		if err != nil {
			return // a year that JSON cannot represent
		}
		again, err := DecodeRecord(text)
		if err != nil || again.seed() != r.seed() {
			t.Fatalf("%s was read and written as %s: %v", data, text, err)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	d := record(3).Draw()
	r := Receipt{Ticket: 5, Joined: closes.Add(-time.Hour)}
	r.Place = time.UnixMilli(int64(d.Place(5, fleettime.TimeOf(r.Joined), 0)))
	b.ReportAllocs()
	for b.Loop() {
		testkit.NoError(b, d.Check(&r))
	}
}
