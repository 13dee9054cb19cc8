package history

import "slices"

// CentreColumns are the numbers of a data centre: gauges as of the end of a step, and the events of the step.
var CentreColumns = []string{"waiting", "inside", "held", "idle", "arrived", "admitted"}

// Table has the numbers of a time: a row for every step, by columns.
type Table struct {
	Times   []int64
	Columns [][]float64            // one for each of Columns: not a number for unknown
	Centres map[string][][]float64 // of each data centre, one for each of CentreColumns
	Total   Row                    // the whole time as one row, nil if nothing is known
}

// Reader makes a table from points as they are read, and keeps none of them: a day of seconds has 60 MB of points. It
// has a row for every step that ends after from, up to to. The newest point up to from is the base of the first row. A
// step without a point is like the one before, with nothing new, for a [Beat]; later steps are left out, since nobody
// recorded.
type Reader struct {
	from, step int64
	at, to     int64 // the next row, and the last one
	table      Table

	joined, before Point   // the points of a step that may have more, and of the step before
	since          *Point  // before, nil for a beginning at any time
	begin          Point   // the first point of joined's step
	recent         []Point // those that the minutes of the rows to come may need

	base, last Point // the first and the newest of the whole time
	peaks      [numGauges]int64
	lost       []int64 // the totals before they began anew
}

// NewReader returns a reader of a time in Unix seconds.
func NewReader(from, to, step int64) *Reader {
	return &Reader{
		from: from, step: step, at: (from/step + 1) * step, to: to, lost: make([]int64, NumFields),
		table: Table{Times: []int64{}, Columns: make([][]float64, len(Columns)), Centres: map[string][][]float64{}},
	}
}

// Add takes points that follow those before. It keeps the last one.
func (r *Reader) Add(points []Point) {
	for _, p := range points {
		r.sum(&p)
		r.remember(p)
		first := p
		p.At = (p.At + r.step - 1) / r.step * r.step
		switch {
		case r.joined.Values == nil:
			r.begin = first
		case r.joined.At == p.At:
			p.join(&r.joined)
		default:
			r.take()
			r.begin = first
		}
		r.joined = p
	}
}

// remember keeps a point for the minutes of the rows to come.
func (r *Reader) remember(p Point) {
	if r.step > 60 {
		return
	}
	old := 0
	for old+1 < len(r.recent) && r.recent[old+1].At <= r.at-60 {
		old++
	}
	if old > 60 || old == len(r.recent)-1 { // rarely: each moves the others
		r.recent = slices.Delete(r.recent, 0, max(0, old))
	}
	r.recent = append(r.recent, p)
}

// minutes writes the numbers of the minute up to the end of the newest row.
func (r *Reader) minutes() {
	t, w, known := &r.table, window{}, false
	if r.step <= 60 {
		w, known = windowOf(r.recent, r.at)
	}
	n := len(t.Times) - 1
	for i, from := range minuteOf {
		to := &t.Columns[len(Columns)-len(minuteOf)+i][n]
		switch {
		case r.step > 60:
			*to = t.Columns[from][n] * 60 / float64(r.step)
		case known && minuteNames[i] == "admitted":
			*to = float64(w.admitted())
		case known:
			*to = Columns[from].number(w.p, w.since)
		}
	}
}

// sum takes a point into the whole time.
func (r *Reader) sum(p *Point) {
	if r.last.Values == nil || p.At <= r.from {
		r.base = *p
	}
	if p.At > r.from {
		for f := range numGauges {
			if f.peak() {
				r.peaks[f] = max(r.peaks[f], p.Values[f])
			}
		}
		if r.last.Values != nil && p.anew(&r.last) {
			for f := numGauges; f < Field(NumFields); f++ {
				r.lost[f] += r.last.Values[f]
			}
		}
	}
	r.last = *p
}

// Table returns the table of all points.
func (r *Reader) Table() *Table {
	if r.joined.Values == nil || r.to <= r.from {
		return &r.table
	}
	r.take()
	for r.at <= r.to && r.since != nil {
		r.row(r.since)
	}
	for _, lists := range r.table.Centres {
		for f := range lists {
			lists[f] = lists[f][:len(r.table.Times)]
		}
	}
	p := r.last
	p.Values = slices.Clone(p.Values)
	for f := range p.Values {
		if p.Values[f] += r.lost[f]; Field(f).peak() {
			p.Values[f] = max(p.Values[f], r.peaks[f])
		}
	}
	r.table.Total = MakeRow(&p, &r.base)
	return &r.table
}

// take makes the rows up to the point of a step.
func (r *Reader) take() {
	for r.at < r.joined.At && r.at <= r.to && r.since != nil {
		r.row(r.since)
	}
	if r.joined.At > r.to {
		return
	}
	if r.at <= r.joined.At {
		r.at = r.joined.At
		r.row(&r.joined)
	}
	r.before = r.joined
	r.since = &r.before
}

// row makes the next row, of a point that may be older: then nothing is new.
func (r *Reader) row(p *Point) {
	if r.since != nil && r.at-r.since.At >= Beat+r.step {
		if r.since = nil; p.At < r.at {
			return
		}
	}
	t, n := &r.table, len(r.table.Times)
	if n == 0 {
		rows := (r.to-r.at)/r.step + 1
		t.Times = make([]int64, 0, rows)
		for i := range t.Columns {
			t.Columns[i] = make([]float64, 0, rows)
		}
	}
	t.Times = append(t.Times, r.at)
	since := r.since
	if since == nil { // nothing is known of the time before: what is known begins with the first point
		since = &r.begin
	}
	for i := range t.Columns {
		t.Columns[i] = append(t.Columns[i], Columns[i].number(p, since))
	}
	r.minutes()
	for _, c := range p.Centres {
		lists := t.Centres[c.Name]
		if lists == nil {
			lists = make([][]float64, len(CentreColumns))
			for f := range lists {
				lists[f] = make([]float64, n+int((r.to-r.at)/r.step)+1)
			}
			t.Centres[c.Name] = lists
		}
		for f := range centreGauges {
			lists[f][n] = float64(c.Values[f])
		}
		if r.since == nil || p.At < r.at {
			continue
		}
		grown := func(f int) float64 {
			now, was := c.Values[f], r.since.centre(c.Name, f)
			if now < was {
				return float64(now) // under a new aggregator, which counts from 0
			}
			return float64(now - was)
		}
		lists[centreGauges][n] = grown(CentreJoined) + grown(CentreAdmitted) - grown(CentreEntered)
		lists[centreGauges+1][n] = grown(CentreAdmitted)
	}
	r.at += r.step
}
