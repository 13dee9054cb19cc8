package control

import (
	"slices"
	"strings"
	"testing"

	"vestibule/internal/core/room"
)

// listed returns the expressions of an answer, and the rule that has one.
func listed(t *testing.T, a answer, of string) (all []string, rule map[string]any) {
	t.Helper()
	list, ok := a.Result.([]any)
	if a.code != 200 || !ok || a.Info.Count != len(list) {
		t.Fatalf("%+v", a)
	}
	for _, e := range list {
		m := e.(map[string]any)
		if all = append(all, m["expression"].(string)); m["expression"] == of {
			rule = m
		}
	}
	return all, rule
}

func TestRulesAreMadeMovedChangedAndDeleted(t *testing.T) {
	f := start(t)
	id := f.made()
	at := "{z}/" + id + "/rules"
	if all, _ := listed(t, f.ask(Viewer, "GET", at, ""), ""); len(all) != 0 {
		t.Errorf("a new room has rules: %v", all)
	}
	f.ask(Editor, "POST", at, `{"action":"bypass_waiting_room","expression":"ssl"}`)
	all, b := listed(t, f.ask(Editor, "POST", at,
		`{"action":"bypass_waiting_room","expression":"not ssl","description":"b","enabled":false}`), "not ssl")
	if !slices.Equal(all, []string{"ssl", "not ssl"}) || b["version"] != "1" || b["enabled"] != false ||
		b["description"] != "b" || b["action"] != "bypass_waiting_room" {
		t.Fatalf("%v, %v", all, b)
	}
	if d := b["last_updated"].(string); strings.HasPrefix(d, "1970") {
		t.Errorf("changed on %s", d)
	}
	_, a := listed(t, f.ask(Editor, "POST", at, `{"action":"bypass_waiting_room","expression":"cf.client.bot"}`), "ssl")
	for position, want := range map[string][]string{
		`{"index":1}`:                           {"not ssl", "ssl", "cf.client.bot"},
		`{"index":3}`:                           {"ssl", "cf.client.bot", "not ssl"},
		`{"before":""}`:                         {"not ssl", "ssl", "cf.client.bot"},
		`{"after":""}`:                          {"ssl", "cf.client.bot", "not ssl"},
		`{"before":"` + a["id"].(string) + `"}`: {"not ssl", "ssl", "cf.client.bot"},
		`{"after":"` + a["id"].(string) + `"}`:  {"ssl", "not ssl", "cf.client.bot"},
	} {
		all, moved := listed(t, f.ask(Editor, "PATCH", at+"/"+b["id"].(string), `{"position":`+position+`}`), "not ssl")
		if !slices.Equal(all, want) || moved["version"] != "1" {
			t.Errorf("%s: %v, version %v", position, all, moved["version"])
		}
	}
	_, b = listed(t, f.ask(Editor, "PATCH", at+"/"+b["id"].(string),
		`{"action":"bypass_waiting_room","expression":"not ssl or ssl","enabled":true}`), "not ssl or ssl")
	if b["version"] != "2" || b["enabled"] != true || b["description"] != "b" {
		t.Errorf("patched: %v", b)
	}
	// The list as Terraform writes it, without ids: a rule with the same content stays the same rule.
	all, same := listed(t,
		f.ask(Editor, "PUT", at,
			`[{"action":"bypass_waiting_room","expression":"cf.client.bot","description":"new"},{"action":"bypass_waiting_room","expression":"not ssl or ssl","description":"b"}]`), "not ssl or ssl")
	if len(all) != 2 || same["id"] != b["id"] || same["version"] != "2" || same["last_updated"] != b["last_updated"] {
		t.Errorf("put: %v, %v was %v", all, same, b)
	}
	// A PUT of the room keeps its rules.
	f.ask(Editor, "PUT", "{z}/"+id, shop+"}")
	if all, _ := listed(t, f.ask(Editor, "DELETE", at+"/"+b["id"].(string), ""), ""); !slices.Equal(all,
		[]string{"cf.client.bot"}) {
		t.Errorf("deleted: %v", all)
	}
	if all, _ := listed(t, f.ask(Editor, "PUT", at, `[]`), ""); len(all) != 0 {
		t.Errorf("put nothing: %v", all)
	}
}

func TestFaultsOfRules(t *testing.T) {
	f := start(t)
	id := f.made()
	at := "{z}/" + id + "/rules"
	_, rule := listed(t, f.ask(Editor, "POST", at, `{"action":"bypass_waiting_room","expression":"ssl"}`), "ssl")
	one := at + "/" + rule["id"].(string)
	f.refuse([]refusal{
		{
			"POST", at, `{"action":"log","expression":"http.hots eq \"a\"","description":5,"enabled":"yes"}`,
			[]string{"/action", "/description", "/enabled", "/expression"},
			"character 1: unknown field http.hots",
		},
		{"POST", at, `{}`, []string{"/action", "/expression"}, "is required"},
		{"POST", at, `5`, []string{""}, "must be an object"},
		{"PATCH", one, `5`, []string{""}, "must be an object"},
		{"PUT", at, `{}`, []string{""}, "must be a list"},
		{
			"PUT", at,
			`[{"action":"bypass_waiting_room","expression":"ssl"},{"action":"bypass_waiting_room","expression":"ssl eq 1"}]`,
			[]string{"/1/expression"},
			"a Boolean is used alone",
		},
		{"PATCH", one, `{"position":{"index":2}}`, []string{"/position/index"}, "must be 1 to 1, got 2"},
		{"PATCH", one, `{"position":{"before":"x"}}`, []string{"/position/before"}, "no other rule"},
		{"PATCH", one, `{"position":{"index":1,"before":""}}`, []string{"/position"}, "one of"},
		{"PATCH", one, `{"expression":"ip.src in {10.0.0.1/8}"}`, []string{"/expression"}, "it is 10.0.0.0/8"},
		{"PUT", at, "[" + strings.Repeat(`{"action":"bypass_waiting_room","expression":"ssl"},`,
			room.MaxRules) + `{"action":"bypass_waiting_room","expression":"ssl"}]`, []string{""}, "at most 100, got 101"},
	})
	if all, _ := listed(t, f.ask(Viewer, "GET", at, ""), ""); !slices.Equal(all, []string{"ssl"}) {
		t.Errorf("what was refused changed the rules: %v", all)
	}
	for _, path := range []string{
		at + "/" + strings.Repeat("0", 32),
		"{z}/" + strings.Repeat("0", 32) + "/rules/" + rule["id"].(string),
	} {
		if a := f.ask(Editor, "DELETE", path, ""); a.code != 404 || a.Errors[0].Code != codeNotFound {
			t.Errorf("%s: %+v", path, a)
		}
	}
	f.expect(403, Operator, "POST", at, `{"action":"bypass_waiting_room","expression":"ssl"}`) // an operator makes rules
}
