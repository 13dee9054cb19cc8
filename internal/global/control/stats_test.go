package control

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/history"
	"vestibule/internal/core/room"
	"vestibule/internal/global/audit"
	"vestibule/internal/global/control/api"
	"vestibule/internal/lab/testkit"
)

// past is a history with a point a minute: an admission in each, and an inside that rises.
type past struct{ asked room.ID }

func (p *past) Points(_ context.Context, id room.ID, from, to, _ int64, each func([]history.Point)) error {
	p.asked = id
	for at := from / 60 * 60; at <= to; at += 60 {
		v := make([]int64, history.NumFields)
		v[history.Admitted], v[history.Inside], v[history.Wait] = at/60, at%3600/60, -1
		c := make([]int64, history.NumCentreFields)
		c[history.CentreInside], c[history.CentreAdmitted] = at%3600/60, at/60
		each([]history.Point{{At: at, Values: v, Centres: []history.Centre{{Name: "dublin", Values: c}}}})
	}
	return nil
}

func TestStats(t *testing.T) {
	h := &past{}
	f := start(t, func(o *Options) { o.History = h })
	made := f.ask(Admin, "POST", "{z}",
		`{"name":"shop","host":"shop.example"`+limits)
	id, _ := made.field("id").(string)
	at := "/vestibule/rooms/" + id
	f.ok(Operator, "PATCH", at+"/controls",
		`{"pause":{"message":"soon"},"reason":"the lights went out"}`)
	a := f.ask(Viewer, "GET", at+"/stats?from=-10m&step=60", "")
	rows, _ := a.field("rows").([]any)
	times, _ := a.field("times").([]any)
	total, _ := a.field("total").([]any)
	if a.code != 200 || h.asked != room.IDOf("shop") || len(rows) < 10 || len(rows) > 11 || len(times) != len(rows) {
		t.Fatalf("%d rows, %d times: %+v", len(rows), len(times), a)
	}
	columns, _ := a.field("columns").([]any)
	number := func(row any, name string) any {
		for i, c := range columns {
			if c.(map[string]any)["name"] == name {
				return row.([]any)[i]
			}
		}
		t.Fatalf("no column %s", name)
		return nil
	}
	for i, r := range rows {
		if number(r, "admitted") != 1.0 || number(r, "wait") != nil ||
			number(r, "inside") != times[i].(float64)/60-60*float64(int(times[i].(float64))/3600) {
			t.Errorf("row %v", r)
		}
	}
	if n := number(any(total), "admitted").(float64); n < 9 || n > 11 {
		t.Errorf("%v admitted in all", n)
	}
	centres, _ := a.field("data_centers").(map[string]any)
	dublin, _ := centres["dublin"].(map[string]any)
	if admitted, _ := dublin["admitted"].([]any); len(admitted) != len(rows) || admitted[1] != 1.0 {
		t.Errorf("dublin: %v", dublin)
	}
	marks, _ := a.field("marks").([]any)
	var texts []string
	for _, m := range marks {
		x := m.(map[string]any)
		texts = append(texts, x["kind"].(string)+": "+x["text"].(string)+" ("+x["reason"].(string)+")")
	}
	if got := strings.Join(texts, "; "); got != "action: room made (); action: pause set (the lights went out)" {
		t.Errorf("marks: %s", got)
	}

	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", Prefix+at+"/stats?from=-2m&step=60&format=csv", nil)
	r.Header.Set("Authorization", "Bearer "+f.token[Viewer])
	f.api.ServeHTTP(w, r)
	lines := strings.Split(strings.TrimSpace(w.Body.String()), "\n")
	if w.Header().Get("Content-Type") != "text/csv; charset=utf-8" ||
		!strings.HasPrefix(lines[0], "time,waiting,inside,limit,") || len(lines) < 3 ||
		!strings.Contains(lines[1], ":00Z,0,") {
		t.Errorf("%s: %q", w.Header().Get("Content-Type"), lines)
	}
	for query, want := range map[string]string{
		"from=yesterday": "/from", "from=-1h&to=-2h": "/to", "step=0": "/step", "step=x": "/step",
		"from=-48h&step=1": "/step", "to=2027-01-01": "/to",
	} {
		f.refused(Viewer, "GET", at+"/stats?"+query, "", want)
	}
	f.expect(404, Viewer, "GET", at+"/stats?event=none", "") // of an unknown event
	begin, end := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	event := f.ask(Editor, "POST", "{z}/"+id+"/events",
		`{"name":"sale","event_start_time":"`+begin.Format(time.RFC3339)+`","event_end_time":"`+end.Format(time.RFC3339)+`"}`)
	eventID, _ := event.field("id").(string)
	a = f.ask(Viewer, "GET", at+"/stats?step=60&event="+eventID, "")
	if from, _ := a.field("from").(string); a.code != 200 ||
		from != begin.UTC().Truncate(time.Second).Format(time.RFC3339) {
		t.Errorf("of the event: %+v", a)
	}
}

// TestMarksOfAReport: what an audit entry says in a report. A time is short, a release has its number.
func TestMarksOfAReport(t *testing.T) {
	begin := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	set := func(key string, before, after any) api.AppliedSetting {
		return api.AppliedSetting{Key: key, Before: before, After: after}
	}
	for want, settings := range map[string][]api.AppliedSetting{
		"event sale.event_start_time from 2026-11-27 12:00:00 to 2026-11-27 13:00:00": {
			set("events[sale].event_start_time", begin, begin.Add(time.Hour)),
		},
		"release of 3 visitors": {
			set("pause.release", nil, true), set("pause.release.id", nil, 7.0),
			set("pause.release.n", nil, 3.0),
		},
		"pause set": {set("pause", nil, true), set("pause.until", nil, begin)},
	} {
		if got := changeText(&api.AppliedChange{Kind: api.AppliedChangeKindControls, Settings: settings}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A chart of the past has the marks of its time, however much was done later.
func TestLaterActionsHideNoEarlierOnes(t *testing.T) {
	f := start(t, func(o *Options) { o.History = &past{} })
	made := f.ask(Admin, "POST", "{z}", `{"name":"shop","host":"shop.example"`+limits)
	id, _ := made.field("id").(string)
	at := "/vestibule/rooms/" + id
	f.ok(Operator, "PATCH", at+"/controls", `{"pause":{"message":"soon"},"reason":"the lights went out"}`)
	const of = "/stats?from=-10m&step=60&to="
	text := func(to time.Time) string {
		marks, _ := f.ok(Viewer, "GET", at+of+to.UTC().Format(time.RFC3339), "").field("marks").([]any)
		var out []string
		for _, m := range marks {
			text, _ := m.(map[string]any)["text"].(string)
			out = append(out, text)
		}
		return strings.Join(out, "; ")
	}
	to := time.Now()
	before := text(to)
	journal := audit.NewJournal(f.audit)
	for i := range maxMarks + 10 {
		said := room.Control{Message: &room.Message{Mark: room.Mark{Since: 1}, Text: fmt.Sprint(i)}}
		e := testkit.Must(audit.Of(to.Add(time.Hour), audit.By{Name: "Ben"}, controlsTarget+id+" shop", nil, &said))(t)
		testkit.NoError(t, journal.Add(t.Context(), e))
	}
	if after := text(to); after != before || !strings.Contains(after, "pause") {
		t.Errorf("marks: %q, after later changes %q", before, after)
	}
}
