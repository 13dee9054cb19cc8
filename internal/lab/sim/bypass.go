package sim

import (
	"slices"
	"strings"

	"vestibule/internal/core/room"
	"vestibule/internal/core/room/match"
	"vestibule/internal/core/rules"
)

// asks are the request paths of visitors in a room with rules; most request the first. Sites interpret the last three
// in several ways.
var asks = [...]string{"/", "/staff/list", "/help", "/staff/..%2fcheckout", "/help;v=1", "/staff//../checkout"}

// given is a rule and the paths that it bypasses.
type given struct {
	expression string
	past       []string
}

// bypasses are rules that an operator adds to the room.
var bypasses = []given{
	{`starts_with(http.request.uri.path, "/staff/")`, []string{"/staff/list"}},
	{`http.request.uri.path eq "/help"`, []string{"/help"}},
	{
		`http.request.uri.path in {"/staff/list" "/help"} and not http.user_agent contains "bot"`,
		[]string{"/staff/list", "/help"},
	},
	{`any(http.request.headers["x-staff"][*] eq "1")`, nil},
}

// bypass is a compiled rule at an edge.
type bypass struct {
	rule *rules.Rule
	past []string
}

// rulesOf returns the rules selected by the bits of which.
func rulesOf(which uint8) (out []room.Rule) {
	for i, b := range bypasses {
		if which>>i&1 != 0 {
			out = append(out, room.Rule{Expression: b.expression})
		}
	}
	return out
}

// compiled returns the rules as an edge compiles them.
func (es *edges) compiled(told []room.Rule) (out []bypass) {
	for _, r := range told {
		i := slices.IndexFunc(bypasses, func(g given) bool { return g.expression == r.Expression })
		c, err := rules.Compile(r.Expression, rules.Sources{})
		if err != nil {
			es.fail("a rule of the room does not compile: %v", err)
			return nil
		}
		out = append(out, bypass{c, bypasses[i].past})
	}
	return out
}

// letPast reports whether a rule at the edge bypasses the room for a visitor, as its gate asks. The oracle knows the
// allowed paths: no other request may pass, and one that passes is neither counted nor queued.
func (vs *visitors) letPast(n *edgeNode, v *visitor) bool {
	if len(n.rules) == 0 {
		return false
	}
	path := asks[v.asks]
	req := rules.Request{
		Method: "GET", Scheme: "https", Host: "sale.example", Version: "HTTP/1.1",
		Time: int64(vs.fleetTime() / 1000),
	}
	if !match.Readings(path,
		func(reading string) bool { req.Paths = append(req.Paths, strings.Clone(reading)); return true }) {
		req.Paths = nil
	}
	vs.asking.Ask(&req)
	past := slices.ContainsFunc(n.rules, func(b bypass) bool { return b.rule.Match(&vs.asking) })
	vs.asking.Forget()
	should := slices.ContainsFunc(n.rules, func(b bypass) bool { return slices.Contains(b.past, path) })
	switch {
	case past && !should:
		vs.fail("%s bypasses the room for %s, which a site may read as a path without a rule", n, path)
	case should && !past:
		vs.fail("%s counts or queues a request for %s, which a rule bypasses", n, path)
	}
	if past {
		vs.meters.past++
	}
	return past
}
