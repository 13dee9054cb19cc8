package control

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"vestibule/internal/core/history"
	"vestibule/internal/core/room"
	"vestibule/internal/global/control/api"
	"vestibule/internal/global/report"
	"vestibule/internal/global/roomstore"
)

// History has the points of rooms.
type History interface {
	// Points calls each with the points of a room in the order of time, from the newest one up to from, to to, at steps of
	// at most step seconds.
	Points(ctx context.Context, id room.ID, from, to, step int64, each func([]history.Point)) error
}

// statsService serves the history.
type statsService struct {
	*catalog
	clock
	history History // nil for none
	audit   *auditService
	log     *slog.Logger
}

// statsSteps are the steps that are chosen by default, in seconds.
var statsSteps = []int64{1, 10, 60, 300, 900, 3600, 6 * 3600, 86400}

const (
	statsRows    = 600    // by default at most
	maxStatsRows = 90_000 // a day of seconds
)

// span is the time of a reading, in Unix seconds. The rows end at multiples of step after from, up to to.
type span struct{ from, to, step int64 }

// span reads the time of the query.
func (s *statsService) span(q *request, r *roomstore.Room) (x span, err error) {
	var f faults
	now := s.fleet() / 1000
	x = span{q.second(&f, "from", now-3600, now), q.second(&f, "to", now, now), 0}
	if id := q.URL.Query().Get("event"); id != "" {
		i := slices.IndexFunc(r.Events, func(e room.Event) bool { return e.ID == id })
		if i < 0 {
			return x, errNotFound
		}
		e := &r.Events[i]
		x.from, x.to = e.Start/1000, e.End/1000
		if e.Prequeue != 0 {
			x.from = e.Prequeue / 1000
		}
		x.to = max(min(x.to, now), x.from+1)
	}
	if x.to <= x.from {
		f.add("/to", "to must be after from")
	}
	steps := slices.IndexFunc(statsSteps, func(n int64) bool { return (x.to-x.from)/n <= statsRows })
	if steps < 0 {
		steps = len(statsSteps) - 1
	}
	x.step = int64(q.number(&f, "step", int(statsSteps[steps]), 1, 86400))
	if n := (x.to - x.from) / x.step; n > maxStatsRows {
		f.add("/step", "step must leave at most %d rows, got %d", maxStatsRows, n)
	}
	return x, f.err()
}

// second reads a time of the query in Unix seconds: in RFC 3339, or as a time before now.
func (q *request) second(f *faults, name string, byDefault, now int64) int64 {
	text := q.URL.Query().Get(name)
	if text == "" {
		return byDefault
	}
	if ago, err := time.ParseDuration(text); err == nil && strings.HasPrefix(text, "-") {
		return now + int64(ago/time.Second)
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		f.add("/"+name, "%s must be a time such as 2027-01-31T00:00:00Z, or one before now such as -1h, got %q", name,
			short(text))
		return byDefault
	}
	return at.Unix()
}

func (s *statsService) get(ctx context.Context, q *request) (any, error) {
	r, err := s.look(ctx, q.room())
	if err != nil {
		return nil, err
	}
	if s.history == nil {
		return nil, refusef(http.StatusNotFound, codeNotFound, "this global keeps no history")
	}
	x, err := s.span(q, r)
	if err != nil {
		return nil, err
	}
	read := history.NewReader(x.from, x.to, x.step)
	if err := s.history.Points(ctx, room.IDOf(r.TicketName()), x.from, x.to, x.step, read.Add); err != nil {
		return nil, err
	}
	out := s.show(r, x, read.Table())
	if q.URL.Query().Get("format") == "csv" {
		var table bytes.Buffer
		err := report.CSV(&table, &out)
		return csvTable(table.Bytes()), err
	}
	actions, err := s.actionMarks(ctx, r, x)
	if err != nil { // a chart without marks is better than none
		s.log.Warn("control: a chart lacks the marks of actions", slog.Any("error", err))
	}
	out.Marks = append(out.Marks, actions...)
	slices.SortStableFunc(out.Marks, func(a, b api.StatsMark) int { return cmp.Compare(a.Time, b.Time) })
	return out, nil
}

// show returns a table as the API shows it.
func (s *statsService) show(r *roomstore.Room, x span, t *history.Table) api.Stats {
	out := api.Stats{
		Room: r.Name, From: time.Unix(x.from, 0).UTC(), To: time.Unix(x.to, 0).UTC(), Step: int(x.step),
		Times: t.Times, Rows: t.Columns, Total: make([]*float64, len(history.Columns)),
		DataCenters: map[string]map[string][]float64{}, Marks: eventMarks(r, x),
	}
	for i, c := range history.Columns {
		out.Columns = append(out.Columns, api.StatsColumn{Name: c.Name, Description: c.Help})
		if t.Total != nil && !math.IsNaN(t.Total[i]) {
			out.Total[i] = &t.Total[i]
		}
	}
	for name, lists := range t.Centres {
		out.DataCenters[name] = map[string][]float64{}
		for i, column := range history.CentreColumns {
			out.DataCenters[name][column] = lists[i]
		}
	}
	return out
}

// eventMarks returns the phases of the room's events within a time.
func eventMarks(r *roomstore.Room, x span) []api.StatsMark {
	out := []api.StatsMark{}
	for i := range r.Events {
		e := &r.Events[i]
		for _, m := range []struct {
			at   int64
			text string
		}{{e.Prequeue, "the queue of %s opens"}, {e.Start, "%s starts"}, {e.End, "%s ends"}} {
			if at := m.at / 1000; m.at != 0 && !e.Suspended && at > x.from && at <= x.to {
				out = append(out, api.StatsMark{
					Time: at, Kind: api.StatsMarkKindEvent, Text: strings.ReplaceAll(m.text, "%s", e.Name),
				})
			}
		}
	}
	return out
}

// maxMarks bounds the actions of a chart: the newest are shown. maxMark bounds the bytes of one: two times fit.
const (
	maxMarks = 50
	maxMark  = 120
)

// actionMarks returns the changes of a room within a time, by its audit entries.
func (s *statsService) actionMarks(ctx context.Context, r *roomstore.Room, x span) (out []api.StatsMark, err error) {
	if s.audit.journal == nil {
		return nil, nil
	}
	first, last, err := s.audit.journal.Bounds(ctx)
	if err != nil {
		return nil, err
	}
	wanted := auditFilter{room: r.Name, id: room.PublicID(r.TicketName()), since: time.Unix(x.from, 0), until: time.Unix(x.to+1, 0)}
	found, err := s.audit.search(ctx, wanted, first, last+1, maxMarks)
	if err != nil {
		return nil, err
	}
	state, err := s.current(ctx)
	if err != nil {
		return nil, err
	}
	for _, stored := range slices.Backward(found) { // the oldest first
		e, err := s.audit.show(state, stored)
		if err != nil {
			return nil, err
		}
		if len(e.Changes) == 0 {
			continue
		}
		if c := &e.Changes[0]; c.Kind == api.AppliedChangeKindControls && len(c.Settings) == 0 {
			continue // as the second end of a pause
		}
		out = append(out, api.StatsMark{
			Time: e.At.Unix(), Kind: api.StatsMarkKindAction, Text: changeText(&e.Changes[0]), By: &e.By, Reason: &e.Reason,
		})
	}
	return out, nil
}

// changeText puts the change of an audit entry into words.
func changeText(c *api.AppliedChange) string {
	var parts []string
	for _, x := range c.Settings {
		key := strings.ReplaceAll(x.Key, "_", " ")
		if name, ok := strings.CutPrefix(x.Key, "events["); ok {
			key = "event " + strings.Replace(name, "]", "", 1)
		}
		switch {
		case strings.HasPrefix(key, "rules"): // their values may be secrets
			if text := "rules changed"; !slices.Contains(parts, text) {
				parts = append(parts, text)
			}
		case x.Key == "pause.release" && x.After != nil, x.Key == "pause.release.id":
			continue // its number of visitors follows
		case x.Key == "pause.release.n" && x.After != nil:
			parts = append(parts, fmt.Sprintf("release of %v visitors", x.After))
		case strings.Contains(key, ".") && len(parts) > 0 && x.Before == nil != (x.After == nil):
			continue // a detail of what begins or ends
		case x.After == nil:
			parts = append(parts, key+" ended")
		case x.Before == nil && x.After == true:
			parts = append(parts, key+" set")
		case x.Before == nil && composite(x.After):
			parts = append(parts, key+" made")
		case composite(x.After):
			parts = append(parts, key+" changed")
		case x.Before == nil:
			parts = append(parts, fmt.Sprintf("%s %v", key, x.After))
		default:
			parts = append(parts, fmt.Sprintf("%s from %v to %v", key, plainTime(x.Before), plainTime(x.After)))
		}
	}
	if len(parts) == 0 {
		return string(c.Kind) + " " + string(c.Change)
	}
	text := strings.Join(parts[:min(len(parts), 4)], ", ")
	if len(text) > maxMark {
		text = strings.ToValidUTF8(text[:maxMark], "") + "…"
	}
	return text
}

// plainTime returns a time in the short form of a report, and any other value as it is.
func plainTime(v any) any {
	if t, ok := v.(time.Time); ok {
		return t.UTC().Format(time.DateTime)
	}
	return v
}

// composite reports whether a setting is a list or an object, which has no short form.
func composite(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}
