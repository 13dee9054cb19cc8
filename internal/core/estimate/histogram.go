// Package estimate is the arithmetic of the waiting line: who stands where, how
// many stand in front, up to which join time people may enter, and how long
// the rest will take.
//
// Nobody keeps a list of the people who wait. What is known of them is a
// [Histogram] of join times, summed up the tree from edges to the coordinator
// and sent down again as a digest. Inside a slice of it people are taken to be
// spread evenly, so a place in the line and the horizon are both finer than
// the slices. The one knob is the number of slices that a histogram is
// compacted to: its cost on the wire against the error of a place, at most
// one slice's people.
//
// Everything here is advisory: it decides who goes first and what is shown,
// never how many may enter.
package estimate

import (
	"cmp"
	"math"
	"slices"

	"vestibule/internal/core/fleettime"
)

// Slice is a stretch of join times and the people who joined in it.
type Slice struct {
	Start fleettime.Time // first millisecond of the slice
	Width int64          // milliseconds, at least 1
	N     float64        // people; a part of a sum may be negative
}

// End returns the first millisecond after the slice.
func (s Slice) End() fleettime.Time { return s.Start + fleettime.Time(s.Width) }

// Histogram is the waiting line as slices of join time: sorted by Start and
// not overlapping; gaps are empty. The zero value is an empty line. Methods
// do not change the receiver. What they and [Sum] return may share its memory: it
// is not to be changed.
type Histogram []Slice

// Total returns how many people the histogram holds.
func (h Histogram) Total() float64 {
	sum := 0.0
	for _, s := range h {
		sum += s.N
	}
	return sum
}

// Before returns how many people joined before t, interpolated inside the
// slice that t lies in.
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

// At returns the join time in front of which n people joined: the inverse of
// Before, rounded up to the millisecond. With n at or above Total it returns
// the end of the last slice; of an empty line, or with n <= 0, the start of
// the first slice that holds anybody, or 0.
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

// Without returns the histogram without one person for each of these join times,
// which ascend; no slice falls below nobody.
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

// Head returns the first slices of h, as many as it takes to hold n people.
func (h Histogram) Head(n float64) Histogram {
	for i, s := range h {
		if n -= s.N; n <= 0 {
			return h[:i+1]
		}
	}
	return h
}

// Sum returns the histogram of everybody in hs. Slices that overlap without
// being equal are cut at each other's bounds, their people divided evenly.
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
	// Two buffers by turns: the sum so far, and what comes of adding the next.
	sum, spare, own := hs[first], Histogram(nil), false
	for _, h := range hs[first+1:] {
		if len(h) == 0 {
			continue
		}
		if spare == nil {
			spare = make(Histogram, 0, size)
		}
		next := add(spare[:0], sum, h)
		if spare = nil; own {
			spare = sum
		}
		sum, own = next, true
	}
	return sum
}

// add appends the sum of two histograms to dst, in one sweep over both.
func add(dst, a, b Histogram) Histogram {
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

// sweep is a histogram of which the beginning was taken off.
type sweep struct {
	Slice   // what is left of the first
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

// cut takes off what lies before t, which is in the first slice or its end, and
// returns it.
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

// Compact returns the histogram in at most limit slices. Neighbours are merged
// so that a slice holds no more than a fraction of the people in front of it:
// the head of the line keeps its resolution, where a place decides who is next,
// and further back a place is known within that fraction of itself. Empty
// slices vanish, negative ones weigh as much as positive ones; the total is kept.
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

// weight returns the people that the slices move in either direction.
func (h Histogram) weight() float64 {
	w := 0.0
	for _, s := range h {
		w += math.Abs(s.N)
	}
	return w
}

// merge joins neighbours up to the given fraction of what lies before them; ok
// is false where that takes more than limit slices.
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

// Clamp returns the histogram without negative slices: what they miss is
// taken from the slices after them, then from those before.
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

// Digest is a histogram prepared for many look-ups. It is immutable.
type Digest struct {
	slices Histogram
	before []float64 // before[i]: people in slices[:i]
}

// NewDigest prepares h, which the digest keeps and which must not change.
func NewDigest(h Histogram) *Digest {
	d := &Digest{slices: h, before: make([]float64, len(h)+1)}
	for i, s := range h {
		d.before[i+1] = d.before[i] + s.N
	}
	return d
}

// Total returns how many people wait. The methods of a nil Digest answer as
// those of an empty one.
func (d *Digest) Total() float64 {
	if d == nil {
		return 0
	}
	return d.before[len(d.slices)]
}

// Histogram returns the line itself; it must not be changed.
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
	i, found := slices.BinarySearchFunc(d.slices, t, func(s Slice, t fleettime.Time) int { return cmp.Compare(s.Start, t) })
	if found || i == 0 {
		return d.before[i]
	}
	s := d.slices[i-1]
	return d.before[i-1] + s.N*min(1, float64(t-s.Start)/float64(s.Width))
}

// Ahead returns how many people stand in front of somebody who joined at t: as
// [Digest.Before], but where the line holds that person too, nobody stands in front
// of themselves.
func (d *Digest) Ahead(t fleettime.Time, counted bool) float64 {
	n := d.Before(t)
	if d == nil || !counted {
		return n
	}
	i, found := slices.BinarySearchFunc(d.slices, t, func(s Slice, t fleettime.Time) int { return cmp.Compare(s.Start, t) })
	if found || i == 0 {
		return n
	}
	if s := d.slices[i-1]; t < s.End() {
		n -= min(1, s.N) * float64(t-s.Start) / float64(s.Width)
	}
	return n
}

// Open is the horizon of a room in which nobody queues: later than every join
// time.
const Open = fleettime.Time(1 << 60)
