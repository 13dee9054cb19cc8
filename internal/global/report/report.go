// Package report tells how a room did in a time: as text, as a page to print, and as a table of numbers. It reads the
// history in the form of the API, so the console and the command line tell the same.
package report

import (
	_ "embed"
	"encoding/csv"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"vestibule/internal/global/control/api"
)

// Unknown stands for a number that nobody recorded.
const Unknown = "–"

// Count formats a number with separators: 12,400.
func Count(n int) string {
	if n < 0 {
		return "−" + Count(-n)
	}
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Value formats a number with at most one decimal; not a number is unknown.
func Value(n float64) string {
	switch {
	case math.IsNaN(n):
		return Unknown
	case n == math.Trunc(n) || n >= 100:
		return Count(int(math.Round(n)))
	default:
		return strconv.FormatFloat(n, 'f', 1, 64)
	}
}

// Total is a line of the summary.
type Total struct{ Label, Value, Help string }

// Totals returns the summary of a time.
func Totals(s *api.Stats) []Total {
	people := func(column string) string { return Value(whole(s, column)) }
	minutes := func(column string) string {
		n := whole(s, column)
		if math.IsNaN(n) {
			return Unknown
		}
		return Value(math.Round(n/60*100)/100) + " min"
	}
	share := func(part, all string) string {
		p, a := whole(s, part), whole(s, all)
		if math.IsNaN(p) || !(a > 0) {
			return ""
		}
		return fmt.Sprintf(" (%.1f %%)", 100*p/a)
	}
	return []Total{
		{"Arrived", people("arrived"), "visitors that joined the queue or entered at once"},
		{"Came back", people("returning") + share("returning", "arrived"), "of them, an earlier session or place had ended"},
		{"Let in", people("admitted"), ""},
		{"Gave up", people("gave_up") + share("gave_up", "arrived"), "left the queue without a session"},
		{"Highest queue", people("waiting"), "visitors that waited at the same time"},
		{"Most inside", people("inside"), "sessions at the same time"},
		{"Waited, half of those let in", minutes("waited_p50"), "at most"},
		{"Waited, 90 % of those let in", minutes("waited_p90"), "at most"},
		{"Forecast at joining, half of them", minutes("told_p50"), "at most"},
		{"Forecast at joining, 90 % of them", minutes("told_p90"), "at most"},
		{"Time on the site, half of the sessions", minutes("stay_p50"), "at most"},
		{"Time on the site, 95 % of the sessions", minutes("stay_p95"), "at most"},
		{"Passed by a rule", people("bypassed"), "requests"},
		{
			"Failed requests to the site", people("origin_errors") + share("origin_errors", "origin_requests"),
			"no answer, or 5xx",
		},
	}
}

// whole returns a number of the whole time; not a number for an unknown one.
func whole(s *api.Stats, column string) float64 {
	if i := index(s, column); i >= 0 && i < len(s.Total) && s.Total[i] != nil {
		return *s.Total[i]
	}
	return math.NaN()
}

func index(s *api.Stats, column string) int {
	return slices.IndexFunc(s.Columns, func(c api.StatsColumn) bool { return c.Name == column })
}

// CSV writes a line of all numbers for each step, with an empty field for an unknown number. Times are in UTC.
func CSV(w io.Writer, s *api.Stats) error {
	head := []string{"time"}
	for _, c := range s.Columns {
		head = append(head, c.Name)
	}
	lines := [][]string{head}
	for i, at := range s.Times {
		line := []string{time.Unix(at, 0).UTC().Format(time.RFC3339)}
		for _, column := range s.Rows {
			text := ""
			if n := column[i]; !math.IsNaN(n) {
				text = strconv.FormatFloat(n, 'f', -1, 64)
			}
			line = append(line, text)
		}
		lines = append(lines, line)
	}
	return csv.NewWriter(w).WriteAll(lines)
}

// shownColumns are the columns of the table for people.
var shownColumns = []struct{ column, label string }{
	{"waiting", "waiting"},
	{"inside", "inside"},
	{"limit", "limit"},
	{"arrived", "arrived"},
	{"admitted", "let in"},
	{"gave_up", "gave up"},
}

const clock = "2006-01-02 15:04:05"

// Document is a report for people.
type Document struct {
	Room     string
	From, To string // UTC
	Totals   []Total
	Head     []string
	Rows     [][]string // the time first
	Charts   []picture
	Marks    []line
}

// line is an action or a phase of an event.
type line struct{ At, Text string }

// picture is a chart, drawn as a polyline.
type picture struct{ Title, Highest, Points string }

// NewDocument returns the report of a time.
func NewDocument(s *api.Stats) *Document {
	d := &Document{Room: s.Room, From: s.From.UTC().Format(clock), To: s.To.UTC().Format(clock), Totals: Totals(s)}
	for _, c := range shownColumns {
		d.Head = append(d.Head, c.label)
	}
	for i, at := range s.Times {
		cells := []string{time.Unix(at, 0).UTC().Format(clock)}
		for _, c := range shownColumns {
			text := Unknown
			if j := index(s, c.column); j >= 0 {
				text = Value(s.Rows[j][i])
			}
			cells = append(cells, text)
		}
		d.Rows = append(d.Rows, cells)
	}
	for _, c := range shownColumns[:2] {
		if p := draw(s, c.column, c.label); p != nil {
			d.Charts = append(d.Charts, *p)
		}
	}
	for _, m := range s.Marks {
		text := m.Text
		if m.Reason != nil && *m.Reason != "" {
			text += ": " + *m.Reason
		}
		d.Marks = append(d.Marks, line{time.Unix(m.Time, 0).UTC().Format(clock), text})
	}
	return d
}

// draw returns the chart of a column in a box of 600 by 120; nil for fewer than two known numbers.
func draw(s *api.Stats, column, label string) *picture {
	const width, height = 600., 120.
	i := index(s, column)
	if i < 0 || len(s.Times) == 0 {
		return nil
	}
	highest, known := 0., 0
	for _, n := range s.Rows[i] {
		if !math.IsNaN(n) {
			highest = max(highest, n)
			known++
		}
	}
	if known < 2 {
		return nil
	}
	var points strings.Builder
	from, span := float64(s.Times[0]), float64(s.Times[len(s.Times)-1]-s.Times[0])
	for j, n := range s.Rows[i] {
		if !math.IsNaN(n) {
			fmt.Fprintf(&points, "%.1f,%.1f ", (float64(s.Times[j])-from)/span*width, height-n/max(highest, 1)*height)
		}
	}
	return &picture{label, Value(highest), points.String()}
}

// Text writes a report as text.
func Text(w io.Writer, s *api.Stats) error {
	d := NewDocument(s)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%s, %s to %s UTC\n\n", d.Room, d.From, d.To)
	for _, x := range d.Totals {
		fmt.Fprintf(t, "%s\t%s\n", x.Label, x.Value)
	}
	if len(d.Marks) > 0 {
		fmt.Fprint(t, "\n")
	}
	for _, m := range d.Marks {
		fmt.Fprintf(t, "%s\t%s\n", m.At, m.Text)
	}
	fmt.Fprintf(t, "\nUTC\t%s\n", strings.Join(d.Head, "\t"))
	for _, row := range d.Rows {
		fmt.Fprintf(t, "%s\n", strings.Join(row, "\t"))
	}
	return t.Flush()
}

//go:embed report.html
var source string

var page = template.Must(template.New("report").Parse(source))

// HTML writes a report as a page that needs nothing else, to read and to print.
func HTML(w io.Writer, s *api.Stats) error { return page.Execute(w, NewDocument(s)) }
