// Package estimate is the arithmetic of the queue: the position of a visitor, the admission cutoff, and the
// forecast of the wait with its range.
//
// No component stores a list of waiting visitors. Edges count them in a [Histogram] of join times, which is summed
// up the tree to the coordinator and sent down again as a digest. Visitors are assumed to be spread evenly inside a
// slice, so positions and the cutoff are finer than the slices. The one knob is the number of slices that a
// histogram is compacted to: bytes on the wire against the error of a position, at most the visitors of one slice.
//
// Everything here is advisory. It decides the order of admission and the numbers shown, never how many visitors may
// enter.
package estimate

import (
	"cmp"
	"math"
	"slices"

	"vestibule/internal/core/fleettime"
)

// Slice is an interval of join times and the number of visitors that joined in it.
type Slice struct {
	Start fleettime.Time // first millisecond of the slice
	Width int64          // milliseconds, at least 1
	N     float64        // visitors; may be negative in a partial sum
}

// End returns the first millisecond after the slice.
func (s Slice) End() fleettime.Time { return s.Start + fleettime.Time(s.Width) }

// Histogram is the queue as slices of join time, sorted by Start and not overlapping; gaps are empty. The zero
// value is an empty queue. Methods do not change the receiver. Their results, and that of [Sum], may share its
// memory and must not be changed.
type Histogram []Slice

// Total returns how many visitors the histogram holds.
func (h Histogram) Total() float64 {
	sum := 0.0
	for _, s := range h {
		sum += s.N
	}
	return sum
}

// Before returns how many visitors joined before t, interpolated inside the slice of t.
func (h Histogram) Before(t fleettime.Time) float64 {
	sum := 0.0
	for _, s := range h {
		if s.End() <= t {
			sum += s.N
			continue
		}
		if s.Start < t {
			sum += s.N * float64(t-s.Start) / float64(s.Width)
		}
		break
	}
	return sum
}

// At returns the join time with n visitors in front: the inverse of Before, rounded up to the millisecond. With n
// at or above Total it returns the end of the last slice. For an empty queue, or n <= 0, it returns the start of
// the first non-empty slice, or 0.
func (h Histogram) At(n float64) fleettime.Time {
	sum := 0.0
	last := fleettime.Time(0)
	for _, s := range h {
		if s.N <= 0 {
			continue
		}
		if sum+s.N > n {
			part := math.Ceil(max(n-sum, 0) / s.N * float64(s.Width))
			return s.Start + fleettime.Time(part)
		}
		sum += s.N
		last = s.End()
	}
	return last
}

// SliceOf returns the slice that contains t, or the next one; an empty slice at t if there is none.
func (h Histogram) SliceOf(t fleettime.Time) Slice {
	for _, s := range h {
		if t < s.End() {
			return s
		}
	}
	return Slice{Start: t}
}

// Without returns the histogram with one visitor removed per join time. The times ascend. No slice drops below
// zero.
func (h Histogram) Without(joined []fleettime.Time) Histogram {
	if len(joined) == 0 {
		return h
	}
	out := slices.Clone(h)
	for i := range out {
		for len(joined) > 0 && joined[0] < out[i].End() {
			if joined[0] >= out[i].Start {
				out[i].N = max(min(out[i].N, 0), out[i].N-1)
			}
			joined = joined[1:]
		}
	}
	return out
}

// Head returns the shortest prefix of h that holds n visitors.
func (h Histogram) Head(n float64) Histogram {
	for i, s := range h {
		if n -= s.N; n <= 0 {
			return h[:i+1]
		}
	}
	return h
}

// Sum returns the sum of histograms. Slices that overlap without being equal are split at each other's bounds,
// their visitors divided evenly.
func Sum(hs ...Histogram) Histogram {
	size, first := 0, -1
	for i, h := range hs {
		if size += len(h); len(h) > 0 && first < 0 {
			first = i
		}
	}
	if first < 0 {
		return nil
	}
	// Two buffers alternate: the sum so far and the next sum.
	sum, spare, own := hs[first], Histogram(nil), false
	for _, h := range hs[first+1:] {
		if len(h) == 0 {
			continue
		}
		if spare == nil {
			spare = make(Histogram, 0, size)
		}
		next := appendSum(spare[:0], sum, h)
		if spare = nil; own {
			spare = sum
		}
		sum, own = next, true
	}
	return sum
}

// appendSum appends the sum of two histograms to dst, in one sweep over both.
func appendSum(dst, a, b Histogram) Histogram {
	x, y := sweep{rest: a}, sweep{rest: b}
	x.next()
	y.next()
	for x.more && y.more {
		switch {
		case x.End() <= y.Start:
			dst = append(dst, x.Slice)
			x.next()
		case y.End() <= x.Start:
			dst = append(dst, y.Slice)
			y.next()
		case x.Start == y.Start && x.Width == y.Width:
			dst = append(dst, Slice{Start: x.Start, Width: x.Width, N: (x.density + y.density) * float64(x.Width)})
			x.next()
			y.next()
		case x.Start < y.Start:
			dst = append(dst, x.cut(y.Start))
		case y.Start < x.Start:
			dst = append(dst, y.cut(x.Start))
		default:
			end := min(x.End(), y.End())
			w := int64(end - x.Start)
			dst = append(dst, Slice{Start: x.Start, Width: w, N: (x.density + y.density) * float64(w)})
			x.cut(end)
			y.cut(end)
		}
	}
	for _, w := range []*sweep{&x, &y} {
		if w.more {
			dst = append(append(dst, w.Slice), w.rest...)
		}
	}
	return dst
}

// sweep is a histogram whose beginning was consumed.
type sweep struct {
	Slice   // the rest of the first slice
	more    bool
	density float64
	rest    Histogram
}

func (w *sweep) next() {
	if w.more = len(w.rest) > 0; w.more {
		w.Slice, w.rest = w.rest[0], w.rest[1:]
		w.density = w.N / float64(w.Width)
	}
}

// cut removes the part before t, which lies in the first slice or at its end, and returns it.
func (w *sweep) cut(t fleettime.Time) Slice {
	head := w.Slice
	if t == w.End() {
		w.next()
		return head
	}
	head.Width = int64(t - w.Start)
	head.N = w.density * float64(head.Width)
	w.Start, w.Width = t, w.Width-head.Width
	w.N = w.density * float64(w.Width)
	return head
}

// Compact returns the histogram in at most limit slices. It merges neighbours so that a slice holds at most a
// fraction of the visitors in front of it. The head of the queue keeps its resolution, since a position there
// decides the next admission; further back the relative error is bounded by that fraction. Empty slices are
// dropped, negative slices count by their absolute value, and the total is preserved.
func (h Histogram) Compact(limit int) Histogram {
	if limit <= 0 || h.weight() == 0 {
		return nil
	}
	if len(h) <= limit && !slices.ContainsFunc(h, func(s Slice) bool { return s.N == 0 }) {
		return h
	}
	for fraction := 0.0; ; fraction = max(2*fraction, 1.0/256) {
		if out, ok := h.merge(fraction, limit); ok {
			return out
		}
	}
}

// weight returns the sum of the absolute values of the slices.
func (h Histogram) weight() float64 {
	w := 0.0
	for _, s := range h {
		w += math.Abs(s.N)
	}
	return w
}

// merge joins neighbours up to the given fraction of the visitors before them. ok is false if more than limit
// slices remain.
func (h Histogram) merge(fraction float64, limit int) (out Histogram, ok bool) {
	out = make(Histogram, 0, min(limit, len(h)))
	before, weight := 0.0, 0.0
	for _, s := range h {
		if s.N == 0 {
			continue
		}
		w := math.Abs(s.N)
		if n := len(out); n > 0 && (weight+w <= fraction*before || (limit == n && fraction > 1)) {
			last := &out[n-1]
			last.Width = int64(s.End() - last.Start)
			last.N += s.N
			weight += w
			continue
		}
		if len(out) == limit {
			return nil, false
		}
		before += weight
		weight = w
		out = append(out, s)
	}
	return out, true
}

// Clamp returns the histogram without negative slices. The deficit is taken from later slices, then from earlier
// ones.
func (h Histogram) Clamp() Histogram {
	if !slices.ContainsFunc(h, func(s Slice) bool { return s.N <= 0 }) {
		return h
	}
	out := make(Histogram, 0, len(h))
	debt := 0.0
	for _, s := range h {
		s.N += debt
		debt = 0
		if s.N < 0 {
			debt = s.N
			continue
		}
		if s.N > 0 {
			out = append(out, s)
		}
	}
	for i := len(out) - 1; i >= 0 && debt < 0; i-- {
		out[i].N += debt
		debt = min(out[i].N, 0)
		out[i].N = max(out[i].N, 0)
	}
	return slices.DeleteFunc(out, func(s Slice) bool { return s.N <= 0 })
}

// Digest is an immutable histogram with prefix sums for fast look-ups.
type Digest struct {
	slices Histogram
	before []float64 // before[i]: visitors in slices[:i]
}

// NewDigest returns a digest of h. It keeps h, which must not change afterwards.
func NewDigest(h Histogram) *Digest {
	d := &Digest{slices: h, before: make([]float64, len(h)+1)}
	for i, s := range h {
		d.before[i+1] = d.before[i] + s.N
	}
	return d
}

// Total returns how many visitors wait. The methods of a nil Digest answer like those of an empty one.
func (d *Digest) Total() float64 {
	if d == nil {
		return 0
	}
	return d.before[len(d.slices)]
}

// Histogram returns the underlying histogram. It must not be changed.
func (d *Digest) Histogram() Histogram {
	if d == nil {
		return nil
	}
	return d.slices
}

// Before is [Histogram.Before] in logarithmic time.
func (d *Digest) Before(t fleettime.Time) float64 {
	if d == nil {
		return 0
	}
	i, found := slices.BinarySearchFunc(d.slices, t,
		func(s Slice, t fleettime.Time) int { return cmp.Compare(s.Start, t) })
	if found || i == 0 {
		return d.before[i]
	}
	s := d.slices[i-1]
	return d.before[i-1] + s.N*min(1, float64(t-s.Start)/float64(s.Width))
}

// Ahead returns how many visitors are in front of a visitor that joined at t. With counted set the digest includes
// that visitor, which is not in front of itself.
func (d *Digest) Ahead(t fleettime.Time, counted bool) float64 {
	n := d.Before(t)
	if d == nil || !counted {
		return n
	}
	i, found := slices.BinarySearchFunc(d.slices, t,
		func(s Slice, t fleettime.Time) int { return cmp.Compare(s.Start, t) })
	if found || i == 0 {
		return n
	}
	if s := d.slices[i-1]; t < s.End() {
		n -= min(1, s.N) * float64(t-s.Start) / float64(s.Width)
	}
	return n
}

// Open is the admission cutoff of a room without a queue: later than every join time.
const Open = fleettime.Time(1 << 60)
