package report

import (
	"encoding/csv"
	"math"
	"strings"
	"testing"
	"time"

	"vestibule/internal/global/control/api"
	"vestibule/internal/lab/testkit"
)

func stats() *api.Stats {
	n := func(v float64) *float64 { return &v }
	reason := "the <till> is slow"
	return &api.Stats{
		Room: "shop", From: time.Unix(0, 0), To: time.Unix(120, 0), Step: 60, Times: []int64{60, 120},
		Columns: []api.StatsColumn{
			{Name: "waiting"},
			{Name: "inside"},
			{Name: "admitted"},
			{Name: "arrived"},
			{Name: "gave_up"},
			{Name: "waited_p50"},
		},
		Rows:  api.Rows{{1200, 0}, {5, math.NaN()}, {7, 8}, {9, 1}, {1, 1}, {math.NaN(), 90}},
		Total: []*float64{n(1200), n(5), n(15), n(10), n(2), n(90)},
		Marks: []api.StatsMark{{Time: 61, Text: "pause", Reason: &reason}},
	}
}

func TestText(t *testing.T) {
	var b strings.Builder
	testkit.NoError(t, Text(&b, stats()))
	for _, want := range []string{
		"shop, 1970-01-01 00:00:00 to 1970-01-01 00:02:00 UTC", "Let in  ", "  15\n", "2 (20.0 %)", "1,200", "1.5 min",
		"1970-01-01 00:01:01  ",
		"pause: the <till> is slow", "Passed by a rule", Unknown,
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
}

func TestHTML(t *testing.T) {
	var b strings.Builder
	testkit.NoError(t, HTML(&b, stats()))
	for _, want := range []string{
		"pause: the &lt;till&gt; is slow", `points="0.0,0.0 600.0,120.0 "`, "<td>1,200</td>",
		"</html>",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
}

func TestCSV(t *testing.T) {
	var b strings.Builder
	testkit.NoError(t, CSV(&b, stats()))
	rows, err := csv.NewReader(strings.NewReader(b.String())).ReadAll()
	if err != nil || len(rows) != 3 || rows[0][1] != "waiting" || rows[1][0] != "1970-01-01T00:01:00Z" ||
		rows[1][1] != "1200" || rows[2][2] != "" {
		t.Errorf("%v: %v", err, rows)
	}
}
