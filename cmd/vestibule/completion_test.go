package main

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"

	"vestibule/internal/node"
)

// TestCompletion: the words that shells offer, rooms by the API among them.
func TestCompletion(t *testing.T) {
	apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		result := `{"id":"i","zone":"z","account":"a"}`
		switch {
		case strings.HasSuffix(r.URL.Path, "/waiting_rooms/0123/events"):
			result = `[{"id":"e1","name":"sale"},{"id":"e2","name":"encore"}]`
		case strings.HasSuffix(r.URL.Path, "/waiting_rooms/0123/rules"):
			result = `[{"id":"r1","expression":"ssl"},{"id":"r2","expression":"ip.src in $office"}]`
		case strings.HasSuffix(r.URL.Path, "/waiting_rooms"):
			result = `[{"id":"0123","name":"shop"},{"id":"4567","name":"news"}]`
		}
		answer(w, result)
	})
	for _, c := range []struct{ line, want string }{
		{"ro", "rooms"},
		{"audit ", "list show verify"},
		{"rooms re", "restore revisions"},
		{"rooms get shop ", ""},
		{"rooms get nobody ", ""},
		{"status shop ", "news"},
		{"events set shop ", "sale encore"},
		{"events set shop en", "encore"},
		{"events set nobody ", ""},
		{"events set shop sale event_s", "event_start_time="},
		{"events set shop sale name=x even", "event_end_time= event_start_time="},
		{"rooms create na", "name="},
		{"rooms set shop vestibule.gr", "vestibule.grace="},
		{"rules delete shop ", "1 2"},
		{"rules set shop 1 en", "enabled="},
		{"rooms list --o", "--output"},
		{"rooms list --output ", "table json"},
		{"rooms get ", "shop news"},
		{"pause ", "shop news"},
		{"completion f", "fish"},
		{"fleet remove --fo", "--force"},
	} {
		var out bytes.Buffer
		if code := run(t.Context(), append([]string{"__completeNoDesc"}, strings.Split(c.line, " ")...), &out,
			&bytes.Buffer{}); code != node.ExitOK {
			t.Errorf("%q: %d %s", c.line, code, out.String())
		}
		got := slices.DeleteFunc(strings.Fields(out.String()), func(word string) bool { return word[0] == ':' })
		if strings.Join(got, " ") != c.want {
			t.Errorf("%q: %q, want %q", c.line, got, c.want)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if code, out := told(t.Context(), "completion", shell); code != node.ExitOK || !strings.Contains(out, "__complete") {
			t.Errorf("%s: %d %s", shell, code, out)
		}
	}
	for _, args := range [][]string{{"completion"}, {"completion", "ksh"}, {"completion", "bash", "zsh"}} {
		if code, out := told(t.Context(), args...); code != node.ExitUsage {
			t.Errorf("%q: %d %s", args, code, out)
		}
	}
}
