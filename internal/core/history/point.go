package history

import "slices"

// Field is the index of a number of a point.
type Field int

// The gauges of a point, as of its second.
const (
	Waiting    Field = iota // visitors
	Inside                  // sessions
	Limit                   // of sessions
	Rate                    // limit of admissions per minute
	Wait                    // of a visitor that joins now, in seconds; -1 for unknown
	Free                    // permits of T that no data centre holds
	Overcommit              // sessions that may be valid and are not counted
	Beyond                  // sessions above the limit
	Paused                  // 1 if nobody enters by an operator's word
	numGauges
)

// The totals of a point, which are followed by its Counts.
const (
	Joined   = numGauges + iota // visitors that began to wait
	Admitted                    // visitors, waited or not
	Entered                     // admitted visitors that had waited
	GaveUp                      // visitors that left the queue without a session
	Ended                       // sessions
	counts                      // the first of Counts
)

// NumFields is the number of values of a point.
const NumFields = int(counts) + NumCounts

// peak reports whether the point of a minute has the highest gauge of its seconds, and not the last.
func (f Field) peak() bool { return f == Waiting || f == Inside || f == Overcommit || f == Beyond }

// Point is the state of a room at the end of a second.
type Point struct {
	At      int64 // Unix second
	Values  []int64
	Centres []Centre // by name
}

// The numbers of a data centre in a point: gauges, then totals since its aggregator's term began.
const (
	CentreWaiting = iota
	CentreInside
	CentreHeld // permits of T
	CentreIdle // permits that no session uses
	centreGauges
)

// The totals of a data centre, which follow.
const (
	CentreJoined = centreGauges + iota
	CentreAdmitted
	CentreEntered
	NumCentreFields
)

// Centre has the numbers of one data centre.
type Centre struct {
	Name   string
	Values []int64
}

// same reports whether nothing but time differs.
func (p *Point) same(q *Point) bool {
	return slices.Equal(p.Values, q.Values) && slices.EqualFunc(p.Centres, q.Centres, func(a, b Centre) bool {
		return a.Name == b.Name && slices.Equal(a.Values, b.Values)
	})
}

// Rollup returns the points at the ends of steps: the last totals of each step, and the highest of the gauges that
// peak. Steps without a point are left out. points are in the order of time. The result may share their memory.
func Rollup(points []Point, step int64) []Point {
	if step == 1 {
		return points
	}
	out := make([]Point, 0, len(points))
	for _, p := range points {
		p.At = (p.At + step - 1) / step * step
		n := len(out) - 1
		if n < 0 || out[n].At != p.At {
			out = append(out, p)
			continue
		}
		p.join(&out[n])
		out[n] = p
	}
	return out
}

// join takes the point before of the same step.
func (p *Point) join(before *Point) {
	own := false // p has numbers of its own
	for f, n := range before.Values[:numGauges] {
		if !Field(f).peak() || n <= p.Values[f] {
			continue
		}
		if !own {
			p.Values, own = slices.Clone(p.Values), true
		}
		p.Values[f] = n
	}
}
