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

// Visit is a request of a visitor to the site. It was decided between Sent and At, when it arrived.
type Visit struct {
	Sent, At time.Duration
	Visitor  string
}

// Sessions returns what visits in order of their arrival prove. A session ends with its length after the decision on its
// last visit. Each interval of lasted was part of a session, whenever its visits were decided; each of entered, in the
// order of arrival, is the way of a visit that cannot have belonged to a session of before: longest is for how long such
// a one lasts at most after its last visit was decided.
func Sessions(visits []Visit, length, longest time.Duration) (lasted, entered []Span) {
	type session struct {
		i    int           // of lasted
		over time.Duration // from then on it has certainly ended
	}
	newest := map[string]session{}
	for _, v := range visits {
		s, ok := newest[v.Visitor]
		if !ok || v.Sent >= s.over {
			entered = append(entered, Span{From: v.Sent, To: v.At})
		}
		until := max(v.Sent+length, v.At)
		if !ok || lasted[s.i].To <= v.At {
			s.i = len(lasted)
			lasted = append(lasted, Span{From: v.At, To: until})
		}
		lasted[s.i].To = max(lasted[s.i].To, until)
		newest[v.Visitor] = session{s.i, v.At + longest}
	}
	return lasted, entered
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
