package allinone

import (
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"vestibule/internal/global/control/api"
	"vestibule/internal/global/report"
	"vestibule/internal/lab/testkit"
)

// The console, the status, the history, the metrics and the report have the same numbers: seven visitors that were let
// in within some seconds are seven, from the first second of the room on, and not a rate that follows from them.
func TestOneNumberForOneThing(t *testing.T) {
	t.Parallel()
	const people = "7"
	tree, _ := grow(t, 100, 60, time.Minute, func(o *Options) { o.DataCenters, o.Edges = []string{"dublin"}, 1 })
	var rooms []api.Status
	status := func() *api.Status {
		tree.api(t, http.MethodGet, "/vestibule/status", nil, &rooms)
		return &rooms[0]
	}
	id := status().Vestibule.RoomId
	stats := func(query string) (s api.Stats) {
		tree.api(t, http.MethodGet, "/vestibule/rooms/"+id+"/stats?"+query, nil, &s)
		return s
	}
	eventually(t, "the history of the room has begun", func() bool { s := stats("from=-5s&step=1"); return len(s.Times) > 0 })
	for range 7 {
		newBrowser(t).enters(tree.Info.Edges[0].URL)
	}

	jar := testkit.Must(cookiejar.New(nil))(t)
	operator := http.Client{Jar: jar}
	defer operator.CloseIdleConnections()
	_ = testkit.Must(operator.PostForm(tree.Info.Control.Console, url.Values{}))(t).Body.Close()
	read := func(c *http.Client, address string) string {
		res := testkit.Must(c.Get(address))(t)
		defer res.Body.Close()
		var text strings.Builder
		testkit.NoError(t, res.Write(&text))
		return text.String()
	}
	field := func(page, pattern string) string {
		if m := regexp.MustCompile(pattern).FindStringSubmatch(page); m != nil {
			return m[1]
		}
		return "missing"
	}
	numbers := func() map[string]string {
		out := map[string]string{}
		now := status()
		out["status, let in"] = report.Value(now.Vestibule.AdmittedPerMinute)
		out["status, inside"] = report.Count(now.EstimatedTotalActiveUsers)
		s := stats("from=-60s&step=1")
		column := func(name string) float64 {
			i := slices.IndexFunc(s.Columns, func(c api.StatsColumn) bool { return c.Name == name })
			return s.Rows[i][len(s.Times)-1]
		}
		for _, name := range []string{"admitted_minute", "arrived_minute", "inside"} {
			out["history, "+name] = report.Value(column(name))
		}
		for _, total := range report.Totals(&s) {
			if total.Label == "Let in" || total.Label == "Arrived" {
				out["report, "+total.Label] = total.Value
			}
		}
		page := read(&operator, tree.Info.Control.URL[:strings.Index(tree.Info.Control.URL, "/client")]+"/console/rooms/"+id)
		for _, name := range []string{"admitted", "arrived", "inside"} {
			out["console, "+name] = field(page, `data-field="`+name+`">([^<]*)<`)
		}
		all := metrics(t, tree.Info.Metrics)
		out["metrics, let in"] = field(all, `vestibule_room_admitted_minute\{[^}]*\} (\S+)`)
		out["metrics, inside"] = field(all, `vestibule_room_active\{[^}]*\} (\S+)`)
		return out
	}
	var last map[string]string
	eventually(t, "all have counted the visitors", func() bool {
		last = numbers()
		return last["status, inside"] == people && last["history, inside"] == people
	})
	for what, n := range numbers() {
		if n != people {
			t.Errorf("%s: %s, want %s", what, n, people)
		}
	}
}
