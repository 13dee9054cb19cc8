package console

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"vestibule/internal/global/control/api"
)

// historyView is the content of the page of a room's history: a range of time, or an event.
type historyView struct {
	ID      string
	Range   string // of the choices, "" for an event or another range
	Ranges  []choice
	Event   string // ID, "" for none
	Events  []choice
	From    time.Time
	To      time.Time
	Totals  []total
	Charts  *chartsView
	CSV     string // address
	Nothing bool   // this global keeps no history
}

// total is a line of a report.
type total struct{ Label, Value, Help string }

// ranges are the choices of the page.
var ranges = []struct {
	choice
	length time.Duration
}{
	{choice{"-1h", "1 hour"}, time.Hour},
	{choice{"-24h", "24 hours"}, 24 * time.Hour},
	{choice{"-168h", "7 days"}, 7 * 24 * time.Hour},
	{choice{"-720h", "30 days"}, 30 * 24 * time.Hour},
	{choice{"-9600h", "400 days"}, 400 * 24 * time.Hour},
}

// tableStepOf returns the step of tables, in seconds: at most 60 rows, or a row per day.
func tableStepOf(length time.Duration) int {
	for _, step := range []int{60, 300, 900, 1800, 3600, 6 * 3600} {
		if int(length/time.Second)/step <= 60 {
			return step
		}
	}
	return 86400
}

// totalsOf returns the report of a time.
func totalsOf(s *api.Stats) (out []total) {
	at := map[string]*float64{}
	for i, c := range s.Columns {
		if i < len(s.Total) {
			at[c.Name] = s.Total[i]
		}
	}
	people := func(column string) string { return valueOf(at[column]) }
	minutes := func(column string) string {
		if v := scaled(at[column], 1./60); v != nil {
			return valueOf(v) + " min"
		}
		return unknown
	}
	share := func(part, whole string) string {
		if at[part] == nil || at[whole] == nil || *at[whole] == 0 {
			return ""
		}
		return fmt.Sprintf(" (%.1f %%)", 100**at[part] / *at[whole])
	}
	return []total{
		{"Arrived", people("arrived"), "visitors who joined the queue or entered at once"},
		{
			"Came back", people("returning") + share("returning", "arrived"),
			"of them, an earlier session or place had ended",
		},
		{"Let in", people("admitted"), ""},
		{"Gave up", people("gave_up") + share("gave_up", "arrived"), "left the queue without a session"},
		{"Highest queue", people("waiting"), "people who waited at the same time"},
		{"Most inside", people("inside"), "sessions at the same time"},
		{"Waited, half of those let in", minutes("waited_p50"), "at most"},
		{"Waited, 90 % of those let in", minutes("waited_p90"), "at most"},
		{"Told at joining, half of them", minutes("told_p50"), "at most"},
		{"Told at joining, 90 % of them", minutes("told_p90"), "at most"},
		{"Time on the site, half of the sessions", minutes("stay_p50"), "at most"},
		{"Time on the site, 95 % of the sessions", minutes("stay_p95"), "at most"},
		{"Passed by a rule", people("bypassed"), "requests"},
		{
			"Failed requests to the site", people("origin_errors") + share("origin_errors", "origin_requests"),
			"no answer, or 5xx",
		},
	}
}

// historyQuery returns the range of a request for the API, and its length.
func historyQuery(q *request, events []api.Event) (query url.Values, length time.Duration) {
	for i := range events {
		if e := &events[i]; e.Id == q.FormValue("event") {
			from := e.EventStartTime
			if e.PrequeueStartTime != nil {
				from = *e.PrequeueStartTime
			}
			return url.Values{"event": {e.Id}}, min(e.EventEndTime.Sub(from), max(q.now.Sub(from), time.Minute))
		}
	}
	chosen := ranges[0]
	for _, r := range ranges {
		if r.Value == q.FormValue("range") {
			chosen = r
		}
	}
	return url.Values{"from": {chosen.Value}}, chosen.length
}

// serveHistory shows a room's history as charts, tables and a report.
func serveHistory(q *request) error {
	r, at, err := q.place("history")
	if err != nil {
		return err
	}
	var events []api.Event
	if err := q.get(eventsPath(r.Id)+"?per_page=1000", &events); err != nil {
		return err
	}
	query, length := historyQuery(q, events)
	v := &historyView{ID: r.Id, Range: query.Get("from"), Event: query.Get("event")}
	for _, r := range ranges {
		v.Ranges = append(v.Ranges, r.choice)
	}
	for i := range events {
		v.Events = append(v.Events, choice{events[i].Id, events[i].Name + ", " + day(events[i].EventStartTime)})
	}
	source := query.Encode()
	v.CSV = roomPath(r.Id) + "/history.csv?" + source
	query.Set("step", strconv.Itoa(tableStepOf(length)))
	s, err := readStats(q.call, r.Id, query)
	if err != nil {
		return err
	}
	f := &frame{Title: "History of " + r.Name, Current: "rooms", Room: at, Main: v, Charts: s != nil}
	if v.Nothing = s == nil; v.Nothing {
		return q.show(http.StatusOK, "history", f)
	}
	d := chartsOf(s)
	v.From, v.To, v.Totals = s.From, s.To, totalsOf(s)
	v.Charts = &chartsView{Source: roomPath(r.Id) + "/charts?" + source, Tables: d.tables(0), Marks: d.Marks}
	return q.show(http.StatusOK, "history", f)
}

// serveHistoryFile sends a room's history as a file.
func serveHistoryFile(q *request) error {
	s, err := readStats(q.call, q.PathValue("id"), q.statsQuery())
	if err != nil {
		return err
	}
	if s == nil {
		return notFoundError{}
	}
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	line := []string{"time"}
	for _, c := range s.Columns {
		line = append(line, c.Name)
	}
	err = w.Write(line)
	for i, row := range s.Rows {
		line = append(line[:0], time.Unix(s.Times[i], 0).UTC().Format(time.RFC3339))
		for _, n := range row {
			text := ""
			if n != nil {
				text = strconv.FormatFloat(*n, 'f', -1, 64)
			}
			line = append(line, text)
		}
		if err == nil {
			err = w.Write(line)
		}
	}
	w.Flush()
	if err == nil {
		err = w.Error()
	}
	if err != nil {
		return err
	}
	q.w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	q.w.Header().Set("Content-Disposition", `attachment; filename="`+s.Room+`.csv"`)
	if err := q.write(http.StatusOK, out.Bytes()); err != nil {
		q.c.log.Debug("console: history not written", slog.Any("error", err))
	}
	return nil
}
