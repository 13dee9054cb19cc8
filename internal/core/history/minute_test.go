package history

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// shopPoint is a point of a room with R 60, an inside and a total of admissions.
func shopPoint(at, admitted int64) Point {
	p := Point{At: at, Values: make([]int64, NumFields)}
	p.Values[Rate], p.Values[Joined], p.Values[Entered] = 60, admitted, admitted
	p.Values[Admitted] = admitted
	return p
}

func TestTheMinuteUpToASecond(t *testing.T) {
	for name, c := range map[string]struct {
		points []Point
		at     int64
		want   int64 // -1 for unknown
	}{
		"nothing known":             {nil, 100, -1},
		"nothing known by then":     {[]Point{shopPoint(101, 1)}, 100, -1},
		"one visitor of a new room": {[]Point{shopPoint(100, 0), shopPoint(101, 1)}, 103, 1},
		"and 35 seconds later":      {[]Point{shopPoint(100, 0), shopPoint(101, 1)}, 136, 1},
		"and a minute later":        {[]Point{shopPoint(100, 0), shopPoint(101, 1)}, 161, 0},
		"long at rest before":       {[]Point{shopPoint(100, 7), shopPoint(900, 9)}, 905, 2},
		"long at rest":              {[]Point{shopPoint(100, 7), shopPoint(900, 9)}, 1900, 0},
		"a burst of 20":             {[]Point{shopPoint(100, 0), shopPoint(105, 20)}, 110, 20},
		"61 seconds in a minute":    {[]Point{shopPoint(100, 0), shopPoint(101, 1), shopPoint(102, 31), shopPoint(160, 61), shopPoint(161, 62)}, 161, 60},
		"more than R":               {[]Point{shopPoint(100, 0), shopPoint(130, 90)}, 140, 90},
		"nobody recorded":           {[]Point{shopPoint(100, 0), shopPoint(9000, 800)}, 9001, 0},
	} {
		m, ok := MinuteOf(c.points, c.at)
		if got := m.Admitted; ok != (c.want >= 0) || ok && got != c.want {
			t.Errorf("%s: %d, %v, want %d", name, got, ok, c.want)
		}
	}
}

// However the reports of a data centre fall into the seconds, a room that keeps R is never shown above it: not in the
// minute, and not in a chart of any step. A chart has what MinuteOf says at the end of each row.
func TestAMinuteIsNotAboveTheLimitThatHeld(t *testing.T) {
	const rate, seconds = 60, 130
	rapid.Check(t, func(t *rapid.T) {
		var admitted [seconds + 1]int64 // up to the end of each second, by the clock
		for s := 1; s <= seconds; s++ {
			before := int64(0)
			if s > 60 {
				before = admitted[s-60]
			}
			n := rapid.Int64Range(0, rate).Draw(t, "n")
			admitted[s] = min(admitted[s-1]+n, before+rate)
		}
		points := []Point{shopPoint(1000, 0)}
		for s := 1; s <= seconds; s++ { // a report is up to a second late
			n := admitted[s-1] + rapid.Int64Range(0, admitted[s]-admitted[s-1]).Draw(t, "reported")
			if n = max(n, points[len(points)-1].Values[Admitted]); rapid.Bool().Draw(t, "recorded") {
				n = admitted[s]
			}
			points = append(points, shopPoint(1000+int64(s), n))
		}
		step := rapid.SampledFrom([]int64{1, 10, 30, 60}).Draw(t, "step")
		got := table(points, 1000, 1000+seconds, step)
		column := slices.IndexFunc(Columns, func(c Column) bool { return c.Name == "admitted_minute" })
		for i, at := range got.Times {
			m, _ := MinuteOf(points, at)
			if n := got.Columns[column][i]; n > rate || n != float64(m.Admitted) {
				t.Fatalf("step %d, at %d: %v are drawn, %d in the minute", step, at-1000, n, m.Admitted)
			}
		}
	})
}

// A longer step has the mean per minute, and the first step of a room is drawn.
func TestMinutesOfLongSteps(t *testing.T) {
	got := table([]Point{shopPoint(100, 0), shopPoint(130, 10), shopPoint(600, 30)}, 0, 600, 300)
	i := slices.IndexFunc(Columns, func(c Column) bool { return c.Name == "admitted_minute" })
	if want := []float64{2, 4}; !slices.Equal(got.Columns[i], want) || math.IsNaN(got.Columns[i][0]) {
		t.Errorf("%v, want %v", got.Columns[i], want)
	}
}
