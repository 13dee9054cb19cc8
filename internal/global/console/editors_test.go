package console_test

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"vestibule/internal/global/console"
	"vestibule/internal/global/control"
	"vestibule/internal/lab/testkit"
)

// Of two editors with the same page, the second to save overwrites nothing: the page comes again with what the first
// changed, and keeps what the second wrote. Every form of the console is here.
func TestTwoEditors(t *testing.T) {
	const (
		one  = "/console/rooms/{room}"
		room = "/zones/{zone}/waiting_rooms/{room}"
	)
	type change struct {
		path string
		body map[string]any
	}
	type form struct {
		form  url.Values
		first change   // of the first editor; none: the form makes something new, or ends what can only end
		says  []string // by the answer to the second
	}
	do := func(what string) url.Values { return url.Values{"do": {what}} }
	event := change{room + "/events/{event}", map[string]any{"total_active_users": 500, "new_users_per_minute": 900}}
	rule := change{room + "/rules/{rule}", map[string]any{"description": "theirs"}}
	hook := change{"/vestibule/webhooks/{webhook}", map[string]any{"name": "theirs"}}
	page := change{room, map[string]any{"custom_page_html": "<p>theirs"}}
	all := map[string][]form{
		"POST " + one + "/events/{event}": {
			{url.Values{"description": {"posters"}}, event, []string{"Now it is “500”. Yours is kept here.", "Now it is “All shoes"}},
			{do("delete"), event, []string{"500"}},
		},
		"POST " + one + "/rules/{rule}": {
			{url.Values{"expression": {"ssl"}}, rule, []string{"Now it is “theirs”. Yours is kept here."}},
			{do("delete"), rule, nil},
			{do("down"), rule, []string{"theirs"}},
		},
		"POST /console/webhooks/{webhook}": {
			{do("off"), hook, []string{"This is webhook theirs now."}}, {do("test"), hook, nil}, {do("delete"), hook, nil},
		},
		"POST " + one + "/page": {
			{url.Values{"html": {"<p>mine"}, "do": {"check"}}, page, []string{"Your page is kept below", "<p>theirs", "<p>mine"}},
			{url.Values{"html": {"<p>mine"}, "do": {"publish"}}, page, []string{"<p>theirs", "<p>mine"}},
		},
		"POST " + one + "/changes/{revision}": {{
			nil,
			change{room, map[string]any{"total_active_users": 77}},
			[]string{"Look at the differences again", "77"},
		}},
		"POST " + one + "/actions/{name}": { // TestConfirmationsAreOfWhatTheOperatorSaw has more
			{nil, change{"/vestibule/rooms/{room}/controls", map[string]any{"message": map[string]any{"text": "x"}}}, nil},
		},
		"POST " + one + "/events": {{}}, "POST " + one + "/rules": {{}}, "POST /console/webhooks": {{}},
		"POST /console/access/tokens": {{}}, "POST /console/access/tokens/{token}": {{}},
		"POST /console/access/sessions/{session}": {{}},
	}
	for _, route := range console.Changing() {
		if all[strings.ReplaceAll(route, "{id}", "{room}")] == nil {
			t.Errorf("no case has the route %s", route)
		}
	}
	for route, forms := range all {
		for _, c := range forms {
			if c.first.path == "" {
				continue
			}
			t.Run(route+" "+c.form.Encode(), func(t *testing.T) {
				f := start(t)
				of := f.objects(f.sale())
				of["{name}"], of["{zone}"] = "pause", control.Zone
				path := fill(strings.TrimPrefix(route, "POST "), of)
				sent := f.formWith(f.see(pageOf(path, c.form)), path, c.form)
				sent.Set("reason", "mine")
				testkit.NoError(t, f.api.call(http.MethodPatch, fill(c.first.path, of), c.first.body, nil))
				before := f.stored()
				a := f.post(path, sent)
				a.is(t, http.StatusConflict)
				contains(t, a, "Somebody changed this")
				contains(t, a, c.says...)
				if !maps.Equal(f.stored(), before) {
					t.Error("the second editor changed something")
				}
				if f.formWith(a, path, c.form).Get("seen") == sent.Get("seen") {
					t.Error("the second editor cannot save after having seen the change")
				}
			})
		}
	}
}

// A change of something else is no conflict: an event is saved after another editor changed a rule.
func TestEditorsOfDifferentThings(t *testing.T) {
	f := start(t)
	of := f.objects(f.sale())
	of["{zone}"] = control.Zone
	at := fill("/console/rooms/{room}/events/{event}", of)
	sent := f.formWith(f.see(at), at, url.Values{"description": {"posters"}})
	testkit.NoError(t, f.api.call(http.MethodPatch, fill("/zones/{zone}/waiting_rooms/{room}/rules/{rule}", of),
		map[string]any{"description": "theirs"}, nil))
	f.post(at, sent).is(t, http.StatusSeeOther)
}
