package console

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"vestibule/internal/global/control/api"
	"vestibule/internal/global/report"
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
	Totals  []report.Total
	Charts  *chartsView
	CSV     string // address
	Nothing bool   // this global keeps no history
}

// ranges are the choices of the page.
var ranges = []choice{
	{"-1h", "1 hour"}, {"-24h", "24 hours"}, {"-168h", "7 days"}, {"-720h", "30 days"}, {"-9600h", "400 days"},
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

// historyQuery returns the range of a request for the API, and its length.
func historyQuery(q *request, events []api.Event) (query url.Values, length time.Duration) {
	for i := range events {
		if e := &events[i]; e.Id == q.FormValue("event") || e.Id == q.FormValue("range") {
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
	length, _ = time.ParseDuration(chosen.Value[1:]) // one of the above
	return url.Values{"from": {chosen.Value}}, length
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
	v := &historyView{ID: r.Id, Range: query.Get("from"), Ranges: ranges, Event: query.Get("event")}
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
	v.From, v.To, v.Totals = s.From, s.To, report.Totals(s)
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
	if err := report.CSV(&out, s); err != nil {
		return err
	}
	q.w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	q.w.Header().Set("Content-Disposition", `attachment; filename="`+s.Room+`.csv"`)
	if err := q.write(http.StatusOK, out.Bytes()); err != nil {
		q.c.Log.Debug("console: history not written", slog.Any("error", err))
	}
	return nil
}
