package share

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
)

func at(clock string) fleettime.Time {
	t, err := time.Parse("2006-01-02 15:04:05", "2021-05-27 "+clock)
	if err != nil {
		panic(err)
	}
	return fleettime.TimeOf(t)
}

// minutes builds a line of one-minute buckets.
func minutes(buckets map[string]float64) estimate.Histogram {
	var h estimate.Histogram
	for start, n := range buckets {
		h = append(h, estimate.Slice{Start: at(start + ":00"), Width: 60_000, N: n})
	}
	slices.SortFunc(h, func(a, b estimate.Slice) int { return int(a.Start - b.Start) })
	return h
}

var (
	dublin  = minutes(map[string]float64{"15:55": 20, "15:56": 40})
	nairobi = minutes(map[string]float64{"15:54": 2, "15:55": 30, "15:56": 20})
)

// Numbers worked out by hand.
func TestTheNumbersOfTheDesign(t *testing.T) {
	t.Run("16:33:20, at 16:31 Nairobi 50 and Dublin 50, 1000 permits: 500 and 500", func(t *testing.T) {
		if got := Split(1000, []float64{50, 50}); !slices.Equal(got, []int{500, 500}) {
			t.Error(got)
		}
	})
	t.Run("16:34:xx, at 16:32 Nairobi 45 and Dublin 55, 1000 permits: 450 and 550", func(t *testing.T) {
		if got := Split(1000, []float64{45, 55}); !slices.Equal(got, []int{450, 550}) {
			t.Error(got)
		}
	})
	t.Run("Dublin and Nairobi merge to 15:54 2, 15:55 50, 15:56 60", func(t *testing.T) {
		want := minutes(map[string]float64{"15:54": 2, "15:55": 50, "15:56": 60})
		if got := estimate.Sum(dublin, nairobi); !slices.Equal(got, want) {
			t.Error(got)
		}
	})
	whole := estimate.Sum(dublin, nairobi)
	t.Run("201 active of 200: -1 permits, nobody eligible", func(t *testing.T) {
		if got := Eligible(200-201, whole); !slices.Equal(got, []int{0, 0, 0}) {
			t.Error(got)
		}
	})
	t.Run("148 active of 200: 52 permits, eligible 2, 50, 0", func(t *testing.T) {
		if got := Eligible(200-148, whole); !slices.Equal(got, []int{2, 50, 0}) {
			t.Error(got)
		}
		if got := Place(52, []estimate.Histogram{nairobi, dublin}, []float64{45, 55}); !slices.Equal(got, []int{32, 20}) {
			t.Errorf("placed %v: buckets that fit whole go where the people wait", got)
		}
	})
	t.Run("60 waiting, 20 eligible, shares 0.25 and 0.75: 5 and 15", func(t *testing.T) {
		lines := []estimate.Histogram{minutes(map[string]float64{"15:56": 30}), minutes(map[string]float64{"15:56": 30})}
		if got := Place(20, lines, []float64{0.25, 0.75}); !slices.Equal(got, []int{5, 15}) {
			t.Error(got)
		}
	})
	t.Run("148 active, 30 admitted per minute, end of 15:56: 60 ahead, 2 minutes", func(t *testing.T) {
		ahead := estimate.NewDigest(whole).Before(at("15:57:00")) - 52
		wait, ok := estimate.Estimate(ahead, []estimate.Pace{{Mu: 30.0 / 60}}, 0)
		if ahead != 60 || wait != 2*time.Minute || !ok {
			t.Errorf("%v ahead, %v, %v", ahead, wait, ok)
		}
	})
	t.Run("no traffic two minutes ago: equal parts", func(t *testing.T) {
		if got := Split(10, []float64{0, 0, 0}); !slices.Equal(got, []int{4, 3, 3}) {
			t.Error(got)
		}
	})
}

func TestSplitGivesEverySlotOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(-5, 100_000).Draw(t, "n")
		weights := rapid.SliceOfN(rapid.Float64Range(0, 1e6), 1, 30).Draw(t, "weights")
		parts := Split(n, weights)
		sum, total := 0, 0.0
		for i := range parts {
			sum += parts[i]
			total += weights[i]
		}
		if sum != max(n, 0) {
			t.Fatalf("parts %v sum to %d", parts, sum)
		}
		for i, p := range parts {
			exact := float64(n) / float64(len(parts))
			if total > 0 {
				exact = float64(n) * weights[i] / total
			}
			if n > 0 && math.Abs(float64(p)-exact) > 1+1e-6 {
				t.Fatalf("part %d is %d, its exact share %v", i, p, exact)
			}
		}
	})
}

// fillTwin hands out one permit at a time to the claimant with the least for its weight and demand left.
func fillTwin(n int, demand []int, weights []float64) []int {
	parts := make([]int, len(demand))
	for range n {
		best := -1
		for i := range demand {
			if parts[i] >= demand[i] {
				continue
			}
			if best < 0 || float64(parts[i])/max(weights[i], 1e-9) < float64(parts[best])/max(weights[best], 1e-9) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		parts[best]++
	}
	return parts
}

func TestFillIsFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 200).Draw(t, "n")
		k := rapid.IntRange(1, 8).Draw(t, "k")
		demand := rapid.SliceOfN(rapid.IntRange(0, 60), k, k).Draw(t, "demand")
		weights := rapid.SliceOfN(rapid.Float64Range(0.1, 10), k, k).Draw(t, "weights")
		got, want := Fill(n, demand, weights), fillTwin(n, demand, weights)
		sum, wantSum := 0, 0
		for i := range got {
			if got[i] < 0 || got[i] > demand[i] {
				t.Fatalf("part %d is %d of %d demanded", i, got[i], demand[i])
			}
			sum += got[i]
			wantSum += want[i]
			// Rounding modes differ by at most one permit per part.
			if d := got[i] - want[i]; d < -k || d > k {
				t.Fatalf("parts %v, one at a time %v", got, want)
			}
		}
		if sum != wantSum {
			t.Fatalf("parts %v sum to %d, one at a time %v", got, sum, want)
		}
	})
}

func TestPlaceGivesEverySlotOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(-2, 500).Draw(t, "n")
		k := rapid.IntRange(1, 5).Draw(t, "k")
		lines := make([]estimate.Histogram, k)
		shares := make([]float64, k)
		for d := range lines {
			shares[d] = rapid.Float64Range(0, 1).Draw(t, "share")
			start := fleettime.Time(0)
			for range rapid.IntRange(0, 6).Draw(t, "slices") {
				start += fleettime.Time(rapid.Int64Range(0, 5000).Draw(t, "gap"))
				s := estimate.Slice{
					Start: start, Width: rapid.Int64Range(1, 90_000).Draw(t, "width"),
					N: float64(rapid.IntRange(0, 80).Draw(t, "people")),
				}
				lines[d] = append(lines[d], s)
				start = s.End()
			}
		}
		sum := 0
		for _, p := range Place(n, lines, shares) {
			if p < 0 {
				t.Fatal("a negative part")
			}
			sum += p
		}
		if sum != max(n, 0) {
			t.Fatalf("parts sum to %d, want %d", sum, n)
		}
	})
}

// TestPlaceHeldPutsPermitsBeforePeopleWhoAreThere checks small cases with parts computed by hand: in each the oldest
// in the line of the second data centre may never come.
func TestPlaceHeldPutsPermitsBeforePeopleWhoAreThere(t *testing.T) {
	old := estimate.Histogram{{Start: 0, Width: 1000, N: 10}}
	young := estimate.Histogram{{Start: 5000, Width: 1000, N: 4}}
	at := func(ms ...fleettime.Time) []fleettime.Time { return ms }
	lines := []estimate.Histogram{young, old}
	for _, c := range []struct {
		name  string
		n     int
		held  [][]fleettime.Time
		heldN []uint64
		want  []int
	}{
		{"nobody is held", 4, [][]fleettime.Time{nil, nil}, []uint64{0, 0}, []int{0, 4}},
		{"who is held comes first", 3, [][]fleettime.Time{at(5100, 5200, 5300), nil}, []uint64{3, 0}, []int{3, 0}},
		{"the oldest of the held", 2, [][]fleettime.Time{at(5100, 5200), at(100)}, []uint64{2, 1}, []int{1, 1}},
		{"the rest goes by the line", 6, [][]fleettime.Time{at(5100, 5200), nil}, []uint64{2, 0}, []int{2, 4}},
		{"nobody is counted twice", 14, [][]fleettime.Time{at(5100, 5200), nil}, []uint64{2, 0}, []int{4, 10}},
		{"more are held than are named", 5, [][]fleettime.Time{at(5100), nil}, []uint64{4, 0}, []int{4, 1}},
		{"nothing to divide", 0, [][]fleettime.Time{at(5100), nil}, []uint64{1, 0}, []int{0, 0}},
	} {
		if got := PlaceHeld(c.n, c.held, c.heldN, lines, []float64{1, 1}); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestPlaceHeldGivesEveryPermitOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(-2, 300).Draw(t, "n")
		k := rapid.IntRange(1, 4).Draw(t, "k")
		lines, shares := make([]estimate.Histogram, k), make([]float64, k)
		held, heldN := make([][]fleettime.Time, k), make([]uint64, k)
		for d := range lines {
			shares[d] = rapid.Float64Range(0, 1).Draw(t, "share")
			lines[d] = estimate.Histogram{{Start: 0, Width: 60_000, N: float64(rapid.IntRange(-3, 80).Draw(t, "people"))}}
			for _, at := range rapid.SliceOfN(rapid.Int64Range(0, 70_000), 0, 30).Draw(t, "held") {
				held[d] = append(held[d], fleettime.Time(at))
			}
			slices.Sort(held[d])
			heldN[d] = uint64(rapid.IntRange(0, 60).Draw(t, "heldN"))
		}
		sum := 0
		for _, p := range PlaceHeld(n, held, heldN, lines, shares) {
			if p < 0 {
				t.Fatal("a negative part")
			}
			sum += p
		}
		if sum != max(n, 0) {
			t.Fatalf("parts sum to %d, want %d", sum, n)
		}
	})
}
