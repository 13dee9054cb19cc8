package history

import (
	"math"
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
var Columns = append([]Column{
	{Name: "waiting", Help: "visitors that wait; the highest of the step", of: gauge(Waiting)},
	{Name: "inside", Help: "sessions; the highest of the step", of: gauge(Inside)},
	{Name: "limit", Help: "total_active_users", of: gauge(Limit)},
	{Name: "rate", Help: "new_users_per_minute", of: gauge(Rate)},
	{Name: "wait", Help: "seconds that a visitor who joins now would wait", of: gauge(Wait)},
	{Name: "free", Help: "session permits that no data centre holds", of: gauge(Free)},
	{Name: "overcommit", Help: "sessions that may be valid and are not counted", of: gauge(Overcommit)},
	{Name: "beyond", Help: "sessions above the limit", of: gauge(Beyond)},
	{Name: "paused", Help: "1 while nobody enters by an operator's word", of: gauge(Paused)},

	{Name: "arrived", Help: "visitors that joined the queue or entered at once", of: func(p, since *Point) (float64, bool) {
		return float64(grown(p, since, Joined) + grown(p, since, Admitted) - grown(p, since, Entered)), true
	}},
	{Name: "returning", Help: "of them, visitors whose earlier session or place had ended", of: total(counts + Returning)},
	{Name: "admitted", Help: "visitors admitted", of: total(Admitted)},
	{Name: "gave_up", Help: "visitors that left the queue without a session", of: total(GaveUp)},
	{Name: "ended", Help: "sessions that ended", of: total(Ended)},
	{Name: "bypassed", Help: "requests that a rule let past the room", of: total(counts + Bypassed)},
	{Name: "origin_requests", Help: "requests to the site", of: total(counts + OriginRequests)},
	{Name: "origin_errors", Help: "of them, without an answer or answered with 5xx", of: total(counts + OriginErrors)},

	{Name: "waited_p50", Help: "wait of admitted visitors in seconds, median", of: spread(Waited, waitBounds[:], 0.5)},
	{Name: "waited_p90", Help: "90 percent waited at most so long", of: spread(Waited, waitBounds[:], 0.9)},
	{Name: "told_p50", Help: "forecast wait of the same visitors at joining, median", of: spread(Forecast, waitBounds[:], 0.5)},
	{Name: "told_p90", Help: "90th percentile of the forecast wait at joining", of: spread(Forecast, waitBounds[:], 0.9)},
	{Name: "stay_p50", Help: "time on the site in seconds, median", of: stay(0.5)},
	{Name: "stay_p95", Help: "95 percent stayed at most so long", of: stay(0.95)},
	{Name: "origin_p50", Help: "seconds until the site answered, median", of: spread(Latency, latencyBounds[:], 0.5)},
	{Name: "origin_p95", Help: "95 percent of answers took at most so long", of: spread(Latency, latencyBounds[:], 0.95)},
}, minuteColumns...)

// minuteColumns are the numbers of the minute up to the end of a step. Of longer steps they are means.
var minuteColumns = func() (out []Column) {
	for _, name := range minuteNames {
		out = append(out, Column{
			Name: name + "_minute", Help: name + " in the minute up to the end of the step; of a longer step, per minute",
			of: func(*Point, *Point) (float64, bool) { return 0, false },
		})
	}
	return out
}()

// minuteNames are the columns whose numbers of a minute are columns too, and minuteOf their indices.
var (
	minuteNames = [...]string{"arrived", "returning", "admitted", "gave_up", "origin_errors"}
	minuteOf    = func() (out [len(minuteNames)]int) {
		for i, name := range minuteNames {
			out[i] = slices.IndexFunc(Columns, func(c Column) bool { return c.Name == name })
		}
		return out
	}()
)

// Row has the numbers of a time, one for each of Columns: not a number for unknown.
type Row []float64

// MakeRow returns the row of the time between two points; since is nil if there was none before.
func MakeRow(p, since *Point) Row {
	r := make(Row, len(Columns))
	for i := range Columns {
		r[i] = Columns[i].number(p, since)
	}
	return r
}

func (c *Column) number(p, since *Point) float64 {
	if n, ok := c.of(p, since); ok {
		return n
	}
	return math.NaN()
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

// Origin returns the site's work between two points: requests, those that failed, and how long 95 percent of its
// answers took at most.
func Origin(p, since *Point) (requests, failed int64, p95 time.Duration) {
	n := make([]int64, latencyBins)
	for i := range n {
		n[i] = grown(p, since, counts+Field(Latency+i))
	}
	p95, _ = quantile(latencyBounds[:], n, 0.95)
	return grown(p, since, counts+OriginRequests), grown(p, since, counts+OriginErrors), p95
}
