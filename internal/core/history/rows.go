package history

import (
	"slices"
	"time"
)

// Column is a number of a row. ok of its function is false if the number is unknown. since is the point before the
// step, nil for none.
type Column struct {
	Name string
	Help string
	of   func(p, since *Point) (n float64, ok bool)
}

// Columns are the numbers of a row, in their order.
var Columns = []Column{
	{"waiting", "visitors that wait; the highest of the step", gauge(Waiting)},
	{"inside", "sessions; the highest of the step", gauge(Inside)},
	{"limit", "total_active_users", gauge(Limit)},
	{"rate", "new_users_per_minute", gauge(Rate)},
	{"wait", "seconds that a visitor who joins now would wait", gauge(Wait)},
	{"free", "session permits that no data centre holds", gauge(Free)},
	{"overcommit", "sessions that may be valid and are not counted", gauge(Overcommit)},
	{"beyond", "sessions above the limit", gauge(Beyond)},
	{"paused", "1 while nobody enters by an operator's word", gauge(Paused)},

	{"arrived", "visitors that joined the queue or entered at once", func(p, since *Point) (float64, bool) {
		return float64(grown(p, since, Joined) + grown(p, since, Admitted) - grown(p, since, Entered)), true
	}},
	{"returning", "of them, visitors whose earlier session or place had ended", total(counts + Returning)},
	{"admitted", "visitors admitted", total(Admitted)},
	{"gave_up", "visitors that left the queue without a session", total(GaveUp)},
	{"ended", "sessions that ended", total(Ended)},
	{"bypassed", "requests that a rule let past the room", total(counts + Bypassed)},
	{"origin_requests", "requests to the site", total(counts + OriginRequests)},
	{"origin_errors", "of them, without an answer or answered with 5xx", total(counts + OriginErrors)},

	{"waited_p50", "wait of admitted visitors in seconds, median", spread(Waited, waitBounds[:], 0.5)},
	{"waited_p90", "90 percent waited at most so long", spread(Waited, waitBounds[:], 0.9)},
	{"told_p50", "wait told to the same visitors at joining, median", spread(Told, waitBounds[:], 0.5)},
	{"told_p90", "90 percent were told at most so long", spread(Told, waitBounds[:], 0.9)},
	{"stay_p50", "time on the site in seconds, median", stay(0.5)},
	{"stay_p95", "95 percent stayed at most so long", stay(0.95)},
	{"origin_p50", "seconds until the site answered, median", spread(Latency, latencyBounds[:], 0.5)},
	{"origin_p95", "95 percent of answers took at most so long", spread(Latency, latencyBounds[:], 0.95)},
}

// Row has the numbers of a step that ends at At, one for each of Columns: nil for unknown.
type Row struct {
	At      int64
	Numbers []*float64
}

// MakeRow returns the row of the time between two points; since is nil if there was none before.
func MakeRow(p, since *Point) Row { return makeRow(p.At, p, since, &slab{}, 1) }

// makeRow returns the row that ends at a second, with numbers from a slab that has place for n rows when it is new.
func makeRow(at int64, p, since *Point, s *slab, n int) Row {
	width := len(Columns)
	if len(s.pointers) == 0 {
		s.numbers, s.pointers = make([]float64, n*width), make([]*float64, n*width)
	}
	r, numbers := Row{at, part(s.pointers, 0, width)}, part(s.numbers, 0, width)
	s.numbers, s.pointers = s.numbers[width:], s.pointers[width:]
	for i := range Columns {
		if x, ok := Columns[i].of(p, since); ok {
			numbers[i], r.Numbers[i] = x, &numbers[i]
		}
	}
	return r
}

// slab has the numbers of rows to come.
type slab struct {
	numbers  []float64
	pointers []*float64
}

// Rows returns a row for every step that ends after from, up to to. points are in the order of time, and the newest up
// to from is the base of the first row. A step without a point is like the one before, with nothing new, for a [Beat];
// later steps are left out, since nobody recorded.
func Rows(points []Point, from, to, step int64) []Row {
	const together = 256 // rows of a slab
	if len(points) == 0 || to <= from {
		return nil
	}
	out := make([]Row, 0, to/step-from/step)
	var since *Point
	var numbers slab
	points = Rollup(points, step)
	for at := (from/step + 1) * step; at <= to; at += step {
		for len(points) > 0 && points[0].At < at {
			since, points = &points[0], points[1:]
		}
		if since != nil && at-since.At >= Beat+step {
			since = nil // what happened since then happened at any time
		}
		switch {
		case len(points) > 0 && points[0].At == at:
			out = append(out, makeRow(at, &points[0], since, &numbers, together))
		case since != nil:
			out = append(out, makeRow(at, since, since, &numbers, together))
		}
	}
	return out
}

// Whole returns the time after from as one row: what happened in all of it, with the highest of the gauges that peak.
// points must not be empty; the newest up to from is the base.
func Whole(points []Point, from int64) Row {
	since, p := &points[0], points[len(points)-1]
	p.Values = slices.Clone(p.Values)
	for i := range points {
		if points[i].At <= from {
			since = &points[i]
			continue
		}
		for f := range numGauges {
			if f.peak() {
				p.Values[f] = max(p.Values[f], points[i].Values[f])
			}
		}
		if i > 0 && points[i].anew(&points[i-1]) {
			for f := numGauges; f < Field(NumFields); f++ {
				p.Values[f] += points[i-1].Values[f]
			}
		}
	}
	return MakeRow(&p, since)
}

// anew reports whether the totals began at 0 since the point before: the fleet lost its history.
func (p *Point) anew(before *Point) bool {
	return p.Values[Joined] < before.Values[Joined] || p.Values[Admitted] < before.Values[Admitted]
}

func gauge(f Field) func(p, since *Point) (float64, bool) {
	return func(p, _ *Point) (float64, bool) { return float64(p.Values[f]), p.Values[f] >= 0 }
}

func total(f Field) func(p, since *Point) (float64, bool) {
	return func(p, since *Point) (float64, bool) { return float64(grown(p, since, f)), since != nil }
}

// grown returns by how much a total grew.
func grown(p, since *Point, f Field) int64 {
	switch {
	case since == nil:
		return 0
	case p.Values[f] < since.Values[f] && p.anew(since):
		return max(0, p.Values[f])
	}
	return max(0, p.Values[f]-since.Values[f])
}

// still reports whether the n counts from first on did not grow.
func still(p, since *Point, first, n int) bool {
	from := int(counts) + first
	return since == nil || slices.Equal(p.Values[from:from+n], since.Values[from:from+n])
}

func spread(first int, bounds []time.Duration, q float64) func(p, since *Point) (float64, bool) {
	return func(p, since *Point) (float64, bool) {
		var bins [waitBins]int64
		n := bins[:len(bounds)+1]
		if still(p, since, first, len(n)) {
			return 0, false
		}
		for i := range n {
			n[i] = grown(p, since, counts+Field(first+i))
		}
		d, ok := quantile(bounds, n, q)
		return d.Seconds(), ok
	}
}

// stay returns a quantile of the time on site. The sessions that reached a bin and not the next one ended there.
func stay(q float64) func(p, since *Point) (float64, bool) {
	return func(p, since *Point) (float64, bool) {
		var n [waitBins]int64
		if still(p, since, Stayed, waitBins) {
			return 0, false
		}
		for i := range n {
			n[i] = grown(p, since, counts+Field(Stayed+i))
		}
		for i := range n[:waitBins-1] {
			n[i] = max(0, n[i]-n[i+1])
		}
		d, ok := quantile(waitBounds[:], n[:], q)
		return d.Seconds(), ok
	}
}

// Origin returns what the site did between two points: requests, those that failed, and how long 95 percent of its
// answers took at most.
func Origin(p, since *Point) (requests, failed int64, p95 time.Duration) {
	n := make([]int64, latencyBins)
	for i := range n {
		n[i] = grown(p, since, counts+Field(Latency+i))
	}
	p95, _ = quantile(latencyBounds[:], n, 0.95)
	return grown(p, since, counts+OriginRequests), grown(p, since, counts+OriginErrors), p95
}
