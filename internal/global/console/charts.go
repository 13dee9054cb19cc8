package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"vestibule/internal/global/control"
	"vestibule/internal/global/control/api"
	"vestibule/internal/global/report"
)

// chart is a chart of a room. Its series are columns of the history.
type chart struct {
	id, title, unit string
	series          []series
}

// series is a line of a chart. Its values are those of a column times scale.
type series struct {
	column, label string
	kind          string // line, area, or limit
	scale         float64
}

// charts are the charts of a room, in their order.
var charts = []chart{
	{"waiting", "Waiting", "people", []series{{"waiting", "waiting", "area", 1}}},
	{"inside", "Inside", "people", []series{{"inside", "inside", "area", 1}, {"limit", "limit", "limit", 1}}},
	{"admitted", "Let in per minute", "people per minute", []series{
		{"admitted_minute", "let in", "line", 1}, {"rate", "limit", "limit", 1},
	}},
	{"arrived", "Arrivals and people who gave up", "people per minute", []series{
		{"arrived_minute", "arrived", "line", 1},
		{"returning_minute", "of them, came back", "line", 1},
		{"gave_up_minute", "gave up", "line", 1},
	}},
	{"wait", "Forecast wait of newcomers, and wait of those let in", "minutes", []series{
		{"wait", "forecast now", "line", 1. / 60},
		{"waited_p50", "waited, half of them", "line", 1. / 60},
		{"waited_p90", "waited, 90 % of them", "line", 1. / 60},
	}},
	{"stay", "Time on the site", "minutes", []series{
		{"stay_p50", "half of the sessions", "line", 1. / 60}, {"stay_p95", "95 % of the sessions", "line", 1. / 60},
	}},
	{"origin", "Time until the site answers", "milliseconds", []series{
		{"origin_p50", "half of the requests", "line", 1000}, {"origin_p95", "95 % of the requests", "line", 1000},
	}},
	{"errors", "Requests to the site that fail", "per minute", []series{
		{"origin_errors_minute", "no answer, or 5xx", "line", 1},
	}},
}

// chartsData are charts with their values. The script draws it, and the tables show it.
type chartsData struct {
	Step   int // seconds
	Times  []int64
	Charts []chartData
	Marks  []chartMark
}

type chartData struct {
	ID     string
	Title  string
	Unit   string
	Series []seriesData
}

type seriesData struct {
	Label  string
	Kind   string
	Values numbers
}

// encode returns the charts in JSON. It does by hand what is slow by reflection: a day of seconds has a million and a
// half values.
func (d *chartsData) encode() ([]byte, error) {
	marks, err := json.Marshal(d.Marks)
	size := 1 << 10 // grown once: the values of a day of seconds are megabytes
	for _, c := range d.Charts {
		size += 100 + 100*len(c.Series) + 8*len(c.Series)*len(d.Times)
	}
	out := fmt.Appendf(make([]byte, 0, size), `{"step":%d,"marks":%s,"times":`, d.Step, marks)
	out = appendList(out, d.Times, func(out []byte, at int64) []byte { return strconv.AppendInt(out, at, 10) })
	out = append(out, `,"charts":`...)
	out = appendList(out, d.Charts, func(out []byte, c chartData) []byte {
		out = fmt.Appendf(out, `{"id":%q,"title":%q,"unit":%q,"series":`, c.ID, c.Title, c.Unit)
		return append(appendList(out, c.Series, func(out []byte, s seriesData) []byte {
			return append(s.Values.append(fmt.Appendf(out, `{"label":%q,"kind":%q,"values":`, s.Label, s.Kind)), '}')
		}), '}')
	})
	return append(out, '}'), err
}

// appendList appends a list in JSON.
func appendList[T any](out []byte, list []T, each func(out []byte, x T) []byte) []byte {
	out = append(out, '[')
	for i, x := range list {
		if i > 0 {
			out = append(out, ',')
		}
		out = each(out, x)
	}
	return append(out, ']')
}

// numbers are the values of a line, rounded to hundredths; not a number for unknown.
type numbers []float64

// append appends the values in JSON.
func (n numbers) append(out []byte) []byte {
	return appendList(out, n, func(out []byte, x float64) []byte {
		switch whole := int64(x); {
		case math.IsNaN(x):
			return append(out, "null"...)
		case float64(whole) == x:
			return strconv.AppendInt(out, whole, 10)
		default:
			return strconv.AppendFloat(out, x, 'f', -1, 64)
		}
	})
}

// chartMark is an action or a phase of an event.
type chartMark struct {
	Time int64  `json:"time"`
	Text string `json:"text"`
}

// maxCentres bounds the lines of a chart of data centres.
const maxCentres = 12

// chartsOf returns the charts that have a known value.
func chartsOf(s *api.Stats) *chartsData {
	d := &chartsData{Step: s.Step, Times: s.Times, Charts: []chartData{}, Marks: []chartMark{}}
	at := map[string]int{}
	for i, c := range s.Columns {
		at[c.Name] = i
	}
	for _, c := range charts {
		shown, known := chartData{ID: c.id, Title: c.title, Unit: c.unit}, false
		for _, line := range c.series {
			i, ok := at[line.column]
			if !ok {
				continue
			}
			values := scaled(s.Rows[i], line.scale)
			known = known || line.kind != "limit" && slices.ContainsFunc(values, func(n float64) bool { return !math.IsNaN(n) })
			shown.Series = append(shown.Series, seriesData{line.label, line.kind, values})
		}
		if known {
			d.Charts = append(d.Charts, shown)
		}
	}
	for _, c := range []struct{ column, title string }{
		{"waiting", "Waiting, by data centre"}, {"inside", "Inside, by data centre"},
	} {
		if shown := centresOf(s, c.column, c.title); len(shown.Series) > 1 {
			d.Charts = append(d.Charts, shown)
		}
	}
	for _, m := range s.Marks {
		text := m.Text
		if m.By != nil {
			text = *m.By + ": " + text
		}
		d.Marks = append(d.Marks, chartMark{m.Time, text})
	}
	return d
}

// scaled returns numbers times scale, rounded to hundredths.
func scaled(column []float64, scale float64) numbers {
	out := make(numbers, len(column))
	for i, n := range column {
		out[i] = math.Round(n*scale*100) / 100
	}
	return out
}

// centresOf returns the chart of a column of the data centres.
func centresOf(s *api.Stats, column, title string) chartData {
	out := chartData{ID: "centres-" + column, Title: title, Unit: "people"}
	for _, name := range slices.Sorted(maps.Keys(s.DataCenters)) {
		list := s.DataCenters[name][column]
		if len(list) != len(s.Times) || len(out.Series) == maxCentres {
			continue
		}
		out.Series = append(out.Series, seriesData{name, "line", list})
	}
	return out
}

// after returns the rows after a time.
func (d *chartsData) after(at int64) *chartsData {
	n := len(d.Times)
	if i := slices.IndexFunc(d.Times, func(t int64) bool { return t > at }); i >= 0 {
		n = i
	}
	out := &chartsData{Step: d.Step, Times: d.Times[n:], Charts: []chartData{}, Marks: []chartMark{}}
	for _, c := range d.Charts {
		rest := c
		rest.Series = nil
		for _, line := range c.Series {
			rest.Series = append(rest.Series, seriesData{line.Label, line.Kind, line.Values[n:]})
		}
		out.Charts = append(out.Charts, rest)
	}
	for _, m := range d.Marks {
		if m.Time > at {
			out.Marks = append(out.Marks, m)
		}
	}
	return out
}

// table is the table behind a chart.
type table struct {
	chartData
	Rows []tableRow
}

// tableRow is a row of a table.
type tableRow struct {
	At     int64    // Unix time
	Time   string   // in UTC
	Values []string // one for each series
}

// tables returns the tables of charts, the newest row first: a row for each step of so many seconds.
func (d *chartsData) tables(step int) []table {
	form, every := "15:04", max(1, step/max(1, d.Step))
	if n := len(d.Times); n > 0 && d.Times[n-1]-d.Times[0] > 86400 {
		form = "2 Jan 15:04"
	}
	var out []table
	for _, c := range d.Charts {
		t := table{chartData: c}
		for i := len(d.Times) - 1; i >= 0; i -= every {
			row := tableRow{At: d.Times[i], Time: time.Unix(d.Times[i], 0).UTC().Format(form)}
			for _, line := range c.Series {
				row.Values = append(row.Values, report.Value(line.Values[i]))
			}
			t.Rows = append(t.Rows, row)
		}
		out = append(out, t)
	}
	return out
}

// readStats reads the history of a room; nil if this global keeps none.
func readStats(call caller, id string, query url.Values) (*api.Stats, error) {
	var s api.Stats
	err := call(http.MethodGet, ownPath(id)+"/stats?"+query.Encode(), nil, &s)
	if control.Status(err) == http.StatusNotFound {
		return nil, nil
	}
	return &s, err
}

// The charts of the page of a room show an hour. Their tables have a row for every five minutes.
const (
	liveSpan  = "-1h"
	liveStep  = 10
	tableStep = 300
)

// chartParameters are the parameters of the API that the charts take.
var chartParameters = []string{"from", "to", "step", "event"}

// statsQuery returns the parameters of a request that are those of the API.
func (q *request) statsQuery() url.Values {
	query := url.Values{}
	for _, name := range chartParameters {
		if value := q.FormValue(name); value != "" {
			query.Set(name, value)
		}
	}
	return query
}

// liveQuery is the query of the charts on the page of a room.
var liveQuery = url.Values{"from": {liveSpan}, "step": {strconv.Itoa(liveStep)}}

// readCharts reads the charts of a room. Those of the page of a room are shared with the other operators who look at
// it; others may be large, and are not kept.
func readCharts(q *request, id string, query url.Values) (*chartsData, error) {
	read := func(call caller) (*chartsData, error) {
		s, err := readStats(call, id, query)
		if err != nil {
			return nil, err
		}
		if s == nil {
			return nil, notFoundError{}
		}
		return chartsOf(s), nil
	}
	if query.Encode() != liveQuery.Encode() {
		return read(q.call)
	}
	if err := q.get(roomsPath()+"/"+id, nil); err != nil { // may this operator see it?
		return nil, err
	}
	d, notes, err := newest(q, "charts "+id, read)
	for _, note := range notes {
		q.note(note)
	}
	return d, err
}

// serveCharts sends the charts of a room for the script: the whole range, or the rows after a time.
func serveCharts(q *request) error {
	id, query := q.PathValue("id"), q.statsQuery()
	d, err := readCharts(q, id, query)
	if err != nil {
		return err
	}
	if after, err := strconv.ParseInt(q.FormValue("after"), 10, 64); err == nil {
		d = d.after(after)
	}
	data, err := d.encode()
	if err != nil {
		return err
	}
	q.w.Header().Set("Content-Type", "application/json")
	if err := q.write(http.StatusOK, data); err != nil {
		q.c.Log.Debug("console: charts not written", slog.Any("error", err))
	}
	return nil
}

// chartsView is the part of a page with charts.
type chartsView struct {
	Source string // address of the values
	Live   bool   // the script asks for new values
	Tables []table
	Marks  []chartMark
}

// liveCharts returns the charts of the page of a room; nil without a history.
func liveCharts(q *request, id string) (*chartsView, error) {
	d, err := readCharts(q, id, liveQuery)
	if _, none := errors.AsType[notFoundError](err); none {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &chartsView{
		Source: roomPath(id) + "/charts?" + liveQuery.Encode(), Live: true, Tables: d.tables(tableStep), Marks: d.Marks,
	}, nil
}
