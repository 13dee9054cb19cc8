package share

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

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
