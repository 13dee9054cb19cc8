package history

import (
	"cmp"
	"slices"
)

// window is the minute up to a second. Its points belong to the history and must not be modified.
type window struct {
	p      *Point // the newest of the minute
	since  *Point // the newest before it, or the first that is known
	almost *Point // the newest up to a second after since
	rate   int64  // highest limit of admissions in force
}

// windowOf returns the minute up to at of points in the order of time; false if none is known by then.
func windowOf(points []Point, at int64) (w window, ok bool) {
	newest := func(to int64) int { // -1 for none up to that second
		i, _ := slices.BinarySearchFunc(points, to+1, func(p Point, at int64) int { return cmp.Compare(p.At, at) })
		return i - 1
	}
	n := newest(at)
	if n < 0 {
		return w, false
	}
	first := max(0, newest(at-60))
	if first < n && points[first+1].At-points[first].At > Beat { // nobody recorded
		first++
	}
	w = window{p: &points[n], since: &points[first], almost: &points[max(first, newest(at-59))]}
	for _, p := range points[first : n+1] {
		w.rate = max(w.rate, p.Values[Rate])
	}
	return w, true
}

// admitted returns the admissions of the minute. A data centre reports about once a second, so the points of a minute
// may have the admissions of 61 seconds: if those of 59 are within the limit, at most the limit is counted.
func (w *window) admitted() int64 {
	n := grown(w.p, w.since, Admitted)
	if n > w.rate && grown(w.p, w.almost, Admitted) <= w.rate {
		return w.rate
	}
	return n
}

// Minute is the minute of a room up to a second.
type Minute struct {
	Point, Since Point // the newest point of it, and the one before it
	Admitted     int64 // visitors
}

// MinuteOf returns the minute up to at of points in the order of time; false if none is known by then.
func MinuteOf(points []Point, at int64) (m Minute, ok bool) {
	w, ok := windowOf(points, at)
	if !ok {
		return m, false
	}
	return Minute{*w.p, *w.since, w.admitted()}, true
}

// Row returns the numbers of the minute.
func (m *Minute) Row() Row {
	r := MakeRow(&m.Point, &m.Since)
	for i, c := range Columns {
		if c.Name == "admitted" {
			r[i] = float64(m.Admitted)
		}
	}
	return r
}
