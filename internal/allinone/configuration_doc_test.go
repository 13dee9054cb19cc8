package allinone

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vestibule/internal/edge"
	"vestibule/internal/global"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
	"vestibule/internal/regional"
)

var rewrite = flag.Bool("rewrite", false, "write the tables of docs/CONFIGURATION.md anew")

// TestConfigurationDocument: the tables of docs/CONFIGURATION.md match the nodes' configurations.
func TestConfigurationDocument(t *testing.T) {
	const file = "../../docs/CONFIGURATION.md"
	ec, rc, gc := edge.DefaultConfig(), regional.DefaultConfig(), global.DefaultConfig()
	tables := settingTables([]node.Config{&ec, &rc, &gc})
	data := testkit.Must(os.ReadFile(file))(t)
	have, want := string(data), string(data)
	for name, table := range tables {
		begin, end := "<!-- generated: "+name+" (make golden) -->\n", "<!-- end -->\n"
		before, rest, ok := strings.Cut(want, begin)
		_, after, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			t.Fatalf("%s has no table %q", file, name)
		}
		want = before + begin + table + end + after
	}
	if *rewrite {
		testkit.NoError(t, os.WriteFile(file, []byte(want), 0o644))
		return
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("make golden (-configuration +document): %s", diff)
	}
}

// settingTables returns a Markdown table for each set of tiers that share keys with the same meaning.
func settingTables(tiers []node.Config) map[string]string {
	type row struct {
		node.Setting
		defaults []string
		tiers    string
	}
	var rows []*row
	for i, cfg := range tiers {
		for _, s := range node.Settings(cfg) {
			at := slices.IndexFunc(rows, func(r *row) bool { return r.Key == s.Key && r.Doc == s.Doc })
			if at < 0 {
				at = len(rows)
				rows = append(rows, &row{Setting: s})
			}
			r := rows[at]
			r.tiers = strings.TrimSpace(r.tiers + " " + []string{"edge", "regional", "global"}[i])
			shown := fmt.Sprint(s.Value)
			if d, ok := s.Value.(time.Duration); ok && d%time.Minute == 0 && d != 0 {
				shown = strings.TrimSuffix(strings.TrimSuffix(shown, "0s"), "0m")
			}
			switch shown {
			case "", "[]":
				shown = "–"
			default:
				shown = "`" + shown + "`"
			}
			if !slices.Contains(r.defaults, shown) {
				r.defaults = append(r.defaults, shown)
			}
		}
	}
	out := map[string]string{}
	for _, r := range rows {
		if out[r.tiers] == "" {
			out[r.tiers] = "| key | default | meaning |\n|---|---|---|\n"
		}
		out[r.tiers] += fmt.Sprintf("| `%s` | %s | %s |\n", r.Key, strings.Join(r.defaults, ", "), r.Doc)
	}
	return out
}
