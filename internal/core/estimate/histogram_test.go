package estimate

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"vestibule/internal/core/fleettime"
)

// lines draws histograms of whole visitors within a few hundred milliseconds, so that a twin can store each
// millisecond.
func lines(least, most int) *rapid.Generator[Histogram] {
	return rapid.Custom(func(t *rapid.T) Histogram {
		at := fleettime.Time(rapid.Int64Range(-50, 50).Draw(t, "start"))
		var h Histogram
		for range rapid.IntRange(0, 12).Draw(t, "slices") {
			at += fleettime.Time(rapid.Int64Range(0, 5).Draw(t, "gap"))
			s := Slice{
				Start: at, Width: rapid.Int64Range(1, 20).Draw(t, "width"),
				N: float64(rapid.IntRange(least, most).Draw(t, "people")),
			}
			h = append(h, s)
			at = s.End()
		}
		return h
	})
}

// spread is the naive twin of a histogram: visitors per millisecond.
type spread map[fleettime.Time]float64

func (p spread) add(h Histogram) {
	for _, s := range h {
		for ms := s.Start; ms < s.End(); ms++ {
			p[ms] += s.N / float64(s.Width)
		}
	}
}

func (p spread) before(t fleettime.Time) float64 {
	sum := 0.0
	for ms, n := range p {
		if ms < t {
			sum += n
		}
	}
	return sum
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*(1+math.Abs(a)+math.Abs(b)) }

// sound fails the test if h violates the invariants of its type.
func sound(t *rapid.T, h Histogram) {
	for i, s := range h {
		if s.Width < 1 || (i > 0 && s.Start < h[i-1].End()) {
			t.Fatalf("slice %d of %v is empty, out of order or overlaps", i, h)
		}
	}
}

func TestBeforeCountsWhoJoinedEarlierAndSpreadsASliceEvenly(t *testing.T) {
	h := Histogram{{Start: 1000, Width: 60_000, N: 60}, {Start: 100_000, Width: 1000, N: 5}}
	for _, c := range []struct {
		t    fleettime.Time
		want float64
	}{
		{-5, 0},
		{1000, 0},
		{2000, 1},
		{31_000, 30},
		{61_000, 60},
		{90_000, 60}, // a gap is empty
		{100_500, 62.5},
		{101_000, 65},
		{1 << 50, 65},
	} {
		if got := h.Before(c.t); got != c.want {
			t.Errorf("%v people before %d ms, want %v", got, int64(c.t), c.want)
		}
	}
}

func TestBeforeEqualsCountingMilliseconds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := lines(-5, 50).Draw(t, "line")
		twin := spread{}
		twin.add(h)
		at := fleettime.Time(rapid.Int64Range(-60, 400).Draw(t, "t"))
		if got, want := h.Before(at), twin.before(at); !near(got, want) {
			t.Fatalf("%v before %d, want %v", got, int64(at), want)
		}
		if !near(h.Total(), twin.before(1<<40)) {
			t.Fatalf("%v in total, want %v", h.Total(), twin.before(1<<40))
		}
	})
}

func TestAtIsTheInverseOfBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := lines(0, 50).Draw(t, "line")
		total := h.Total()
		n := rapid.Float64Range(0, 1.2).Draw(t, "part of the line") * total
		at := h.At(n)
		if total == 0 {
			if at != 0 {
				t.Fatalf("an empty line ends at %d", int64(at))
			}
			return
		}
		// The first millisecond with n visitors in front.
		const eps = 1e-6
		if got := h.Before(at); got < min(n, total)-eps {
			t.Fatalf("%v people joined before %d, want at least %v", got, int64(at), n)
		}
		if got := h.Before(at - 1); got > n+eps {
			t.Fatalf("%v people joined before %d already, want at most %v", got, int64(at-1), n)
		}
	})
}

func TestAtTheEndsOfALine(t *testing.T) {
	h := Histogram{
		{Start: 0, Width: 10},
		{Start: 100, Width: 10, N: 5},
		{Start: 200, Width: 10, N: 5},
		{Start: 300, Width: 10},
	}
	for _, c := range []struct {
		why  string
		h    Histogram
		n    float64
		want fleettime.Time
	}{
		{"an empty line", nil, 5, 0},
		{"a line of empty slices", h[:1], 0, 0},
		{"nobody in front: the first slice that holds anybody", h, 0, 100},
		{"less than nobody", h, -7, 100},
		{"half a slice", h, 2.5, 105},
		{"rounded up to the millisecond", h, 2.6, 106},
		{"a whole slice: who comes next joined after the gap", h, 5, 200},
		{"everybody: the end of the last who waits", h, 10, 210},
		{"more than everybody", h, 1e9, 210},
	} {
		if got := c.h.At(c.n); got != c.want {
			t.Errorf("%s: %d, want %d", c.why, int64(got), int64(c.want))
		}
	}
}

func TestSumEqualsAddingUpEachMillisecond(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hs := rapid.SliceOfN(lines(-5, 50), 0, 5).Draw(t, "lines")
		twin := spread{}
		before := make([]Histogram, len(hs))
		for i, h := range hs {
			twin.add(h)
			before[i] = append(Histogram(nil), h...)
		}
		sum := Sum(hs...)
		sound(t, sum)
		got := spread{}
		got.add(sum)
		for ms := fleettime.Time(-60); ms < 400; ms++ {
			if !near(got[ms], twin[ms]) {
				t.Fatalf("%v people in millisecond %d, want %v; sum %v", got[ms], int64(ms), twin[ms], sum)
			}
		}
		for i, h := range hs {
			for j := range h {
				if h[j] != before[i][j] {
					t.Fatalf("line %d was changed by summing", i)
				}
			}
		}
	})
}

// fraction returns the smallest of Compact's fractions for which h fits.
func fraction(h Histogram, limit int) float64 {
	for f := 0.0; ; f = max(2*f, 1.0/256) {
		if _, ok := h.merge(f, limit); ok {
			return f
		}
	}
}

func TestCompactKeepsTotalAndOrderAndKnowsAPlaceWithinAFractionOfItself(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := lines(0, 50).Draw(t, "line")
		limit := rapid.IntRange(1, 14).Draw(t, "limit")
		c := h.Compact(limit)
		sound(t, c)
		if len(c) > limit {
			t.Fatalf("%d slices, want at most %d", len(c), limit)
		}
		if !near(c.Total(), h.Total()) {
			t.Fatalf("%v people, want %v", c.Total(), h.Total())
		}
		if h.Total() == 0 {
			if c != nil {
				t.Fatalf("an empty line became %v", c)
			}
			return
		}
		f := fraction(h, limit)
		at := fleettime.Time(rapid.Int64Range(-60, 400).Draw(t, "t"))
		got, want := c.Before(at), h.Before(at)
		if off := math.Abs(got - want); f <= 1 && off > f*want+1e-6 {
			t.Fatalf("a place moved by %v from %v, more than %v of it", off, want, f)
		}
		// No slice contains visitors that joined outside it.
		if len(c) > 0 && (h.Before(c[0].Start) != 0 || !near(h.Before(c[len(c)-1].End()), h.Total())) {
			t.Fatalf("people of %v lie outside %v", h, c)
		}
	})
}

func TestCompactKeepsTheTotalOfALineWithNegativeSlices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := lines(-20, 20).Draw(t, "line")
		limit := rapid.IntRange(1, 14).Draw(t, "limit")
		c := h.Compact(limit)
		sound(t, c)
		if len(c) > limit || !near(c.Total(), h.Total()) {
			t.Fatalf("%d slices of %v people, want at most %d of %v", len(c), c.Total(), limit, h.Total())
		}
	})
}

// TestAMillionPeopleFitAReport is the case for which the number of slices was chosen: one visitor joins every 3.6
// ms for an hour, in slices of a second.
func TestAMillionPeopleFitAReport(t *testing.T) {
	var h Histogram
	for second := range 3600 {
		h = append(h, Slice{Start: fleettime.Time(second * 1000), Width: 1000, N: 1e6 / 3600})
	}
	c := h.Compact(256)
	if len(c) > 256 {
		t.Fatalf("%d slices", len(c))
	}
	for _, place := range []float64{1, 100, 1000, 10_000, 100_000, 999_999} {
		if got := c.Before(h.At(place)); math.Abs(got-place) > 1+place/32 {
			t.Errorf("place %v became %v", place, got)
		}
	}
	if c = h.Compact(0); c != nil {
		t.Errorf("no slices at all became %v", c)
	}
}

func TestClampTakesWhatIsMissingFromWhoStandsNext(t *testing.T) {
	for _, c := range []struct {
		why     string
		h, want []float64
	}{
		{"nothing is missing", []float64{1, 0, 2}, []float64{1, 0, 2}},
		{"from the slice after", []float64{1, -2, 3}, []float64{1, 0, 1}},
		{"from several after", []float64{1, -4, 3, 2}, []float64{1, 0, 0, 1}},
		{"from those before, if nobody stands after", []float64{1, 3, -2}, []float64{1, 1, 0}},
		{"from after first, then from before", []float64{5, -4, 3}, []float64{4, 0, 0}},
		{"from all", []float64{2, -9, 3}, []float64{0, 0, 0}},
	} {
		var h Histogram
		for i, n := range c.h {
			h = append(h, Slice{Start: fleettime.Time(i * 10), Width: 10, N: n})
		}
		got := make([]float64, len(c.h))
		for _, s := range h.Clamp() {
			got[s.Start/10] = s.N
			if s.N <= 0 {
				t.Errorf("%s: a slice of %v is left", c.why, s.N)
			}
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%s: %v, want %v", c.why, got, c.want)
				break
			}
		}
		if h[1].N != c.h[1] {
			t.Errorf("%s: the line itself was changed", c.why)
		}
	}
}

func TestClampKeepsTheTotalUnlessItIsNegative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := lines(-20, 30).Draw(t, "line")
		c := h.Clamp()
		sound(t, c)
		if !near(c.Total(), max(0, h.Total())) {
			t.Fatalf("%v people, want %v", c.Total(), h.Total())
		}
		for _, s := range c {
			if s.N <= 0 {
				t.Fatalf("a slice of %v is left", s.N)
			}
		}
	})
}

func TestADigestAnswersAsItsHistogram(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := lines(0, 50).Draw(t, "line")
		d := NewDigest(h)
		at := fleettime.Time(rapid.Int64Range(-60, 400).Draw(t, "t"))
		if got, want := d.Before(at), h.Before(at); !near(got, want) {
			t.Fatalf("%v before %d, want %v", got, int64(at), want)
		}
		if !near(d.Total(), h.Total()) || len(d.Histogram()) != len(h) {
			t.Fatalf("%v in %d slices, want %v in %d", d.Total(), len(d.Histogram()), h.Total(), len(h))
		}
	})
}

func TestADigestThatWasNeverSentIsAnEmptyLine(t *testing.T) {
	for _, d := range []*Digest{nil, NewDigest(nil)} {
		if d.Total() != 0 || d.Before(Open) != 0 || len(d.Histogram()) != 0 {
			t.Errorf("%v people, %v of them before the end of time", d.Total(), d.Before(Open))
		}
	}
}

func TestWithoutTakesEachPersonOnce(t *testing.T) {
	h := Histogram{{Start: 0, Width: 1000, N: 2}, {Start: 2000, Width: 1000, N: 1}, {Start: 3000, Width: 1000, N: -1}}
	got := h.Without([]fleettime.Time{-5, 10, 20, 30, 1500, 2000, 3999, 9000})
	want := Histogram{{Start: 0, Width: 1000, N: 0}, {Start: 2000, Width: 1000, N: 0}, {Start: 3000, Width: 1000, N: -1}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if h[0].N != 2 {
		t.Error("the line itself changed")
	}
}
