package share

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
)

// TestMergedTimesAreTheFirstOfAll checks against sorting everything.
func TestMergedTimesAreTheFirstOfAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lists := rapid.SliceOfN(rapid.SliceOfN(rapid.Int64Range(0, 20), 0, 6), 0, 6).Draw(t, "lists")
		most := rapid.IntRange(0, 40).Draw(t, "most")
		var in [][]fleettime.Time
		var want []fleettime.Time
		for _, l := range lists {
			slices.Sort(l)
			var times []fleettime.Time
			for _, x := range l {
				times = append(times, fleettime.Time(x))
			}
			in = append(in, times)
			want = append(want, times...)
		}
		slices.Sort(want)
		if got := MergeTimes(in, most); !slices.Equal(got, want[:min(most, len(want))]) {
			t.Errorf("%v, want the first %d of %v", got, most, want)
		}
	})
}

// TestTheCutoffFollowsTheLine: visitors are called up to the rank that the free permits reach. Nobody further back is
// called because it is held; overdue visitors are skipped; and of a slice whose places are
// unknown those that are held are called.
func TestTheCutoffFollowsTheLine(t *testing.T) {
	const second = fleettime.Time(1000)
	line := func(n ...float64) (h estimate.Histogram) { // visitors of each second
		for i, n := range n {
			if n != 0 {
				h = append(h, estimate.Slice{Start: fleettime.Time(i) * second, Width: 1000, N: n})
			}
		}
		return h
	}
	ones := make([]float64, 200)
	for i := range ones {
		ones[i] = 1
	}
	at := func(seconds ...float64) (out []fleettime.Time) {
		for _, s := range seconds {
			out = append(out, fleettime.Time(s*1000))
		}
		return out
	}
	for _, tc := range []struct {
		name    string
		line    estimate.Histogram
		moved   estimate.Histogram // in another data centre: visitors counted in line that have entered there
		free    int64
		overdue float64
		held    []fleettime.Time
		want    int // visitors called, the first of the line
	}{
		{name: "as many as permits", line: line(ones...), free: 40, want: 40},
		{name: "one far back is held", line: line(ones...), free: 40, held: at(165.5), want: 40},
		{name: "many behind are held", line: line(ones...), free: 40, held: at(41.5, 42.5, 43.5, 44.5, 45.5), want: 40},
		{name: "overdue ones are skipped", line: line(ones...), free: 40, overdue: 7, held: at(100.5), want: 47},
		{name: "more are overdue elsewhere than here", line: line(ones...), free: 40, overdue: -7, want: 40},
		{name: "all are overdue", line: line(ones...), free: 40, overdue: 1e9, want: 200},
		{name: "no permit is free: the first is ready", line: line(ones...), free: 0, want: 1},
		{
			name: "the first polled elsewhere, and entered there", line: line(ones...), moved: line(-1, -1, -1, -1, -1, 0, 1, 1),
			free: 40, want: 43,
		},
		{
			name: "many joined in one instant, some are held", line: line(0, 500), free: 3, held: at(1.9, 1.9, 1.9, 1.9),
			want: 450,
		},
		{name: "the last permit of many is for one of two in a slice", line: line(append(ones[:39:39], 2, 1)...), free: 40, want: 39},
		{name: "more permits are for a slice", line: line(append(ones[:20:20], 40)...), free: 40, want: 40},
		{name: "those before a slice are overdue", line: line(append(ones[:39:39], 2)...), free: 1, overdue: 39, want: 40},
	} {
		x := Prospect{
			Flow: &Flow{}, Rounds: &Rounds{}, Lines: []estimate.Histogram{tc.line, tc.moved}, Supply: tc.free, Rate: 1000,
			Total: 1000, Limit: 1000, HeldJoined: tc.held, Overdue: tc.overdue,
		}
		v := x.View(0, 1000*second)
		if got := int(tc.line.Before(v.Cutoff) + 0.5); got != tc.want {
			t.Errorf("%s: the first %d are called, want %d", tc.name, got, tc.want)
		}
		if next := tc.line.At(float64(tc.want)); v.Cutoff >= next && v.Cutoff < tc.line[len(tc.line)-1].End()-1 && tc.line.SliceOf(next).Start == next {
			t.Errorf("%s: the cutoff is %d, the place of the next visitor", tc.name, v.Cutoff)
		}
		if tc.want < 100 && len(tc.held) > 0 && v.Cutoff >= tc.held[0] {
			t.Errorf("%s: a held visitor behind is called", tc.name)
		}
	}
}

// TestHeldVisitorsOfASliceAreCalledByPlace: as many as there are permits for the slice, wherever in it they stand.
func TestHeldVisitorsOfASliceAreCalledByPlace(t *testing.T) {
	for _, tc := range []struct {
		free int64
		held []fleettime.Time
		want fleettime.Time
	}{
		{free: 1, held: []fleettime.Time{1100, 1200, 1300, 1900}, want: 1100},
		{free: 2, held: []fleettime.Time{1100, 1200, 1300, 1900}, want: 1200},
		{free: 3, held: []fleettime.Time{1800, 1900}, want: 1900},
		{free: 3, held: []fleettime.Time{1100, 1200}, want: 1749},
		{free: 2, want: 1499},
		{free: 4, held: []fleettime.Time{1100, 1200, 1300, 1900}, want: 1999},
	} {
		x := Prospect{
			Flow: &Flow{}, Rounds: &Rounds{}, Lines: []estimate.Histogram{{{Start: 1000, Width: 1000, N: 4}}},
			Supply: tc.free, Rate: 1000, Total: 1000, Limit: 1000, HeldJoined: tc.held, Wanted: 1,
		}
		if v := x.View(0, 10_000); v.Cutoff != tc.want {
			t.Errorf("%d permits, %v held: the cutoff is %d, want %d", tc.free, tc.held, v.Cutoff, tc.want)
		}
	}
}
