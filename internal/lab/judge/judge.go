// Package judge has the arithmetic of the judges of both limits: sessions as intervals, how many of them overlap, and
// how many begin within a window. It is pure.
package judge

import (
	"cmp"
	"slices"
	"time"
)

// Span is an interval; To is 0 while it lasts.
type Span struct{ From, To time.Duration }

// Touches reports whether the span shares a moment with an interval.
func (s Span) Touches(from, to time.Duration) bool {
	return s.From <= to && (s.To == 0 || s.To >= from)
}

// TouchesAny reports whether any of the spans shares a moment with an interval.
func TouchesAny(spans []Span, from, to time.Duration) bool {
	return slices.ContainsFunc(spans, func(s Span) bool { return s.Touches(from, to) })
}

// Union returns disjoint spans that cover the same time.
func Union(spans []Span) []Span {
	slices.SortFunc(spans, func(a, b Span) int { return cmp.Compare(a.From, b.From) })
	var out []Span
	for _, s := range spans {
		if last := len(out) - 1; last >= 0 && s.From <= out[last].To {
			out[last].To = max(out[last].To, s.To)
			continue
		}
		out = append(out, s)
	}
	return out
}

// Most returns the maximum number of overlapping spans, and its first time.
func Most(spans []Span) (n int, at time.Duration) {
	type change struct {
		at    time.Duration
		delta int
	}
	var changes []change
	for _, s := range spans {
		changes = append(changes, change{s.From, 1}, change{s.To, -1})
	}
	slices.SortFunc(changes, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.delta, b.delta))
	})
	now := 0
	for _, c := range changes {
		if now += c.delta; now > n {
			n, at = now, c.at
		}
	}
	return n, at
}

// MostWithin returns the maximum number of spans within one window, and the start of that window.
func MostWithin(spans []Span, window time.Duration) (n int, at time.Duration) {
	spans = slices.Clone(spans)
	slices.SortFunc(spans, func(a, b Span) int { return cmp.Compare(a.From, b.From) })
	for i, first := range spans {
		in := 0
		for _, s := range spans[i:] {
			if s.From-first.From >= window {
				break
			}
			if s.To-first.From < window {
				in++
			}
		}
		if in > n {
			n, at = in, first.From
		}
	}
	return n, at
}

// Visit is a request of a visitor to the site.
type Visit struct {
	At      time.Duration
	Visitor string
}

// Sessions returns the sessions of visits in order of their times, in the order of their starts. A session ends with its
// length after its last visit.
func Sessions(visits []Visit, length time.Duration) []Span {
	var out []Span
	last := map[string]int{} // newest session of each visitor
	for _, v := range visits {
		i, ok := last[v.Visitor]
		if !ok || out[i].To <= v.At {
			i = len(out)
			out = append(out, Span{From: v.At})
			last[v.Visitor] = i
		}
		out[i].To = v.At + length
	}
	return out
}

// Use returns the mean number of spans during an interval.
func Use(spans []Span, from, to time.Duration) float64 {
	if to <= from {
		return 0
	}
	sum := time.Duration(0)
	for _, s := range spans {
		sum += max(0, min(s.To, to)-max(s.From, from))
	}
	return float64(sum) / float64(to-from)
}
