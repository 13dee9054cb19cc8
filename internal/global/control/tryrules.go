package control

import (
	"context"
	"net/netip"
	"strings"
	"unicode/utf8"

	"vestibule/internal/core/room/match"
	"vestibule/internal/core/rules"
	"vestibule/internal/global/control/api"
)

// tried are the sources that rules are tried with: those that a request can name. Named lists and the addresses of
// crawlers are known to edges alone.
var tried = rules.Sources{Geo: true}

// try evaluates the rules of a room, or an expression, for a request.
func (s *ruleService) try(ctx context.Context, q *request) (any, error) {
	r, err := s.look(ctx, q.room())
	if err != nil {
		return nil, err
	}
	var f faults
	m := f.object("", q.body, "method", "host", "path", "address", "user_agent", "country", "expression")
	req := rules.Request{Version: "HTTP/1.1", Scheme: "https", Time: s.fleet() / 1000}
	path, address, agent, expression := "", "", "", ""
	for key, to := range map[string]*string{
		"method": &req.Method, "host": &req.Host, "path": &path, "address": &address, "user_agent": &agent,
		"country": &req.Country, "expression": &expression,
	} {
		*to, _ = f.text("/"+key, m[key])
	}
	if req.Host = strings.ToLower(req.Host); req.Host == "" {
		f.add("/host", "host must name the host of the request")
	}
	if req.Method == "" {
		req.Method = "GET"
	}
	if address != "" {
		if req.Client, err = netip.ParseAddr(address); err != nil {
			f.add("/address", "address must be an IP address such as 192.0.2.7, got %q", short(address))
		}
	}
	if agent != "" {
		req.Headers = []rules.Header{{Name: "User-Agent", Value: agent}}
	}
	if n := utf8.RuneCountInString(expression); n > rules.MaxExpression {
		f.add("/expression", "expression must be at most %d characters, got %d", rules.MaxExpression, n)
	}
	req.Paths, req.Query = readingsOf(path)
	if f.n > 0 {
		return nil, f.err()
	}
	out := api.TriedRules{Rules: []api.TriedRule{}}
	if expression != "" {
		out.Rules = append(out.Rules, api.TriedRule{Expression: expression, Enabled: true})
	} else {
		for i := range r.Rules {
			rule := &r.Rules[i]
			out.Rules = append(out.Rules, api.TriedRule{Id: rule.ID, Expression: rule.Expression, Enabled: !rule.Disabled})
		}
	}
	var scratch rules.Scratch
	scratch.Ask(&req)
	for i := range out.Rules {
		t := &out.Rules[i]
		t.Matches, t.Reason = explainRule(t, &scratch)
		out.Passes = out.Passes || t.Matches
		if expression == "" {
			t.Expression = principal(ctx).expression(t.Expression)
		}
	}
	return out, nil
}

// readingsOf returns all readings of a path, none if it can mean anything, and its query.
func readingsOf(target string) (paths []string, query string) {
	path, query, _ := strings.Cut(target, "?")
	if path == "" {
		path = "/"
	}
	whole := match.Readings(path, func(reading string) bool {
		paths = append(paths, reading)
		return true
	})
	if !whole {
		return nil, query
	}
	return paths, query
}

// explainRule evaluates one rule for the request of s.
func explainRule(t *api.TriedRule, s *rules.Scratch) (matches bool, reason string) {
	if !t.Enabled {
		return false, "it is not enabled"
	}
	rule, err := rules.Compile(t.Expression, tried)
	if err == nil {
		return rule.Explain(s)
	}
	if _, elsewhere := rules.Compile(t.Expression, rules.Sources{Unknown: true}); elsewhere == nil {
		return false, "edges know its lists or crawlers, this global does not"
	}
	return false, "it cannot be evaluated: " + err.Error()
}
