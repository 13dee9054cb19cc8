package history

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const shop = 7

// row makes the row from two states.
func row(t *testing.T, p, since *Point) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for i, n := range MakeRow(p, since) {
		if !math.IsNaN(n) {
			out[Columns[i].Name] = n
		}
	}
	return out
}

// table reads points in two parts.
func table(points []Point, from, to, step int64) *Table {
	r := NewReader(from, to, step)
	r.Add(points[:len(points)/2])
	r.Add(points[len(points)/2:])
	return r.Table()
}

// sum returns the sum of the known numbers.
func sum(column []float64) (all float64) {
	for _, n := range column {
		if !math.IsNaN(n) {
			all += n
		}
	}
	return all
}

func gauges(inside int64, centres ...string) *Gauges {
	g := &Gauges{}
	g.Values[Inside], g.Values[Limit], g.Values[Wait] = inside, 10, -1
	for _, c := range centres {
		g.Centres = append(g.Centres, CentreGauges{Name: c, Inside: inside})
	}
	return g
}

// A minute of a sale: what each number of the row is made from.
func TestARowTellsWhatHappenedSinceThePointBefore(t *testing.T) {
	r := NewRecorder(nil)
	r.Observe("dublin", shop, Report{Term: 1})
	r.Heard("dublin")
	before, _ := r.Record(100, shop, gauges(0, "dublin"))
	c := make(Counts, NumCounts)
	c[Returning], c[Bypassed], c[OriginRequests], c[OriginErrors] = 3, 4, 50, 5
	for range 8 {
		c.AddWait(25*time.Second, 31*time.Second) // bins 20–30 s and 30–60 s
		c.AddStay(-1, 0)
	}
	c.AddStay(0, 90*time.Second) // one of the eight stays for a minute or two
	for range 45 {
		c[LatencyBin(7*time.Millisecond)]++
	}
	r.Observe("dublin", shop, Report{Term: 1, Joined: 30, Admitted: 12, Entered: 8, Counts: c, Waiting: 20})
	after, ok := r.Record(160, shop, gauges(9, "dublin"))
	if !ok {
		t.Fatal("a changed room needs no point")
	}
	got := row(t, &after.Point, &before.Point)
	if n, failed, p95 := Origin(&after.Point, &before.Point); n != 50 || failed != 5 ||
		p95.Seconds() != got["origin_p95"] || p95 == 0 {
		t.Errorf("%d requests to the site, %d failed, %v", n, failed, p95)
	}
	want := map[string]float64{
		"waiting": 20, "inside": 9, "limit": 10, "rate": 0, "free": 0, "overcommit": 0, "beyond": 0, "paused": 0,
		"arrived": 34, "returning": 3, "admitted": 12, "gave_up": 2, "ended": 3, "bypassed": 4, "origin_requests": 50,
		"origin_errors": 5,
		"waited_p50":    25, "waited_p90": 29, "told_p50": 45, "told_p90": 57, "stay_p50": 4.0 / 7 * 5, "stay_p95": 96,
		"origin_p50": 0.0075, "origin_p95": 0.00975,
	}
	for name, n := range want {
		if x, ok := got[name]; !ok || x < n-1e-6-n*1e-6 || x > n+1e-6+n*1e-6 {
			t.Errorf("%s: %v (known: %v), want %v", name, x, ok, n)
		}
	}
	if _, ok := got["wait"]; ok || len(got) != len(want) {
		t.Errorf("the row has %d numbers, want %d: %v", len(got), len(want), got)
	}
}

// A successor continues from what its predecessor recorded: the totals have every visitor once.
func TestTotalsContinueUnderASuccessor(t *testing.T) {
	report := func(r *Recorder, centre string, term, admitted uint64) {
		r.Observe(centre, shop, Report{Term: term, Admitted: admitted})
		r.Heard(centre)
	}
	r := NewRecorder(nil)
	report(r, "dublin", 1, 40) // of any age: nothing is known of the time before
	r.Record(1, shop, gauges(0, "dublin"))
	report(r, "dublin", 1, 50)
	state, _ := r.Record(2, shop, gauges(0, "dublin"))
	report(r, "dublin", 1, 53) // not recorded
	steps := []struct {
		what           string
		centre         string
		term, admitted uint64
		want           int64
	}{
		{"what nobody recorded", "dublin", 1, 60, 20},
		{"an older report", "dublin", 1, 55, 20},
		{"a new aggregator counts from 0", "dublin", 2, 4, 24},
		{"and goes on", "dublin", 2, 5, 25},
		{"a data centre that was not heard before", "nairobi", 9, 1000, 25},
		{"counts from there", "nairobi", 9, 1001, 26},
	}
	r = NewRecorder([]State{state})
	for i, s := range steps {
		report(r, s.centre, s.term, s.admitted)
		got, _ := r.Record(int64(3+i), shop, gauges(0, "dublin", "nairobi"))
		if n := got.Point.Values[Admitted]; n != s.want {
			t.Errorf("%s: %d admitted, want %d", s.what, n, s.want)
		}
	}
}

func TestARoomWithoutAChangeHasAPointPerBeat(t *testing.T) {
	r := NewRecorder(nil)
	var at []int64
	for second := int64(3500); second <= 2*Beat; second++ {
		if second == 3550 {
			r.Observe("dublin", shop, Report{Term: 1})
			r.Observe("dublin", shop, Report{Term: 1, Joined: 1, Waiting: 1})
		}
		if s, ok := r.Record(second, shop, gauges(0)); ok {
			at = append(at, s.Point.At)
		}
	}
	if want := []int64{3500, 3550, Beat, 2 * Beat}; !slices.Equal(at, want) {
		t.Errorf("points at %v, want %v", at, want)
	}
}

func TestRowsOfARoomAtRest(t *testing.T) {
	point := func(at, admitted, inside int64) Point {
		p := Point{At: at, Values: make([]int64, NumFields)}
		p.Values[Admitted], p.Values[Inside] = admitted, inside
		return p
	}
	points := []Point{point(90, 5, 1), point(130, 8, 9), point(150, 9, 2), point(30_000, 10, 2)}
	type numbers struct{ At, Admitted, Inside int64 }
	var got []numbers
	rows := table(points, 60, 30_060, 60)
	for i, at := range rows.Times {
		got = append(got, numbers{at, int64(sum(rows.Columns[11][i : i+1])), int64(rows.Columns[1][i])})
	}
	if Columns[11].Name != "admitted" || Columns[1].Name != "inside" {
		t.Fatal("the columns have moved")
	}
	// 120: the first has nothing to compare with; 180: the peak of its minute; then the same until nobody has recorded
	// for an hour; 30,000: again nothing to compare with.
	if len(got) < 4 || !slices.Equal(got[:3], []numbers{{120, 0, 1}, {180, 4, 9}, {240, 0, 9}}) {
		t.Fatalf("rows: %v", got[:min(4, len(got))])
	}
	if n := len(got); got[n-1] != (numbers{30_060, 0, 2}) || got[n-2] != (numbers{30_000, 0, 2}) ||
		got[n-3].At != 180+Beat {
		t.Errorf("the last rows: %v", got[n-3:])
	}
}

// drawn draws successive points.
func drawn(t *rapid.T) []Point {
	n := rapid.IntRange(1, 60).Draw(t, "points")
	at := rapid.Int64Range(1, 1<<33).Draw(t, "at")
	out := make([]Point, n)
	for i := range out {
		at += rapid.Int64Range(1, 5).Draw(t, "step")
		out[i] = Point{At: at, Values: make([]int64, NumFields)}
		for range rapid.IntRange(0, 4).Draw(t, "set") {
			out[i].Values[rapid.IntRange(0, NumFields-1).Draw(t, "field")] = rapid.Int64Range(-1, 1<<40).Draw(t, "value")
		}
		for _, name := range []string{"dublin", "nairobi"} {
			v := make([]int64, NumCentreFields)
			v[rapid.IntRange(0, NumCentreFields-1).Draw(t, "of")] = rapid.Int64Range(0, 1<<40).Draw(t, "n")
			out[i].Centres = append(out[i].Centres, Centre{name, v})
		}
	}
	return out
}

func TestBlocksAreReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		points := drawn(t)
		got, err := DecodeBlock(EncodeBlock(points))
		if diff := cmp.Diff(points, got); diff != "" || err != nil {
			t.Errorf("%v\n%s", err, diff)
		}
	})
}

func TestSecondsAreReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawn(t)[0]
		want := []State{{Room: 3, Point: p, Centres: []CentreState{
			{"dublin", Report{Term: 4, Joined: 5, Admitted: 6, Entered: 7, Counts: Counts{0, 8}, Waiting: 9}}, {Name: "nairobi"},
		}}}
		at, got, err := DecodeSecond(EncodeSecond(p.At, want))
		if diff := cmp.Diff(want, got); diff != "" || err != nil || at != p.At {
			t.Errorf("%d %v\n%s", at, err, diff)
		}
	})
}

// Rows of a minute are the sums of the rows of its seconds.
func TestRowsOfAMinuteSumThoseOfItsSeconds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		points := drawn(t)
		for i := range points { // totals only grow
			for f := Joined; int(f) < NumFields && i > 0; f++ {
				points[i].Values[f] = points[i-1].Values[f] + rapid.Int64Range(0, 3).Draw(t, "growth")
			}
		}
		from, to := points[0].At/60*60+60, points[len(points)-1].At/60*60
		sums := func(step int64) float64 { return sum(table(points, from, to, step).Columns[11]) }
		if seconds, minutes := sums(1), sums(60); seconds != minutes {
			t.Errorf("%v admitted by seconds, %v by minutes", seconds, minutes)
		}
	})
}

func FuzzDecodeBlock(f *testing.F) {
	p := Point{At: 5, Values: make([]int64, NumFields), Centres: []Centre{{"dublin", make([]int64, NumCentreFields)}}}
	f.Add(EncodeBlock([]Point{p, p}))
	f.Fuzz(func(t *testing.T, data []byte) {
		points, err := DecodeBlock(data)
		if err != nil {
			return
		}
		for _, p := range points {
			if len(p.Values) != NumFields {
				t.Errorf("a point with %d values", len(p.Values))
			}
		}
	})
}

func FuzzDecodeSecond(f *testing.F) {
	f.Add(EncodeSecond(5, []State{{Room: 3, Point: Point{At: 5, Values: make([]int64, NumFields)}}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, states, err := DecodeSecond(data)
		for _, s := range states {
			if err == nil && (len(s.Point.Values) != NumFields || len(s.Centres) != len(s.Point.Centres)) {
				t.Errorf("%+v", s)
			}
		}
	})
}

// BenchmarkBlock prints the size of a block of a busy minute. Goal: 5 MB per room and day, 3,472 bytes a block.
func BenchmarkBlock(b *testing.B) {
	points := make([]Point, 60)
	for i := range points {
		points[i] = Point{
			At: int64(1000 + i), Values: make([]int64, NumFields),
			Centres: []Centre{{"dublin", make([]int64, NumCentreFields)}, {"nairobi", make([]int64, NumCentreFields)}},
		}
		for f := range points[i].Values {
			points[i].Values[f] = int64(i*f) % 37
			if i > 0 {
				points[i].Values[f] += points[i-1].Values[f]
			}
		}
		for _, c := range points[i].Centres {
			for f := range c.Values {
				c.Values[f] = int64(i*f*7) % 91
			}
		}
	}
	var data []byte
	for b.Loop() {
		data = EncodeBlock(points)
	}
	b.ReportMetric(float64(len(data)), "bytes/block")
	b.ReportMetric(float64(len(data)+110)*1440/1e6, "MB/day")
	b.ReportMetric(5, "goal-MB/day")
}

// A fleet whose log is lost counts from 0 again: the rows and their total have what happened before and since.
func TestTotalsThatBeginAnew(t *testing.T) {
	var points []Point
	at := int64(1000)
	for _, admitted := range []int64{500, 510, 523, 2, 40, 77, 5, 6} {
		p := Point{At: at, Values: make([]int64, NumFields)}
		p.Values[Admitted], p.Values[Inside], p.Values[Ended] = admitted, 9, admitted/2
		points, at = append(points, p), at+1
	}
	const want = 23 + 77 + 6
	read := table(points, 1000, at, 1)
	i := slices.IndexFunc(Columns, func(c Column) bool { return c.Name == "admitted" })
	if total, rows := read.Total[i], sum(read.Columns[i]); total != want || rows != want {
		t.Errorf("%v admitted, %v in the rows, want %d", total, rows, want)
	}
}

// A step has one point: the newest totals of it, and its highest number of people.
func TestAStepHasOnePoint(t *testing.T) {
	var points []Point
	for i, waiting := range []int64{5, 3, 2, 9, 1} {
		p := Point{At: 101 + int64(i), Values: make([]int64, NumFields)}
		p.Values[Waiting], p.Values[Joined] = waiting, int64(i+1)
		points = append(points, p)
	}
	var got [][3]int64
	for _, p := range Rollup(points, 2) {
		got = append(got, [3]int64{p.At, p.Values[Waiting], p.Values[Joined]})
	}
	if diff := cmp.Diff([][3]int64{{102, 5, 2}, {104, 9, 4}, {106, 1, 5}}, got); diff != "" {
		t.Error(diff)
	}
}
