package history

import (
	"slices"
	"time"
)

// Counts are cumulative counts of a room at an edge or a data centre, by the indexes below. Zeros at the end may be
// missing.
type Counts []uint64

// The indexes of Counts. Those of a histogram are followed by its other bins.
const (
	Returning      = iota // visitors that came back after their session or place had ended
	Bypassed              // requests that a rule let past the room
	OriginRequests        // requests that the origin answered or failed to answer
	OriginErrors          // those without an answer, or with a status of 500 or above
	Waited                // waits of admitted visitors
	Forecast       = Waited + waitBins
	Stayed         = Forecast + waitBins // sessions by the age that they reached: one session counts in every bin up to it
	Latency        = Stayed + waitBins   // answers of the origin
	NumCounts      = Latency + latencyBins
)

const (
	waitBins    = 16
	latencyBins = 12
)

// waitBounds are the upper bounds of the bins of Waited, Forecast and Stayed; the last bin has none.
var waitBounds = [waitBins - 1]time.Duration{
	5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 3 * time.Minute,
	5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour,
	8 * time.Hour,
}

// latencyBounds are the upper bounds of the bins of Latency; the last bin has none.
var latencyBounds = [latencyBins - 1]time.Duration{
	5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
	250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second,
	10 * time.Second,
}

func bin(bounds []time.Duration, d time.Duration) int {
	n, _ := slices.BinarySearch(bounds, d)
	return n
}

// LatencyBin returns the index of Counts for an answer of the origin after d.
func LatencyBin(d time.Duration) int { return Latency + bin(latencyBounds[:], d) }

// AddWait counts the wait of an admitted visitor, and its forecast at joining, 0 for none.
func (c Counts) AddWait(actual, forecast time.Duration) {
	c[Waited+bin(waitBounds[:], actual)]++
	if forecast > 0 {
		c[Forecast+bin(waitBounds[:], forecast)]++
	}
}

// AddStay counts that a session grew from age from to age to. from is negative for a new session.
func (c Counts) AddStay(from, to time.Duration) {
	first := 0
	if from >= 0 {
		first = bin(waitBounds[:], from) + 1
	}
	for i := first; i <= bin(waitBounds[:], to); i++ {
		c[Stayed+i]++
	}
}

// Grow returns c with the growth of a child's counts from have to now. Others may hold c.
func (c Counts) Grow(have, now Counts) Counts {
	grown := false
	for i, n := range now {
		was := uint64(0)
		if i < len(have) {
			was = have[i]
		}
		if n <= was {
			continue
		}
		if !grown {
			all := make(Counts, max(len(c), len(now)))
			copy(all, c)
			c, grown = all, true
		}
		c[i] += n - was
	}
	return c
}

// Trim returns c without zeros at the end.
func (c Counts) Trim() Counts {
	for len(c) > 0 && c[len(c)-1] == 0 {
		c = c[:len(c)-1]
	}
	return c
}

// quantile returns an upper estimate of the quantile q of a histogram, in its bounds' unit: linear within a bin. ok is
// false for an empty one.
func quantile(bounds []time.Duration, n []int64, q float64) (d time.Duration, ok bool) {
	var all int64
	for _, x := range n {
		all += x
	}
	if all == 0 {
		return 0, false
	}
	rest := q * float64(all)
	for i, x := range n {
		if rest > float64(x) && i < len(n)-1 {
			rest -= float64(x)
			continue
		}
		low, high := time.Duration(0), bounds[len(bounds)-1]*2
		if i > 0 {
			low = bounds[i-1]
		}
		if i < len(bounds) {
			high = bounds[i]
		}
		if x == 0 {
			return low, true
		}
		return low + time.Duration(float64(high-low)*min(1, rest/float64(x))), true
	}
	return 0, false
}
