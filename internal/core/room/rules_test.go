package room

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"vestibule/internal/lab/testkit"
)

func withRules(all ...Rule) Settings {
	s := valid("sale", "shop.test", "/sale")
	s.Rules = all
	return s
}

func TestRulesAreStored(t *testing.T) {
	s := withRules(
		Rule{Expression: `http.host eq "ä"`, Description: "staff"},
		Rule{ID: strings.Repeat("0a", 16), Expression: "ssl", Disabled: true, Version: 7, Updated: 1795353281000},
		Rule{Expression: "ssl"}, Rule{Expression: "ssl"},
	).WithDefaults()
	if ids := []string{
		s.Rules[0].ID, s.Rules[1].ID, s.Rules[2].ID,
		s.Rules[3].ID,
	}; len(slices.Compact(slices.Sorted(slices.Values(ids)))) != 4 {
		t.Errorf("ids are not their own: %v", ids)
	}
	doc := Document{Rooms: []Settings{s}}
	testkit.NoError(t, doc.Validate().Err())
	data := testkit.Must(EncodeDocument(doc))(t)
	back := testkit.Must(DecodeDocument(data))(t)
	if d := cmp.Diff(doc.Rooms, back.Rooms); d != "" {
		t.Error(d)
	}
	for what, broken := range map[string]string{
		"rooms[0].rules[0].action: must be bypass_waiting_room": strings.Replace(string(data), ActionBypass, "log", 1),
		"rooms[0].rules[0].until: unknown field":                strings.Replace(string(data), `"updated":0`, `"until":0`, 1),
	} {
		if _, err := DecodeDocument([]byte(broken)); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	older := withRules(slices.Clone(s.Rules)...)
	older.Rules[1].Version, older.Rules[1].Updated = 6, 0
	if !s.Equal(older) {
		t.Error("rules that say the same are others by when they were written")
	}
	other := withRules(s.Rules[1], s.Rules[0], s.Rules[2], s.Rules[3])
	if s.Equal(other) || !s.Equal(withRules(slices.Clone(s.Rules)...)) ||
		!withRules().Equal(valid("sale", "shop.test", "/sale")) {
		t.Error("rooms with other rules, or the same in another order, are not told apart")
	}
}

func TestFaultsOfRules(t *testing.T) {
	many := make([]Rule, MaxRules+1)
	id := strings.Repeat("a", 32)
	for _, tc := range []struct {
		rules []Rule
		want  string
	}{
		{many, "rules: must be at most 100, got 101"},
		{[]Rule{{}}, "rules[0].expression: is required"},
		{
			[]Rule{{Expression: "ssl"}, {Expression: `http.hots eq "a" or hots eq "b"`}},
			"rules[1].expression: is wrong: character 1: unknown field http.hots; character 21: unknown field hots",
		},
		{[]Rule{{Expression: strings.Repeat("x eq 1 or ", 50) + "ssl"}}, "; and 40 more"},
		{[]Rule{{ID: "X", Expression: "ssl"}}, `rules[0].id: must be 32 hexadecimal digits in lower case, got "X"`},
		{[]Rule{{ID: id, Expression: "ssl"}, {ID: id, Expression: "ssl"}}, "rules[1].id: is the id of rules[0] already"},
		{
			[]Rule{{Expression: "ssl", Description: strings.Repeat("a", MaxDescription+1)}},
			"rules[0].description: must be at most",
		},
		{[]Rule{{Expression: "ssl", Version: -1}}, "rules[0].version: must be at least 1"},
		// an edge may have what they need
		{[]Rule{{Expression: `ip.src.country eq "DE" or ip.src in $office or cf.client.bot`}}, ""},
	} {
		if got := fmt.Sprint(withRules(tc.rules...).Validate()); !strings.Contains(got, tc.want) || tc.want == "" &&
			got != "" && got != "[]" {
			t.Errorf("got %s\nwant %s", got, tc.want)
		}
	}
}
