package share

import (
	"cmp"
	"slices"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
)

// PlaceHeld divides n permits among data centres: first to those with held visitors, which use a permit immediately,
// in the order in which they joined, then as [Place] does by their other waiting visitors. held[i] are the join times
// of the oldest held visitors in data centre i, ascending, and heldN[i] is their total number. The parts sum to
// max(n, 0).
//
// A line has visitors that may never return: they abandoned, or poll another data centre now, and are detected only
// after a while. Permits that are placed for them are idle until then.
func PlaceHeld(n int, held [][]fleettime.Time, heldN []uint64, lines []estimate.Histogram, shares []float64) []int {
	parts := make([]int, len(lines))
	for n > 0 {
		first := -1
		for d := range held {
			if k := parts[d]; k < len(held[d]) && (first < 0 || held[d][k] < held[first][parts[first]]) {
				first = d
			}
		}
		if first < 0 {
			break
		}
		parts[first]++
		n--
	}
	if n <= 0 {
		return parts
	}
	more := make([]int, len(lines)) // held visitors without a join time
	weights := make([]float64, len(lines))
	absent := make([]estimate.Histogram, len(lines))
	for d := range lines {
		more[d] = max(0, int(heldN[d])-len(held[d]))
		weights[d] = float64(more[d])
		absent[d] = lines[d].Without(held[d])
	}
	for d, part := range Fill(n, more, weights) {
		parts[d] += part
		n -= part
	}
	for d, part := range Place(n, absent, shares) {
		parts[d] += part
	}
	return parts
}

// Place divides n permits among data centres by their lines. Slices of the line that fit whole give each data centre
// as many permits as visitors wait there. The first slice that does not fit is divided by share, and so is the
// remainder after the end of the line. lines[i] is the line in data centre i, shares[i] its share of traffic two
// minutes ago. The parts sum to max(n, 0).
func Place(n int, lines []estimate.Histogram, shares []float64) []int {
	parts := make([]int, len(lines))
	if n <= 0 {
		return parts
	}
	// The first n stand in the heads of the lines.
	heads := make([]estimate.Histogram, len(lines))
	for d := range lines {
		heads[d] = lines[d].Head(float64(n) + 1)
	}
	lines = heads
	whole := estimate.Sum(lines...)
	fits := 0 // visitors in slices that fit whole
	for i, e := range Eligible(n, whole) {
		s := whole[i]
		if e == int(s.N+0.5) {
			fits += e
			continue
		}
		// All slices before this one fit. This one is divided by share, but no data centre gets more permits
		// than visitors wait there.
		before, inside := make([]int, len(lines)), make([]int, len(lines))
		for d := range lines {
			b := lines[d].Before(s.Start)
			before[d] = int(b + 0.5)
			inside[d] = int(lines[d].Before(s.End()) - b + 0.5)
		}
		for d, part := range Fill(fits, before, nil) {
			parts[d] += part
			n -= part
		}
		for d, part := range Fill(n, inside, shares) {
			parts[d] += part
			n -= part
		}
		fits = 0
		break
	}
	if fits > 0 {
		all := make([]int, len(lines))
		for d := range lines {
			all[d] = int(lines[d].Total() + 0.5)
		}
		for d, part := range Fill(fits, all, nil) {
			parts[d] += part
			n -= part
		}
	}
	for d, part := range Split(n, shares) {
		parts[d] += part
	}
	return parts
}

// Eligible returns the number of visitors of each slice of the line that may enter with n slots: the oldest slices
// whole, and the rest of n for the first one that does not fit. No visitor is eligible if n <= 0.
func Eligible(n int, waiting estimate.Histogram) []int {
	out := make([]int, len(waiting))
	for i, s := range waiting {
		if n <= 0 {
			break
		}
		out[i] = min(n, int(s.N+0.5))
		n -= out[i]
	}
	return out
}

// Fill divides at most n permits among demands, in proportion to the weights (nil for equal ones), and never gives
// more than the demand (weighted max-min fairness). The rest is not divided.
func Fill(n int, demand []int, weights []float64) []int {
	parts := make([]int, len(demand))
	if n <= 0 {
		return parts
	}
	// The smallest demands by weight are satisfied first. From the first one that is not, all others get a
	// proportional part.
	var few [8]int
	order := few[:0]
	for i, d := range demand {
		if d > 0 {
			order = append(order, i)
		}
	}
	weight := func(i int) float64 {
		if weights == nil {
			return 1
		}
		return max(weights[i], 1e-9)
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(float64(demand[a])/weight(a), float64(demand[b])/weight(b))
	})
	for k, i := range order {
		if n == 0 {
			return parts
		}
		sum := 0.0
		for _, j := range order[k:] {
			sum += weight(j)
		}
		if float64(demand[i]) <= float64(n)*weight(i)/sum {
			parts[i] = demand[i]
			n -= demand[i]
			continue
		}
		open := slices.Clone(order[k:])
		slices.Sort(open) // ties by name, not by demand
		ws := make([]float64, len(open))
		for x, j := range open {
			ws[x] = weight(j)
		}
		for x, part := range Split(n, ws) {
			parts[open[x]] = min(part, demand[open[x]])
			n -= parts[open[x]]
		}
		for _, j := range open { // a rounded-up part may exceed its demand by one
			if n > 0 && parts[j] < demand[j] {
				parts[j]++
				n--
			}
		}
		return parts
	}
	return parts
}

// Split divides n slots in proportion to the weights by largest remainder. Equal remainders go to the first, so
// callers sort by name. If all weights are zero (no traffic two minutes ago), the parts are equal. The parts always
// sum to max(n, 0). Weights must not be negative.
func Split(n int, weights []float64) []int {
	parts := make([]int, len(weights))
	if n <= 0 || len(weights) == 0 {
		return parts
	}
	sum := 0.0
	for _, w := range weights {
		sum += w
	}
	rest := make([]float64, len(weights))
	left := n
	for i, w := range weights {
		share := 1 / float64(len(weights))
		if sum > 0 {
			share = w / sum
		}
		exact := float64(n) * share
		parts[i] = int(exact)
		rest[i] = exact - float64(parts[i])
		left -= parts[i]
	}
	for ; left > 0; left-- { // at most one round: fewer slots are left than there are parts
		best := 0
		for i := range rest {
			if rest[i] > rest[best]+1e-9 {
				best = i
			}
		}
		parts[best]++
		rest[best] = -1
	}
	return parts
}
