package control

import (
	"fmt"
	"strings"
	"testing"
)

// Rules are tried as edges evaluate them, under every reading of the path; anybody who sees the room may try.
func TestRulesAreTried(t *testing.T) {
	f := start(t)
	id := f.made()
	rules := `[{"action":"bypass_waiting_room","expression":"http.request.uri.path eq \"/health\""},
		{"action":"bypass_waiting_room","expression":"ip.src in {192.0.2.0/24}","enabled":false},
		{"action":"bypass_waiting_room","expression":"http.user_agent contains \"Probe\" and ip.src.country eq \"DE\""},
		{"action":"bypass_waiting_room","expression":"ip.src in $office"}]`
	f.ok(Editor, "PUT", "{z}/"+id+"/rules", rules)
	at := "/vestibule/rooms/" + id + "/rules/try"
	for body, want := range map[string]string{
		`{"host":"shop.example","path":"/health?x=1"}`: "true [true  false it is not enabled false  false edges know]",
		`{"host":"shop.example","path":"/cart"}`:       "false [false  false it is not enabled false  false edges know]",
		`{"host":"shop.example","path":"/a/..%2fhealth","address":"192.0.2.1","country":"DE",` +
			`"user_agent":"Probe/1"}`: "true [false  false it is not enabled true  false edges know]",
		`{"host":"shop.example","path":"/cart","expression":"http.host eq \"shop.example\""}`: "true [true ]",
		`{"host":"SHOP.example","expression":"not http.request.uri.path contains \"admin\"",` +
			`"path":"/x/%61dmin"}`: "false [false a site may read]",
		`{"host":"shop.example","expression":"http.hosst eq \"\""}`: "false [false it cannot be evaluated]",
	} {
		a := f.ask(Viewer, "POST", at, body)
		var got []string
		list, _ := a.field("rules").([]any)
		for _, r := range list {
			rule, _ := r.(map[string]any)
			reason, _ := rule["reason"].(string)
			got = append(got, fmt.Sprint(rule["matches"]),
				strings.Join(strings.Fields(reason)[:min(len(strings.Fields(reason)), 4)], " "))
		}
		for i, text := range got {
			for _, begin := range []string{"edges know", "a site may read", "it cannot be evaluated"} {
				if strings.HasPrefix(text, begin) {
					got[i] = begin
				}
			}
		}
		if text := fmt.Sprint(a.field("passes"), " ", got); a.code != 200 || text != want {
			t.Errorf("%s: %d %s, want %s; %+v", body, a.code, text, want, a.Errors)
		}
	}
	for body, pointers := range map[string]string{
		`{"path":"/"}`: "/host", `{"host":"a","address":"x"}`: "/address", `{"host":"a","agent":"x"}`: "/agent",
		`{"host":1}`: "/host /host",
	} {
		f.refused(Viewer, "POST", at, body, strings.Split(pointers, " ")...)
	}
}
